//! Access to YAML: documents in, trees or JSON values out, as sigs.k8s.io/yaml reads them.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;

use bounded::memory::Held;
use bounded::{Budget, BudgetError, Limits};
use go_template::sprig::json::MAX_DEPTH;
use go_template::{Str, Tree, TreeMap, Type};
use go_yaml::Selection;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Number, Value};

/// An error in a YAML text, including YAML that JSON cannot represent.
#[derive(Debug, thiserror::Error)]
pub enum YamlError {
    /// The text is not YAML, or cannot be converted to JSON.
    #[error(transparent)]
    Text(#[from] go_yaml::Error),
    /// Lists and maps are nested too deeply for Go's reader of JSON.
    #[error("invalid character '{0}' exceeded max depth")]
    Depth(char),
}

impl YamlError {
    fn text(&self) -> Option<&go_yaml::Error> {
        match self {
            Self::Text(error) => Some(error),
            Self::Depth(_) => None,
        }
    }

    /// Returns the exceeded limit, if that is the error.
    pub fn limit(&self) -> Option<&BudgetError> {
        self.text()?.budget()
    }

    /// Returns the line of the text, from 1.
    pub(crate) fn line(&self) -> usize {
        self.text().map_or(1, go_yaml::Error::line)
    }

    /// Returns the column in characters, from 1.
    pub(crate) fn column(&self) -> usize {
        self.text().map_or(1, go_yaml::Error::column)
    }
}

impl From<BudgetError> for YamlError {
    fn from(error: BudgetError) -> Self {
        Self::Text(error.into())
    }
}

/// Parses the first document of `text` as Kubernetes does: whole numbers become integers. An empty
/// document is null.
pub(crate) fn parse(text: &str) -> Result<Value, YamlError> {
    parse_selection(text, Selection::Whole, &Budget::new(Limits::NESTING_ONLY))
}

/// Like [`parse`], for an untrusted text. Also returns the bytes that the value holds, which are limited while it is
/// being built, too.
pub(crate) fn parse_within(text: &str, budget: &Budget) -> Result<(Value, usize), YamlError> {
    let (held, exceeded) = (Cell::new(0), OnceCell::new());
    let seed = JsonVisitor {
        budget,
        held: &held,
        exceeded: &exceeded,
    };
    let parsed = go_yaml::from_slice_within(text.as_bytes(), seed, budget);
    // The reader only knows that the visitor failed.
    if let Some(error) = exceeded.into_inner() {
        return Err(error.into());
    }
    let mut value = parsed?;
    whole_numbers(&mut value);
    Ok((value, held.get()))
}

/// Parses the first document of `text` as [`parse`] does but returns only a part of it. Errors in
/// the rest are still reported.
pub(crate) fn parse_selection(
    text: &str,
    part: Selection,
    budget: &Budget,
) -> Result<Value, YamlError> {
    let mut value = go_yaml::from_slice_selected(text.as_bytes(), part, Part(part), budget)?;
    whole_numbers(&mut value);
    Ok(value)
}

/// Reads a part of a value.
#[derive(Clone, Copy)]
struct Part(Selection);

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.0 {
            Selection::Whole => Value::deserialize(deserializer),
            Selection::Scalar => deserializer.deserialize_str(SelectionVisitor(self.0)),
            part => deserializer.deserialize_any(SelectionVisitor(part)),
        }
    }
}

/// Builds a part of a value. A [`Selection::Scalar`] is what Go decodes into a string: numbers and booleans
/// become text; null, and what is no scalar, stays what it is, without content.
struct SelectionVisitor(Selection);

impl SelectionVisitor {
    fn scalar<T: Into<Value>>(&self, value: T, text: impl FnOnce(T) -> String) -> Value {
        match self.0 {
            Selection::Scalar => Value::String(text(value)),
            _ => value.into(),
        }
    }
}

impl<'de> Visitor<'de> for SelectionVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(self.scalar(value, |value| value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(self.scalar(value, |value| value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(self.scalar(value, |value| value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(self.scalar(value, go_yaml::float_as_text))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut found = Vec::new();
        match self.0.of_items() {
            Some(part) => {
                while let Some(item) = items.next_element_seed(Part(part))? {
                    found.push(item);
                }
            }
            None => while items.next_element::<IgnoredAny>()?.is_some() {},
        }
        Ok(Value::Array(found))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut found = Map::new();
        while let Some(wanted) = fields.next_key_seed(SelectedKey(self.0))? {
            match wanted {
                Some((key, part)) => {
                    found.insert(key, fields.next_value_seed(Part(part))?);
                }
                None => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Value::Object(found))
    }
}

/// Reads a key and returns the selection for its value, if any.
struct SelectedKey(Selection);

impl<'de> DeserializeSeed<'de> for SelectedKey {
    type Value = Option<(String, Selection)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for SelectedKey {
    type Value = Option<(String, Selection)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.below(key).map(|part| (key.to_owned(), part)))
    }
}

/// The memory of a map that is not empty: a node of a B-tree, for up to 11 entries.
const MAP: usize = 640;
/// The memory of a further entry: the nodes of a large B-tree may be half empty.
const ENTRY: usize = 120;
/// The bookkeeping of an allocation.
const ALLOCATION: usize = 16;

/// Builds a JSON value, and counts the bytes that it holds.
#[derive(Clone, Copy)]
struct JsonVisitor<'b> {
    budget: &'b Budget,
    held: &'b Cell<usize>,
    exceeded: &'b OnceCell<BudgetError>,
}

impl JsonVisitor<'_> {
    /// Counts bytes before they are allocated.
    fn add<E: serde::de::Error>(self, bytes: usize) -> Result<(), E> {
        let held = self.held.get().saturating_add(bytes);
        self.held.set(held);
        self.budget.memory(held).map_err(|error| {
            let message = E::custom(&error);
            self.exceeded.get_or_init(|| error);
            message
        })
    }
}

impl<'de> DeserializeSeed<'de> for JsonVisitor<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonVisitor<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.add(value.len() + ALLOCATION)?;
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            // A list that grows doubles its capacity.
            self.add(2 * size_of::<Value>())?;
            list.push(item);
        }
        list.shrink_to_fit();
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            let entry = if map.is_empty() { MAP } else { ENTRY };
            self.add(entry + key.len() + ALLOCATION)?;
            map.insert(key, fields.next_value_seed(self)?);
        }
        Ok(Value::Object(map))
    }
}

/// Converts floats without a fraction to integers, as in Go's JSON.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(float) = number.as_f64().filter(|float| {
                number.is_f64() && float.fract() == 0.0 && float.abs() < 9_223_372_036_854_775_808.0
            }) {
                #[allow(clippy::cast_possible_truncation, reason = "whole and in range")]
                let whole = float as i64;
                *number = Number::from(whole);
            }
        }
        Value::Array(items) => bounded::grow(|| items.iter_mut().for_each(whole_numbers)),
        Value::Object(map) => bounded::grow(|| map.values_mut().for_each(whole_numbers)),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Converts all numbers to floats, as Go does when it reads JSON.
pub(crate) fn all_floats(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(float) = number.as_f64().and_then(Number::from_f64) {
                *number = float;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(all_floats),
        Value::Object(map) => map.values_mut().for_each(all_floats),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Parses the first document of `text` as Go does into an `interface {}`: numbers are floats.
pub(crate) fn parse_tree(text: &[u8], budget: &Budget) -> Result<Tree, YamlError> {
    let over = RefCell::new(None);
    let seed = TreeVisitor {
        budget,
        over: &over,
        depth: 0,
    };
    match go_yaml::from_slice_within(text, seed, budget) {
        Ok(tree) => Ok(tree),
        // The reader only knows that the visitor failed, here or in an attempt before.
        Err(error) => match over.take() {
            Some(kept) if kept.to_string() == error.message() => Err(kept),
            _ => Err(YamlError::Text(error)),
        },
    }
}

/// Builds trees whose memory is limited while they are being built, too.
#[derive(Clone, Copy)]
struct TreeVisitor<'b> {
    budget: &'b Budget,
    over: &'b RefCell<Option<YamlError>>,
    /// The number of lists and maps around the value.
    depth: usize,
}

impl TreeVisitor<'_> {
    /// Returns the visitor of the content of a list or map that begins with a character.
    fn inside<E: serde::de::Error>(self, bracket: char) -> Result<Self, E> {
        if self.depth >= MAX_DEPTH {
            return Err(self.fail(YamlError::Depth(bracket)));
        }
        let depth = self.depth + 1;
        Ok(Self { depth, ..self })
    }

    /// Keeps the error, of which the reader only learns that there is one.
    fn fail<E: serde::de::Error>(self, error: YamlError) -> E {
        let message = E::custom(&error);
        self.over.replace(Some(error));
        message
    }

    /// Counts the memory of an element of a list that is not complete.
    fn add<E: serde::de::Error>(self, held: &mut Held, bytes: usize) -> Result<(), E> {
        held.add(bytes);
        let fits = self.budget.memory(0);
        fits.map_err(|error| self.fail(error.into()))
    }
}

impl<'de> DeserializeSeed<'de> for TreeVisitor<'_> {
    type Value = Tree;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TreeVisitor<'_> {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Nil)
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Nil)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    #[allow(clippy::cast_precision_loss, reason = "as Go's JSON reads numbers")]
    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Float(value as f64))
    }

    #[allow(clippy::cast_precision_loss, reason = "as Go's JSON reads numbers")]
    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Float(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Str(Str::from(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let inside = self.inside('[')?;
        let mut list = Vec::with_capacity(items.size_hint().unwrap_or(0).min(1024));
        let mut held = Held::default();
        while let Some(item) = items.next_element_seed(inside)? {
            list.push(item);
            self.add(&mut held, 2 * size_of::<Tree>())?;
        }
        drop(held);
        list.shrink_to_fit();
        Ok(Tree::from(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Tree, A::Error> {
        let inside = self.inside('{')?;
        let mut entries = Vec::with_capacity(fields.size_hint().unwrap_or(0).min(1024));
        let mut held = Held::default();
        while let Some(key) = fields.next_key_seed(KeyVisitor)? {
            entries.push((key, fields.next_value_seed(inside)?));
            self.add(&mut held, 2 * size_of::<(Str, Tree)>())?;
        }
        drop(held);
        Ok(Tree::from(TreeMap::new(Type::MAP, entries)))
    }
}

struct KeyVisitor;

impl<'de> DeserializeSeed<'de> for KeyVisitor {
    type Value = Str;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Str, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyVisitor {
    type Value = Str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, value: &str) -> Result<Str, E> {
        Ok(Str::from(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_keep_whole_numbers_and_values_have_floats() {
        let text = "{a: 1, b: 2.0, c: 0.5, d: 1e30, e: [3]}";
        let object = parse(text).unwrap();
        assert_eq!(
            object.to_string(),
            r#"{"a":1,"b":2,"c":0.5,"d":1e+30,"e":[3]}"#
        );
        let Tree::Map(map) =
            parse_tree(text.as_bytes(), &Budget::new(Limits::NESTING_ONLY)).unwrap()
        else {
            panic!()
        };
        assert!(matches!(map.get("a"), Some(Tree::Float(1.0))));
    }
}

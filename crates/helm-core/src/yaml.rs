//! The one door to YAML: documents in, trees or JSON values out, as sigs.k8s.io/yaml reads them.

use std::fmt;

use go_template::{Str, Tree, TreeMap, Type};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Number, Value};

/// A text that is no YAML, or has more than JSON can say.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct YamlError(#[from] go_yaml::Error);

/// Reads the first document of `text` as Kubernetes does: whole numbers are integers. An empty
/// document is null.
pub(crate) fn parse(text: &str) -> Result<Value, YamlError> {
    let mut value = go_yaml::from_str(text)?;
    whole_numbers(&mut value);
    Ok(value)
}

/// What is wanted of a value.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    /// All of it.
    Whole,
    /// Of a map the fields of these names, in any case; of a list only that it is one.
    Fields(&'static [(&'static str, Part)]),
}

/// Reads the first document of `text` as [`parse`] does, but gives only a part of it. What is
/// wrong with the rest is an error all the same.
pub(crate) fn parse_part(text: &str, part: Part) -> Result<Value, YamlError> {
    let mut value = go_yaml::from_slice_seed(text.as_bytes(), part)?;
    whole_numbers(&mut value);
    Ok(value)
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self {
            Self::Whole => Value::deserialize(deserializer),
            Self::Fields(fields) => deserializer.deserialize_any(PartVisitor(fields)),
        }
    }
}

struct PartVisitor(&'static [(&'static str, Part)]);

impl<'de> Visitor<'de> for PartVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
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

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Array(Vec::new()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut found = Map::new();
        while let Some(wanted) = fields.next_key_seed(Wanted(self.0))? {
            match wanted {
                Some((key, part)) => {
                    found.insert(key, fields.next_value_seed(part)?);
                }
                None => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Value::Object(found))
    }
}

/// A key, and what is wanted of its value, if anything is.
struct Wanted(&'static [(&'static str, Part)]);

impl<'de> DeserializeSeed<'de> for Wanted {
    type Value = Option<(String, Part)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Wanted {
    type Value = Option<(String, Part)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        let mut fields = self.0.iter();
        let field = fields.find(|(name, _)| key.eq_ignore_ascii_case(name));
        Ok(field.map(|(_, part)| (key.to_owned(), *part)))
    }
}

/// Floats without a fraction are integers in the JSON that Go writes of them.
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
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Makes all numbers floats, which is what they are once Go has read them from JSON.
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

/// Reads the first document of `text` as Go does into an `interface {}`: numbers are floats.
pub(crate) fn parse_tree(text: &[u8]) -> Result<Tree, YamlError> {
    Ok(go_yaml::from_slice::<Document>(text)?.0)
}

/// A tree that serde reads.
struct Document(Tree);

impl<'de> serde::Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor).map(Self)
    }
}

struct TreeVisitor;

impl<'de> DeserializeSeed<'de> for TreeVisitor {
    type Value = Tree;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TreeVisitor {
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
        let mut list = Vec::with_capacity(items.size_hint().unwrap_or(0).min(1024));
        while let Some(item) = items.next_element_seed(Self)? {
            list.push(item);
        }
        Ok(Tree::from(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::with_capacity(fields.size_hint().unwrap_or(0).min(1024));
        while let Some(key) = fields.next_key_seed(KeyVisitor)? {
            entries.push((key, fields.next_value_seed(Self)?));
        }
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
        let Tree::Map(map) = parse_tree(text.as_bytes()).unwrap() else {
            panic!()
        };
        assert!(matches!(map.get("a"), Some(Tree::Float(1.0))));
    }
}

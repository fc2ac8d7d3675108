//! Deserializes nodes like `sigs.k8s.io/yaml`: a YAML text means the JSON that it converts to.

use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::Write as _;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};

use bounded::Budget;

use crate::mark::Error;
use crate::resolve::{BINARY, Scalar, binary};
use crate::scanner::ScalarStyle;
use crate::tree::{Node, NodeKind};

/// Counts decoded nodes, and those decoded through aliases: go-yaml's protection against documents
/// that expand excessively.
pub(crate) struct AliasBudget<'b> {
    limits: &'b Budget,
    decoded: Cell<u64>,
    aliased: Cell<u64>,
    alias_depth: Cell<u32>,
    /// Whether a duplicate key is an error.
    strict: bool,
}

impl<'b> AliasBudget<'b> {
    /// Creates the budget of a reader in which the last of duplicate keys wins.
    pub(crate) fn new(limits: &'b Budget) -> Self {
        Self {
            limits,
            decoded: Cell::new(0),
            aliased: Cell::new(0),
            alias_depth: Cell::new(0),
            strict: false,
        }
    }

    /// Creates the budget of a reader that rejects duplicate keys.
    pub(crate) fn strict(limits: &'b Budget) -> Self {
        Self {
            strict: true,
            ..Self::new(limits)
        }
    }

    /// Runs `read` on what is reached through `aliases` more aliases.
    fn through<T>(&self, aliases: u32, read: impl FnOnce() -> T) -> T {
        let depth = self.alias_depth.get();
        self.alias_depth.set(depth + aliases);
        let value = read();
        self.alias_depth.set(depth);
        value
    }

    fn step(&self, node: &Node) -> Result<(), Error> {
        let step = self.limits.step(1);
        step.map_err(|error| Error::from(error).located(node.mark))
    }

    fn spend(&self, node: &Node) -> Result<(), Error> {
        self.step(node)?;
        self.decoded.set(self.decoded.get() + 1);
        if self.alias_depth.get() > 0 {
            self.aliased.set(self.aliased.get() + 1);
        }
        let (decoded, aliased) = (self.decoded.get(), self.aliased.get());
        // The ratio falls from 0.99 at 400,000 nodes to 0.10 at 4,000,000.
        let allowed = match decoded {
            0..=400_000 => 99,
            4_000_000.. => 10,
            _ => 99 - 89 * (decoded - 400_000) / 3_600_000,
        };
        if aliased > 100 && decoded > 1000 && aliased * 100 > decoded * allowed {
            return Err(Error::at("document contains excessive aliasing", node.mark));
        }
        Ok(())
    }
}

/// Deserializes the root of a document. Of several errors, the first one that Go finds is returned: it decodes all
/// of the document in its order before it converts anything.
pub(crate) fn read<'n, S: DeserializeSeed<'n>>(
    node: &'n Node,
    seed: S,
    budget: &'n AliasBudget<'n>,
) -> Result<S::Value, Error> {
    let reader = NodeReader { node, budget };
    seed.deserialize(reader).map_err(|error| {
        if error.budget().is_some() {
            return error;
        }
        reader
            .check()
            .err()
            .filter(|undecoded| undecoded.budget().is_none())
            .unwrap_or(error)
    })
}

/// Deserializer of a node.
#[derive(Clone, Copy)]
struct NodeReader<'n> {
    node: &'n Node,
    budget: &'n AliasBudget<'n>,
}

impl<'n> NodeReader<'n> {
    fn child(self, node: &'n Node) -> Self {
        Self {
            node,
            budget: self.budget,
        }
    }

    /// Returns the map's entries with merges applied, keys as text, and the last of equal keys.
    fn entries(self, entries: &'n [(Node, Node)]) -> Result<Vec<Found<'n>>, Error> {
        let mut found = Entries {
            alias_depth: self.budget.alias_depth.get(),
            ..Entries::default()
        };
        self.collect(entries, &mut found, self.budget.strict)?;
        for node in found.replaced {
            self.child(node).check()?;
        }
        Ok(found.list)
    }

    /// Reports the errors of decoding a value that is not converted.
    fn check(self) -> Result<(), Error> {
        self.budget.step(self.node)?;
        let limits = self.budget.limits;
        match &self.node.kind {
            // Its target is decoded where it stands.
            NodeKind::Alias(_) => Ok(()),
            NodeKind::Anchored(node) => self.child(node).check(),
            NodeKind::List(items) => {
                limits.descend(|| items.iter().try_for_each(|item| self.child(item).check()))
            }
            NodeKind::Map(entries) => limits.descend(|| {
                entries.iter().try_for_each(|(key, value)| {
                    if is_merge(key) {
                        check_merge(value)?;
                    } else if key.scalar().transpose()?.is_none() {
                        return Err(self.invalid_key(key));
                    }
                    self.child(value).check()
                })
            }),
            NodeKind::Scalar { .. } => self.node.scalar().transpose().map(drop),
        }
    }

    fn collect(
        self,
        entries: &'n [(Node, Node)],
        into: &mut Entries<'n>,
        strict: bool,
    ) -> Result<(), Error> {
        for (key, value) in entries {
            if is_merge(key) {
                self.merge(value, into)?;
            } else {
                let name = self.key_text(key, entries)?;
                let aliases = self.budget.alias_depth.get() - into.alias_depth;
                let fresh = into.set(name.clone(), value, aliases);
                if !fresh && strict {
                    let message = format!("key \"{name}\" already set in map");
                    return Err(Error::scanner(message, key.mark));
                }
            }
        }
        Ok(())
    }

    fn merge(self, value: &'n Node, into: &mut Entries<'n>) -> Result<(), Error> {
        if value.as_map().is_some() {
            return self.merge_map(value, into);
        }
        let NodeKind::List(sources) = &value.kind else {
            self.budget.spend(value)?;
            return Err(no_merge(value));
        };
        // Earlier sources take precedence.
        for source in sources.iter().rev() {
            self.merge_map(source, into)?;
        }
        Ok(())
    }

    /// Merges one map and counts all of its content as decoded, because maps that merge each other
    /// expand like aliases.
    fn merge_map(self, source: &'n Node, into: &mut Entries<'n>) -> Result<(), Error> {
        self.budget.spend(source)?;
        let entries = source.as_map().ok_or_else(|| no_merge(source))?;
        let target = match &source.kind {
            NodeKind::Alias(target) => Some(target),
            _ => None,
        };
        self.budget.through(u32::from(target.is_some()), || {
            if let Some(target) = target {
                self.budget.spend(target)?;
            }
            for (key, value) in entries {
                self.budget.spend(key)?;
                self.budget.spend(value)?;
            }
            let limits = self.budget.limits;
            limits.descend(|| self.collect(entries, into, false))
        })
    }

    /// Returns a key of a map as in JSON: as text.
    fn key_text(self, key: &'n Node, entries: &[(Node, Node)]) -> Result<Cow<'n, str>, Error> {
        let scalar = key.scalar().ok_or_else(|| self.invalid_key(key))?;
        let shown = match scalar? {
            Scalar::Str(text) => return Ok(text),
            Scalar::Bool(value) => return Ok(if value { "true" } else { "false" }.into()),
            Scalar::Int(value) => return Ok(value.to_string().into()),
            Scalar::Float(value) => return Ok(crate::float::key(value).into()),
            Scalar::Uint(number) => format!("uint64, key: {number:#x}"),
            Scalar::Null => "%!s(<nil>), key: <nil>".to_owned(),
        };
        // Of equal keys, the last one counts.
        let is_equal = |other: &Node| matches!((other.scalar(), key.scalar()), (Some(Ok(a)), Some(Ok(b))) if a == b);
        let mut equal = entries.iter().filter(|(other, _)| is_equal(other));
        // Unlike a nested value, a null is not shown with its type.
        let value = equal.next_back().filter(|(_, value)| !value.is_null());
        let value = value.map_or_else(|| "<nil>".to_owned(), |(_, value)| go_syntax(value));
        let message = format!("unsupported map key of type: {shown}, value: {value}");
        Err(Error::conversion(message, key.mark))
    }

    /// Returns the error of a key that is no scalar. Go decodes the key first, and reports an error in it.
    fn invalid_key(self, key: &'n Node) -> Error {
        let invalid = || {
            let message = format!("invalid map key: {}", go_syntax(key));
            Error::at(message, key.mark)
        };
        self.child(key).check().err().unwrap_or_else(invalid)
    }
}

fn check_merge(value: &Node) -> Result<(), Error> {
    if value.as_map().is_some() {
        return Ok(());
    }
    let NodeKind::List(sources) = &value.kind else {
        return Err(no_merge(value));
    };
    let wrong = sources.iter().find(|source| source.as_map().is_none());
    wrong.map_or(Ok(()), |source| Err(no_merge(source)))
}

fn no_merge(value: &Node) -> Error {
    let message = "map merge requires map or sequence of maps as the value";
    Error::at(message, value.mark)
}

/// An entry of a map.
struct Found<'n> {
    key: Cow<'n, str>,
    value: &'n Node,
    /// Number of aliases through which a merge reached it.
    aliases: u32,
}

#[derive(Default)]
struct Entries<'n> {
    list: Vec<Found<'n>>,
    /// The number of aliases through which the map was reached.
    alias_depth: u32,
    index: HashMap<Cow<'n, str>, usize>,
    /// The values that later duplicates replaced, except for those of merged aliases, which are
    /// decoded where they stand.
    replaced: Vec<&'n Node>,
}

impl<'n> Entries<'n> {
    /// Sets a key and returns whether it is new.
    fn set(&mut self, key: Cow<'n, str>, value: &'n Node, aliases: u32) -> bool {
        if let Some(entry) = self.index.get(&key).and_then(|at| self.list.get_mut(*at)) {
            let before = std::mem::replace(&mut entry.value, value);
            if std::mem::replace(&mut entry.aliases, aliases) == 0 {
                self.replaced.push(before);
            }
            return false;
        }
        self.index.insert(key.clone(), self.list.len());
        self.list.push(Found {
            key,
            value,
            aliases,
        });
        true
    }
}

pub(crate) fn is_merge(key: &Node) -> bool {
    match &key.kind {
        NodeKind::Scalar { text, style } => {
            text == "<<"
                && (key.tag.as_deref() == Some("tag:yaml.org,2002:merge")
                    || (key.tag.is_none() && *style == ScalarStyle::Plain))
        }
        _ => false,
    }
}

/// Formats a nested node like Go's `%#v`, for messages.
fn go_syntax(node: &Node) -> String {
    let mut text = String::new();
    push_go_syntax(node, 0, &mut text);
    text
}

/// Quotes a text like Go's `strconv.Quote`.
fn quoted(text: &[u8]) -> String {
    let mut out = String::from("\"");
    for chunk in text.utf8_chunks() {
        push_escaped(chunk.valid(), &mut out);
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push('"');
    out
}

fn push_escaped(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\'' => out.push(c),
            ' '..='~' | '\n' | '\r' | '\t' => out.extend(c.escape_debug()),
            '\0'..='\u{7f}' => drop(write!(out, "\\x{:02x}", u32::from(c))),
            // Escaped are the characters that are not printable.
            _ if !c.escape_debug().to_string().starts_with("\\u") => out.push(c),
            '\u{80}'..='\u{ffff}' => drop(write!(out, "\\u{:04x}", u32::from(c))),
            _ => drop(write!(out, "\\U{:08x}", u32::from(c))),
        }
    }
}

/// Compares keys of a map as Go's `fmt` does, if both have one type. The order of types depends on Go's linker.
fn in_go_order(a: &Node, b: &Node) -> Ordering {
    fn scalar(node: &Node) -> Option<Scalar<'_>> {
        node.scalar().and_then(Result::ok)
    }
    let rank = |scalar: &Option<Scalar<'_>>| match scalar {
        None | Some(Scalar::Null) => 0,
        Some(Scalar::Bool(_)) => 1,
        Some(Scalar::Int(_)) => 2,
        Some(Scalar::Uint(_)) => 3,
        Some(Scalar::Float(_)) => 4,
        Some(Scalar::Str(_)) => 5,
    };
    match (scalar(a), scalar(b)) {
        (Some(Scalar::Str(a)), Some(Scalar::Str(b))) => a.cmp(&b),
        (Some(Scalar::Bool(a)), Some(Scalar::Bool(b))) => a.cmp(&b),
        (Some(Scalar::Int(a)), Some(Scalar::Int(b))) => a.cmp(&b),
        (Some(Scalar::Uint(a)), Some(Scalar::Uint(b))) => a.cmp(&b),
        (Some(Scalar::Float(a)), Some(Scalar::Float(b))) => match (a.is_nan(), b.is_nan()) {
            (false, false) => a.total_cmp(&b),
            (a, b) => b.cmp(&a),
        },
        (a, b) => rank(&a).cmp(&rank(&b)),
    }
}

/// Appends not much more than `MAX_LENGTH` bytes, because aliases may expand excessively.
fn push_go_syntax(node: &Node, depth: usize, out: &mut String) {
    const MAX_DEPTH: usize = 20;
    const MAX_LENGTH: usize = 4_096;
    const MAX_SORTED: usize = 100;
    if depth > MAX_DEPTH || out.len() > MAX_LENGTH {
        out.push_str("...");
        return;
    }
    match &node.kind {
        NodeKind::Alias(target) => push_go_syntax(target, depth + 1, out),
        NodeKind::Anchored(node) => push_go_syntax(node, depth, out),
        NodeKind::List(items) => {
            out.push_str("[]interface {}{");
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                push_go_syntax(item, depth + 1, out);
                if out.len() > MAX_LENGTH {
                    break;
                }
            }
            out.push('}');
        }
        NodeKind::Map(entries) => {
            out.push_str("map[interface {}]interface {}{");
            let mut entries: Vec<_> = entries.iter().take(MAX_LENGTH).collect();
            // Sorting each of the many places where aliases repeat a large map would take long.
            if entries.len() <= MAX_SORTED {
                entries.sort_by(|(a, _), (b, _)| in_go_order(a, b));
            }
            for (index, (key, value)) in entries.into_iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                push_go_syntax(key, depth + 1, out);
                out.push(':');
                push_go_syntax(value, depth + 1, out);
                if out.len() > MAX_LENGTH {
                    break;
                }
            }
            out.push('}');
        }
        NodeKind::Scalar { text, .. } => {
            let shown = match node.scalar() {
                Some(Ok(Scalar::Str(text))) if text.len() > MAX_LENGTH => "...".to_owned(),
                Some(Ok(Scalar::Str(_))) if node.tag.as_deref() == Some(BINARY) => {
                    quoted(&binary(text).unwrap_or_default())
                }
                Some(Ok(Scalar::Str(text))) => quoted(text.as_bytes()),
                Some(Ok(Scalar::Null)) => "interface {}(nil)".to_owned(),
                Some(Ok(Scalar::Bool(value))) => value.to_string(),
                Some(Ok(Scalar::Int(value))) => value.to_string(),
                Some(Ok(Scalar::Uint(value))) => format!("{value:#x}"),
                Some(Ok(Scalar::Float(value))) if value.is_nan() => "NaN".to_owned(),
                Some(Ok(Scalar::Float(f64::INFINITY))) => "+Inf".to_owned(),
                Some(Ok(Scalar::Float(f64::NEG_INFINITY))) => "-Inf".to_owned(),
                Some(Ok(Scalar::Float(value))) => crate::float::shortest(value),
                _ => quoted(text.as_bytes()),
            };
            out.push_str(&shown);
        }
    }
}

impl<'de> Deserializer<'de> for NodeReader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if let NodeKind::Anchored(node) = &self.node.kind {
            return self.child(node).deserialize_any(visitor);
        }
        self.budget.spend(self.node)?;
        let limits = self.budget.limits;
        if let NodeKind::Alias(target) = &self.node.kind {
            let read = || self.child(target).deserialize_any(visitor);
            return self.budget.through(1, || limits.descend(read));
        }
        match &self.node.kind {
            NodeKind::List(items) => limits.descend(|| {
                visitor.visit_seq(Items {
                    reader: self,
                    items: items.iter(),
                })
            }),
            NodeKind::Map(entries) => {
                let entries = self.entries(entries)?.into_iter();
                limits.descend(|| {
                    visitor.visit_map(Fields {
                        reader: self,
                        entries,
                        value: None,
                    })
                })
            }
            _ => match self.node.scalar() {
                None | Some(Ok(Scalar::Null)) => visitor.visit_unit(),
                Some(Err(error)) => Err(error),
                Some(Ok(Scalar::Bool(value))) => visitor.visit_bool(value),
                Some(Ok(Scalar::Int(value))) => visitor.visit_i64(value),
                Some(Ok(Scalar::Uint(value))) => visitor.visit_u64(value),
                Some(Ok(Scalar::Float(value))) if !value.is_finite() => {
                    let shown = if value.is_nan() {
                        "NaN"
                    } else if value > 0.0 {
                        "+Inf"
                    } else {
                        "-Inf"
                    };
                    let message = format!("json: unsupported value: {shown}");
                    Err(Error::conversion(message, self.node.mark))
                }
                Some(Ok(Scalar::Float(value))) => visitor.visit_f64(value),
                Some(Ok(Scalar::Str(Cow::Borrowed(text)))) => visitor.visit_borrowed_str(text),
                Some(Ok(Scalar::Str(Cow::Owned(text)))) => visitor.visit_string(text),
            },
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.node.is_null() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    /// A text may be infinite or no number, which JSON cannot express.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.kind {
            NodeKind::Anchored(node) => self.child(node).deserialize_str(visitor),
            NodeKind::Alias(target) => {
                self.budget.spend(self.node)?;
                let read = || self.child(target).deserialize_str(visitor);
                self.budget.through(1, || self.budget.limits.descend(read))
            }
            _ => match self.node.scalar() {
                Some(Ok(Scalar::Float(value))) if !value.is_finite() => visitor.visit_f64(value),
                _ => self.deserialize_any(visitor),
            },
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if let Some(text) = self.node.as_str() {
            return visitor.visit_enum(text.into_deserializer());
        }
        match self.node.as_map() {
            Some(entries @ [(key, value)]) => {
                let name = self.key_text(key, entries)?;
                visitor.visit_enum(Variant {
                    name,
                    value: self.child(value),
                })
            }
            _ => Err(serde::de::Error::invalid_type(
                Unexpected::Other(self.node.type_name()),
                &"a name, or a map of one name",
            )),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct Items<'n> {
    reader: NodeReader<'n>,
    items: std::slice::Iter<'n, Node>,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.items
            .next()
            .map(|item| seed.deserialize(self.reader.child(item)))
            .transpose()
    }
}

struct Fields<'n> {
    reader: NodeReader<'n>,
    entries: std::vec::IntoIter<Found<'n>>,
    value: Option<(&'n Node, u32)>,
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some(found) = self.entries.next() else {
            return Ok(None);
        };
        self.value = Some((found.value, found.aliases));
        seed.deserialize(found.key.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (node, aliases) = self.value.take().ok_or_else(|| {
            <Error as serde::de::Error>::custom("a value was read before its key")
        })?;
        let reader = self.reader;
        reader
            .budget
            .through(aliases, || seed.deserialize(reader.child(node)))
    }
}

struct Variant<'n> {
    name: Cow<'n, str>,
    value: NodeReader<'n>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Error;
    type Variant = NodeReader<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, NodeReader<'de>), Error> {
        let name: serde::de::value::CowStrDeserializer<'_, Error> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self.value))
    }
}

impl<'de> VariantAccess<'de> for NodeReader<'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        serde::Deserialize::deserialize(self)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }
}

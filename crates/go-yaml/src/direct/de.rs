//! Deserializes tapes as [`crate::de`] deserializes trees.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::{Entry, Tape};
use crate::resolve::Scalar;

/// The content of a tape does not match the requested type or is not simple enough. The tree reader
/// produces the error message.
#[derive(Debug)]
pub(crate) struct Declined;

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("declined")
    }
}

impl std::error::Error for Declined {}

impl serde::de::Error for Declined {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl<'t> Tape<'t> {
    pub(crate) fn root(&self) -> TapeNode<'_, 't> {
        TapeNode {
            tape: &self.entries,
            at: 0,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct TapeNode<'a, 't> {
    tape: &'a [Entry<'t>],
    at: usize,
}

impl<'a, 't> TapeNode<'a, 't> {
    fn entry(self) -> Result<&'a Entry<'t>, Declined> {
        self.tape.get(self.at).ok_or(Declined)
    }

    /// Returns the node at another index.
    fn node(self, at: usize) -> Self {
        Self { at, ..self }
    }

    /// Returns the index after the node.
    fn end(self) -> usize {
        match self.tape.get(self.at) {
            Some(Entry::List(end) | Entry::Map { end, .. }) => *end,
            _ => self.at + 1,
        }
    }

    /// Returns the text of a key.
    fn text(self) -> Result<&'a str, Declined> {
        match self.entry()? {
            Entry::Scalar(Scalar::Str(text)) => Ok(text),
            _ => Err(Declined),
        }
    }

    /// Returns the indices of a map's keys; duplicates keep the first position and the last value.
    fn distinct(self, end: usize) -> Result<Vec<(&'a str, usize)>, Declined> {
        let mut found: Vec<(&'a str, usize)> = Vec::new();
        let mut index = HashMap::new();
        let mut at = self.at + 1;
        while at < end {
            let key = self.node(at).text()?;
            let value = at + 1;
            let place = *index.entry(key).or_insert(found.len());
            match found.get_mut(place) {
                Some(entry) => entry.1 = value,
                None => found.push((key, value)),
            }
            at = self.node(value).end();
        }
        Ok(found)
    }
}

impl<'de> Deserializer<'de> for TapeNode<'de, '_> {
    type Error = Declined;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Declined> {
        match self.entry()? {
            Entry::Scalar(scalar) => match scalar {
                Scalar::Null => visitor.visit_unit(),
                Scalar::Bool(value) => visitor.visit_bool(*value),
                Scalar::Int(value) => visitor.visit_i64(*value),
                Scalar::Uint(value) => visitor.visit_u64(*value),
                Scalar::Float(value) => visitor.visit_f64(*value),
                Scalar::Str(Cow::Borrowed(text)) => visitor.visit_borrowed_str(text),
                Scalar::Str(Cow::Owned(text)) => visitor.visit_borrowed_str(text),
            },
            Entry::List(end) => bounded::grow(|| {
                visitor.visit_seq(Items {
                    node: self.node(self.at + 1),
                    end: *end,
                })
            }),
            Entry::Map { end, repeats: true } => {
                let entries = self.distinct(*end)?.into_iter();
                bounded::grow(|| {
                    visitor.visit_map(Distinct {
                        node: self,
                        entries,
                        value: 0,
                    })
                })
            }
            Entry::Map { end, .. } => bounded::grow(|| {
                visitor.visit_map(Fields {
                    node: self.node(self.at + 1),
                    end: *end,
                })
            }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Declined> {
        match self.entry()? {
            Entry::Scalar(Scalar::Null) => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Declined> {
        visitor.visit_newtype_struct(self)
    }

    /// Enums only occur in configuration files, which need not be fast.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Declined> {
        Err(Declined)
    }

    /// Skips the node: everything on a tape is valid, so nothing needs to be visited.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Declined> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier
    }
}

struct Items<'a, 't> {
    node: TapeNode<'a, 't>,
    end: usize,
}

impl<'a> SeqAccess<'a> for Items<'a, '_> {
    type Error = Declined;

    fn next_element_seed<T: DeserializeSeed<'a>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Declined> {
        if self.node.at >= self.end {
            return Ok(None);
        }
        let item = self.node;
        self.node.at = item.end();
        seed.deserialize(item).map(Some)
    }
}

struct Fields<'a, 't> {
    node: TapeNode<'a, 't>,
    end: usize,
}

impl<'a> MapAccess<'a> for Fields<'a, '_> {
    type Error = Declined;

    fn next_key_seed<K: DeserializeSeed<'a>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Declined> {
        if self.node.at >= self.end {
            return Ok(None);
        }
        let key = self.node.text()?;
        self.node.at += 1;
        seed.deserialize(BorrowedStrDeserializer::new(key))
            .map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, Declined> {
        let value = self.node;
        self.node.at = value.end();
        seed.deserialize(value)
    }
}

/// The entries of a map with duplicate keys.
struct Distinct<'a, 't> {
    node: TapeNode<'a, 't>,
    entries: std::vec::IntoIter<(&'a str, usize)>,
    value: usize,
}

impl<'a> MapAccess<'a> for Distinct<'a, '_> {
    type Error = Declined;

    fn next_key_seed<K: DeserializeSeed<'a>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Declined> {
        let Some((key, value)) = self.entries.next() else {
            return Ok(None);
        };
        self.value = value;
        seed.deserialize(BorrowedStrDeserializer::new(key))
            .map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, Declined> {
        seed.deserialize(self.node.node(self.value))
    }
}

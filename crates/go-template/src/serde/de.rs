//! Deserializes from [`Value`].

use bounded::Budget;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::ConvertError;
use crate::value::{Kind, Object, Str, Type, Value};

type Result<T, E = ConvertError> = std::result::Result<T, E>;

/// Reads a value.
#[derive(Clone, Copy)]
pub(super) struct FromValue<'v> {
    value: &'v Value,
    budget: &'v Budget,
}

impl<'v> FromValue<'v> {
    pub(super) fn new(value: &'v Value, budget: &'v Budget) -> Self {
        Self { value, budget }
    }

    fn items<'de, V: Visitor<'de>>(self, items: Vec<Value>, visitor: V) -> Result<V::Value> {
        let items = Items {
            left: items.into_iter(),
            budget: self.budget,
        };
        self.budget.descend(|| visitor.visit_seq(items))
    }

    fn map<'de, V: Visitor<'de>>(self, entries: Vec<(Str, Value)>, visitor: V) -> Result<V::Value> {
        let entries = self.entries(entries);
        self.budget.descend(|| visitor.visit_map(entries))
    }

    fn entries(self, entries: Vec<(Str, Value)>) -> Entries<'v> {
        Entries {
            left: entries.into_iter(),
            value: Value::Nil,
            budget: self.budget,
        }
    }

    /// Returns what stands for an object: what encoders write, or a named scalar's value.
    fn stand_in(self, object: &Object) -> Option<Value> {
        if let Some(encode) = object.go_type().info().encode {
            return Some(encode(self.value));
        }
        let is_struct = matches!(object.go_type().kind(), Kind::Struct | Kind::Ptr);
        (!is_struct).then(|| object.underlying().clone())
    }

    /// Returns a whole number, also of a `float64`.
    fn integer(self) -> Option<i64> {
        /// The limits of integers that a `float64` represents.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match self.value {
            Value::Float(value) if value.fract() == 0.0 && value.abs() <= EXACT =>
            {
                #[allow(
                    clippy::cast_possible_truncation,
                    reason = "it is a whole number below 2^53"
                )]
                Some(*value as i64)
            }
            _ => None,
        }
    }
}

/// Returns the entries of a struct, as encoders write them.
fn fields(object: &Object) -> Vec<(Str, Value)> {
    let fields = object.go_type().structure().fields.iter();
    let entries = fields.zip(object.fields()).filter_map(|(field, value)| {
        Some((Str::from_static(field.json_key(value)?), value.clone()))
    });
    entries.collect()
}

macro_rules! integers {
    ($($method:ident),*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            match self.integer() {
                Some(number) => visitor.visit_i64(number),
                None => self.deserialize_any(visitor),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for FromValue<'_> {
    type Error = ConvertError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.value {
            Value::Invalid | Value::Nil => visitor.visit_unit(),
            Value::NilOf(ty) => match ty.kind() {
                Kind::Slice => self.items(Vec::new(), visitor),
                Kind::Map => visitor.visit_map(self.entries(Vec::new())),
                _ => visitor.visit_unit(),
            },
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) | Value::Int64(value) | Value::SmallInt(_, value) => {
                visitor.visit_i64(*value)
            }
            Value::Uint(_, value) => visitor.visit_u64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Str(text) => match text.to_str() {
                Some(text) => visitor.visit_str(text),
                None => visitor.visit_bytes(text.as_bytes()),
            },
            Value::Bytes(bytes) => visitor.visit_bytes(bytes.as_bytes()),
            Value::List(list) => self.items(list.to_vec(), visitor),
            Value::Map(map) => self.map(map.entries(), visitor),
            Value::Object(object) => match self.stand_in(object) {
                Some(value) => self
                    .budget
                    .descend(|| FromValue::new(&value, self.budget).deserialize_any(visitor)),
                None => self.map(fields(object), visitor),
            },
            Value::Complex(_) => Err(ConvertError::Type(Type::COMPLEX128.name())),
            Value::Func(_) => Err(ConvertError::Type(Type::FUNC.name())),
        }
    }

    integers!(
        deserialize_i8,
        deserialize_i16,
        deserialize_i32,
        deserialize_i64,
        deserialize_i128,
        deserialize_u8,
        deserialize_u16,
        deserialize_u32,
        deserialize_u64,
        deserialize_u128
    );

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.value {
            Value::Invalid | Value::Nil | Value::NilOf(_) => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.value {
            Value::Bytes(bytes) => {
                let items = bytes.as_bytes().iter().copied().map(Value::byte).collect();
                self.items(items, visitor)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        match self.value {
            Value::Map(map) => self.budget.descend(|| {
                let entries = self.entries(map.entries());
                visitor.visit_enum(MapAccessDeserializer::new(entries))
            }),
            Value::Str(text) => visitor.visit_enum(text.to_string_lossy().into_deserializer()),
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool f32 f64 char str string bytes byte_buf unit unit_struct tuple tuple_struct map struct
        identifier ignored_any
    }
}

/// The elements of a list.
struct Items<'v> {
    left: std::vec::IntoIter<Value>,
    budget: &'v Budget,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = ConvertError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>> {
        let Some(value) = self.left.next() else {
            return Ok(None);
        };
        seed.deserialize(FromValue::new(&value, self.budget))
            .map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

/// The entries of a map.
struct Entries<'v> {
    left: std::vec::IntoIter<(Str, Value)>,
    value: Value,
    budget: &'v Budget,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = ConvertError;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>> {
        let Some((key, value)) = self.left.next() else {
            return Ok(None);
        };
        self.value = value;
        let key = Value::Str(key);
        seed.deserialize(FromValue::new(&key, self.budget))
            .map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value> {
        let value = std::mem::take(&mut self.value);
        seed.deserialize(FromValue::new(&value, self.budget))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

//! Serializes to [`Value`].

use bounded::Budget;
use serde::Serialize;
use serde::ser::{
    Impossible, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::ConvertError;
use crate::value::{Map, Str, Type, Unsigned, Value};

type Result<T, E = ConvertError> = std::result::Result<T, E>;

/// Creates a value.
#[derive(Clone, Copy)]
pub(super) struct ToValue<'b>(pub(super) &'b Budget);

impl ToValue<'_> {
    fn nested<T: Serialize + ?Sized>(self, value: &T) -> Result<Value> {
        self.0.descend(|| value.serialize(self))
    }
}

/// Returns the content of a variant in a map, under the variant's name, and other content as it is.
fn tagged(variant: Option<&'static str>, content: Value) -> Value {
    let Some(variant) = variant else {
        return content;
    };
    let entry = (Str::from_static(variant), content);
    Value::Map(Map::from_entries(Type::MAP, [entry]))
}

/// The elements of a sequence so far.
pub(super) struct Items<'b> {
    to: ToValue<'b>,
    so_far: Vec<Value>,
    variant: Option<&'static str>,
}

impl<'b> Items<'b> {
    fn new(to: ToValue<'b>, variant: Option<&'static str>) -> Self {
        Self {
            to,
            so_far: Vec::new(),
            variant,
        }
    }
}

/// The entries of a map so far.
pub(super) struct Entries<'b> {
    to: ToValue<'b>,
    map: Map,
    key: Str,
    variant: Option<&'static str>,
}

impl<'b> Entries<'b> {
    fn new(to: ToValue<'b>, variant: Option<&'static str>) -> Self {
        Self {
            to,
            map: Map::new(),
            key: Str::EMPTY,
            variant,
        }
    }
}

macro_rules! widened {
    ($($method:ident: $narrow:ty => $wide:ident),*) => {
        $(fn $method(self, value: $narrow) -> Result<Value> {
            self.$wide(value.into())
        })*
    };
}

impl<'b> Serializer for ToValue<'b> {
    type Ok = Value;
    type Error = ConvertError;
    type SerializeSeq = Items<'b>;
    type SerializeTuple = Items<'b>;
    type SerializeTupleStruct = Items<'b>;
    type SerializeTupleVariant = Items<'b>;
    type SerializeMap = Entries<'b>;
    type SerializeStruct = Entries<'b>;
    type SerializeStructVariant = Entries<'b>;

    widened!(
        serialize_i8: i8 => serialize_i64,
        serialize_i16: i16 => serialize_i64,
        serialize_i32: i32 => serialize_i64,
        serialize_u8: u8 => serialize_i64,
        serialize_u16: u16 => serialize_i64,
        serialize_u32: u32 => serialize_i64,
        serialize_f32: f32 => serialize_f64
    );

    fn serialize_bool(self, value: bool) -> Result<Value> {
        Ok(Value::Bool(value))
    }

    fn serialize_i64(self, value: i64) -> Result<Value> {
        Ok(Value::Int(value))
    }

    fn serialize_i128(self, value: i128) -> Result<Value> {
        match (i64::try_from(value), u64::try_from(value)) {
            (Ok(value), _) => self.serialize_i64(value),
            (_, Ok(value)) => self.serialize_u64(value),
            _ => Err(ConvertError::Integer(value.to_string())),
        }
    }

    fn serialize_u64(self, value: u64) -> Result<Value> {
        Ok(match i64::try_from(value) {
            Ok(value) => Value::Int(value),
            Err(_) => Value::Uint(Unsigned::Uint64, value),
        })
    }

    fn serialize_u128(self, value: u128) -> Result<Value> {
        let narrow = u64::try_from(value);
        self.serialize_u64(narrow.map_err(|_| ConvertError::Integer(value.to_string()))?)
    }

    fn serialize_f64(self, value: f64) -> Result<Value> {
        Ok(Value::Float(value))
    }

    fn serialize_char(self, value: char) -> Result<Value> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<Value> {
        Ok(value.into())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<Value> {
        Ok(Value::bytes(value))
    }

    fn serialize_none(self) -> Result<Value> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value> {
        Ok(Value::Nil)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Value> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Value> {
        Ok(Value::Str(Str::from_static(variant)))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Value> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value> {
        Ok(tagged(Some(variant), self.nested(value)?))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Items<'b>> {
        Ok(Items::new(self, None))
    }

    fn serialize_tuple(self, _: usize) -> Result<Items<'b>> {
        Ok(Items::new(self, None))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Items<'b>> {
        Ok(Items::new(self, None))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Items<'b>> {
        Ok(Items::new(self, Some(variant)))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Entries<'b>> {
        Ok(Entries::new(self, None))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Entries<'b>> {
        Ok(Entries::new(self, None))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Entries<'b>> {
        Ok(Entries::new(self, Some(variant)))
    }
}

macro_rules! items {
    ($($name:ident $method:ident),*) => {$(
        impl $name for Items<'_> {
            type Ok = Value;
            type Error = ConvertError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
                self.so_far.push(self.to.nested(value)?);
                Ok(())
            }

            fn end(self) -> Result<Value> {
                Ok(tagged(self.variant, Value::list(self.so_far)))
            }
        }
    )*};
}

items!(
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
);

impl SerializeMap for Entries<'_> {
    type Ok = Value;
    type Error = ConvertError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<()> {
        self.key = key.serialize(ToKey)?;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        let value = self.to.nested(value)?;
        self.map.insert(std::mem::take(&mut self.key), value);
        Ok(())
    }

    fn end(self) -> Result<Value> {
        Ok(tagged(self.variant, Value::Map(self.map)))
    }
}

macro_rules! fields {
    ($($name:ident),*) => {$(
        impl $name for Entries<'_> {
            type Ok = Value;
            type Error = ConvertError;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<()> {
                self.map
                    .insert(Str::from_static(key), self.to.nested(value)?);
                Ok(())
            }

            fn end(self) -> Result<Value> {
                Ok(tagged(self.variant, Value::Map(self.map)))
            }
        }
    )*};
}

fields!(SerializeStruct, SerializeStructVariant);

/// Creates the key of a map.
struct ToKey;

macro_rules! scalar_keys {
    ($($method:ident: $ty:ty),*) => {
        $(fn $method(self, value: $ty) -> Result<Str> {
            Ok(value.to_string().into())
        })*
    };
}

/// Values that cannot be keys: lists and maps.
type NoKey = Impossible<Str, ConvertError>;

macro_rules! no_keys {
    ($($method:ident($($ty:ty),*) -> $made:ty),*) => {
        $(fn $method(self $(, _: $ty)*) -> Result<$made> {
            Err(ConvertError::Key)
        })*
    };
}

impl Serializer for ToKey {
    type Ok = Str;
    type Error = ConvertError;
    type SerializeSeq = NoKey;
    type SerializeTuple = NoKey;
    type SerializeTupleStruct = NoKey;
    type SerializeTupleVariant = NoKey;
    type SerializeMap = NoKey;
    type SerializeStruct = NoKey;
    type SerializeStructVariant = NoKey;

    scalar_keys!(
        serialize_bool: bool, serialize_char: char, serialize_str: &str,
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_i128: i128, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32,
        serialize_u64: u64, serialize_u128: u128, serialize_f32: f32, serialize_f64: f64
    );

    no_keys!(
        serialize_none() -> Str,
        serialize_unit() -> Str,
        serialize_unit_struct(&'static str) -> Str,
        serialize_seq(Option<usize>) -> NoKey,
        serialize_tuple(usize) -> NoKey,
        serialize_tuple_struct(&'static str, usize) -> NoKey,
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> NoKey,
        serialize_map(Option<usize>) -> NoKey,
        serialize_struct(&'static str, usize) -> NoKey,
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> NoKey
    );

    fn serialize_bytes(self, value: &[u8]) -> Result<Str> {
        Ok(value.into())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Str> {
        value.serialize(self)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Str> {
        Ok(Str::from_static(variant))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Str> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Str> {
        Err(ConvertError::Key)
    }
}

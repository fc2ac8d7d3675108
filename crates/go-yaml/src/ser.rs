//! Serializes data as YAML like `sigs.k8s.io/yaml`: the YAML form of its JSON.

use std::borrow::Cow;

use bounded::Buffer;
use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use crate::emit::{Emitter, Version, key_sort};
use crate::mark::Error;

/// The content of a document before its keys are sorted.
enum PlainValue {
    Word(String),
    Text(String),
    /// A text with a folded "next line" character, which is not allowed in keys.
    Folded(String),
    List(Vec<PlainValue>),
    Map(Vec<(String, PlainValue)>),
}

/// Writes a value.
pub(crate) fn write<T: Serialize + ?Sized>(value: &T, out: &mut Buffer) -> Result<(), Error> {
    let plain = value.serialize(Builder)?;
    let mut emitter = Emitter::new(out, Version::V2);
    emit(plain, &mut emitter);
    emitter.finish();
    Ok(())
}

fn emit(value: PlainValue, emitter: &mut Emitter<'_>) {
    match value {
        PlainValue::Word(word) => emitter.plain(&word),
        PlainValue::Text(text) | PlainValue::Folded(text) => emitter.string(&text),
        PlainValue::List(items) => {
            let len = items.len();
            emitter.begin_list(len);
            for item in items {
                emitter.item();
                bounded::grow(|| emit(item, emitter));
            }
            emitter.end_list(len);
        }
        PlainValue::Map(mut entries) => {
            let len = entries.len();
            key_sort::sort(&mut entries, |(a, _), (b, _)| {
                key_sort::less(Version::V2, a, b)
            });
            emitter.begin_map(len);
            for (key, value) in entries {
                emitter.key(&key);
                bounded::grow(|| emit(value, emitter));
            }
            emitter.end_map(len);
        }
    }
}

/// Returns a text as it is after a round trip through JSON read as YAML: some characters are
/// invalid, and a "next line" character is a line break to fold. An owned result was folded, which
/// is not allowed in keys.
///
/// # Errors
/// If the text contains a character that YAML does not allow.
pub fn text_through_json(text: &str) -> Result<Cow<'_, str>, Error> {
    if text
        .bytes()
        .all(|c| (b' '..=b'~').contains(&c) || matches!(c, b'\n' | b'\t' | b'\r'))
    {
        return Ok(text.into());
    }
    // JSON escapes control characters below the space; the reader sees all others.
    if text.chars().any(|c| c >= ' ' && !crate::tree::allowed(c)) {
        return Err(serde::ser::Error::custom(
            "yaml: control characters are not allowed",
        ));
    }
    if !text.contains('\u{85}') {
        return Ok(text.into());
    }
    let mut out = String::new();
    let mut parts = text.split('\u{85}').peekable();
    let mut pending = 0_usize;
    while let Some(part) = parts.next() {
        let part = if pending > 0 {
            part.trim_start_matches([' ', '\t'])
        } else {
            part
        };
        let part = if parts.peek().is_some() {
            part.trim_end_matches([' ', '\t'])
        } else {
            part
        };
        if !part.is_empty() || parts.peek().is_none() {
            match pending {
                0 => {}
                1 => out.push(' '),
                more => out.extend(std::iter::repeat_n('\n', more - 1)),
            }
            pending = 0;
            out.push_str(part);
        }
        pending += 1;
    }
    Ok(out.into())
}

struct Builder;

struct ListBuilder {
    items: Vec<PlainValue>,
    variant: Option<&'static str>,
}

struct MapBuilder {
    entries: Vec<(String, PlainValue)>,
    key: Option<String>,
    variant: Option<&'static str>,
}

#[expect(
    clippy::unnecessary_wraps,
    clippy::needless_pass_by_value,
    reason = "serializer methods must return a Result"
)]
fn word<T: ToString>(value: T) -> Result<PlainValue, Error> {
    Ok(PlainValue::Word(value.to_string()))
}

fn tagged(variant: Option<&'static str>, value: PlainValue) -> PlainValue {
    match variant {
        Some(name) => PlainValue::Map(vec![(name.to_owned(), value)]),
        None => value,
    }
}

macro_rules! words {
    ($($method:ident: $ty:ty),*) => {
        $(fn $method(self, value: $ty) -> Result<PlainValue, Error> {
            word(value)
        })*
    };
}

impl Serializer for Builder {
    type Ok = PlainValue;
    type Error = Error;
    type SerializeSeq = ListBuilder;
    type SerializeTuple = ListBuilder;
    type SerializeTupleStruct = ListBuilder;
    type SerializeTupleVariant = ListBuilder;
    type SerializeMap = MapBuilder;
    type SerializeStruct = MapBuilder;
    type SerializeStructVariant = MapBuilder;

    words!(
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32,
        serialize_i64: i64, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32,
        serialize_u64: u64
    );
    fn serialize_f32(self, v: f32) -> Result<PlainValue, Error> {
        self.serialize_f64(f64::from(v))
    }
    fn serialize_f64(self, v: f64) -> Result<PlainValue, Error> {
        if !v.is_finite() {
            return Err(serde::ser::Error::custom("json: unsupported value"));
        }
        word(crate::float::through_json(v))
    }
    fn serialize_char(self, v: char) -> Result<PlainValue, Error> {
        Ok(PlainValue::Text(v.to_string()))
    }
    fn serialize_str(self, v: &str) -> Result<PlainValue, Error> {
        text_through_json(v).map(|text| match text {
            Cow::Borrowed(text) => PlainValue::Text(text.to_owned()),
            Cow::Owned(text) => PlainValue::Folded(text),
        })
    }
    fn serialize_bytes(self, v: &[u8]) -> Result<PlainValue, Error> {
        self.serialize_str(&String::from_utf8_lossy(v))
    }
    fn serialize_none(self) -> Result<PlainValue, Error> {
        word("null")
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<PlainValue, Error> {
        value.serialize(self)
    }
    fn serialize_unit(self) -> Result<PlainValue, Error> {
        word("null")
    }
    fn serialize_unit_struct(self, _name: &'static str) -> Result<PlainValue, Error> {
        word("null")
    }
    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<PlainValue, Error> {
        Ok(PlainValue::Text(variant.to_owned()))
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<PlainValue, Error> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<PlainValue, Error> {
        Ok(tagged(Some(variant), value.serialize(self)?))
    }
    fn serialize_seq(self, len: Option<usize>) -> Result<ListBuilder, Error> {
        let items = Vec::with_capacity(len.unwrap_or(0));
        let variant = None;
        Ok(ListBuilder { items, variant })
    }
    fn serialize_tuple(self, len: usize) -> Result<ListBuilder, Error> {
        self.serialize_seq(Some(len))
    }
    fn serialize_tuple_struct(self, _name: &'static str, len: usize) -> Result<ListBuilder, Error> {
        self.serialize_seq(Some(len))
    }
    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<ListBuilder, Error> {
        let items = Vec::with_capacity(len);
        let variant = Some(variant);
        Ok(ListBuilder { items, variant })
    }
    fn serialize_map(self, len: Option<usize>) -> Result<MapBuilder, Error> {
        let entries = Vec::with_capacity(len.unwrap_or(0));
        Ok(MapBuilder {
            entries,
            key: None,
            variant: None,
        })
    }
    fn serialize_struct(self, _name: &'static str, len: usize) -> Result<MapBuilder, Error> {
        self.serialize_map(Some(len))
    }
    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<MapBuilder, Error> {
        let map = self.serialize_map(Some(len))?;
        Ok(MapBuilder {
            variant: Some(variant),
            ..map
        })
    }
}

macro_rules! list_builder {
    ($($name:ident $method:ident),*) => {$(
        impl $name for ListBuilder {
            type Ok = PlainValue;
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.items.push(value.serialize(Builder)?);
                Ok(())
            }

            fn end(self) -> Result<PlainValue, Error> {
                Ok(tagged(self.variant, PlainValue::List(self.items)))
            }
        }
    )*};
}

list_builder!(
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
);

impl MapBuilder {
    fn field<T: Serialize + ?Sized>(&mut self, key: String, value: &T) -> Result<(), Error> {
        self.entries.push((key, value.serialize(Builder)?));
        Ok(())
    }

    fn done(self) -> PlainValue {
        tagged(self.variant, PlainValue::Map(self.entries))
    }
}

impl SerializeMap for MapBuilder {
    type Ok = PlainValue;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.key = Some(match key.serialize(Builder)? {
            PlainValue::Word(text) | PlainValue::Text(text) => text,
            PlainValue::Folded(_) => {
                let message = "mapping values are not allowed in this context";
                return Err(serde::ser::Error::custom(message));
            }
            PlainValue::List(_) | PlainValue::Map(_) => {
                return Err(serde::ser::Error::custom("a map key must be a scalar"));
            }
        });
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let key = self.key.take().unwrap_or_default();
        self.field(key, value)
    }

    fn end(self) -> Result<PlainValue, Error> {
        Ok(self.done())
    }
}

macro_rules! struct_builder {
    ($($name:ident),*) => {$(
        impl $name for MapBuilder {
            type Ok = PlainValue;
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), Error> {
                self.field(key.to_owned(), value)
            }

            fn end(self) -> Result<PlainValue, Error> {
                Ok(self.done())
            }
        }
    )*};
}

struct_builder!(SerializeStruct, SerializeStructVariant);

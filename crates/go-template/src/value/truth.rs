//! Go's definition of truth and emptiness.

use super::{Number, Value};

impl Value {
    /// Returns whether `if` and `with` treat the value as true: it is not the zero value of its
    /// type. Structs and non-nil pointers are true.
    pub fn is_true(&self) -> bool {
        match self {
            Self::Invalid | Self::Nil | Self::NilOf(_) => false,
            Self::Bool(value) => *value,
            Self::Int(value) | Self::Int64(value) | Self::SmallInt(_, value) => *value != 0,
            Self::Uint(_, value) => *value != 0,
            // NaN is not zero.
            Self::Float(value) => *value != 0.0,
            Self::Complex(value) => **value != (0.0, 0.0),
            Self::Str(text) => !text.is_empty(),
            Self::Bytes(bytes) => !bytes.is_empty(),
            Self::List(list) => !list.is_empty(),
            Self::Map(map) => !map.is_empty(),
            Self::Object(object) => match object.underlying() {
                Self::Invalid => true,
                scalar => scalar.is_true(),
            },
            Self::Func(_) => true,
        }
    }

    /// Returns the number for every numeric kind except complex, including declared types.
    pub fn number(&self) -> Option<Number> {
        Some(match self {
            Self::Int(value) | Self::Int64(value) | Self::SmallInt(_, value) => Number::Int(*value),
            Self::Uint(_, value) => Number::Uint(*value),
            Self::Float(value) => Number::Float(*value),
            Self::Object(object) => return object.underlying().number(),
            _ => return None,
        })
    }
}

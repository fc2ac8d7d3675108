//! The integer kinds that are rarer than `int` and `int64`.

use super::{Kind, Object, Type, Value, predeclared};

/// The signed kinds other than `int` and `int64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the Go kind of that name")]
pub enum SmallInt {
    Int8,
    Int16,
    Int32,
}

impl SmallInt {
    /// Returns the predeclared type of the kind.
    pub fn go_type(self) -> Type {
        match self {
            Self::Int8 => Type::INT8,
            Self::Int16 => Type::INT16,
            Self::Int32 => Type::INT32,
        }
    }
}

/// The unsigned kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the Go kind of that name")]
pub enum Unsigned {
    Uint,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
}

impl Unsigned {
    /// Returns the predeclared type of the kind.
    pub fn go_type(self) -> Type {
        match self {
            Self::Uint => Type::UINT,
            Self::Uint8 => Type::UINT8,
            Self::Uint16 => Type::UINT16,
            Self::Uint32 => Type::UINT32,
            Self::Uint64 => Type::UINT64,
        }
    }
}

/// A number in one of the families within which Go compares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Any signed integer.
    Int(i64),
    /// Any unsigned integer.
    Uint(u64),
    /// Any float.
    Float(f64),
}

impl Number {
    /// Returns the integer, if it is one and fits.
    pub fn to_i64(self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(value),
            Self::Uint(value) => i64::try_from(value).ok(),
            Self::Float(_) => None,
        }
    }
}

/// Returns whether `kind` is an integer kind, like Go's `intLike`.
pub(crate) fn is_integer(kind: Kind) -> bool {
    kind.is_int() || kind.is_uint()
}

impl Value {
    /// Converts an integer to the integer type `ty` like Go, truncating values that do not fit.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "conversions between Go's integers keep the low bits"
    )]
    pub(crate) fn convert_integer(&self, ty: Type) -> Self {
        let bits = match self.number() {
            Some(Number::Int(value)) => value,
            Some(Number::Uint(value)) => value as i64,
            _ => 0,
        };
        let kind = ty.kind();
        let value = match kind {
            Kind::Int64 => Self::Int64(bits),
            Kind::Int8 => Self::SmallInt(SmallInt::Int8, i64::from(bits as i8)),
            Kind::Int16 => Self::SmallInt(SmallInt::Int16, i64::from(bits as i16)),
            Kind::Int32 => Self::SmallInt(SmallInt::Int32, i64::from(bits as i32)),
            Kind::Uint | Kind::Uintptr => Self::Uint(Unsigned::Uint, bits as u64),
            Kind::Uint8 => Self::Uint(Unsigned::Uint8, u64::from(bits as u8)),
            Kind::Uint16 => Self::Uint(Unsigned::Uint16, u64::from(bits as u16)),
            Kind::Uint32 => Self::Uint(Unsigned::Uint32, u64::from(bits as u32)),
            Kind::Uint64 => Self::Uint(Unsigned::Uint64, bits as u64),
            _ => Self::Int(bits),
        };
        let declared = ty != predeclared(kind);
        if declared {
            Self::Object(Object::scalar(ty, value))
        } else {
            value
        }
    }
}

//! The integer kinds that are rarer than `int` and `int64`.

use super::Type;

/// The signed kinds beside `int` and `int64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the Go kind of that name")]
pub enum SmallInt {
    Int8,
    Int16,
    Int32,
}

impl SmallInt {
    /// The predeclared type of the kind.
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
    /// The predeclared type of the kind.
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

/// A number by the family that Go compares within.
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
    /// The integer, if it is one and fits.
    pub fn to_i64(self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(value),
            Self::Uint(value) => i64::try_from(value).ok(),
            Self::Float(_) => None,
        }
    }
}

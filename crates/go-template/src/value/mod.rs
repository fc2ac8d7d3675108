//! Go's value model for templates.
//!
//! [`Value`] is 24 bytes and cheap to clone. Scalars and short strings are stored inline; maps,
//! lists and objects are shared, with Go's reference semantics. Values belong to one thread and one
//! render; threads share a [`Tree`].
//!
//! There are two kinds of missing values, as in Go:
//! * [`Value::Nil`] is a nil interface: a null list element or map value. Functions receive it when
//!   a template passes no value.
//! * [`Value::Invalid`] is Go's zero `reflect.Value`: the result of a pipeline without a value. It
//!   prints `<no value>`, its fields are missing as well, and only parameters of type
//!   [`Type::REFLECT`] receive it.

mod access;
mod bytes;
mod changes;
mod deep_drop;
mod follow;
mod growth;
mod list;
mod map;
mod number;
mod object;
pub(crate) mod table;
mod tree;
mod truth;
mod types;

use std::rc::Rc;

pub use bytes::Str;
pub use list::List;
pub use map::{Map, Seen};
pub use number::{Number, SmallInt, Unsigned};
pub use object::Object;
pub use table::Name;
pub use tree::{Tree, TreeList, TreeMap};
pub use types::{Field, Kind, Method, MethodFn, Type, TypeInfo};

pub(crate) use access::predeclared;
pub(crate) use changes::{Changes, changes, vary, watch_none};
pub(crate) use deep_drop::break_cycles;
pub(crate) use follow::Followed;
pub(crate) use number::is_integer;

use crate::func::Func;

/// Iterators over maps and lists.
pub mod iter {
    pub use super::list::Iter as ListIter;
    pub use super::map::Iter as MapIter;
}

/// Largest number of maps and lists of a value that are watched one by one.
const MAX_WATCHED: usize = 1_000;

/// A Go value.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// Go's zero `reflect.Value`: a missing value, printed `<no value>`.
    Invalid,
    /// A nil interface.
    #[default]
    Nil,
    /// A nil map, slice, pointer or function of a type.
    NilOf(Type),
    /// A `bool`.
    Bool(bool),
    /// An `int`.
    Int(i64),
    /// An `int64`.
    Int64(i64),
    /// An `int8`, `int16` or `int32`.
    SmallInt(SmallInt, i64),
    /// A `uint`, `uint8`, `uint16`, `uint32` or `uint64`.
    Uint(Unsigned, u64),
    /// A `float64`.
    Float(f64),
    /// A `complex128`: real and imaginary part.
    Complex(Rc<(f64, f64)>),
    /// A `string`.
    Str(Str),
    /// A `[]uint8`.
    Bytes(Rc<Str>),
    /// A slice.
    List(List),
    /// A map with string keys.
    Map(Map),
    /// A struct, a pointer to one, or a named scalar.
    Object(Object),
    /// A function.
    Func(Rc<Func>),
}

impl Value {
    /// A reference to a nil value.
    pub const NIL: &'static Self = &Self::Nil;

    /// Creates a `[]uint8`.
    pub fn bytes(bytes: impl Into<Str>) -> Self {
        Self::Bytes(Rc::new(bytes.into()))
    }

    /// Creates a `[]interface {}`.
    pub fn list(items: Vec<Self>) -> Self {
        Self::List(List::from(items))
    }

    /// Creates a `uint8`.
    pub fn byte(byte: u8) -> Self {
        Self::Uint(Unsigned::Uint8, u64::from(byte))
    }

    /// Assigns `value`. The previous value is usually one that needs no drop, which is then
    /// skipped.
    #[inline]
    pub(crate) fn put(&mut self, value: Self) {
        self.drop_current();
        std::mem::forget(std::mem::replace(self, value));
    }

    /// Assigns a copy of `source`. Each variant is written directly to its destination, because a
    /// copy that is made elsewhere and then moved stalls on its own stores.
    #[inline]
    pub(crate) fn put_copy(&mut self, source: &Self) {
        self.drop_current();
        let mut write = |value| std::mem::forget(std::mem::replace(self, value));
        match source {
            Self::Str(text) => write(Self::Str(text.clone())),
            Self::Map(map) => write(Self::Map(map.clone())),
            Self::List(list) => write(Self::List(list.clone())),
            Self::Bool(value) => write(Self::Bool(*value)),
            Self::Float(value) => write(Self::Float(*value)),
            Self::Int(value) => write(Self::Int(*value)),
            Self::Nil => write(Self::Nil),
            Self::Invalid => write(Self::Invalid),
            other => write(other.clone()),
        }
    }

    /// Drops the current value, if it needs that.
    #[inline]
    fn drop_current(&mut self) {
        if !matches!(
            self,
            Self::Invalid
                | Self::Nil
                | Self::NilOf(_)
                | Self::Bool(_)
                | Self::Int(_)
                | Self::Int64(_)
                | Self::SmallInt(..)
                | Self::Uint(..)
                | Self::Float(_)
        ) {
            *self = Self::Nil;
        }
    }

    /// Returns whether the value may have at most `handles` handles, so that dropping that many
    /// drops its content.
    pub(crate) fn has_at_most(&self, handles: usize) -> bool {
        match self {
            Self::List(list) => list.handles() <= handles,
            Self::Map(map) => map.handles() <= handles,
            Self::Object(object) => object.handles() <= handles,
            _ => false,
        }
    }

    /// Makes changes of the maps in this value count as writes.
    pub(crate) fn watch(&self) {
        let mut left = MAX_WATCHED;
        self.watch_some(&mut left);
    }

    /// Watches at most so many containers, or else all that there are.
    fn watch_some(&self, left: &mut usize) {
        match self {
            Self::Map(_) | Self::List(_) if *left == 0 => changes::watch_all(),
            Self::Map(map) => {
                *left -= 1;
                map.watch(left);
            }
            Self::List(list) => {
                *left -= 1;
                list.with(|items| items.iter().for_each(|item| item.watch_some(left)));
            }
            _ => {}
        }
    }

    /// Returns whether the value contains others and so could be part of a cycle.
    pub(crate) fn is_container(&self) -> bool {
        matches!(self, Self::List(_) | Self::Map(_) | Self::Object(_))
    }
}

macro_rules! conversions {
    ($($source:ty => |$value:ident| $converted:expr),*) => {
        $(impl From<$source> for Value {
            fn from($value: $source) -> Self {
                $converted
            }
        })*
    };
}

conversions!(
    bool => |value| Self::Bool(value),
    i64 => |value| Self::Int(value),
    f64 => |value| Self::Float(value),
    Str => |text| Self::Str(text),
    &str => |text| Self::Str(text.into()),
    String => |text| Self::Str(text.into()),
    &[u8] => |text| Self::Str(text.into()),
    Vec<u8> => |text| Self::Str(text.into()),
    bounded::Buffer => |text| Self::Str(text.into()),
    Map => |map| Self::Map(map),
    List => |list| Self::List(list),
    Object => |object| Self::Object(object)
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_three_words() {
        assert_eq!(size_of::<Value>(), 24);
        assert_eq!(size_of::<Tree>(), 24);
    }
}

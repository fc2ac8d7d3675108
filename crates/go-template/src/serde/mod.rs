//! Conversions between [`Value`] and the types of Rust that implement serde's traits.
//!
//! | Rust | Go |
//! |---|---|
//! | `bool`, strings, `char` | `bool`, `string` |
//! | integers | `int`, or `uint64` if it is larger |
//! | `f32`, `f64` | `float64` |
//! | `None`, `()` | nil |
//! | sequences and tuples | `[]interface {}` |
//! | bytes (`serialize_bytes`) | `[]uint8` |
//! | maps and structs | `map[string]interface {}` |
//! | variants of enums | a string, or a map from the variant's name to its content |
//!
//! ```
//! use go_template::{Buffer, Funcs, Limits, Session, TemplateSet, from_value, to_value};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Debug, Deserialize, PartialEq, Serialize)]
//! struct Server {
//!     name: String,
//!     ports: Vec<u16>,
//! }
//! let server = Server { name: "web".to_owned(), ports: vec![80, 443] };
//! let value = to_value(&server)?;
//! // Before a session ends: it empties the maps that were written to.
//! assert_eq!(from_value::<Server>(&value)?, server);
//!
//! let mut set = TemplateSet::new("set", Funcs::new().into());
//! set.parse("main", "{{ .name }}: {{ index .ports 1 }}")?;
//! let mut out = Buffer::new();
//! Session::new(Limits::default()).execute(&set, "main", &value, &mut out)?;
//! assert_eq!(&*out, b"web: 443");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod de;
mod ser;

use bounded::{Budget, BudgetError, Limits};
use serde::Serialize;
use serde::de::{DeserializeOwned, Expected, Unexpected};

use crate::value::Value;

/// A value that has no counterpart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// The type of Rust rejects the value, or cannot be serialized.
    #[error("{0}")]
    Message(String),
    /// The key of a map is neither a string, a number, a bool nor a variant without content.
    #[error("the key of a map must be a string, a number or a bool")]
    Key,
    /// An integer does not fit into 64 bits.
    #[error("the integer {0} does not fit into 64 bits")]
    Integer(String),
    /// Rust has no counterpart of the Go type, such as a function.
    #[error("a value of the Go type {0} cannot be converted")]
    Type(&'static str),
    /// The value is nested too deeply.
    #[error(transparent)]
    Nesting(#[from] BudgetError),
}

impl serde::ser::Error for ConvertError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::Message(message.to_string())
    }
}

/// Messages name the kind of a value, not its content, which may be secret.
impl serde::de::Error for ConvertError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::Message(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Message(format!("the value is {}, not {expected}", kind(&found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = kind(&found);
        Self::Message(format!("the value is {found} that is not {expected}"))
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        let expected = expected.join(", ");
        Self::Message(format!("the value is not one of {expected}"))
    }
}

fn kind(found: &Unexpected<'_>) -> &'static str {
    match found {
        Unexpected::Bool(_) => "a bool",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "an integer",
        Unexpected::Float(_) => "a float",
        Unexpected::Char(_) | Unexpected::Str(_) => "a string",
        Unexpected::Bytes(_) => "bytes",
        Unexpected::Unit | Unexpected::Option => "nil",
        Unexpected::Seq | Unexpected::TupleVariant => "a list",
        Unexpected::Map | Unexpected::StructVariant => "a map",
        _ => "of another kind",
    }
}

/// Converts anything that can be serialized to a Go value.
///
/// # Errors
/// [`ConvertError::Key`] and [`ConvertError::Integer`] for what Go's values cannot represent,
/// [`ConvertError::Nesting`] for a value that is nested more than 1,000 levels deep, and what the
/// type's own `Serialize` returns.
pub fn to_value<T: Serialize + ?Sized>(value: &T) -> Result<Value, ConvertError> {
    let budget = Budget::new(Limits::NESTING_ONLY);
    value.serialize(ser::ToValue(&budget))
}

/// Converts a Go value to a type that can be deserialized.
///
/// A nil slice or map is empty where the type expects a sequence or map. A `float64` without a
/// fraction, the type of each number in a values file, may become an integer.
///
/// # Errors
/// [`ConvertError::Message`] if the type does not match the value, [`ConvertError::Type`] for functions
/// and complex numbers, and [`ConvertError::Nesting`] for a value that is nested more than 1,000 levels
/// deep, such as a map that contains itself.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, ConvertError> {
    let budget = Budget::new(Limits::NESTING_ONLY);
    T::deserialize(de::FromValue::new(value, &budget))
}

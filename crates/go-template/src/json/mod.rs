//! JSON as Go's `encoding/json` reads and writes it.
//!
//! ```
//! use go_template::{json, Value};
//! let value = json::decode(br#"{"a": [1, "<"]}"#)?;
//! let mut out = Vec::new();
//! json::encode(&value, json::Style::default(), &mut out)?;
//! assert_eq!(out, br#"{"a":[1,"\u003c"]}"#);
//! # Ok::<(), json::JsonError>(())
//! ```

mod decode;
mod encode;

pub use decode::{decode, decode_into};
pub use encode::{Style, encode, write_float, write_string};

/// A text that is no JSON, or a value that JSON cannot say. Its `Display` is what Go prints.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JsonError(String);

impl JsonError {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

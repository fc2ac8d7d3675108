//! YAML as read and written by Go's libraries.
//!
//! Helm, kubectl and most Kubernetes tools read and write YAML through Go's `sigs.k8s.io/yaml`,
//! which follows YAML 1.1 (`yes` is a boolean, `010` is eight) and has its own layout. This crate
//! reads the same values and writes the same bytes.
//!
//! ```
//! let values: serde_json::Value = go_yaml::from_str("on: yes\nmode: 010\n")?;
//! assert_eq!(values, serde_json::json!({"true": true, "mode": 8}));
//! assert_eq!(go_yaml::to_string(&values)?, "mode: 8\n\"true\": true\n");
//! # Ok::<(), go_yaml::Error>(())
//! ```
//!
//! * [`from_slice`] and [`from_str`] are `yaml.Unmarshal`, [`from_slice_strict`] its strict form.
//! * [`to_vec`] and [`to_string`] are `yaml.Marshal`; [`emit::Emitter`] writes without serde, and
//!   in the form of yaml.v3.
//! * [`tree`] keeps the position of every node, for files whose errors are reported together.
//! * [`documents`] reads a stream of several documents.
#![warn(clippy::missing_errors_doc)]

mod de;
mod direct;
pub mod emit;
mod float;
mod mark;
mod parser;
mod resolve;
mod scanner;
mod selection;
mod ser;
pub mod tree;

use std::marker::PhantomData;

use bounded::{Budget, Buffer, Limits};
use serde::Serialize;
use serde::de::{DeserializeOwned, DeserializeSeed};

pub use float::as_text as float_as_text;
pub use mark::{Error, Mark};
pub use scanner::ScalarStyle;
pub use selection::{Selection, is_alike};
pub use ser::text_through_json;

/// Reads the first document of a text. The last of duplicate keys wins.
///
/// # Errors
/// If the text is not YAML, or does not match `T`.
pub fn from_slice<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    from_slice_seed(text, PhantomData)
}

/// Reads the first document of a text with a seed, which may be used twice.
///
/// # Errors
/// Like [`from_slice`].
pub fn from_slice_seed<T, S>(text: &[u8], seed: S) -> Result<T, Error>
where
    S: for<'de> DeserializeSeed<'de, Value = T> + Copy,
{
    from_slice_within(text, seed, &Budget::new(Limits::NESTING_ONLY))
}

/// Reads the first document of an untrusted text with a seed, which may be used twice.
///
/// The nesting is limited by the budget, and to 10,000 levels as in Go. A value that is dropped by
/// recursion, as that of `serde_json` is, needs [`Limits::for_json`].
///
/// # Errors
/// Like [`from_slice`], and [`Error::budget`] for an exceeded limit.
pub fn from_slice_within<T, S>(text: &[u8], seed: S, limits: &Budget) -> Result<T, Error>
where
    S: for<'de> DeserializeSeed<'de, Value = T> + Copy,
{
    from_slice_selected(text, Selection::Whole, seed, limits)
}

/// Like [`from_slice_within`], for a seed that ignores all but a part of the document. All of it is checked, but the
/// rest need not be built, so that the seed may not see it.
///
/// # Errors
/// Like [`from_slice_within`].
pub fn from_slice_selected<T, S>(
    text: &[u8],
    part: Selection,
    seed: S,
    limits: &Budget,
) -> Result<T, Error>
where
    S: for<'de> DeserializeSeed<'de, Value = T> + Copy,
{
    if let Some(text) = direct::simple_text(text)
        && let Some(tape) = direct::read(&text, part, limits)
        && let Ok(value) = seed.deserialize(tape.root())
    {
        return Ok(value);
    }
    limits.check()?;
    let (node, _held) = tree::parse_within(text, limits)?;
    de::read(&node, seed, &de::AliasBudget::new(limits))
}

/// Reads the first document of a text, like [`from_slice`].
///
/// # Errors
/// Like [`from_slice`].
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    from_slice(text.as_bytes())
}

/// Reads the first document of a text; duplicate keys in a map are errors.
///
/// # Errors
/// Like [`from_slice`], and for duplicate keys.
pub fn from_slice_strict<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    let limits = Budget::new(Limits::NESTING_ONLY);
    let (node, _held) = tree::parse_within(text, &limits)?;
    de::read(&node, PhantomData, &de::AliasBudget::strict(&limits))
}

/// Deserializes a node of a tree.
///
/// # Errors
/// If the node does not match `T`.
pub fn from_node<T: DeserializeOwned>(node: &tree::Node) -> Result<T, Error> {
    let limits = Budget::new(Limits::NESTING_ONLY);
    de::read(node, PhantomData, &de::AliasBudget::new(&limits))
}

/// Reads every document of a text.
///
/// # Errors
/// If the text is not YAML, or a document does not match `T`.
pub fn documents<T: DeserializeOwned>(text: &[u8]) -> Result<Vec<T>, Error> {
    let text = tree::utf8(text)?;
    let limits = Budget::new(Limits::NESTING_ONLY);
    let mut parser = parser::Parser::new(&text, &limits);
    let mut found = Vec::new();
    while let Some(node) = parser.next_document()? {
        found.push(from_node(&node)?);
    }
    Ok(found)
}

/// Writes a value as YAML, ending with a line break.
///
/// # Errors
/// If a map has keys that are not scalars, or a number is not finite.
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    let mut out = Buffer::new();
    ser::write(value, &mut out)?;
    out.check()?;
    Ok(out.into_vec())
}

/// Writes a value as YAML, like [`to_vec`].
///
/// # Errors
/// Like [`to_vec`].
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> Result<String, Error> {
    to_vec(value).map(|bytes| {
        String::from_utf8(bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
    })
}

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! YAML as Go's libraries read and write it.
//!
//! Helm, kubectl and everything else around Kubernetes read and write YAML through Go's
//! `sigs.k8s.io/yaml`, which follows YAML 1.1 (`yes` is a boolean, `010` is eight) and has a layout
//! of its own. This crate gives the same answers: the values it reads, the bytes it writes.
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
//! * [`tree`] keeps the place of every node, for files whose mistakes are reported all at once.
//! * [`documents`] reads a stream of several documents.

mod de;
mod direct;
pub mod emit;
mod float;
mod mark;
mod parser;
mod resolve;
mod scanner;
mod ser;
mod stack;
pub mod tree;

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::{DeserializeOwned, DeserializeSeed};

pub use mark::{Error, Mark};
pub use scanner::ScalarStyle;
pub use ser::text_through_json;

/// Reads the first document of a text. Of keys that stand twice the last counts.
///
/// # Errors
/// When the text is not YAML, or not what `T` needs.
pub fn from_slice<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    from_slice_seed(text, PhantomData)
}

/// Reads the first document of a text into what the seed makes; the seed may be used twice.
///
/// # Errors
/// As [`from_slice`].
pub fn from_slice_seed<T, S>(text: &[u8], seed: S) -> Result<T, Error>
where
    S: for<'de> DeserializeSeed<'de, Value = T> + Copy,
{
    if let Some(text) = direct::plain_kind(text)
        && let Some(tape) = direct::read(&text)
        && let Ok(value) = seed.deserialize(tape.root())
    {
        return Ok(value);
    }
    let node = tree::parse(text)?;
    let budget = de::Budget::default();
    seed.deserialize(de::Reader {
        node: &node,
        budget: &budget,
    })
}

/// Reads the first document of a text, as [`from_slice`].
///
/// # Errors
/// As [`from_slice`].
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    from_slice(text.as_bytes())
}

/// Reads the first document of a text; a key that stands twice in a map is an error.
///
/// # Errors
/// As [`from_slice`], and for duplicate keys.
pub fn from_slice_strict<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    let node = tree::parse(text)?;
    let budget = de::Budget::strict();
    T::deserialize(de::Reader {
        node: &node,
        budget: &budget,
    })
}

/// Reads a node of a tree.
///
/// # Errors
/// When the node is not what `T` needs.
pub fn from_node<T: DeserializeOwned>(node: &tree::Node) -> Result<T, Error> {
    let budget = de::Budget::default();
    T::deserialize(de::Reader {
        node,
        budget: &budget,
    })
}

/// Reads every document of a text.
///
/// # Errors
/// When the text is not YAML, or a document is not what `T` needs.
pub fn documents<T: DeserializeOwned>(text: &[u8]) -> Result<Vec<T>, Error> {
    let text = tree::utf8(text)?;
    let mut parser = parser::Parser::new(&text);
    let mut found = Vec::new();
    while let Some(node) = parser.next_document()? {
        found.push(from_node(&node)?);
    }
    Ok(found)
}

/// Writes a value as YAML, ending with a line break.
///
/// # Errors
/// When a map has keys that are no scalars, or a number is not finite.
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    ser::write(value, &mut out)?;
    Ok(out)
}

/// Writes a value as YAML, as [`to_vec`].
///
/// # Errors
/// As [`to_vec`].
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

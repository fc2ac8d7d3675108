//! Values: a user's, a chart's, and the result of coalescing both.
//!
//! Values are JSON, but for the contents of files in [`UserValues`]. Numbers keep Go's kinds: a
//! JSON integer is an `int64`, as in a Kubernetes object or in `--set`; everything else, and every
//! number of a values file, is a `float64`.
//!
//! ```
//! use helm_core::values;
//! let base = values::read(br#"{"image": {"tag": "1", "pull": "Always"}}"#)?;
//! let over = values::read(br#"{"image": {"tag": "2"}}"#)?;
//! let merged = values::merge(base, over);
//! assert_eq!(merged["image"]["tag"], "2");
//! assert_eq!(merged["image"]["pull"], "Always");
//! # Ok::<(), helm_core::values::ValuesError>(())
//! ```

pub(crate) mod coalesce;
mod import;
mod prepare;
pub mod set_flag;
pub(crate) mod table;
pub(crate) mod tree;
mod user;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bounded::{Budget, Limits};
use go_template::{Tree, TreeMap, Type};
use serde_json::Value;

pub use prepare::{CoalesceError, Coalesced, coalesce};
pub(crate) use prepare::{Resolved, Resolver};
pub use set_flag::{SetError, SetText, set, set_file, set_json, set_literal, set_one, set_string};
pub use user::UserValues;

use crate::place::Place;
use crate::yaml::{self, YamlError};

/// Values by key.
pub type Values = serde_json::Map<String, Value>;

/// An error in a values file.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ValuesError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        error: std::io::Error,
    },
    /// The text is not UTF-8.
    #[error("the values are not UTF-8 at {place}")]
    Utf8 {
        /// Place of the error.
        place: Box<Place>,
        #[source]
        error: std::str::Utf8Error,
    },
    /// Text follows a `---`.
    #[error("invalid Yaml document separator: {0}")]
    Separator(String),
    /// The text is not YAML.
    #[error("the values are not valid YAML at {place}")]
    Yaml {
        /// Place of the error.
        place: Box<Place>,
        #[source]
        error: YamlError,
    },
    /// A document is not a map.
    #[error("the values are {0}, not a map")]
    NotAMap(&'static str),
}

impl ValuesError {
    /// Returns the line with a caret, or an empty text.
    pub fn excerpt(&self) -> &str {
        match self {
            Self::Utf8 { place, .. } | Self::Yaml { place, .. } => place.excerpt(),
            _ => "",
        }
    }

    /// Returns the place to name.
    pub(crate) fn place_mut(&mut self) -> Option<&mut Place> {
        match self {
            Self::Utf8 { place, .. } | Self::Yaml { place, .. } => Some(place),
            _ => None,
        }
    }
}

/// Parses a values file as `--values` and a chart's `values.yaml` are parsed: each document is
/// merged over the previous ones. An empty file gives no values.
///
/// # Errors
/// If the text is not YAML, or not a map.
pub fn read(text: &[u8]) -> Result<Values, ValuesError> {
    Ok(tree::to_map(&read_tree("", text)?))
}

/// Parses a values file into the form that templates read.
pub(crate) fn read_tree(file: &str, text: &[u8]) -> Result<TreeMap, ValuesError> {
    let whole = text;
    let text = std::str::from_utf8(text).map_err(|error| ValuesError::Utf8 {
        place: Box::new(Place::of_utf8(file, whole, error)),
        error,
    })?;
    let limits = Budget::new(Limits::default().for_json());
    let mut values = TreeMap::new(Type::MAP, []);
    for (above, document) in documents(text)? {
        let tree =
            yaml::parse_tree(document.as_bytes(), &limits).map_err(|error| ValuesError::Yaml {
                place: Box::new(Place::new(file, text, above + error.line(), error.column())),
                error,
            })?;
        match tree {
            Tree::Map(map) if values.is_empty() => {
                values = Arc::try_unwrap(map).unwrap_or_else(|map| (*map).clone());
            }
            Tree::Map(map) => values = tree::merge(&values, &map),
            Tree::Nil => {}
            other => return Err(ValuesError::NotAMap(type_name(&tree::to_json(&other)))),
        }
    }
    Ok(values)
}

/// Reads the values file at `path`.
///
/// # Errors
/// If the file cannot be read, is not YAML, or not a map.
pub fn read_file(path: impl AsRef<Path>) -> Result<Values, ValuesError> {
    let path = path.as_ref();
    let text = std::fs::read(path).map_err(|error| ValuesError::Read {
        path: path.to_owned(),
        error,
    })?;
    read(&text)
}

/// Merges `over` into `base`: maps by key, everything else is replaced.
pub fn merge(mut base: Values, over: Values) -> Values {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Object(below)), Value::Object(above)) => {
                *below = merge(std::mem::take(below), above);
            }
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
    base
}

/// Splits a stream at lines that begin with `---`, as Kubernetes' YAML reader does; only a line
/// feed ends a line. Returns each document after the number of lines above it.
fn documents(text: &str) -> Result<Vec<(usize, Cow<'_, str>)>, ValuesError> {
    let is_one = !text.starts_with("---") && !text.contains("\n---") && !text.contains('\r');
    if is_one && (text.is_empty() || text.ends_with('\n')) {
        let document = Some(text).filter(|text| !text.is_empty());
        return Ok(document
            .map(|text| (0, Cow::Borrowed(text)))
            .into_iter()
            .collect());
    }
    let mut documents = Vec::new();
    let mut current = String::new();
    let mut first = 0;
    for (number, line) in text.lines().enumerate() {
        if let Some(after) = line.strip_prefix("---") {
            let after = after.trim();
            if !after.is_empty() && !after.starts_with('#') {
                return Err(ValuesError::Separator(after.to_owned()));
            }
            if !current.is_empty() {
                documents.push((first, Cow::Owned(std::mem::take(&mut current))));
                continue;
            }
        }
        if current.is_empty() {
            first = number;
        }
        current.push_str(line);
        current.push('\n');
    }
    if !current.is_empty() {
        documents.push((first, Cow::Owned(current)));
    }
    Ok(documents)
}

/// Returns the type of a value in words, with an article.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_a_values_file_are_merged() {
        let values =
            read(b"{\"a\": {\"b\": 1}}\r\n--- # more\r\n{\"a\": {\"c\": 2}}\n---\n").unwrap();
        assert_eq!(
            serde_json::to_string(&values).unwrap(),
            r#"{"a":{"b":1.0,"c":2.0}}"#
        );
        assert!(read(b"").unwrap().is_empty());
    }

    #[test]
    fn errors_name_line_and_column_in_the_whole_file() {
        for (text, place, excerpt) in [
            (
                "a: 1\nb: c: d\n",
                "line 2, column 5",
                "  2 | b: c: d\n    |     ^\n",
            ),
            (
                "a: 1\r\n---\nb: 2\n---\n# more\nc: [\n",
                "line 7, column 1",
                "",
            ),
            (
                "a: 1\nb: x\u{1}y\n",
                "line 2, column 5",
                "  2 | b: x\u{1}y\n    |     ^\n",
            ),
        ] {
            let error = read(text.as_bytes()).unwrap_err();
            assert!(error.to_string().ends_with(place), "{text:?}: {error}");
            assert_eq!(error.excerpt(), excerpt, "{text:?}");
        }
    }

    #[test]
    fn non_map_is_an_error() {
        assert_eq!(
            read(b"[1]").unwrap_err().to_string(),
            "the values are a list, not a map"
        );
        assert!(matches!(
            read(b"{}\n--- x\n{}"),
            Err(ValuesError::Separator(_))
        ));
        assert!(matches!(read(b"\xff"), Err(ValuesError::Utf8 { .. })));
    }
}

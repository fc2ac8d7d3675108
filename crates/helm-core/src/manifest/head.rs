//! `Head`: the fields of a document that decide how it is sorted, as in Helm's `SimpleHead`
//! (`release/v1/util/manifest.go`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use bounded::{Budget, BudgetError};
use go_yaml::Selection;
use serde_json::{Map, Value};

use crate::place::Place;
use crate::values::type_name;
use crate::yaml;

/// The fields of a document that decide how it is sorted.
pub(crate) struct Head {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) annotations: BTreeMap<String, String>,
    /// Whether the document contains only comments.
    pub(crate) is_blank: bool,
}

/// An error in a document.
pub(crate) struct HeadError {
    pub(crate) message: String,
    /// The line of the document, from 1.
    pub(crate) line: usize,
    /// The column in characters, from 1.
    pub(crate) column: usize,
    /// The exceeded limit, if that is the error.
    pub(crate) limit: Option<BudgetError>,
}

/// A value of a wrong type.
struct Mismatch {
    /// The keys that lead to it.
    path: Vec<String>,
    message: String,
}

/// Helm's name for the document.
const DOCUMENT: &str = "SimpleHead";

/// The fields that are read.
const SELECTION: &[(&str, Selection)] = &[
    ("apiVersion", Selection::Scalar),
    ("kind", Selection::Scalar),
    (
        "metadata",
        Selection::Fields(&[
            ("name", Selection::Scalar),
            ("annotations", Selection::Each(&Selection::Scalar)),
        ]),
    ),
];

impl Head {
    /// Parses the head of a document, all of which must be YAML. YAML errors have Helm's wording.
    pub(crate) fn read(text: &str, budget: &Budget) -> Result<Self, HeadError> {
        let object =
            yaml::parse_selection(text, Selection::Fields(SELECTION), budget).map_err(|error| {
                HeadError {
                    line: error.line(),
                    column: error.column(),
                    message: error.to_string(),
                    limit: error.limit().cloned(),
                }
            })?;
        Self::of(&object).map_err(|Mismatch { path, message }| {
            let place = Place::of_path("", text.as_bytes(), &path);
            HeadError {
                message,
                line: place.as_ref().map_or(1, Place::line),
                column: place.as_ref().map_or(1, Place::column),
                limit: None,
            }
        })
    }

    /// Reads the head as Go decodes it: field names are case-insensitive, other types are errors.
    fn of(object: &Value) -> Result<Self, Mismatch> {
        let mut head = Self {
            kind: String::new(),
            name: String::new(),
            annotations: BTreeMap::new(),
            is_blank: object.is_null(),
        };
        let Some(fields) = map(object, DOCUMENT)? else {
            return Ok(head);
        };
        string(field(fields, "apiVersion"), "apiVersion")?;
        head.kind = string(field(fields, "kind"), "kind")?.into_owned();
        let Some(metadata) = field(fields, "metadata") else {
            return Ok(head);
        };
        let Some(metadata) = map(metadata, "metadata")? else {
            return Ok(head);
        };
        head.name = string(field(metadata, "name"), "metadata.name")?.into_owned();
        let Some(annotations) = field(metadata, "annotations") else {
            return Ok(head);
        };
        let Some(annotations) = map(annotations, "metadata.annotations")? else {
            return Ok(head);
        };
        for (key, value) in annotations {
            let value = string(Some(value), "metadata.annotations").map_err(|mut error| {
                error.path.push(key.clone());
                error
            })?;
            head.annotations.insert(key.clone(), value.into_owned());
        }
        Ok(head)
    }
}

fn field<'o>(fields: &'o Map<String, Value>, name: &str) -> Option<&'o Value> {
    fields.get(name).or_else(|| {
        let mut alike = fields
            .iter()
            .filter(|(key, _)| key.eq_ignore_ascii_case(name));
        alike.next_back().map(|(_, value)| value)
    })
}

fn map<'o>(value: &'o Value, name: &str) -> Result<Option<&'o Map<String, Value>>, Mismatch> {
    match value {
        Value::Null => Ok(None),
        Value::Object(map) => Ok(Some(map)),
        other => Err(type_mismatch(other, name, "a map")),
    }
}

fn string<'o>(value: Option<&'o Value>, name: &str) -> Result<Cow<'o, str>, Mismatch> {
    match value {
        None | Some(Value::Null) => Ok(Cow::default()),
        Some(Value::String(text)) => Ok(Cow::Borrowed(text)),
        Some(other) => Err(type_mismatch(other, name, "a string")),
    }
}

fn type_mismatch(value: &Value, name: &str, wanted: &str) -> Mismatch {
    let found = type_name(value);
    let keys = name.split('.').filter(|key| *key != DOCUMENT);
    Mismatch {
        path: keys.map(str::to_owned).collect(),
        message: format!("{name} is {found}, not {wanted}"),
    }
}

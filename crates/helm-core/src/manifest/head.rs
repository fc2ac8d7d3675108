//! `Head`: what of a document decides where it goes, as Helm's `SimpleHead` has it
//! (`release/v1/util/manifest.go`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::yaml::{self, Part};

/// The fields of a document that decide where it goes.
pub(crate) struct Head {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) annotations: BTreeMap<String, String>,
    /// Whether the document holds nothing but comments.
    pub(crate) is_blank: bool,
}

/// What is read of a document.
const PARTS: &[(&str, Part)] = &[
    ("apiVersion", Part::Whole),
    ("kind", Part::Whole),
    (
        "metadata",
        Part::Fields(&[("name", Part::Whole), ("annotations", Part::Whole)]),
    ),
];

impl Head {
    /// Reads the head of a document, all of which has to be YAML. The error has Helm's words for
    /// what is no YAML.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let object = yaml::parse_part(text, Part::Fields(PARTS)).map_err(|e| e.to_string())?;
        Self::of(&object)
    }

    /// Reads the head as Go decodes it: numbers and booleans do as strings, names of fields in
    /// any case; other types are errors.
    fn of(object: &Value) -> Result<Self, String> {
        let mut head = Self {
            kind: String::new(),
            name: String::new(),
            annotations: BTreeMap::new(),
            is_blank: object.is_null(),
        };
        let Some(fields) = map(object, "SimpleHead")? else {
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
            let value = string(Some(value), "metadata.annotations")?.into_owned();
            head.annotations.insert(key.clone(), value);
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

fn map<'o>(value: &'o Value, name: &str) -> Result<Option<&'o Map<String, Value>>, String> {
    match value {
        Value::Null => Ok(None),
        Value::Object(map) => Ok(Some(map)),
        other => Err(misfit(other, name, "a map")),
    }
}

fn string<'o>(value: Option<&'o Value>, name: &str) -> Result<Cow<'o, str>, String> {
    match value {
        None | Some(Value::Null) => Ok(Cow::default()),
        Some(Value::String(text)) => Ok(Cow::Borrowed(text)),
        Some(Value::Bool(value)) => Ok(Cow::Owned(value.to_string())),
        Some(Value::Number(number)) => Ok(Cow::Owned(number.to_string())),
        Some(other) => Err(misfit(other, name, "a string")),
    }
}

fn misfit(value: &Value, name: &str, wanted: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    };
    format!("{name} is {found}, not {wanted}")
}

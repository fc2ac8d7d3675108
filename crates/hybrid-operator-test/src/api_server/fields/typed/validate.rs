//! Checks that a value has its type.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::items;
use crate::api_server::fields::go_text;
use crate::api_server::fields::path::{self, Path, PathElement};
use crate::api_server::fields::schema::{Form, List, Map, Ref, Relationship, Scalar, Schema};

/// Whether associative lists may have several items with one key: objects that are stored may, applied ones may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::api_server::fields) enum Duplicates {
    Allowed,
    Forbidden,
}

/// Places where a value has not its type, with the server's texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::api_server::fields) struct Violations(Vec<(String, String)>);

impl Violations {
    pub(super) fn add(&mut self, path: &Path, message: impl Into<String>) {
        self.add_at(path::text(path), message);
    }

    fn add_at(&mut self, path: String, message: impl Into<String>) {
        self.0.push((path, message.into()));
    }

    pub(in crate::api_server::fields) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |(path, message): &(String, String)| {
            if path.is_empty() {
                message.clone()
            } else {
                format!("{path}: {message}")
            }
        };
        match self.0.as_slice() {
            [only] => f.write_str(&line(only)),
            all => {
                f.write_str("errors:")?;
                all.iter()
                    .try_for_each(|one| write!(f, "\n  {}", line(one)))
            }
        }
    }
}

/// Returns where a value has not its type.
pub(in crate::api_server::fields) fn validate(
    schema: &Schema,
    type_: &Ref,
    value: &Value,
    duplicates: Duplicates,
) -> Violations {
    let mut walk = Walk {
        schema,
        duplicates,
        path: Vec::new(),
        found: Violations::default(),
    };
    walk.value(type_, value);
    walk.found
}

/// A step of the path to the present value, which only violations need as a text.
enum Step<'a> {
    Field(&'a str),
    Item(PathElement),
}

struct Walk<'a> {
    schema: &'a Schema,
    duplicates: Duplicates,
    path: Vec<Step<'a>>,
    found: Violations,
}

impl<'a> Walk<'a> {
    fn violation(&mut self, message: impl Into<String>) {
        let steps = self.path.iter().map(|step| match step {
            Step::Field(name) => PathElement::field(name).to_string(),
            Step::Item(element) => element.to_string(),
        });
        let path = steps.collect();
        self.found.add_at(path, message);
    }

    fn value(&mut self, type_: &Ref, value: &'a Value) {
        let form = self.schema.resolve(type_);
        match form.and_then(|forms| forms.of(Some(value)).form()) {
            None => self.violation(format!("schema error: no type found matching: {type_:?}")),
            Some(Form::Map(map, _)) => self.map(map, value),
            Some(Form::Scalar(scalar)) => {
                if let Some(message) = scalar_violation(scalar, value) {
                    self.violation(message);
                }
            }
            Some(Form::List(list, relationship)) => self.list(list, relationship, value),
        }
    }

    fn map(&mut self, map: &Map, value: &'a Value) {
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Null => return,
            other => {
                return self.violation(format!("expected map, got &{{{}}}", go_text::plain(other)));
            }
        };
        for (name, value) in fields {
            self.path.push(Step::Field(name));
            let Some(type_) = map.field_type(name) else {
                self.violation("field not declared in schema");
                self.path.pop();
                return;
            };
            self.value(type_, value);
            self.path.pop();
        }
    }

    fn list(&mut self, list: &List, relationship: Relationship, value: &'a Value) {
        let values = match value {
            Value::Array(values) => values,
            Value::Null => return,
            other => {
                return self
                    .violation(format!("expected list, got &{{{}}}", go_text::plain(other)));
            }
        };
        let mut seen = BTreeSet::new();
        for (index, value) in values.iter().enumerate() {
            let element = if relationship == Relationship::Associative {
                match items::element(self.schema, list, value) {
                    Ok(element) => element,
                    Err(message) => return self.violation(format!("element {index}: {message}")),
                }
            } else {
                PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX))
            };
            if !seen.insert(element.clone()) && self.duplicates == Duplicates::Forbidden {
                self.violation(format!("duplicate entries for key {element}"));
            }
            self.path.push(Step::Item(element));
            self.value(&list.of, value);
            self.path.pop();
        }
    }
}

/// Returns the message about a value that is no such scalar.
pub(super) fn scalar_violation(scalar: Scalar, value: &Value) -> Option<String> {
    match (scalar, value) {
        (_, Value::Null)
        | (Scalar::Numeric, Value::Number(_))
        | (Scalar::String, Value::String(_))
        | (Scalar::Boolean, Value::Bool(_))
        | (Scalar::Untyped, Value::Number(_) | Value::String(_) | Value::Bool(_)) => None,
        (Scalar::Numeric, value) => Some(format!(
            "expected numeric (int or float), got {}",
            go_text::type_name(value)
        )),
        (Scalar::String, value) => Some(format!(
            "expected string, got &value.valueUnstructured{{Value:{}}}",
            go_text::source(value)
        )),
        (Scalar::Boolean, value) => Some(format!(
            "expected boolean, got &{{{}}}",
            go_text::plain(value)
        )),
        (Scalar::Untyped, value) => Some(format!(
            "expected any scalar, got &{{{}}}",
            go_text::plain(value)
        )),
    }
}

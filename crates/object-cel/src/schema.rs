//! Types from structural schemas, and structural schemas from types.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::{ObjectType, Type, built_in};

/// The extension of an object that may have other fields, or of any value.
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// Limit on schemas within schemas.
const MAX_DEPTH: usize = 100;

/// A schema that is not structural.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{message}", if path.is_empty() { String::new() } else { format!("{path}: ") })]
pub struct SchemaError {
    /// The place in the schema, such as `spec.ports[]`; empty for the schema itself.
    pub path: String,
    /// What is wrong there.
    pub message: String,
}

impl Type {
    /// Returns the type of the values that a structural schema describes, as in the `openAPIV3Schema` of a CRD.
    /// `nullable` is not part of the type: `null` is an absent field, unless its type is [`Type::Dyn`].
    ///
    /// ```
    /// let schema = serde_json::json!({"type": "array", "items": {"type": "string", "format": "date-time"}});
    /// assert_eq!(object_cel::Type::of_schema(&schema).unwrap().to_string(), "list(timestamp)");
    /// ```
    pub fn of_schema(schema: &Value) -> Result<Self, SchemaError> {
        of_schema(schema, "", 0)
    }

    /// Returns the structural schema of the results of this type, for the status of a CRD.
    pub fn schema(&self) -> Value {
        match self {
            Self::Bool => json!({"type": "boolean"}),
            Self::Int => json!({"type": "integer", "format": "int64"}),
            Self::Uint => json!({"type": "integer", "minimum": 0}),
            Self::Double => json!({"type": "number"}),
            Self::String => json!({"type": "string"}),
            Self::Bytes => json!({"type": "string", "format": "byte"}),
            Self::Duration => json!({"type": "string", "format": "duration"}),
            Self::Timestamp => json!({"type": "string", "format": "date-time"}),
            Self::List(elements) => json!({"type": "array", "items": elements.schema()}),
            Self::Map(values) => {
                json!({"type": "object", "additionalProperties": values.schema()})
            }
            Self::Object(object) => {
                let fields = object.fields.iter();
                let properties = fields.map(|(name, type_)| (name.clone(), type_.schema()));
                let mut schema = Map::from_iter([("type".to_owned(), "object".into())]);
                if !object.fields.is_empty() {
                    let properties: Map<_, _> = properties.collect();
                    schema.insert("properties".to_owned(), properties.into());
                }
                if object.open {
                    schema.insert(PRESERVE.to_owned(), true.into());
                }
                schema.into()
            }
            Self::IntOrString => json!({"x-kubernetes-int-or-string": true}),
            Self::Null => {
                json!({PRESERVE: true, "nullable": true})
            }
            Self::Dyn | Self::Optional(_) | Self::Library(_) | Self::Parameter(_) => {
                json!({PRESERVE: true})
            }
        }
    }
}

fn of_schema(schema: &Value, path: &str, depth: usize) -> Result<Type, SchemaError> {
    let error = |message: &str| SchemaError {
        path: path.to_owned(),
        message: message.to_owned(),
    };
    if depth > MAX_DEPTH {
        return Err(error("more than 100 schemas within each other"));
    }
    let schema = schema
        .as_object()
        .ok_or_else(|| error("a schema must be an object"))?;
    let is = |extension: &str| schema.get(extension) == Some(&Value::Bool(true));
    if is("x-kubernetes-int-or-string") {
        return Ok(Type::IntOrString);
    }
    let is_open = is(PRESERVE);
    let is_resource = is("x-kubernetes-embedded-resource");
    let type_ = match schema.get("type") {
        Some(Value::String(type_)) => type_.as_str(),
        None if is_resource => "object",
        None if is_open => return Ok(Type::Dyn),
        _ => return Err(error("`type` is missing")),
    };
    let format = schema.get("format").and_then(Value::as_str);
    Ok(match (type_, format) {
        ("boolean", _) => Type::Bool,
        ("integer", _) => Type::Int,
        ("number", _) => Type::Double,
        ("string", Some("date-time" | "date")) => Type::Timestamp,
        ("string", Some("duration")) => Type::Duration,
        ("string", Some("byte")) => Type::Bytes,
        ("string", _) => Type::String,
        ("array", _) => {
            let items = schema.get("items");
            let items = items.ok_or_else(|| error("`items` is missing"))?;
            Type::list(of_schema(items, &format!("{path}[]"), depth + 1)?)
        }
        ("object", _) => object(schema, is_open, is_resource, path, depth)?,
        (other, _) => return Err(error(&format!("there is no type `{other}`"))),
    })
}

fn object(
    schema: &Map<String, Value>,
    is_open: bool,
    is_resource: bool,
    path: &str,
    depth: usize,
) -> Result<Type, SchemaError> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let values = schema.get("additionalProperties");
    if properties.is_none() && !is_resource {
        match values {
            Some(Value::Bool(true)) => return Ok(Type::map(Type::Dyn)),
            Some(values @ Value::Object(_)) => {
                let below = of_schema(values, &format!("{path}[]"), depth + 1)?;
                return Ok(Type::map(below));
            }
            _ if is_open => return Ok(Type::Dyn),
            _ => {}
        }
    }
    let mut fields = BTreeMap::new();
    if is_resource {
        let metadata = built_in("v1", "ConfigMap").and_then(|type_| match type_ {
            Type::Object(object) => object.fields.get("metadata").cloned(),
            _ => None,
        });
        fields.insert("apiVersion".to_owned(), Type::String);
        fields.insert("kind".to_owned(), Type::String);
        fields.insert("metadata".to_owned(), metadata.unwrap_or(Type::Dyn));
    }
    for (name, schema) in properties.into_iter().flatten() {
        let separator = if path.is_empty() { "" } else { "." };
        let below = of_schema(schema, &format!("{path}{separator}{name}"), depth + 1)?;
        if !(is_resource && name == "metadata") {
            fields.insert(name.clone(), below);
        }
    }
    Ok(Type::Object(Arc::new(ObjectType {
        name: if path.is_empty() { "the object" } else { path }.to_owned(),
        fields,
        open: is_open,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_schemas_have_the_same_schema() {
        for (schema, name) in [
            (json!({"type": "integer", "format": "int64"}), "int"),
            (json!({"type": "number"}), "double"),
            (json!({"type": "string", "format": "byte"}), "bytes"),
            (json!({"type": "string", "format": "duration"}), "duration"),
            (
                json!({"type": "array", "items": {"type": "boolean"}}),
                "list(bool)",
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
                "map(string, string)",
            ),
            (json!({"x-kubernetes-int-or-string": true}), "int or string"),
            (json!({"x-kubernetes-preserve-unknown-fields": true}), "dyn"),
            (
                json!({"type": "object", "properties": {"a-b": {"type": "string"}},
                    "x-kubernetes-preserve-unknown-fields": true}),
                "the object",
            ),
        ] {
            let type_ = Type::of_schema(&schema).unwrap();
            assert_eq!(type_.to_string(), name);
            assert_eq!(type_.schema(), schema);
        }
    }

    #[test]
    fn schema_that_is_not_structural_is_an_error_with_its_place() {
        let mut deep = json!({"type": "string"});
        for _ in 0..200 {
            deep = json!({"type": "array", "items": deep});
        }
        for (schema, message) in [
            (json!({"properties": {}}), "`type` is missing"),
            (
                json!({"type": "object", "properties": {"ports": {"type": "array", "items": {"type": "port"}}}}),
                "ports[]: there is no type `port`",
            ),
            (json!([]), "a schema must be an object"),
        ] {
            assert_eq!(Type::of_schema(&schema).unwrap_err().to_string(), message);
        }
        let error = Type::of_schema(&deep).unwrap_err();
        assert_eq!(error.message, "more than 100 schemas within each other");
    }

    #[test]
    fn embedded_resource_has_metadata() {
        let schema = json!({"type": "object", "x-kubernetes-embedded-resource": true});
        let Type::Object(object) = Type::of_schema(&schema).unwrap() else {
            panic!("no object");
        };
        assert_eq!(object.fields["metadata"].to_string(), "ObjectMeta");
    }
}

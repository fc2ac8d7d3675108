//! Reads types for merging from `OpenAPI`: schemas of kube-apiserver and of definitions (CRDs).

use std::collections::BTreeMap;

use serde_json::Value;

use super::schema::{Atom, DEDUCED, List, Map, Ref, Relationship, Scalar, UNTYPED};

/// Returns the type that a schema describes.
///
/// `preserve` is whether an outer schema preserves unknown fields.
///
/// # Errors
///
/// The schema is no structural one.
pub(super) fn atom(schema: &Value, preserve: bool) -> Result<Atom, String> {
    let preserve = preserve || schema["x-kubernetes-preserve-unknown-fields"] == true;
    Ok(match schema["type"].as_str().unwrap_or_default() {
        "" => Atom {
            scalar: Some(Scalar::Untyped),
            list: Some(list(schema, preserve)?),
            map: Some(map(schema, preserve)?),
        },
        "object" => Atom {
            map: Some(map(schema, preserve)?),
            ..Atom::default()
        },
        "array" => Atom {
            list: Some(list(schema, preserve)?),
            ..Atom::default()
        },
        type_ => Atom {
            scalar: Some(scalar(
                type_,
                schema["format"].as_str().unwrap_or_default(),
            )?),
            ..Atom::default()
        },
    })
}

fn scalar(type_: &str, format: &str) -> Result<Scalar, String> {
    match (type_, format) {
        ("integer" | "number", _) => Ok(Scalar::Numeric),
        ("string", "" | "byte") => Ok(Scalar::String),
        // Quantities, times, and numbers that may be strings.
        ("string", _) => Ok(Scalar::Untyped),
        ("boolean", _) => Ok(Scalar::Boolean),
        _ => Err(format!("unrecognized type: '{type_}'")),
    }
}

/// Returns the type that a schema describes or refers to.
pub(super) fn reference(schema: &Value, preserve: bool) -> Result<Ref, String> {
    let Some(name) = target(schema) else {
        return Ok(Ref::inline(atom(schema, preserve)?));
    };
    Ok(Ref::Named {
        name: short_name(name),
        relationship: map_relationship(schema)?,
    })
}

/// Returns the name of the definition that a schema refers to.
pub(super) fn target(schema: &Value) -> Option<&str> {
    let path = match (schema["$ref"].as_str(), schema["allOf"].as_array()) {
        (Some(path), _) => path,
        (None, Some(all)) => match all.as_slice() {
            [only] => only["$ref"].as_str()?,
            _ => return None,
        },
        (None, None) => return None,
    };
    path.rsplit('/').next()
}

/// Returns the last three parts of a definition's name, such as `core.v1.Pod`.
pub(super) fn short_name(name: &str) -> String {
    let parts: Vec<_> = name.rsplitn(4, '.').take(3).collect();
    parts.into_iter().rev().collect::<Vec<_>>().join(".")
}

fn map(schema: &Value, preserve: bool) -> Result<Map, String> {
    let mut fields = BTreeMap::new();
    let mut defaults = BTreeMap::new();
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        fields.insert(name.clone(), reference(member, preserve)?);
        if !member["default"].is_null() {
            defaults.insert(name.clone(), member["default"].clone());
        }
    }
    let others = match &schema["additionalProperties"] {
        Value::Null if preserve || fields.is_empty() => Some(Ref::named(DEDUCED)),
        Value::Bool(true) => Some(Ref::named(DEDUCED)),
        Value::Null | Value::Bool(false) => None,
        others => Some(reference(others, preserve)?),
    };
    Ok(Map {
        fields,
        defaults,
        others,
        relationship: map_relationship(schema)?.unwrap_or_default(),
    })
}

fn map_relationship(schema: &Value) -> Result<Option<Relationship>, String> {
    match &schema["x-kubernetes-map-type"] {
        Value::Null => Ok(None),
        Value::String(type_) if type_ == "atomic" => Ok(Some(Relationship::Atomic)),
        Value::String(type_) if type_ == "granular" => Ok(Some(Relationship::Separable)),
        other => Err(format!("unknown map type {other}")),
    }
}

fn list(schema: &Value, preserve: bool) -> Result<List, String> {
    let of = match &schema["items"] {
        Value::Null if schema["type"].is_null() => Ref::named(UNTYPED),
        Value::Null => return Err("`items` must be specified on arrays".to_owned()),
        items => reference(items, preserve)?,
    };
    let (relationship, keys) = list_relationship(schema)?;
    Ok(List {
        of,
        relationship,
        keys,
    })
}

fn list_relationship(schema: &Value) -> Result<(Relationship, Vec<String>), String> {
    if let Some(type_) = schema["x-kubernetes-list-type"].as_str() {
        return match type_ {
            "atomic" => Ok((Relationship::Atomic, Vec::new())),
            "set" => Ok((Relationship::Associative, Vec::new())),
            "map" => {
                let keys = schema["x-kubernetes-list-map-keys"].as_array();
                let keys = keys.ok_or("missing map keys")?.iter();
                let keys = keys.filter_map(Value::as_str).map(ToOwned::to_owned);
                Ok((Relationship::Associative, keys.collect()))
            }
            _ => Err(format!("unknown list type {type_}")),
        };
    }
    // Types of kube-apiserver that were not given list types.
    match schema["x-kubernetes-patch-strategy"].as_str() {
        Some("merge" | "merge,retainKeys") => {
            let key = schema["x-kubernetes-patch-merge-key"].as_str();
            let keys = key.map(ToOwned::to_owned).into_iter().collect();
            Ok((Relationship::Associative, keys))
        }
        None | Some("retainKeys") => Ok((Relationship::Atomic, Vec::new())),
        Some(strategy) => Err(format!("unknown patch strategy {strategy}")),
    }
}

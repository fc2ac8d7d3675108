//! Removes fields and items from a value.

use serde_json::{Map as Object, Value};

use super::items;
use crate::api_server::fields::path::PathElement;
use crate::api_server::fields::schema::{Form, Ref, Relationship, Schema};
use crate::api_server::fields::set::FieldSet;

/// Returns a value without the members of a set. A map or list of which nothing is left is null.
pub(in crate::api_server::fields) fn remove(
    schema: &Schema,
    type_: Option<&Ref>,
    value: &Value,
    fields: &FieldSet,
) -> Value {
    let forms = type_.and_then(|type_| schema.resolve(type_));
    match (forms.and_then(|forms| forms.of(Some(value)).form()), value) {
        (Some(Form::Scalar(_)), value) => value.clone(),
        (Some(Form::Map(map, relationship)), Value::Object(object))
            if relationship != Relationship::Atomic =>
        {
            let mut rest = Object::new();
            for (name, value) in object {
                let element = PathElement::field(name);
                if fields.has(&element) {
                    continue;
                }
                let below = fields.child(&element).filter(|below| !below.is_empty());
                let value = match below {
                    Some(below) => remove(schema, map.field_type(name), value, below),
                    None => value.clone(),
                };
                rest.insert(name.clone(), value);
            }
            or_null(!rest.is_empty(), Value::Object(rest))
        }
        (Some(Form::List(list, relationship)), Value::Array(values))
            if relationship != Relationship::Atomic =>
        {
            let mut rest = Vec::with_capacity(values.len());
            for value in values {
                let Ok(element) = items::element(schema, list, value) else {
                    rest.push(value.clone());
                    continue;
                };
                if fields.has(&element) {
                    continue;
                }
                let below = fields.child(&element).filter(|below| !below.is_empty());
                rest.push(match below {
                    Some(below) => remove(schema, Some(&list.of), value, below),
                    None => value.clone(),
                });
            }
            or_null(!rest.is_empty(), Value::Array(rest))
        }
        // Parts of what is replaced as a whole cannot be removed.
        _ => Value::Null,
    }
}

fn or_null(has_rest: bool, rest: Value) -> Value {
    if has_rest { rest } else { Value::Null }
}

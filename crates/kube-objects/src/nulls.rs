//! Nulls in maps. Objects are sent with them, as Helm does: a null keeps the default of a field away.
//!
//! The API server refuses some: those of fields that a CRD does not declare as `nullable`, and those that
//! would reset a field which it has set itself and which never changes. Helm fails then; a plain create drops
//! the former. Here these objects are sent once more, with [`settled`].

use serde_json::Value;

use super::ApiError;
use super::failure::{causes, conflict};

/// Returns whether the server may have refused an object because of its nulls.
pub(super) fn are_refused(error: &ApiError, object: &Value) -> bool {
    let is_invalid = matches!(error, ApiError::Rejected { status, .. } if status.code == 422);
    is_invalid && conflict(error).is_none() && has_null(object)
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.values().any(|value| value.is_null() || has_null(value)),
        Value::Array(items) => items.iter().any(has_null),
        _ => false,
    }
}

/// Returns an object without the nulls that the server refuses: a field that has a simple value in `live`,
/// the existing object, keeps it, and any other is left out.
///
/// Leaving out a field that an earlier apply has set would reset it, as the null does.
pub(super) fn settled(object: &Value, live: Option<&Value>, error: &ApiError) -> Value {
    let fields: Vec<&str> = match error {
        ApiError::Rejected { status, .. } => causes(status).map(|it| it.field.as_str()).collect(),
        _ => Vec::new(),
    };
    let named = settle(object, live, "", &|path| {
        fields.iter().any(|field| is_at_or_below(path, field))
    });
    // The server may name a field in another way, or none.
    if named == *object {
        settle(object, live, "", &|_| true)
    } else {
        named
    }
}

fn settle(
    object: &Value,
    live: Option<&Value>,
    path: &str,
    is_refused: &dyn Fn(&str) -> bool,
) -> Value {
    match object {
        Value::Object(map) => {
            let fields = map.iter().filter_map(|(name, value)| {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                let live = live.and_then(|live| live.get(name));
                let value = match value {
                    Value::Null if is_refused(&path) => {
                        live.filter(|live| is_simple(live))?.clone()
                    }
                    value => settle(value, live, &path, is_refused),
                };
                Some((name.clone(), value))
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => {
            // The server may have the items in another order.
            let settled = items
                .iter()
                .enumerate()
                .map(|(index, item)| settle(item, None, &format!("{path}[{index}]"), is_refused));
            Value::Array(settled.collect())
        }
        other => other.clone(),
    }
}

/// Returns whether a path such as `spec.list[0].name` is a field or below it.
fn is_at_or_below(path: &str, field: &str) -> bool {
    let rest = path.strip_prefix(field);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn is_simple(value: &Value) -> bool {
    matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_))
}

#[cfg(test)]
mod tests {
    use hybrid_operator_test::scripted::failure;
    use serde_json::json;

    use super::*;
    use crate::Target;

    fn refused(fields: &[&str]) -> ApiError {
        let causes: Vec<Value> = fields.iter().map(|it| json!({"field": it})).collect();
        let status = failure(422, "Invalid", "invalid", &json!({"causes": causes}));
        let target = Target {
            verb: "patch",
            resource: "x".to_owned(),
            namespace: None,
            name: None,
        };
        ApiError::of_status(target, serde_json::from_value(status).unwrap())
    }

    #[test]
    fn nulls_that_are_refused_become_the_simple_values_that_exist() {
        let object = json!({"spec": {"class": null, "size": 1, "labels": null, "gone": null,
            "in": {"x": null}, "list": [{"a": null}, null]}, "specs": null});
        let live = json!({"spec": {"class": "fast", "size": 2, "labels": {"theirs": "1"},
            "in": {"x": 0}, "list": [{"a": 1}], "more": true}});
        let settled = |live, fields: &[&str]| settled(&object, live, &refused(fields));
        assert_eq!(
            settled(Some(&live), &["spec"]),
            json!({"spec": {"class": "fast", "size": 1, "in": {"x": 0}, "list": [{}, null]},
                "specs": null})
        );
        assert_eq!(
            settled(None, &["spec.gone", "spec.list[0].a", "spec.in"]),
            json!({"spec": {"class": null, "size": 1, "labels": null, "in": {},
                "list": [{}, null]}, "specs": null})
        );
        for unknown in [&[][..], &["", "other"]] {
            let expected = json!({"spec": {"size": 1, "in": {}, "list": [{}, null]}});
            assert_eq!(settled(None, unknown), expected);
        }
    }

    #[test]
    fn only_an_invalid_object_with_nulls_may_be_refused_because_of_them() {
        let with = json!({"spec": [{"a": null}]});
        assert!(are_refused(&refused(&["spec"]), &with));
        assert!(!are_refused(
            &refused(&["spec"]),
            &json!({"spec": [null, {"a": 1}]})
        ));
        // Another object has the name.
        assert!(!are_refused(&refused(&["metadata.uid"]), &with));
    }
}

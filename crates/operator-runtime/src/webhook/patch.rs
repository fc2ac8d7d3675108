//! Computes the JSON patch of a mutation.
//!
//! A type may lack fields that the object has, and it may write fields that the object lacks, such
//! as defaults. So the object is not compared with what the function returned. What the function
//! changed is the difference between the type before and after it, and only that is transferred to
//! the object.

use serde_json::{Map, Value};

/// Returns the patch that changes `original` as the function changed `before` to `after`.
pub(super) fn changes(original: &Value, before: &Value, after: &Value) -> json_patch::Patch {
    json_patch::diff(original, &transfer(original, before, after))
}

/// Returns `original` with the changes from `before` to `after`.
fn transfer(original: &Value, before: &Value, after: &Value) -> Value {
    if before == after {
        return original.clone();
    }
    match (original, before, after) {
        (Value::Object(original), Value::Object(before), Value::Object(after)) => {
            Value::Object(transfer_fields(original, before, after))
        }
        (Value::Array(original), Value::Array(before), Value::Array(after))
            if original.len() == before.len() =>
        {
            Value::Array(transfer_items(original, before, after))
        }
        _ => after.clone(),
    }
}

fn transfer_fields(
    original: &Map<String, Value>,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Map<String, Value> {
    let mut changed = original.clone();
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        changed.remove(name);
    }
    for (name, after) in after {
        let value = match (original.get(name), before.get(name)) {
            (_, Some(before)) if before == after => continue,
            (Some(original), Some(before)) => transfer(original, before, after),
            // The type wrote a default that the object lacks, or the function added the field.
            _ => after.clone(),
        };
        changed.insert(name.clone(), value);
    }
    changed
}

/// Items that the function kept, moved or changed in place keep the fields that the type lacks.
fn transfer_items(original: &[Value], before: &[Value], after: &[Value]) -> Vec<Value> {
    let same_length = before.len() == after.len();
    let transferred = after.iter().enumerate().map(|(at, item)| {
        let same = before.get(at) == Some(item);
        let from = if same {
            Some(at)
        } else {
            before.iter().position(|before| before == item)
        };
        if let Some(kept) = from.and_then(|from| original.get(from)) {
            return kept.clone();
        }
        match (original.get(at), before.get(at)) {
            (Some(original), Some(before)) if same_length => transfer(original, before, item),
            _ => item.clone(),
        }
    });
    transferred.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{changes, transfer};

    #[test]
    fn only_what_the_function_changed_is_in_the_patch() {
        for (original, before, after, wanted) in [
            // A default that the type writes is not added by itself.
            (
                json!({"a": 1}),
                json!({"a": 1, "d": 0}),
                json!({"a": 1, "d": 0}),
                json!([]),
            ),
            (
                json!({"a": 1}),
                json!({"a": 1, "d": null}),
                json!({"a": 1, "d": 5}),
                json!([{"op": "add", "path": "/d", "value": 5}]),
            ),
            // A field that the type lacks stays.
            (
                json!({"spec": {"a": 1, "unknown": true}}),
                json!({"spec": {"a": 1}}),
                json!({"spec": {"a": 2}}),
                json!([{"op": "replace", "path": "/spec/a", "value": 2}]),
            ),
            (
                json!({"spec": {"a": 1, "unknown": true}}),
                json!({"spec": {"a": 1}}),
                json!({"spec": {}}),
                json!([{"op": "remove", "path": "/spec/a"}]),
            ),
            // Parents that are missing are created.
            (
                json!({"metadata": {"name": "x"}}),
                json!({"metadata": {"name": "x"}, "spec": {"list": []}}),
                json!({"metadata": {"name": "x"}, "spec": {"list": [1]}}),
                json!([{"op": "add", "path": "/spec", "value": {"list": [1]}}]),
            ),
        ] {
            let patch = serde_json::to_value(changes(&original, &before, &after)).unwrap();
            assert_eq!(patch, wanted, "{original}");
        }
    }

    #[test]
    fn items_of_lists_keep_fields_that_the_type_lacks() {
        let original = json!([{"name": "a", "x": 1}, {"name": "b", "x": 2}]);
        let before = json!([{"name": "a"}, {"name": "b"}]);
        for (after, wanted) in [
            (
                json!([{"name": "new"}, {"name": "a"}, {"name": "b"}]),
                json!([{"name": "new"}, {"name": "a", "x": 1}, {"name": "b", "x": 2}]),
            ),
            (json!([{"name": "b"}]), json!([{"name": "b", "x": 2}])),
            (
                json!([{"name": "a", "size": 3}, {"name": "b"}]),
                json!([{"name": "a", "size": 3, "x": 1}, {"name": "b", "x": 2}]),
            ),
        ] {
            assert_eq!(transfer(&original, &before, &after), wanted);
        }
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..4_i32).prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map("[abc/~]", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_type_that_knows_all_fields_gets_what_the_function_returned(
            before in json_value(), after in json_value(),
        ) {
            let patch = changes(&before, &before, &after);
            let mut patched = before.clone();
            json_patch::patch(&mut patched, &patch).unwrap();
            prop_assert_eq!(patched, after);
        }

        #[test]
        fn every_patch_can_be_applied_to_the_object(
            original in json_value(), before in json_value(), after in json_value(),
        ) {
            let mut patched = original.clone();
            json_patch::patch(&mut patched, &changes(&original, &before, &after)).unwrap();
            prop_assert_eq!(patched, transfer(&original, &before, &after));
        }
    }
}

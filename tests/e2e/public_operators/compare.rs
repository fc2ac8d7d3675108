//! Differences between the objects of two releases.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// Placeholder of a random value in the expected objects.
const RANDOM: &str = "@@random@@";

/// Objects by kind and name, without what is left out in the expected ones. There may be several of a name.
pub(super) type Objects = BTreeMap<(String, String), Vec<Value>>;

pub(super) fn by_name(objects: &[Value]) -> Objects {
    let mut all = Objects::new();
    for object in objects {
        let mut object = object.clone();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let key = (text(&object["kind"]), text(&object["metadata"]["name"]));
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
            if metadata.get("annotations") == Some(&json!({})) {
                metadata.remove("annotations");
            }
        }
        remove_nulls(&mut object);
        all.entry(key).or_default().push(object);
    }
    all
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

pub(super) fn differences_of(ours: &Objects, expected: &Objects) -> Vec<String> {
    let mut found = Vec::new();
    for key in ours.keys().chain(expected.keys()).collect::<BTreeSet<_>>() {
        let of = |objects: &Objects| objects.get(key).cloned().unwrap_or_default();
        let (ours, expected) = (of(ours), of(expected));
        let name = format!("{}/{}", key.0, key.1);
        if ours.len() != expected.len() {
            found.push(format!("{} {name}, not {}", ours.len(), expected.len()));
        }
        for (ours, expected) in ours.iter().zip(&expected) {
            compare(ours, expected, &name, &mut found);
        }
    }
    found
}

/// Adds the places where two values differ.
fn compare(ours: &Value, expected: &Value, at: &str, found: &mut Vec<String>) {
    match (ours, expected) {
        (_, Value::String(text)) if text == RANDOM => {}
        (Value::Object(ours), Value::Object(expected)) => {
            for key in ours.keys().chain(expected.keys()).collect::<BTreeSet<_>>() {
                let of = |fields: &serde_json::Map<String, Value>| {
                    fields.get(key).cloned().unwrap_or_default()
                };
                compare(&of(ours), &of(expected), &format!("{at}/{key}"), found);
            }
        }
        (Value::Array(ours), Value::Array(expected)) if ours.len() == expected.len() => {
            for (index, (ours, expected)) in ours.iter().zip(expected).enumerate() {
                compare(ours, expected, &format!("{at}/{index}"), found);
            }
        }
        _ if ours == expected => {}
        _ => found.push(format!("{at} is {ours}, not {expected}")),
    }
}

#[test]
fn differences_are_found_and_random_values_are_none() {
    let object = |value: &Value| {
        json!({
            "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "n", "annotations": {}},
            "data": {"a": value, "none": null},
        })
    };
    let expected = |value: &Value| {
        let object = json!({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": value}});
        by_name(&[object])
    };
    let ours = by_name(&[object(&json!("x"))]);
    let none: [String; 0] = [];
    assert_eq!(differences_of(&ours, &expected(&json!("x"))), none);
    assert_eq!(differences_of(&ours, &expected(&json!(RANDOM))), none);
    assert_eq!(
        differences_of(&ours, &expected(&json!(["x"]))),
        ["ConfigMap/a/data/a is \"x\", not [\"x\"]"]
    );
    let missing = ["1 ConfigMap/a, not 0"];
    assert_eq!(differences_of(&ours, &Objects::new()), missing);
}

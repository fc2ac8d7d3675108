use std::sync::Arc;

use host::watch;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use parking_lot::RwLock;
use serde_json::{Value, json};

use super::{Change, Source, SourceInner};
use operator_runtime::controller::Key;
use operator_runtime::telemetry::resources::OutputLabels;

fn source() -> Source {
    let kind = GroupVersionKind::gvk("example.com", "v1", "Widget");
    Source(Arc::new(SourceInner {
        resource: ApiResource::from_gvk(&kind),
        objects: RwLock::default(),
        synced: watch::Sender::new(0),
        scopes: 1,
    }))
}

fn widget(version: u64, generation: u64, metadata: &Value) -> DynamicObject {
    let mut object = json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "one", "uid": "u", "resourceVersion": version.to_string(), "generation": generation},
    });
    json_patch::merge(&mut object, &json!({"metadata": metadata}));
    serde_json::from_value(object).unwrap()
}

#[test]
fn another_object_of_the_same_name_is_as_new_and_found_by_its_identity_while_it_exists() {
    let source = source();
    let first = widget(1, 1, &json!({}));
    let key = Key::of(&first);
    let identity = source.0.identity(&key);
    assert_eq!(source.key_of(&identity), None);
    assert_eq!(source.0.store(first), Change::Generation);
    let second = widget(2, 1, &json!({"uid": "another"}));
    assert_eq!(source.0.store(second), Change::Generation);
    assert_eq!(source.key_of(&identity), Some(key.clone()));
    let other = source.0.identity(&Key::new(None, "other"));
    assert_eq!(source.key_of(&other), None);
    source.0.remove(&key);
    assert_eq!(source.key_of(&identity), None);
}

#[test]
fn a_custom_resource_is_as_it_came_and_kept_decoded_on_request() {
    let source = source();
    let mut object = widget(1, 1, &json!({"labels": {"a": "b"}}));
    let mut deep = json!({"float": 1.2e-9, "max": u64::MAX, "min": i64::MIN, "null": null});
    for random in 1..2000_u32 {
        let float = f64::from_bits(u64::from(random).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2);
        deep[random.to_string()] = json!(float);
    }
    for _ in 0..110 {
        deep = json!([deep]);
    }
    object.data = json!({"spec": deep});
    let key = Key::of(&object);
    source.0.store(object.clone());
    assert_eq!(*source.get(&key).unwrap(), object);
    let twice = || [source.get(&key).unwrap(), source.get(&key).unwrap()];
    let [first, second] = twice();
    assert!(!Arc::ptr_eq(&first, &second));
    source.keep_decoded();
    let [first, second] = twice();
    assert!(Arc::ptr_eq(&first, &second));
}

#[test]
fn outputs_in_the_status_are_known_from_the_fields_that_the_operator_has_written() {
    let source = source();
    let entry = |manager: &str, subresource: &str, fields: Value| {
        json!({"manager": manager, "operation": "Update", "subresource": subresource,
            "fieldsV1": {"f:status": fields}})
    };
    let written = json!({".": {}, "f:release": {}, "f:url": {}, "f:nodes": {}});
    let object = widget(
        1,
        1,
        &json!({"managedFields": [
            entry("hybrid-operator", "status", written),
            entry("hybrid-operator", "", json!({"f:spec": {}})),
            entry("kubectl", "status", json!({"f:seen": {}})),
        ]}),
    );
    let key = Key::of(&object);
    source.put(object.clone());
    source.0.store(object);
    let mut outputs = source.outputs(&key, "u");
    outputs.sort();
    assert_eq!(outputs, ["nodes", "url"]);
    assert!(source.outputs(&key, "another").is_empty());
    assert_eq!(source.get(&key).unwrap().metadata.managed_fields, None);
}

#[test]
fn numbers_are_those_of_this_object_until_it_is_gone() {
    let source = source();
    let first = widget(1, 1, &json!({}));
    let key = Key::of(&first);
    let numbers = || {
        let numbers = source.0.numbers().into_iter();
        let named =
            |(labels, number): (OutputLabels, f64)| (labels.output, labels.resource.name, number);
        numbers.map(named).collect::<Vec<_>>()
    };
    let nodes = |count| Box::from([("nodes".to_owned(), count)]);
    let shown = |count| [("nodes".to_owned(), "one".to_owned(), count)];
    source.set_numbers(&key, "u", nodes(1.0));
    source.0.store(first);
    assert_eq!(numbers(), []);
    source.set_numbers(&key, "u", nodes(3.0));
    source.set_numbers(&key, "another", nodes(4.0));
    assert_eq!(numbers(), shown(3.0));
    source.put(widget(2, 1, &json!({})));
    source.0.store(widget(2, 1, &json!({})));
    source.0.store(widget(3, 2, &json!({})));
    assert_eq!(numbers(), shown(3.0));
    source.0.store(widget(4, 1, &json!({"uid": "another"})));
    assert_eq!(numbers(), []);
}

#[test]
fn a_change_first_seen_in_the_response_to_a_write_still_triggers() {
    let changes = [
        (2, json!({}), Change::Generation),
        (1, json!({"annotations": {"a": "b"}}), Change::Metadata),
        (
            1,
            json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
            Change::Metadata,
        ),
        (1, json!({}), Change::None),
    ];
    for (generation, metadata, expected) in changes {
        let source = source();
        assert_eq!(source.0.store(widget(1, 1, &json!({}))), Change::Generation);
        let answer = widget(3, generation, &metadata);
        let key = Key::of(&answer);
        source.put(answer.clone());
        let is_newest = || {
            let known = source.get(&key).unwrap();
            known.metadata.resource_version.as_deref() == Some("3")
        };
        assert!(is_newest());
        // The watch reports the change and then the write.
        let reported = widget(2, generation, &metadata);
        assert_eq!(source.0.store(reported), expected, "{metadata}");
        assert!(is_newest(), "{metadata}");
        assert_eq!(source.0.store(answer), Change::None);
    }
}

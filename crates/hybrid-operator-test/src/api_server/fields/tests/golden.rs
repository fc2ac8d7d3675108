//! Single writes, with what kube-apiserver makes of them.

use serde_json::{Value, json};

use super::apply;
use crate::api_server::fields::error::Cause;
use crate::api_server::fields::{ApplyError, TypeRef, Types, Writer, keep_times, update};
use crate::api_server::status::Failure;

const NOW: &str = "2026-01-02T03:04:05Z";

fn config_map() -> TypeRef {
    Types::builtin("v1", "ConfigMap").unwrap()
}

fn service() -> TypeRef {
    Types::builtin("v1", "Service").unwrap()
}

/// Returns the type of a custom resource with a granular map, a list with keys, and a status.
fn widget() -> TypeRef {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "text": {"type": "string"},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}},
            "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {
                    "name": {"type": "string"}, "value": {"type": "string"}}}}}},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}}}});
    defined(&schema, true)
}

/// Returns the type of widgets of all versions that tests use, which have the same schema.
fn defined(schema: &Value, has_status: bool) -> TypeRef {
    let versions =
        ["v1", "v2"].map(|version| (format!("example.com/{version}"), schema, has_status));
    Types::of_definition("Widget", versions).unwrap()["example.com/v1"].clone()
}

fn status(error: &ApplyError) -> Value {
    Failure::from(error.clone()).status()
}

fn writer<'a>(manager: &'a str, api_version: &'a str) -> Writer<'a> {
    Writer {
        manager,
        subresource: None,
        api_version,
        now: NOW,
    }
}

fn widgets(manager: &str) -> Writer<'_> {
    writer(manager, "example.com/v1")
}

/// Returns an object that exists.
fn widget_with(mut fields: Value) -> Value {
    fields["apiVersion"] = json!("example.com/v1");
    fields["kind"] = json!("Widget");
    fields["metadata"]["name"] = json!("w");
    fields["metadata"]["uid"] = json!("1");
    fields
}

/// Returns a widget as the manager `hand` has created it.
fn created_widget(fields: Value) -> Value {
    update(None, widget_with(fields), &widget(), &widgets("hand")).unwrap()
}

fn of_status(manager: &str) -> Writer<'_> {
    Writer {
        subresource: Some("status"),
        ..widgets(manager)
    }
}

fn applied_widget(spec: impl Into<Value>) -> Value {
    let spec: Value = spec.into();
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
}

/// Applies a widget of this specification, without force.
fn apply_widget(live: Option<&Value>, spec: Value, manager: &str) -> Result<Value, ApplyError> {
    let applied = applied_widget(spec);
    apply(live, &applied, &widget(), &widgets(manager), false)
}

/// Returns the fields of each manager.
fn owned(object: &Value) -> Vec<(String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array();
    let entries = entries.into_iter().flatten().map(|entry| {
        let manager = entry["manager"].as_str().unwrap();
        (manager.to_owned(), entry["fieldsV1"].clone())
    });
    entries.collect()
}

#[test]
fn a_created_object_belongs_to_its_creator_but_for_what_the_server_sets() {
    let new = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "a", "namespace": "b", "labels": {"app": "x"}, "uid": "1", "creationTimestamp": NOW},
        "spec": {"ports": [{"port": 443, "protocol": "TCP"}, {"port": 80, "protocol": "TCP"}],
            "selector": {"app": "x"}},
        "status": {"loadBalancer": {}}});
    let created = update(None, new, &service(), &writer("helm", "v1")).unwrap();
    assert_eq!(
        created["metadata"]["managedFields"],
        json!([{
            "apiVersion": "v1", "fieldsType": "FieldsV1", "manager": "helm", "operation": "Update", "time": NOW,
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {
                    "f:ports": {".": {},
                        "k:{\"port\":443,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:protocol": {}},
                        "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:protocol": {}}},
                    "f:selector": {}},
            },
        }])
    );
    // The status is another write.
    assert_eq!(created.get("status"), None);
}

#[test]
fn keys_of_lists_have_their_defaults() {
    let ports = |ports: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": ports}});
    let mut live = ports(json!([{"port": 80, "protocol": "TCP", "name": "x"}]));
    live["metadata"]["uid"] = json!("1");
    let applied = ports(json!([{"port": 80, "targetPort": 1}]));
    let object = apply(Some(&live), &applied, &service(), &writer("a", "v1"), false).unwrap();
    assert_eq!(
        object["spec"]["ports"],
        json!([{"port": 80, "protocol": "TCP", "name": "x", "targetPort": 1}])
    );
    let fields = json!({"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}":
        {".": {}, "f:port": {}, "f:targetPort": {}}}}});
    assert_eq!(owned(&object)[0], ("a".to_owned(), fields));
}

#[test]
fn what_nobody_applies_any_more_goes_and_what_others_own_stays() {
    let first = json!({"text": "a", "map": {"k1": "x", "k2": "y"}, "set": [1, 2],
        "items": [{"name": "a", "value": "1"}, {"name": "b"}]});
    let object = apply_widget(None, first, "one").unwrap();
    let second = json!({"map": {"k2": "y"}, "set": [2], "items": [{"name": "b", "value": "2"}]});
    let object = apply_widget(Some(&object), second.clone(), "two").unwrap();
    let object = apply_widget(Some(&object), json!({}), "one").unwrap();
    assert_eq!(object["spec"], second);
    let names: Vec<_> = owned(&object).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(owned(&object)[0].1, json!({"f:spec": {}}));
}

#[test]
fn fields_of_an_update_are_not_removed_when_an_applier_leaves_them() {
    let spec = json!({"text": "a", "map": {"k1": "x"}});
    let object = apply_widget(None, spec, "one").unwrap();
    let mut edited = object.clone();
    edited["metadata"]["uid"] = json!("1");
    edited["spec"]["text"] = json!("b");
    let object = update(Some(&object), edited, &widget(), &widgets("hand")).unwrap();
    // The editor took the field.
    let map = json!({"f:spec": {"f:map": {"f:k1": {}}}});
    assert_eq!(owned(&object)[0].1, map);
    assert_eq!(owned(&object)[1].1, json!({"f:spec": {"f:text": {}}}));
    let object = apply_widget(Some(&object), json!({"map": {"k1": "x"}}), "one").unwrap();
    assert_eq!(object["spec"], json!({"text": "b", "map": {"k1": "x"}}));
}

#[test]
fn conflicts_name_the_fields_and_their_managers() {
    let spec = json!({"text": "a", "items": [{"name": "x", "value": "1"}]});
    let object = created_widget(json!({"spec": spec}));
    let applied = applied_widget(json!({"text": "b", "items": [{"name": "x", "value": "2"}]}));
    let error = apply(Some(&object), &applied, &widget(), &widgets("one"), false).unwrap_err();
    let message = "Apply failed with 2 conflicts: conflicts with \"hand\" using example.com/v1:\n\
        - .spec.text\n- .spec.items[name=\"x\"].value"
        .to_owned();
    let cause = |field: &str| Cause {
        field: field.to_owned(),
        message: "conflict with \"hand\" using example.com/v1".to_owned(),
    };
    let causes = vec![cause(".spec.text"), cause(".spec.items[name=\"x\"].value")];
    assert_eq!(error, ApplyError::Conflict { message, causes });
    let status = self::status(&error);
    assert_eq!(status["code"], 409);
    assert_eq!(status["reason"], "Conflict");
    assert_eq!(
        status["details"]["causes"][0],
        json!({"reason": "FieldManagerConflict", "field": ".spec.text",
            "message": "conflict with \"hand\" using example.com/v1"})
    );
    // With force the fields change hands.
    let object = apply(Some(&object), &applied, &widget(), &widgets("one"), true).unwrap();
    assert_eq!(object["spec"]["text"], "b");
    let fields = json!({"f:spec": {".": {}, "f:items": {".": {}, "k:{\"name\":\"x\"}": {".": {}, "f:name": {}}}}});
    assert_eq!(owned(&object)[1], ("hand".to_owned(), fields));
}

#[test]
fn equal_values_are_owned_by_several_and_have_no_time_without_a_change() {
    let object = created_widget(json!({"spec": {"text": "a"}}));
    let object = apply_widget(Some(&object), json!({"text": "a"}), "one").unwrap();
    let entries = &object["metadata"]["managedFields"];
    assert_eq!(entries[0]["manager"], "one");
    assert_eq!(entries[0]["fieldsV1"], json!({"f:spec": {"f:text": {}}}));
    assert_eq!(entries[0].get("time"), None);
    assert_eq!(entries[1]["time"], NOW);
}

#[test]
fn an_apply_without_effect_keeps_the_times() {
    let live = apply_widget(None, json!({"map": {}}), "one").unwrap();
    let later = Writer {
        now: "2026-01-02T03:05:05Z",
        ..widgets("one")
    };
    // A null that the server drops when it stores the object is a change until then.
    let again = applied_widget(json!({"map": null}));
    let mut object = apply(Some(&live), &again, &widget(), &later, false).unwrap();
    assert_eq!(object["metadata"]["managedFields"][0]["time"], later.now);
    object["spec"]["map"] = json!({});
    assert_eq!(keep_times(&live, object), live);
}

#[test]
fn fields_of_an_object_without_managers_belong_to_before_first_apply() {
    let live = widget_with(json!({"spec": {"text": "a", "map": {"k": "v"}}}));
    let applied = applied_widget(json!({"text": "b"}));
    let error = apply(Some(&live), &applied, &widget(), &widgets("one"), false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using example.com/v1: .spec.text"
    );
    let object = apply(Some(&live), &applied, &widget(), &widgets("one"), true).unwrap();
    let fields = json!({"f:spec": {".": {}, "f:map": {".": {}, "f:k": {}}}});
    assert_eq!(owned(&object)[1], ("before-first-apply".to_owned(), fields));
    // Updates of such an object are not tracked.
    let mut edited = live.clone();
    edited["spec"]["text"] = json!("c");
    let object = update(Some(&live), edited.clone(), &widget(), &widgets("hand")).unwrap();
    assert_eq!(object, edited);
}

#[test]
fn an_applied_object_of_another_type_is_refused_with_500() {
    let refused = |spec: Value| {
        let applied = applied_widget(spec);
        let error = apply(None, &applied, &widget(), &widgets("one"), true).unwrap_err();
        assert_eq!(status(&error)["code"], 500);
        assert_eq!(status(&error).get("reason"), None);
        let prefix = "failed to create typed patch object (/w; example.com/v1, Kind=Widget): ";
        error.to_string().strip_prefix(prefix).unwrap().to_owned()
    };
    for case in r#"
        {"typo": 1} => .spec.typo: field not declared in schema
        {"text": 5} => .spec.text: expected string, got &value.valueUnstructured{Value:5}
        {"map": "x"} => .spec.map: expected map, got &{x}
        {"items": {"a": [1]}} => .spec.items: expected list, got &{map[a:[1]]}
        {"set": ["x"]} => .spec.set[="x"]: expected numeric (int or float), got string
        {"set": [1, 1], "items": [{"name": "a"}, {"name": "a"}]} => errors:\n  .spec.items: duplicate entries for key [name="a"]\n  .spec.set: duplicate entries for key [=1]
        {"items": [{"value": "a"}]} => .spec.items: element 0: associative list with keys has an element that omits all key fields ["name"] (and doesn't have default values for any key fields)
        "#
        .trim()
        .lines()
    {
        let (spec, expected) = case.split_once(" => ").unwrap();
        let found = refused(serde_json::from_str(spec).unwrap());
        assert_eq!(found, expected.replace("\\n", "\n"), "{spec}");
    }
}

#[test]
fn an_applied_object_that_is_none_is_a_bad_request() {
    let refused = |applied: &Value| {
        let error = apply(None, applied, &widget(), &widgets("one"), true).unwrap_err();
        assert_eq!(status(&error)["code"], 400);
        error.to_string()
    };
    let mut applied = applied_widget(json!({}));
    applied["metadata"]["managedFields"] = json!([]);
    assert_eq!(refused(&applied), "metadata.managedFields must be nil");
    applied["kind"] = json!("Other");
    let message = "invalid object type: example.com/v1, Kind=Other";
    assert_eq!(refused(&applied), message);
}

#[test]
fn the_oldest_updates_beyond_ten_are_merged() {
    let mut object = widget_with(json!({"spec": {"map": {}}}));
    object["metadata"].as_object_mut().unwrap().remove("uid");
    object = update(None, object, &widget(), &widgets("first")).unwrap();
    for second in 0..11 {
        let mut new = object.clone();
        new["spec"]["map"][format!("k{second}")] = json!("x");
        let now = format!("2026-01-02T03:05:{second:02}Z");
        let manager = format!("updater{second}");
        let writer = Writer {
            now: &now,
            ..widgets(&manager)
        };
        object = update(Some(&object), new, &widget(), &writer).unwrap();
    }
    let managers = owned(&object);
    assert_eq!(managers.len(), 10);
    let fields = json!({"f:spec": {".": {}, "f:map": {"f:k0": {}, "f:k1": {}, ".": {}}}});
    assert_eq!(managers[0], ("ancient-changes".to_owned(), fields));
    let time = &object["metadata"]["managedFields"][0]["time"];
    assert_eq!(time, "2026-01-02T03:05:01Z");
}

#[test]
fn a_request_may_set_the_entries() {
    let live = created_widget(json!({"spec": {"text": "a"}}));
    let put = |type_: &TypeRef, entries: Value| {
        let mut new = live.clone();
        new["metadata"]["managedFields"] = entries;
        let new = update(Some(&live), new, type_, &widgets("hand")).unwrap();
        owned(&new).len()
    };
    assert_eq!(put(&widget(), json!(null)), 1);
    assert_eq!(put(&widget(), json!([{"manager": "invalid"}])), 1);
    assert_eq!(put(&widget(), json!([{}])), 0);
    // Decoding takes an empty list from custom resources.
    assert_eq!(put(&widget(), json!([])), 1);
    let mut config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let mut live = update(None, config.clone(), &config_map(), &writer("hand", "v1")).unwrap();
    live["metadata"]["uid"] = json!("1");
    config["metadata"]["managedFields"] = json!([]);
    let new = update(Some(&live), config, &config_map(), &writer("hand", "v1")).unwrap();
    assert_eq!(owned(&new).len(), 0);
}

#[test]
fn writes_of_the_status_change_and_own_nothing_else() {
    let live = created_widget(json!({"spec": {"text": "a"}, "status": {"phase": "x"}}));
    assert_eq!(live.get("status"), None);
    let mut new = live.clone();
    new["spec"]["text"] = json!("b");
    new["metadata"]["labels"] = json!({"a": "b"});
    new["status"] = json!({"phase": "y"});
    let object = update(Some(&live), new, &widget(), &of_status("controller")).unwrap();
    assert_eq!(object["spec"], live["spec"]);
    assert_eq!(object["metadata"].get("labels"), None);
    assert_eq!(object["status"], json!({"phase": "y"}));
    let entry = &object["metadata"]["managedFields"][0];
    assert_eq!(entry["manager"], "controller");
    assert_eq!(entry["subresource"], "status");
    let fields = json!({"f:status": {".": {}, "f:phase": {}}});
    assert_eq!(entry["fieldsV1"], fields);
    // And the other way round.
    let mut new = object.clone();
    new["status"] = json!({"phase": "z"});
    let object = update(Some(&object), new, &widget(), &widgets("hand")).unwrap();
    assert_eq!(object["status"], json!({"phase": "y"}));
    let applied = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        "status": {"phase": "z"}});
    let error = apply(Some(&object), &applied, &widget(), &of_status("one"), false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"controller\" with subresource \"status\" using \
            example.com/v1: .status.phase"
    );
}

/// The server does not reset fields for managers in other versions.
#[test]
fn a_write_that_mentions_the_status_takes_it_from_managers_in_other_versions() {
    let live = widget_with(json!({"spec": {"text": "a"}, "status": {"phase": "x"}}));
    let status = Writer {
        api_version: "example.com/v2",
        ..of_status("controller")
    };
    let mut of_version = live.clone();
    of_version["apiVersion"] = json!("example.com/v2");
    let untracked = widget_with(json!({}));
    let mut live = update(Some(&untracked), of_version, &widget(), &status).unwrap();
    assert_eq!(owned(&live).len(), 0, "an update of an untracked object");
    live["metadata"]["managedFields"] = json!([{"apiVersion": "example.com/v2", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": {"f:phase": {}}}, "manager": "controller", "operation": "Update",
        "subresource": "status", "time": NOW}]);
    let mut live = widget_with(live);
    live["status"] = json!({"phase": "x"});
    let mut new = live.clone();
    new["status"] = json!({"phase": "y"});
    let object = update(Some(&live), new, &widget(), &widgets("hand")).unwrap();
    assert_eq!(object["status"], json!({"phase": "x"}));
    assert_eq!(owned(&object).len(), 0);
}

/// The server converts without the leave to have duplicates, and then stores the object without entries.
#[test]
fn an_object_with_one_key_twice_loses_its_managers_when_it_is_written_in_another_version() {
    let twice = json!([{"name": "a"}, {"name": "a", "value": "1"}]);
    let live = created_widget(json!({"spec": {"items": twice}}));
    let items = json!({".": {}, "k:{\"name\":\"a\"}": {}});
    assert_eq!(
        owned(&live)[0].1,
        json!({"f:spec": {".": {}, "f:items": items}})
    );
    let mut new = live.clone();
    new["spec"]["text"] = json!("a");
    let object = update(Some(&live), new.clone(), &widget(), &widgets("other")).unwrap();
    assert_eq!(owned(&object).len(), 2);
    new["apiVersion"] = json!("example.com/v2");
    let other = writer("other", "example.com/v2");
    let object = update(Some(&live), new, &widget(), &other).unwrap();
    assert_eq!(owned(&object).len(), 0);
}

#[test]
fn fields_of_a_map_that_became_atomic_become_one() {
    let type_of = |map_type: &str| {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "map": {"type": "object", "x-kubernetes-map-type": map_type,
                "additionalProperties": {"type": "string"}}}}}});
        defined(&schema, false)
    };
    let live = widget_with(json!({"spec": {"map": {"k1": "x", "k2": "y"}}}));
    let live = update(None, live, &type_of("granular"), &widgets("hand")).unwrap();
    let map = json!({".": {}, "f:k1": {}, "f:k2": {}});
    assert_eq!(
        owned(&live)[0].1,
        json!({"f:spec": {".": {}, "f:map": map}})
    );
    let applied = applied_widget(json!({"map": {"k1": "x", "k2": "y"}}));
    let atomic = type_of("atomic");
    let object = apply(Some(&live), &applied, &atomic, &widgets("one"), false).unwrap();
    assert_eq!(owned(&object)[0].1, json!({"f:spec": {"f:map": {}}}));
    assert_eq!(
        owned(&object)[1].1,
        json!({"f:spec": {".": {}, "f:map": {}}})
    );
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let not_modelled = |result: Result<Value, ApplyError>| match result {
        Err(ApplyError::NotModelled(what)) => what,
        other => panic!("{other:?}"),
    };
    let kind = Types::builtin("v1", "Binding").map(|_| Value::Null);
    assert_eq!(not_modelled(kind), "fields of the kind Binding of v1");
    let scale = Writer {
        subresource: Some("scale"),
        ..widgets("a")
    };
    assert_eq!(
        not_modelled(update(None, json!({}), &widget(), &scale)),
        "managed fields of the subresource scale of Widget"
    );
    let mut live = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "uid": "1",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}});
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let kubectl = writer("kubectl", "v1");
    assert_eq!(
        not_modelled(apply(Some(&live), &applied, &config_map(), &kubectl, true)),
        "the manager kubectl with the annotation kubectl.kubernetes.io/last-applied-configuration"
    );
    live["metadata"]["managedFields"] = json!([{"apiVersion": "v1beta1", "fieldsType": "FieldsV1",
        "fieldsV1": {}, "manager": "a", "operation": "Update"}]);
    let other = writer("b", "v1");
    assert_eq!(
        not_modelled(apply(Some(&live), &applied, &config_map(), &other, true)),
        "fields that are managed in v1beta1 of /a; /v1, Kind=ConfigMap, which is written in v1"
    );
}

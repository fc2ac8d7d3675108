mod compared;
mod generate;
mod kinds;
mod samples;
mod server;

use serde_json::{Value, json};

use super::{ApplyError, TypeRef, Types, Writer};

fn apply(
    live: Option<&Value>,
    applied: &Value,
    type_: &TypeRef,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    super::apply(live, applied, type_, writer, force).map(|applied| applied.object)
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let not_modelled = |result: Result<Value, ApplyError>| match result {
        Err(ApplyError::NotModelled(what)) => what,
        other => panic!("{other:?}"),
    };
    let kind = Types::builtin("v1", "Binding").map(|_| Value::Null);
    assert_eq!(not_modelled(kind), "fields of the kind Binding of v1");
    let config_map = Types::builtin("v1", "ConfigMap").unwrap();
    let writer = |manager| Writer {
        manager,
        subresource: None,
        api_version: "v1",
        now: "2026-01-02T03:04:05Z",
    };
    let scale = Writer {
        subresource: Some("scale"),
        ..writer("a")
    };
    assert_eq!(
        not_modelled(super::update(None, json!({}), &config_map, &scale)),
        "managed fields of the subresource scale of ConfigMap"
    );
    let mut live = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "uid": "1",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}});
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let kubectl = writer("kubectl");
    assert_eq!(
        not_modelled(apply(Some(&live), &applied, &config_map, &kubectl, true)),
        "the manager kubectl with the annotation kubectl.kubernetes.io/last-applied-configuration"
    );
    live["metadata"]["managedFields"] = json!([{"apiVersion": "v1beta1", "fieldsType": "FieldsV1",
        "fieldsV1": {}, "manager": "a", "operation": "Update"}]);
    let other = writer("b");
    assert_eq!(
        not_modelled(apply(Some(&live), &applied, &config_map, &other, true)),
        "fields that are managed in v1beta1 of /a; /v1, Kind=ConfigMap, which is written in v1"
    );
}

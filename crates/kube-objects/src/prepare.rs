//! Converts objects of a manifest for server-side apply: removes fields that the server owns, and
//! normalises what a create accepts but server-side apply rejects.

use data_encoding::BASE64;
use serde_json::{Map, Value};

/// Metadata fields that only the server sets.
const SERVER_METADATA: &[&str] = &[
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// List entries that were merged because they had the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The list, as a JSON pointer.
    pub path: String,
    /// The key that occurred more than once, such as `name=LOG_LEVEL`.
    pub key: String,
}

/// Prepares an object for sending. Returns the list entries that were merged.
///
/// * `status`, server-set metadata and an empty `clusterIP` are removed. A `clusterIP` that the
///   chart sets, including `None`, stays.
/// * Nulls in maps are sent, as by Helm, but for those of [`drop_meaningless_nulls`].
/// * Entries with equal keys are merged in keyed lists in which a create would accept them: the
///   last one wins, at the position of the first.
/// * `stringData` of Secrets becomes `data`, as in the server. The server only tracks the owners of
///   `data`, so drift and removed keys would otherwise go unnoticed.
pub(super) fn prepare(object: &mut Value) -> Vec<Merged> {
    drop_meaningless_nulls(object);
    let Some(map) = object.as_object_mut() else {
        return Vec::new();
    };
    map.remove("status");
    if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| !SERVER_METADATA.contains(&key.as_str()));
    }
    let is_core = map.get("apiVersion").and_then(Value::as_str) == Some("v1");
    match map.get("kind").and_then(Value::as_str) {
        Some("Secret") if is_core => encode_string_data(map),
        Some("Service") if is_core => drop_empty_address(map),
        _ => {}
    }
    let mut merged = Vec::new();
    merge_duplicates(object, &mut merged);
    merged
}

/// Returns the list entries of an object that are merged before it is sent.
pub fn merged_lists(object: &Value) -> Vec<Merged> {
    prepare(&mut object.clone())
}

/// Drops nulls that mean the same as a missing field when the object is created, and do harm when it is
/// applied again:
///
/// * in the specs that never change (of a claim, a volume, a Pod and a Job), in which a null would reset what
///   the server has set;
/// * `replicas` of workloads: the number that an autoscaler has set may have no owner;
/// * keys of keyed lists: the server would add the item once more.
fn drop_meaningless_nulls(object: &mut Value) {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or("");
    let (api_version, kind) = (text("apiVersion").to_owned(), text("kind").to_owned());
    let Some(spec) = object.get_mut("spec") else {
        return;
    };
    match (api_version.as_str(), kind.as_str()) {
        ("v1", "PersistentVolumeClaim" | "PersistentVolume" | "Pod") | ("batch/v1", "Job") => {
            drop_nulls(spec);
        }
        ("v1", "ReplicationController")
        | ("apps/v1", "Deployment" | "StatefulSet" | "ReplicaSet") => {
            drop_null(spec, "replicas");
        }
        ("v1", "Service") => drop_null_protocols(spec),
        _ => {}
    }
    let Some(pod) = pod_spec_path(&api_version, &kind).and_then(|path| object.pointer_mut(path))
    else {
        return;
    };
    for containers in ["containers", "initContainers"] {
        let containers = pod.get_mut(containers).and_then(Value::as_array_mut);
        containers
            .into_iter()
            .flatten()
            .for_each(drop_null_protocols);
    }
}

/// Drops the null protocols of `ports`, whose keys are number and protocol.
fn drop_null_protocols(of: &mut Value) {
    let ports = of.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        drop_null(port, "protocol");
    }
}

fn drop_null(value: &mut Value, field: &str) {
    if let Some(map) = value.as_object_mut()
        && map.get(field).is_some_and(Value::is_null)
    {
        map.remove(field);
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, child| !child.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn encode_string_data(secret: &mut Map<String, Value>) {
    let Some(Value::Object(texts)) = secret.remove("stringData") else {
        return;
    };
    let slot = secret
        .entry("data")
        .or_insert_with(|| Value::Object(Map::new()));
    if slot.is_null() {
        *slot = Value::Object(Map::new());
    }
    let Some(data) = slot.as_object_mut() else {
        return;
    };
    for (key, text) in texts {
        // The server rejects anything but strings.
        let encoded = text
            .as_str()
            .map(|text| Value::String(BASE64.encode(text.as_bytes())));
        data.insert(key, encoded.unwrap_or(text));
    }
}

fn drop_empty_address(service: &mut Map<String, Value>) {
    if let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut)
        && spec.get("clusterIP").and_then(Value::as_str) == Some("")
    {
        spec.remove("clusterIP");
    }
}

/// Returns the JSON pointer to the Pod spec of a kind.
fn pod_spec_path(api_version: &str, kind: &str) -> Option<&'static str> {
    match (api_version, kind) {
        ("v1", "Pod") => Some("/spec"),
        ("v1", "PodTemplate") => Some("/template/spec"),
        ("v1", "ReplicationController")
        | ("apps/v1", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
        | ("batch/v1", "Job") => Some("/spec/template/spec"),
        ("batch/v1", "CronJob") => Some("/spec/jobTemplate/spec/template/spec"),
        _ => None,
    }
}

/// Merges duplicates in keyed lists in which the API accepts several entries with one key. In other
/// keyed lists (containers, volumes, ports of Services) validation rejects them, and merging would
/// hide a mistake.
fn merge_duplicates(object: &mut Value, merged: &mut Vec<Merged>) {
    let text = |field: &str| {
        object
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or("")
            .to_owned()
    };
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    merge_set(object, "/metadata/finalizers", merged);
    if api_version == "v1" && kind == "ServiceAccount" {
        for list in ["/secrets", "/imagePullSecrets"] {
            merge_list(object, list, &[("name", None)], merged);
        }
    }
    let Some(pod) = pod_spec_path(&api_version, &kind) else {
        return;
    };
    merge_list(
        object,
        &format!("{pod}/imagePullSecrets"),
        &[("name", None)],
        merged,
    );
    merge_list(
        object,
        &format!("{pod}/hostAliases"),
        &[("ip", None)],
        merged,
    );
    for containers in ["containers", "initContainers"] {
        let path = format!("{pod}/{containers}");
        let count = object
            .pointer(&path)
            .and_then(Value::as_array)
            .map_or(0, Vec::len);
        for index in 0..count {
            let container = format!("{path}/{index}");
            merge_list(
                object,
                &format!("{container}/env"),
                &[("name", None)],
                merged,
            );
            let port = [("containerPort", None), ("protocol", Some("TCP"))];
            merge_list(object, &format!("{container}/ports"), &port, merged);
        }
    }
}

/// Merges the entries of a list that have the same values in all `fields`; a missing field counts
/// as its default. Entries without a key are not changed.
fn merge_list(
    object: &mut Value,
    path: &str,
    fields: &[(&str, Option<&str>)],
    merged: &mut Vec<Merged>,
) {
    let Some(items) = object.pointer_mut(path).and_then(Value::as_array_mut) else {
        return;
    };
    let key_of = |item: &Value| -> Option<String> {
        let mut texts = Vec::with_capacity(fields.len());
        for (field, default) in fields {
            let text = match (item.get(field), default) {
                (Some(Value::String(text)), _) => text.clone(),
                (Some(other), _) => other.to_string(),
                (None, Some(default)) => (*default).to_owned(),
                (None, None) => return None,
            };
            texts.push(format!("{field}={text}"));
        }
        Some(texts.join(","))
    };
    merge_items(items, path, key_of, merged);
}

/// Drops repeated strings of a list that the API treats as a set.
fn merge_set(object: &mut Value, path: &str, merged: &mut Vec<Merged>) {
    let Some(items) = object.pointer_mut(path).and_then(Value::as_array_mut) else {
        return;
    };
    merge_items(items, path, |item| item.as_str().map(str::to_owned), merged);
}

fn merge_items(
    items: &mut Vec<Value>,
    path: &str,
    key_of: impl Fn(&Value) -> Option<String>,
    merged: &mut Vec<Merged>,
) {
    let mut kept: Vec<(Option<String>, Value)> = Vec::with_capacity(items.len());
    for item in items.drain(..) {
        let key = key_of(&item);
        let first = kept
            .iter_mut()
            .find(|(known, _)| known.is_some() && *known == key);
        match (first, key) {
            (Some((_, slot)), Some(key)) => {
                *slot = item;
                merged.push(Merged {
                    path: path.to_owned(),
                    key,
                });
            }
            (_, key) => kept.push((key, item)),
        }
    }
    items.extend(kept.into_iter().map(|(_, item)| item));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn prepared(mut object: Value) -> (Value, Vec<Merged>) {
        let merged = prepare(&mut object);
        (object, merged)
    }

    #[test]
    fn fields_that_the_server_owns_are_not_sent() {
        let (object, merged) = prepared(json!({
            "apiVersion": "v1", "kind": "Service", "status": {"loadBalancer": {}},
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "generation": 1,
                "creationTimestamp": null, "managedFields": [], "selfLink": "/x"},
            "spec": {"clusterIP": "", "ports": [{"port": 80}]}}));
        assert_eq!(
            object,
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
                   "spec": {"ports": [{"port": 80}]}})
        );
        assert!(merged.is_empty());
    }

    #[test]
    fn a_cluster_ip_that_the_chart_sets_is_sent() {
        for address in ["None", "10.0.0.10"] {
            let object = json!({"apiVersion": "v1", "kind": "Service",
                "spec": {"clusterIP": address}});
            assert_eq!(prepared(object.clone()).0, object);
        }
    }

    #[test]
    fn nulls_are_sent() {
        for object in [
            json!({"a": null, "b": {"c": null, "d": [{"e": null}, null]}}),
            json!({"apiVersion": "example.com/v1", "kind": "Job", "spec": {"a": null}}),
            json!({"apiVersion": "example.com/v1", "kind": "Deployment", "spec": {"replicas": null}}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": null}, "binaryData": null}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"strategy": null}}),
        ] {
            assert_eq!(prepared(object.clone()).0, object);
        }
    }

    #[test]
    fn nulls_that_do_harm_in_a_later_apply_are_dropped() {
        let ports = json!([{"port": 80, "protocol": null, "name": null}]);
        let kept = json!([{"port": 80, "name": null}]);
        for (api_version, kind, spec, expected) in [
            (
                "v1",
                "PersistentVolumeClaim",
                json!({"storageClassName": null, "resources": {"limits": null}}),
                json!({"resources": {}}),
            ),
            ("v1", "Pod", json!({"nodeName": null}), json!({})),
            ("batch/v1", "Job", json!({"selector": null}), json!({})),
            (
                "apps/v1",
                "StatefulSet",
                json!({"replicas": null, "x": null}),
                json!({"x": null}),
            ),
            (
                "v1",
                "Service",
                json!({"ports": ports}),
                json!({"ports": kept}),
            ),
            (
                "apps/v1",
                "DaemonSet",
                json!({"template": {"spec": {"initContainers": [{"ports": ports}]}}}),
                json!({"template": {"spec": {"initContainers": [{"ports": kept}]}}}),
            ),
        ] {
            let object = |spec| json!({"apiVersion": api_version, "kind": kind, "spec": spec});
            assert_eq!(prepared(object(spec)).0, object(expected));
        }
    }

    #[test]
    fn string_data_of_secrets_becomes_data() {
        let (object, _) = prepared(json!({"apiVersion": "v1", "kind": "Secret",
            "data": {"a": "eA==", "b": "eA=="}, "stringData": {"b": "yes", "c": ""}}));
        assert_eq!(
            object,
            json!({"apiVersion": "v1", "kind": "Secret",
                   "data": {"a": "eA==", "b": "eWVz", "c": ""}})
        );
        let (object, _) = prepared(json!({"apiVersion": "v1", "kind": "Secret",
            "data": null, "stringData": {"b": "yes", "c": null}}));
        assert_eq!(object["data"], json!({"b": "eWVz", "c": null}));
        let (object, _) = prepared(json!({"apiVersion": "v1", "kind": "Secret",
            "data": {"a": null}, "stringData": null}));
        assert_eq!(object["data"], json!({"a": null}));
        let other = json!({"apiVersion": "example.com/v1", "kind": "Secret",
            "stringData": {"b": "yes"}});
        assert_eq!(prepared(other.clone()).0, other);
    }

    #[test]
    fn the_last_entry_with_a_key_wins_at_the_position_of_the_first() {
        let pod = |env: Value, ports: Value| {
            json!({"containers": [{"name": "a", "env": env, "ports": ports}],
                   "imagePullSecrets": [{"name": "x"}, {"name": "x"}]})
        };
        let workload = |pod: Value| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment",
                   "spec": {"template": {"spec": pod}}})
        };
        let (object, merged) = prepared(workload(pod(
            json!([{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"},
                   {"name": "A", "valueFrom": {"fieldRef": {}}}]),
            json!([{"containerPort": 80, "name": "x"}, {"containerPort": 80, "protocol": "UDP"},
                   {"containerPort": 80, "protocol": "TCP", "name": "y"}]),
        )));
        let mut expected = workload(pod(
            json!([{"name": "A", "valueFrom": {"fieldRef": {}}}, {"name": "B", "value": "$(A)"}]),
            json!([{"containerPort": 80, "protocol": "TCP", "name": "y"},
                   {"containerPort": 80, "protocol": "UDP"}]),
        ));
        expected["spec"]["template"]["spec"]["imagePullSecrets"] = json!([{"name": "x"}]);
        assert_eq!(object, expected);
        let keys: Vec<&str> = merged.iter().map(|merged| merged.key.as_str()).collect();
        assert_eq!(keys, ["name=x", "name=A", "containerPort=80,protocol=TCP"]);
        assert_eq!(merged[1].path, "/spec/template/spec/containers/0/env");
    }

    #[test]
    fn duplicates_that_the_api_rejects_are_not_merged() {
        for object in [
            json!({"apiVersion": "v1", "kind": "Pod",
                   "spec": {"containers": [{"name": "a"}, {"name": "a"}]}}),
            json!({"apiVersion": "v1", "kind": "Service",
                   "spec": {"ports": [{"port": 80}, {"port": 80}]}}),
            json!({"apiVersion": "v1", "kind": "Pod",
                   "spec": {"containers": [{"env": [{"value": "x"}, {"value": "y"}]}]}}),
        ] {
            assert_eq!(prepared(object.clone()), (object, Vec::new()));
        }
    }

    #[test]
    fn pod_spec_paths_are_known_for_all_workload_kinds() {
        for (api_version, kind, path) in [
            ("v1", "Pod", "/spec"),
            ("v1", "PodTemplate", "/template/spec"),
            ("v1", "ReplicationController", "/spec/template/spec"),
            ("apps/v1", "StatefulSet", "/spec/template/spec"),
            ("batch/v1", "Job", "/spec/template/spec"),
            (
                "batch/v1",
                "CronJob",
                "/spec/jobTemplate/spec/template/spec",
            ),
        ] {
            assert_eq!(pod_spec_path(api_version, kind), Some(path));
        }
        assert_eq!(pod_spec_path("example.com/v1", "Deployment"), None);
    }

    #[test]
    fn finalizers_are_a_set() {
        let (object, merged) = prepared(json!({"metadata": {"finalizers": ["a", "b", "a"]}}));
        assert_eq!(object["metadata"]["finalizers"], json!(["a", "b"]));
        assert_eq!(merged[0].key, "a");
    }
}

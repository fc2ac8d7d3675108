//! The discovery documents that a script serves.

use serde_json::{Value, json};

/// Plural, kind and scope of the kinds of the core group.
const CORE: [&str; 5] = [
    "configmaps ConfigMap Namespaced",
    "events Event Namespaced",
    "namespaces Namespace Cluster",
    "secrets Secret Namespaced",
    "services Service Namespaced",
];

/// The other groups, each with its kind.
const GROUPS: [(&str, &str); 5] = [
    ("apps", "deployments Deployment Namespaced"),
    ("batch", "jobs Job Namespaced"),
    (
        "rbac.authorization.k8s.io",
        "clusterroles ClusterRole Cluster",
    ),
    (
        "apiextensions.k8s.io",
        "customresourcedefinitions CustomResourceDefinition Cluster",
    ),
    ("example.com", "things Thing Namespaced"),
];

/// Returns the aggregated discovery document of `/api` or `/apis`.
pub(super) fn document(path: &str) -> Option<Value> {
    let items = match path {
        "/api" => vec![group("", &CORE.map(resource))],
        "/apis" => GROUPS
            .map(|(name, kind)| group(name, &[resource(kind)]))
            .to_vec(),
        _ => return None,
    };
    Some(json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items,
    }))
}

fn group(name: &str, resources: &[Value]) -> Value {
    json!({"metadata": {"name": name}, "versions": [
        {"version": "v1", "resources": resources, "freshness": "Current"}]})
}

fn resource(line: &str) -> Value {
    let mut words = line.split(' ');
    let mut word = || words.next().unwrap_or_default();
    let (plural, kind, scope) = (word(), word(), word());
    let subresources = if kind == "Deployment" {
        json!([{"subresource": "scale", "responseKind": {"kind": "Scale"}},
               {"subresource": "status", "responseKind": {"kind": kind}}])
    } else {
        json!([])
    };
    json!({"resource": plural, "responseKind": {"group": "", "version": "v1", "kind": kind},
        "scope": scope, "subresources": subresources,
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update",
                  "watch"]})
}

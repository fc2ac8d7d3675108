//! The discovery documents that a script serves.

use serde_json::{Value, json};

/// Returns the aggregated discovery document of `/api` or `/apis`.
pub(super) fn document(path: &str) -> Option<Value> {
    let items = match path {
        "/api" => vec![group(
            "",
            &[
                resource("configmaps", "ConfigMap", "Namespaced", false),
                resource("events", "Event", "Namespaced", false),
                resource("namespaces", "Namespace", "Cluster", false),
                resource("secrets", "Secret", "Namespaced", false),
                resource("services", "Service", "Namespaced", false),
            ],
        )],
        "/apis" => vec![
            group(
                "apps",
                &[resource("deployments", "Deployment", "Namespaced", true)],
            ),
            group("batch", &[resource("jobs", "Job", "Namespaced", false)]),
            group(
                "rbac.authorization.k8s.io",
                &[resource("clusterroles", "ClusterRole", "Cluster", false)],
            ),
            group(
                "apiextensions.k8s.io",
                &[resource(
                    "customresourcedefinitions",
                    "CustomResourceDefinition",
                    "Cluster",
                    false,
                )],
            ),
            group(
                "example.com",
                &[resource("things", "Thing", "Namespaced", false)],
            ),
        ],
        _ => return None,
    };
    Some(
        json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
                "items": items}),
    )
}

fn group(name: &str, resources: &[Value]) -> Value {
    json!({"metadata": {"name": name}, "versions": [
        {"version": "v1", "resources": resources, "freshness": "Current"}]})
}

fn resource(plural: &str, kind: &str, scope: &str, scale: bool) -> Value {
    let subresources = if scale {
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

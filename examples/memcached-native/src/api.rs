//! `native.example.com/v1`, kind `Memcached`.
#![allow(
    unreachable_pub,
    reason = "the derive macro repeats the types inside of a function"
)]

use hybrid_operator::native::Condition;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// A number of memcached Pods.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[kube(
    group = "native.example.com",
    version = "v1",
    kind = "Memcached",
    namespaced,
    status = "MemcachedStatus",
    validation = "self.metadata.name.size() <= 63",
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
pub struct MemcachedSpec {
    /// Number of Pods.
    #[schemars(range(min = 1, max = 1000))]
    pub size: i32,
}

/// What was last seen of a `Memcached`.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct MemcachedStatus {
    /// Names of the Pods, sorted.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// `Ready` is true when as many Pods are ready as the spec asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

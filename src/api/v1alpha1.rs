//! `cache.example.com/v1alpha1`.
#![allow(
    clippy::duplicated_attributes,
    reason = "two printer columns may have one type"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Keeps copies of a memcached beside it.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "cache.example.com",
    version = "v1alpha1",
    kind = "MemcachedBackup",
    namespaced,
    status = "MemcachedBackupStatus",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.readyNodes"
    ),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size"),
    printcolumn(
        name = "Ready nodes",
        type_ = "integer",
        json_path = ".status.readyNodes"
    ),
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
#[serde(rename_all = "camelCase")]
pub struct MemcachedBackupSpec {
    /// How many Pods hold a copy.
    #[schemars(range(min = 0))]
    pub size: i32,
    /// The Memcached of the same namespace that is copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memcached_ref: Option<MemcachedRef>,
}

/// Names a Memcached.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct MemcachedRef {
    /// Its name.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// What was last seen of a backup.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MemcachedBackupStatus {
    /// Names of the Pods, sorted.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// How many of them are ready.
    #[serde(default)]
    pub ready_nodes: i32,
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready` is true when as many Pods are ready as the spec asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

//! Custom resources of `cache.example.com/v1alpha1`.
#![allow(
    clippy::duplicated_attributes,
    reason = "printer columns may have the same type"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Memcached, which the chart `helm-charts/memcached` serves. Its fields are the chart's values, which
/// no controller in Rust reads.
#[derive(CustomResource, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[kube(
    group = "cache.example.com",
    version = "v1alpha1",
    kind = "Memcached",
    namespaced,
    schema = "disabled"
)]
pub struct MemcachedSpec {}

/// Maintains copies of a Memcached: Pods like those that its chart deployed, which know its address.
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
    /// Number of Pods that hold a copy.
    #[schemars(range(min = 0))]
    pub size: i32,
    /// The Memcached to copy, in the same namespace. Without it, the Pods have the settings of the
    /// controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memcached_ref: Option<MemcachedRef>,
}

/// A reference to a Memcached.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct MemcachedRef {
    /// Its name.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// The observed state of a backup.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MemcachedBackupStatus {
    /// Names of the Pods, sorted.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Number of ready Pods.
    #[serde(default)]
    pub ready_nodes: i32,
    /// The release that is copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<BackupSource>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready` is true when as many Pods are ready as the spec asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The release that a backup copies.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct BackupSource {
    /// Name of the release.
    pub release: String,
    /// Deployed revision.
    pub revision: u32,
    /// `host:port` of its Service.
    pub address: String,
}

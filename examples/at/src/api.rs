//! `example.com/v1`, kind `At`.
#![allow(
    clippy::duplicated_attributes,
    reason = "printer columns may have the same type"
)]
#![allow(
    unreachable_pub,
    reason = "the derive macro repeats the types inside of a function"
)]

use std::collections::BTreeMap;

use hybrid_operator::native::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A command that is run once, at a given time.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "At",
    plural = "ats",
    namespaced,
    status = "AtStatus",
    validation = "self.metadata.name.size() <= 63",
    printcolumn(name = "Schedule", type_ = "string", json_path = ".spec.schedule"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Exit code",
        type_ = "integer",
        json_path = ".status.exitCode",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self == oldSelf").message("the spec cannot be changed; create another At"))]
pub struct AtSpec {
    /// When the command runs, as RFC 3339, for example `2030-01-02T03:04:05Z`. A time in the past
    /// is now.
    #[schemars(length(min = 1, max = 64))]
    pub schedule: String,
    /// Command line for the shell of busybox.
    #[schemars(length(min = 1, max = 8192))]
    pub command: String,
    /// Annotations of the Pod that runs the command.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 100))]
    pub pod_annotations: BTreeMap<String, String>,
}

/// What was last seen of an `At`.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AtStatus {
    /// How far the command is.
    #[serde(default)]
    pub phase: Phase,
    /// Exit code of the command, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// `Valid` is false when the schedule is not a time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// How far a command is.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
pub enum Phase {
    /// Its time has not come, or its schedule is invalid.
    #[default]
    Pending,
    /// Its Pod was created.
    Running,
    /// It exited with 0.
    Done,
    /// It exited with another code, or its Pod failed.
    Failed,
}

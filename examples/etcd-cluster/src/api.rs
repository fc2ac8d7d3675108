//! `etcd.example.com/v1`, kind `EtcdCluster`.
#![allow(
    clippy::duplicated_attributes,
    reason = "printer columns may have the same type"
)]
#![allow(
    unreachable_pub,
    reason = "the derive macro repeats the types inside of a function"
)]

use hybrid_operator::native::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An etcd cluster whose members are Pods.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[kube(
    group = "etcd.example.com",
    version = "v1",
    kind = "EtcdCluster",
    namespaced,
    status = "EtcdClusterStatus",
    // The name is that of a Service, and the beginning of Pod names and of a second Service.
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]{0,48}[a-z0-9])?$')")
        .message("the name must start with a letter, have at most 50 characters, and consist of a-z, 0-9 and -: it becomes part of DNS names"),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.ready"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.currentVersion"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdClusterSpec {
    /// Number of members. It is odd, because one more than an odd number tolerates no more failures.
    #[serde(default = "default_size")]
    #[schemars(range(min = 1, max = 7))]
    #[x_kube(validation = Rule::new("self % 2 == 1").message("size must be odd (1, 3, 5 or 7): an even size tolerates no more failures than one member less"))]
    pub size: i32,
    /// Release of etcd, such as `3.6.8`; 3.5 is the oldest that is supported. It can be raised by one
    /// minor release at a time, and not be lowered to an older minor release.
    #[schemars(regex(pattern = r"^3\.([5-9]|[1-9][0-9])\.(0|[1-9][0-9]?)$"))]
    pub version: String,
    /// Repository of the image; its tag is `v` and the version. It cannot be changed: whether a member
    /// runs its new image is seen by the release that it reports.
    #[serde(default = "default_repository")]
    #[schemars(length(min = 1, max = 255))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("repository cannot be changed; create another EtcdCluster and restore a snapshot in it"))]
    pub repository: String,
}

fn default_size() -> i32 {
    3
}

fn default_repository() -> String {
    "quay.io/coreos/etcd".to_owned()
}

/// What was last seen of an `EtcdCluster`.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
// A write that is based on an outdated status must not make the operator forget this.
#[x_kube(validation = Rule::new("!oldSelf.bootstrapped || self.bootstrapped").message("bootstrapped cannot become false again"))]
pub struct EtcdClusterStatus {
    /// What the cluster is doing.
    #[serde(default)]
    pub phase: Phase,
    /// Number of voting members.
    #[serde(default)]
    pub size: i32,
    /// Number of voting members that are healthy.
    #[serde(default)]
    pub ready: i32,
    /// The members by name.
    #[serde(default)]
    pub members: MemberNames,
    /// The oldest release that a member runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_version: Option<String>,
    /// Whether the cluster has ever answered. From then on it is never created anew, because that
    /// would be an empty cluster in the place of one with data.
    #[serde(default)]
    pub bootstrapped: bool,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready` is true when all members are healthy and as the spec says; `VersionAccepted` is false
    /// when the members cannot be changed to the release of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What a cluster is doing.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// It has not had its full size yet.
    #[default]
    Creating,
    /// All members are healthy and as the spec says.
    Running,
    /// Members are being added or removed.
    Scaling,
    /// Members are being changed to another image, one at a time.
    Upgrading,
    /// A member was lost or does not answer.
    Degraded,
    /// The majority of the members is lost, and the data with it.
    Failed,
}

/// Names of members, which are those of their Pods, sorted.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberNames {
    /// Healthy voting members.
    #[serde(default)]
    pub ready: Vec<String>,
    /// All others: lost, starting, or not answering.
    #[serde(default)]
    pub unready: Vec<String>,
}

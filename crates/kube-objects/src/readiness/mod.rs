//! Computes the readiness of an object from the object alone.
//!
//! The rules are those of kstatus (sigs.k8s.io/cli-utils), which Helm 4 uses to wait. They use no
//! clock, no client and no other objects, so the readiness of an object changes only with the
//! object, and can be computed once per watch event and cached.

mod custom;
mod job;
mod projection;
mod storage;
mod workload;

use kube::core::GroupVersionKind;
use object_key::api_versions::is_built_in;
use serde::Deserialize;
use serde_json::Value;

pub(crate) use job::hook_outcome_of;
pub use job::{HookOutcome, hook_outcome};
pub use projection::{SpecView, StatusView, object as lenient_object};

/// Readiness of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Readiness {
    /// Fully rolled out or completed.
    Ready,
    /// A Job that has started and not ended: ready, unless its completion is waited for.
    Started,
    /// Not ready yet; contains what is missing.
    InProgress(String),
    /// Not expected to become ready; contains the reason.
    Failed(String),
    /// Being deleted.
    Terminating,
    /// Unknown, as of a Pod in a phase that does not exist.
    #[default]
    Unknown,
}

impl Readiness {
    /// Returns whether this is [`Readiness::Ready`] or [`Readiness::Started`].
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Ready | Self::Started)
    }

    /// Returns what is missing or has failed.
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::InProgress(message) | Self::Failed(message) => Some(message),
            Self::Ready | Self::Started | Self::Terminating | Self::Unknown => None,
        }
    }

    fn in_progress(message: impl Into<String>) -> Self {
        Self::InProgress(message.into())
    }

    fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }
}

/// Fields of an object that its readiness depends on.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct View {
    #[serde(deserialize_with = "lenient_object")]
    metadata: MetaView,
    #[serde(deserialize_with = "lenient_object")]
    spec: SpecView,
    #[serde(deserialize_with = "lenient_object")]
    status: StatusView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MetaView {
    generation: Option<i64>,
    deletion_timestamp: Option<String>,
}

impl View {
    /// Reads the fields from an object.
    pub fn of(object: &Value) -> Self {
        Self::deserialize(object).unwrap_or_default()
    }
}

/// Returns whether the readiness of a kind depends on its `status`, so that whole objects must be
/// watched. For other kinds metadata is enough: an existing object is ready.
pub fn depends_on_status(gvk: &GroupVersionKind) -> bool {
    match gvk.group.as_str() {
        "" => matches!(
            gvk.kind.as_str(),
            "Pod" | "PersistentVolumeClaim" | "Service"
        ),
        "apps" => gvk.kind != "ControllerRevision",
        "batch" => gvk.kind == "Job",
        "apiextensions.k8s.io" | "apiregistration.k8s.io" => true,
        group => !is_built_in(group),
    }
}

/// Returns the readiness of an object of this kind.
pub fn readiness(gvk: &GroupVersionKind, view: &View) -> Readiness {
    if view.metadata.deletion_timestamp.is_some() {
        return Readiness::Terminating;
    }
    if let Some(readiness) = custom::generic(gvk, view.metadata.generation, &view.status) {
        return readiness;
    }
    let (spec, status) = (&view.spec, &view.status);
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("apps" | "extensions", "Deployment") => workload::deployment(spec, status),
        ("apps", "StatefulSet") => workload::stateful_set(spec, status),
        ("apps" | "extensions", "DaemonSet") => {
            workload::daemon_set(view.metadata.generation, status)
        }
        ("apps" | "extensions", "ReplicaSet") => workload::replica_set(spec, status),
        ("", "Pod") => workload::pod(status),
        ("", "Service") => workload::service(spec),
        ("", "PersistentVolumeClaim") => storage::claim(status),
        ("batch", "Job") => job::job(spec, status),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => custom::crd(status),
        ("apiregistration.k8s.io", "APIService") => custom::api_service(status),
        ("", "Secret" | "ConfigMap") | ("batch", "CronJob") | ("policy", "PodDisruptionBudget") => {
            Readiness::Ready
        }
        _ => custom::resource(status),
    }
}

/// Returns the readiness of an object of this kind.
pub fn readiness_of(gvk: &GroupVersionKind, object: &Value) -> Readiness {
    readiness(gvk, &View::of(object))
}

#[cfg(test)]
fn assert_readiness(group: &str, kind: &str, object: &Value, expected: &Readiness) {
    let found = readiness_of(&GroupVersionKind::gvk(group, "v1", kind), object);
    assert_eq!(found, *expected, "{kind} {object}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn gvk(group: &str, kind: &str) -> GroupVersionKind {
        GroupVersionKind::gvk(group, "v1", kind)
    }

    #[test]
    fn object_with_deletion_timestamp_is_terminating() {
        let object = json!({"metadata": {"deletionTimestamp": "2025-01-01T00:00:00Z"}});
        assert_readiness("", "ConfigMap", &object, &Readiness::Terminating);
    }

    #[test]
    fn kinds_without_status_are_ready_when_they_exist() {
        for (group, kind) in [
            ("", "Secret"),
            ("", "ConfigMap"),
            ("", "ServiceAccount"),
            ("batch", "CronJob"),
            ("rbac.authorization.k8s.io", "Role"),
            ("networking.k8s.io", "Ingress"),
        ] {
            assert_readiness(group, kind, &json!({}), &Readiness::Ready);
            assert!(!depends_on_status(&gvk(group, kind)), "{kind}");
        }
    }

    #[test]
    fn kinds_whose_readiness_is_in_their_status_are_watched_in_full() {
        for (group, kind) in [
            ("apps", "Deployment"),
            ("", "Pod"),
            ("batch", "Job"),
            ("apiextensions.k8s.io", "CustomResourceDefinition"),
            ("cache.example.com", "Memcached"),
            ("gateway.networking.k8s.io", "Gateway"),
        ] {
            assert!(depends_on_status(&gvk(group, kind)), "{kind}");
        }
    }
}

//! Whether an object is ready, judged from its status alone.
//!
//! The rules are those of kstatus (sigs.k8s.io/cli-utils), which Helm 4 waits by. They are pure:
//! no clock, no client, no other objects. So the verdict of an object changes only when the
//! object does, and may be computed once per watch event and kept.

mod custom;
mod job;
mod projection;
mod storage;
mod workload;

use kube::core::GroupVersionKind;
use serde::Deserialize;
use serde_json::Value;

pub use job::{HookOutcome, hook_outcome, hook_outcome_of};
pub use projection::{SpecView, StatusView, object as lenient_object};

/// Whether an object is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Readiness {
    /// It does what it is for, or has completed.
    Ready,
    /// It is on its way; the text says what is missing.
    InProgress(String),
    /// It will not become ready by itself; the text says why.
    Failed(String),
    /// It is being deleted.
    Terminating,
    /// Nothing is known of it.
    #[default]
    Unknown,
}

impl Readiness {
    /// Whether it is [`Readiness::Ready`].
    pub fn is_ready(&self) -> bool {
        *self == Self::Ready
    }

    /// What is missing or wrong.
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::InProgress(message) | Self::Failed(message) => Some(message),
            Self::Ready | Self::Terminating | Self::Unknown => None,
        }
    }

    fn in_progress(message: impl Into<String>) -> Self {
        Self::InProgress(message.into())
    }

    fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }
}

/// The part of an object on which its readiness depends.
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
    /// Puts a view together from parts that a caller has decoded.
    pub fn new(
        generation: Option<i64>,
        deleting: bool,
        spec: SpecView,
        status: StatusView,
    ) -> Self {
        let deletion_timestamp = deleting.then(String::new);
        Self {
            metadata: MetaView {
                generation,
                deletion_timestamp,
            },
            spec,
            status,
        }
    }

    /// Reads the view of a whole object.
    pub fn of(object: &Value) -> Self {
        Self::deserialize(object).unwrap_or_default()
    }
}

/// Whether readiness of a kind depends on its `status`, so that a watch must bring it. Of other
/// kinds the metadata is enough: what exists is ready.
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

/// Judges an object.
pub fn readiness(gvk: &GroupVersionKind, view: &View) -> Readiness {
    if view.metadata.deletion_timestamp.is_some() {
        return Readiness::Terminating;
    }
    if let Some(verdict) = custom::generic(gvk, view.metadata.generation, &view.status) {
        return verdict;
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
        ("apiextensions.k8s.io", "CustomResourceDefinition") => custom::definition(status),
        ("apiregistration.k8s.io", "APIService") => custom::api_service(status),
        ("", "Secret" | "ConfigMap") | ("batch", "CronJob") | ("policy", "PodDisruptionBudget") => {
            Readiness::Ready
        }
        _ => custom::resource(status),
    }
}

/// Judges an object given as a whole.
pub fn readiness_of(gvk: &GroupVersionKind, object: &Value) -> Readiness {
    readiness(gvk, &View::of(object))
}

/// The worst of several verdicts: failed, then in progress or unknown, then ready.
pub fn combined<'a>(verdicts: impl IntoIterator<Item = &'a Readiness>) -> Readiness {
    let mut combined = Readiness::Ready;
    for verdict in verdicts {
        match (verdict, &combined) {
            (Readiness::Failed(_), _) => return verdict.clone(),
            (Readiness::Ready, _) | (_, Readiness::InProgress(_)) => {}
            (other, _) => combined = other.clone(),
        }
    }
    combined
}

/// Whether a group belongs to Kubernetes itself; custom resources use other names.
fn is_built_in(group: &str) -> bool {
    !group.contains('.') || (group.ends_with(".k8s.io") && !BORROWED.contains(&group))
}

/// Groups below `k8s.io` whose kinds are custom resources with conditions of their own.
const BORROWED: &[&str] = &[
    "gateway.networking.k8s.io",
    "snapshot.storage.k8s.io",
    "metrics.k8s.io",
    "policy.networking.k8s.io",
    "x-k8s.io",
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn gvk(group: &str, kind: &str) -> GroupVersionKind {
        GroupVersionKind::gvk(group, "v1", kind)
    }

    #[test]
    fn an_object_that_is_being_deleted_is_terminating() {
        let object = json!({"metadata": {"deletionTimestamp": "2025-01-01T00:00:00Z"}});
        assert_eq!(
            readiness_of(&gvk("", "ConfigMap"), &object),
            Readiness::Terminating
        );
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
            assert_eq!(
                readiness_of(&gvk(group, kind), &json!({})),
                Readiness::Ready,
                "{kind}"
            );
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

    #[test]
    fn the_worst_verdict_counts() {
        let ready = Readiness::Ready;
        let waiting = Readiness::in_progress("a");
        let failed = Readiness::failed("b");
        assert_eq!(combined([&ready, &ready]), ready);
        assert_eq!(combined([]), ready);
        assert_eq!(combined([&ready, &waiting, &ready]), waiting);
        assert_eq!(combined([&waiting, &failed]), failed);
        assert_eq!(combined([&Readiness::Unknown, &ready]), Readiness::Unknown);
    }
}

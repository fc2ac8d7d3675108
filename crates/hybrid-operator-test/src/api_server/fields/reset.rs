//! Fields that a write does not change: the status in a write of an object, and all but the status in a write of its
//! status. They are not owned by the writer. From `GetResetFields` of kube-apiserver's strategies.

use serde_json::{Value, json};

use super::managed::metadata;
use super::set::FieldSet;
use crate::api_server::object::at;

type Paths = &'static [&'static [&'static str]];

/// Fields of a kind that writes reset to their stored values.
#[derive(Debug, Clone, Default)]
pub(super) struct Reset {
    main: Paths,
    status: Option<Paths>,
    /// The fields that a write of a further subresource resets.
    other: Option<(&'static str, Paths)>,
    /// Whether a write of the status changes nothing else at all, as with definitions.
    only_status: bool,
}

const STATUS: Paths = &[&["status"]];

/// Kinds of which a write of the status resets the specification alone.
const WITH_SPEC: &str = "CronJob CustomResourceDefinition DaemonSet HorizontalPodAutoscaler Ingress \
    Job Namespace Node PersistentVolume PersistentVolumeClaim PodDisruptionBudget ReplicaSet \
    ReplicationController ResourceQuota Service StatefulSet";

impl Reset {
    /// Returns those of custom resources.
    pub(super) fn of_definition(has_status: bool) -> Self {
        if !has_status {
            return Self::default();
        }
        Self {
            main: STATUS,
            status: Some(&[&["metadata"], &["spec"]]),
            other: None,
            only_status: true,
        }
    }

    /// Returns those of a built-in kind.
    pub(super) fn of_builtin(kind: &str) -> Self {
        let status: Paths = match kind {
            "Pod" => &[
                &["spec"],
                &["metadata", "deletionTimestamp"],
                &["metadata", "ownerReferences"],
            ],
            "Deployment" => &[&["spec"], &["metadata", "labels"]],
            "APIService" => &[&["spec"], &["metadata"]],
            "Scale" => {
                return Self {
                    other: Some(("scale", &[])),
                    ..Self::default()
                };
            }
            _ if WITH_SPEC.split(' ').any(|known| known == kind) => &[&["spec"]],
            _ => return Self::default(),
        };
        Self {
            main: STATUS,
            status: Some(status),
            other: (kind == "Namespace").then_some(("finalize", STATUS)),
            only_status: false,
        }
    }

    /// Returns the fields that a write resets, or `None` if there is no such subresource.
    pub(super) fn fields(&self, subresource: Option<&str>) -> Option<FieldSet> {
        self.paths(subresource).map(FieldSet::of)
    }

    fn paths(&self, subresource: Option<&str>) -> Option<Paths> {
        match (subresource, self.other) {
            (None, _) => Some(self.main),
            (Some("status"), _) => self.status,
            (Some(name), Some((other, paths))) if name == other => Some(paths),
            _ => None,
        }
    }

    /// Gives the fields that a write resets their stored values.
    pub(super) fn restore(&self, live: Option<&Value>, new: &mut Value, subresource: Option<&str>) {
        match (subresource, live) {
            (Some("status"), Some(live)) if self.only_status => {
                let written = std::mem::replace(new, live.clone());
                set(new, &["status"], written.get("status"));
                let entries = metadata(&written, "managedFields");
                set(new, &["metadata", "managedFields"], entries);
            }
            _ => restore_all(live, new, self.paths(subresource).unwrap_or_default()),
        }
    }
}

fn restore_all(live: Option<&Value>, new: &mut Value, paths: Paths) {
    for path in paths {
        let stored = live.and_then(|live| at(live, path));
        if *path == ["metadata"] {
            let entries = metadata(new, "managedFields").cloned();
            set(new, path, stored);
            set(new, &["metadata", "managedFields"], entries.as_ref());
        } else {
            set(new, path, stored);
        }
    }
}

/// Sets a field, or removes it.
fn set(object: &mut Value, path: &[&str], value: Option<&Value>) {
    let Some((name, parents)) = path.split_last() else {
        return;
    };
    let mut parent = object;
    for name in parents {
        if parent.get(name).is_none() && value.is_none() {
            return;
        }
        let Some(fields) = parent.as_object_mut() else {
            return;
        };
        parent = fields.entry(*name).or_insert_with(|| json!({}));
    }
    if let Some(fields) = parent.as_object_mut() {
        match value {
            Some(value) => fields.insert((*name).to_owned(), value.clone()),
            None => fields.remove(*name),
        };
    }
}

//! What people see of the custom resources of charts, from the caches of their controllers. Nothing here is computed
//! unless somebody looks.
//!
//! | module | shows | sends requests |
//! |---|---|---|
//! | `row` | a custom resource in a list | no |
//! | `details` | one custom resource, its objects and its history | no |
//! | `recent` | the events that this process has published | no |
//! | `revision` | manifests and their differences | reads records |

mod details;
pub(super) mod recent;
mod revision;
mod row;

use std::sync::Arc;

use helm_release::engine::Memories;
use helm_release::release::{RecordMeta, RecordStore, ReleaseIndex};
use host::HashMap;
use kube::core::GroupVersionKind;
use kube_objects::CrIdentity;
use operator_runtime::controller::{Key, QueueHandle};
use parking_lot::RwLock;
use serde::Serialize;

use super::memory::Memory;
use super::reload::rollout::{Rollout, ShownRollout};
use super::source::Source;
pub(crate) use details::Details;
pub(crate) use recent::RecentEvents;
pub(crate) use revision::RevisionError;
use row::Resource;
pub(crate) use row::Row;

/// The views of all controllers that run in the process. Cheap to clone; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Views(Arc<RwLock<HashMap<u64, Arc<View>>>>);

/// Knowledge about the custom resources of one controller.
pub(crate) struct View {
    pub(super) gvk: GroupVersionKind,
    pub(super) source: Source,
    pub(super) records: ReleaseIndex,
    pub(super) store: RecordStore,
    pub(super) memories: Memories<Memory>,
    pub(super) queue: QueueHandle,
    pub(super) rollout: Arc<Rollout>,
}

/// Shows a view until it is dropped.
#[must_use]
pub(super) struct Shown(Views, u64);

impl Drop for Shown {
    fn drop(&mut self) {
        self.0.0.write().remove(&self.1);
    }
}

/// A kind of custom resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ShownKind {
    pub(crate) group: String,
    version: String,
    pub(crate) kind: String,
    /// The roll-out of a changed chart or changed options, while there is one.
    rollout: Option<ShownRollout>,
}

impl Views {
    pub(super) fn show(&self, view: View) -> Shown {
        let mut views = self.0.write();
        let number = views.keys().max().map_or(0, |last| last + 1);
        views.insert(number, Arc::new(view));
        Shown(self.clone(), number)
    }

    /// Returns the views of all controllers, each with a number of its own.
    pub(crate) fn all(&self) -> Vec<(u64, Arc<View>)> {
        let views = self.0.read();
        let mut all: Vec<_> = views
            .iter()
            .map(|(number, view)| (*number, Arc::clone(view)))
            .collect();
        all.sort_by_key(|(number, _)| *number);
        all
    }

    /// Returns the view of a custom resource.
    pub(crate) fn of(&self, group: &str, kind: &str, key: &Key) -> Option<Arc<View>> {
        let views = self.0.read();
        let mut views = views.values();
        let found = views.find(|view| {
            view.gvk.kind == kind && view.gvk.group == group && view.source.contains(key)
        });
        found.cloned()
    }
}

impl View {
    pub(crate) fn kind(&self) -> ShownKind {
        let GroupVersionKind {
            group,
            version,
            kind,
        } = self.gvk.clone();
        let rollout = self.rollout.shown();
        let rolls_out = rollout.waiting > 0 || !rollout.started.is_empty();
        ShownKind {
            group,
            version,
            kind,
            rollout: rolls_out.then_some(rollout),
        }
    }

    /// Returns the custom resources as JSON. What has not changed is the same allocation as before.
    pub(crate) fn stored(&self) -> Vec<(Key, Arc<[u8]>)> {
        self.source.stored()
    }

    /// Returns the row of a custom resource.
    pub(crate) fn row(&self, key: &Key, json: &[u8]) -> Row {
        let written = self.history(key).last().and_then(RecordMeta::written_at);
        Resource::read(json).row(key.namespace.as_deref(), &key.name, written)
    }

    /// Returns the records of the release of a custom resource, oldest first.
    fn history(&self, key: &Key) -> Vec<RecordMeta> {
        let GroupVersionKind { group, kind, .. } = &self.gvk;
        let namespace = key.namespace.as_deref();
        let mut records = self
            .records
            .records_of(&CrIdentity::of(group, kind, namespace, &key.name));
        // Whoever may write Secrets in another namespace has no say.
        records.retain(|meta| namespace.is_none_or(|namespace| meta.namespace == namespace));
        records.sort_by_key(|meta| meta.revision);
        records
    }
}

//! Views of custom resources for people, from the caches of their controllers. Nothing here is computed unless somebody
//! looks.
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
use operator_runtime::native::{ShowControllers, ShownController, ShownObject, ShownObjects};
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
    pub(super) queue: QueueHandle,
    pub(super) controlled: Controlled,
}

/// The custom resources of a controller.
pub(super) enum Controlled {
    Charts(Releases),
    Native(Arc<dyn ShownObjects>),
}

/// Custom resources with their releases.
pub(super) struct Releases {
    pub(super) source: Source,
    pub(super) records: ReleaseIndex,
    pub(super) store: RecordStore,
    pub(super) memories: Memories<Memory>,
    pub(super) rollout: Arc<Rollout>,
}

/// A custom resource as it is cached.
#[derive(Clone)]
pub(crate) enum Stored {
    Json(Arc<[u8]>),
    Native(Arc<dyn ShownObject>),
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
    /// Whether its controller is native: its custom resources have no releases.
    native: bool,
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

    /// Returns the setting with which native controllers are shown.
    pub(crate) fn for_native(&self) -> ShowControllers {
        let views = self.clone();
        ShowControllers::new(move |controller: ShownController| {
            views.show(View {
                gvk: controller.kind,
                queue: controller.queue,
                controlled: Controlled::Native(controller.objects),
            })
        })
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
            view.gvk.kind == kind && view.gvk.group == group && view.get(key).is_some()
        });
        found.cloned()
    }
}

impl Stored {
    /// Returns whether it has not changed.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Json(one), Self::Json(other)) => Arc::ptr_eq(one, other),
            (Self::Native(one), Self::Native(other)) => {
                std::ptr::addr_eq(&raw const **one, &raw const **other)
            }
            _ => false,
        }
    }

    fn read(&self) -> Resource {
        match self {
            Self::Json(json) => Resource::read(json),
            Self::Native(object) => Resource::read(&object.json()),
        }
    }
}

impl View {
    /// Returns what is known about releases; `None` for a native controller.
    fn releases(&self) -> Option<&Releases> {
        match &self.controlled {
            Controlled::Charts(releases) => Some(releases),
            Controlled::Native(_) => None,
        }
    }

    pub(crate) fn kind(&self) -> ShownKind {
        let GroupVersionKind {
            group,
            version,
            kind,
        } = self.gvk.clone();
        let releases = self.releases();
        let rollout = releases.map(|releases| releases.rollout.shown());
        let rolls_out = |one: &ShownRollout| one.waiting > 0 || !one.started.is_empty();
        ShownKind {
            group,
            version,
            kind,
            native: releases.is_none(),
            rollout: rollout.filter(rolls_out),
        }
    }

    /// Returns all custom resources.
    pub(crate) fn stored(&self) -> Vec<(Key, Stored)> {
        match &self.controlled {
            Controlled::Charts(releases) => {
                let stored = releases.source.stored().into_iter();
                stored
                    .map(|(key, json)| (key, Stored::Json(json)))
                    .collect()
            }
            Controlled::Native(objects) => {
                let objects = objects.all().into_iter();
                objects
                    .map(|(key, object)| (key, Stored::Native(object)))
                    .collect()
            }
        }
    }

    fn get(&self, key: &Key) -> Option<Stored> {
        Some(match &self.controlled {
            Controlled::Charts(releases) => Stored::Json(releases.source.json(key)?),
            Controlled::Native(objects) => Stored::Native(objects.get(key)?),
        })
    }

    /// Returns the row of a custom resource.
    pub(crate) fn row(&self, key: &Key, stored: &Stored) -> Row {
        let written = self.history(key).last().and_then(RecordMeta::written_at);
        stored
            .read()
            .row(key.namespace.as_deref(), &key.name, written)
    }

    /// Returns the records of the release of a custom resource, oldest first.
    fn history(&self, key: &Key) -> Vec<RecordMeta> {
        let Some(releases) = self.releases() else {
            return Vec::new();
        };
        let GroupVersionKind { group, kind, .. } = &self.gvk;
        let namespace = key.namespace.as_deref();
        let mut records = releases
            .records
            .records_of(&CrIdentity::of(group, kind, namespace, &key.name));
        // Whoever may write Secrets in another namespace has no say.
        records.retain(|meta| namespace.is_none_or(|namespace| meta.namespace == namespace));
        records.sort_by_key(|meta| meta.revision);
        records
    }
}

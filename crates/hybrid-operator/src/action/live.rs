//! The objects of a release as this process last applied them, and how they are now.

use std::collections::BTreeMap;
use std::sync::Arc;

use helm_core::manifest::ObjectKey;
use kube::core::GroupVersionKind;

use super::hooks::HookMemory;
use crate::cluster::apply::Applied;
use crate::cluster::ownership::{operator_selector, placed};
use crate::cluster::{ApiKind, Cluster, DiscoveryError, OperatorId, Scope};
use crate::controller::{Registry, Seen, WatchGuard, WatchKey, WatchState};
use crate::readiness::{Readiness, depends_on_status};

/// One object.
#[derive(Clone)]
pub struct LiveObject {
    /// Its uid.
    pub uid: String,
    /// Hash of what is ours on it, as applied.
    pub ours: u64,
    /// Its resource version after the apply.
    pub version: u64,
    /// Hash of what was applied; `None` for what was recognised after a restart.
    content: Option<u64>,
    guard: WatchGuard,
}

/// The objects of one release.
#[derive(Clone, Default)]
pub struct Live {
    /// The revision whose objects these are.
    pub revision: Option<u32>,
    /// Whether every object of the revision has been applied.
    pub complete: bool,
    objects: BTreeMap<ObjectKey, LiveObject>,
    pub(super) hooks: HookMemory,
}

/// How an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectState {
    /// As it was applied, and this ready.
    Same(Readiness),
    /// The watch has not caught up with our apply, or cannot be had.
    Unknown,
    /// Somebody changed what is ours.
    Changed,
    /// It is gone.
    Missing,
}

impl LiveObject {
    fn state(&self, key: &ObjectKey) -> ObjectState {
        if self.guard.state() != WatchState::Synced {
            return ObjectState::Unknown;
        }
        match self.guard.get(key.namespace.as_deref(), &key.name) {
            Some(seen) if seen.version < self.version => ObjectState::Unknown,
            Some(seen) if *seen.uid != *self.uid || seen.ours != self.ours => ObjectState::Changed,
            Some(seen) => ObjectState::Same(seen.readiness),
            None if self.guard.version() < self.version => ObjectState::Unknown,
            None => ObjectState::Missing,
        }
    }
}

impl Live {
    /// Remembers an object that was applied.
    pub fn applied(&mut self, applied: &Applied, content: u64, guard: WatchGuard) {
        let object = LiveObject {
            uid: applied.uid.clone(),
            ours: applied.ours,
            version: applied.resource_version.parse().unwrap_or(0),
            content: Some(content),
            guard,
        };
        self.objects.insert(applied.key.clone(), object);
    }

    /// Takes an object over from what a watch shows of it.
    pub fn adopt(&mut self, key: ObjectKey, seen: &Seen, guard: WatchGuard) {
        let object = LiveObject {
            uid: seen.uid.to_string(),
            ours: seen.ours,
            version: seen.version,
            content: None,
            guard,
        };
        self.objects.insert(key, object);
    }

    /// Forgets an object.
    pub fn forget(&mut self, key: &ObjectKey) {
        self.objects.remove(key);
    }

    /// The uid of an object.
    pub fn uid(&self, key: &ObjectKey) -> Option<&str> {
        self.objects.get(key).map(|object| object.uid.as_str())
    }

    /// Whether an object is known to be as it was applied.
    pub fn is_clean(&self, key: &ObjectKey) -> bool {
        self.objects
            .get(key)
            .is_some_and(|object| matches!(object.state(key), ObjectState::Same(_)))
    }

    /// Hash of what was applied of an object, where this process knows it.
    pub fn content(&self, key: &ObjectKey) -> Option<u64> {
        self.objects.get(key)?.content
    }

    /// Every object and how it is.
    pub fn states(&self) -> impl Iterator<Item = (&ObjectKey, ObjectState)> {
        self.objects
            .iter()
            .map(|(key, object)| (key, object.state(key)))
    }

    /// Objects that somebody changed or removed.
    pub fn drifted(&self) -> Vec<ObjectKey> {
        self.states()
            .filter(|(_, state)| matches!(state, ObjectState::Changed | ObjectState::Missing))
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Objects that are gone.
    pub fn missing(&self) -> Vec<ObjectKey> {
        self.states()
            .filter(|(_, state)| *state == ObjectState::Missing)
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// What is not ready yet; empty when everything is. Jobs count only when asked for.
    pub fn unready(&self, jobs: bool) -> Vec<String> {
        self.states()
            .filter(|(key, _)| jobs || key.kind != "Job" || key.group != "batch")
            .filter_map(|(key, state)| match state {
                ObjectState::Same(readiness) if readiness.is_ready() => None,
                ObjectState::Same(readiness) => Some(format!(
                    "{key}: {}",
                    readiness.message().unwrap_or("not ready")
                )),
                // What has no status is ready as soon as it is there.
                ObjectState::Unknown if !depends_on_status(&gvk_of(key)) => None,
                ObjectState::Unknown => Some(format!("{key}: not seen yet")),
                ObjectState::Changed => Some(format!("{key}: changed by somebody else")),
                ObjectState::Missing => Some(format!("{key}: missing")),
            })
            .collect()
    }

    /// The hash over all objects that the status keeps.
    pub fn aggregate(&self) -> String {
        crate::cluster::drift::aggregate(self.objects.iter().map(|(key, o)| (key, o.ours)))
            .to_string()
    }

    /// Keys of all objects.
    pub fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.objects.keys()
    }
}

fn gvk_of(key: &ObjectKey) -> GroupVersionKind {
    GroupVersionKind::gvk(&key.group, &key.version, &key.kind)
}

/// Where an object of a manifest is, and the watch that shows it.
pub(crate) struct Place {
    pub(crate) key: ObjectKey,
    pub(crate) kind: Arc<ApiKind>,
    pub(crate) guard: WatchGuard,
}

/// Finds where an object is.
pub(crate) async fn place(
    cluster: &Cluster,
    registry: &Registry,
    operator: &OperatorId,
    namespaces: &[String],
    key: &ObjectKey,
    release_namespace: &str,
) -> Result<Place, DiscoveryError> {
    let gvk = gvk_of(key);
    let kind = cluster.resolve(&gvk).await?;
    let key = placed(key, kind.scope, release_namespace);
    // With a list of namespaces the operator may read there alone.
    let namespace = match (&key.namespace, kind.scope) {
        (Some(namespace), Scope::Namespaced) if !namespaces.is_empty() => Some(namespace.clone()),
        _ => None,
    };
    let watch = WatchKey {
        resource: kind.resource.clone(),
        namespace,
        selector: operator_selector(operator),
    };
    Ok(Place {
        key,
        kind,
        guard: registry.acquire(watch),
    })
}

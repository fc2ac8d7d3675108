//! Watches and caches the custom resources of a controller.
//!
//! A controller is triggered only by a new generation, changed labels, annotations or finalizers,
//! the deletion, or another object of the same name. Its own status writes do not trigger it.

use host::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::unassigned::report_unassigned;
use host::watch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use kube_objects::shards::{By, Shards, Share};
use kube_objects::watch::follow::{Follower, Lists, WatchState, WatchTarget, follow, whole};
use kube_objects::{ApiKind, Cluster, CrIdentity, Scope};
use operator_runtime::controller::{Key, Priority, QueueHandle};
use operator_runtime::manager::ControllerContext;
use operator_runtime::telemetry::resources::{OutputLabels, ResourceLabels};
use parking_lot::RwLock;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::warn;

use super::outputs::Numbers;
use super::resources::FIELD_MANAGER;
use crate::watches::OWN_FIELDS;

/// The cached custom resources of one kind.
#[derive(Clone)]
pub(crate) struct Source(Arc<SourceInner>);

/// A source that may have been dropped.
pub(crate) struct WeakSource(Weak<SourceInner>);

impl WeakSource {
    pub(crate) fn upgrade(&self) -> Option<Source> {
        self.0.upgrade().map(Source)
    }
}

struct SourceInner {
    resource: ApiResource,
    objects: RwLock<Objects>,
    /// Number of scopes that have been listed.
    synced: watch::Sender<usize>,
    scopes: usize,
}

/// The cached objects, found by key and by identity.
#[derive(Default)]
struct Objects {
    known: HashMap<Key, CachedObject>,
    identities: HashMap<CrIdentity, Key>,
    /// Whether decoded objects are kept.
    decoded: bool,
}

struct CachedObject {
    stored: Stored,
    /// Numbers among the outputs of its release, as this process has evaluated them.
    numbers: Numbers,
    /// State that the watch has reported; `None` if that is uncertain.
    reported: Option<TriggerState>,
}

/// A custom resource as JSON, without managed fields, and what is asked of it outside of a pass. A decoded one takes
/// five times as much memory.
#[derive(Clone)]
struct Stored {
    json: Arc<[u8]>,
    /// The decoded custom resource, if these are kept and somebody has asked for it.
    object: Option<Arc<DynamicObject>>,
    uid: Box<str>,
    version: Box<str>,
    /// Seconds since 1970.
    created: Option<i64>,
    deleting: bool,
    edition: u64,
    /// Fields of the status that the operator has written for an entry.
    outputs: Box<[String]>,
}

/// The parts of a custom resource whose change triggers the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TriggerState {
    /// Hash of the uid.
    object: u64,
    generation: Option<i64>,
    fingerprint: u64,
}

impl Source {
    /// Starts watching a kind until the context is stopped: in its namespaces if it is namespaced, and the share of this
    /// process. Changed keys are added to `queue`. If the kind comes back with another scope, its
    /// objects are watched in that one.
    pub(crate) fn start(
        context: &ControllerContext,
        kind: &ApiKind,
        selector: Option<&str>,
        queue: &QueueHandle,
    ) -> Self {
        let (namespaces, stop) = (&context.namespaces, &context.stop);
        let scopes = scopes_of(kind.scope, namespaces);
        let selector = match &context.ring {
            Some(ring) => {
                let target = |scope: &Option<String>| {
                    WatchTarget::new(kind.resource.clone(), scope.as_deref())
                };
                let targets = scopes.iter().map(target);
                let (cluster, metrics) = (context.connection.cluster.clone(), &context.metrics);
                let unassigned = ring.follow_unassigned(cluster.client(), targets, metrics, stop);
                let report = report_unassigned(cluster, kind.clone(), ring.clone(), unassigned);
                let stop = stop.clone();
                tokio::spawn(async move { stop.run_until_cancelled(report).await });
                Some(ring.selector(selector))
            }
            None => selector.map(ToOwned::to_owned),
        };
        let source = Self(Arc::new(SourceInner {
            resource: kind.resource.clone(),
            objects: RwLock::default(),
            synced: watch::Sender::new(0),
            scopes: scopes.len(),
        }));
        let cached = source.downgrade();
        let created = move || cached.upgrade().map(|source| source.0.created());
        queue.resource_ages().watch(created);
        let cached = source.downgrade();
        let numbers = move || cached.upgrade().map(|source| source.0.numbers());
        queue.resource_outputs().watch(numbers);
        let watches = SourceWatches {
            inner: Arc::clone(&source.0),
            cluster: context.connection.cluster.clone(),
            shards: context.shards.clone(),
            selector,
            queue: queue.clone(),
            missing: watch::Sender::new(false),
        };
        let running = watches.open(scopes, stop);
        let (scope, namespaces) = (kind.scope, namespaces.clone());
        let (stop, stopped) = (stop.clone(), stop.clone());
        let follow = async move {
            watches
                .follow_scope(scope, &namespaces, running, &stop)
                .await;
        };
        tokio::spawn(async move { stopped.run_until_cancelled(follow).await });
        source
    }

    pub(crate) fn downgrade(&self) -> WeakSource {
        WeakSource(Arc::downgrade(&self.0))
    }

    /// Returns a custom resource, decoded.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<DynamicObject>> {
        let (json, decoded) = {
            let objects = self.0.objects.read();
            let stored = &objects.known.get(key)?.stored;
            if let Some(object) = &stored.object {
                return Some(Arc::clone(object));
            }
            (Arc::clone(&stored.json), objects.decoded)
        };
        let object = match serde_json::from_slice(&json) {
            Ok(object) => Arc::new(object),
            Err(error) => {
                tracing::error!(%error, object = %key, "cannot decode a cached custom resource");
                return None;
            }
        };
        if decoded {
            let mut objects = self.0.objects.write();
            if let Some(entry) = objects.known.get_mut(key)
                && Arc::ptr_eq(&entry.stored.json, &json)
            {
                entry.stored.object = Some(Arc::clone(&object));
            }
        }
        Some(object)
    }

    /// Keeps decoded objects from now on, for those who look at all of them with each event.
    pub(crate) fn keep_decoded(&self) {
        self.0.objects.write().decoded = true;
    }

    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.0.objects.read().known.contains_key(key)
    }

    /// Returns the version of the custom resource with this uid.
    pub(crate) fn version(&self, key: &Key, uid: &str) -> Option<String> {
        let objects = self.0.objects.read();
        let stored = &objects.known.get(key)?.stored;
        (*stored.uid == *uid).then(|| stored.version.to_string())
    }

    /// Returns the fields of the status that the operator has written for an entry, now or formerly.
    pub(crate) fn outputs(&self, key: &Key, uid: &str) -> Vec<String> {
        let objects = self.0.objects.read();
        let known = objects.known.get(key).map(|entry| &entry.stored);
        let known = known.filter(|stored| *stored.uid == *uid);
        known.map_or_else(Vec::new, |stored| stored.outputs.to_vec())
    }

    /// Sets the numbers among the outputs of the custom resource with this uid.
    pub(crate) fn set_numbers(&self, key: &Key, uid: &str, numbers: Numbers) {
        let mut objects = self.0.objects.write();
        if let Some(entry) = objects.known.get_mut(key)
            && *entry.stored.uid == *uid
        {
            entry.numbers = numbers;
        }
    }

    pub(crate) fn has_version(&self, key: &Key, version: &str) -> bool {
        let objects = self.0.objects.read();
        (objects.known.get(key)).is_some_and(|entry| *entry.stored.version == *version)
    }

    /// Returns whether a custom resource exists and is not being deleted.
    pub(crate) fn is_wanted(&self, key: &Key) -> bool {
        let objects = self.0.objects.read();
        (objects.known.get(key)).is_some_and(|entry| !entry.stored.deleting)
    }

    /// Returns the key of the custom resource with this identity, in constant time.
    pub(crate) fn key_of(&self, identity: &CrIdentity) -> Option<Key> {
        self.0.objects.read().identities.get(identity).cloned()
    }

    /// Stores an object that a request returned, so that the next reconcile sees it at once. An
    /// object that is older than the cached one is ignored. If it contains changes of others, which
    /// the reconcile in progress has not seen, the watch still triggers the controller.
    pub(crate) fn put(&self, object: DynamicObject) {
        let key = Key::of(&object);
        let mut objects = self.0.objects.write();
        if let Some(entry) = objects.known.get_mut(&key)
            && object.uid().as_deref() == Some(&*entry.stored.uid)
            && !is_older(&object, &entry.stored)
        {
            entry.stored = Stored::of(object);
        }
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        self.0.objects.read().known.keys().cloned().collect()
    }

    /// Returns the custom resources as JSON. What has not changed is the same allocation as before.
    pub(crate) fn stored(&self) -> Vec<(Key, Arc<[u8]>)> {
        let objects = self.0.objects.read();
        let known = objects.known.iter();
        known
            .map(|(key, entry)| (key.clone(), Arc::clone(&entry.stored.json)))
            .collect()
    }

    /// Returns a custom resource as JSON.
    pub(crate) fn json(&self, key: &Key) -> Option<Arc<[u8]>> {
        let objects = self.0.objects.read();
        Some(Arc::clone(&objects.known.get(key)?.stored.json))
    }

    /// Returns the [`edition`] of each custom resource.
    pub(crate) fn editions(&self) -> Vec<(Key, u64)> {
        let objects = self.0.objects.read();
        let known = objects.known.iter();
        known
            .map(|(key, entry)| (key.clone(), entry.stored.edition))
            .collect()
    }

    /// Waits until all custom resources have been listed.
    pub(crate) async fn synced(&self) {
        let scopes = self.0.scopes;
        let mut synced = self.0.synced.subscribe();
        // The sender lives as long as `self`.
        let _ = synced.wait_for(|done| *done >= scopes).await;
    }

    pub(crate) fn resource(&self) -> &ApiResource {
        &self.0.resource
    }
}

impl SourceInner {
    /// Returns the numbers among the outputs of all releases.
    fn numbers(&self) -> Vec<(OutputLabels, f64)> {
        let objects = self.objects.read();
        let mut numbers = Vec::new();
        for (key, entry) in &objects.known {
            numbers.extend(entry.numbers.iter().map(|(output, number)| {
                let labels = OutputLabels {
                    output: output.clone(),
                    resource: self.labels(key),
                };
                (labels, *number)
            }));
        }
        numbers
    }

    /// Returns when each custom resource was created, in seconds since 1970.
    fn created(&self) -> Vec<(ResourceLabels, i64)> {
        let objects = self.objects.read();
        let created = objects
            .known
            .iter()
            .filter_map(|(key, entry)| Some((self.labels(key), entry.stored.created?)));
        created.collect()
    }

    fn labels(&self, key: &Key) -> ResourceLabels {
        let ApiResource {
            group,
            version,
            kind,
            ..
        } = &self.resource;
        ResourceLabels {
            group: group.clone(),
            kind: kind.clone(),
            name: key.name.to_string(),
            namespace: key.namespace.as_deref().unwrap_or_default().to_owned(),
            version: version.clone(),
        }
    }

    /// Stores an object that the watch shows, unless a request has returned a newer state of it, and returns
    /// what has changed.
    fn store(&self, object: DynamicObject) -> Change {
        let key = Key::of(&object);
        let reported = TriggerState::of(&object);
        let mut objects = self.objects.write();
        let known = objects.known.get(&key).map(|entry| &entry.stored);
        let newer = known.filter(|known| is_older(&object, known)).cloned();
        let mut entry = CachedObject {
            stored: newer.unwrap_or_else(|| Stored::of(object)),
            numbers: Numbers::default(),
            reported: Some(reported),
        };
        let before = if let Some(known) = objects.known.get_mut(&key) {
            if known.stored.uid == entry.stored.uid {
                entry.numbers = std::mem::take(&mut known.numbers);
            }
            std::mem::replace(known, entry).reported
        } else {
            objects.known.insert(key.clone(), entry);
            objects.identities.insert(self.identity(&key), key);
            None
        };
        match before {
            Some(before) if before == reported => Change::None,
            Some(before)
                if before.object == reported.object && before.generation == reported.generation =>
            {
                Change::Metadata
            }
            _ => Change::Generation,
        }
    }

    fn remove(&self, key: &Key) {
        let mut objects = self.objects.write();
        objects.known.remove(key);
        objects.identities.remove(&self.identity(key));
    }

    /// Removes all objects, and queues their keys.
    fn clear(&self, queue: &QueueHandle) {
        let known = {
            let mut objects = self.objects.write();
            objects.identities.clear();
            std::mem::take(&mut objects.known)
        };
        for key in known.into_keys() {
            queue.reset_backoff(&key);
            queue.add(key, Priority::Event);
        }
    }

    fn identity(&self, key: &Key) -> CrIdentity {
        let ApiResource { group, kind, .. } = &self.resource;
        CrIdentity::of(group, kind, key.namespace.as_deref(), &key.name)
    }
}

impl Stored {
    fn of(mut object: DynamicObject) -> Self {
        let outputs = outputs_of(&object.metadata);
        object.metadata.managed_fields = None;
        let meta = &object.metadata;
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
        Self {
            // Its keys are texts.
            json: serde_json::to_vec(&object).unwrap_or_default().into(),
            object: None,
            uid: text(&meta.uid),
            version: text(&meta.resource_version),
            created: (meta.creation_timestamp.as_ref()).map(|created| created.0.as_second()),
            deleting: meta.deletion_timestamp.is_some(),
            edition: edition(meta),
            outputs,
        }
    }
}

/// Returns the fields of the status that the operator has written beside those of every release.
fn outputs_of(meta: &ObjectMeta) -> Box<[String]> {
    let is_ours = |entry: &&ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER)
            && entry.subresource.as_deref() == Some("status")
    };
    let entries = meta.managed_fields.iter().flatten().filter(is_ours);
    let written = entries
        .filter_map(|entry| entry.fields_v1.as_ref()?.0.get("f:status")?.as_object())
        .flat_map(serde_json::Map::keys)
        .filter_map(|name| name.strip_prefix("f:"));
    let outputs = written.filter(|name| !OWN_FIELDS.contains(name));
    outputs.map(ToOwned::to_owned).collect()
}

/// Identifies what people have written into a custom resource.
pub(crate) fn edition(meta: &ObjectMeta) -> u64 {
    let mut hasher = DefaultHasher::new();
    meta.uid.hash(&mut hasher);
    meta.generation.hash(&mut hasher);
    meta.labels.hash(&mut hasher);
    meta.annotations.hash(&mut hasher);
    hasher.finish()
}

/// Returns whether an object is a former state of a known one.
fn is_older(object: &DynamicObject, known: &Stored) -> bool {
    let version = |text: &str| text.parse::<u64>().ok();
    let meta = &object.metadata;
    let versions = meta.resource_version.as_deref().and_then(version);
    meta.uid.as_deref() == Some(&*known.uid)
        && versions
            .zip(version(&known.version))
            .is_some_and(|(version, known)| version < known)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Metadata,
    /// A new generation, or another object of the same name: earlier failures do not count.
    Generation,
}

impl TriggerState {
    fn of(object: &DynamicObject) -> Self {
        let meta = &object.metadata;
        let mut hasher = DefaultHasher::new();
        meta.uid.hash(&mut hasher);
        let identity = hasher.finish();
        meta.labels.hash(&mut hasher);
        meta.annotations.hash(&mut hasher);
        meta.finalizers.hash(&mut hasher);
        meta.deletion_timestamp.is_some().hash(&mut hasher);
        Self {
            object: identity,
            generation: meta.generation,
            fingerprint: hasher.finish(),
        }
    }
}

/// Returns where the objects of a kind are watched: in each namespace, or everywhere.
fn scopes_of(scope: Scope, namespaces: &[String]) -> Vec<Option<String>> {
    // Cluster-scoped objects are in no namespace.
    if scope == Scope::Cluster || namespaces.is_empty() {
        return vec![None];
    }
    namespaces.iter().cloned().map(Some).collect()
}

/// Time between two looks at the scope of a kind that is not found where it is watched.
const SCOPE_INTERVAL: Duration = Duration::from_secs(2);

/// Opens the watches of a source.
struct SourceWatches {
    inner: Arc<SourceInner>,
    cluster: Cluster,
    shards: Shards,
    selector: Option<String>,
    queue: QueueHandle,
    /// Whether the API server does not serve the kind where it is watched.
    missing: watch::Sender<bool>,
}

impl SourceWatches {
    /// Opens a watch for each scope, until the guard is dropped.
    fn open(&self, scopes: Vec<Option<String>>, stop: &CancellationToken) -> DropGuard {
        let stop = stop.child_token();
        for scope in scopes {
            let target = WatchTarget::new(self.inner.resource.clone(), scope.as_deref());
            // Without its custom resource, nothing is done for a release.
            let target = target.sharing(Share {
                shards: self.shards.clone(),
                by: By::Namespace,
                is_required: false,
            });
            let (client, selector) = (self.cluster.client().clone(), self.selector.clone());
            let of = target.clone();
            let open = move |lists| whole(&client, &of, lists, selector.as_deref());
            let follower = SourceFollower {
                inner: Arc::clone(&self.inner),
                scope,
                queue: self.queue.clone(),
                listed: HashSet::default(),
                first: true,
                missing: self.missing.clone(),
            };
            let metrics = self.queue.watch_restarts();
            let task = follow(target, metrics, Lists::Paged, open, follower);
            let stop = stop.clone();
            tokio::spawn(async move { stop.run_until_cancelled(task).await });
        }
        stop.drop_guard()
    }

    /// Drops the cached objects of a kind that is gone, and its objects with it.
    async fn forget_gone(&self, gvk: &GroupVersionKind) {
        let is_empty = self.inner.objects.read().known.is_empty();
        if !is_empty && matches!(self.cluster.discovery().find(gvk).await, Ok(None)) {
            self.inner.clear(&self.queue);
        }
    }

    /// Opens other watches whenever the kind comes back with another scope.
    async fn follow_scope(
        self,
        mut scope: Scope,
        namespaces: &[String],
        mut running: DropGuard,
        stop: &CancellationToken,
    ) {
        let ApiResource {
            group,
            version,
            kind,
            ..
        } = &self.inner.resource;
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let mut missing = self.missing.subscribe();
        // The sender lives as long as `self`.
        while missing.wait_for(|missing| *missing).await.is_ok() {
            // Once more when it is found again: where all namespaces are watched, the path is the same.
            let mut gone = true;
            while gone {
                tokio::time::sleep(SCOPE_INTERVAL).await;
                gone = *missing.borrow_and_update();
                self.cluster.group_changed(group);
                let Ok(found) = self.cluster.resolve(&gvk).await else {
                    self.forget_gone(&gvk).await;
                    continue;
                };
                if found.scope != scope {
                    warn!(%kind, was = ?scope, is = ?found.scope, "the kind was defined again with another scope; watching its custom resources there. Those that cannot have a release get the condition Irreconcilable");
                    scope = found.scope;
                    drop(running);
                    self.missing.send_replace(false);
                    self.inner.clear(&self.queue);
                    running = self.open(scopes_of(scope, namespaces), stop);
                }
            }
        }
    }
}

struct SourceFollower {
    inner: Arc<SourceInner>,
    /// The namespace; `None` for all.
    scope: Option<String>,
    queue: QueueHandle,
    /// Keys in the list in progress.
    listed: HashSet<Key>,
    /// Whether no list is complete yet.
    first: bool,
    missing: watch::Sender<bool>,
}

impl SourceFollower {
    fn in_scope(&self, key: &Key) -> bool {
        self.scope.is_none() || key.namespace.as_deref() == self.scope.as_deref()
    }

    /// Completes a list: removes objects that it does not contain.
    fn listed(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        let gone: Vec<Key> = self
            .inner
            .objects
            .read()
            .known
            .keys()
            .filter(|key| self.in_scope(key) && !listed.contains(key))
            .cloned()
            .collect();
        for key in gone {
            self.remove(key);
        }
        if std::mem::take(&mut self.first) {
            self.inner.synced.send_modify(|done| *done += 1);
        }
    }

    /// Stores an object, and queues its key if what has changed triggers the controller.
    fn store(&self, object: DynamicObject, priority: Priority) -> Key {
        let key = Key::of(&object);
        let change = self.inner.store(object);
        if change == Change::Generation {
            self.queue.reset_backoff(&key);
        }
        if change != Change::None {
            self.queue.add(key.clone(), priority);
        }
        key
    }

    fn remove(&self, key: Key) {
        self.inner.remove(&key);
        self.queue.reset_backoff(&key);
        self.queue.add(key, Priority::Event);
    }
}

impl Follower for SourceFollower {
    type Object = DynamicObject;

    fn event(&mut self, event: watcher::Event<DynamicObject>) {
        match event {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitApply(object) => {
                let key = self.store(object, Priority::Background);
                self.listed.insert(key);
            }
            watcher::Event::InitDone => self.listed(),
            watcher::Event::Apply(object) => drop(self.store(object, Priority::Event)),
            watcher::Event::Delete(object) => self.remove(Key::of(&object)),
        }
    }

    /// Cached objects stay until a list no longer contains them, or the kind is gone.
    fn state(&mut self, state: &WatchState) {
        self.missing.send_replace(*state == WatchState::Missing);
    }

    fn invalidate(&mut self) {
        let mut objects = self.inner.objects.write();
        for (_, entry) in objects
            .known
            .iter_mut()
            .filter(|(key, _)| self.in_scope(key))
        {
            entry.reported = None;
        }
    }
}

#[cfg(test)]
mod tests;

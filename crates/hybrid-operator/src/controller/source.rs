//! Watches and caches the custom resources of a controller.
//!
//! A controller is triggered only by a new generation, changed labels, annotations or finalizers,
//! or the deletion. Its own status writes do not trigger it.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::follow::{Follower, Lists, WatchState, WatchTarget, follow, whole};
use super::{Key, Priority, QueueHandle};
use crate::telemetry::resources::ResourceLabels;

/// The cached custom resources of one kind.
#[derive(Clone)]
pub(crate) struct Source(Arc<SourceInner>);

/// A source that may have been dropped.
pub(crate) struct WeakSource(Weak<SourceInner>);

impl WeakSource {
    /// Returns the source unless it was dropped.
    pub(crate) fn upgrade(&self) -> Option<Source> {
        self.0.upgrade().map(Source)
    }
}

struct SourceInner {
    resource: ApiResource,
    objects: RwLock<HashMap<Key, CachedObject>>,
    /// Number of scopes that have been listed.
    synced: watch::Sender<usize>,
    scopes: usize,
}

struct CachedObject {
    object: Arc<DynamicObject>,
    /// What the watch has reported; `None` if that is uncertain.
    reported: Option<TriggerState>,
}

/// The parts of a custom resource whose change triggers the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TriggerState {
    generation: Option<i64>,
    fingerprint: u64,
}

impl Source {
    /// Starts watching in `namespaces` (all if empty) until `stop` is cancelled. Changed keys are
    /// added to `queue`.
    pub(crate) fn start(
        client: &Client,
        resource: ApiResource,
        namespaces: &[String],
        selector: Option<&str>,
        queue: &QueueHandle,
        stop: &CancellationToken,
    ) -> Self {
        let scopes: Vec<Option<&str>> = if namespaces.is_empty() {
            vec![None]
        } else {
            namespaces
                .iter()
                .map(|namespace| Some(namespace.as_str()))
                .collect()
        };
        let source = Self(Arc::new(SourceInner {
            resource,
            objects: RwLock::default(),
            synced: watch::Sender::new(0),
            scopes: scopes.len(),
        }));
        let cached = source.downgrade();
        let created = move || cached.upgrade().map(|source| source.0.created());
        queue.resource_ages().watch(created);
        for scope in scopes {
            let target = WatchTarget::new(source.0.resource.clone(), scope);
            let (client, selector) = (client.clone(), selector.map(ToOwned::to_owned));
            let of = target.clone();
            let open = move |lists| whole(&client, &of, lists, selector.as_deref());
            let follower = SourceFollower::new(Arc::clone(&source.0), scope, queue.clone());
            let metrics = queue.watch_metrics();
            let task = follow(target, metrics, Lists::Paged, open, follower);
            let stop = stop.clone();
            tokio::spawn(async move { stop.run_until_cancelled(task).await });
        }
        source
    }

    /// Returns a reference that does not keep the cache.
    pub(crate) fn downgrade(&self) -> WeakSource {
        WeakSource(Arc::downgrade(&self.0))
    }

    /// Returns the custom resource with this key.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<DynamicObject>> {
        self.0
            .read()
            .get(key)
            .map(|entry| Arc::clone(&entry.object))
    }

    /// Stores an object that a request returned, so that the next reconcile sees it at once. An
    /// object that is older than the cached one is ignored. If it contains changes of others, which
    /// the reconcile in progress has not seen, the watch still triggers the controller.
    pub(crate) fn put(&self, object: DynamicObject) {
        let version = |object: &DynamicObject| {
            object
                .resource_version()
                .and_then(|version| version.parse::<u64>().ok())
        };
        let key = key_of(&object);
        let mut objects = self.0.write();
        if let Some(entry) = objects.get_mut(&key)
            && version(&entry.object) <= version(&object)
            && entry.object.uid() == object.uid()
        {
            entry.object = stripped(object);
        }
    }

    /// Returns the keys of all custom resources.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.0.read().keys().cloned().collect()
    }

    /// Waits until all custom resources have been listed.
    pub(crate) async fn synced(&self) {
        let scopes = self.0.scopes;
        let mut synced = self.0.synced.subscribe();
        // The sender lives as long as `self`.
        let _ = synced.wait_for(|done| *done >= scopes).await;
    }

    /// Returns the kind.
    pub(crate) fn resource(&self) -> &ApiResource {
        &self.0.resource
    }
}

impl SourceInner {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, HashMap<Key, CachedObject>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<Key, CachedObject>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when each custom resource was created, in seconds since 1970.
    fn created(&self) -> Vec<(ResourceLabels, i64)> {
        let ApiResource {
            group,
            version,
            kind,
            ..
        } = &self.resource;
        let objects = self.read();
        let created = objects.iter().filter_map(|(key, entry)| {
            let created = entry.object.metadata.creation_timestamp.as_ref()?;
            let labels = ResourceLabels {
                group: group.clone(),
                kind: kind.clone(),
                name: key.name.to_string(),
                namespace: key.namespace.as_deref().unwrap_or_default().to_owned(),
                version: version.clone(),
            };
            Some((labels, created.0.as_second()))
        });
        created.collect()
    }

    /// Stores an object and returns what has changed.
    fn store(&self, object: DynamicObject) -> Change {
        let key = key_of(&object);
        let reported = TriggerState::of(&object);
        let entry = CachedObject {
            object: stripped(object),
            reported: Some(reported),
        };
        let before = self.write().insert(key, entry);
        match before.and_then(|entry| entry.reported) {
            Some(before) if before == reported => Change::None,
            Some(before) if before.generation == reported.generation => Change::Metadata,
            _ => Change::Generation,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Metadata,
    Generation,
}

impl TriggerState {
    fn of(object: &DynamicObject) -> Self {
        let meta = &object.metadata;
        let mut hasher = DefaultHasher::new();
        meta.uid.hash(&mut hasher);
        meta.labels.hash(&mut hasher);
        meta.annotations.hash(&mut hasher);
        meta.finalizers.hash(&mut hasher);
        meta.deletion_timestamp.is_some().hash(&mut hasher);
        Self {
            generation: meta.generation,
            fingerprint: hasher.finish(),
        }
    }
}

/// Removes the managed fields, which are not used.
fn stripped(mut object: DynamicObject) -> Arc<DynamicObject> {
    object.metadata.managed_fields = None;
    Arc::new(object)
}

fn key_of(object: &DynamicObject) -> Key {
    Key::new(
        object.metadata.namespace.as_deref(),
        object.metadata.name.as_deref().unwrap_or_default(),
    )
}

/// Follower of the watch of one scope.
struct SourceFollower {
    inner: Arc<SourceInner>,
    /// The namespace; `None` for all.
    scope: Option<String>,
    queue: QueueHandle,
    /// Keys in the list in progress.
    listed: HashSet<Key>,
    /// Whether no list is complete yet.
    first: bool,
}

impl SourceFollower {
    fn new(inner: Arc<SourceInner>, scope: Option<&str>, queue: QueueHandle) -> Self {
        Self {
            inner,
            scope: scope.map(ToOwned::to_owned),
            queue,
            listed: HashSet::new(),
            first: true,
        }
    }

    fn in_scope(&self, key: &Key) -> bool {
        self.scope.is_none() || key.namespace.as_deref() == self.scope.as_deref()
    }

    /// Completes a list: removes objects that it does not contain.
    fn listed(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        let gone: Vec<Key> = self
            .inner
            .read()
            .keys()
            .filter(|key| self.in_scope(key) && !listed.contains(key))
            .cloned()
            .collect();
        for key in gone {
            self.inner.write().remove(&key);
            self.queue.add(key, Priority::Event);
        }
        if std::mem::take(&mut self.first) {
            self.inner.synced.send_modify(|done| *done += 1);
        }
    }
}

impl Follower for SourceFollower {
    type Object = DynamicObject;

    fn event(&mut self, event: watcher::Event<DynamicObject>) {
        match event {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitApply(object) => {
                let key = key_of(&object);
                self.listed.insert(key.clone());
                if self.inner.store(object) != Change::None {
                    self.queue.add(key, Priority::Background);
                }
            }
            watcher::Event::InitDone => self.listed(),
            watcher::Event::Apply(object) => {
                let key = key_of(&object);
                match self.inner.store(object) {
                    Change::None => {}
                    Change::Metadata => self.queue.add(key, Priority::Event),
                    Change::Generation => {
                        self.queue.reset_backoff(&key);
                        self.queue.add(key, Priority::Event);
                    }
                }
            }
            watcher::Event::Delete(object) => {
                let key = key_of(&object);
                self.inner.write().remove(&key);
                self.queue.reset_backoff(&key);
                self.queue.add(key, Priority::Event);
            }
        }
    }

    /// Cached objects stay until a list no longer contains them.
    fn state(&mut self, _: &WatchState) {}

    fn invalidate(&mut self) {
        let mut objects = self.inner.write();
        for (_, entry) in objects.iter_mut().filter(|(key, _)| self.in_scope(key)) {
            entry.reported = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, RwLock};

    use kube::api::DynamicObject;
    use kube::core::{ApiResource, GroupVersionKind};
    use serde_json::{Value, json};
    use tokio::sync::watch;

    use super::{Change, Source, SourceInner, key_of};

    fn source() -> Source {
        let kind = GroupVersionKind::gvk("example.com", "v1", "Widget");
        Source(Arc::new(SourceInner {
            resource: ApiResource::from_gvk(&kind),
            objects: RwLock::default(),
            synced: watch::Sender::new(0),
            scopes: 1,
        }))
    }

    fn widget(version: u64, generation: u64, metadata: &Value) -> DynamicObject {
        let mut object = json!({
            "apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {"name": "one", "uid": "u", "resourceVersion": version.to_string(), "generation": generation},
        });
        json_patch::merge(&mut object, &json!({"metadata": metadata}));
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_change_first_seen_in_the_response_to_a_write_still_triggers() {
        let changes = [
            (2, json!({}), Change::Generation),
            (1, json!({"annotations": {"a": "b"}}), Change::Metadata),
            (
                1,
                json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
                Change::Metadata,
            ),
            (1, json!({}), Change::None),
        ];
        for (generation, metadata, expected) in changes {
            let source = source();
            assert_eq!(source.0.store(widget(1, 1, &json!({}))), Change::Generation);
            let answer = widget(3, generation, &metadata);
            let key = key_of(&answer);
            source.put(answer.clone());
            let known = source.get(&key).unwrap();
            assert_eq!(known.metadata.resource_version.as_deref(), Some("3"));
            // The watch reports the change and then the write.
            let reported = widget(2, generation, &metadata);
            assert_eq!(source.0.store(reported), expected, "{metadata}");
            assert_eq!(source.0.store(answer), Change::None);
        }
    }
}

//! Watches the custom resources of a controller and keeps them.
//!
//! Only what concerns a controller triggers it: a new generation, or other labels, annotations,
//! finalizers, or the deletion. Its own status writes do not.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::follow::{Follower, Lists, Subject, WatchState, follow, whole};
use super::{Key, Priority, QueueHandle};

/// The custom resources of one kind.
#[derive(Clone)]
pub struct Source(Arc<Inner>);

struct Inner {
    resource: ApiResource,
    objects: RwLock<HashMap<Key, Entry>>,
    /// How many scopes have been listed.
    synced: watch::Sender<usize>,
    scopes: usize,
}

struct Entry {
    object: Arc<DynamicObject>,
    /// What the watch has told of it; `None` when that is not certain.
    told: Option<Told>,
}

/// What concerns a controller of a custom resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    generation: Option<i64>,
    fingerprint: u64,
}

impl Source {
    /// Starts watching in `namespaces` (all when empty), until `stop`. Changes go to `queue`.
    pub fn start(
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
        let source = Self(Arc::new(Inner {
            resource,
            objects: RwLock::default(),
            synced: watch::Sender::new(0),
            scopes: scopes.len(),
        }));
        for scope in scopes {
            let subject = Subject::new(source.0.resource.clone(), scope);
            let (client, selector) = (client.clone(), selector.map(ToOwned::to_owned));
            let of = subject.clone();
            let open = move |lists| whole(&client, &of, lists, selector.as_deref());
            let reader = Reader::new(Arc::clone(&source.0), scope, queue.clone());
            let metrics = queue.watch_metrics();
            let task = follow(subject, metrics, Lists::Paged, open, reader);
            let stop = stop.clone();
            tokio::spawn(async move { stop.run_until_cancelled(task).await });
        }
        source
    }

    /// The custom resource of a key.
    pub fn get(&self, key: &Key) -> Option<Arc<DynamicObject>> {
        self.0
            .read()
            .get(key)
            .map(|entry| Arc::clone(&entry.object))
    }

    /// Takes in an object that a request answered, so that the next reconcile sees it at once.
    /// An object older than the known one is left out. It may hold what somebody else has changed
    /// meanwhile, and the reconcile under way has seen an older one: of that the watch still tells.
    pub fn put(&self, object: DynamicObject) {
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

    /// The keys of all custom resources.
    pub fn keys(&self) -> Vec<Key> {
        self.0.read().keys().cloned().collect()
    }

    /// Waits until every custom resource is known.
    pub async fn synced(&self) {
        let scopes = self.0.scopes;
        let mut synced = self.0.synced.subscribe();
        // The sender lives as long as `self`.
        let _ = synced.wait_for(|done| *done >= scopes).await;
    }

    /// The kind.
    pub fn resource(&self) -> &ApiResource {
        &self.0.resource
    }
}

impl Inner {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, HashMap<Key, Entry>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<Key, Entry>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an object; whether it concerns the controller.
    fn keep(&self, object: DynamicObject) -> Change {
        let key = key_of(&object);
        let told = Told::of(&object);
        let entry = Entry {
            object: stripped(object),
            told: Some(told),
        };
        let before = self.write().insert(key, entry);
        match before.and_then(|entry| entry.told) {
            Some(before) if before == told => Change::None,
            Some(before) if before.generation == told.generation => Change::Metadata,
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

impl Told {
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

/// An object as it is kept: without what nobody here reads.
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

/// Takes in what the watch of one scope shows.
struct Reader {
    inner: Arc<Inner>,
    /// The namespace; `None` for all.
    scope: Option<String>,
    queue: QueueHandle,
    /// What the list that is under way has shown.
    listed: HashSet<Key>,
    /// Whether no list is complete yet.
    first: bool,
}

impl Reader {
    fn new(inner: Arc<Inner>, scope: Option<&str>, queue: QueueHandle) -> Self {
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

    /// What a list does not show is gone.
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

impl Follower for Reader {
    type Object = DynamicObject;

    fn event(&mut self, event: watcher::Event<DynamicObject>) {
        match event {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitApply(object) => {
                let key = key_of(&object);
                self.listed.insert(key.clone());
                if self.inner.keep(object) != Change::None {
                    self.queue.add(key, Priority::Background);
                }
            }
            watcher::Event::InitDone => self.listed(),
            watcher::Event::Apply(object) => {
                let key = key_of(&object);
                match self.inner.keep(object) {
                    Change::None => {}
                    Change::Metadata => self.queue.add(key, Priority::Event),
                    Change::Generation => {
                        self.queue.forgive(&key);
                        self.queue.add(key, Priority::Event);
                    }
                }
            }
            watcher::Event::Delete(object) => {
                let key = key_of(&object);
                self.inner.write().remove(&key);
                self.queue.forgive(&key);
                self.queue.add(key, Priority::Event);
            }
        }
    }

    /// What is known stays so; nothing is removed before a list says so.
    fn state(&mut self, _: &WatchState) {}

    fn distrust(&mut self) {
        let mut objects = self.inner.write();
        for (_, entry) in objects.iter_mut().filter(|(key, _)| self.in_scope(key)) {
            entry.told = None;
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

    use super::{Change, Inner, Source, key_of};

    fn source() -> Source {
        let kind = GroupVersionKind::gvk("example.com", "v1", "Widget");
        Source(Arc::new(Inner {
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
    fn a_change_that_an_answer_to_a_write_shows_first_is_still_told_of() {
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
            assert_eq!(source.0.keep(widget(1, 1, &json!({}))), Change::Generation);
            let answer = widget(3, generation, &metadata);
            let key = key_of(&answer);
            source.put(answer.clone());
            let known = source.get(&key).unwrap();
            assert_eq!(known.metadata.resource_version.as_deref(), Some("3"));
            // The watch tells of the change and then of the write.
            let told = widget(2, generation, &metadata);
            assert_eq!(source.0.keep(told), expected, "{metadata}");
            assert_eq!(source.0.keep(answer), Change::None);
        }
    }
}

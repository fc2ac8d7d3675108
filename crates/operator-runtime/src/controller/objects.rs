//! Typed caches of objects, shared by all controllers of a process.
//!
//! # Flow
//! [`ObjectCaches`] opens one watch for each type and label selector, however many controllers read
//! it. A controller subscribes and is told of every object that is cached, and of every change from
//! then on: a late subscriber misses nothing.
//!
//! # Guarantees
//! * An object is held once for each cache, whoever reads it; readers share it.
//! * An object that cannot be decoded is reported under its own key. It neither stops the watch nor
//!   hides the others.
//! * Subscribers are called after the cache holds what they are told of.
//!
//! # Caveats
//! * Objects lack their managed fields.
//! * Before its first list is complete a cache holds only a part; see [`ObjectCache::synced`].

use host::{HashMap, HashSet};
use std::any::{Any, TypeId};
use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt;
use futures::TryStreamExt;
use host::watch;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::DynamicObject;
use kube::core::{ApiResource, ObjectMeta, PartialObjectMeta, PartialObjectMetaExt};
use kube::runtime::watcher;
use kube::{Client, Resource};
use kube_objects::left_out;
use kube_objects::shards::{By, Shards, Share};
use kube_objects::watch::Restarts;
use kube_objects::watch::follow::{self, Events, Follower, Lists, WatchState, WatchTarget};
use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::{Key, Priority, QueueHandle};

/// Whether objects of a scope have namespaces.
pub trait ObjectScope {
    /// Whether they have.
    const NAMESPACED: bool;
}

impl ObjectScope for NamespaceResourceScope {
    const NAMESPACED: bool = true;
}

impl ObjectScope for ClusterResourceScope {
    const NAMESPACED: bool = false;
}

/// A type of objects that is known when the operator is compiled: those of `k8s-openapi`, and those
/// that derive `CustomResource`, namespaced or not.
pub trait TypedObject:
    Resource<DynamicType = (), Scope: ObjectScope>
    + Clone
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
}

impl<T> TypedObject for T where
    T: Resource<DynamicType = (), Scope: ObjectScope>
        + Clone
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static
{
}

/// The caches of a process. Clones share them.
#[derive(Clone)]
pub struct ObjectCaches(Arc<Caches>);

struct Caches {
    client: Client,
    /// Namespaces to watch; all when empty.
    namespaces: Vec<String>,
    restarts: Restarts,
    shards: Shards,
    stop: CancellationToken,
    /// An [`ObjectCache`] for each type, label selector and extent.
    open: Mutex<HashMap<CacheKey, Box<dyn Any + Send + Sync>>>,
}

type CacheKey = (TypeId, Option<String>, Extent);

/// The objects that a cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Extent {
    /// Objects that this process handles.
    Share,
    /// Objects of all processes.
    Whole,
}

impl ObjectCaches {
    /// Creates the caches of a process; nothing is watched yet.
    pub(crate) fn new(
        client: Client,
        namespaces: Vec<String>,
        restarts: Restarts,
        shards: Shards,
        stop: CancellationToken,
    ) -> Self {
        Self(Arc::new(Caches {
            client,
            namespaces,
            restarts,
            shards,
            stop,
            open: Mutex::default(),
        }))
    }

    /// Returns the cache of the objects that a label selector selects.
    pub fn whole<O: TypedObject>(&self, selector: Option<&str>) -> ObjectCache<O> {
        self.typed(selector, Extent::Whole)
    }

    /// Returns the cache of those of them that this process handles.
    pub(crate) fn shared<O: TypedObject>(&self, selector: Option<&str>) -> ObjectCache<O> {
        self.typed(selector, Extent::Share)
    }

    fn typed<O: TypedObject>(&self, selector: Option<&str>, extent: Extent) -> ObjectCache<O> {
        let open = |client: &Client, subject: &WatchTarget, lists, selector: Option<&str>| {
            follow::whole(client, subject, lists, selector)
        };
        self.cache(selector, extent, open, decode::<O>)
    }

    /// Returns the cache of the metadata of these objects; nothing else of them is sent or held.
    pub fn metadata<O: TypedObject>(
        &self,
        selector: Option<&str>,
    ) -> ObjectCache<PartialObjectMeta<O>> {
        let open = |client: &Client, subject: &WatchTarget, lists, selector: Option<&str>| {
            follow::metadata(client, subject, lists, selector)
        };
        let accept = |metadata: ObjectMeta| Ok(metadata.into_request_partial::<O>());
        self.cache(selector, Extent::Whole, open, accept)
    }

    /// Returns where the objects of a type are watched.
    pub(crate) fn targets<O>(&self) -> Vec<WatchTarget>
    where
        O: Resource<DynamicType = (), Scope: ObjectScope>,
    {
        let target = |scope| WatchTarget::new(ApiResource::erase::<O>(&()), scope);
        match self.0.namespaces.as_slice() {
            namespaces if O::Scope::NAMESPACED && !namespaces.is_empty() => {
                let namespaces = namespaces.iter();
                namespaces
                    .map(|namespace| target(Some(namespace)))
                    .collect()
            }
            _ => vec![target(None)],
        }
    }

    fn cache<O, R>(
        &self,
        selector: Option<&str>,
        extent: Extent,
        open: impl Fn(&Client, &WatchTarget, Lists, Option<&str>) -> Events<R> + Clone + Send + 'static,
        decode: fn(R) -> Result<O, Undecodable>,
    ) -> ObjectCache<O>
    where
        O: Resource<DynamicType = (), Scope: ObjectScope> + Clone + Send + Sync + 'static,
        R: Send + 'static,
    {
        let extent = if self.0.shards.is_whole() {
            Extent::Whole
        } else {
            extent
        };
        let key = (TypeId::of::<O>(), selector.map(ToOwned::to_owned), extent);
        let mut all = self.0.open.lock();
        let present = all.get(&key);
        if let Some(cache) = present.and_then(|cache| cache.downcast_ref::<ObjectCache<O>>()) {
            return cache.clone();
        }
        let targets = self.targets::<O>();
        let cache = ObjectCache::<O>::new(targets.len());
        for mut subject in targets {
            let scope = subject.namespace.clone();
            if extent == Extent::Share {
                // With incomplete lists, a function would take existing objects for missing.
                subject = subject.sharing(Share {
                    shards: self.0.shards.clone(),
                    by: By::Namespace,
                    is_required: true,
                });
            }
            let (client, of, open) = (self.0.client.clone(), subject.clone(), open.clone());
            let selector = key.1.clone();
            let open = move |lists| {
                let events = open(&client, &of, lists, selector.as_deref());
                // Decoded here, so that one object that cannot be is no error of the watch.
                let events = events.map_ok(move |event| follow::map_event(event, decode));
                events.boxed()
            };
            let reader = ScopeReader {
                cache: cache.clone(),
                scope,
                listed: HashSet::default(),
                first: true,
            };
            let restarts = self.0.restarts.clone();
            let task = follow::follow(subject, restarts, Lists::Paged, open, reader);
            let stop = self.0.stop.clone();
            tokio::spawn(async move { stop.run_until_cancelled(task).await });
        }
        all.insert(key, Box::new(cache.clone()));
        cache
    }
}

/// An object that is not what its type says, for example one that an older schema admitted.
#[derive(Debug)]
struct Undecodable {
    key: Key,
    message: String,
}

fn decode<O: TypedObject>(mut object: DynamicObject) -> Result<O, Undecodable> {
    object.metadata.managed_fields = None;
    let key = Key::of(&object);
    let whole = match left_out(&object) {
        Some(problem) => Err(problem),
        None => object.try_parse().map_err(|error| error.to_string()),
    };
    whole.map_err(|message| Undecodable { key, message })
}

/// Entry of a cache under a key.
#[derive(Debug)]
pub enum Cached<O> {
    /// A decoded object.
    Object(Arc<O>),
    /// There is one, but it cannot be decoded; the text says why.
    Undecodable(Arc<str>),
}

impl<O> Clone for Cached<O> {
    fn clone(&self) -> Self {
        match self {
            Self::Object(object) => Self::Object(Arc::clone(object)),
            Self::Undecodable(message) => Self::Undecodable(Arc::clone(message)),
        }
    }
}

impl<O> Cached<O> {
    /// The object, where it can be decoded.
    pub(crate) fn object(&self) -> Option<&Arc<O>> {
        match self {
            Self::Object(object) => Some(object),
            Self::Undecodable(_) => None,
        }
    }
}

/// Called with a key and what is cached under it before and after a change.
pub(super) type Subscriber<O> =
    Box<dyn Fn(&Key, Option<&Cached<O>>, Option<&Cached<O>>) + Send + Sync>;

/// Computes the values under which an object is found in an index.
pub(super) type IndexFn<O> = Box<dyn Fn(&O) -> Vec<String> + Send + Sync>;

/// The objects of one type and selector. Clones share them.
pub struct ObjectCache<O>(Arc<Inner<O>>);

impl<O> Clone for ObjectCache<O> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Inner<O> {
    objects: RwLock<Objects<O>>,
    subscribers: Mutex<Vec<Subscriber<O>>>,
    /// Number of scopes that have been listed, and number of changes of anything.
    progress: watch::Sender<(usize, u64)>,
    scopes: usize,
}

struct Objects<O> {
    known: HashMap<Key, Cached<O>>,
    indices: HashMap<&'static str, Index<O>>,
}

struct Index<O> {
    values_of: IndexFn<O>,
    keys: HashMap<String, BTreeSet<Key>>,
}

impl<O> Objects<O> {
    fn insert(&mut self, key: Key, value: Cached<O>) -> Option<Cached<O>> {
        let before = self.remove(&key);
        if let Some(object) = value.object() {
            for index in self.indices.values_mut() {
                index.add(&key, object);
            }
        }
        self.known.insert(key, value);
        before
    }

    fn remove(&mut self, key: &Key) -> Option<Cached<O>> {
        let before = self.known.remove(key);
        if let Some(object) = before.as_ref().and_then(Cached::object) {
            for index in self.indices.values_mut() {
                index.remove(key, object);
            }
        }
        before
    }
}

impl<O> Index<O> {
    fn add(&mut self, key: &Key, object: &O) {
        for value in (self.values_of)(object) {
            self.keys.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, key: &Key, object: &O) {
        for value in (self.values_of)(object) {
            if let Some(keys) = self.keys.get_mut(&value) {
                keys.remove(key);
                if keys.is_empty() {
                    self.keys.remove(&value);
                }
            }
        }
    }
}

impl<O> ObjectCache<O> {
    fn new(scopes: usize) -> Self {
        Self(Arc::new(Inner {
            objects: RwLock::new(Objects {
                known: HashMap::default(),
                indices: HashMap::default(),
            }),
            subscribers: Mutex::default(),
            progress: watch::Sender::new((0, 0)),
            scopes,
        }))
    }

    /// Creates a cache of these objects that no watch feeds, for tests.
    pub(crate) fn of(objects: impl IntoIterator<Item = O>) -> Self
    where
        O: Resource,
    {
        let cache = Self::new(0);
        for object in objects {
            let key = Key::of(&object);
            cache.store(&key, &Cached::Object(Arc::new(object)));
        }
        cache
    }

    /// Returns what is cached under a key.
    pub(crate) fn entry(&self, key: &Key) -> Option<Cached<O>> {
        self.0.objects.read().known.get(key).cloned()
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<O>> {
        self.entry(key)?.object().cloned()
    }

    /// Returns the objects of a namespace, or all of them, in the order of their keys.
    pub(crate) fn list(&self, namespace: Option<&str>) -> Vec<Arc<O>> {
        let objects = self.0.objects.read();
        let in_namespace = |key: &Key| namespace.is_none() || key.namespace.as_deref() == namespace;
        let mut found: Vec<(&Key, &Arc<O>)> = objects
            .known
            .iter()
            .filter(|(key, _)| in_namespace(key))
            .filter_map(|(key, cached)| Some((key, cached.object()?)))
            .collect();
        found.sort_unstable_by_key(|(key, _)| *key);
        found
            .into_iter()
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// Returns the keys of all objects, also of those that cannot be decoded.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.0.objects.read().known.keys().cloned().collect()
    }

    /// Returns the objects under a value of an index, in the order of their keys; `None` when there
    /// is no such index.
    pub(crate) fn by_index(&self, index: &str, value: &str) -> Option<Vec<Arc<O>>> {
        let objects = self.0.objects.read();
        let keys = objects.indices.get(index)?.keys.get(value);
        let found = keys
            .into_iter()
            .flatten()
            .filter_map(|key| objects.known.get(key)?.object().cloned());
        Some(found.collect())
    }

    /// Adds an index, also of what is cached already. One of the same name stays as it is.
    pub(crate) fn add_index(&self, name: &'static str, values_of: IndexFn<O>) {
        let mut objects = self.0.objects.write();
        if objects.indices.contains_key(name) {
            return;
        }
        let mut index = Index {
            values_of,
            keys: HashMap::default(),
        };
        for (key, cached) in &objects.known {
            if let Some(object) = cached.object() {
                index.add(key, object);
            }
        }
        objects.indices.insert(name, index);
    }

    /// Calls `subscriber` for every object that is cached and for every change from now on.
    pub(crate) fn subscribe(&self, subscriber: Subscriber<O>) {
        let mut subscribers = self.0.subscribers.lock();
        let known: Vec<(Key, Cached<O>)> = {
            let objects = self.0.objects.read();
            let entries = objects.known.iter();
            entries
                .map(|(key, cached)| (key.clone(), cached.clone()))
                .collect()
        };
        for (key, cached) in &known {
            subscriber(key, None, Some(cached));
        }
        subscribers.push(subscriber);
    }

    /// Adds to a queue the keys that `related` returns for each changed object, as it was before and
    /// as it is after the change.
    pub fn route<I>(&self, queue: &QueueHandle, related: impl Fn(&O) -> I + Send + Sync + 'static)
    where
        I: IntoIterator<Item = Key>,
    {
        let queue = queue.downgrade();
        self.subscribe(Box::new(move |_, before, after| {
            let Some(queue) = queue.upgrade() else {
                return;
            };
            let objects = [before, after].into_iter().flatten();
            let objects = objects.filter_map(Cached::object);
            let mut keys: Vec<Key> = objects.flat_map(|object| related(object)).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                queue.add(key, Priority::Event);
            }
        }));
    }

    /// Waits until the first list of every namespace is complete.
    pub(crate) async fn synced(&self) {
        let mut progress = self.0.progress.subscribe();
        // The sender lives as long as `self`.
        let _ = progress
            .wait_for(|(listed, _)| *listed >= self.0.scopes)
            .await;
    }

    /// Waits until `look` answers, which is asked again after every change.
    pub(crate) async fn wait_for<T>(&self, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let mut progress = self.0.progress.subscribe();
        loop {
            progress.mark_unchanged();
            if let Some(found) = look(self) {
                return found;
            }
            if progress.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    pub(super) fn store(&self, key: &Key, value: &Cached<O>) {
        let before = self.0.objects.write().insert(key.clone(), value.clone());
        self.changed(key, before.as_ref(), Some(value));
    }

    pub(super) fn remove(&self, key: &Key) {
        let before = self.0.objects.write().remove(key);
        if before.is_some() {
            self.changed(key, before.as_ref(), None);
        }
    }

    fn changed(&self, key: &Key, before: Option<&Cached<O>>, after: Option<&Cached<O>>) {
        self.0.progress.send_modify(|(_, changes)| *changes += 1);
        for subscriber in self.0.subscribers.lock().iter() {
            subscriber(key, before, after);
        }
    }
}

/// Takes in what the watch of one namespace, or of all, shows.
struct ScopeReader<O> {
    cache: ObjectCache<O>,
    scope: Option<String>,
    /// Keys that the list in progress has shown.
    listed: HashSet<Key>,
    /// Whether no list is complete yet.
    first: bool,
}

impl<O: Resource> ScopeReader<O> {
    fn store(&self, decoded: Result<O, Undecodable>) -> Key {
        let (key, cached) = match decoded {
            Ok(object) => (Key::of(&object), Cached::Object(Arc::new(object))),
            Err(Undecodable { key, message }) => (key, Cached::Undecodable(message.into())),
        };
        self.cache.store(&key, &cached);
        key
    }
}

impl<O> Follower for ScopeReader<O>
where
    O: Resource + Send + Sync + 'static,
{
    type Object = Result<O, Undecodable>;

    fn event(&mut self, event: watcher::Event<Self::Object>) {
        match event {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitApply(object) => {
                let key = self.store(object);
                self.listed.insert(key);
            }
            watcher::Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let in_scope = |key: &Key| {
                    self.scope.is_none() || key.namespace.as_deref() == self.scope.as_deref()
                };
                let mut gone = self.cache.keys();
                gone.retain(|key| in_scope(key) && !listed.contains(key));
                for key in gone {
                    self.cache.remove(&key);
                }
                if std::mem::take(&mut self.first) {
                    let progress = &self.cache.0.progress;
                    progress.send_modify(|(listed, _)| *listed += 1);
                }
            }
            watcher::Event::Apply(object) => drop(self.store(object)),
            watcher::Event::Delete(object) => {
                let key = match object {
                    Ok(object) => Key::of(&object),
                    Err(Undecodable { key, .. }) => key,
                };
                self.cache.remove(&key);
            }
        }
    }

    /// Keeps what is cached; a list says what is gone.
    fn state(&mut self, _: &WatchState) {}
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube::api::DynamicObject;
    use kube::runtime::watcher::Event;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::{Cached, Follower, Key, ObjectCache, ScopeReader, decode};

    fn map(name: &str, label: &str) -> ConfigMap {
        let map = json!({"metadata": {"name": name, "namespace": "a", "labels": {"for": label}}});
        serde_json::from_value(map).unwrap()
    }

    fn names(objects: &[Arc<ConfigMap>]) -> Vec<&str> {
        let names = objects.iter().map(|map| map.metadata.name.as_deref());
        names.map(Option::unwrap).collect()
    }

    fn by_label(map: &ConfigMap) -> Vec<String> {
        let labels = map.metadata.labels.as_ref();
        labels
            .and_then(|labels| labels.get("for").cloned())
            .into_iter()
            .collect()
    }

    #[test]
    fn an_index_follows_changes_and_removals_whenever_it_was_added() {
        let cache = ObjectCache::of([map("one", "x"), map("two", "x")]);
        cache.add_index("label", Box::new(by_label));
        let found = |value| cache.by_index("label", value).unwrap();
        assert_eq!(names(&found("x")), ["one", "two"]);
        let one = Key::new(Some("a"), "one");
        cache.store(&one, &Cached::Object(Arc::new(map("one", "y"))));
        assert_eq!(names(&found("x")), ["two"]);
        assert_eq!(names(&found("y")), ["one"]);
        cache.remove(&Key::new(Some("a"), "one"));
        assert!(found("y").is_empty());
        assert!(cache.by_index("other", "x").is_none());
    }

    #[test]
    fn a_late_subscriber_is_told_of_what_is_cached_and_of_every_change() {
        let cache = ObjectCache::of([map("one", "x")]);
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&told);
        cache.subscribe(Box::new(move |key, before, after| {
            let change = (key.to_string(), before.is_some(), after.is_some());
            log.lock().push(change);
        }));
        let key = Key::new(Some("a"), "two");
        cache.store(&key, &Cached::Object(Arc::new(map("two", "x"))));
        cache.remove(&key);
        cache.remove(&key);
        let expected = [
            ("a/one", false, true),
            ("a/two", false, true),
            ("a/two", true, false),
        ];
        let expected = expected.map(|(key, before, after)| (key.to_owned(), before, after));
        assert_eq!(*told.lock(), expected);
    }

    #[tokio::test]
    async fn an_object_that_cannot_be_decoded_hides_no_other() {
        let secret = |name: &str, data: serde_json::Value| -> DynamicObject {
            let object = json!({"apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": name, "namespace": "a"}, "data": data});
            serde_json::from_value(object).unwrap()
        };
        let cache = ObjectCache::<Secret>::new(1);
        let mut reader = ScopeReader {
            cache: cache.clone(),
            scope: None,
            listed: host::HashSet::default(),
            first: true,
        };
        let events = [
            Event::Init,
            Event::InitApply(decode(secret("bad", json!("text")))),
            Event::InitApply(decode(secret("good", json!({})))),
            Event::InitDone,
        ];
        for event in events {
            reader.event(event);
        }
        cache.synced().await;
        assert_eq!(cache.list(Some("a")).len(), 1);
        let bad = Key::new(Some("a"), "bad");
        assert!(matches!(cache.entry(&bad), Some(Cached::Undecodable(_))));
        // The next list does not show it any more.
        let events = [
            Event::Init,
            Event::InitApply(decode(secret("good", json!({})))),
            Event::InitDone,
        ];
        for event in events {
            reader.event(event);
        }
        assert!(cache.entry(&bad).is_none());
    }
}

//! Objects that are not of a release but decide about it: what `valuesFrom` and `lookup` read, and
//! what `dependsOn` waits for.
//!
//! One watch per kind and namespace, opened when the first custom resource names an object there.
//! Events about other objects are dropped as they come, so memory grows with what is named alone;
//! only where it is watched whether objects are `Ready`, all of the kind are known.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, PartialObjectMeta};
use kube::runtime::watcher;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::controller::{Key, Priority, QueueHandle, map_event};

/// Names an object, or all objects of a kind in a place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Named {
    pub(super) resource: ApiResource,
    /// `None` for what is cluster-scoped, and for a list of all namespaces.
    pub(super) namespace: Option<String>,
    /// `None` for a list.
    pub(super) name: Option<String>,
}

impl Named {
    /// The watch that shows it.
    fn scope(&self, depth: Depth) -> Scope {
        (self.resource.clone(), self.namespace.clone(), depth)
    }
}

/// How much of the objects is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Depth {
    /// Only whether they change.
    Metadata,
    /// Whether they are `Ready`, too.
    Readiness,
}

/// What one watch covers: a kind, a namespace or all, and how much of it.
type Scope = (ApiResource, Option<String>, Depth);

/// How an object or a list was seen, by a request or by a watch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Whether it is there, and `Ready` where that is watched. A list always is.
    here: bool,
    /// Its resource version, where changes are watched: of a list, the newest in it.
    version: u64,
    /// How often the watch of a list has begun anew: no event tells what vanished meanwhile.
    lists: u64,
}

impl Seen {
    fn of(here: bool, version: u64) -> Self {
        Self {
            here,
            version,
            lists: 0,
        }
    }

    /// How a request has shown an object, `None` if there is none, or a list.
    pub(super) fn read(self, answer: Option<&Value>) -> Self {
        let version = answer.and_then(|object| object.pointer("/metadata/resourceVersion"));
        Self {
            here: answer.is_some(),
            version: version_of(version.and_then(Value::as_str)),
            lists: self.lists,
        }
    }

    /// Whether what was read is still so, as far as a watch has `told`.
    fn is_current(self, told: Self) -> bool {
        if self.here {
            told.version <= self.version && told.lists == self.lists
        } else {
            !told.here
        }
    }
}

/// What is known of a named object or list.
#[derive(Debug, Default)]
struct Known {
    keys: HashSet<Key>,
    /// What the watch has told of it last.
    told: Option<Seen>,
}

/// The named objects, each as a watch of a depth shows it.
type Names = HashMap<(Depth, Named), Known>;

impl Known {
    /// Takes in what a watch tells, and wakes the custom resources if it is news.
    fn tell(&mut self, seen: Seen, queue: &QueueHandle) {
        if self.told != Some(seen) {
            self.told = Some(seen);
            for key in &self.keys {
                queue.add(key.clone(), Priority::Event);
            }
        }
    }

    /// Takes in that something in a list is new, changed or gone.
    fn tell_version(&mut self, version: u64, queue: &QueueHandle) {
        let told = self.told.unwrap_or_default();
        let version = told.version.max(version);
        self.tell(
            Seen {
                here: true,
                version,
                ..told
            },
            queue,
        );
    }
}

/// The objects that the custom resources of one controller are interested in.
pub(super) struct Interests {
    client: Client,
    queue: QueueHandle,
    stop: CancellationToken,
    known: Arc<Mutex<Names>>,
    watches: Mutex<HashMap<Scope, Watch>>,
}

/// A watch that runs until it is dropped.
struct Watch {
    synced: watch::Receiver<bool>,
    _stop: DropGuard,
}

type Events = BoxStream<'static, Result<watcher::Event<(ObjectMeta, bool)>, watcher::Error>>;

impl Interests {
    pub(super) fn new(client: Client, queue: QueueHandle, stop: CancellationToken) -> Self {
        Self {
            client,
            queue,
            stop,
            known: Arc::default(),
            watches: Mutex::default(),
        }
    }

    /// Leads changes of an object or list to a custom resource from now on, which is about to be
    /// read; answers how the watch has seen it.
    pub(super) fn add(&self, named: &Named, key: &Key) -> Seen {
        drop(self.open(named, Depth::Metadata, key));
        self.told(Depth::Metadata, named).unwrap_or_default()
    }

    /// Whether an object is `Ready`; waits until its kind has been listed once.
    pub(super) async fn is_ready(&self, named: &Named, key: &Key) -> bool {
        let mut synced = self.open(named, Depth::Readiness, key);
        // The sender lives as long as the watch; without one nothing is ready.
        let _ = synced.wait_for(|synced| *synced).await;
        self.told(Depth::Readiness, named)
            .is_some_and(|seen| seen.here)
    }

    /// Whether what was read is still so.
    pub(super) fn is_current(&self, named: &Named, read: Seen) -> bool {
        self.told(Depth::Metadata, named)
            .is_none_or(|told| read.is_current(told))
    }

    /// Forgets a custom resource, and what it alone was interested in.
    pub(super) fn forget(&self, key: &Key) {
        let mut known = lock(&self.known);
        known.retain(|_, known| !known.keys.remove(key) || !known.keys.is_empty());
        let needed: HashSet<Scope> = known
            .iter()
            .filter(|(_, known)| !known.keys.is_empty())
            .map(|((depth, named), _)| named.scope(*depth))
            .collect();
        known.retain(|(depth, named), _| needed.contains(&named.scope(*depth)));
        lock(&self.watches).retain(|scope, _| needed.contains(scope));
    }

    fn told(&self, depth: Depth, named: &Named) -> Option<Seen> {
        lock(&self.known).get(&(depth, named.clone()))?.told
    }

    /// Opens the watch that shows an object, or shares it.
    fn open(&self, named: &Named, depth: Depth, key: &Key) -> watch::Receiver<bool> {
        let mut known = lock(&self.known);
        let entry = known.entry((depth, named.clone())).or_default();
        entry.keys.insert(key.clone());
        let scope = named.scope(depth);
        let mut watches = lock(&self.watches);
        let watch = watches.entry(scope.clone()).or_insert_with(|| {
            let (sender, synced) = watch::channel(false);
            let follow = follow(
                self.events(named, depth),
                scope,
                Arc::clone(&self.known),
                self.queue.clone(),
                sender,
            );
            let stop = self.stop.child_token();
            let guard = stop.clone().drop_guard();
            tokio::spawn(async move { stop.run_until_cancelled(follow).await });
            Watch {
                synced,
                _stop: guard,
            }
        });
        watch.synced.clone()
    }

    fn events(&self, named: &Named, depth: Depth) -> Events {
        let client = self.client.clone();
        let (namespace, resource) = (named.namespace.as_deref(), &named.resource);
        let config = watcher::Config::default().page_size(500);
        match depth {
            Depth::Metadata => {
                let api: Api<PartialObjectMeta<DynamicObject>> = match namespace {
                    Some(namespace) => Api::namespaced_with(client, namespace, resource),
                    None => Api::all_with(client, resource),
                };
                watcher(api, config)
                    .map_ok(|event| map_event(event, |object| (object.metadata, true)))
                    .boxed()
            }
            Depth::Readiness => {
                let api: Api<DynamicObject> = match namespace {
                    Some(namespace) => Api::namespaced_with(client, namespace, resource),
                    None => Api::all_with(client, resource),
                };
                watcher(api, config)
                    .map_ok(|event| {
                        map_event(event, |object| {
                            let ready = is_ready(&object);
                            (object.metadata, ready)
                        })
                    })
                    .boxed()
            }
        }
    }
}

/// Takes events in without end.
async fn follow(
    mut events: Events,
    (resource, namespace, depth): Scope,
    known: Arc<Mutex<Names>>,
    queue: QueueHandle,
    synced: watch::Sender<bool>,
) {
    let named = |metadata: &ObjectMeta| Named {
        resource: resource.clone(),
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
    };
    let list = Named {
        resource: resource.clone(),
        namespace: namespace.clone(),
        name: None,
    };
    // Of what is only waited for, it does not matter which version it is.
    let version = |metadata: &ObjectMeta| match depth {
        Depth::Metadata => version_of(metadata.resource_version.as_deref()),
        Depth::Readiness => 0,
    };
    let mut listed: HashSet<Named> = HashSet::new();
    let mut newest = 0;
    let mut delay = Duration::from_millis(500);
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                tracing::warn!(kind = %resource.kind, error = &error as &dyn std::error::Error, "what custom resources refer to cannot be watched; trying again");
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(Duration::from_mins(1));
                continue;
            }
        };
        let mut known = lock(&known);
        let (metadata, here) = match event {
            watcher::Event::Init => {
                listed.clear();
                newest = 0;
                continue;
            }
            watcher::Event::InitApply((metadata, here)) => {
                let (named, version) = (named(&metadata), version(&metadata));
                newest = newest.max(version);
                if let Some(known) = find(&mut known, depth, &named) {
                    known.tell(Seen::of(here, version), &queue);
                    listed.insert(named);
                }
                continue;
            }
            watcher::Event::InitDone => {
                delay = Duration::from_millis(500);
                // What vanished while nothing was watched is told of by no event.
                for ((of, named), known) in known.iter_mut() {
                    let in_scope =
                        *of == depth && named.resource == resource && named.namespace == namespace;
                    let was_here = known.told.is_some_and(|told| told.here);
                    if in_scope && named.name.is_some() && was_here && !listed.contains(named) {
                        known.tell(Seen::of(false, u64::MAX), &queue);
                    }
                }
                if let Some(known) = known.get_mut(&(depth, list.clone())) {
                    let lists = known.told.map_or(0, |told| told.lists) + 1;
                    let seen = Seen {
                        lists,
                        ..Seen::of(true, newest)
                    };
                    known.tell(seen, &queue);
                }
                synced.send_replace(true);
                continue;
            }
            watcher::Event::Apply((metadata, here)) => (metadata, here),
            watcher::Event::Delete((metadata, _)) => (metadata, false),
        };
        let version = version(&metadata);
        if let Some(known) = find(&mut known, depth, &named(&metadata)) {
            known.tell(Seen::of(here, version), &queue);
        }
        if let Some(known) = known.get_mut(&(depth, list.clone())) {
            known.tell_version(version, &queue);
        }
    }
}

/// What is known of an object that a watch shows. Whoever waits for one later must not have to wait
/// until it changes.
fn find<'a>(all: &'a mut Names, depth: Depth, named: &Named) -> Option<&'a mut Known> {
    match depth {
        Depth::Metadata => all.get_mut(&(depth, named.clone())),
        Depth::Readiness => Some(all.entry((depth, named.clone())).or_default()),
    }
}

/// Whether the condition `Ready` is true of the present generation.
fn is_ready(object: &DynamicObject) -> bool {
    let conditions = object.data.pointer("/status/conditions");
    conditions
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|condition| condition.get("type").and_then(Value::as_str) == Some("Ready"))
        .any(|condition| {
            let seen = condition.get("observedGeneration").and_then(Value::as_i64);
            condition.get("status").and_then(Value::as_str) == Some("True")
                && (seen.is_none() || seen >= object.metadata.generation)
        })
}

/// Resource versions are numbers that grow (KEP-5504).
fn version_of(version: Option<&str>) -> u64 {
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use serde_json::json;

    use super::*;
    use crate::cluster::scripted::Script;
    use crate::telemetry::metrics::ControllerMetrics;

    fn secret(name: &str, version: &str) -> (ObjectMeta, bool) {
        let metadata = json!({"name": name, "namespace": "a", "resourceVersion": version});
        (serde_json::from_value(metadata).unwrap(), true)
    }

    /// Interests whose watches show what a test says.
    struct Shown {
        interests: Interests,
        resource: ApiResource,
    }

    impl Shown {
        fn new() -> Self {
            let queue = QueueHandle::new(ControllerMetrics::detached("interests"));
            let client = Script::default().client(false);
            Self {
                interests: Interests::new(client, queue, CancellationToken::new()),
                resource: ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&()),
            }
        }

        fn named(&self, name: Option<&str>) -> Named {
            Named {
                resource: self.resource.clone(),
                namespace: Some("a".to_owned()),
                name: name.map(ToOwned::to_owned),
            }
        }

        async fn show(&self, depth: Depth, events: Vec<watcher::Event<(ObjectMeta, bool)>>) {
            let events = stream::iter(events.into_iter().map(Ok)).boxed();
            let scope = self.named(None).scope(depth);
            let known = Arc::clone(&self.interests.known);
            let synced = watch::Sender::new(false);
            follow(events, scope, known, self.interests.queue.clone(), synced).await;
        }
    }

    fn answer(version: u64) -> Value {
        json!({"metadata": {"resourceVersion": version.to_string()}})
    }

    #[tokio::test]
    async fn what_was_read_is_current_until_the_watch_tells_of_something_newer() {
        use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};

        let shown = Shown::new();
        let interests = &shown.interests;
        let key = Key::new(Some("a"), "one");
        let read = |name: Option<&str>, found: Option<u64>| {
            let named = shown.named(name);
            let seen = interests.add(&named, &key);
            let read = seen.read(found.map(answer).as_ref());
            (named, read)
        };
        let (object, absent) = (read(Some("read"), Some(5)), read(Some("absent"), None));
        // Another custom resource has read the same later, and the list.
        let (later, list) = (read(Some("read"), Some(7)), read(None, Some(7)));
        let current = || {
            [&object, &absent, &later, &list]
                .map(|(named, read)| u8::from(interests.is_current(named, *read)))
        };
        let mut found = Vec::new();
        for events in [
            // What was read is listed, beside what nobody named. What had vanished since the list
            // was read is not known.
            vec![
                Init,
                InitApply(secret("read", "5")),
                InitApply(secret("other", "6")),
                InitDone,
            ],
            vec![Apply(secret("read", "7"))],
            vec![Apply(secret("absent", "8"))],
            // It vanished while nothing was watched.
            vec![Init, InitApply(secret("read", "7")), InitDone],
            vec![Delete(secret("read", "9"))],
        ] {
            shown.show(Depth::Metadata, events).await;
            found.push(current());
        }
        let expected = [
            [1, 1, 1, 0],
            [0, 1, 1, 0],
            [0, 0, 1, 0],
            [0, 1, 1, 0],
            [0, 1, 0, 0],
        ];
        assert_eq!(found, expected);
    }

    #[tokio::test]
    async fn a_list_that_was_read_is_current_until_something_in_it_changes() {
        use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};

        let list = || vec![Init, InitApply(secret("x", "5")), InitDone];
        for (events, current) in [
            (vec![], true),
            // The watch has yet to come to what was read.
            (vec![Apply(secret("x", "9"))], true),
            (vec![Apply(secret("new", "11"))], false),
            (vec![Delete(secret("x", "12"))], false),
            // Something may have vanished before.
            (list(), false),
        ] {
            let shown = Shown::new();
            let named = shown.named(None);
            let key = Key::new(Some("a"), "one");
            shown.interests.add(&named, &key);
            shown.show(Depth::Metadata, list()).await;
            let seen = shown.interests.add(&named, &key);
            let read = seen.read(Some(&answer(10)));
            shown.show(Depth::Metadata, events).await;
            assert_eq!(shown.interests.is_current(&named, read), current);
        }
    }

    #[tokio::test]
    async fn what_is_ready_already_is_known_to_whoever_waits_for_it_later() {
        use watcher::Event::{Apply, Init, InitApply, InitDone};

        let shown = Shown::new();
        let first = shown.named(Some("first"));
        let key = Key::new(Some("a"), "one");
        drop(shown.interests.open(&first, Depth::Readiness, &key));
        let (second, _) = secret("second", "2");
        let events = vec![
            Init,
            InitApply(secret("first", "1")),
            InitApply((second, false)),
            InitDone,
            Apply(secret("second", "3")),
        ];
        shown.show(Depth::Readiness, events).await;
        let told = |name: &str| {
            let told = shown
                .interests
                .told(Depth::Readiness, &shown.named(Some(name)));
            told.is_some_and(|seen| seen.here)
        };
        assert!(told("second"));
        shown.interests.forget(&key);
        assert!(!told("second"), "nobody waits any longer");
        assert!(lock(&shown.interests.watches).is_empty());
    }
}

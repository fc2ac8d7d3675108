//! Objects that are not of a release but decide about it: what `valuesFrom` and `lookup` read, and
//! what `dependsOn` waits for.
//!
//! One watch per kind and namespace, opened when the first custom resource names an object there.
//! Events about other objects are dropped as they come, so memory grows with what is named alone.

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
use tokio_util::sync::CancellationToken;

use crate::controller::{Key, Priority, QueueHandle, map_event};

/// Names an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Named {
    pub(super) resource: ApiResource,
    /// `None` for what is cluster-scoped.
    pub(super) namespace: Option<String>,
    pub(super) name: String,
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

/// What is known of a named object.
#[derive(Debug, Default)]
struct Known {
    keys: HashSet<Key>,
    /// Grows with each change.
    changes: u64,
    /// The resource version that was read, and the newest that was told of.
    read: Option<String>,
    told: Option<String>,
    /// Whether it is there, and `Ready` where that is watched.
    here: bool,
}

/// The named objects, each as a watch of a depth shows it.
type Names = HashMap<(Depth, Named), Known>;

impl Known {
    /// Takes in what a watch shows; whether that is news decides about the custom resources.
    fn see(&mut self, here: bool, version: Option<String>, queue: &QueueHandle) {
        let news = self.here != here || (self.read.is_some() && self.read != version);
        self.here = here;
        self.told = version;
        if news {
            self.changed(queue);
        }
    }

    fn changed(&mut self, queue: &QueueHandle) {
        self.changes += 1;
        for key in &self.keys {
            queue.add(key.clone(), Priority::Event);
        }
    }
}

/// The objects that the custom resources of one controller are interested in.
pub(super) struct Interests {
    client: Client,
    queue: QueueHandle,
    stop: CancellationToken,
    known: Arc<Mutex<Names>>,
    scopes: Mutex<HashMap<Scope, watch::Receiver<bool>>>,
}

type Events = BoxStream<'static, Result<watcher::Event<(ObjectMeta, bool)>, watcher::Error>>;

impl Interests {
    pub(super) fn new(client: Client, queue: QueueHandle, stop: CancellationToken) -> Self {
        Self {
            client,
            queue,
            stop,
            known: Arc::default(),
            scopes: Mutex::default(),
        }
    }

    /// Leads changes of an object to a custom resource from now on.
    pub(super) fn add(&self, named: &Named, depth: Depth, key: &Key) -> watch::Receiver<bool> {
        lock(&self.known)
            .entry((depth, named.clone()))
            .or_default()
            .keys
            .insert(key.clone());
        let scope = (named.resource.clone(), named.namespace.clone(), depth);
        let mut scopes = lock(&self.scopes);
        let synced = scopes.entry(scope.clone()).or_insert_with(|| {
            let (sender, receiver) = watch::channel(false);
            let events = self.events(named, depth);
            let follow = follow(
                events,
                scope,
                Arc::clone(&self.known),
                self.queue.clone(),
                sender,
            );
            let stop = self.stop.clone();
            tokio::spawn(async move { stop.run_until_cancelled(follow).await });
            receiver
        });
        synced.clone()
    }

    /// Whether an object is `Ready`; waits until its kind has been listed once.
    pub(super) async fn is_ready(&self, named: &Named, key: &Key) -> bool {
        let mut synced = self.add(named, Depth::Readiness, key);
        // The sender lives as long as the watch; without one nothing is ready.
        let _ = synced.wait_for(|synced| *synced).await;
        lock(&self.known)
            .get(&(Depth::Readiness, named.clone()))
            .is_some_and(|known| known.here)
    }

    /// Takes note of the resource version that was read; `None` if the object was not there.
    pub(super) fn read(&self, named: &Named, version: Option<&str>) {
        if let Some(known) = lock(&self.known).get_mut(&(Depth::Metadata, named.clone())) {
            known.read = version.map(ToOwned::to_owned);
            known.here = version.is_some();
            if number(known.told.as_deref()) > number(version) {
                known.changes += 1;
            }
        }
    }

    /// How often an object has changed since it was first named.
    pub(super) fn changes(&self, named: &Named) -> u64 {
        lock(&self.known)
            .get(&(Depth::Metadata, named.clone()))
            .map_or(0, |known| known.changes)
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
        name: metadata.name.clone().unwrap_or_default(),
    };
    let mut listed: HashSet<Named> = HashSet::new();
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
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply((metadata, here)) => {
                let named = named(&metadata);
                if let Some(known) = known.get_mut(&(depth, named.clone())) {
                    known.see(here, metadata.resource_version, &queue);
                    listed.insert(named);
                }
            }
            watcher::Event::InitDone => {
                delay = Duration::from_millis(500);
                // What vanished while nothing was watched is told of by no event.
                for (_, known) in known.iter_mut().filter(|((of, named), known)| {
                    let in_scope =
                        *of == depth && named.resource == resource && named.namespace == namespace;
                    in_scope && known.here && !listed.contains(named)
                }) {
                    known.here = false;
                    known.changed(&queue);
                }
                synced.send_replace(true);
            }
            watcher::Event::Apply((metadata, here)) => {
                if let Some(known) = known.get_mut(&(depth, named(&metadata))) {
                    known.see(here, metadata.resource_version, &queue);
                }
            }
            watcher::Event::Delete((metadata, _)) => {
                if let Some(known) = known.get_mut(&(depth, named(&metadata))) {
                    known.here = false;
                    known.told = metadata.resource_version;
                    known.changed(&queue);
                }
            }
        }
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

fn number(version: Option<&str>) -> u64 {
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

    #[tokio::test]
    async fn only_what_differs_from_what_was_read_is_a_change() {
        use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};

        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&());
        let queue = QueueHandle::new(ControllerMetrics::detached("interests"));
        let interests = Interests::new(
            Script::default().client(false),
            queue.clone(),
            CancellationToken::new(),
        );
        let named = |name: &str| Named {
            resource: resource.clone(),
            namespace: Some("a".to_owned()),
            name: name.to_owned(),
        };
        let key = Key::new(Some("a"), "one");
        for name in ["read", "absent"] {
            let known = Known {
                keys: [key.clone()].into(),
                ..Known::default()
            };
            lock(&interests.known).insert((Depth::Metadata, named(name)), known);
        }
        interests.read(&named("read"), Some("5"));
        interests.read(&named("absent"), None);

        let mut changes = Vec::new();
        for events in [
            // What was read is listed, beside what nobody named.
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
            let scope = (resource.clone(), Some("a".to_owned()), Depth::Metadata);
            let events = stream::iter(events.into_iter().map(Ok)).boxed();
            let known = Arc::clone(&interests.known);
            let synced = watch::Sender::new(false);
            follow(events, scope, known, queue.clone(), synced).await;
            changes.push(["read", "absent"].map(|name| interests.changes(&named(name))));
        }
        assert_eq!(changes, [[0, 0], [1, 0], [1, 1], [2, 2], [3, 2]]);
    }
}

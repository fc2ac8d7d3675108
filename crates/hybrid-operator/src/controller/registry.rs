//! Watches of dependents, shared by the whole process.
//!
//! A watch is opened when the first release needs it and closed when none does. Each event is
//! reduced at once to a [`Seen`] and the object dropped, and only objects with the operator's label
//! are asked for, so that memory grows with the operator's own objects alone.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind, PartialObjectMeta};
use kube::runtime::watcher;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tracing::{debug, warn};

use super::ended::Ended;
use crate::cluster::drift::ours_hash;
use crate::cluster::ownership::{CrIdentity, OwnerHint, cr_of, is_kept, owner_of};
use crate::readiness::{HookOutcome, Readiness, depends_on_status, readiness_of};

/// What is kept of a dependent.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its uid.
    pub uid: Arc<str>,
    /// Its resource version.
    pub version: u64,
    /// Whether it is on its way out.
    pub deleting: bool,
    /// Hash of what is ours on it; see [`ours_hash`].
    pub ours: u64,
    /// Whether somebody asks to keep it (`helm.sh/resource-policy: keep`).
    pub kept: bool,
    /// Whether it does what it is for.
    pub readiness: Readiness,
    /// The custom resource that its label names.
    pub owner: Option<CrIdentity>,
}

impl Seen {
    /// Whether nothing that concerns a release differs; the resource version alone does not.
    fn same(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.deleting == other.deleting
            && self.ours == other.ours
            && self.readiness == other.readiness
            && self.owner == other.owner
    }
}

/// What is watched.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WatchKey {
    /// The kind.
    pub resource: ApiResource,
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// Label selector.
    pub selector: String,
}

impl WatchKey {
    fn gvk(&self) -> GroupVersionKind {
        let ApiResource {
            group,
            version,
            kind,
            ..
        } = &self.resource;
        GroupVersionKind::gvk(group, version, kind)
    }
}

/// How far a watch is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchState {
    /// The first list is under way.
    Starting,
    /// Every object is known.
    Synced,
    /// It may not be watched: the permission that is missing.
    Forbidden(String),
    /// The kind does not exist.
    Missing,
    /// It fails for another reason and is tried again.
    Failing(String),
}

/// What an object says of whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owners {
    /// Its label.
    pub label: Option<CrIdentity>,
    /// Its controller reference or annotations.
    pub hint: Option<OwnerHint>,
}

impl Owners {
    fn of(metadata: &ObjectMeta) -> Self {
        Self {
            label: cr_of(metadata),
            hint: owner_of(metadata),
        }
    }
}

/// Where changes of dependents go.
pub trait Route: Send + Sync {
    /// Tells of a change of an object of these owners, after its watch knows it.
    fn changed(&self, owners: &Owners);
}

type ObjectName = (Option<Arc<str>>, Arc<str>);

struct Watch {
    state: watch::Sender<WatchState>,
    objects: RwLock<HashMap<ObjectName, Seen>>,
    /// The highest resource version that was told of.
    version: AtomicU64,
    ended: Arc<Ended>,
    task: Mutex<Option<AbortHandle>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = self
            .task
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            task.abort();
        }
    }
}

/// Keeps a watch open, and reads what it has seen.
#[derive(Clone)]
pub struct WatchGuard(Arc<Watch>);

impl WatchGuard {
    /// How far the watch is.
    pub fn state(&self) -> WatchState {
        self.0.state.borrow().clone()
    }

    /// Waits until the first list is known or has failed.
    pub async fn settled(&self) -> WatchState {
        let mut state = self.0.state.subscribe();
        let settled = state.wait_for(|state| *state != WatchState::Starting).await;
        settled.map_or(WatchState::Starting, |state| state.clone())
    }

    /// What is known of an object.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Seen> {
        let key = (namespace.map(Into::into), name.into());
        self.0
            .objects
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
            .cloned()
    }

    /// The highest resource version that the watch has told of: what was written before and is not
    /// known here is gone.
    pub fn version(&self) -> u64 {
        self.0.version.load(Ordering::SeqCst)
    }

    /// How the Job or Pod of a hook has ended, also when it is gone; `None` if the watch has not
    /// seen its end, or has seen a thousand others since.
    pub fn outcome(&self, uid: &str) -> Option<HookOutcome> {
        self.0.ended.get(uid)
    }

    /// The objects of a custom resource: namespace, name and what is known.
    pub fn owned_by(&self, owner: &CrIdentity) -> Vec<(Option<Arc<str>>, Arc<str>, Seen)> {
        let objects = self
            .0
            .objects
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        objects
            .iter()
            .filter(|(_, seen)| seen.owner.as_ref() == Some(owner))
            .map(|((namespace, name), seen)| (namespace.clone(), Arc::clone(name), seen.clone()))
            .collect()
    }
}

/// The watches of a process.
#[derive(Clone)]
pub struct Registry(Arc<Inner>);

struct Inner {
    client: Client,
    watches: Mutex<HashMap<WatchKey, Weak<Watch>>>,
    routes: RwLock<Vec<Arc<dyn Route>>>,
}

impl Registry {
    /// No watches yet.
    pub fn new(client: Client) -> Self {
        Self(Arc::new(Inner {
            client,
            watches: Mutex::default(),
            routes: RwLock::default(),
        }))
    }

    /// Tells `route` of every change from now on.
    pub fn add_route(&self, route: Arc<dyn Route>) {
        self.0
            .routes
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push(route);
    }

    /// Opens a watch, or shares the one that is open.
    pub fn acquire(&self, key: WatchKey) -> WatchGuard {
        let mut watches = self
            .0
            .watches
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(present) = watches.get(&key).and_then(Weak::upgrade) {
            return WatchGuard(present);
        }
        watches.retain(|_, watch| watch.strong_count() > 0);
        let watch = Arc::new(Watch {
            state: watch::Sender::new(WatchState::Starting),
            objects: RwLock::default(),
            version: AtomicU64::new(0),
            ended: Arc::default(),
            task: Mutex::new(None),
        });
        let task = tokio::spawn(follow(
            Arc::downgrade(&self.0),
            key.clone(),
            Arc::downgrade(&watch),
            Arc::clone(&watch.ended),
        ));
        *watch.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task.abort_handle());
        watches.insert(key, Arc::downgrade(&watch));
        WatchGuard(watch)
    }

    /// How many watches are open.
    pub fn open(&self) -> usize {
        let watches = self
            .0
            .watches
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        watches
            .values()
            .filter(|watch| watch.strong_count() > 0)
            .count()
    }
}

impl Inner {
    fn changed(&self, owners: &Owners) {
        for route in self
            .routes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            route.changed(owners);
        }
    }
}

/// A list that is under way. Nothing of it counts before its end: whoever looked meanwhile would
/// find that nothing is known yet, and would not be told again.
#[derive(Default)]
struct Listing {
    objects: HashMap<ObjectName, Seen>,
    changed: HashSet<Owners>,
}

/// An event with what was kept of its object.
type Reduced = watcher::Event<(ObjectMeta, Readiness)>;

/// Follows one watch for as long as somebody holds it.
async fn follow(inner: Weak<Inner>, key: WatchKey, watch: Weak<Watch>, ended: Arc<Ended>) {
    let gvk = key.gvk();
    let Some(client) = inner.upgrade().map(|inner| inner.client.clone()) else {
        return;
    };
    // One request instead of two, and no list that is held whole, where the server knows how.
    let mut streaming = true;
    let mut events = open(&client, &key, streaming, &ended);
    let mut listing = Listing::default();
    let mut delay = Duration::from_millis(500);
    while let Some(event) = events.next().await {
        let (Some(inner), Some(watch)) = (inner.upgrade(), watch.upgrade()) else {
            return;
        };
        match event {
            Ok(event) => {
                if !matches!(event, watcher::Event::Init) {
                    delay = Duration::from_millis(500);
                }
                watch.apply(event, &mut listing, &inner);
            }
            Err(error) if streaming && is_refused(&error) => {
                streaming = false;
                events = open(&client, &key, streaming, &ended);
            }
            Err(error) => {
                let state = state_of(&error, &key);
                // What was seen stays true until the watch goes on, which tells of what has changed
                // meanwhile. A watch that is refused begins anew: only its list says that it is
                // allowed again.
                let broken = matches!(state, WatchState::Failing(_));
                if !broken {
                    events = open(&client, &key, streaming, &ended);
                }
                if watch.state.send_if_modified(|present| {
                    let changed = *present != state && !(broken && *present == WatchState::Synced);
                    if changed {
                        *present = state.clone();
                    }
                    changed
                }) {
                    warn!(kind = %gvk.kind, error = &error as &dyn std::error::Error, "a watch failed");
                }
                drop((inner, watch));
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(Duration::from_mins(1));
            }
        }
    }
    debug!(kind = %gvk.kind, "a watch ended");
}

/// Opens the stream of a watch.
fn open(
    client: &Client,
    key: &WatchKey,
    streaming: bool,
    ended: &Arc<Ended>,
) -> BoxStream<'static, Result<Reduced, watcher::Error>> {
    let gvk = key.gvk();
    let client = client.clone();
    let mut config = watcher::Config::default().labels(&key.selector);
    config = if streaming {
        config.streaming_lists()
    } else {
        config.page_size(500)
    };
    if depends_on_status(&gvk) {
        let api: Api<DynamicObject> = match &key.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &key.resource),
            None => Api::all_with(client, &key.resource),
        };
        let ended = Arc::clone(ended);
        watcher(api, config)
            .map_ok(move |event| {
                map_event(event, |object| {
                    let value = serde_json::to_value(&object).unwrap_or_default();
                    ended.note(&gvk, &object.metadata, &value);
                    (object.metadata, readiness_of(&gvk, &value))
                })
            })
            .boxed()
    } else {
        // Metadata is all that is asked for.
        let api: Api<PartialObjectMeta<DynamicObject>> = match &key.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &key.resource),
            None => Api::all_with(client, &key.resource),
        };
        watcher(api, config)
            .map_ok(|event| {
                map_event(event, |object| {
                    let leaving = object.metadata.deletion_timestamp.is_some();
                    let readiness = if leaving {
                        Readiness::Terminating
                    } else {
                        Readiness::Ready
                    };
                    (object.metadata, readiness)
                })
            })
            .boxed()
    }
}

/// Whether the server does not know streaming lists.
fn is_refused(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status))
        if matches!(status.code, 400 | 422))
}

/// An event with something else made of its objects.
pub(crate) fn map_event<A, B>(event: watcher::Event<A>, map: impl Fn(A) -> B) -> watcher::Event<B> {
    match event {
        watcher::Event::Apply(object) => watcher::Event::Apply(map(object)),
        watcher::Event::Delete(object) => watcher::Event::Delete(map(object)),
        watcher::Event::InitApply(object) => watcher::Event::InitApply(map(object)),
        watcher::Event::Init => watcher::Event::Init,
        watcher::Event::InitDone => watcher::Event::InitDone,
    }
}

fn state_of(error: &watcher::Error, key: &WatchKey) -> WatchState {
    let source = match error {
        watcher::Error::InitialListFailed(source)
        | watcher::Error::WatchStartFailed(source)
        | watcher::Error::WatchFailed(source) => Some(source),
        _ => None,
    };
    match source {
        Some(kube::Error::Api(status)) if status.code == 403 => WatchState::Forbidden(format!(
            "list and watch {}{}",
            key.resource.plural,
            if key.resource.group.is_empty() {
                String::new()
            } else {
                format!(".{}", key.resource.group)
            }
        )),
        Some(kube::Error::Api(status)) if status.code == 404 => WatchState::Missing,
        _ => WatchState::Failing(error.to_string()),
    }
}

impl Watch {
    /// Takes an event in and tells of what it changed.
    fn apply(&self, event: Reduced, listing: &mut Listing, inner: &Inner) {
        if let watcher::Event::Apply((metadata, _))
        | watcher::Event::Delete((metadata, _))
        | watcher::Event::InitApply((metadata, _)) = &event
        {
            self.version
                .fetch_max(version_of(metadata), Ordering::SeqCst);
        }
        match event {
            watcher::Event::Init => *listing = Listing::default(),
            watcher::Event::InitApply((metadata, readiness)) => {
                let (name, seen) = reduce(&metadata, readiness);
                if !self.get(&name).is_some_and(|known| known.same(&seen)) {
                    listing.changed.insert(Owners::of(&metadata));
                }
                listing.objects.insert(name, seen);
            }
            watcher::Event::InitDone => {
                let Listing { objects, changed } = std::mem::take(listing);
                let before = std::mem::replace(&mut *self.write(), objects);
                let gone = before
                    .into_iter()
                    .filter(|(name, _)| self.get(name).is_none())
                    .map(|(_, seen)| Owners {
                        label: seen.owner,
                        hint: None,
                    });
                self.state.send_replace(WatchState::Synced);
                for owners in gone.chain(changed) {
                    inner.changed(&owners);
                }
            }
            watcher::Event::Apply((metadata, readiness)) => {
                let (name, seen) = reduce(&metadata, readiness);
                let before = self.write().insert(name, seen.clone());
                if !before.is_some_and(|known| known.same(&seen)) {
                    inner.changed(&Owners::of(&metadata));
                }
            }
            watcher::Event::Delete((metadata, readiness)) => {
                let (name, _) = reduce(&metadata, readiness);
                self.write().remove(&name);
                inner.changed(&Owners::of(&metadata));
            }
        }
    }

    fn get(&self, name: &ObjectName) -> Option<Seen> {
        self.objects
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned()
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<ObjectName, Seen>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn reduce(metadata: &ObjectMeta, readiness: Readiness) -> (ObjectName, Seen) {
    let name = (
        metadata.namespace.as_deref().map(Into::into),
        metadata.name.as_deref().unwrap_or_default().into(),
    );
    let seen = Seen {
        uid: metadata.uid.as_deref().unwrap_or_default().into(),
        version: version_of(metadata),
        deleting: metadata.deletion_timestamp.is_some(),
        ours: ours_hash(metadata),
        kept: is_kept(metadata),
        readiness,
        owner: cr_of(metadata),
    };
    (name, seen)
}

/// Resource versions are numbers that grow (KEP-5504).
fn version_of(metadata: &ObjectMeta) -> u64 {
    metadata
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::scripted::Script;

    /// What a route was told, and how far the watch was then.
    struct Told {
        watch: Arc<Watch>,
        calls: Mutex<Vec<(Option<CrIdentity>, WatchState, usize)>>,
    }

    impl Route for Told {
        fn changed(&self, owners: &Owners) {
            let state = self.watch.state.borrow().clone();
            let known = self.watch.objects.read().unwrap().len();
            let call = (owners.label.clone(), state, known);
            self.calls.lock().unwrap().push(call);
        }
    }

    fn object(name: &str, label: &str, version: u64) -> (ObjectMeta, Readiness) {
        let metadata = json!({
            "name": name, "namespace": "a", "uid": name, "resourceVersion": version.to_string(),
            "labels": {crate::cluster::ownership::CR_LABEL: label},
        });
        (serde_json::from_value(metadata).unwrap(), Readiness::Ready)
    }

    #[tokio::test]
    async fn a_list_is_told_of_when_it_is_known_and_only_as_far_as_it_differs() {
        use watcher::Event::{Delete, Init, InitApply, InitDone};

        let watch = Arc::new(Watch {
            state: watch::Sender::new(WatchState::Starting),
            objects: RwLock::default(),
            version: AtomicU64::new(0),
            ended: Arc::default(),
            task: Mutex::default(),
        });
        let route = Arc::new(Told {
            watch: Arc::clone(&watch),
            calls: Mutex::default(),
        });
        let registry = Registry::new(Script::default().client(false));
        registry.add_route(Arc::clone(&route) as Arc<dyn Route>);
        let mut listing = Listing::default();
        let mut told = |events: Vec<Reduced>| {
            for event in events {
                watch.apply(event, &mut listing, &registry.0);
            }
            let mut calls = std::mem::take(&mut *route.calls.lock().unwrap());
            calls.sort_by_key(|(label, ..)| label.clone());
            calls
        };
        let call = |label: &str, known| {
            let label = CrIdentity::from_label(label);
            (Some(label), WatchState::Synced, known)
        };
        // Two objects of one custom resource are one call.
        let first = vec![
            Init,
            InitApply(object("one", "x", 1)),
            InitApply(object("two", "x", 2)),
            InitApply(object("three", "y", 3)),
        ];
        assert_eq!(told(first), []);
        assert_eq!(told(vec![InitDone]), [call("x", 3), call("y", 3)]);
        // Nothing has changed but a version; one is gone.
        let second = vec![
            Init,
            InitApply(object("one", "x", 1)),
            InitApply(object("two", "x", 4)),
            InitDone,
        ];
        assert_eq!(told(second), [call("y", 2)]);
        // A list that breaks off leaves nothing behind.
        let third = vec![
            Init,
            InitApply(object("four", "z", 5)),
            Init,
            InitApply(object("one", "x", 1)),
            InitApply(object("two", "x", 4)),
            InitDone,
        ];
        assert_eq!(told(third), []);
        assert_eq!(told(vec![Delete(object("two", "x", 6))]), [call("x", 1)]);
    }
}

//! Watches of dependents, shared by the whole process.
//!
//! A watch is opened when the first release needs it. When none does any longer it stays open for a
//! while, so that looking at a release and letting go of it opens and closes nothing. Each event is
//! reduced at once to a [`Seen`] and the object dropped, and only objects with the operator's label
//! are asked for, so that memory grows with the operator's own objects alone.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tracing::debug;

use super::ended::Ended;
use super::follow::{
    Events, Follower, Lists, Subject, WatchState, follow, map_event, metadata, whole,
};
use crate::cluster::drift::ours_hash;
use crate::cluster::ownership::{CrIdentity, OwnerHint, cr_of, is_kept, owner_of};
use crate::readiness::{HookOutcome, Readiness, depends_on_status, readiness_of};
use crate::telemetry::metrics::WatchMetrics;

/// How long a watch that nobody holds stays open, at least; at most twice as long.
const LINGER: Duration = Duration::from_mins(2);

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
    subject: Subject,
    state: watch::Sender<WatchState>,
    objects: RwLock<HashMap<ObjectName, Seen>>,
    /// The highest resource version that was told of.
    version: AtomicU64,
    /// How Jobs and Pods of hooks have ended.
    ended: Arc<Ended>,
    /// Whether somebody has looked while not every object was known, and must be told when they
    /// are.
    awaited: AtomicBool,
    /// Custom resources to be told of the next state.
    waiting: Mutex<HashSet<CrIdentity>>,
    /// Whether nobody held the watch when it was last looked at.
    idle: AtomicBool,
    task: Mutex<Option<AbortHandle>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }
}

/// Keeps a watch open, and reads what it has seen.
///
/// Who finds it in another state than [`WatchState::Synced`] knows nothing of the objects. Once they
/// are known, the owners of all of them are told.
#[derive(Clone)]
pub struct WatchGuard(Arc<Watch>);

impl WatchGuard {
    /// How far the watch is.
    pub fn state(&self) -> WatchState {
        self.0.look()
    }

    /// Waits until the first list is known or has failed.
    pub async fn settled(&self) -> WatchState {
        let mut state = self.0.state.subscribe();
        // The sender lives as long as `self`.
        let _ = state.wait_for(|state| *state != WatchState::Starting).await;
        self.0.look()
    }

    /// What keeps the objects from being watched and what to do about it, as a sentence for a
    /// condition; `None` while they are watched, or are about to be.
    pub fn problem(&self) -> Option<String> {
        self.0.subject.problem(&self.0.state.borrow())
    }

    /// Tells the routes of this custom resource when the watch gets into another state than it is
    /// in now, even if none of its objects is found then. Nothing happens where every object is
    /// known already.
    pub fn wake_when_known(&self, owner: &CrIdentity) {
        let mut waiting = lock(&self.0.waiting);
        if self.0.look() != WatchState::Synced {
            waiting.insert(owner.clone());
        }
    }

    /// What is known of an object.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Seen> {
        // Before the objects are known, nobody may conclude that one is not there.
        self.0.look();
        self.0.get(&(namespace.map(Into::into), name.into()))
    }

    /// The highest resource version that the watch has told of: what was written before and is not
    /// known here is gone.
    pub fn version(&self) -> u64 {
        self.0.version.load(Ordering::SeqCst)
    }

    /// The objects of a custom resource: namespace, name and what is known.
    pub fn owned_by(&self, owner: &CrIdentity) -> Vec<(Option<Arc<str>>, Arc<str>, Seen)> {
        self.0.look();
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

    /// How the Job or Pod of a hook has ended, also when it is gone; `None` if the watch has not
    /// seen its end, or has seen a thousand others since.
    pub fn outcome(&self, uid: &str) -> Option<HookOutcome> {
        self.0.ended.get(uid)
    }
}

/// The watches of a process.
#[derive(Clone)]
pub struct Registry(Arc<Inner>);

struct Inner {
    client: Client,
    metrics: WatchMetrics,
    linger: Duration,
    watches: Mutex<HashMap<WatchKey, Arc<Watch>>>,
    /// Whether the task runs that closes watches.
    housekeeping: AtomicBool,
    routes: RwLock<Vec<Arc<dyn Route>>>,
}

impl Registry {
    /// No watches yet.
    pub fn new(client: Client) -> Self {
        Self::with(client, WatchMetrics::default(), LINGER)
    }

    /// No watches yet; their restarts are counted.
    pub(crate) fn counted(client: Client, metrics: WatchMetrics) -> Self {
        Self::with(client, metrics, LINGER)
    }

    fn with(client: Client, metrics: WatchMetrics, linger: Duration) -> Self {
        Self(Arc::new(Inner {
            client,
            metrics,
            linger,
            watches: Mutex::default(),
            housekeeping: AtomicBool::new(false),
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
        let mut watches = lock(&self.0.watches);
        if let Some(present) = watches.get(&key) {
            present.idle.store(false, Ordering::SeqCst);
            return WatchGuard(Arc::clone(present));
        }
        let watch = Arc::new(Watch::new(Subject::new(
            key.resource.clone(),
            key.namespace.as_deref(),
        )));
        let task = tokio::spawn(self.0.follow(&key, &watch));
        *lock(&watch.task) = Some(task.abort_handle());
        watches.insert(key, Arc::clone(&watch));
        if !self.0.housekeeping.swap(true, Ordering::SeqCst) {
            tokio::spawn(close_idle(Arc::downgrade(&self.0), self.0.linger));
        }
        WatchGuard(watch)
    }
}

/// Closes what nobody held at two looks in a row, until the registry is dropped.
async fn close_idle(inner: Weak<Inner>, linger: Duration) {
    loop {
        tokio::time::sleep(linger).await;
        let Some(inner) = inner.upgrade() else {
            return;
        };
        lock(&inner.watches).retain(|key, watch| {
            // The map holds it, and each guard does. Guards are made under the lock alone.
            let held = Arc::strong_count(watch) > 1;
            let was_idle = watch.idle.swap(!held, Ordering::SeqCst);
            let close = !held && was_idle;
            if close {
                debug!(kind = %key.resource.kind, "a watch is closed: nobody needs it");
            }
            !close
        });
    }
}

impl Inner {
    /// Follows one watch for as long as it is open.
    fn follow(
        self: &Arc<Self>,
        key: &WatchKey,
        watch: &Arc<Watch>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (client, selector) = (self.client.clone(), key.selector.clone());
        let (subject, gvk) = (watch.subject.clone(), key.gvk());
        let ended = Arc::clone(&watch.ended);
        let open = move |lists| events(&client, &subject, &gvk, lists, &selector, &ended);
        let reader = Reader {
            inner: Arc::downgrade(self),
            watch: Arc::downgrade(watch),
            listing: Listing::default(),
            distrusted: false,
        };
        follow(
            watch.subject.clone(),
            self.metrics.clone(),
            Lists::Streaming,
            open,
            reader,
        )
    }

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
    /// Owners of all objects in it.
    owners: HashSet<Owners>,
    /// Owners of those that differ from what was known.
    changed: HashSet<Owners>,
}

/// Takes in what a watch shows.
struct Reader {
    inner: Weak<Inner>,
    watch: Weak<Watch>,
    listing: Listing,
    /// Whether the next list is to be told of as a whole.
    distrusted: bool,
}

impl Follower for Reader {
    type Object = (ObjectMeta, Readiness);

    fn event(&mut self, event: Reduced) {
        if let (Some(inner), Some(watch)) = (self.inner.upgrade(), self.watch.upgrade()) {
            watch.apply(event, &mut self.listing, &mut self.distrusted, &inner);
        }
    }

    fn state(&mut self, state: &WatchState) {
        let (Some(inner), Some(watch)) = (self.inner.upgrade(), self.watch.upgrade()) else {
            return;
        };
        watch.state.send_replace(state.clone());
        let waiting = std::mem::take(&mut *lock(&watch.waiting));
        for owner in waiting {
            inner.changed(&Owners {
                label: Some(owner),
                hint: None,
            });
        }
    }

    fn distrust(&mut self) {
        self.distrusted = true;
    }
}

/// An event with what was kept of its object.
type Reduced = watcher::Event<(ObjectMeta, Readiness)>;

/// Opens the stream of a watch.
fn events(
    client: &Client,
    subject: &Subject,
    gvk: &GroupVersionKind,
    lists: Lists,
    selector: &str,
    ended: &Arc<Ended>,
) -> Events<(ObjectMeta, Readiness)> {
    if depends_on_status(gvk) {
        let (gvk, ended) = (gvk.clone(), Arc::clone(ended));
        whole(client, subject, lists, Some(selector))
            .map_ok(move |event| {
                map_event(event, |object| {
                    let value = serde_json::to_value(&object).unwrap_or_default();
                    ended.note(&gvk, &object.metadata, &value);
                    (object.metadata, readiness_of(&gvk, &value))
                })
            })
            .boxed()
    } else {
        metadata(client, subject, lists, Some(selector))
            .map_ok(|event| {
                map_event(event, |metadata: ObjectMeta| {
                    let leaving = metadata.deletion_timestamp.is_some();
                    let readiness = if leaving {
                        Readiness::Terminating
                    } else {
                        Readiness::Ready
                    };
                    (metadata, readiness)
                })
            })
            .boxed()
    }
}

impl Watch {
    fn new(subject: Subject) -> Self {
        Self {
            subject,
            state: watch::Sender::new(WatchState::Starting),
            objects: RwLock::default(),
            version: AtomicU64::new(0),
            ended: Arc::default(),
            awaited: AtomicBool::new(false),
            waiting: Mutex::default(),
            idle: AtomicBool::new(false),
            task: Mutex::default(),
        }
    }

    /// How far the watch is. Whoever looks while objects are not known is told when they are.
    fn look(&self) -> WatchState {
        let state = self.state.borrow().clone();
        if state == WatchState::Synced {
            return state;
        }
        // It is noted before the state is read again, and the end of a list sets the state before
        // it reads the note: so one of the two sees the other.
        self.awaited.store(true, Ordering::SeqCst);
        self.state.borrow().clone()
    }

    /// Takes an event in and tells of what it changed.
    fn apply(&self, event: Reduced, listing: &mut Listing, all: &mut bool, inner: &Inner) {
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
                let owners = Owners::of(&metadata);
                if !self.get(&name).is_some_and(|known| known.same(&seen)) {
                    listing.changed.insert(owners.clone());
                }
                listing.owners.insert(owners);
                listing.objects.insert(name, seen);
            }
            watcher::Event::InitDone => self.listed(std::mem::take(listing), all, inner),
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

    /// Takes in the end of a list. The first one is news to nobody but who has looked before it.
    fn listed(&self, listing: Listing, all: &mut bool, inner: &Inner) {
        let first = *self.state.borrow() == WatchState::Starting;
        let before = std::mem::replace(&mut *self.write(), listing.objects);
        let gone: HashSet<Owners> = before
            .into_iter()
            .filter(|(name, _)| self.get(name).is_none())
            .map(|(_, seen)| Owners {
                label: seen.owner,
                hint: None,
            })
            .collect();
        self.state.send_replace(WatchState::Synced);
        let awaited = self.awaited.swap(false, Ordering::SeqCst);
        let told = if std::mem::take(all) || awaited {
            listing.owners
        } else if first {
            HashSet::new()
        } else {
            listing.changed
        };
        for owners in gone.iter().chain(told.difference(&gone)) {
            inner.changed(owners);
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    use k8s_openapi::api::core::v1::Secret;
    use kube::client::Body;
    use serde_json::json;
    use watcher::Event::{Delete, Init, InitApply, InitDone};

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
            lock(&self.calls).push(call);
        }
    }

    /// A watch that is shown what a test says, and who is told of it.
    struct Stage {
        _registry: Registry,
        watch: WatchGuard,
        reader: Reader,
        route: Arc<Told>,
    }

    impl Stage {
        fn new() -> Self {
            let subject = Subject::new(ApiResource::erase::<Secret>(&()), Some("a"));
            let watch = Arc::new(Watch::new(subject));
            let route = Arc::new(Told {
                watch: Arc::clone(&watch),
                calls: Mutex::default(),
            });
            let registry = Registry::new(Script::default().client(false));
            registry.add_route(Arc::clone(&route) as Arc<dyn Route>);
            let reader = Reader {
                inner: Arc::downgrade(&registry.0),
                watch: Arc::downgrade(&watch),
                listing: Listing::default(),
                distrusted: false,
            };
            Self {
                _registry: registry,
                watch: WatchGuard(watch),
                reader,
                route,
            }
        }

        /// Shows events; the custom resources that are told of them.
        fn show(&mut self, events: Vec<Reduced>) -> Vec<(Option<CrIdentity>, WatchState, usize)> {
            for event in events {
                self.reader.event(event);
            }
            self.told()
        }

        fn told(&self) -> Vec<(Option<CrIdentity>, WatchState, usize)> {
            let mut calls = std::mem::take(&mut *lock(&self.route.calls));
            calls.sort_by_key(|(label, ..)| label.clone());
            calls
        }
    }

    fn object(name: &str, label: &str, version: u64) -> (ObjectMeta, Readiness) {
        let metadata = json!({
            "name": name, "namespace": "a", "uid": name, "resourceVersion": version.to_string(),
            "labels": {crate::cluster::ownership::CR_LABEL: label},
        });
        (serde_json::from_value(metadata).unwrap(), Readiness::Ready)
    }

    /// A call for the owner `label` while all of `known` objects are known.
    fn call(label: &str, known: usize) -> (Option<CrIdentity>, WatchState, usize) {
        let label = CrIdentity::from_label(label);
        (Some(label), WatchState::Synced, known)
    }

    #[tokio::test]
    async fn a_list_is_told_of_when_it_is_known_and_only_as_far_as_it_differs() {
        let mut stage = Stage::new();
        assert_eq!(stage.watch.state(), WatchState::Starting);
        // Two objects of one custom resource are one call.
        let first = vec![
            Init,
            InitApply(object("one", "x", 1)),
            InitApply(object("two", "x", 2)),
            InitApply(object("three", "y", 3)),
        ];
        assert_eq!(stage.show(first), []);
        assert_eq!(stage.show(vec![InitDone]), [call("x", 3), call("y", 3)]);
        // Nothing has changed but a version; one is gone.
        let second = vec![
            Init,
            InitApply(object("one", "x", 1)),
            InitApply(object("two", "x", 4)),
            InitDone,
        ];
        assert_eq!(stage.show(second), [call("y", 2)]);
        // A list that breaks off leaves nothing behind.
        let third = vec![
            Init,
            InitApply(object("four", "z", 5)),
            Init,
            InitApply(object("one", "x", 1)),
            InitApply(object("two", "x", 4)),
            InitDone,
        ];
        assert_eq!(stage.show(third), []);
        let gone = stage.show(vec![Delete(object("two", "x", 6))]);
        assert_eq!(gone, [call("x", 1)]);
    }

    /// A way to look at a watch.
    type Look = fn(&WatchGuard);

    #[tokio::test]
    async fn a_first_list_wakes_nobody_who_has_not_looked_before_it() {
        let list = || vec![Init, InitApply(object("one", "x", 1)), InitDone];
        let looks: [(&str, Look); 3] = [
            ("state", |watch| drop(watch.state())),
            ("object", |watch| drop(watch.get(Some("a"), "one"))),
            ("problem", |watch| drop(watch.problem())),
        ];
        for (how, look) in looks {
            let mut stage = Stage::new();
            look(&stage.watch);
            let told = stage.show(list());
            let expected = if how == "problem" {
                vec![]
            } else {
                vec![call("x", 1)]
            };
            assert_eq!(told, expected, "{how}");
            // What is known now wakes nobody, however it is looked at.
            look(&stage.watch);
            assert_eq!(stage.show(list()), [], "{how}");
        }
    }

    #[tokio::test]
    async fn whoever_found_a_refused_watch_is_told_when_it_is_permitted_again() {
        let mut stage = Stage::new();
        let list = || vec![Init, InitApply(object("one", "x", 1)), InitDone];
        stage.show(list());
        assert_eq!(stage.watch.problem(), None);
        let permission = "watch secrets in namespace a".to_owned();
        stage.reader.state(&WatchState::Forbidden(permission));
        let problem = stage.watch.problem().unwrap();
        for part in [
            "cannot watch secrets in namespace a",
            "grant",
            "list and watch",
        ] {
            assert!(problem.contains(part), "{part} is not in {problem}");
        }
        assert_ne!(stage.watch.state(), WatchState::Synced);
        assert_eq!(stage.show(list()), [call("x", 1)]);
        assert_eq!(stage.watch.problem(), None);
    }

    #[tokio::test]
    async fn an_owner_whose_object_is_gone_before_the_first_list_is_woken_by_it() {
        let x = CrIdentity::from_label("x");
        let mut stage = Stage::new();
        stage.watch.wake_when_known(&x);
        // Its object was deleted as soon as it was made, so no list and no event shows it.
        stage.show(vec![Init, InitDone]);
        stage.reader.state(&WatchState::Synced);
        assert_eq!(stage.told(), [call("x", 0)]);
        stage.watch.wake_when_known(&x);
        stage.reader.state(&WatchState::Missing);
        assert_eq!(stage.told(), [], "everything was known");
        stage.watch.wake_when_known(&x);
        let permission = WatchState::Forbidden("list secrets".to_owned());
        stage.reader.state(&permission);
        assert_eq!(stage.told(), [(Some(x), permission, 0)]);
    }

    #[tokio::test]
    async fn after_a_panic_the_next_list_is_told_of_as_a_whole() {
        let mut stage = Stage::new();
        let list = || vec![Init, InitApply(object("one", "x", 1)), InitDone];
        stage.show(list());
        stage.reader.distrust();
        assert_eq!(stage.show(list()), [call("x", 1)]);
        assert_eq!(stage.show(list()), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_nobody_holds_stays_open_for_a_while() {
        let silent = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>()
        });
        let minute = Duration::from_mins(1);
        let client = Client::new(silent, "default");
        let registry = Registry::with(client, WatchMetrics::default(), minute);
        let key = WatchKey {
            resource: ApiResource::erase::<Secret>(&()),
            namespace: None,
            selector: String::new(),
        };
        let open = || lock(&registry.0.watches).len();
        let first = registry.acquire(key.clone());
        let same = Arc::downgrade(&first.0);
        drop(first);
        // Whoever comes back within the time finds what was seen.
        for _ in 0..10 {
            tokio::time::sleep(minute / 2).await;
            let again = registry.acquire(key.clone());
            assert!(std::ptr::eq(Arc::as_ptr(&again.0), same.as_ptr()));
        }
        let held = registry.acquire(key);
        tokio::time::sleep(5 * minute).await;
        assert_eq!(open(), 1, "it is held");
        drop(held);
        tokio::time::sleep(minute / 2).await;
        assert_eq!(open(), 1, "it was let go just now");
        tokio::time::sleep(2 * minute).await;
        assert_eq!(open(), 0);
        assert_eq!(same.strong_count(), 0, "its task has ended");
    }
}

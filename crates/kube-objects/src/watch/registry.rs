//! Watches of dependents, shared by the whole process.
//!
//! A watch is opened when the first release needs it, and stays open for a while after the last
//! one, so that briefly releasing and acquiring it does not reopen it. Each event is reduced at
//! once to a [`DependentState`], and only objects with the operator's label are watched, so that
//! memory use only depends on the operator's own objects.

use host::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use host::watch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::task::AbortHandle;
use tracing::debug;

use super::Restarts;
use super::ended::HookOutcomes;
use super::fields::Fields;
use super::follow::{
    Events, Follower, Lists, WatchState, WatchTarget, follow, map_event, metadata, whole,
};
use crate::drift::ours_hash;
use crate::ownership::{CrIdentity, OwnerHint, cr_of, holder_of, is_kept, owner_of};
use crate::readiness::{HookOutcome, Readiness, depends_on_status, readiness_of};
use crate::shards::{By, Shards, Share};
use crate::shared_text::shared;

/// Minimum time that an unused watch stays open; at most twice as long.
const LINGER: Duration = Duration::from_mins(2);

/// The stored state of a dependent.
#[derive(Debug, Clone)]
pub struct DependentState {
    /// Uid of the dependent.
    pub uid: Arc<str>,
    /// Resource version of the dependent.
    pub version: u64,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Hash of the fields that the operator owns; see [`ours_hash`].
    pub ours: u64,
    /// Whether it is annotated with `helm.sh/resource-policy: keep`.
    pub kept: bool,
    /// Uid of its controller, if it is annotated so and has one still.
    pub holder: Option<Arc<str>>,
    /// Readiness of the dependent.
    pub readiness: Readiness,
    /// The custom resource that its label names.
    pub owner: Option<CrIdentity>,
    /// Fields that the watch keeps; `None` if it keeps none.
    pub fields: Option<Arc<Value>>,
}

impl DependentState {
    /// Returns whether nothing that is relevant to a release differs; the resource version is not.
    fn same(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.deleting == other.deleting
            && self.ours == other.ours
            && self.holder == other.holder
            && self.readiness == other.readiness
            && self.owner == other.owner
            && self.fields == other.fields
    }
}

/// Identifies a watch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WatchKey {
    /// The kind.
    pub resource: ApiResource,
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// Label selector.
    pub selector: String,
    /// Fields of the objects that are kept.
    pub fields: Option<Arc<Fields>>,
    /// Choice of the objects that this process handles.
    pub by: By,
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

/// The owners that an object's metadata names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owners {
    /// The custom resource that its label names.
    pub label: Option<CrIdentity>,
    /// The owner that its controller reference or annotations name.
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

/// Change of a dependent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The readiness of an object may differ, or what is known of it.
    Readiness,
    /// Only its fields differ, or it is gone.
    Object,
}

/// Receives changes of dependents.
pub trait Route: Send + Sync {
    /// Called after a watch has recorded a change of an object with these owners.
    fn changed(&self, owners: &Owners, change: Change);
}

type ObjectName = (Option<Arc<str>>, Arc<str>);

struct SharedWatch {
    target: WatchTarget,
    state: watch::Sender<WatchState>,
    objects: RwLock<HashMap<ObjectName, DependentState>>,
    /// The highest resource version in any event.
    version: AtomicU64,
    /// Number of lists that have ended.
    lists: AtomicU64,
    /// Outcomes of Jobs and Pods that may be gone before anybody asks for them.
    outcomes: Arc<HookOutcomes>,
    /// Whether somebody read the watch while not every object was known, and must be notified once
    /// they are.
    read_early: AtomicBool,
    /// Objects of which somebody awaits a later version.
    outdated: Mutex<HashSet<ObjectName>>,
    /// Custom resources to wake on the next change of state.
    waiting: Mutex<HashSet<CrIdentity>>,
    /// Whether nobody held the watch at the last check.
    idle: AtomicBool,
    task: Mutex<Option<AbortHandle>>,
}

impl Drop for SharedWatch {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

/// Keeps a watch open, and gives access to its objects.
///
/// In any state but [`WatchState::Synced`], objects may be missing or out of date. If the watch is
/// read in such a state, the owners of all objects are notified once they are known.
#[derive(Clone)]
pub struct WatchGuard(Arc<SharedWatch>);

impl WatchGuard {
    /// Returns the state of the watch.
    pub fn state(&self) -> WatchState {
        self.0.read_state()
    }

    /// Waits until the first list is complete or has failed, and returns the state.
    pub async fn settled(&self) -> WatchState {
        let mut state = self.0.state.subscribe();
        // The sender lives as long as `self`.
        let _ = state.wait_for(|state| *state != WatchState::Starting).await;
        self.0.read_state()
    }

    /// Describes for a condition why the objects cannot be watched and what to do about it; `None`
    /// while they are watched or the watch is starting.
    #[cfg(test)]
    pub fn problem(&self) -> Option<String> {
        self.0.target.problem(&self.0.state.borrow())
    }

    /// Notifies the routes about this custom resource on the next change of the watch's state, even
    /// if it has no objects then. Does nothing if all objects are known already.
    pub fn wake_when_known(&self, owner: &CrIdentity) {
        if self.0.read_state() == WatchState::Synced {
            return;
        }
        let mut waiting = self.0.waiting.lock();
        // The state may have changed since; it is set before those that wait are taken.
        if self.0.read_state() != WatchState::Synced {
            waiting.insert(owner.clone());
        }
    }

    /// Returns the state of an object, if the watch has shown it.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<DependentState> {
        // Records the read, because `None` is not final until all objects are known.
        self.0.read_state();
        self.0.get(&(namespace.map(Into::into), name.into()))
    }

    /// Returns the state of an object, if the watch has shown it. The owners are notified of the next event
    /// of an object that is older than `version`, whatever it changes.
    pub fn get_since(
        &self,
        namespace: Option<&str>,
        name: &str,
        version: u64,
    ) -> Option<DependentState> {
        let seen = self.get(namespace, name)?;
        if seen.version >= version {
            return Some(seen);
        }
        let name = (namespace.map(Into::into), name.into());
        self.0.outdated.lock().insert(ObjectName::clone(&name));
        // The event may have come since; it is recorded before its object is looked for among these.
        self.0.get(&name)
    }

    /// Returns the highest resource version that the watch has seen. An object that was written
    /// before it and is not known here is gone.
    pub fn version(&self) -> u64 {
        self.0.version.load(Ordering::SeqCst)
    }

    /// Returns how often the watch has listed all objects.
    pub fn lists(&self) -> u64 {
        self.0.lists.load(Ordering::SeqCst)
    }

    /// Returns namespace, name and state of the objects of a custom resource.
    pub fn owned_by(
        &self,
        owner: &CrIdentity,
    ) -> Vec<(Option<Arc<str>>, Arc<str>, DependentState)> {
        self.0.read_state();
        let objects = self.0.objects.read();
        objects
            .iter()
            .filter(|(_, seen)| seen.owner.as_ref() == Some(owner))
            .map(|((namespace, name), seen)| (namespace.clone(), Arc::clone(name), seen.clone()))
            .collect()
    }

    /// Returns the outcome of a Job or Pod of a hook, or of a Job with `ttlSecondsAfterFinished`,
    /// even if it is gone; `None` if the watch has not seen it complete, or has seen about a
    /// thousand others since.
    pub fn outcome(&self, uid: &str) -> Option<HookOutcome> {
        self.0.outcomes.get(uid)
    }
}

/// The watches of a process.
#[derive(Clone)]
pub struct Registry(Arc<RegistryInner>);

struct RegistryInner {
    client: Client,
    restarts: Restarts,
    shards: Shards,
    linger: Duration,
    watches: Mutex<HashMap<WatchKey, Arc<SharedWatch>>>,
    /// Whether the task that closes idle watches is running.
    closing_idle: AtomicBool,
    routes: RwLock<Vec<Weak<dyn Route>>>,
}

impl Registry {
    /// Creates a registry that counts the restarts of its watches.
    pub fn new(client: Client, restarts: Restarts) -> Self {
        Self::with(client, restarts, Shards::default(), LINGER)
    }

    /// Creates a registry of the objects that one of several processes handles.
    pub fn sharing(client: Client, restarts: Restarts, shards: Shards) -> Self {
        Self::with(client, restarts, shards, LINGER)
    }

    fn with(client: Client, restarts: Restarts, shards: Shards, linger: Duration) -> Self {
        Self(Arc::new(RegistryInner {
            client,
            restarts,
            shards,
            linger,
            watches: Mutex::default(),
            closing_idle: AtomicBool::new(false),
            routes: RwLock::default(),
        }))
    }

    /// Notifies `route` of every change from now on, as long as it lives.
    pub fn add_route(&self, route: &Arc<impl Route + 'static>) {
        let route = Arc::downgrade(route);
        self.0.routes.write().push(route);
    }

    /// Opens a watch, or returns the open one.
    pub fn acquire(&self, mut key: WatchKey) -> WatchGuard {
        if self.0.shards.is_whole() {
            key.by = By::Namespace;
        }
        let mut watches = self.0.watches.lock();
        if let Some(present) = watches.get(&key) {
            present.idle.store(false, Ordering::SeqCst);
            return WatchGuard(Arc::clone(present));
        }
        let target = WatchTarget::new(key.resource.clone(), key.namespace.as_deref());
        // An object that is not listed yet is read.
        let watch = Arc::new(SharedWatch::new(target.sharing(Share {
            shards: self.0.shards.clone(),
            by: key.by,
            is_required: false,
        })));
        let task = tokio::spawn(self.0.follow(&key, &watch));
        *watch.task.lock() = Some(task.abort_handle());
        watches.insert(key, Arc::clone(&watch));
        if !self.0.closing_idle.swap(true, Ordering::SeqCst) {
            tokio::spawn(close_idle(Arc::downgrade(&self.0), self.0.linger));
        }
        WatchGuard(watch)
    }
}

/// Closes watches that nobody held at two consecutive checks, until the registry is dropped.
async fn close_idle(inner: Weak<RegistryInner>, linger: Duration) {
    loop {
        tokio::time::sleep(linger).await;
        let Some(inner) = inner.upgrade() else {
            return;
        };
        inner.watches.lock().retain(|key, watch| {
            // The map holds one reference and each guard another. Guards are only created under the
            // lock.
            let held = Arc::strong_count(watch) > 1;
            let was_idle = watch.idle.swap(!held, Ordering::SeqCst);
            let close = !held && was_idle;
            if close {
                debug!(kind = %key.resource.kind, "closing an unused watch");
            }
            !close
        });
    }
}

impl RegistryInner {
    /// Follows a watch while it is open.
    fn follow(
        self: &Arc<Self>,
        key: &WatchKey,
        watch: &Arc<SharedWatch>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (client, selector) = (self.client.clone(), key.selector.clone());
        let (target, gvk) = (watch.target.clone(), key.gvk());
        let outcomes = Arc::clone(&watch.outcomes);
        let fields = key.fields.clone();
        let open = move |lists| {
            let kept = fields.clone();
            events(&client, &target, &gvk, lists, &selector, &outcomes, kept)
        };
        let follower = DependentFollower {
            inner: Arc::downgrade(self),
            watch: Arc::downgrade(watch),
            listing: PendingList::default(),
            report_all: false,
        };
        follow(
            watch.target.clone(),
            self.restarts.clone(),
            Lists::Streaming,
            open,
            follower,
        )
    }

    fn changed(&self, owners: &Owners, change: Change) {
        for route in self.routes.read().iter().filter_map(Weak::upgrade) {
            route.changed(owners, change);
        }
    }
}

/// A list in progress. Its objects take effect only at its end, because a reader before that would
/// see an incomplete list and would not be notified again.
#[derive(Default)]
struct PendingList {
    objects: HashMap<ObjectName, DependentState>,
    /// Owners of all objects in it.
    owners: HashSet<Owners>,
    /// Owners of objects that differ from the known ones.
    changed: HashSet<Owners>,
}

struct DependentFollower {
    inner: Weak<RegistryInner>,
    watch: Weak<SharedWatch>,
    listing: PendingList,
    /// Whether all objects of the next list are reported.
    report_all: bool,
}

impl Follower for DependentFollower {
    type Object = Reduced;

    fn event(&mut self, event: watcher::Event<Reduced>) {
        if let (Some(inner), Some(watch)) = (self.inner.upgrade(), self.watch.upgrade()) {
            watch.apply(event, &mut self.listing, &mut self.report_all, &inner);
        }
    }

    fn state(&mut self, state: &WatchState) {
        let (Some(inner), Some(watch)) = (self.inner.upgrade(), self.watch.upgrade()) else {
            return;
        };
        let before = watch.state.send_replace(state.clone());
        let mut owners = std::mem::take(&mut *watch.waiting.lock());
        // Whoever relied on the watch is told that it fails.
        if before == WatchState::Synced && *state != WatchState::Synced {
            let objects = watch.objects.read();
            owners.extend(objects.values().filter_map(|seen| seen.owner.clone()));
        }
        for owner in owners {
            let told = Owners {
                label: Some(owner),
                hint: None,
            };
            inner.changed(&told, Change::Readiness);
        }
    }

    fn invalidate(&mut self) {
        self.report_all = true;
    }
}

/// The relevant parts of an object.
struct Reduced {
    metadata: ObjectMeta,
    readiness: Readiness,
    fields: Option<Arc<Value>>,
}

fn events(
    client: &Client,
    target: &WatchTarget,
    gvk: &GroupVersionKind,
    lists: Lists,
    selector: &str,
    outcomes: &Arc<HookOutcomes>,
    fields: Option<Arc<Fields>>,
) -> Events<Reduced> {
    if fields.is_some() || depends_on_status(gvk) {
        let (gvk, outcomes) = (gvk.clone(), Arc::clone(outcomes));
        whole(client, target, lists, Some(selector))
            .map_ok(move |event| {
                map_event(event, |mut object| {
                    let managed = object.metadata.managed_fields.take();
                    let value = serde_json::to_value(&object).unwrap_or_default();
                    object.metadata.managed_fields = managed;
                    outcomes.record(&gvk, &object.metadata, &value);
                    Reduced {
                        metadata: object.metadata,
                        readiness: readiness_of(&gvk, &value),
                        fields: fields.as_ref().map(|fields| Arc::new(fields.of(&value))),
                    }
                })
            })
            .boxed()
    } else {
        metadata(client, target, lists, Some(selector))
            .map_ok(|event| {
                map_event(event, |metadata: ObjectMeta| {
                    let deleting = metadata.deletion_timestamp.is_some();
                    let readiness = if deleting {
                        Readiness::Terminating
                    } else {
                        Readiness::Ready
                    };
                    Reduced {
                        metadata,
                        readiness,
                        fields: None,
                    }
                })
            })
            .boxed()
    }
}

impl SharedWatch {
    fn new(target: WatchTarget) -> Self {
        Self {
            target,
            state: watch::Sender::new(WatchState::Starting),
            objects: RwLock::default(),
            version: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            outdated: Mutex::default(),
            outcomes: Arc::default(),
            read_early: AtomicBool::new(false),
            waiting: Mutex::default(),
            idle: AtomicBool::new(false),
            task: Mutex::default(),
        }
    }

    /// Returns the state of the watch. If not all objects are known, their owners are notified once
    /// they are.
    fn read_state(&self) -> WatchState {
        let state = self.state.borrow().clone();
        if state == WatchState::Synced {
            return state;
        }
        // The flag is set before the state is read again, and the end of a list sets the state
        // before it reads the flag, so that one of the two sees the other.
        self.read_early.store(true, Ordering::SeqCst);
        self.state.borrow().clone()
    }

    /// Applies an event and notifies the owners of changed objects.
    fn apply(
        &self,
        event: watcher::Event<Reduced>,
        listing: &mut PendingList,
        all: &mut bool,
        inner: &RegistryInner,
    ) {
        if let watcher::Event::Apply(object)
        | watcher::Event::Delete(object)
        | watcher::Event::InitApply(object) = &event
        {
            self.version
                .fetch_max(version_of(&object.metadata), Ordering::SeqCst);
        }
        match event {
            watcher::Event::Init => *listing = PendingList::default(),
            watcher::Event::InitApply(object) => {
                let owners = Owners::of(&object.metadata);
                let (name, seen) = reduce(object);
                let is_same = self.get(&name).is_some_and(|known| known.same(&seen));
                if !is_same || self.outdated.lock().contains(&name) {
                    listing.changed.insert(owners.clone());
                }
                listing.owners.insert(owners);
                listing.objects.insert(name, seen);
            }
            watcher::Event::InitDone => self.listed(std::mem::take(listing), all, inner),
            watcher::Event::Apply(object) => {
                let owners = Owners::of(&object.metadata);
                let (name, seen) = reduce(object);
                let before = self.objects.write().insert(name.clone(), seen.clone());
                let is_awaited = self.outdated.lock().remove(&name);
                let change = match before.filter(|_| !is_awaited) {
                    Some(known) if known.same(&seen) => return,
                    Some(known)
                        if known.readiness == seen.readiness && known.fields == seen.fields =>
                    {
                        Change::Object
                    }
                    _ => Change::Readiness,
                };
                inner.changed(&owners, change);
            }
            watcher::Event::Delete(object) => {
                let owners = Owners::of(&object.metadata);
                let (name, _) = reduce(object);
                self.objects.write().remove(&name);
                self.outdated.lock().remove(&name);
                inner.changed(&owners, Change::Object);
            }
        }
    }

    /// Applies a completed list. The first one is reported only if the watch was read before it.
    fn listed(&self, listing: PendingList, all: &mut bool, inner: &RegistryInner) {
        self.lists.fetch_add(1, Ordering::SeqCst);
        let first = *self.state.borrow() == WatchState::Starting;
        let before = std::mem::replace(&mut *self.objects.write(), listing.objects);
        self.outdated.lock().clear();
        let gone: HashSet<Owners> = before
            .into_iter()
            .filter(|(name, _)| self.get(name).is_none())
            .map(|(_, seen)| Owners {
                label: seen.owner,
                hint: None,
            })
            .collect();
        self.state.send_replace(WatchState::Synced);
        let read_early = self.read_early.swap(false, Ordering::SeqCst);
        let reported = if std::mem::take(all) || read_early {
            listing.owners
        } else if first {
            HashSet::default()
        } else {
            listing.changed
        };
        for owners in gone.iter().chain(reported.difference(&gone)) {
            inner.changed(owners, Change::Readiness);
        }
    }

    fn get(&self, name: &ObjectName) -> Option<DependentState> {
        self.objects.read().get(name).cloned()
    }
}

fn reduce(object: Reduced) -> (ObjectName, DependentState) {
    let metadata = &object.metadata;
    let name = (
        metadata.namespace.as_deref().map(shared),
        metadata.name.as_deref().unwrap_or_default().into(),
    );
    let seen = DependentState {
        uid: metadata.uid.as_deref().unwrap_or_default().into(),
        version: version_of(metadata),
        deleting: metadata.deletion_timestamp.is_some(),
        ours: ours_hash(metadata),
        kept: is_kept(metadata),
        holder: holder_of(metadata).map(Into::into),
        readiness: object.readiness,
        owner: cr_of(metadata),
        fields: object.fields,
    };
    (name, seen)
}

/// Returns the resource version. Resource versions are increasing numbers (KEP-5504).
fn version_of(metadata: &ObjectMeta) -> u64 {
    metadata
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;

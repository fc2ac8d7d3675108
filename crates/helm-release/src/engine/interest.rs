//! Watches objects that are not part of a release but affect it: those that `valuesFrom` and
//! `lookup` read, and those that `dependsOn` waits for.
//!
//! There is one watch per kind and namespace, opened when the first owner refers to an
//! object there. Only referenced objects are kept in memory; a watch of readiness keeps all objects
//! of its kind.

use host::{HashMap, HashSet};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use host::watch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use kube_objects::watch::WatchState;
use kube_objects::watch::follow::{
    Events, Follower, Lists, WatchTarget, follow, map_event, metadata, whole,
};
use kube_objects::{Cluster, Key};
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::DropGuard;

use super::access::{Wake, Waking};
use super::served::ServedKinds;

/// Reference to an object, or to all objects of a kind in a namespace or in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResourceRef {
    /// The kind.
    pub resource: ApiResource,
    /// `None` for a cluster-scoped object, and for a list of all namespaces.
    pub namespace: Option<String>,
    /// `None` for a list.
    pub name: Option<String>,
}

impl ResourceRef {
    /// Returns the scope of the watch that covers the target.
    fn scope(&self, depth: Depth) -> WatchScope {
        (self.resource.clone(), self.namespace.clone(), depth)
    }
}

/// Part of the objects that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Depth {
    /// Metadata only, to detect changes.
    Metadata,
    /// Whole objects, to detect whether they are `Ready`.
    Readiness,
}

/// Scope of one watch: a kind, a namespace or all, and the depth.
type WatchScope = (ApiResource, Option<String>, Depth);

/// State of an object or a list, as read by a request or seen by a watch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObservedState {
    /// Whether it exists, and is `Ready` if that is watched. Always true for a list.
    present: bool,
    /// Resource version if changes are watched; for a list, the newest of its objects.
    version: u64,
    /// Number of times the watch of a list was restarted: no event reports deletions in between.
    relists: u64,
}

impl ObservedState {
    fn of(present: bool, version: u64) -> Self {
        Self {
            present,
            version,
            relists: 0,
        }
    }

    /// Returns the state after reading the object or list; `answer` is `None` if it does not exist.
    #[must_use]
    pub fn read(self, answer: Option<&Value>) -> Self {
        let version = answer.and_then(|object| object.pointer("/metadata/resourceVersion"));
        Self {
            present: answer.is_some(),
            version: version_of(version.and_then(Value::as_str)),
            relists: self.relists,
        }
    }

    /// Returns whether the state that was read is still current according to the `watched` state.
    fn is_current(self, watched: Self) -> bool {
        if self.present {
            watched.version <= self.version && watched.relists == self.relists
        } else {
            !watched.present
        }
    }
}

/// Referenced object or list, and the owners that refer to it.
#[derive(Debug, Default)]
struct Interest {
    keys: HashSet<Key>,
    /// Last state seen by the watch.
    watched: Option<ObservedState>,
}

/// Referenced objects and lists by watch depth.
type InterestMap = HashMap<(Depth, ResourceRef), Interest>;

impl Interest {
    /// Stores the state seen by a watch, and enqueues the owners if it has changed.
    fn update(&mut self, seen: ObservedState, wake: &Wake) {
        if self.watched != Some(seen) {
            self.watched = Some(seen);
            for key in &self.keys {
                wake(key);
            }
        }
    }

    /// Records that an object of a list was added, changed or deleted.
    fn update_list(&mut self, version: u64, wake: &Wake) {
        let watched = self.watched.unwrap_or_default();
        let version = watched.version.max(version);
        let seen = ObservedState {
            present: true,
            version,
            ..watched
        };
        self.update(seen, wake);
    }
}

/// Objects that the releases of one controller refer to, and their watches.
pub struct Interests {
    client: Client,
    waking: Waking,
    known: Arc<Mutex<InterestMap>>,
    watches: Mutex<HashMap<WatchScope, RunningWatch>>,
    served: ServedKinds,
}

/// A watch that runs until it is dropped.
struct RunningWatch {
    subject: WatchTarget,
    state: watch::Receiver<WatchState>,
    _stop: DropGuard,
}

impl Interests {
    pub(super) fn new(cluster: &Cluster, waking: Waking) -> Self {
        Self {
            client: cluster.client().clone(),
            served: ServedKinds::new(cluster.clone(), waking.clone()),
            waking,
            known: Arc::default(),
            watches: Mutex::default(),
        }
    }

    /// Starts enqueueing an owner when an object or list changes. Must be called before
    /// the object is read. Returns the state last seen by the watch.
    pub fn add(&self, target: &ResourceRef, key: &Key) -> ObservedState {
        drop(self.open(target, Depth::Metadata, key));
        self.watched_state(Depth::Metadata, target)
            .unwrap_or_default()
    }

    /// Returns whether an object is `Ready`. Waits until its kind was listed once or cannot be
    /// watched; see [`problem`](Self::problem).
    pub async fn is_ready(&self, target: &ResourceRef, key: &Key) -> bool {
        let mut state = self.open(target, Depth::Readiness, key);
        // The sender lives as long as the watch. If it is gone, nothing is ready.
        let _ = state.wait_for(|state| *state != WatchState::Starting).await;
        self.watched_state(Depth::Readiness, target)
            .is_some_and(|seen| seen.present)
    }

    /// Returns a message if an object that an owner refers to cannot be watched.
    pub fn problem(&self, key: &Key) -> Option<String> {
        let scopes: HashSet<WatchScope> = self
            .known
            .lock()
            .iter()
            .filter(|(_, known)| known.keys.contains(key))
            .map(|((depth, target), _)| target.scope(*depth))
            .collect();
        let watches = self.watches.lock();
        let matching = watches.iter().filter(|(scope, _)| scopes.contains(scope));
        matching
            .filter_map(|(_, watch)| watch.subject.problem(&watch.state.borrow()))
            .min()
    }

    /// Starts enqueueing an owner when a kind is added, removed or served differently.
    /// Must be called before the kind is resolved.
    pub(super) fn add_kind(&self, gvk: &GroupVersionKind, key: &Key) {
        self.served.add_kind(gvk, key);
    }

    /// Starts enqueueing an owner when the served kinds change. Must be called before the
    /// capabilities are read.
    pub(super) fn add_capabilities(&self, key: &Key) {
        self.served.add_capabilities(key);
    }

    /// Returns whether the state that was read is still current.
    pub(super) fn is_current(&self, target: &ResourceRef, read: ObservedState) -> bool {
        self.watched_state(Depth::Metadata, target)
            .is_none_or(|watched| read.is_current(watched))
    }

    /// Removes an owner, and closes watches that no other one needs.
    pub(super) fn forget(&self, key: &Key) {
        self.served.forget(key);
        let mut known = self.known.lock();
        known.retain(|(depth, _), known| {
            known.keys.remove(key);
            // An open watch does not repeat readiness that it has reported, so it must be kept for
            // owners that wait for it later.
            *depth == Depth::Readiness || !known.keys.is_empty()
        });
        let needed: HashSet<WatchScope> = known
            .iter()
            .filter(|(_, known)| !known.keys.is_empty())
            .map(|((depth, target), _)| target.scope(*depth))
            .collect();
        known.retain(|(depth, target), _| needed.contains(&target.scope(*depth)));
        self.watches
            .lock()
            .retain(|scope, _| needed.contains(scope));
    }

    fn watched_state(&self, depth: Depth, target: &ResourceRef) -> Option<ObservedState> {
        self.known.lock().get(&(depth, target.clone()))?.watched
    }

    /// Opens the watch that covers an object, or shares an open one.
    fn open(&self, target: &ResourceRef, depth: Depth, key: &Key) -> watch::Receiver<WatchState> {
        let mut known = self.known.lock();
        let entry = known.entry((depth, target.clone())).or_default();
        entry.keys.insert(key.clone());
        let scope = target.scope(depth);
        let mut watches = self.watches.lock();
        let watch = watches.entry(scope.clone()).or_insert_with(|| {
            let (sender, state) = watch::channel(WatchState::Starting);
            let subject = WatchTarget::new(target.resource.clone(), target.namespace.as_deref());
            let follow = follow(
                subject.clone(),
                self.waking.restarts.clone(),
                Lists::Paged,
                events(self.client.clone(), subject.clone(), depth),
                self.reader(scope, sender),
            );
            let stop = self.waking.stop.child_token();
            let guard = stop.clone().drop_guard();
            tokio::spawn(async move { stop.run_until_cancelled(follow).await });
            RunningWatch {
                subject,
                state,
                _stop: guard,
            }
        });
        watch.state.clone()
    }

    fn reader(&self, scope: WatchScope, state: watch::Sender<WatchState>) -> Reader {
        Reader {
            scope,
            known: Arc::clone(&self.known),
            wake: Arc::clone(&self.waking.wake),
            state,
            listed: HashSet::default(),
            newest: 0,
        }
    }
}

/// Opens the stream of a watch. Items are the metadata of an object and whether it is `Ready`;
/// always true for [`Depth::Metadata`].
fn events(
    client: Client,
    subject: WatchTarget,
    depth: Depth,
) -> impl Fn(Lists) -> Events<(ObjectMeta, bool)> + Send {
    move |lists| match depth {
        Depth::Metadata => metadata(&client, &subject, lists, None)
            .map_ok(|event| map_event(event, |metadata| (metadata, true)))
            .boxed(),
        Depth::Readiness => whole(&client, &subject, lists, None)
            .map_ok(|event| {
                map_event(event, |object| {
                    let ready = is_ready(&object);
                    (object.metadata, ready)
                })
            })
            .boxed(),
    }
}

/// Processes the events of one watch.
struct Reader {
    scope: WatchScope,
    known: Arc<Mutex<InterestMap>>,
    wake: Wake,
    state: watch::Sender<WatchState>,
    /// Referenced objects found by the list in progress.
    listed: HashSet<ResourceRef>,
    /// Newest resource version of the list in progress.
    newest: u64,
}

impl Reader {
    fn target(&self, metadata: &ObjectMeta) -> ResourceRef {
        ResourceRef {
            resource: self.scope.0.clone(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
        }
    }

    /// Returns the reference to the list of all watched objects.
    fn list(&self) -> (Depth, ResourceRef) {
        let (resource, namespace, depth) = self.scope.clone();
        let list = ResourceRef {
            resource,
            namespace,
            name: None,
        };
        (depth, list)
    }

    /// Returns the version of an object; 0 for readiness, where versions do not matter.
    fn version(&self, metadata: &ObjectMeta) -> u64 {
        match self.scope.2 {
            Depth::Metadata => version_of(metadata.resource_version.as_deref()),
            Depth::Readiness => 0,
        }
    }

    fn in_scope(&self, depth: Depth, target: &ResourceRef) -> bool {
        target.scope(depth) == self.scope
    }

    /// Handles the end of a list.
    fn listed(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        let mut known = self.known.lock();
        // No event reports objects deleted while the watch was down.
        for ((depth, target), known) in known.iter_mut() {
            let was_present = known.watched.is_some_and(|watched| watched.present);
            if self.in_scope(*depth, target)
                && target.name.is_some()
                && was_present
                && !listed.contains(target)
            {
                known.update(ObservedState::of(false, u64::MAX), &self.wake);
            }
        }
        if let Some(known) = known.get_mut(&self.list()) {
            let relists = known.watched.map_or(0, |watched| watched.relists) + 1;
            let seen = ObservedState {
                relists,
                ..ObservedState::of(true, self.newest)
            };
            known.update(seen, &self.wake);
        }
    }

    /// Handles an added, changed or deleted object.
    fn changed(&self, metadata: &ObjectMeta, present: bool) {
        let version = self.version(metadata);
        let mut known = self.known.lock();
        if let Some(known) = find(&mut known, self.scope.2, &self.target(metadata)) {
            known.update(ObservedState::of(present, version), &self.wake);
        }
        if let Some(known) = known.get_mut(&self.list()) {
            known.update_list(version, &self.wake);
        }
    }

    /// Enqueues all owners that refer to an object of this watch.
    fn wake_all(&self) {
        for ((depth, target), known) in self.known.lock().iter() {
            if self.in_scope(*depth, target) {
                for key in &known.keys {
                    (self.wake)(key);
                }
            }
        }
    }
}

impl Follower for Reader {
    type Object = (ObjectMeta, bool);

    fn event(&mut self, event: watcher::Event<(ObjectMeta, bool)>) {
        match event {
            watcher::Event::Init => {
                self.listed.clear();
                self.newest = 0;
            }
            watcher::Event::InitApply((metadata, present)) => {
                let (target, version) = (self.target(&metadata), self.version(&metadata));
                self.newest = self.newest.max(version);
                if let Some(known) = find(&mut self.known.lock(), self.scope.2, &target) {
                    known.update(ObservedState::of(present, version), &self.wake);
                    self.listed.insert(target);
                }
            }
            watcher::Event::InitDone => self.listed(),
            watcher::Event::Apply((metadata, present)) => self.changed(&metadata, present),
            watcher::Event::Delete((metadata, _)) => self.changed(&metadata, false),
        }
    }

    fn state(&mut self, state: &WatchState) {
        let before = self.state.send_replace(state.clone());
        // Those that wait for the first list receive its state. All others are enqueued when the
        // watch fails or recovers.
        if before != WatchState::Starting || *state != WatchState::Synced {
            self.wake_all();
        }
    }

    fn invalidate(&mut self) {
        self.wake_all();
    }
}

/// Returns the entry of an object. For readiness it is created if missing, so that owners
/// that wait for the object later need not wait for its next change.
fn find<'a>(
    all: &'a mut InterestMap,
    depth: Depth,
    target: &ResourceRef,
) -> Option<&'a mut Interest> {
    match depth {
        Depth::Metadata => all.get_mut(&(depth, target.clone())),
        Depth::Readiness => Some(all.entry((depth, target.clone())).or_default()),
    }
}

/// Returns whether the condition `Ready` is true for the current generation.
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

/// Parses a resource version. Versions are increasing integers (KEP-5504).
fn version_of(version: Option<&str>) -> u64 {
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use hybrid_operator_test::scripted::Script;
    use kube::runtime::watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
    use serde_json::json;

    use super::*;
    use std::collections::BTreeSet;
    use tokio_util::sync::CancellationToken;

    fn secret(name: &str, version: &str) -> (ObjectMeta, bool) {
        let metadata = json!({"name": name, "namespace": "a", "resourceVersion": version});
        (serde_json::from_value(metadata).unwrap(), true)
    }

    /// Interests whose watch events are sent by a test.
    struct Fixture {
        interests: Interests,
        woken: Arc<Mutex<BTreeSet<Key>>>,
        resource: ApiResource,
    }

    impl Fixture {
        fn new() -> Self {
            let (waking, woken) = Waking::remembering();
            let cluster = Cluster::new(Script::default().client());
            Self {
                interests: Interests::new(&cluster, waking),
                woken,
                resource: ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&()),
            }
        }

        fn target(&self, name: Option<&str>) -> ResourceRef {
            ResourceRef {
                resource: self.resource.clone(),
                namespace: Some("a".to_owned()),
                name: name.map(ToOwned::to_owned),
            }
        }

        fn show(&self, depth: Depth, events: Vec<watcher::Event<(ObjectMeta, bool)>>) {
            let scope = self.target(None).scope(depth);
            let state = watch::Sender::new(WatchState::Starting);
            let mut reader = self.interests.reader(scope, state);
            for event in events {
                reader.event(event);
            }
        }

        fn is_ready(&self, name: &str) -> bool {
            let watched = self
                .interests
                .watched_state(Depth::Readiness, &self.target(Some(name)));
            watched.is_some_and(|seen| seen.present)
        }

        fn wait_for(&self, name: &str, key: &Key) {
            let target = self.target(Some(name));
            drop(self.interests.open(&target, Depth::Readiness, key));
        }
    }

    fn answer(version: u64) -> Value {
        json!({"metadata": {"resourceVersion": version.to_string()}})
    }

    #[tokio::test]
    async fn read_state_is_current_until_the_watch_sees_a_newer_one() {
        let fixture = Fixture::new();
        let interests = &fixture.interests;
        let key = Key::new(Some("a"), "one");
        let read = |name: Option<&str>, found: Option<u64>| {
            let target = fixture.target(name);
            let seen = interests.add(&target, &key);
            let read = seen.read(found.map(answer).as_ref());
            (target, read)
        };
        let (object, absent) = (read(Some("read"), Some(5)), read(Some("absent"), None));
        // Another owner has read the same object later, and the list.
        let (later, list) = (read(Some("read"), Some(7)), read(None, Some(7)));
        let current = || {
            [&object, &absent, &later, &list]
                .map(|(target, read)| u8::from(interests.is_current(target, *read)))
        };
        let mut found = Vec::new();
        for events in [
            // The object is listed at the version read, with one that is not referenced. Whether
            // something was deleted since the list was read is unknown.
            vec![
                Init,
                InitApply(secret("read", "5")),
                InitApply(secret("other", "6")),
                InitDone,
            ],
            vec![Apply(secret("read", "7"))],
            vec![Apply(secret("absent", "8"))],
            // Deleted while the watch was down.
            vec![Init, InitApply(secret("read", "7")), InitDone],
            vec![Delete(secret("read", "9"))],
        ] {
            fixture.show(Depth::Metadata, events);
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
    async fn read_list_is_current_until_an_object_in_it_changes() {
        let list = || vec![Init, InitApply(secret("x", "5")), InitDone];
        for (events, current) in [
            (vec![], true),
            // The watch has not caught up with the version read.
            (vec![Apply(secret("x", "9"))], true),
            (vec![Apply(secret("new", "11"))], false),
            (vec![Delete(secret("x", "12"))], false),
            // Objects may have been deleted before.
            (list(), false),
        ] {
            let fixture = Fixture::new();
            let target = fixture.target(None);
            let key = Key::new(Some("a"), "one");
            fixture.interests.add(&target, &key);
            fixture.show(Depth::Metadata, list());
            let seen = fixture.interests.add(&target, &key);
            let read = seen.read(Some(&answer(10)));
            fixture.show(Depth::Metadata, events);
            assert_eq!(fixture.interests.is_current(&target, read), current);
        }
    }

    #[tokio::test]
    async fn readiness_is_known_to_custom_resources_that_wait_later() {
        let fixture = Fixture::new();
        let key = Key::new(Some("a"), "one");
        fixture.wait_for("first", &key);
        let (second, _) = secret("second", "2");
        let events = vec![
            Init,
            InitApply(secret("first", "1")),
            InitApply((second, false)),
            InitDone,
            Apply(secret("second", "3")),
        ];
        fixture.show(Depth::Readiness, events);
        assert!(fixture.is_ready("second"));
        fixture.interests.forget(&key);
        assert!(!fixture.is_ready("second"), "no longer waited for");
        assert!(fixture.interests.watches.lock().is_empty());
    }

    #[tokio::test]
    async fn recreated_custom_resource_finds_dependency_still_ready() {
        let fixture = Fixture::new();
        let (again, other) = (Key::new(Some("a"), "again"), Key::new(Some("a"), "other"));
        fixture.wait_for("database", &again);
        fixture.wait_for("elsewhere", &other);
        fixture.show(
            Depth::Readiness,
            vec![Init, InitApply(secret("database", "1")), InitDone],
        );
        assert!(fixture.is_ready("database"));
        // The watch stays open for the other one and reports nothing more about the database.
        fixture.interests.forget(&again);
        fixture.wait_for("database", &again);
        assert!(fixture.is_ready("database"));
    }

    #[tokio::test]
    async fn forbidden_watch_is_reported_to_those_that_need_it() {
        let fixture = Fixture::new();
        let (key, other) = (Key::new(Some("a"), "one"), Key::new(Some("a"), "two"));
        let target = fixture.target(Some("database"));
        let (scope, subject) = (
            target.scope(Depth::Readiness),
            WatchTarget::new(target.resource.clone(), target.namespace.as_deref()),
        );
        let (sender, state) = watch::channel(WatchState::Starting);
        let mut reader = fixture.interests.reader(scope.clone(), sender);
        let watch = RunningWatch {
            subject,
            state,
            _stop: CancellationToken::new().drop_guard(),
        };
        fixture.interests.watches.lock().insert(scope, watch);
        reader.state(&WatchState::Forbidden("list secrets".to_owned()));
        assert!(fixture.woken.lock().is_empty(), "nobody needs it yet");
        // Returns without waiting: the list would never complete.
        assert!(!fixture.interests.is_ready(&target, &key).await);
        let problem = fixture.interests.problem(&key).unwrap();
        assert!(
            problem.contains("no permission to list secrets") && problem.contains("namespace a"),
            "{problem}"
        );
        assert_eq!(fixture.interests.problem(&other), None);
        reader.state(&WatchState::Synced);
        assert_eq!(fixture.interests.problem(&key), None);
        // It is enqueued because the problem is solved.
        assert_eq!(*fixture.woken.lock(), [key].into());
    }
}

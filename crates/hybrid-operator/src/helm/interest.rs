//! Objects that are not of a release but decide about it: what `valuesFrom` and `lookup` read, and
//! what `dependsOn` waits for.
//!
//! One watch per kind and namespace, opened when the first custom resource names an object there.
//! Events about other objects are dropped as they come, so memory grows with what is named alone;
//! only where it is watched whether objects are `Ready`, all of the kind are known.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cluster::Cluster;
use crate::controller::follow::{
    Events, Follower, Lists, WatchTarget, follow, map_event, metadata, whole,
};
use crate::controller::served::ServedKinds;
use crate::controller::{Key, Priority, QueueHandle, WatchState};

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
    served: ServedKinds,
}

/// A watch that runs until it is dropped.
struct Watch {
    subject: WatchTarget,
    state: watch::Receiver<WatchState>,
    _stop: DropGuard,
}

impl Interests {
    pub(super) fn new(cluster: &Cluster, queue: QueueHandle, stop: CancellationToken) -> Self {
        Self {
            client: cluster.client().clone(),
            served: ServedKinds::new(cluster.clone(), queue.clone(), stop.clone()),
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

    /// Whether an object is `Ready`, as far as is known; waits until its kind has been listed once
    /// or cannot be. See [`problem`](Self::problem).
    pub(super) async fn is_ready(&self, named: &Named, key: &Key) -> bool {
        let mut state = self.open(named, Depth::Readiness, key);
        // The sender lives as long as the watch; without one nothing is ready.
        let _ = state.wait_for(|state| *state != WatchState::Starting).await;
        self.told(Depth::Readiness, named)
            .is_some_and(|seen| seen.here)
    }

    /// What keeps something from being watched that a custom resource is interested in, as a
    /// sentence for a condition.
    pub(super) fn problem(&self, key: &Key) -> Option<String> {
        let scopes: HashSet<Scope> = lock(&self.known)
            .iter()
            .filter(|(_, known)| known.keys.contains(key))
            .map(|((depth, named), _)| named.scope(*depth))
            .collect();
        let watches = lock(&self.watches);
        let watches = watches.iter().filter(|(scope, _)| scopes.contains(scope));
        watches
            .filter_map(|(_, watch)| watch.subject.problem(&watch.state.borrow()))
            .min()
    }

    /// Wakes a custom resource from now on when this kind comes, goes or is served in another way.
    /// To be called before the kind is resolved.
    pub(super) fn add_kind(&self, gvk: &GroupVersionKind, key: &Key) {
        self.served.add_kind(gvk, key);
    }

    /// Wakes a custom resource from now on when anything else is served than before. To be called
    /// before the capabilities are read.
    pub(super) fn add_capabilities(&self, key: &Key) {
        self.served.add_capabilities(key);
    }

    /// Whether what was read is still so.
    pub(super) fn is_current(&self, named: &Named, read: Seen) -> bool {
        self.told(Depth::Metadata, named)
            .is_none_or(|told| read.is_current(told))
    }

    /// Forgets a custom resource, and what it alone was interested in.
    pub(super) fn forget(&self, key: &Key) {
        self.served.forget(key);
        let mut known = lock(&self.known);
        known.retain(|(depth, _), known| {
            known.keys.remove(key);
            // What an open watch has told of readiness it does not tell again: whoever waits for it
            // later must find it here.
            *depth == Depth::Readiness || !known.keys.is_empty()
        });
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
    fn open(&self, named: &Named, depth: Depth, key: &Key) -> watch::Receiver<WatchState> {
        let mut known = lock(&self.known);
        let entry = known.entry((depth, named.clone())).or_default();
        entry.keys.insert(key.clone());
        let scope = named.scope(depth);
        let mut watches = lock(&self.watches);
        let watch = watches.entry(scope.clone()).or_insert_with(|| {
            let (sender, state) = watch::channel(WatchState::Starting);
            let subject = WatchTarget::new(named.resource.clone(), named.namespace.as_deref());
            let follow = follow(
                subject.clone(),
                self.queue.watch_metrics(),
                Lists::Paged,
                events(self.client.clone(), subject.clone(), depth),
                self.reader(scope, sender),
            );
            let stop = self.stop.child_token();
            let guard = stop.clone().drop_guard();
            tokio::spawn(async move { stop.run_until_cancelled(follow).await });
            Watch {
                subject,
                state,
                _stop: guard,
            }
        });
        watch.state.clone()
    }

    fn reader(&self, scope: Scope, state: watch::Sender<WatchState>) -> Reader {
        Reader {
            scope,
            known: Arc::clone(&self.known),
            queue: self.queue.clone(),
            state,
            listed: HashSet::new(),
            newest: 0,
        }
    }
}

/// Opens the stream of a watch: of each object its metadata, and whether it is `Ready` where that
/// is watched.
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

/// Takes in what one watch shows.
struct Reader {
    scope: Scope,
    known: Arc<Mutex<Names>>,
    queue: QueueHandle,
    state: watch::Sender<WatchState>,
    /// What the list that is under way has shown of what is named.
    listed: HashSet<Named>,
    /// The newest resource version in it.
    newest: u64,
}

impl Reader {
    fn named(&self, metadata: &ObjectMeta) -> Named {
        Named {
            resource: self.scope.0.clone(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
        }
    }

    /// The name of everything that is watched.
    fn list(&self) -> (Depth, Named) {
        let (resource, namespace, depth) = self.scope.clone();
        let list = Named {
            resource,
            namespace,
            name: None,
        };
        (depth, list)
    }

    /// Of what is only waited for, it does not matter which version it is.
    fn version(&self, metadata: &ObjectMeta) -> u64 {
        match self.scope.2 {
            Depth::Metadata => version_of(metadata.resource_version.as_deref()),
            Depth::Readiness => 0,
        }
    }

    fn in_scope(&self, depth: Depth, named: &Named) -> bool {
        named.scope(depth) == self.scope
    }

    /// Takes in the end of a list.
    fn listed(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        let mut known = lock(&self.known);
        // What vanished while nothing was watched is told of by no event.
        for ((depth, named), known) in known.iter_mut() {
            let was_here = known.told.is_some_and(|told| told.here);
            if self.in_scope(*depth, named)
                && named.name.is_some()
                && was_here
                && !listed.contains(named)
            {
                known.tell(Seen::of(false, u64::MAX), &self.queue);
            }
        }
        if let Some(known) = known.get_mut(&self.list()) {
            let lists = known.told.map_or(0, |told| told.lists) + 1;
            let seen = Seen {
                lists,
                ..Seen::of(true, self.newest)
            };
            known.tell(seen, &self.queue);
        }
    }

    /// Takes in that an object is there or not.
    fn changed(&self, metadata: &ObjectMeta, here: bool) {
        let version = self.version(metadata);
        let mut known = lock(&self.known);
        if let Some(known) = find(&mut known, self.scope.2, &self.named(metadata)) {
            known.tell(Seen::of(here, version), &self.queue);
        }
        if let Some(known) = known.get_mut(&self.list()) {
            known.tell_version(version, &self.queue);
        }
    }

    /// Wakes every custom resource that is interested in something here.
    fn wake_all(&self) {
        for ((depth, named), known) in lock(&self.known).iter() {
            if self.in_scope(*depth, named) {
                for key in &known.keys {
                    self.queue.add(key.clone(), Priority::Event);
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
            watcher::Event::InitApply((metadata, here)) => {
                let (named, version) = (self.named(&metadata), self.version(&metadata));
                self.newest = self.newest.max(version);
                if let Some(known) = find(&mut lock(&self.known), self.scope.2, &named) {
                    known.tell(Seen::of(here, version), &self.queue);
                    self.listed.insert(named);
                }
            }
            watcher::Event::InitDone => self.listed(),
            watcher::Event::Apply((metadata, here)) => self.changed(&metadata, here),
            watcher::Event::Delete((metadata, _)) => self.changed(&metadata, false),
        }
    }

    fn state(&mut self, state: &WatchState) {
        let before = self.state.send_replace(state.clone());
        // Whoever waits for the first list gets it; all others find out that they cannot be told of
        // changes, or can be again.
        if before != WatchState::Starting || *state != WatchState::Synced {
            self.wake_all();
        }
    }

    fn invalidate(&mut self) {
        self.wake_all();
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
            let cluster = Cluster::new(Script::default().client(false));
            Self {
                interests: Interests::new(&cluster, queue, CancellationToken::new()),
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

        fn show(&self, depth: Depth, events: Vec<watcher::Event<(ObjectMeta, bool)>>) {
            let scope = self.named(None).scope(depth);
            let state = watch::Sender::new(WatchState::Starting);
            let mut reader = self.interests.reader(scope, state);
            for event in events {
                reader.event(event);
            }
        }

        fn is_ready(&self, name: &str) -> bool {
            let told = self
                .interests
                .told(Depth::Readiness, &self.named(Some(name)));
            told.is_some_and(|seen| seen.here)
        }

        fn wait_for(&self, name: &str, key: &Key) {
            let named = self.named(Some(name));
            drop(self.interests.open(&named, Depth::Readiness, key));
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
            shown.show(Depth::Metadata, events);
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
            shown.show(Depth::Metadata, list());
            let seen = shown.interests.add(&named, &key);
            let read = seen.read(Some(&answer(10)));
            shown.show(Depth::Metadata, events);
            assert_eq!(shown.interests.is_current(&named, read), current);
        }
    }

    #[tokio::test]
    async fn what_is_ready_already_is_known_to_whoever_waits_for_it_later() {
        use watcher::Event::{Apply, Init, InitApply, InitDone};

        let shown = Shown::new();
        let key = Key::new(Some("a"), "one");
        shown.wait_for("first", &key);
        let (second, _) = secret("second", "2");
        let events = vec![
            Init,
            InitApply(secret("first", "1")),
            InitApply((second, false)),
            InitDone,
            Apply(secret("second", "3")),
        ];
        shown.show(Depth::Readiness, events);
        assert!(shown.is_ready("second"));
        shown.interests.forget(&key);
        assert!(!shown.is_ready("second"), "nobody waits any longer");
        assert!(lock(&shown.interests.watches).is_empty());
    }

    #[tokio::test]
    async fn a_custom_resource_that_is_made_again_finds_what_stayed_ready() {
        use watcher::Event::{Init, InitApply, InitDone};

        let shown = Shown::new();
        let (again, other) = (Key::new(Some("a"), "again"), Key::new(Some("a"), "other"));
        shown.wait_for("database", &again);
        shown.wait_for("elsewhere", &other);
        shown.show(
            Depth::Readiness,
            vec![Init, InitApply(secret("database", "1")), InitDone],
        );
        assert!(shown.is_ready("database"));
        // The watch stays open for the other one and tells nothing more of the database.
        shown.interests.forget(&again);
        shown.wait_for("database", &again);
        assert!(shown.is_ready("database"));
    }

    #[tokio::test]
    async fn a_watch_that_is_not_permitted_is_named_to_those_who_need_it() {
        let shown = Shown::new();
        let (key, other) = (Key::new(Some("a"), "one"), Key::new(Some("a"), "two"));
        let named = shown.named(Some("database"));
        let (scope, subject) = (
            named.scope(Depth::Readiness),
            WatchTarget::new(named.resource.clone(), named.namespace.as_deref()),
        );
        let (sender, state) = watch::channel(WatchState::Starting);
        let mut reader = shown.interests.reader(scope.clone(), sender);
        let watch = Watch {
            subject,
            state,
            _stop: CancellationToken::new().drop_guard(),
        };
        lock(&shown.interests.watches).insert(scope, watch);
        reader.state(&WatchState::Forbidden("list secrets".to_owned()));
        assert!(
            shown.interests.queue.ready().is_empty(),
            "nobody needs it yet"
        );
        // It is not waited for: the answer would never come.
        assert!(!shown.interests.is_ready(&named, &key).await);
        let problem = shown.interests.problem(&key).unwrap();
        assert!(
            problem.contains("no permission to list secrets") && problem.contains("namespace a"),
            "{problem}"
        );
        assert_eq!(shown.interests.problem(&other), None);
        reader.state(&WatchState::Synced);
        assert_eq!(shown.interests.problem(&key), None);
        // It learns that there is no problem any longer.
        assert_eq!(shown.interests.queue.ready(), [key].into());
    }
}

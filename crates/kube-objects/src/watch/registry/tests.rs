//! Tests of the shared watches of dependent objects.

use hybrid_operator_test::scripted::Script;
use k8s_openapi::api::core::v1::Secret;
use kube::client::Body;
use serde_json::json;
use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};

use super::*;

/// A route that records its calls, and the state of the watch at each call.
struct RecordingRoute {
    watch: Arc<SharedWatch>,
    calls: Mutex<Vec<(Option<CrIdentity>, WatchState, usize)>>,
}

impl Route for RecordingRoute {
    fn changed(&self, owners: &Owners, _: Change) {
        let state = self.watch.state.borrow().clone();
        let known = self.watch.objects.read().len();
        let call = (owners.label.clone(), state, known);
        self.calls.lock().push(call);
    }
}

/// A watch whose events a test controls, and a route that records notifications.
struct Fixture {
    _registry: Registry,
    watch: WatchGuard,
    follower: DependentFollower,
    route: Arc<RecordingRoute>,
}

impl Fixture {
    fn new() -> Self {
        let target = WatchTarget::new(ApiResource::erase::<Secret>(&()), Some("a"));
        let watch = Arc::new(SharedWatch::new(target));
        let route = Arc::new(RecordingRoute {
            watch: Arc::clone(&watch),
            calls: Mutex::default(),
        });
        let registry = Registry::new(Script::default().client(), Restarts::default());
        registry.add_route(&route);
        let follower = DependentFollower {
            inner: Arc::downgrade(&registry.0),
            watch: Arc::downgrade(&watch),
            listing: PendingList::default(),
            report_all: false,
        };
        Self {
            _registry: registry,
            watch: WatchGuard(watch),
            follower,
            route,
        }
    }

    /// Applies events and returns the notified custom resources.
    fn show(
        &mut self,
        events: Vec<watcher::Event<Reduced>>,
    ) -> Vec<(Option<CrIdentity>, WatchState, usize)> {
        for event in events {
            self.follower.event(event);
        }
        self.reported()
    }

    fn reported(&self) -> Vec<(Option<CrIdentity>, WatchState, usize)> {
        let mut calls = std::mem::take(&mut *self.route.calls.lock());
        calls.sort_by_key(|(label, ..)| label.clone());
        calls
    }
}

fn object(name: &str, label: &str, version: u64) -> Reduced {
    let metadata = json!({
        "name": name, "namespace": "a", "uid": name, "resourceVersion": version.to_string(),
        "labels": {crate::ownership::CR_LABEL: label},
    });
    Reduced {
        metadata: serde_json::from_value(metadata).unwrap(),
        readiness: Readiness::Ready,
        fields: None,
    }
}

/// Returns a call for the owner `label` while the watch is synced and has `known` objects.
fn call(label: &str, known: usize) -> (Option<CrIdentity>, WatchState, usize) {
    let label = CrIdentity::from_label(label);
    (Some(label), WatchState::Synced, known)
}

#[tokio::test]
async fn a_list_is_reported_at_its_end_and_only_where_it_differs() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.watch.state(), WatchState::Starting);
    // Two objects of a custom resource result in one call.
    let first = vec![
        Init,
        InitApply(object("one", "x", 1)),
        InitApply(object("two", "x", 2)),
        InitApply(object("three", "y", 3)),
    ];
    assert_eq!(fixture.show(first), []);
    assert_eq!(fixture.show(vec![InitDone]), [call("x", 3), call("y", 3)]);
    // Only a resource version has changed, and one object is gone.
    let second = vec![
        Init,
        InitApply(object("one", "x", 1)),
        InitApply(object("two", "x", 4)),
        InitDone,
    ];
    assert_eq!(fixture.show(second), [call("y", 2)]);
    // An interrupted list has no effect.
    let third = vec![
        Init,
        InitApply(object("four", "z", 5)),
        Init,
        InitApply(object("one", "x", 1)),
        InitApply(object("two", "x", 4)),
        InitDone,
    ];
    assert_eq!(fixture.show(third), []);
    let gone = fixture.show(vec![Delete(object("two", "x", 6))]);
    assert_eq!(gone, [call("x", 1)]);
}

#[tokio::test]
async fn a_changed_field_that_is_kept_is_reported() {
    let mut fixture = Fixture::new();
    let with = |replicas: u64, version| Reduced {
        fields: Some(Arc::new(json!({"status": {"replicas": replicas}}))),
        ..object("one", "x", version)
    };
    fixture.show(vec![Init, InitApply(with(1, 1)), InitDone]);
    assert_eq!(fixture.show(vec![Apply(with(1, 2))]), []);
    assert_eq!(fixture.show(vec![Apply(with(2, 3))]), [call("x", 1)]);
    let seen = fixture.watch.get(Some("a"), "one").unwrap();
    assert_eq!(*seen.fields.unwrap(), json!({"status": {"replicas": 2}}));
}

/// A way to read a watch.
type Access = fn(&WatchGuard);

#[tokio::test]
async fn the_first_list_is_reported_only_if_the_watch_was_read_before() {
    let list = || vec![Init, InitApply(object("one", "x", 1)), InitDone];
    let accesses: [(&str, Access); 3] = [
        ("state", |watch| drop(watch.state())),
        ("object", |watch| drop(watch.get(Some("a"), "one"))),
        ("problem", |watch| drop(watch.problem())),
    ];
    for (how, read_state) in accesses {
        let mut fixture = Fixture::new();
        read_state(&fixture.watch);
        let reported = fixture.show(list());
        let expected = if how == "problem" {
            vec![]
        } else {
            vec![call("x", 1)]
        };
        assert_eq!(reported, expected, "{how}");
        // Once the objects are known, reading the watch has no effect.
        read_state(&fixture.watch);
        assert_eq!(fixture.show(list()), [], "{how}");
    }
}

#[tokio::test]
async fn owners_are_notified_when_a_watch_is_forbidden_and_permitted_again() {
    let mut fixture = Fixture::new();
    let list = || vec![Init, InitApply(object("one", "x", 1)), InitDone];
    fixture.show(list());
    assert_eq!(fixture.watch.problem(), None);
    let permission = "watch secrets in namespace a".to_owned();
    let forbidden = WatchState::Forbidden(permission);
    fixture.follower.state(&forbidden);
    let x = Some(CrIdentity::from_label("x"));
    assert_eq!(fixture.reported(), [(x, forbidden.clone(), 1)]);
    assert!(fixture.watch.get(Some("a"), "one").is_some());
    // Only the loss is reported.
    fixture.follower.state(&forbidden);
    assert_eq!(fixture.reported(), []);
    let problem = fixture.watch.problem().unwrap();
    for part in [
        "cannot watch secrets in namespace a",
        "grant",
        "list and watch",
    ] {
        assert!(problem.contains(part), "{part} is not in {problem}");
    }
    assert_ne!(fixture.watch.state(), WatchState::Synced);
    assert_eq!(fixture.show(list()), [call("x", 1)]);
    assert_eq!(fixture.watch.problem(), None);
}

#[tokio::test]
async fn the_first_list_wakes_an_owner_whose_object_is_already_gone() {
    let x = CrIdentity::from_label("x");
    let mut fixture = Fixture::new();
    fixture.watch.wake_when_known(&x);
    // The object was deleted right after its creation, so that no list and no event shows it.
    fixture.show(vec![Init, InitDone]);
    fixture.follower.state(&WatchState::Synced);
    assert_eq!(fixture.reported(), [call("x", 0)]);
    fixture.watch.wake_when_known(&x);
    fixture.follower.state(&WatchState::Missing);
    assert_eq!(fixture.reported(), [], "all objects were known");
    fixture.watch.wake_when_known(&x);
    let permission = WatchState::Forbidden("list secrets".to_owned());
    fixture.follower.state(&permission);
    assert_eq!(fixture.reported(), [(Some(x), permission, 0)]);
}

#[tokio::test]
async fn the_version_that_is_awaited_is_reported_though_it_changes_nothing() {
    let mut fixture = Fixture::new();
    let version = |fixture: &Fixture, awaited| {
        let seen = fixture.watch.get_since(Some("a"), "one", awaited);
        seen.map(|seen| seen.version)
    };
    fixture.show(vec![Init, InitApply(object("one", "x", 5)), InitDone]);
    assert_eq!(fixture.show(vec![Apply(object("one", "x", 6))]), []);
    assert_eq!(version(&fixture, 6), Some(6));
    assert_eq!(fixture.show(vec![Apply(object("one", "x", 7))]), []);
    assert_eq!(version(&fixture, 9), Some(7));
    let expected = [call("x", 1)];
    assert_eq!(fixture.show(vec![Apply(object("one", "x", 8))]), expected);
    assert_eq!(fixture.show(vec![Apply(object("one", "x", 9))]), []);
    assert_eq!(version(&fixture, 11), Some(9));
    let list = vec![Init, InitApply(object("one", "x", 11)), InitDone];
    assert_eq!(fixture.show(list), [call("x", 1)]);
    assert_eq!(fixture.show(vec![Apply(object("one", "x", 12))]), []);
}

#[tokio::test]
async fn after_a_panic_the_next_list_is_reported_completely() {
    let mut fixture = Fixture::new();
    let list = || vec![Init, InitApply(object("one", "x", 1)), InitDone];
    fixture.show(list());
    fixture.follower.invalidate();
    assert_eq!(fixture.show(list()), [call("x", 1)]);
    assert_eq!(fixture.show(list()), []);
}

#[tokio::test(start_paused = true)]
async fn an_unused_watch_stays_open_for_a_while() {
    let silent = tower::service_fn(|_: http::Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>()
    });
    let minute = Duration::from_mins(1);
    let client = Client::new(silent, "default");
    let registry = Registry::with(client, Restarts::default(), Shards::default(), minute);
    let key = WatchKey {
        resource: ApiResource::erase::<Secret>(&()),
        namespace: None,
        selector: String::new(),
        fields: None,
        by: By::Namespace,
    };
    let open = || registry.0.watches.lock().len();
    let first = registry.acquire(key.clone());
    let same = Arc::downgrade(&first.0);
    drop(first);
    // Acquiring the watch again in time returns the same watch.
    for _ in 0..10 {
        tokio::time::sleep(minute / 2).await;
        let again = registry.acquire(key.clone());
        assert!(std::ptr::eq(Arc::as_ptr(&again.0), same.as_ptr()));
    }
    let held = registry.acquire(key);
    tokio::time::sleep(5 * minute).await;
    assert_eq!(open(), 1, "the watch is held");
    drop(held);
    tokio::time::sleep(minute / 2).await;
    assert_eq!(open(), 1, "the watch was released just now");
    tokio::time::sleep(2 * minute).await;
    assert_eq!(open(), 0);
    assert_eq!(same.strong_count(), 0, "the watch is dropped");
}

//! Tests of objects that change during an action, with watches that the test controls.

use host::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use helm_core::manifest::{ManifestObject, ObjectKey};
use host::watch;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube_objects::apply::TakeOver;
use kube_objects::ownership::operator_selector;
use kube_objects::shards::By;
use kube_objects::watch::{Restarts, WatchGuard, WatchKey, WatchState};
use parking_lot::Mutex;

use super::*;
use crate::action::live::{JobReadiness, ObjectState, read_unseen, read_unwatched};
use crate::action::recognise::{Recognition, recognise};
use crate::action::repair::{Repaired, repair};
use crate::action::uninstall::remove_created;
use crate::tests::fixtures::owner_reference;

type Answer = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// Watches of all kinds: the existing objects, and the events that a test sends.
#[derive(Clone, Default)]
struct Feed(Arc<Mutex<HashMap<String, Watched>>>);

/// The watches of one kind.
struct Watched {
    objects: BTreeMap<String, Value>,
    events: watch::Sender<Vec<String>>,
    rejected: Option<u16>,
    /// Number of times a watch was opened.
    opened: usize,
}

impl Default for Watched {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            events: watch::Sender::new(Vec::new()),
            rejected: None,
            opened: 0,
        }
    }
}

impl Watched {
    /// Streams the existing objects, the bookmark that ends the list, and then every event.
    fn stream(&self) -> Answer {
        let listed = json!({"apiVersion": "v1", "kind": "Any", "metadata": {"resourceVersion": "1",
            "annotations": {"k8s.io/initial-events-end": "true"}}});
        let mut begin: Vec<String> = self.objects.values().map(|o| line("ADDED", o)).collect();
        begin.push(line("BOOKMARK", &listed));
        let events = self.events.subscribe();
        let next = events.borrow().len();
        let rest = futures::stream::unfold((events, next), |(mut events, next)| async move {
            let more = events.wait_for(|events| events.len() > next).await.ok()?;
            let line = more[next].clone();
            drop(more);
            Some((line, (events, next + 1)))
        });
        let frames = futures::stream::iter(begin)
            .chain(rest)
            .map(|line| Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from(line))));
        StreamBody::new(frames).boxed_unsync()
    }
}

fn line(type_: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": type_, "object": object}))
}

impl Feed {
    fn with<T>(&self, plural: &str, change: impl FnOnce(&mut Watched) -> T) -> T {
        change(self.0.lock().entry(plural.to_owned()).or_default())
    }

    fn reject_watches(&self, plural: &str, code: u16) {
        self.with(plural, |watched| watched.rejected = Some(code));
    }

    fn send(&self, plural: &str, type_: &str, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.with(plural, |watched| {
            if type_ == "DELETED" {
                watched.objects.remove(&name);
            } else {
                watched.objects.insert(name, object.clone());
            }
            let line = line(type_, object);
            watched.events.send_modify(|events| events.push(line));
        });
    }

    fn opened(&self, plural: &str) -> usize {
        self.with(plural, |watched| watched.opened)
    }

    /// Returns a client for watches.
    fn client(&self) -> Client {
        let feed = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let plural = request.uri().path().rsplit('/').next().unwrap().to_owned();
            let answer = feed.with(&plural, |watched| {
                watched.opened += 1;
                match watched.rejected {
                    Some(code) => http::Response::builder()
                        .status(code)
                        .body(Full::from(failure_status(code).to_string()).boxed_unsync())
                        .unwrap(),
                    None => http::Response::new(watched.stream()),
                }
            });
            async move { Ok::<_, std::convert::Infallible>(answer) }
        });
        Client::new(service, "default")
    }
}

impl Fixture {
    /// Repairs the objects that `only` selects with exactly these requests.
    async fn repair(
        &self,
        live: &mut Live,
        stored: &StoredRelease,
        only: &(dyn Fn(&ObjectKey) -> bool + Sync),
        lines: &str,
    ) -> Result<Repaired, ActionError> {
        self.expect(lines);
        let repaired = Box::pin(repair(&self.context(), live, &stored.release, only)).await;
        self.assert_sent(lines);
        repaired
    }
}

type PendingAction = Arc<Mutex<Option<(String, BoxFuture<'static, ()>)>>>;

/// A fixture with watches, and an action that runs just before a request is answered.
struct WatchFixture {
    fixture: Fixture,
    feed: Feed,
    pending_action: PendingAction,
}

impl WatchFixture {
    fn new() -> Self {
        let (mut fixture, feed) = (Fixture::new(), Feed::default());
        let pending_action = PendingAction::default();
        let (script, event) = (fixture.script.client(), Arc::clone(&pending_action));
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (script, event) = (script.clone(), Arc::clone(&event));
            async move {
                let line = format!("{} {}", request.method(), request.uri().path());
                let due = event.lock().take_if(|(at, _)| *at == line);
                if let Some((_, happens)) = due {
                    happens.await;
                }
                script.send(request).await
            }
        });
        fixture.cluster = Cluster::new(Client::new(service, "default"));
        fixture.registry = Registry::new(feed.client(), Restarts::default());
        Self {
            fixture,
            feed,
            pending_action,
        }
    }

    /// Runs `happens` before this request (a line as in [`Fixture::expect`]) is answered.
    fn during(&self, line: &str, happens: impl Future<Output = ()> + Send + 'static) {
        let (request, ..) = self.fixture.exchange(line);
        *self.pending_action.lock() = Some((request, Box::pin(happens)));
    }

    /// Deploys the first revision and sends watch events for its objects.
    async fn install(&self, live: &mut Live, objects: &[&str]) -> StoredRelease {
        let stored = Box::pin(self.fixture.install(live, objects)).await;
        for object in objects {
            self.show(object, "ADDED", 7, &json!([]));
        }
        for object in objects {
            until(|| live.is_clean(&key(object))).await;
        }
        stored
    }

    /// Sends a watch event for an object with these managed fields.
    fn show(&self, object: &str, event: &str, version: u32, fields: &Value) {
        let (plural, name) = object.split_once('/').unwrap();
        let mut shown = self.fixture.live(name);
        shown["metadata"]["namespace"] = "prod".into();
        shown["metadata"]["resourceVersion"] = version.to_string().into();
        shown["metadata"]["managedFields"] = fields.clone();
        shown["apiVersion"] = "v1".into();
        shown["kind"] = "Any".into();
        // A Service is ready when it has an address; a ConfigMap when it exists.
        shown["spec"] = json!({"clusterIP": "10.0.0.1"});
        self.feed.send(plural, event, &shown);
    }

    /// Sends a watch event for a Job with this status.
    fn show_job(&self, name: &str, event: &str, version: u32, status: &Value) {
        let mut shown = self.fixture.live(name);
        shown["metadata"]["namespace"] = "prod".into();
        shown["metadata"]["resourceVersion"] = version.to_string().into();
        shown["metadata"]["managedFields"] = json!([]);
        shown["apiVersion"] = "batch/v1".into();
        shown["kind"] = "Job".into();
        shown["spec"] = json!({"ttlSecondsAfterFinished": (name == "expiring").then_some(0)});
        shown["status"] = status.clone();
        self.feed.send("jobs", event, &shown);
    }

    /// Repairs a release whose only changed object, this one, is gone.
    async fn created_again(
        &self,
        object: &str,
        live: &mut Live,
        stored: &StoredRelease,
    ) -> Repaired {
        let lines = format!("apply {object}: 409, read {object}: 404, create {object}");
        let repaired = self.fixture.repair(live, stored, &all, &lines).await;
        repaired.unwrap()
    }

    fn watch(&self, plural: &str, kind: &str) -> WatchGuard {
        let gvk = GroupVersionKind::gvk("", "v1", kind);
        self.fixture.registry.acquire(WatchKey {
            resource: kube::core::ApiResource::from_gvk_with_plural(&gvk, plural),
            namespace: None,
            selector: operator_selector(&self.fixture.operator),
            fields: None,
            by: By::Namespace,
        })
    }
}

/// Managed fields after somebody else has taken this field.
fn without(field: &str) -> Value {
    json!([{"manager": "helm", "operation": "Apply", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:left-without": {field: {}}}}])
}

fn key(object: &str) -> ObjectKey {
    let document = document(object, "");
    let [object] = &helm_core::manifest::parse_objects(&document).unwrap()[..] else {
        panic!("{document}")
    };
    let mut key = object.key().clone();
    key.namespace = Some("prod".to_owned());
    key
}

fn keys(objects: &[&str]) -> Vec<ObjectKey> {
    objects.iter().map(|object| key(object)).collect()
}

fn manifest(stored: &StoredRelease) -> Vec<ManifestObject> {
    helm_core::manifest::parse_objects(&stored.release.manifest).unwrap()
}

/// Lets other tasks run until a condition holds.
async fn until(mut holds: impl FnMut() -> bool) {
    let holding = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, holding).await.unwrap();
}

fn all(_: &ObjectKey) -> bool {
    true
}

#[tokio::test]
async fn an_object_deleted_during_a_repair_is_repaired_next() {
    let setup = WatchFixture::new();
    let mut live = Live::default();
    let stored = setup
        .install(&mut live, &["configmaps/c", "services/s"])
        .await;
    setup.show("configmaps/c", "MODIFIED", 8, &without("a"));
    until(|| live.drifted() == keys(&["configmaps/c"])).await;

    setup.fixture.expect("apply configmaps/c");
    let services = setup.watch("services", "Service");
    let gone = {
        let feed = setup.feed.clone();
        let mut object = setup.fixture.live("s");
        object["metadata"]["namespace"] = "prod".into();
        object["metadata"]["resourceVersion"] = "9".into();
        async move {
            feed.send("services", "DELETED", &object);
            until(|| services.get(Some("prod"), "s").is_none()).await;
        }
    };
    setup.during("apply configmaps/c", gone);
    let context = setup.fixture.context();
    let repaired = repair(&context, &mut live, &stored.release, &all).await;
    let Repaired { applied, drifted } = repaired.unwrap();
    assert_eq!(applied, keys(&["configmaps/c"]));
    assert!(drifted.contains(&key("services/s")), "{drifted:?}");

    let lines = "apply services/s: 409, read services/s: 404, create services/s";
    let only = |key: &ObjectKey| key.kind == "Service";
    let repaired = setup.fixture.repair(&mut live, &stored, &only, lines).await;
    assert_eq!(repaired.unwrap().applied, keys(&["services/s"]));
}

#[tokio::test]
async fn a_repair_skips_and_reports_objects_that_are_not_selected() {
    let setup = WatchFixture::new();
    let mut live = Live::default();
    let objects = ["configmaps/fought", "configmaps/c"];
    let stored = setup.install(&mut live, &objects).await;
    for object in objects {
        setup.show(object, "MODIFIED", 8, &without("a"));
    }
    until(|| live.drifted().len() == 2).await;
    let states = live.drifted_states();
    assert_eq!(states[0].1, states[1].1, "both lost the same field");
    assert!(states[0].1.is_some());
    let lines = "apply configmaps/c";
    let only = |key: &ObjectKey| key.name != "fought";
    let repaired = setup.fixture.repair(&mut live, &stored, &only, lines).await;
    let Repaired { applied, drifted } = repaired.unwrap();
    assert_eq!(applied, keys(&["configmaps/c"]));
    assert!(drifted.contains(&key("configmaps/fought")));
}

#[tokio::test]
async fn a_failed_repair_of_one_object_does_not_block_others() {
    let setup = WatchFixture::new();
    let mut live = Live::default();
    let objects = ["configmaps/a", "configmaps/b"];
    let stored = setup.install(&mut live, &objects).await;
    for object in objects {
        setup.show(object, "MODIFIED", 8, &without("a"));
    }
    until(|| live.drifted().len() == 2).await;
    let lines = "apply configmaps/a: 403, apply configmaps/b";
    let repaired = setup.fixture.repair(&mut live, &stored, &all, lines).await;
    assert_eq!(repaired.unwrap_err().reason(), "Forbidden");
}

#[tokio::test]
async fn a_failed_repair_of_all_objects_applies_all_of_them_again() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    // Another revision was known before.
    drop(fixture.install(&mut live, &["configmaps/old"]).await);
    let objects = ["configmaps/a", "configmaps/b"];
    let stored = stored(3, Status::Deployed, &objects, Vec::new());
    for lines in [
        "create configmaps/a: 500, create configmaps/b",
        "create configmaps/a, apply configmaps/b",
    ] {
        assert!(!(live.revision == Some(3) && live.complete));
        let only = |_: &ObjectKey| false;
        drop(fixture.repair(&mut live, &stored, &only, lines).await);
    }
    assert!(live.complete && live.revision == Some(3));
    // Objects that are not in this revision's manifest are dropped.
    let known: Vec<ObjectKey> = live.keys().cloned().collect();
    assert_eq!(known, keys(&objects));
}

fn waiting_deployment(stored: &mut StoredRelease) -> Deployment<'_> {
    Deployment {
        wait: true,
        ..deployment(stored)
    }
}

#[tokio::test]
async fn an_object_removed_while_a_release_waits_is_applied_again() {
    let setup = WatchFixture::new();
    let mut live = Live::default();
    let objects = ["configmaps/c", "services/s"];
    let mut stored = stored(1, Status::PendingInstall, &objects, Vec::new());
    let fixture = &setup.fixture;
    let lines = "create configmaps/c, create services/s";
    let install = waiting_deployment(&mut stored);
    let progress = fixture.deploy(&mut live, install, lines).await.unwrap();
    let waits = matches!(progress, ActionProgress::Waiting { .. });
    assert!(waits, "{progress:?}");
    for object in objects {
        setup.show(object, "ADDED", 7, &json!([]));
    }
    until(|| live.is_clean(&key("configmaps/c")) && live.is_clean(&key("services/s"))).await;
    setup.show("services/s", "DELETED", 8, &json!([]));
    until(|| live.drifted() == keys(&["services/s"])).await;
    let lines = "apply services/s: 409, read services/s: 404, create services/s";
    let install = waiting_deployment(&mut stored);
    drop(fixture.deploy(&mut live, install, lines).await.unwrap());
}

#[tokio::test]
async fn a_revision_waits_for_its_jobs_and_fails_with_one_that_failed_only_if_asked_to() {
    let ended = |how: &str| {
        json!({"startTime": "t", "failed": 1, "conditions": [
            {"type": how, "status": "True", "reason": "Limit", "message": "too many restarts"}]})
    };
    let waits = |why: &str| Ok(ActionProgress::Waiting { why: why.into() });
    let fails = |job: &str| {
        Err(format!(
            "Job.batch prod/{job} failed: Job failed (1 of 1): Limit: too many restarts"
        ))
    };
    let done = || Ok(ActionProgress::Done);
    let started = || json!({"startTime": "t"});
    let not_started = waits("Job.batch prod/j: Job not started");
    let not_complete = waits("Job.batch prod/j: not complete");
    for (wait_for_jobs, job, status, deleted, expected) in [
        (true, "j", json!({}), false, not_started),
        (true, "j", started(), false, not_complete),
        (true, "j", ended("Complete"), false, done()),
        (true, "j", ended("Failed"), false, fails("j")),
        (true, "expiring", ended("Complete"), true, done()),
        (true, "expiring", ended("Failed"), true, fails("expiring")),
        (false, "j", json!({}), false, done()),
        (false, "j", started(), false, done()),
        (false, "j", ended("Failed"), false, done()),
    ] {
        let setup = WatchFixture::new();
        let mut live = Live::default();
        let object = format!("jobs/{job}");
        let objects = ["services/s", object.as_str()];
        let mut stored = stored(1, Status::PendingInstall, &objects, Vec::new());
        let created = format!("create services/s, create {object}");
        setup.fixture.expect(&created);
        let context = setup.fixture.context();
        let mut advance = async |live: &mut Live| {
            let wanted = Deployment {
                wait_for_jobs,
                ..waiting_deployment(&mut stored)
            };
            let progress = deploy(&context, live, wanted).await;
            progress.map_err(|error| error.to_string())
        };
        // The Service holds up the release until the Job is seen, too.
        let progress = advance(&mut live).await;
        let waits = matches!(progress, Ok(ActionProgress::Waiting { .. }));
        assert!(waits, "{progress:?}");
        setup.show_job(job, "ADDED", 7, &status);
        until(|| live.is_clean(&key(&object))).await;
        if deleted {
            setup.show_job(job, "DELETED", 8, &status);
            until(|| !live.is_clean(&key(&object))).await;
        }
        setup.show("services/s", "ADDED", 7, &json!([]));
        until(|| live.is_clean(&key("services/s"))).await;
        if expected == Ok(ActionProgress::Done) {
            setup.fixture.expect("record 1 deployed");
        }
        let ended = advance(&mut live).await;
        assert_eq!(ended, expected, "{wait_for_jobs} {status}");
        setup.fixture.script.finish();
    }
}

#[tokio::test]
async fn an_object_that_could_not_be_deleted_stays_tracked() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    let before = ["configmaps/c", "configmaps/gone"];
    let previous = fixture.install(&mut live, &before).await;
    let lines = "apply configmaps/c, read configmaps/gone, delete configmaps/gone: 403";
    let mut stored = stored(2, Status::PendingUpgrade, &["configmaps/c"], Vec::new());
    let upgrade = after(previous, &mut stored);
    let ended = fixture.deploy(&mut live, upgrade, lines).await;
    assert_eq!(action_result(ended), Err(("Forbidden", false)));
    assert_eq!(live.uid(&key("configmaps/gone")), Some("uid-of-gone"));
}

#[tokio::test]
async fn unwatched_objects_are_read() {
    let setup = WatchFixture::new();
    setup.feed.reject_watches("configmaps", 403);
    let mut live = Live::default();
    let stored = setup.fixture.install(&mut live, &["configmaps/c"]).await;
    let watch = setup.watch("configmaps", "ConfigMap");
    assert!(matches!(watch.settled().await, WatchState::Forbidden(_)));
    let (unwatched, reason) = live.unwatched().remove(0);
    assert_eq!(unwatched, key("configmaps/c"));
    let expected = "missing permission to watch configmaps in all namespaces";
    assert_eq!(reason, expected);
    assert!(live.drifted().is_empty());

    let get = format!("GET {}", path("configmaps/c"));
    let state = |live: &Live| live.states().next().unwrap().1;
    let with = |fields: Value| {
        let mut object = setup.fixture.live("c");
        object["metadata"]["managedFields"] = fields;
        object
    };
    let same = with(json!([]));
    let changed = with(without("a"));
    for (code, answer, is_same, drifts) in [
        (200, &same, true, false),
        (200, &changed, false, true),
        (200, &same, true, false),
        // Nothing is claimed from an earlier read.
        (500, &failure_status(500), false, false),
        (404, &failure_status(404), false, true),
        // What is missing stays missing until a read succeeds.
        (500, &failure_status(500), false, true),
        (403, &failure_status(403), false, false),
    ] {
        setup.fixture.script.expect(&get, code, answer.clone());
        let read = read_unwatched(&setup.fixture.cluster, &mut live).await;
        assert_eq!(read.is_err(), code == 500);
        let state = state(&live);
        let same = matches!(state, ObjectState::Same(_));
        assert_eq!(same, is_same, "{code} {state:?}");
        assert_eq!(!live.drifted().is_empty(), drifts, "{code} {state:?}");
    }
    assert!(live.unwatched()[0].1.contains("it cannot be read either"));
    assert!(
        live.unready(JobReadiness::Started).is_empty(),
        "an applied object without a status is ready"
    );
    setup.fixture.script.finish();

    // The object is gone, and created again.
    let script = &setup.fixture.script;
    script.expect(&get, 404, failure_status(404));
    let read = read_unwatched(&setup.fixture.cluster, &mut live).await;
    read.unwrap();
    let repaired = setup.created_again("configmaps/c", &mut live, &stored);
    assert!(repaired.await.drifted.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_deleted_before_the_first_list_is_missing() {
    for (line, gone) in [
        ("read configmaps/c: 404", true),
        // The watch is only late.
        ("read configmaps/c", false),
    ] {
        let setup = WatchFixture::new();
        let mut live = Live::default();
        // No list has the object, and no event tells of it.
        let stored = setup.fixture.install(&mut live, &["configmaps/c"]).await;
        let watch = setup.watch("configmaps", "ConfigMap");
        assert_eq!(watch.settled().await, WatchState::Synced);
        let state = |live: &Live| live.states().next().unwrap().1;
        assert_eq!(state(&live), ObjectState::Unknown);
        let wait = live.read_in().unwrap();
        let cluster = &setup.fixture.cluster;
        // Nothing is read while the watch may only be late.
        tokio::time::advance(wait.saturating_sub(Duration::from_millis(1))).await;
        read_unseen(cluster, &mut live).await.unwrap();
        assert_eq!(state(&live), ObjectState::Unknown);

        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(live.read_in(), Some(Duration::ZERO));
        // What is refused is tried again.
        setup.fixture.expect("read configmaps/c: 403");
        read_unseen(cluster, &mut live).await.unwrap();
        setup.fixture.assert_sent("read configmaps/c: 403");
        assert_eq!(state(&live), ObjectState::Unknown);
        tokio::time::advance(live.read_in().unwrap()).await;
        setup.fixture.expect(line);
        read_unseen(cluster, &mut live).await.unwrap();
        setup.fixture.assert_sent(line);
        assert_eq!(live.read_in(), None);
        // It is read once.
        read_unseen(cluster, &mut live).await.unwrap();
        assert_eq!(live.drifted() == keys(&["configmaps/c"]), gone);
        assert_eq!(live.is_clean(&key("configmaps/c")), !gone);
        if gone {
            let repaired = setup.created_again("configmaps/c", &mut live, &stored);
            assert_eq!(repaired.await.applied, keys(&["configmaps/c"]));
        }
    }
}

#[tokio::test]
async fn recognition_after_a_restart_keeps_watches_open_and_reads_nothing() {
    let setup = WatchFixture::new();
    let mut before = Live::default();
    let objects = ["configmaps/c", "services/s"];
    let stored = setup.install(&mut before, &objects).await;
    let manifest = manifest(&stored);
    let baseline = before.aggregate();
    drop(before);

    let mut live = Live::default();
    setup.show("configmaps/c", "MODIFIED", 8, &without("a"));
    let watch = setup.watch("configmaps", "ConfigMap");
    until(|| watch.version() == 8).await;
    drop(watch);
    let context = setup.fixture.context();
    let opened = (
        setup.feed.opened("configmaps"),
        setup.feed.opened("services"),
    );
    for _ in 0..3 {
        let found = recognise(&context, &mut live, 1, &manifest, &baseline).await;
        let nothing_gone = Recognition::Differs {
            missing: Vec::new(),
        };
        assert_eq!(found.unwrap(), nothing_gone);
        assert!(!live.complete && live.keys().next().is_none());
    }
    let now = (
        setup.feed.opened("configmaps"),
        setup.feed.opened("services"),
    );
    assert!(now.0 <= opened.0 + 1 && now.1 <= opened.1 + 1, "{now:?}");

    setup.show("services/s", "DELETED", 9, &json!([]));
    let watch = setup.watch("services", "Service");
    until(|| watch.get(Some("prod"), "s").is_none()).await;
    let found = recognise(&context, &mut live, 1, &manifest, &baseline).await;
    let missing = keys(&["services/s"]);
    assert_eq!(found.unwrap(), Recognition::Differs { missing });

    setup.show("configmaps/c", "MODIFIED", 10, &json!([]));
    setup.show("services/s", "ADDED", 11, &json!([]));
    until(|| watch.get(Some("prod"), "s").is_some()).await;
    let maps = setup.watch("configmaps", "ConfigMap");
    until(|| maps.version() == 10).await;
    let found = recognise(&context, &mut live, 1, &manifest, &baseline).await;
    assert_eq!(found.unwrap(), Recognition::Known);
    assert!(live.complete && live.revision == Some(1) && live.drifted().is_empty());
    assert_eq!(live.aggregate(), baseline);
    setup.show("configmaps/c", "MODIFIED", 12, &without("a"));
    until(|| live.drifted() == keys(&["configmaps/c"])).await;
}

#[tokio::test]
async fn a_release_that_cannot_be_watched_is_recognised_by_reading_it() {
    let setup = WatchFixture::new();
    setup.feed.reject_watches("configmaps", 403);
    let mut live = Live::default();
    let stored = setup.fixture.install(&mut live, &["configmaps/c"]).await;
    let baseline = live.aggregate();
    let mut live = Live::default();
    for (line, expected) in [
        ("read configmaps/c: 500", Recognition::Unseen),
        (
            "read configmaps/c: 404",
            Recognition::Differs {
                missing: keys(&["configmaps/c"]),
            },
        ),
        ("read configmaps/c", Recognition::Known),
    ] {
        setup.fixture.expect(line);
        let context = setup.fixture.context();
        let found = recognise(&context, &mut live, 1, &manifest(&stored), &baseline).await;
        assert_eq!(found.unwrap(), expected);
        setup.fixture.assert_sent(line);
    }
    assert_eq!(live.unwatched().len(), 1);
    assert!(live.unready(JobReadiness::Started).is_empty());
}

/// Sets the time at which the API server stored a record.
fn stored_at(mut stored: StoredRelease, second: i64) -> StoredRelease {
    stored.meta.stored_at = Some(Timestamp::from_second(second).unwrap());
    stored
}

#[tokio::test]
async fn a_cleanup_deletes_only_objects_that_the_attempt_created() {
    let created = |second: i64| Some(Timestamp::from_second(second).unwrap().to_string());
    for (what, record, object, deleted) in [
        ("created by the attempt", 100, created(101), true),
        ("created in the same second", 100, created(100), true),
        ("taken over", 100, created(99), false),
        ("without a time", 100, None, false),
    ] {
        let fixture = Fixture::new();
        let mut live = Live::default();
        // Holds for objects that this process applied, too.
        let stored = stored_at(fixture.install(&mut live, &["configmaps/c"]).await, record);
        let mut answer = fixture.live("c");
        answer["metadata"]["creationTimestamp"] = json!(object);
        fixture.expect_read("configmaps/c", answer);
        if deleted {
            fixture.expect("delete configmaps/c");
        }
        let asked = remove_created(&fixture.context(), &mut live, &stored, &[]).await;
        assert_eq!(!asked.unwrap().is_empty(), deleted, "{what}");
        fixture.script.finish();
        assert_eq!(live.uid(&key("configmaps/c")), None, "{what}");
    }
}

#[tokio::test]
async fn a_cleanup_of_several_attempts_deletes_objects_of_the_first() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    let objects = ["configmaps/c"];
    let newest = stored_at(stored(2, Status::Failed, &objects, Vec::new()), 200);
    let first = stored_at(stored(1, Status::Failed, &objects, Vec::new()), 100);
    let unknown = stored(1, Status::Failed, &objects, Vec::new());
    let mut answer = fixture.live("c");
    answer["metadata"]["creationTimestamp"] =
        json!(Timestamp::from_second(150).unwrap().to_string());
    for (earlier, deleted) in [
        (&[][..], false),
        (&[first][..], true),
        // Without the time of the record, nothing proves what the attempt created.
        (&[unknown][..], false),
    ] {
        fixture.expect_read("configmaps/c", answer.clone());
        if deleted {
            fixture.expect("delete configmaps/c");
        }
        let asked = remove_created(&fixture.context(), &mut live, &newest, earlier).await;
        assert_eq!(!asked.unwrap().is_empty(), deleted);
        fixture.script.finish();
    }
}

#[tokio::test]
async fn objects_that_may_not_be_deleted_are_not_recreated() {
    let ours = |fixture: &Fixture| fixture.live("c");
    let keep = |fixture: &Fixture| {
        let mut live = fixture.live("c");
        live["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
        live
    };
    let foreign = |fixture: &Fixture| {
        let mut live = fixture.live("c");
        live["metadata"]["labels"] = json!({CR_LABEL: "another custom resource's"});
        live
    };
    let recreated = |fixture: &Fixture| {
        let mut live = fixture.live("c");
        live["metadata"]["uid"] = "another".into();
        live
    };
    #[expect(clippy::type_complexity, reason = "one table")]
    let cases: [(fn(&Fixture) -> Value, &str, ActionResult, &str); 4] = [
        (
            ours,
            "delete configmaps/c, create configmaps/c, record 2 deployed",
            Ok(()),
            "",
        ),
        (
            keep,
            "",
            Err(("ImmutableField", false)),
            "helm.sh/resource-policy: keep",
        ),
        (
            foreign,
            "",
            Err(("ForeignObject", false)),
            "another custom resource",
        ),
        (recreated, "", Err(("Contended", true)), "keeps changing"),
    ];
    for (answer, rest, expected, message) in cases {
        let mut fixture = Fixture::new();
        fixture.recreate = vec!["ConfigMap".to_owned()];
        let mut live = Live::default();
        drop(fixture.install(&mut live, &["configmaps/c"]).await);
        fixture.expect("apply configmaps/c: 422");
        fixture.expect_read("configmaps/c", answer(&fixture));
        let mut stored = stored(2, Status::PendingUpgrade, &["configmaps/c"], Vec::new());
        let upgrade = deployment(&mut stored);
        let ended = fixture.deploy(&mut live, upgrade, rest).await;
        if let Err(error) = &ended {
            let text = error.to_string();
            for part in [message, "ConfigMap prod/c"] {
                assert!(text.contains(part), "{text}");
            }
        }
        assert_eq!(action_result(ended), expected, "{message}");
    }
}

#[tokio::test]
async fn a_forced_rollback_replaces_unchanged_objects() {
    let setup = WatchFixture::new();
    let mut live = Live::default();
    let previous = setup.install(&mut live, &["configmaps/c"]).await;
    let put = format!("PUT {}", path("configmaps/c"));
    setup.fixture.expect("read configmaps/c");
    let answer = setup.fixture.live("c");
    setup.fixture.script.expect(&put, 200, answer);
    setup
        .fixture
        .expect("force configmaps/c, record 2 deployed, record 1 superseded");
    let mut stored = stored(2, Status::PendingRollback, &[], Vec::new());
    stored
        .release
        .manifest
        .clone_from(&previous.release.manifest);
    let rollback = after(previous, &mut stored);
    let mut context = setup.fixture.context();
    context.policy.replace = true;
    let done = deploy(&context, &mut live, rollback).await;
    assert_eq!(done.unwrap(), ActionProgress::Done);
    setup.fixture.script.finish();
}

#[tokio::test]
async fn a_repair_never_replaces() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    let stored = fixture.install(&mut live, &["configmaps/c"]).await;
    live.complete = false;
    let lines = "apply configmaps/c";
    fixture.expect(lines);
    let mut context = fixture.context();
    context.policy.replace = true;
    let repaired = repair(&context, &mut live, &stored.release, &all).await;
    repaired.unwrap();
    fixture.assert_sent(lines);
}

#[tokio::test]
async fn an_adoption_takes_over_only_objects_of_the_record() {
    let by_reference = |fixture: &Fixture, name: &str| {
        let mut live = fixture.live(name);
        live["metadata"]["labels"] = json!({});
        live["metadata"]["namespace"] = "prod".into();
        live["metadata"]["ownerReferences"] = json!([owner_reference(&fixture.primary)]);
        live
    };
    let fixture = Fixture::new();
    let mut context = fixture.context();
    context.policy.take_over = TakeOver::HelmRelease {
        name: "one".to_owned(),
        namespace: "prod".to_owned(),
    };
    let mut live = Live::default();
    // A repair applies what the adopted record names.
    let adopted = stored(1, Status::Deployed, &["configmaps/c"], Vec::new());
    fixture.expect_read("configmaps/c", by_reference(&fixture, "c"));
    fixture.expect("force configmaps/c");
    let repaired = repair(&context, &mut live, &adopted.release, &all).await;
    repaired.unwrap();
    // The next revision has an object that the record does not name.
    let mut next = stored(
        2,
        Status::PendingUpgrade,
        &["configmaps/c", "configmaps/new"],
        Vec::new(),
    );
    fixture.expect("apply configmaps/c, create configmaps/new: 409");
    fixture.expect_read("configmaps/new", by_reference(&fixture, "new"));
    drop(fixture.script.clone().in_any_order());
    let ended = deploy(&context, &mut live, after(adopted, &mut next)).await;
    assert_eq!(action_result(ended), Err(("ForeignObject", false)));
    fixture.script.finish();
}

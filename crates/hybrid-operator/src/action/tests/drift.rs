//! Objects that change while something is done about them, with watches that a test feeds.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use helm_core::manifest::{ManifestObject, ObjectKey};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::sync::watch;

use super::*;
use crate::action::live::{ObjectState, read_unwatched};
use crate::action::recognise::{Recognition, recognise};
use crate::action::repair::{Repaired, repair};
use crate::action::uninstall::remove_created;
use crate::cluster::apply::TakeOver;
use crate::cluster::ownership::operator_selector;
use crate::controller::{WatchGuard, WatchKey, WatchState};

type Answer = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// Watches of all kinds: what there is, and the events that a test sends.
#[derive(Clone, Default)]
struct Feed(Arc<Mutex<HashMap<String, Watched>>>);

/// The watches of one kind.
struct Watched {
    objects: BTreeMap<String, Value>,
    events: watch::Sender<Vec<String>>,
    refused: Option<u16>,
    /// How often a watch was opened.
    opened: usize,
}

impl Default for Watched {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            events: watch::Sender::new(Vec::new()),
            refused: None,
            opened: 0,
        }
    }
}

impl Watched {
    /// What there is, the end of this list, and then every event.
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
        change(self.0.lock().unwrap().entry(plural.to_owned()).or_default())
    }

    /// Refuses the watches of a kind.
    fn refuse(&self, plural: &str, code: u16) {
        self.with(plural, |watched| watched.refused = Some(code));
    }

    /// Sends an event about an object.
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

    /// A client whose requests are watches.
    fn client(&self) -> Client {
        let feed = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let plural = request.uri().path().rsplit('/').next().unwrap().to_owned();
            let answer = feed.with(&plural, |watched| {
                watched.opened += 1;
                match watched.refused {
                    Some(code) => http::Response::builder()
                        .status(code)
                        .body(Full::from(refusal(code).to_string()).boxed_unsync())
                        .unwrap(),
                    None => http::Response::new(watched.stream()),
                }
            });
            async move { Ok::<_, std::convert::Infallible>(answer) }
        });
        Client::new(service, "default")
    }
}

type Meanwhile = Arc<Mutex<Option<(String, BoxFuture<'static, ()>)>>>;

/// A stage with watches, and with something that happens just before a request is answered.
struct Scene {
    stage: Stage,
    feed: Feed,
    meanwhile: Meanwhile,
}

impl Scene {
    fn new() -> Self {
        let (mut stage, feed) = (Stage::new(), Feed::default());
        let meanwhile = Meanwhile::default();
        let (script, event) = (stage.script.client(true), Arc::clone(&meanwhile));
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (script, event) = (script.clone(), Arc::clone(&event));
            async move {
                let line = format!("{} {}", request.method(), request.uri().path());
                let due = event.lock().unwrap().take_if(|(at, _)| *at == line);
                if let Some((_, happens)) = due {
                    happens.await;
                }
                script.send(request).await
            }
        });
        stage.cluster = Cluster::new(Client::new(service, "default"));
        stage.registry = Registry::new(feed.client());
        Self {
            stage,
            feed,
            meanwhile,
        }
    }

    /// Lets something happen while this request (a line as in [`Stage::expect`]) is under way.
    fn during(&self, line: &str, happens: impl Future<Output = ()> + Send + 'static) {
        let (request, ..) = self.stage.exchange(line);
        *self.meanwhile.lock().unwrap() = Some((request, Box::pin(happens)));
    }

    /// Deploys the first revision, and lets the watches show its objects.
    async fn install(&self, live: &mut Live, objects: &[&str]) -> Stored {
        let stored = self.stage.install(live, objects).await;
        for object in objects {
            self.show(object, "ADDED", 7, &json!([]));
        }
        for object in objects {
            until(|| live.is_clean(&key(object))).await;
        }
        stored
    }

    /// Lets the watch show an object; `fields` are its managed fields.
    fn show(&self, object: &str, event: &str, version: u32, fields: &Value) {
        let (plural, name) = object.split_once('/').unwrap();
        let mut shown = self.stage.live(name);
        shown["metadata"]["namespace"] = "prod".into();
        shown["metadata"]["resourceVersion"] = version.to_string().into();
        shown["metadata"]["managedFields"] = fields.clone();
        shown["apiVersion"] = "v1".into();
        shown["kind"] = "Any".into();
        // A Service is ready when it has an address; a ConfigMap when it is there.
        shown["spec"] = json!({"clusterIP": "10.0.0.1"});
        self.feed.send(plural, event, &shown);
    }

    /// The watch that shows objects of a kind.
    fn watch(&self, plural: &str, kind: &str) -> WatchGuard {
        let gvk = GroupVersionKind::gvk("", "v1", kind);
        self.stage.registry.acquire(WatchKey {
            resource: kube::core::ApiResource::from_gvk_with_plural(&gvk, plural),
            namespace: None,
            selector: operator_selector(&self.stage.operator),
        })
    }
}

/// What is ours after somebody has taken this field.
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

fn manifest(stored: &Stored) -> Vec<ManifestObject> {
    helm_core::manifest::parse_objects(&stored.release.manifest).unwrap()
}

/// Lets other tasks run until something holds.
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
async fn what_vanishes_during_a_repair_is_repaired_next() {
    let scene = Scene::new();
    let mut live = Live::default();
    let stored = scene
        .install(&mut live, &["configmaps/c", "services/s"])
        .await;
    scene.show("configmaps/c", "MODIFIED", 8, &without("a"));
    until(|| live.drifted() == keys(&["configmaps/c"])).await;

    scene.stage.expect(&["apply configmaps/c"]);
    let services = scene.watch("services", "Service");
    let gone = {
        let feed = scene.feed.clone();
        let mut object = scene.stage.live("s");
        object["metadata"]["namespace"] = "prod".into();
        object["metadata"]["resourceVersion"] = "9".into();
        async move {
            feed.send("services", "DELETED", &object);
            until(|| services.get(Some("prod"), "s").is_none()).await;
        }
    };
    scene.during("apply configmaps/c", gone);
    let context = scene.stage.context();
    let repaired = repair(&context, &mut live, &stored.release, &all).await;
    let Repaired { applied, drifted } = repaired.unwrap();
    assert_eq!(applied, keys(&["configmaps/c"]));
    assert!(drifted.contains(&key("services/s")), "{drifted:?}");

    let lines = [
        "apply services/s: 409",
        "read services/s: 404",
        "create services/s",
    ];
    scene.stage.expect(&lines);
    let only = |key: &ObjectKey| key.kind == "Service";
    let repaired = repair(&context, &mut live, &stored.release, &only).await;
    assert_eq!(repaired.unwrap().applied, keys(&["services/s"]));
    scene.stage.sent(&lines);
}

#[tokio::test]
async fn a_repair_leaves_what_it_is_told_to_leave_and_says_so() {
    let scene = Scene::new();
    let mut live = Live::default();
    let objects = ["configmaps/fought", "configmaps/c"];
    let stored = scene.install(&mut live, &objects).await;
    for object in objects {
        scene.show(object, "MODIFIED", 8, &without("a"));
    }
    until(|| live.drifted().len() == 2).await;
    let states = live.drifted_states();
    assert_eq!(states[0].1, states[1].1, "the same field is gone of both");
    assert!(states[0].1.is_some());
    let lines = ["apply configmaps/c"];
    scene.stage.expect(&lines);
    let only = |key: &ObjectKey| key.name != "fought";
    let context = scene.stage.context();
    let repaired = repair(&context, &mut live, &stored.release, &only).await;
    let Repaired { applied, drifted } = repaired.unwrap();
    assert_eq!(applied, keys(&["configmaps/c"]));
    assert!(drifted.contains(&key("configmaps/fought")));
    scene.stage.sent(&lines);
}

#[tokio::test]
async fn an_object_that_cannot_be_repaired_does_not_keep_others_from_it() {
    let scene = Scene::new();
    let mut live = Live::default();
    let objects = ["configmaps/a", "configmaps/b"];
    let stored = scene.install(&mut live, &objects).await;
    for object in objects {
        scene.show(object, "MODIFIED", 8, &without("a"));
    }
    until(|| live.drifted().len() == 2).await;
    let lines = ["apply configmaps/a: 403", "apply configmaps/b"];
    scene.stage.expect(&lines);
    let context = scene.stage.context();
    let repaired = repair(&context, &mut live, &stored.release, &all).await;
    assert_eq!(repaired.unwrap_err().reason(), "Forbidden");
    scene.stage.sent(&lines);
}

#[tokio::test]
async fn a_repair_of_all_objects_that_failed_applies_all_of_them_again() {
    let stage = Stage::new();
    let mut live = Live::default();
    // Another revision was known before.
    drop(stage.install(&mut live, &["configmaps/old"]).await);
    let objects = ["configmaps/a", "configmaps/b"];
    let stored = stored(3, Status::Deployed, &objects, Vec::new());
    for lines in [
        ["create configmaps/a: 500", "create configmaps/b"],
        ["create configmaps/a", "apply configmaps/b"],
    ] {
        assert!(!(live.revision == Some(3) && live.complete));
        stage.expect(&lines);
        let only = |_: &ObjectKey| false;
        drop(repair(&stage.context(), &mut live, &stored.release, &only).await);
        stage.sent(&lines);
    }
    assert!(live.complete && live.revision == Some(3));
    // What is not of this revision's manifest can drift no more.
    let known: Vec<ObjectKey> = live.keys().cloned().collect();
    assert_eq!(known, keys(&objects));
}

fn waits(stored: &mut Stored) -> Deployment<'_> {
    Deployment {
        wait: true,
        ..deployment(stored)
    }
}

#[tokio::test]
async fn what_is_removed_while_a_release_waits_is_applied_again() {
    let scene = Scene::new();
    let mut live = Live::default();
    let objects = ["configmaps/c", "services/s"];
    let mut stored = stored(1, Status::PendingInstall, &objects, Vec::new());
    scene
        .stage
        .expect(&["create configmaps/c", "create services/s"]);
    let context = scene.stage.context();
    let progress = deploy(&context, &mut live, waits(&mut stored))
        .await
        .unwrap();
    assert!(matches!(progress, Progress::Waiting { .. }), "{progress:?}");
    for object in objects {
        scene.show(object, "ADDED", 7, &json!([]));
    }
    until(|| live.is_clean(&key("configmaps/c")) && live.is_clean(&key("services/s"))).await;
    scene.show("services/s", "DELETED", 8, &json!([]));
    until(|| live.drifted() == keys(&["services/s"])).await;
    let lines = [
        "apply services/s: 409",
        "read services/s: 404",
        "create services/s",
    ];
    scene.stage.expect(&lines);
    drop(
        deploy(&context, &mut live, waits(&mut stored))
            .await
            .unwrap(),
    );
    scene.stage.sent(&lines);
}

#[tokio::test]
async fn what_was_not_deleted_stays_known() {
    let stage = Stage::new();
    let mut live = Live::default();
    let before = ["configmaps/c", "configmaps/gone"];
    let previous = stage.install(&mut live, &before).await;
    let lines = [
        "apply configmaps/c",
        "read configmaps/gone",
        "delete configmaps/gone: 403",
    ];
    stage.expect(&lines);
    let mut stored = stored(2, Status::PendingUpgrade, &["configmaps/c"], Vec::new());
    let upgrade = Deployment {
        previous: Some(previous),
        ..deployment(&mut stored)
    };
    let ended = deploy(&stage.context(), &mut live, upgrade).await;
    assert_eq!(end(ended), Err(("Forbidden", false)));
    assert_eq!(live.uid(&key("configmaps/gone")), Some("uid-of-gone"));
    stage.sent(&lines);
}

#[tokio::test]
async fn what_cannot_be_watched_is_read() {
    let scene = Scene::new();
    scene.feed.refuse("configmaps", 403);
    let mut live = Live::default();
    let stored = scene.stage.install(&mut live, &["configmaps/c"]).await;
    let watch = scene.watch("configmaps", "ConfigMap");
    assert!(matches!(watch.settled().await, WatchState::Forbidden(_)));
    let (unwatched, reason) = live.unwatched().remove(0);
    assert_eq!(unwatched, key("configmaps/c"));
    assert_eq!(
        reason,
        "missing permission to watch configmaps in all namespaces"
    );
    assert!(live.drifted().is_empty());

    let get = format!("GET {}", path("configmaps/c"));
    let state = |live: &Live| live.states().next().unwrap().1;
    let with = |fields: Value| {
        let mut object = scene.stage.live("c");
        object["metadata"]["managedFields"] = fields;
        object
    };
    let same = with(json!([]));
    let changed = with(without("a"));
    for (code, answer, is_same, drifts) in [
        (200, &same, true, false),
        (200, &changed, false, true),
        (200, &same, true, false),
        (404, &refusal(404), false, true),
        // What was read last counts until it can be read again.
        (500, &refusal(500), false, true),
        (403, &refusal(403), false, false),
    ] {
        drop(scene.stage.script.clone().on(&get, code, answer.clone()));
        let read = read_unwatched(&scene.stage.cluster, &mut live).await;
        assert_eq!(read.is_err(), code == 500);
        let state = state(&live);
        assert_eq!(
            matches!(state, ObjectState::Same(_)),
            is_same,
            "{code} {state:?}"
        );
        assert_eq!(!live.drifted().is_empty(), drifts, "{code} {state:?}");
    }
    assert!(live.unwatched()[0].1.contains("it cannot be read either"));
    assert!(
        live.unready(true).is_empty(),
        "it was applied, and has no status"
    );
    scene.stage.script.finish();

    // It is gone, and made anew.
    drop(scene.stage.script.clone().on(&get, 404, refusal(404)));
    read_unwatched(&scene.stage.cluster, &mut live)
        .await
        .unwrap();
    let lines = [
        "apply configmaps/c: 409",
        "read configmaps/c: 404",
        "create configmaps/c",
    ];
    scene.stage.expect(&lines);
    let repaired = repair(&scene.stage.context(), &mut live, &stored.release, &all).await;
    assert!(repaired.unwrap().drifted.is_empty());
    scene.stage.sent(&lines);
}

#[tokio::test]
async fn a_look_after_a_restart_closes_no_watch_and_reads_nothing() {
    let scene = Scene::new();
    let mut before = Live::default();
    let objects = ["configmaps/c", "services/s"];
    let stored = scene.install(&mut before, &objects).await;
    let manifest = manifest(&stored);
    let baseline = before.aggregate();
    drop(before);

    let mut live = Live::default();
    scene.show("configmaps/c", "MODIFIED", 8, &without("a"));
    let watch = scene.watch("configmaps", "ConfigMap");
    until(|| watch.version() == 8).await;
    drop(watch);
    let context = scene.stage.context();
    let opened = (
        scene.feed.opened("configmaps"),
        scene.feed.opened("services"),
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
        scene.feed.opened("configmaps"),
        scene.feed.opened("services"),
    );
    assert!(now.0 <= opened.0 + 1 && now.1 <= opened.1 + 1, "{now:?}");

    scene.show("services/s", "DELETED", 9, &json!([]));
    let watch = scene.watch("services", "Service");
    until(|| watch.get(Some("prod"), "s").is_none()).await;
    let found = recognise(&context, &mut live, 1, &manifest, &baseline).await;
    let missing = keys(&["services/s"]);
    assert_eq!(found.unwrap(), Recognition::Differs { missing });

    scene.show("configmaps/c", "MODIFIED", 10, &json!([]));
    scene.show("services/s", "ADDED", 11, &json!([]));
    until(|| watch.get(Some("prod"), "s").is_some()).await;
    let maps = scene.watch("configmaps", "ConfigMap");
    until(|| maps.version() == 10).await;
    let found = recognise(&context, &mut live, 1, &manifest, &baseline).await;
    assert_eq!(found.unwrap(), Recognition::Known);
    assert!(live.complete && live.revision == Some(1) && live.drifted().is_empty());
    assert_eq!(live.aggregate(), baseline);
    scene.show("configmaps/c", "MODIFIED", 12, &without("a"));
    until(|| live.drifted() == keys(&["configmaps/c"])).await;
}

#[tokio::test]
async fn a_release_that_cannot_be_watched_is_recognised_by_reading_it() {
    let scene = Scene::new();
    scene.feed.refuse("configmaps", 403);
    let mut live = Live::default();
    let stored = scene.stage.install(&mut live, &["configmaps/c"]).await;
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
        scene.stage.expect(&[line]);
        let context = scene.stage.context();
        let found = recognise(&context, &mut live, 1, &manifest(&stored), &baseline).await;
        assert_eq!(found.unwrap(), expected);
        scene.stage.sent(&[line]);
    }
    assert_eq!(live.unwatched().len(), 1);
    assert!(live.unready(true).is_empty());
}

/// A record that the API server stored at this second.
fn stored_at(mut stored: Stored, second: i64) -> Stored {
    stored.meta.stored_at = Some(Timestamp::from_second(second).unwrap());
    stored
}

#[tokio::test]
async fn a_clean_up_deletes_only_what_the_attempt_created() {
    let created = |second: i64| Some(Timestamp::from_second(second).unwrap().to_string());
    for (what, record, object, deleted) in [
        ("created by the attempt", 100, created(101), true),
        ("created in the same second", 100, created(100), true),
        ("taken over", 100, created(99), false),
        ("without a time", 100, None, false),
    ] {
        let stage = Stage::new();
        let mut live = Live::default();
        // Also what this process has applied itself.
        let stored = stored_at(stage.install(&mut live, &["configmaps/c"]).await, record);
        let mut answer = stage.live("c");
        answer["metadata"]["creationTimestamp"] = json!(object);
        let get = format!("GET {}", path("configmaps/c"));
        drop(stage.script.clone().on(&get, 200, answer));
        if deleted {
            stage.expect(&["delete configmaps/c"]);
        }
        let asked = remove_created(&stage.context(), &mut live, &stored, &[]).await;
        assert_eq!(!asked.unwrap().is_empty(), deleted, "{what}");
        stage.script.finish();
        assert_eq!(live.uid(&key("configmaps/c")), None, "{what}");
    }
}

#[tokio::test]
async fn a_clean_up_of_several_attempts_deletes_what_the_first_of_them_created() {
    let stage = Stage::new();
    let mut live = Live::default();
    let objects = ["configmaps/c"];
    let newest = stored_at(stored(2, Status::Failed, &objects, Vec::new()), 200);
    let first = stored_at(stored(1, Status::Failed, &objects, Vec::new()), 100);
    let unknown = stored(1, Status::Failed, &objects, Vec::new());
    let mut answer = stage.live("c");
    answer["metadata"]["creationTimestamp"] =
        json!(Timestamp::from_second(150).unwrap().to_string());
    let get = format!("GET {}", path("configmaps/c"));
    for (earlier, deleted) in [
        (&[][..], false),
        (&[first][..], true),
        // Without its time nothing proves what the attempt created.
        (&[unknown][..], false),
    ] {
        drop(stage.script.clone().on(&get, 200, answer.clone()));
        if deleted {
            stage.expect(&["delete configmaps/c"]);
        }
        let asked = remove_created(&stage.context(), &mut live, &newest, earlier).await;
        assert_eq!(!asked.unwrap().is_empty(), deleted);
        stage.script.finish();
    }
}

#[tokio::test]
async fn nothing_is_recreated_that_may_not_be_deleted() {
    let ours = |stage: &Stage| stage.live("c");
    let keep = |stage: &Stage| {
        let mut live = stage.live("c");
        live["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
        live
    };
    let foreign = |stage: &Stage| {
        let mut live = stage.live("c");
        live["metadata"]["labels"] = json!({CR_LABEL: "another custom resource's"});
        live
    };
    let anew = |stage: &Stage| {
        let mut live = stage.live("c");
        live["metadata"]["uid"] = "another".into();
        live
    };
    #[expect(clippy::type_complexity, reason = "one table")]
    let cases: [(fn(&Stage) -> Value, &[&str], End, &str); 4] = [
        (
            ours,
            &[
                "delete configmaps/c",
                "create configmaps/c",
                "record 2 deployed",
            ],
            Ok(()),
            "",
        ),
        (
            keep,
            &[],
            Err(("ImmutableField", false)),
            "helm.sh/resource-policy: keep",
        ),
        (
            foreign,
            &[],
            Err(("ForeignObject", false)),
            "another custom resource",
        ),
        (anew, &[], Err(("Contended", true)), "keeps changing"),
    ];
    for (answer, rest, expected, message) in cases {
        let mut stage = Stage::new();
        stage.recreate = vec!["ConfigMap".to_owned()];
        let mut live = Live::default();
        drop(stage.install(&mut live, &["configmaps/c"]).await);
        stage.expect(&["apply configmaps/c: 422"]);
        let get = format!("GET {}", path("configmaps/c"));
        drop(stage.script.clone().on(&get, 200, answer(&stage)));
        stage.expect(rest);
        let mut stored = stored(2, Status::PendingUpgrade, &["configmaps/c"], Vec::new());
        let ended = deploy(&stage.context(), &mut live, deployment(&mut stored)).await;
        if let Err(error) = &ended {
            let text = error.to_string();
            assert!(
                text.contains(message) && text.contains("ConfigMap prod/c"),
                "{text}"
            );
        }
        assert_eq!(end(ended), expected, "{message}");
        stage.script.finish();
    }
}

#[tokio::test]
async fn a_forced_rollback_replaces_objects_although_nobody_has_changed_them() {
    let scene = Scene::new();
    let mut live = Live::default();
    let previous = scene.install(&mut live, &["configmaps/c"]).await;
    let put = format!("PUT {}", path("configmaps/c"));
    scene.stage.expect(&["read configmaps/c"]);
    let answer = scene.stage.live("c");
    drop(scene.stage.script.clone().on(&put, 200, answer));
    scene.stage.expect(&[
        "force configmaps/c",
        "record 2 deployed",
        "record 1 superseded",
    ]);
    let mut stored = stored(2, Status::PendingRollback, &[], Vec::new());
    stored
        .release
        .manifest
        .clone_from(&previous.release.manifest);
    let rollback = Deployment {
        previous: Some(previous),
        ..deployment(&mut stored)
    };
    let mut context = scene.stage.context();
    context.policy.replace = true;
    let done = deploy(&context, &mut live, rollback).await;
    assert_eq!(done.unwrap(), Progress::Done);
    scene.stage.script.finish();
}

#[tokio::test]
async fn a_repair_never_replaces() {
    let stage = Stage::new();
    let mut live = Live::default();
    let stored = stage.install(&mut live, &["configmaps/c"]).await;
    live.complete = false;
    let lines = ["apply configmaps/c"];
    stage.expect(&lines);
    let mut context = stage.context();
    context.policy.replace = true;
    repair(&context, &mut live, &stored.release, &all)
        .await
        .unwrap();
    stage.sent(&lines);
}

#[tokio::test]
async fn an_adoption_takes_over_what_the_record_names_and_nothing_else() {
    let by_reference = |stage: &Stage, name: &str| {
        let mut live = stage.live(name);
        live["metadata"]["labels"] = json!({});
        live["metadata"]["namespace"] = "prod".into();
        live["metadata"]["ownerReferences"] = json!([stage.primary.owner_reference()]);
        live
    };
    let stage = Stage::new();
    let mut context = stage.context();
    context.policy.take_over = TakeOver::HelmRelease {
        name: "one".to_owned(),
        namespace: "prod".to_owned(),
    };
    let mut live = Live::default();
    // A repair applies what the adopted record names.
    let adopted = stored(1, Status::Deployed, &["configmaps/c"], Vec::new());
    let get = format!("GET {}", path("configmaps/c"));
    let answer = by_reference(&stage, "c");
    drop(stage.script.clone().on(&get, 200, answer));
    stage.expect(&["force configmaps/c"]);
    repair(&context, &mut live, &adopted.release, &all)
        .await
        .unwrap();
    // The next revision has an object that the record does not name.
    let mut next = stored(
        2,
        Status::PendingUpgrade,
        &["configmaps/c", "configmaps/new"],
        Vec::new(),
    );
    stage.expect(&["apply configmaps/c", "create configmaps/new: 409"]);
    let get = format!("GET {}", path("configmaps/new"));
    drop(
        stage
            .script
            .clone()
            .on(&get, 200, by_reference(&stage, "new"))
            .in_any_order(),
    );
    let upgrade = Deployment {
        previous: Some(adopted),
        ..deployment(&mut next)
    };
    let ended = deploy(&context, &mut live, upgrade).await;
    assert_eq!(end(ended), Err(("ForeignObject", false)));
    stage.script.finish();
}

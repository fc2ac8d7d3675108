//! The operators of `examples/` while random Pods and owned objects are deleted under them, with a
//! restart in the middle. Afterwards everything must be as before.
//!
//! Ten seconds each; `SOAK=600` runs each for that many seconds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hybrid_operator_test::fault::Faults;
use hybrid_operator_test::{ControlPlane, TestNamespace, wait};
use jiff::Timestamp;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::examples::{
    CLUSTER_WIDE, NativeOperator, at, example, has_nodes, memcached, multi_secret_of,
};
use crate::visitors::Variant;
use crate::world::{api, api_of, cluster_api, create, eventually, is_ready, merge, remove, until};

/// Pause after a deletion without effect.
const PACE: Duration = Duration::from_millis(500);

/// Objects that are deleted: those of one type whose names begin with a prefix.
struct Target {
    api: Api<DynamicObject>,
    prefix: &'static str,
    /// Whether the objects must be the same afterwards. Pods get new names, and a chosen password
    /// is chosen again.
    compared: Compared,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Compared {
    Content,
    Names,
    Nothing,
}

impl Target {
    fn new(
        namespace: &TestNamespace,
        kind: &str,
        prefix: &'static str,
        compared: Compared,
    ) -> Self {
        Self {
            api: api(namespace, kind),
            prefix,
            compared,
        }
    }

    fn key(&self, object: &DynamicObject) -> String {
        format!("{} {}", self.api.resource_url(), name_of(object))
    }

    async fn list(&self) -> Vec<DynamicObject> {
        let list = self.api.list(&ListParams::default()).await.unwrap();
        let mut objects = list.items;
        objects.retain(|object| name_of(object).starts_with(self.prefix));
        objects
    }
}

fn name_of(object: &DynamicObject) -> &str {
    object.metadata.name.as_deref().unwrap_or_default()
}

/// Returns the part of an object that the operator decides.
fn content(object: &DynamicObject) -> Value {
    let mut spec = object.data["spec"].clone();
    if let Some(fields) = spec.as_object_mut() {
        // The API server chooses them.
        for field in ["clusterIP", "clusterIPs"] {
            fields.remove(field);
        }
    }
    if let Some(Value::Object(metadata)) = spec.pointer_mut("/template/metadata") {
        // It follows the uid of a Secret.
        metadata.remove("annotations");
    }
    json!([spec, object.data["data"]])
}

/// Deletes objects of some types.
struct Chaos {
    targets: Vec<Target>,
    numbers: fastrand::Rng,
    /// Largest number of deletions of one object other than a Pod within [`WINDOW`].
    most: usize,
    deletions: Vec<(Instant, String)>,
}

/// The operator of a chart repairs the same object five times within ten minutes, then it names the
/// object in the condition `Drifted` and leaves it.
const REPAIRS: usize = 5;
const WINDOW: Duration = Duration::from_mins(11);

impl Chaos {
    fn new(targets: Vec<Target>) -> Self {
        Self {
            targets,
            // A fixed seed chooses the same types in every run.
            numbers: fastrand::Rng::with_seed(3),
            most: usize::MAX,
            deletions: Vec::new(),
        }
    }

    /// Returns what has to be the same afterwards.
    async fn snapshot(&self) -> BTreeMap<String, Value> {
        let mut all = BTreeMap::new();
        for target in &self.targets {
            let compared = target.compared;
            for object in target.list().await {
                let key = target.key(&object);
                match compared {
                    Compared::Content => drop(all.insert(key, content(&object))),
                    Compared::Names => drop(all.insert(key, Value::Null)),
                    Compared::Nothing => {}
                }
            }
        }
        all
    }

    /// Deletes one object after the other for this long.
    async fn rage(&mut self, duration: Duration) {
        let began = Instant::now();
        while began.elapsed() < duration {
            let target = &self.targets[self.numbers.usize(..self.targets.len())];
            let objects = target.list().await;
            let mut victims = objects.clone();
            victims.retain(|object| self.may_delete(target, object));
            if victims.is_empty() {
                // The operator or a controller of Kubernetes is creating them.
                let any = |objects: &[&DynamicObject]| objects.len() > victims.len();
                drop(wait::objects(&target.api, "", "an object", PACE, any).await);
                continue;
            }
            let victim = victims.swap_remove(self.numbers.usize(..victims.len()));
            let (name, uid) = (name_of(&victim), &victim.metadata.uid);
            drop(target.api.delete(name, &DeleteParams::default()).await);
            self.deletions.push((Instant::now(), target.key(&victim)));
            let replaced = |present: &[&DynamicObject]| {
                present.len() >= objects.len()
                    && present.iter().all(|object| object.metadata.uid != *uid)
            };
            drop(wait::objects(&target.api, "", "a successor", PACE, replaced).await);
        }
    }

    fn may_delete(&self, target: &Target, object: &DynamicObject) -> bool {
        let key = target.key(object);
        let recent = self
            .deletions
            .iter()
            .filter(|(at, of)| *of == key && at.elapsed() < WINDOW);
        recent.count() < self.most
    }
}

/// Runs the chaos with a restart of the operator in the middle, then waits until the custom resource
/// is ready and the objects are as before.
async fn survives(
    mut chaos: Chaos,
    custom_resource: (&Api<DynamicObject>, &str),
    is_ready: impl Fn(&Value) -> bool,
    start: impl AsyncFn() -> NativeOperator,
) {
    let operator = start().await;
    let (api, name) = custom_resource;
    until(api, name, "Ready", &is_ready).await;
    let before = chaos.snapshot().await;
    assert!(!before.is_empty());
    chaos.rage(duration() / 2).await;
    drop(operator);
    let _operator = start().await;
    chaos.rage(duration() / 2).await;
    let deletions = chaos.deletions.len();
    assert!(deletions >= 10, "only {deletions} deletions");

    let as_before = async || {
        let now = chaos.snapshot().await;
        let object = serde_json::to_value(api.get(name).await.unwrap()).unwrap();
        if now == before && is_ready(&object) {
            Ok(())
        } else {
            Err(format!(
                "{:#}\nnow {now:#?}\nbefore {before:#?}",
                object["status"]
            ))
        }
    };
    eventually("everything to be as before", as_before).await;
}

fn duration() -> Duration {
    let seconds = std::env::var("SOAK").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(10))
}

#[tokio::test(flavor = "multi_thread")]
async fn memcached_is_as_before_when_the_deletions_end() {
    let plane = or_skip!(example("memcached-native").await);
    let namespace = TestNamespace::create(plane, "chaos").await.unwrap();
    let memcacheds = api_of(&namespace, "native.example.com", "Memcached");
    create(&memcacheds, memcached(3)).await;
    let targets = vec![
        Target::new(&namespace, "Deployment", "cache", Compared::Content),
        Target::new(&namespace, "Pod", "cache-", Compared::Nothing),
    ];
    let has_all = |cache: &Value| is_ready(cache) && has_nodes(cache, 3);
    let start = async || {
        let controller = memcached_native::controller::controller();
        NativeOperator::start(plane, &namespace, controller).await
    };
    let chaos = Chaos::new(targets);
    survives(chaos, (&memcacheds, "cache"), has_all, start).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_multi_secret_is_as_before_when_the_deletions_end() {
    let plane = or_skip!(example("multi-secret").await);
    let _alone = CLUSTER_WIDE.lock().await;
    let home = TestNamespace::create(plane, "chaos").await.unwrap();
    let namespaces = cluster_api(&home, "Namespace");
    let mut selected = Vec::new();
    for _ in 0..3 {
        let namespace = TestNamespace::create(plane, "chaos").await.unwrap();
        let patch = json!({"metadata": {"labels": {"multi-secret": home.name()}}});
        merge(&namespaces, namespace.name(), &patch).await;
        selected.push(namespace);
    }
    let multi_secrets = api_of(&home, "example.com", "MultiSecret");
    create(&multi_secrets, multi_secret_of(&home)).await;
    let target = |namespace| Target::new(namespace, "Secret", "shared", Compared::Content);
    let targets = selected.iter().map(target).collect();
    let has_all = |object: &Value| is_ready(object) && object["status"]["created"] == 3;
    let start = async || {
        let controller = multi_secret::controller::controller();
        NativeOperator::everywhere(plane, &home, controller).await
    };
    let chaos = Chaos::new(targets);
    survives(chaos, (&multi_secrets, "shared"), has_all, start).await;
    // Its finalizer needs an operator.
    let _operator = start().await;
    remove(&multi_secrets, "shared").await;
}

async fn visitors(variant: Variant) {
    let plane = or_skip!(variant.plane().await);
    let namespace = TestNamespace::create(plane, "chaos").await.unwrap();
    let apps = api_of(&namespace, variant.group(), "VisitorsApp");
    create(&apps, variant.app("site", "Chaos")).await;
    // A deleted Secret comes back from the record of the release, or with another password.
    let secret = match variant {
        Variant::Native => Compared::Names,
        Variant::Chart => Compared::Content,
    };
    let targets = vec![
        Target::new(&namespace, "Secret", "site-", secret),
        Target::new(&namespace, "Service", "site-", Compared::Content),
        Target::new(&namespace, "Deployment", "site-", Compared::Content),
        Target::new(&namespace, "Pod", "site-", Compared::Nothing),
    ];
    let start = async || variant.start(plane, &namespace).await;
    let mut chaos = Chaos::new(targets);
    if variant == Variant::Chart {
        chaos.most = REPAIRS;
    }
    survives(chaos, (&apps, "site"), is_ready, start).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn native_visitors_are_as_before_when_the_deletions_end() {
    visitors(Variant::Native).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn visitors_of_the_chart_are_as_before_when_the_deletions_end() {
    visitors(Variant::Chart).await;
}

async fn at_operator(plane: &ControlPlane, namespace: &TestNamespace) -> NativeOperator {
    let controller = at_operator::controller::controller();
    NativeOperator::start(plane, namespace, controller).await
}

/// Returns the names of the Pods that an operator has applied.
fn applied_pods(faults: &Faults) -> Vec<String> {
    let requests = faults.requests();
    let pods = requests.iter().filter(|r| r.kind() == "apply pods");
    pods.filter_map(|request| request.name.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_are_done_do_not_run_again_when_their_pods_are_deleted() {
    let plane = or_skip!(example("at").await);
    let namespace = TestNamespace::create(plane, "chaos").await.unwrap();
    let ats = api_of(&namespace, "example.com", "At");
    let at = |name: &str, schedule: Timestamp| at(name, &schedule.to_string());
    let done = async |name: &str| {
        let is_done = |at: &Value| at["status"]["phase"] == "DONE";
        until(&ats, name, "DONE", is_done).await;
    };
    let operator = at_operator(plane, &namespace).await;
    let early: Vec<String> = (0..20).map(|i| format!("early-{i}")).collect();
    for name in &early {
        create(&ats, at(name, Timestamp::now())).await;
    }
    for name in &early {
        done(name).await;
    }
    // Half of the others come while the operator is not there.
    let late: Vec<String> = (0..20).map(|i| format!("late-{i}")).collect();
    operator.faults.forget();
    let (begin, step) = (Timestamp::now(), duration() / 20);
    for (i, name) in (1..).zip(&late) {
        create(&ats, at(name, begin + step * i)).await;
    }
    let mut chaos = Chaos::new(vec![Target::new(&namespace, "Pod", "", Compared::Nothing)]);
    chaos.rage(duration() / 2).await;
    let deletions = chaos.deletions.len();
    assert!(deletions > 0);
    let first = operator.faults.clone();
    drop(operator);
    let operator = at_operator(plane, &namespace).await;
    chaos.rage(duration() / 2).await;
    for name in early.iter().chain(&late) {
        done(name).await;
    }
    assert!(chaos.deletions.len() > deletions);
    let mut applied = applied_pods(&first);
    applied.extend(applied_pods(&operator.faults));
    let again: Vec<&String> = applied.iter().filter(|n| n.starts_with("early")).collect();
    assert!(again.is_empty(), "{again:?}");
    let late_ones = applied.iter().filter(|name| name.starts_with("late"));
    assert!(late_ones.count() >= late.len());
}

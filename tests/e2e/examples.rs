//! The operators of `examples/`, each through the life of its custom resources, with a restart in
//! the middle.

use std::path::PathBuf;

use hybrid_operator::manager::{Controller, Manager};
use hybrid_operator_test::fault::Faults;
use hybrid_operator_test::request::Recorded;
use hybrid_operator_test::{ControlPlane, TestNamespace, wait};
use jiff::Timestamp;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::world::{
    InProcessOperator, LIMIT, api, api_of, cluster_api, condition, control_plane, create, define,
    delete, free_address, gone, is_false, is_ready, merge, options, remove, root, says, until,
};

/// A native operator in this process, named after a namespace. It is killed when dropped.
pub(crate) struct NativeOperator {
    pub(crate) faults: Faults,
    pub(crate) metrics: String,
    _operator: InProcessOperator,
}

impl NativeOperator {
    /// Starts an operator with one controller for the namespace.
    pub(crate) async fn start(
        plane: &ControlPlane,
        namespace: &TestNamespace,
        controller: impl Controller + 'static,
    ) -> Self {
        let watched = [("WATCH_NAMESPACE", namespace.name())];
        Self::watching(&watched, plane, namespace, controller, Faults::new()).await
    }

    /// Starts an operator whose requests meet faults.
    pub(crate) async fn faulty(
        plane: &ControlPlane,
        namespace: &TestNamespace,
        controller: impl Controller + 'static,
        faults: Faults,
    ) -> Self {
        let watched = [("WATCH_NAMESPACE", namespace.name())];
        Self::watching(&watched, plane, namespace, controller, faults).await
    }

    /// Starts an operator for all namespaces.
    pub(crate) async fn everywhere(
        plane: &ControlPlane,
        namespace: &TestNamespace,
        controller: impl Controller + 'static,
    ) -> Self {
        Self::watching(&[], plane, namespace, controller, Faults::new()).await
    }

    async fn watching(
        watched: &[(&str, &str)],
        plane: &ControlPlane,
        namespace: &TestNamespace,
        controller: impl Controller + 'static,
        faults: Faults,
    ) -> Self {
        let client = plane.client_with(&faults).await.unwrap();
        let named = ["OPERATOR_NAME", "POD_NAME"].map(|name| (name, namespace.name()));
        let mut options = options(&[], &[&named[..], watched].concat());
        let metrics = free_address();
        options.metrics_bind_address.clone_from(&metrics);
        let manager = Manager::new(options).client(client).with(controller);
        Self {
            faults,
            metrics,
            _operator: InProcessOperator::run(manager),
        }
    }

    /// Returns the writes of objects so far.
    pub(crate) fn writes(&self) -> Vec<String> {
        let requests = self.faults.requests();
        let writes = requests.iter().filter(|request| request.is_write());
        writes.map(Recorded::kind).collect()
    }
}

pub(crate) fn memcached(size: i32) -> Value {
    json!({"apiVersion": "native.example.com/v1", "kind": "Memcached",
           "metadata": {"name": "cache"}, "spec": {"size": size}})
}

/// Returns whether the status names so many Pods.
pub(crate) fn has_nodes(object: &Value, count: usize) -> bool {
    let nodes = object["status"]["nodes"].as_array();
    nodes.is_some_and(|nodes| nodes.len() == count)
}

pub(crate) fn at(name: &str, schedule: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "At", "metadata": {"name": name},
           "spec": {"schedule": schedule, "command": "echo done"}})
}

/// Returns a `MultiSecret` for the namespaces with the name of its own one as a label.
pub(crate) fn multi_secret_of(home: &TestNamespace) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "MultiSecret", "metadata": {"name": "shared"},
        "spec": {"stringData": {"password": "secret"},
                 "namespaceSelector": {"matchLabels": {"multi-secret": home.name()}}},
    })
}

/// Held by tests with an operator of `MultiSecret`: it serves all namespaces, and would act on the
/// custom resources of another such test.
pub(crate) static CLUSTER_WIDE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Installs the CRD of an example and returns the control plane.
pub(crate) async fn example(name: &str) -> Option<&'static ControlPlane> {
    let plane = control_plane().await?;
    let crd: PathBuf = root().join("examples").join(name).join("config/crd.yaml");
    define(plane, &std::fs::read_to_string(crd).unwrap()).await;
    Some(plane)
}

#[tokio::test(flavor = "multi_thread")]
async fn memcached_has_as_many_pods_as_it_asks_for_and_heals() {
    let plane = or_skip!(example("memcached-native").await);
    let namespace = TestNamespace::create(plane, "memcached").await.unwrap();
    let start = async || {
        let controller = memcached_native::controller::controller();
        NativeOperator::start(plane, &namespace, controller).await
    };
    let operator = start().await;
    let memcacheds = api_of(&namespace, "native.example.com", "Memcached");
    let refused = serde_json::from_value(memcached(0)).unwrap();
    let refused = memcacheds.create(&PostParams::default(), &refused).await;
    assert!(refused.unwrap_err().to_string().contains("spec.size"));

    create(&memcacheds, memcached(3)).await;
    let has = async |size: usize| {
        let settled = |cache: &Value| is_ready(cache) && has_nodes(cache, size);
        until(&memcacheds, "cache", "its nodes", settled).await
    };
    has(3).await;
    merge(&memcacheds, "cache", &json!({"spec": {"size": 4}})).await;
    has(4).await;

    // A restart changes nothing.
    drop(operator);
    let operator = start().await;
    let seen = json!({"metadata": {"labels": {"seen": "yes"}}});
    merge(&memcacheds, "cache", &seen).await;
    let deployments = api(&namespace, "Deployment");
    let before = deployments.get("cache").await.unwrap();
    // What somebody removes comes back.
    let pods = api(&namespace, "Pod");
    for pod in pods.list(&ListParams::default()).await.unwrap() {
        let name = pod.metadata.name.unwrap();
        drop(pods.delete(&name, &DeleteParams::default()).await);
    }
    has(4).await;
    let after = deployments.get("cache").await.unwrap();
    assert_eq!(before.metadata.uid, after.metadata.uid);
    assert!(
        !operator.writes().contains(&"apply deployments".to_owned()),
        "{:?}",
        operator.writes()
    );
    delete(&deployments, "cache").await;
    let again = |found: &Value| found["metadata"]["uid"] != json!(before.metadata.uid);
    until(&deployments, "cache", "a new Deployment", again).await;
    has(4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_at_its_time_and_ends_with_its_exit_code() {
    let plane = or_skip!(example("at").await);
    let namespace = TestNamespace::create(plane, "at").await.unwrap();
    let start = async || {
        let controller = at_operator::controller::controller();
        NativeOperator::start(plane, &namespace, controller).await
    };
    let operator = start().await;
    let ats = api_of(&namespace, "example.com", "At");
    let phase = async |name: &str, phase: &str| {
        let is = |at: &Value| at["status"]["phase"] == phase;
        until(&ats, name, phase, is).await
    };
    let soon = Timestamp::now() + std::time::Duration::from_secs(4);
    create(&ats, at("soon", &soon.to_string())).await;
    phase("soon", "PENDING").await;
    let pods = api(&namespace, "Pod");
    assert!(pods.get_opt("soon").await.unwrap().is_none());
    // A restart does not lose the time.
    drop(operator);
    let _operator = start().await;
    wait::object(&pods, "soon", "its Pod", LIMIT, |pod| pod.is_some())
        .await
        .unwrap();
    assert!(Timestamp::now() >= soon);
    // The simulated node lets the command succeed, or fail where an annotation says so.
    let done = phase("soon", "DONE").await;
    assert_eq!(done["status"]["exitCode"], 0);

    let mut past = at("past", "2020-01-01T00:00:00Z");
    past["spec"]["podAnnotations"] = json!({"test.hybrid-operator/pod": "failed"});
    create(&ats, past).await;
    let failed = phase("past", "FAILED").await;
    assert_eq!(failed["status"]["exitCode"], 1);
    let owners = pods.get("past").await.unwrap().metadata.owner_references;
    assert_eq!(owners.unwrap()[0].kind, "At");

    create(&ats, at("bad", "tomorrow")).await;
    let invalid = |at: &Value| is_false(at, "Valid");
    let bad = until(&ats, "bad", "a condition", invalid).await;
    let message = condition(&bad, "Valid").unwrap()["message"]
        .as_str()
        .unwrap();
    assert_contains!(message, "2030-01-02T03:04:05Z");
    let change = json!({"spec": {"schedule": "2020-01-01T00:00:00Z"}});
    let refused = ats
        .patch("bad", &PatchParams::default(), &Patch::Merge(&change))
        .await;
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("create another At")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_multi_secret_is_in_every_selected_namespace_and_leaves_nothing_behind() {
    let plane = or_skip!(example("multi-secret").await);
    let _alone = CLUSTER_WIDE.lock().await;
    let home = TestNamespace::create(plane, "multi-secret").await.unwrap();
    let [one, two] = [
        TestNamespace::create(plane, "selected").await.unwrap(),
        TestNamespace::create(plane, "selected").await.unwrap(),
    ];
    let namespaces = cluster_api(&home, "Namespace");
    let label = async |namespace: &TestNamespace, value: Value| {
        let patch = json!({"metadata": {"labels": {"multi-secret": value}}});
        merge(&namespaces, namespace.name(), &patch).await;
    };
    let start = async || {
        let controller = multi_secret::controller::controller();
        NativeOperator::everywhere(plane, &home, controller).await
    };
    label(&one, json!(home.name())).await;
    let operator = start().await;
    let multi_secrets = api_of(&home, "example.com", "MultiSecret");
    create(&multi_secrets, multi_secret_of(&home)).await;
    let created = async |count: usize| {
        let is = |object: &Value| is_ready(object) && object["status"]["created"] == count;
        until(&multi_secrets, "shared", "its Secrets", is).await
    };
    created(1).await;
    // A namespace that comes to be selected gets its Secret.
    label(&two, json!(home.name())).await;
    created(2).await;
    let secrets = |namespace: &TestNamespace| api(namespace, "Secret");
    let has = async |namespace: &TestNamespace| {
        let is = |secret: &Value| secret["data"] == json!({"password": "c2VjcmV0"});
        until(&secrets(namespace), "shared", "its data", is).await
    };
    // What is changed or deleted is restored, also after a restart, which itself writes nothing.
    let other = json!({"data": {"password": "b3RoZXI="}});
    merge(&secrets(&one), "shared", &other).await;
    has(&one).await;
    drop(operator);
    let operator = start().await;
    delete(&secrets(&two), "shared").await;
    has(&two).await;
    let writes = operator.writes();
    assert_eq!(writes, ["apply secrets"], "{writes:?}");
    // A Secret of the same name that is somebody else's is not touched.
    let three = TestNamespace::create(plane, "selected").await.unwrap();
    let foreign = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "shared"}});
    create(&secrets(&three), foreign).await;
    label(&three, json!(home.name())).await;
    let refused = |object: &Value| is_false(object, "Ready") && says(object, "Ready", three.name());
    until(&multi_secrets, "shared", "the refusal", refused).await;
    label(&three, Value::Null).await;
    created(2).await;
    let foreign = secrets(&three).get("shared").await.unwrap();
    assert_eq!(foreign.metadata.labels, None);
    // A namespace that is no longer selected loses its Secret; the deletion removes all.
    label(&two, Value::Null).await;
    gone(&secrets(&two), "shared").await;
    created(1).await;
    remove(&multi_secrets, "shared").await;
    assert!(secrets(&one).get_opt("shared").await.unwrap().is_none());
}

/// The manifests of every example are what its README tells the reader to apply.
#[tokio::test(flavor = "multi_thread")]
async fn samples_of_the_examples_are_accepted() {
    for (name, group, kind) in [
        ("at", "example.com", "At"),
        ("etcd-cluster", "etcd.example.com", "EtcdCluster"),
        ("memcached-native", "native.example.com", "Memcached"),
        ("multi-secret", "example.com", "MultiSecret"),
    ] {
        let plane = or_skip!(example(name).await);
        let namespace = TestNamespace::create(plane, "sample").await.unwrap();
        let path = root()
            .join("examples")
            .join(name)
            .join("config/sample.yaml");
        let text = std::fs::read_to_string(path).unwrap();
        let sample: DynamicObject = go_yaml::from_str(&text).unwrap();
        let name = sample.metadata.name.clone().unwrap();
        let params = PatchParams::apply("e2e");
        let samples = api_of(&namespace, group, kind);
        let applied = samples.patch(&name, &params, &Patch::Apply(&sample)).await;
        drop(applied.unwrap());
    }
}

/// Deletes a custom resource and creates it again at once.
async fn create_again(api: &Api<DynamicObject>, object: Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    remove(api, name).await;
    create(api, object).await;
}

async fn memcached_again(plane: &ControlPlane) {
    let namespace = TestNamespace::create(plane, "again").await.unwrap();
    let controller = memcached_native::controller::controller();
    let _operator = NativeOperator::start(plane, &namespace, controller).await;
    let memcacheds = api_of(&namespace, "native.example.com", "Memcached");
    create(&memcacheds, memcached(1)).await;
    until(&memcacheds, "cache", "Ready", is_ready).await;
    create_again(&memcacheds, memcached(2)).await;
    let two = |cache: &Value| is_ready(cache) && has_nodes(cache, 2);
    let cache = until(&memcacheds, "cache", "its nodes", two).await;
    let deployment = api(&namespace, "Deployment").get("cache").await.unwrap();
    let owners = deployment.metadata.owner_references.unwrap();
    let uids: Vec<&str> = owners.iter().map(|owner| &*owner.uid).collect();
    assert_eq!(uids, [cache["metadata"]["uid"].as_str().unwrap()]);
}

async fn at_again(plane: &ControlPlane) {
    let namespace = TestNamespace::create(plane, "again").await.unwrap();
    let controller = at_operator::controller::controller();
    let _operator = NativeOperator::start(plane, &namespace, controller).await;
    let ats = api_of(&namespace, "example.com", "At");
    let at = at("one", "2020-01-01T00:00:00Z");
    let done = |at: &Value| at["status"]["phase"] == "DONE";
    let pods = api(&namespace, "Pod");
    create(&ats, at.clone()).await;
    until(&ats, "one", "DONE", done).await;
    let first = pods.get("one").await.unwrap().metadata.uid;
    create_again(&ats, at).await;
    until(&ats, "one", "DONE", done).await;
    let second = pods.get("one").await.unwrap().metadata.uid;
    assert_ne!(first, second, "the new At runs its command");
}

/// Number of namespaces with a Secret.
const MANY: usize = 50;

/// Many namespaces get their Secret, lose it, and get it again.
async fn multi_secret_again(plane: &ControlPlane) {
    let _alone = CLUSTER_WIDE.lock().await;
    let home = TestNamespace::create(plane, "again").await.unwrap();
    let namespaces = cluster_api(&home, "Namespace");
    let labels = json!({"metadata": {"labels": {"multi-secret": home.name()}}});
    let selected = (0..MANY).map(async |_| {
        let namespace = TestNamespace::create(plane, "many").await.unwrap();
        merge(&namespaces, namespace.name(), &labels).await;
        namespace
    });
    let selected = futures::future::join_all(selected).await;
    let controller = multi_secret::controller::controller();
    let _operator = NativeOperator::everywhere(plane, &home, controller).await;
    let multi_secrets = api_of(&home, "example.com", "MultiSecret");
    let everywhere = async || {
        let all = |object: &Value| is_ready(object) && object["status"]["created"] == MANY;
        until(&multi_secrets, "shared", "its Secrets", all).await;
        let mut uids = Vec::new();
        for namespace in &selected {
            let secret = api(namespace, "Secret").get("shared").await.unwrap();
            uids.push(secret.metadata.uid.unwrap());
        }
        uids
    };
    create(&multi_secrets, multi_secret_of(&home)).await;
    let first = everywhere().await;
    create_again(&multi_secrets, multi_secret_of(&home)).await;
    let second = everywhere().await;
    assert!(second.iter().all(|uid| !first.contains(uid)));
    remove(&multi_secrets, "shared").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_that_were_deleted_can_be_created_again() {
    for name in ["memcached-native", "at", "multi-secret"] {
        if example(name).await.is_none() {
            return;
        }
    }
    let plane = control_plane().await.unwrap();
    tokio::join!(
        memcached_again(plane),
        at_again(plane),
        multi_secret_again(plane),
    );
}

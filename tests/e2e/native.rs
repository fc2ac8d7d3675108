//! The native controller next to the chart.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hybrid_operator::native::{self, Action, Context, Error, NativeController};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::examples::{NativeOperator, has_nodes};
use crate::world::{
    LIMIT, World, api, apply, condition, delete, eventually, exists, gone, merge, new_namespace,
    until,
};

#[tokio::test]
async fn backup_copies_what_the_chart_deployed_and_lists_its_pods() {
    let world = or_skip!(World::start("backup").await);
    let backups = world.api("MemcachedBackup");
    let object = json!({"spec": {"size": 2, "memcachedRef": {"name": "cache"}}});
    apply(&backups, "b", &object).await;
    let missing = |b: &Value| {
        condition(b, "Ready").is_some_and(|ready| ready["reason"] == "MemcachedNotFound")
    };
    world
        .until("MemcachedBackup", "b", "no source", missing)
        .await;
    assert!(!exists(&world.api("Deployment"), "b").await);
    world
        .memcached("cache", json!({"image": {"tag": "1.6.38"}}))
        .await;
    let ready = world.ready("MemcachedBackup", "b").await;
    assert_eq!(
        ready.data["status"]["source"],
        json!({"release": "cache", "revision": 1,
               "address": format!("cache-memcached.{}.svc:11211", world.namespace.name())})
    );
    let nodes = ready.data["status"]["nodes"].as_array().unwrap().clone();
    assert_eq!(nodes.len(), 2);
    for node in &nodes {
        world.api("Pod").get(node.as_str().unwrap()).await.unwrap();
    }
    let deployment = world.api("Deployment").get("b").await.unwrap();
    assert_eq!(
        deployment.metadata.owner_references.unwrap()[0].kind,
        "MemcachedBackup"
    );

    merge(&backups, "b", &json!({"spec": {"size": 3}})).await;
    let three = |b: &Value| has_nodes(b, 3);
    world.until("MemcachedBackup", "b", "3 nodes", three).await;

    let image = |deployment: &Value| {
        deployment["spec"]["template"]["spec"]["containers"][0]["image"].clone()
    };
    let deployed = |tag: &str| json!(format!("docker.io/library/memcached:{tag}"));
    let copies = async |tag: &str| {
        let is_deployed = |d: &Value| image(d) == deployed(tag);
        world
            .until("Deployment", "b", "the image", is_deployed)
            .await;
    };
    copies("1.6.38").await;
    // The backup follows an upgrade of the release.
    let newer = json!({"image": {"tag": "1.6.39"}});
    world.memcached("cache", newer).await;
    copies("1.6.39").await;

    delete(&backups, "b").await;
    world.gone("Deployment", "b").await;
}

#[tokio::test]
async fn negative_size_is_rejected_by_the_crd() {
    let world = or_skip!(World::start("negative").await);
    let object = json!({
        "apiVersion": "cache.example.com/v1alpha1", "kind": "MemcachedBackup",
        "metadata": {"name": "b"}, "spec": {"size": -1},
    });
    let object = serde_json::from_value(object).unwrap();
    let error = world
        .api("MemcachedBackup")
        .create(&kube::api::PostParams::default(), &object)
        .await;
    assert!(error.unwrap_err().to_string().contains("spec.size"));
}

/// Stands for a kind whose functions do what `mode` says.
#[derive(CustomResource, Serialize, Deserialize, Debug, Clone)]
#[kube(
    group = "test.example.com",
    version = "v1",
    kind = "Widget",
    namespaced,
    schema = "disabled"
)]
struct WidgetSpec {
    mode: String,
}

/// Counts calls of the functions for `terminal`.
static TERMINAL_CALLS: AtomicUsize = AtomicUsize::new(0);

fn misbehaving() -> NativeController<Widget> {
    native::controller::<Widget>("misbehaving")
        .concurrency(3)
        .deadline(Duration::from_secs(2))
        .reconcile(misbehave)
}

async fn misbehave(widget: Arc<Widget>, context: Context<Widget>) -> Result<Action, Error> {
    match widget.spec.mode.as_str() {
        "panic" => std::panic::panic_any("on purpose"),
        "block" => {
            // Longer than the test: only the end of the process ends it.
            std::thread::sleep(LIMIT);
            Ok(Action::done())
        }
        "never" => std::future::pending().await,
        "now" => Ok(Action::now()),
        "terminal" => {
            TERMINAL_CALLS.fetch_add(1, Ordering::SeqCst);
            Err(Error::terminal("this spec can never work"))
        }
        mode => {
            context.patch_status(&json!({"mode": mode})).await?;
            Ok(Action::done())
        }
    }
}

/// Sends a request and returns the whole answer.
pub(crate) async fn get(address: &str, path: &str) -> String {
    try_get(address, path).await.unwrap()
}

/// Does the same where it may be that nothing listens yet.
pub(crate) async fn try_get(address: &str, path: &str) -> std::io::Result<String> {
    let mut connection = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    connection.read_to_string(&mut text).await.unwrap();
    Ok(text)
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_that_misbehave_affect_their_own_object_alone() {
    let (plane, namespace) = or_skip!(new_namespace("misbehaving").await);
    let widgets = api(&namespace, "Widget");
    for mode in ["panic", "block", "never", "now", "terminal"] {
        apply(&widgets, mode, &json!({"spec": {"mode": mode}})).await;
    }
    // An object of an older schema.
    apply(&widgets, "undecodable", &json!({"spec": {"mode": 7}})).await;
    let operator = NativeOperator::start(plane, &namespace, misbehaving()).await;
    let is = |mode: &'static str| move |widget: &Value| widget["status"]["mode"] == mode;
    apply(&widgets, "well", &json!({"spec": {"mode": "fine"}})).await;
    until(&widgets, "well", "its status", is("fine")).await;
    let blocked = async || {
        let text = get(&operator.metrics, "/metrics").await;
        text.contains("hybrid_operator_blocked_reconciles_total{controller=\"misbehaving\"} 1")
    };
    eventually("the metric", blocked).await;
    // After its deadline a blocked thread does not occupy a worker.
    apply(&widgets, "well", &json!({"spec": {"mode": "still fine"}})).await;
    until(&widgets, "well", "its status", is("still fine")).await;
    assert_eq!(TERMINAL_CALLS.load(Ordering::SeqCst), 1);
    // Each of them works as soon as its object is mended.
    for name in ["panic", "never", "now", "terminal", "undecodable"] {
        apply(&widgets, name, &json!({"spec": {"mode": "mended"}})).await;
        until(&widgets, name, "its status", is("mended")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_up_runs_until_it_is_done_and_only_then_lets_its_object_go() {
    let (plane, namespace) = or_skip!(new_namespace("finalizer").await);
    let widgets = api(&namespace, "Widget");
    let start = async |calls: &Arc<AtomicUsize>| {
        let calls = Arc::clone(calls);
        let controller = native::controller::<Widget>("finalizer")
            .finalizer("test.example.com/clean-up", move |_, _| {
                let call = calls.fetch_add(1, Ordering::SeqCst);
                async move {
                    match call {
                        0 => Err(Error::other("not yet")),
                        1 => Ok(Action::now()),
                        _ => Ok(Action::done()),
                    }
                }
            })
            .reconcile(misbehave);
        NativeOperator::start(plane, &namespace, controller).await
    };
    let calls = Arc::new(AtomicUsize::new(0));
    let operator = start(&calls).await;
    apply(&widgets, "one", &json!({"spec": {"mode": "fine"}})).await;
    let held = |widget: &Value| {
        widget["metadata"]["finalizers"] == json!(["test.example.com/clean-up"])
            && widget["status"]["mode"] == "fine"
    };
    until(&widgets, "one", "its finalizer", held).await;
    // Deleted while no operator runs.
    drop(operator);
    delete(&widgets, "one").await;
    let _operator = start(&calls).await;
    gone(&widgets, "one").await;
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

/// Owns and watches the same kind, and counts what it finds of it.
fn owning_and_watching() -> NativeController<Widget> {
    async fn count(widget: Arc<Widget>, context: Context<Widget>) -> Result<Action, Error> {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("{}-owned", widget.spec.mode));
        context.apply(&map).await?;
        let maps = context.cached::<ConfigMap>()?;
        let all = maps.by_index("name", "foreign")?.len() + maps.owned().len();
        context.patch_status(&json!({"seen": all})).await?;
        Ok(Action::done())
    }
    native::controller::<Widget>("owning")
        .index::<ConfigMap>("name", |map| map.metadata.name.iter().cloned().collect())
        .owns::<ConfigMap>()
        .watches::<ConfigMap, _>(|_| None)
        .reconcile(count)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_is_owned_and_watched_has_one_watch() {
    let (plane, namespace) = or_skip!(new_namespace("owned-watched").await);
    let foreign = json!({"data": {}});
    apply(&api(&namespace, "ConfigMap"), "foreign", &foreign).await;
    let operator = NativeOperator::start(plane, &namespace, owning_and_watching()).await;
    let widgets = api(&namespace, "Widget");
    apply(&widgets, "w", &json!({"spec": {"mode": "w"}})).await;
    let both = |widget: &Value| widget["status"]["seen"] == 2;
    until(&widgets, "w", "both are seen", both).await;
    let requests = operator.faults.requests();
    let selected = requests
        .iter()
        .filter(|request| request.resource == "configmaps")
        .filter(|request| request.query.contains_key("labelSelector"));
    assert_eq!(selected.count(), 0);
}

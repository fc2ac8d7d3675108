//! Tests with the whole operator, an API server in memory, and virtual time.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use clap::Parser;
use hybrid_operator_test::api_server::{ApiServer, Options};
use hybrid_operator_test::fault::Fault;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use operator_runtime::manager::{Manager, ManagerError};
use operator_runtime::native;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::reconciler::ATTEMPT_WITHIN;
use super::{Chart, Charts, Component, HelmController, Release, install};
use crate::options::RunArgs;

/// A host whose clock is that of the runtime.
struct Clock(Instant);

impl host::Host for Clock {
    fn now(&self) -> SystemTime {
        let epoch = SystemTime::from(Options::default().epoch);
        epoch + self.0.elapsed()
    }

    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }

    fn key(&self) -> u64 {
        7
    }
}

/// Writes a chart with this number of hooks, each of which runs after the one before.
fn write_chart(directory: &Path, hooks: usize) {
    let templates = directory.join("chart/templates");
    fs::create_dir_all(&templates).unwrap();
    let write = |name: &str, text: &str| fs::write(directory.join(name), text).unwrap();
    write(
        "chart/Chart.yaml",
        "apiVersion: v2\nname: late\nversion: 1.0.0\n",
    );
    write(
        "watches.yaml",
        "- group: demo.example.com\n  version: v1\n  kind: Web\n  chart: chart\n",
    );
    for n in 0..hooks {
        let hook = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: hook-{n}\n  annotations:\n    helm.sh/hook: pre-install\n    helm.sh/hook-weight: \"{n}\"\n"
        );
        fs::write(templates.join(format!("hook-{n}.yaml")), hook).unwrap();
    }
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: object\n";
    fs::write(templates.join("object.yaml"), object).unwrap();
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "webs.demo.example.com"},
        "spec": {
            "group": "demo.example.com", "scope": "Namespaced",
            "names": {"plural": "webs", "singular": "web", "kind": "Web", "listKind": "WebList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}

/// Lets each write of a record or of an object of a chart take 20 s, which a request by itself may take.
fn slow_writes(server: &ApiServer) {
    server.faults().inject_with(|request| {
        let writes = ["create", "apply", "patch", "update", "delete"];
        let counts = writes.contains(&request.verb.as_str())
            && ["configmaps", "secrets"].contains(&request.resource.as_str());
        counts.then_some(Fault::Late(Duration::from_secs(20)))
    });
}

/// Path of the custom resource of most tests.
const WEB: &str = "/apis/demo.example.com/v1/namespaces/default/webs/a";

const PROBES: &str = "--health-probe-bind-address=0";
const ARGUMENTS: [&str; 3] = ["run", "--metrics-bind-address=0", PROBES];

fn options() -> crate::options::Options {
    options_of(ARGUMENTS)
}

fn options_of(arguments: [&str; 3]) -> crate::options::Options {
    let options = RunArgs::try_parse_from(arguments).unwrap();
    options.options(|name| (name == "POD_NAMESPACE").then(|| "operator".to_owned()))
}

async fn create(client: &Client, path: &str, object: &Value) {
    let request = http::Request::post(path).body(serde_json::to_vec(object).unwrap());
    client.request::<Value>(request.unwrap()).await.unwrap();
}

async fn create_namespace(client: &Client, name: &str) {
    let namespace = json!({"metadata": {"name": name}});
    create(client, "/api/v1/namespaces", &namespace).await;
}

/// Returns a server with a custom resource, and a client of people.
async fn served() -> (ApiServer, Client) {
    served_by(&Options::default(), Duration::from_secs(10), &json!({})).await
}

/// Returns a server with a custom resource that has this metadata and is created after a pause, and a client of
/// people.
async fn served_by(options: &Options, pause: Duration, metadata: &Value) -> (ApiServer, Client) {
    let server = ApiServer::new(options);
    let people = Client::new(server.service(), "default");
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    create(&people, definitions, &definition()).await;
    create_namespace(&people, "operator").await;
    tokio::time::sleep(pause).await;
    let mut web =
        json!({"apiVersion": "demo.example.com/v1", "kind": "Web", "metadata": {"name": "a"}});
    json_patch::merge(&mut web, &json!({"metadata": metadata}));
    let path = WEB.trim_end_matches("/a");
    create(&people, path, &web).await;
    (server, people)
}

/// Runs the operator until the token is cancelled.
fn operate(
    server: &ApiServer,
    charts: Charts,
    options: crate::options::Options,
) -> (CancellationToken, JoinHandle<Result<(), ManagerError>>) {
    let manager = Manager::new(options).network(server.client("operator"));
    let manager = charts.watch_files(false).add_to(manager);
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run_until(stop.clone()));
    (stop, running)
}

/// Waits for a `Ready` of the custom resource that holds, for no longer than an attempt takes.
async fn ready_when(client: &Client, holds: impl Fn(&Value) -> bool) -> Value {
    ready_until(Instant::now() + ATTEMPT_WITHIN, client, WEB, holds).await
}

async fn ready_until(
    end: Instant,
    client: &Client,
    path: &str,
    holds: impl Fn(&Value) -> bool,
) -> Value {
    let mut last = None;
    while Instant::now() < end {
        last = ready_of(client, path).await;
        if let Some(ready) = last.take_if(|ready| holds(ready)) {
            return ready;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("{last:?}");
}

/// Returns the condition `Ready` of the custom resource.
async fn ready(client: &Client) -> Option<Value> {
    ready_of(client, WEB).await
}

async fn get(client: &Client, path: &str) -> Value {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    client.request(request).await.unwrap()
}

async fn ready_of(client: &Client, path: &str) -> Option<Value> {
    let web = get(client, path).await;
    let conditions = web.pointer("/status/conditions")?.as_array()?;
    let mut conditions = conditions.iter();
    conditions
        .find(|condition| condition["type"] == "Ready")
        .cloned()
}

#[tokio::test(start_paused = true)]
async fn attempt_that_is_cut_off_is_told_with_its_step_and_the_next_one_goes_on() {
    let _simulated = host::simulate(Clock(Instant::now()));
    let directory = tempfile::tempdir().unwrap();
    write_chart(directory.path(), 8);
    let (server, people) = served().await;
    slow_writes(&server);
    let charts = Charts::load(&directory.path().join("watches.yaml"), |chart| chart).unwrap();
    let (stop, running) = operate(&server, charts, options());

    let begun = Instant::now();
    let is_told = |ready: &Value| ready["reason"] == "Retrying";
    let told = ready_until(begun + 3 * ATTEMPT_WITHIN, &people, WEB, is_told).await;
    let message = told["message"].as_str().unwrap();
    let begins = "the attempt took too long, in its step `install`: cut off after 300 s; the last request was: ";
    assert!(message.starts_with(begins), "{message}");
    assert!(
        message.ends_with("; the next attempt is within 4 s"),
        "{message}"
    );
    let names_request = message.contains(" configmaps default/hook-")
        || message.contains(" secrets default/sh.helm.release.v1.a.v1");
    assert!(names_request, "{message}");

    // Each attempt goes on where the one before was cut off.
    let is_ready = |ready: &Value| ready["status"] == "True";
    ready_until(begun + 6 * ATTEMPT_WITHIN, &people, WEB, is_ready).await;
    let created = |name: String| {
        let requests = server.faults().requests();
        let of = requests.iter().filter(|request| {
            request.name.as_deref() == Some(&name)
                && matches!(request.verb.as_str(), "create" | "apply")
        });
        of.count()
    };
    // The first hooks have not run again.
    assert_eq!(created("hook-0".to_owned()), 1);
    stop.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(server.unmodelled(), Vec::<String>::new());
}

/// Returns what the operator answers to a request for its metrics.
async fn metrics(port: u16) -> String {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = b"GET /metrics HTTP/1.0\r\n\r\n";
    connection.write_all(request).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(start_paused = true)]
async fn reconcile_that_panics_is_in_ready_until_it_succeeds() {
    static PANICS: AtomicBool = AtomicBool::new(true);
    let _simulated = host::simulate(Clock(Instant::now()));
    let directory = tempfile::tempdir().unwrap();
    write_chart(directory.path(), 0);
    let extend = |chart: HelmController| {
        chart.pre_hook(|_, _| async {
            assert!(!PANICS.load(Ordering::SeqCst), "the password is secret");
            Ok(())
        })
    };
    let charts = Charts::load(&directory.path().join("watches.yaml"), extend).unwrap();
    let (server, people) = served().await;
    let address = hybrid_operator_test::process::free_address().unwrap();
    let arguments = format!("--metrics-bind-address={address}");
    let (stop, running) = operate(&server, charts, options_of(["run", &arguments, PROBES]));

    let told = ready_when(&people, |ready| ready["reason"] == "Retrying").await;
    assert_eq!(
        told["message"],
        "the reconcile panicked; the log of the operator has the message; the next attempt is within 4 s"
    );
    let counted = metrics(address.port()).await;
    let expected = "controller_runtime_reconcile_panics_total{controller=\"web\"} 4";
    assert!(counted.contains(expected), "{counted}");
    PANICS.store(false, Ordering::SeqCst);
    ready_when(&people, |ready| ready["status"] == "True").await;
    stop.cancel();
    running.await.unwrap().unwrap();
}

/// Runs a native controller that installs a chart for each service account, and tells of the releases, until the token
/// is cancelled.
fn operate_shop(
    server: &ApiServer,
    chart: &Chart,
) -> (
    mpsc::UnboundedReceiver<Release>,
    CancellationToken,
    JoinHandle<Result<(), ManagerError>>,
) {
    let (told, releases) = mpsc::unbounded_channel();
    let chart = chart.clone();
    let controller = native::controller::<ServiceAccount>("shop")
        .with(super::components())
        .deadline(Duration::from_secs(30))
        .reconcile(move |_, context| {
            let (chart, told) = (chart.clone(), told.clone());
            async move {
                let release = install(&context, Component::new("db", &chart)).await?;
                let _ = told.send(release);
                Ok::<_, native::Error>(native::Action::done())
            }
        });
    let manager = Manager::new(options()).network(server.client("operator"));
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.with(controller).run_until(stop.clone()));
    (releases, stop, running)
}

#[tokio::test(start_paused = true)]
async fn chart_of_a_native_controller_is_told_as_installed_once_also_after_a_restart() {
    let _simulated = host::simulate(Clock(Instant::now()));
    let directory = tempfile::tempdir().unwrap();
    write_chart(directory.path(), 0);
    let chart = Chart::load(directory.path().join("chart")).unwrap();
    let server = ApiServer::new(&Options::default());
    let people = Client::new(server.service(), "default");
    create_namespace(&people, "operator").await;
    let path = "/api/v1/namespaces/default/serviceaccounts";
    create(&people, path, &json!({"metadata": {"name": "a"}})).await;
    for _ in 0..2 {
        let (mut releases, stop, running) = operate_shop(&server, &chart);
        let is_it = |release: &Release| release.ready && release.name == "a-db";
        while !is_it(&releases.recv().await.unwrap()) {}
        stop.cancel();
        running.await.unwrap().unwrap();
    }
    let events = get(&people, "/apis/events.k8s.io/v1/namespaces/default/events").await;
    let events = events["items"].as_array().unwrap().iter();
    let installed: Vec<&Value> = events
        .filter(|event| event["reason"] == "InstallSuccessful" && event["regarding"]["name"] == "a")
        .collect();
    assert!(
        installed.len() == 1 && installed[0]["series"].is_null(),
        "{installed:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn native_controller_is_told_that_its_chart_was_cut_off_before_it_is_cancelled() {
    let _simulated = host::simulate(Clock(Instant::now()));
    let directory = tempfile::tempdir().unwrap();
    write_chart(directory.path(), 1);
    let chart = Chart::load(directory.path().join("chart")).unwrap();
    let server = ApiServer::new(&Options::default());
    let people = Client::new(server.service(), "default");
    create_namespace(&people, "operator").await;
    let owner = json!({"metadata": {"name": "a"}});
    let path = "/api/v1/namespaces/default/serviceaccounts";
    create(&people, path, &owner).await;
    slow_writes(&server);
    let (mut releases, stop, running) = operate_shop(&server, &chart);
    let message = releases.recv().await.unwrap().message;
    let begins = "the attempt took too long, in its step `install`: cut off after 27 s; the last request was: ";
    assert!(message.starts_with(begins), "{message}");
    stop.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn deletion_whose_release_is_in_no_watched_namespace_says_so_and_when_it_is_tried_again() {
    let _simulated = host::simulate(Clock(Instant::now()));
    let directory = tempfile::tempdir().unwrap();
    write_chart(directory.path(), 0);
    let server = ApiServer::new(&Options::default());
    let people = Client::new(server.service(), "default");
    let mut definition = definition();
    definition["spec"]["scope"] = json!("Cluster");
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    create(&people, definitions, &definition).await;
    for name in ["operator", "watched"] {
        create_namespace(&people, name).await;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    let web = json!({"apiVersion": "demo.example.com/v1", "kind": "Web",
        "metadata": {"name": "a", "finalizers": [super::custom_resource::FINALIZER]}});
    create(&people, "/apis/demo.example.com/v1/webs", &web).await;
    let path = "/apis/demo.example.com/v1/webs/a";
    delete(&people, path).await;

    let arguments = RunArgs::try_parse_from(ARGUMENTS).unwrap();
    let options = arguments.options(|name| match name {
        "POD_NAMESPACE" => Some("operator".to_owned()),
        "WATCH_NAMESPACE" => Some("watched".to_owned()),
        _ => None,
    });
    let charts = Charts::load(&directory.path().join("watches.yaml"), |chart| chart).unwrap();
    let (stop, running) = operate(&server, charts, options);
    let told = ready_until(Instant::now() + ATTEMPT_WITHIN, &people, path, |_| true).await;
    assert_eq!(
        (&told["status"], &told["reason"]),
        (&json!("False"), &json!("Retrying"))
    );
    let message = told["message"].as_str().unwrap();
    let names = "add operator to $WATCH_NAMESPACE; the next attempt is within 4 s";
    assert!(message.ends_with(names), "{message}");
    stop.cancel();
    running.await.unwrap().unwrap();
}

/// Time with which watches show changes in some tests.
const LAG: Duration = Duration::from_secs(10);

/// Returns a server whose watches are late, with a custom resource that has this metadata, and the operator,
/// which has seen it.
async fn behind(metadata: &Value) -> (ApiServer, Client, tempfile::TempDir, CancellationToken) {
    let directory = tempfile::tempdir().unwrap();
    write_chart(directory.path(), 0);
    let late = Options {
        lag: LAG..=LAG,
        ..Options::default()
    };
    let (server, people) = served_by(&late, 3 * LAG, metadata).await;
    tokio::time::sleep(3 * LAG).await;
    let charts = Charts::load(&directory.path().join("watches.yaml"), |chart| chart).unwrap();
    let (stop, _) = operate(&server, charts, options());
    tokio::time::sleep(3 * LAG).await;
    (server, people, directory, stop)
}

async fn change(client: &Client, path: &str, change: &Value) {
    let request = http::Request::patch(path)
        .header("content-type", "application/merge-patch+json")
        .body(serde_json::to_vec(&change).unwrap());
    client.request::<Value>(request.unwrap()).await.unwrap();
    tokio::time::sleep(LAG / 5).await;
}

async fn delete(client: &Client, path: &str) {
    let delete = http::Request::delete(path).body(Vec::new());
    client.request::<Value>(delete.unwrap()).await.unwrap();
}

/// Returns the number of requests of this kind in the namespace of the custom resource.
fn requests(server: &ApiServer, verb: &str, resource: &str) -> usize {
    let requests = server.faults().requests();
    let of = requests.iter().filter(|request| {
        let in_default = request.namespace.as_deref() == Some("default");
        in_default && request.verb == verb && request.resource == resource
    });
    of.count()
}

#[tokio::test(start_paused = true)]
async fn release_is_not_installed_again_from_a_cache_that_is_older_than_its_uninstall() {
    let _simulated = host::simulate(Clock(Instant::now()));
    let paused = "helm.sdk.operatorframework.io/paused";
    let metadata =
        json!({"finalizers": [super::custom_resource::FINALIZER], "annotations": {paused: "true"}});
    let (server, people, _directory, _stop) = behind(&metadata).await;
    // The operator sees the first change when all of them are over, as if another process had uninstalled.
    change(
        &people,
        WEB,
        &json!({"metadata": {"annotations": {paused: null}}}),
    )
    .await;
    change(&people, WEB, &json!({"metadata": {"finalizers": null}})).await;
    delete(&people, WEB).await;
    tokio::time::sleep(10 * LAG).await;
    assert!(requests(&server, "get", "webs") > 0, "it does not look");
    let installs = requests(&server, "create", "secrets");
    assert_eq!(installs, 0, "it installs the release");
}

#[tokio::test(start_paused = true)]
async fn custom_resources_are_forgotten_once_their_kind_is_gone() {
    let _simulated = host::simulate(Clock(Instant::now()));
    let (server, people, _directory, _stop) = behind(&json!({})).await;
    // The custom resource goes with its kind, but no answer and no event says so.
    server.faults().inject_with(|request| {
        let is_last = request.verb == "patch" && request.resource == "webs";
        is_last.then_some(Fault::AnswerLost)
    });
    let definition =
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/webs.demo.example.com";
    delete(&people, definition).await;
    tokio::time::sleep(6 * LAG).await;
    let before = requests(&server, "get", "webs");
    tokio::time::sleep(360 * LAG).await;
    assert_eq!(requests(&server, "get", "webs"), before);
}

#[tokio::test(start_paused = true)]
async fn what_a_user_keeps_is_released_while_the_revision_waits_for_a_hook() {
    keep_during_a_hook(false).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_user_keeps_is_released_while_the_custom_resource_is_paused() {
    keep_during_a_hook(true).await;
}

/// Annotates an object to be kept while a hook runs, and, if `paused`, the custom resource is paused.
async fn keep_during_a_hook(paused: bool) {
    let _simulated = host::simulate(Clock(Instant::now()));
    let directory = tempfile::tempdir().unwrap();
    write_chart(directory.path(), 0);
    let hook = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: hook\n  annotations: {helm.sh/hook: post-install}\nspec:\n  template:\n    metadata: {annotations: {test.hybrid-operator/pod: running}}\n    spec: {restartPolicy: Never, containers: [{name: hook, image: hook}]}\n";
    fs::write(directory.path().join("chart/templates/hook.yaml"), hook).unwrap();
    let charts = Charts::load(&directory.path().join("watches.yaml"), |chart| chart).unwrap();
    let (server, people) = served().await;
    let (stop, running) = operate(&server, charts, options());
    let waits = |ready: &Value| {
        ready["message"]
            .as_str()
            .unwrap()
            .ends_with("post-install hook hook")
    };
    ready_when(&people, waits).await;

    if paused {
        let pause = json!({"helm.sdk.operatorframework.io/paused": "true"});
        change(&people, WEB, &json!({"metadata": {"annotations": pause}})).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    let path = "/api/v1/namespaces/default/configmaps/object";
    let keep = json!({"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}});
    assert!(owners(&people, path).await.is_some());
    change(&people, path, &keep).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(owners(&people, path).await, None);
    assert!(paused || waits(&ready(&people).await.unwrap()));
    stop.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(server.unmodelled(), Vec::<String>::new());
}

/// Returns the owner references of an object.
async fn owners(client: &Client, path: &str) -> Option<Value> {
    let object = get(client, path).await;
    object.pointer("/metadata/ownerReferences").cloned()
}

//! Operator processes that start and stop: hand-over of leadership, a kill during an install.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::api_outage::SwitchableProxy;
use crate::world::{
    LIMIT, Project, World, api, apply, eventually, has_event, history, is_true, new_namespace,
    operator, program, ready_at, revision_of, until,
};

#[tokio::test]
async fn second_replica_takes_over_when_the_leader_exits() {
    let (plane, namespace) = or_skip!(new_namespace("leader").await);
    let replica = |pod: &str| {
        operator(
            plane,
            namespace.name(),
            &["--leader-elect", "--leader-election-id=leader-test"],
        )
        .env("POD_NAMESPACE", namespace.name())
        .env("POD_NAME", pod)
        .start()
    };
    let first = replica("first").await.unwrap();
    let memcacheds = api(&namespace, "Memcached");
    apply(&memcacheds, "one", &json!({"spec": {"replicaCount": 1}})).await;
    let ready = |cr: &Value| is_true(cr, "Ready");
    until(&memcacheds, "one", "Ready", ready).await;

    let second = replica("second").await.unwrap();
    assert!(
        first.stop(LIMIT).await.unwrap().success(),
        "an orderly end is a success"
    );
    apply(&memcacheds, "two", &json!({"spec": {"replicaCount": 1}})).await;
    until(&memcacheds, "two", "Ready", ready).await;
    // The release stays as the first replica left it. Whether its Pods stay ready is up to the
    // simulated node.
    let one = memcacheds.get("one").await.unwrap();
    assert_eq!(one.data["status"]["release"]["revision"], 1);
    let web = api(&namespace, "Deployment").get("one-memcached").await;
    assert_eq!(web.unwrap().metadata.generation, Some(1));
    assert!(!second.log().contains("\"Upgrade\""), "{}", second.log());
}

/// A slow hook, so that an upgrade can be interrupted.
const CHART: &str = "\
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-hook
  annotations: {helm.sh/hook: pre-upgrade}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: i}]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data: {value: {{ .Values.value | quote }}}
";

#[tokio::test]
async fn frozen_leader_does_not_write_after_losing_its_lease() {
    let (plane, namespace) = or_skip!(new_namespace("frozen").await);
    let project = Project::new("", &[("all.yaml", CHART)]);
    let replica = |pod: &str| project.replica(plane, &namespace, pod).start();
    let widgets = api(&namespace, "Widget");
    let deployed = async |value: &str, revision: u32| {
        apply(&widgets, "one", &json!({"spec": {"value": value}})).await;
        until(&widgets, "one", "Ready", ready_at(revision)).await;
    };
    let first = replica("first").await.unwrap();
    deployed("1", 1).await;

    apply(&widgets, "one", &json!({"spec": {"value": "2"}})).await;
    let secrets = api(&namespace, "Secret");
    until(&secrets, "sh.helm.release.v1.one.v2", "a record", |_| true).await;
    first.freeze().unwrap();
    let _second = replica("second").await.unwrap();
    let done = |record: &Value| record["metadata"]["labels"]["status"] == "deployed";
    let record = "sh.helm.release.v1.one.v2";
    until(&secrets, record, "deployed", done).await;
    deployed("3", 3).await;

    first.wake().unwrap();
    let end = first.exited(LIMIT).await.unwrap();
    assert!(!end.success(), "a lost lease is an error\n{}", first.log());
    assert_contains!(first.log(), "lost the leader election lease");
    let map = api(&namespace, "ConfigMap").get("one-map").await.unwrap();
    assert_eq!(map.data["data"]["value"], "3");
    let statuses = ["superseded", "superseded", "deployed"];
    assert_eq!(history(&namespace, "one").await, statuses);
}

/// Returns the number of writes of the status of a Widget that the API server has refused as conflicts.
async fn conflicts(client: &kube::Client) -> u64 {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = client.request_text(request).await.unwrap();
    let wanted = [
        "apiserver_request_total{",
        "code=\"409\"",
        "resource=\"widgets\"",
        "subresource=\"status\"",
    ];
    let lines = metrics.lines();
    let found = lines.filter(|line| wanted.iter().all(|part| line.contains(part)));
    let counts = found.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    counts.sum()
}

#[tokio::test]
async fn status_written_late_by_a_former_leader_is_rejected() {
    let (plane, namespace) = or_skip!(new_namespace("late").await);
    let project = Project::new("", &[("all.yaml", CHART)]);
    let replica = |pod: &str| project.replica(plane, &namespace, pod);
    let dir = tempfile::tempdir().unwrap();
    let (proxy, kubeconfig) = SwitchableProxy::before(plane.kubeconfig_path(), dir.path()).await;
    proxy.set(true);
    let first = replica("first").kubeconfig(&kubeconfig).start();
    let first = first.await.unwrap();
    let widgets = api(&namespace, "Widget");
    let deployed = async |value: &str, revision: u32| {
        apply(&widgets, "one", &json!({"spec": {"value": value}})).await;
        until(&widgets, "one", "Ready", ready_at(revision)).await
    };
    deployed("1", 1).await;

    // The event is the last request of the install: nothing else is under way when it is there.
    let told = async || has_event(&namespace, "InstallSuccessful").await;
    eventually("an event", told).await;

    // To be paused is told by a write of the status and by no other one. It stays on its way.
    let steps = || first.log().matches("planned").count();
    let before = steps();
    proxy.hold(true);
    let annotations = json!({"helm.sdk.operatorframework.io/paused": "true"});
    let paused = json!({"metadata": {"annotations": annotations}, "spec": {"value": "1"}});
    apply(&widgets, "one", &paused).await;
    let planned = async || steps() > before;
    eventually("a plan", planned).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    first.freeze().unwrap();

    let second = replica("second").start().await.unwrap();
    let now = deployed("2", 2).await;
    let client = plane.client().await.unwrap();
    let before = conflicts(&client).await;
    proxy.hold(false);
    let refused = async || conflicts(&client).await > before;
    eventually("a conflict", refused).await;
    let status = async || widgets.get("one").await.unwrap().data["status"].clone();
    assert_eq!(status().await, now["status"], "{}", second.log());

    first.wake().unwrap();
    let end = first.exited(LIMIT).await.unwrap();
    assert!(!end.success(), "a lost lease is an error\n{}", first.log());
    assert_eq!(status().await, now["status"], "{}", first.log());
}

#[tokio::test]
async fn killed_install_is_finished_after_a_restart() {
    let mut world = or_skip!(World::start("kill").await);
    let spec = json!({"spec": {"replicaCount": 2}});
    apply(&world.api("Memcached"), "cache", &spec).await;
    let record = "sh.helm.release.v1.cache.v1";
    // Once the record exists, the install is in progress and has created nothing else yet.
    world.there("Secret", record).await;
    world.operator.sigkill().unwrap();
    world.operator.exited(LIMIT).await.unwrap();
    world.operator.restart().await.unwrap();
    let ready = world.ready("Memcached", "cache").await;
    assert_eq!(revision_of(&ready), 1, "no second revision");
    assert_eq!(world.history("cache").await, ["deployed"]);
}

#[tokio::test]
async fn restart_neither_writes_nor_upgrades() {
    let mut world = or_skip!(World::start("restart").await);
    let before = world.memcached("cache", json!({})).await;
    world.operator.stop(LIMIT).await.unwrap();
    world.operator.restart().await.unwrap();
    world.memcached("other", json!({"replicaCount": 1})).await;
    let after = world.ready("Memcached", "cache").await;
    assert_eq!(
        before.metadata.resource_version,
        after.metadata.resource_version
    );
}

/// A log that fails must not end the task that writes it.
#[tokio::test]
async fn operator_whose_log_nobody_reads_any_more_ends_on_sigterm() {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let unreachable = json!({
        "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    });
    std::fs::write(&kubeconfig, unreachable.to_string()).unwrap();
    let mut operator = Command::new(program())
        .args([
            "run",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=127.0.0.1:0",
        ])
        .env("KUBECONFIG", &kubeconfig)
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut log = BufReader::new(operator.stderr.take().unwrap()).lines();
    while let Some(line) = log.next_line().await.unwrap() {
        if line.contains("cannot reach the API server") {
            break;
        }
    }
    drop(log);
    let pid = operator.id().unwrap().to_string();
    let sent = Command::new("kill").args(["-TERM", &pid]).status().await;
    assert!(sent.unwrap().success());
    let ended = timeout(LIMIT, operator.wait()).await.unwrap().unwrap();
    assert!(ended.success(), "{ended}");
}

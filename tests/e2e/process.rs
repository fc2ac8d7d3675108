//! Operator processes that start and stop: hand-over of leadership, a kill during an install.

use hybrid_operator_test::TestNamespace;
use kube::api::ListParams;
use serde_json::json;

use crate::world::{LIMIT, Project, World, api, apply, condition, control_plane, operator, until};

#[tokio::test]
async fn second_replica_takes_over_when_the_leader_exits() {
    let Some(plane) = control_plane().await else {
        return;
    };
    let namespace = TestNamespace::create(plane, "leader").await.unwrap();
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
    let ready =
        |cr: &serde_json::Value| condition(cr, "Ready").is_some_and(|c| c["status"] == "True");
    until(&memcacheds, "one", "Ready", ready)
        .await
        .unwrap_or_else(|e| panic!("{e}\n{}", first.log()));

    let second = replica("second").await.unwrap();
    assert!(
        first.stop(LIMIT).await.unwrap().success(),
        "an orderly end is a success"
    );
    apply(&memcacheds, "two", &json!({"spec": {"replicaCount": 1}})).await;
    until(&memcacheds, "two", "Ready", ready)
        .await
        .unwrap_or_else(|e| panic!("{e}\n{}", second.log()));
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
    let Some(plane) = control_plane().await else {
        return;
    };
    let project = Project::new("", &[("all.yaml", CHART)]);
    let namespace = TestNamespace::create(plane, "frozen").await.unwrap();
    let replica = |pod: &str| {
        project
            .operator(plane, namespace.name())
            .args(["--leader-elect", "--leader-election-id=frozen-test"])
            .env("POD_NAMESPACE", namespace.name())
            .env("POD_NAME", pod)
            .start()
    };
    let widgets = api(&namespace, "Widget");
    let deployed = async |value: &str, revision: u32| {
        apply(&widgets, "one", &json!({"spec": {"value": value}})).await;
        let ready = |cr: &serde_json::Value| {
            condition(cr, "Ready").is_some_and(|c| c["status"] == "True")
                && cr["status"]["release"]["revision"] == revision
        };
        until(&widgets, "one", "Ready", ready).await
    };
    let first = replica("first").await.unwrap();
    deployed("1", 1).await.unwrap();

    apply(&widgets, "one", &json!({"spec": {"value": "2"}})).await;
    let secrets = api(&namespace, "Secret");
    let begun = |record: &serde_json::Value| !record.is_null();
    until(&secrets, "sh.helm.release.v1.one.v2", "a record", begun)
        .await
        .unwrap();
    first.freeze().unwrap();
    let second = replica("second").await.unwrap();
    let done = |record: &serde_json::Value| record["metadata"]["labels"]["status"] == "deployed";
    until(&secrets, "sh.helm.release.v1.one.v2", "deployed", done)
        .await
        .unwrap_or_else(|e| panic!("{e}\n{}", second.log()));
    deployed("3", 3)
        .await
        .unwrap_or_else(|e| panic!("{e}\n{}", second.log()));

    first.wake().unwrap();
    let end = first.exited(LIMIT).await.unwrap();
    assert!(!end.success(), "a lost lease is an error\n{}", first.log());
    assert!(
        first.log().contains("lost the leader election lease"),
        "{}",
        first.log()
    );
    let map = api(&namespace, "ConfigMap").get("one-map").await.unwrap();
    assert_eq!(map.data["data"]["value"], "3");
    let list = ListParams::default().labels("owner=helm");
    let mut history: Vec<(String, String)> = Vec::new();
    for record in secrets.list(&list).await.unwrap().items {
        let labels = record.metadata.labels.unwrap();
        history.push((labels["version"].clone(), labels["status"].clone()));
    }
    history.sort();
    let pairs: Vec<(&str, &str)> = history
        .iter()
        .map(|(v, s)| (v.as_str(), s.as_str()))
        .collect();
    assert_eq!(
        pairs,
        [("1", "superseded"), ("2", "superseded"), ("3", "deployed")]
    );
}

#[tokio::test]
async fn killed_install_is_finished_after_a_restart() {
    let Some(mut world) = World::start("kill").await else {
        return;
    };
    apply(
        &world.api("Memcached"),
        "cache",
        &json!({"spec": {"replicaCount": 2}}),
    )
    .await;
    let record = "sh.helm.release.v1.cache.v1";
    // Once the record exists, the install is in progress and has created nothing else yet.
    world
        .until("Secret", record, "a record", |secret| !secret.is_null())
        .await;
    world.operator.sigkill().unwrap();
    world.operator.exited(LIMIT).await.unwrap();
    world.operator.restart().await.unwrap();
    let ready = world.ready("Memcached", "cache").await;
    assert_eq!(
        ready.data["status"]["release"]["revision"], 1,
        "no second revision"
    );
    let records = world
        .api("Secret")
        .list(&ListParams::default().labels("owner=helm"))
        .await
        .unwrap();
    assert_eq!(records.items.len(), 1);
    assert_eq!(
        records.items[0].metadata.labels.as_ref().unwrap()["status"],
        "deployed"
    );
}

#[tokio::test]
async fn restart_neither_writes_nor_upgrades() {
    let Some(mut world) = World::start("restart").await else {
        return;
    };
    let before = world.memcached("cache", json!({})).await;
    world.operator.stop(LIMIT).await.unwrap();
    world.operator.restart().await.unwrap();
    apply(
        &world.api("Memcached"),
        "other",
        &json!({"spec": {"replicaCount": 1}}),
    )
    .await;
    world.ready("Memcached", "other").await;
    let after = world.ready("Memcached", "cache").await;
    assert_eq!(
        before.metadata.resource_version,
        after.metadata.resource_version
    );
}

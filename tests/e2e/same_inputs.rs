//! The same inputs give the same content: random values are generated once, whichever process
//! retries or takes over. A record that Helm is writing is not mistaken for the operator's own.

use std::time::{Duration, SystemTime};

use hybrid_operator::options::Options;
use hybrid_operator_test::fault::{Fault, Faults};
use hybrid_operator_test::request::Recorded;
use hybrid_operator_test::{ControlPlane, TestNamespace};
use kube::api::{Api, DynamicObject, ResourceExt};
use serde_json::{Value, json};

use crate::adoption::install;
use crate::helm_cli::helm;
use crate::security::{decode, encode};
use crate::world::{
    InProcessOperator, Project, World, api, apply, control_plane, deploy, has_condition, holds,
    injected, is_ready, is_write_to, merge, namespace_of, new_namespace, refuse, until,
};

/// A password, a value, and an object that only some values enable.
const OBJECTS: &str = "\
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-password}
stringData: {password: {{ randAlphaNum 16 | quote }}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data: {value: {{ .Values.value | default \"none\" | quote }}}
{{- if .Values.extra }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-extra}
{{- end }}
";

const HOOK: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-hook
  annotations: {helm.sh/hook: post-install}
";

/// Returns the password in the cluster.
async fn password(namespace: &TestNamespace) -> String {
    let there = |secret: &Value| secret["data"]["password"].is_string();
    let secret = until(&api(namespace, "Secret"), "one-password", "there", there).await;
    secret["data"]["password"].to_string()
}

async fn is_deployed(widgets: &Api<DynamicObject>, revision: u32) {
    let deployed = |cr: &Value| is_ready(cr) && cr["status"]["release"]["revision"] == revision;
    until(widgets, "one", "Ready", deployed).await;
}

/// Waits until a record has this failure count.
async fn failed(namespace: &TestNamespace, revision: u32, label: &str) {
    let often = |record: &Value| {
        record["metadata"]["labels"]["helm.sdk.operatorframework.io/failures"] == label
    };
    let name = format!("sh.helm.release.v1.one.v{revision}");
    until(&api(namespace, "Secret"), &name, "failures", often).await;
}

async fn start(
    plane: &ControlPlane,
    namespace: &TestNamespace,
    project: &Project,
    faults: &Faults,
    change: impl FnOnce(&mut Options),
) -> InProcessOperator {
    let client = plane.client_with(faults).await.unwrap();
    InProcessOperator::with(project, client, namespace.name(), |chart| chart, change)
}

#[tokio::test(flavor = "multi_thread")]
async fn random_password_is_kept_while_a_post_install_hook_fails() {
    let (plane, namespace) = or_skip!(new_namespace("password").await);
    let project = Project::new("", &[("objects.yaml", OBJECTS), ("hook.yaml", HOOK)]);
    let faults = Faults::new();
    refuse(&faults, "one-hook");
    let operator = start(plane, &namespace, &project, &faults, |_| {}).await;
    let widgets = api(&namespace, "Widget");
    apply(&widgets, "one", &json!({"spec": {"value": "1"}})).await;
    let first = password(&namespace).await;
    failed(&namespace, 1, "1-1").await;
    drop(operator);
    let _operator = start(plane, &namespace, &project, &faults, |_| {}).await;
    failed(&namespace, 1, "1-2").await;
    faults.clear_faults();
    is_deployed(&widgets, 1).await;
    assert_eq!(password(&namespace).await, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn random_password_is_kept_when_the_pending_record_of_another_process_expires() {
    let (plane, namespace) = or_skip!(new_namespace("password").await);
    let options = "install: {timeout: 2s}, upgrade: {timeout: 2s}";
    let project = Project::new(options, &[("objects.yaml", OBJECTS)]);
    let faults = Faults::new();
    faults.stop_at(1, Fault::Unreachable, |r| is_write_to(r, "one-map"));
    let another = |options: &mut Options| "another".clone_into(&mut options.instance);
    let operator = start(plane, &namespace, &project, &faults, another).await;
    let widgets = api(&namespace, "Widget");
    apply(&widgets, "one", &json!({"spec": {"value": "1"}})).await;
    injected(&faults).await;
    drop(operator);
    let first = password(&namespace).await;
    let _operator = start(plane, &namespace, &project, &Faults::new(), |_| {}).await;
    let deployed = |cr: &Value| is_ready(cr) && cr["status"]["release"]["status"] == "deployed";
    until(&widgets, "one", "Ready", deployed).await;
    assert_eq!(password(&namespace).await, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn random_password_is_kept_when_a_stalled_upgrade_is_retried_on_request() {
    let (plane, namespace) = or_skip!(new_namespace("password").await);
    let options = "upgrade: {remediation: {strategy: none, retries: 0}}";
    let project = Project::new(options, &[("objects.yaml", OBJECTS)]);
    let faults = Faults::new();
    let _operator = start(plane, &namespace, &project, &faults, |_| {}).await;
    let widgets = api(&namespace, "Widget");
    apply(&widgets, "one", &json!({"spec": {"value": "1"}})).await;
    is_deployed(&widgets, 1).await;
    refuse(&faults, "one-extra");
    let extra = json!({"spec": {"value": "2", "extra": true}});
    apply(&widgets, "one", &extra).await;
    until(&widgets, "one", "Stalled", holds("Stalled")).await;
    let second = password(&namespace).await;
    faults.clear_faults();
    let annotation = "helm.sdk.operatorframework.io/reset-at";
    let reset = json!({"metadata": {"annotations": {annotation: "now"}}});
    merge(&widgets, "one", &reset).await;
    is_deployed(&widgets, 2).await;
    assert_eq!(password(&namespace).await, second);
}

/// Changes the content of the first revision's record.
async fn change_record(world: &World, change: impl FnOnce(&mut helm_core::release::Release)) {
    let name = "sh.helm.release.v1.one.v1";
    let secrets = world.api("Secret");
    let mut release = decode(&secrets.get(name).await.unwrap().data);
    change(&mut release);
    let patch = json!({"data": {"release": encode(&release)}});
    merge(&secrets, name, &patch).await;
}

#[tokio::test]
async fn random_password_is_kept_when_a_helm_release_is_adopted() {
    let Some(program) = helm() else { return };
    let project = Project::new("", &[("objects.yaml", OBJECTS)]);
    let world = or_skip!(project.start("adopted").await);
    install(&world, &project, &program, &["--set-string", "value=1"]);
    let first = password(&world.namespace).await;
    world.widget("one", json!({"value": "1"})).await;
    world.annotate("one", "adopt-release", json!("true")).await;
    is_deployed(&world.api("Widget"), 1).await;
    assert_eq!(password(&world.namespace).await, first);
    assert_eq!(world.history("one").await, ["deployed"]);
}

#[tokio::test]
async fn namespaces_written_by_a_go_operator_make_no_new_revision() {
    let Some(program) = helm() else { return };
    let project = Project::new("", &[("objects.yaml", OBJECTS)]);
    let world = or_skip!(project.start("namespaced").await);
    install(&world, &project, &program, &["--set-string", "value=1"]);
    let first = password(&world.namespace).await;
    let namespace = world.namespace.name().to_owned();
    change_record(&world, |release| {
        let named = format!("metadata: {{namespace: {namespace}, name:");
        release.manifest = release.manifest.replace("metadata: {name:", &named);
        assert_contains!(release.manifest, &named);
    })
    .await;
    let map = world.api("ConfigMap").get("one-map").await.unwrap();
    // Go operators leave it in this state; paused while it is set up here.
    let annotation = "helm.sdk.operatorframework.io/paused";
    let paused = json!({"metadata": {"annotations": {annotation: "true"}}, "spec": {"value": "1"}});
    apply(&world.api("Widget"), "one", &paused).await;
    let uid = world.api("Widget").get("one").await.unwrap().uid().unwrap();
    let owner = json!([{"apiVersion": "test.example.com/v1", "kind": "Widget", "name": "one",
        "uid": uid, "controller": true, "blockOwnerDeletion": true}]);
    let patch = json!({"metadata": {"ownerReferences": owner}});
    merge(&world.api("Secret"), "sh.helm.release.v1.one.v1", &patch).await;
    world.annotate("one", "paused", Value::Null).await;
    is_deployed(&world.api("Widget"), 1).await;
    assert_eq!(password(&world.namespace).await, first);
    assert_eq!(world.history("one").await, ["deployed"]);
    let after = world.api("ConfigMap").get("one-map").await.unwrap();
    assert_eq!(after.uid(), map.uid());
}

#[tokio::test(flavor = "multi_thread")]
async fn running_helm_upgrade_is_left_alone_regardless_of_clocks() {
    let plane = or_skip!(control_plane().await);
    let project = Project::new("reconcilePeriod: 200ms", &[("objects.yaml", OBJECTS)]);
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let hour = Duration::from_hours(1);
    for written in [now, now + hour, now.saturating_sub(hour)] {
        let namespace = namespace_of(plane, "clocks").await;
        let elected = |options: &mut Options| {
            options.leader_elect = true;
            options.leader_election_namespace = Some(namespace.name().to_owned());
        };
        let faults = Faults::new();
        let _operator = start(plane, &namespace, &project, &faults, elected).await;
        let widgets = api(&namespace, "Widget");
        apply(&widgets, "one", &json!({"spec": {"value": "1"}})).await;
        is_deployed(&widgets, 1).await;
        // Helm copies the labels of the previous revision, including the operator's.
        let secrets = api(&namespace, "Secret");
        let before = secrets.get("sh.helm.release.v1.one.v1").await.unwrap();
        let mut labels = json!(before.labels());
        labels["version"] = json!("2");
        labels["status"] = json!("pending-upgrade");
        labels["modifiedAt"] = json!(written.as_secs().to_string());
        let name = "sh.helm.release.v1.one.v2";
        let content = json!({"type": before.data["type"], "data": before.data["data"],
            "metadata": {"labels": labels}});
        apply(&secrets, name, &content).await;
        apply(&widgets, "one", &json!({"spec": {"value": "2"}})).await;
        let waits = |cr: &Value| has_condition(cr, "Ready", "False", "another Helm operation");
        until(&widgets, "one", "waiting", waits).await;
        let theirs = secrets.get(name).await.unwrap();
        faults.forget();
        // Another release shows that time passes.
        deploy(&widgets, "two", json!({})).await;
        let about = |r: &&Recorded| r.name.as_deref().is_some_and(|name| name.contains("one"));
        let requests = faults.requests();
        let writes: Vec<_> = requests
            .iter()
            .filter(|r| r.is_write())
            .filter(about)
            .collect();
        assert!(writes.iter().all(|r| r.resource == "events"), "{writes:#?}");
        let after = secrets.get(name).await.unwrap();
        assert_eq!(after.resource_version(), theirs.resource_version());
        let map = api(&namespace, "ConfigMap").get("one-map").await.unwrap();
        assert_eq!(map.data["data"]["value"], "1");
    }
}

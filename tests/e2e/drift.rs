//! Drift that only watches can report, because nothing is resynced.

use hybrid_operator_test::fault::{Fault, Faults};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::world::{Project, World, api, apply, condition, delete, is_true, merge, until};

/// A `ConfigMap` whose value comes from the custom resource and defaults to `one`.
const MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: map}
data: {value: {{ .Values.value | default \"one\" }}}
";

const SERVICE: &str = "\
apiVersion: v1
kind: Service
metadata: {name: service}
spec: {selector: {app: x}, ports: [{port: 80}]}
";

/// Returns a project without periodic resyncs.
fn project(templates: &[(&str, &str)]) -> Project {
    Project::new("reconcilePeriod: 0s", templates)
}

/// Changes a key of a `ConfigMap` and waits until it is restored.
async fn change(world: &World, map: &str, key: &str, was: &str) {
    let edit = json!({"data": {key: "theirs"}});
    merge(&world.api("ConfigMap"), map, &edit).await;
    let restored = |map: &Value| map["data"][key] == was;
    world.until("ConfigMap", map, key, restored).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn object_deleted_before_the_first_list_is_restored() {
    let project = project(&[("map.yaml", MAP)]);
    let faults = Faults::new();
    faults.inject_with(|request| {
        let listed = matches!(request.verb.as_str(), "list" | "watch");
        (listed && request.resource == "configmaps").then_some(Fault::Status(500))
    });
    let (namespace, _operator) = or_skip!(project.in_process("unlisted", &faults).await);
    let widgets = api(&namespace, "Widget");
    apply(&widgets, "one", &json!({"spec": {}})).await;
    // What cannot be watched is read once; then the object is deleted.
    let read = |cr: &Value| {
        ["WatchRefused", "Ready"]
            .iter()
            .all(|type_| is_true(cr, type_))
    };
    until(&widgets, "one", "WatchRefused", read).await;
    let maps = api(&namespace, "ConfigMap");
    delete(&maps, "map").await;
    faults.clear_faults();
    let restored = |map: &Value| map["data"]["value"] == "one";
    until(&maps, "map", "there again", restored).await;
    let watched = |cr: &Value| condition(cr, "WatchRefused").is_none();
    until(&widgets, "one", "no WatchRefused", watched).await;
}

#[tokio::test]
async fn objects_changed_and_deleted_together_are_all_repaired() {
    let project = project(&[("map.yaml", MAP), ("service.yaml", SERVICE)]);
    let world = or_skip!(project.start("at-once").await);
    world.deploy("one", json!({})).await;
    let (maps, services) = (world.api("ConfigMap"), world.api("Service"));
    for _ in 0..4 {
        let before = services.get("service").await.unwrap().metadata.uid;
        let (edit, delete) = (
            json!({"data": {"value": "theirs"}}),
            DeleteParams::default(),
        );
        let ((), deleted) = tokio::join!(
            merge(&maps, "map", &edit),
            services.delete("service", &delete)
        );
        drop(deleted.unwrap());
        world.data("map", json!({"value": "one"})).await;
        let anew = |service: &Value| {
            let uid = &service["metadata"]["uid"];
            uid.is_string() && *uid != json!(before)
        };
        world
            .until("Service", "service", "a new Service", anew)
            .await;
    }
    world.ready("Widget", "one").await;
    assert_eq!(world.history("one").await, ["deployed"]);
}

#[tokio::test]
async fn conflict_over_one_field_does_not_stop_repair_of_other_fields() {
    const KEYS: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: keys}
data: { {{- range $n := until 12 }}k{{ $n }}: one, {{ end -}} }
";
    let project = project(&[("map.yaml", MAP), ("keys.yaml", KEYS)]);
    let world = or_skip!(project.start("budget").await);
    world.deploy("one", json!({})).await;
    for n in 0..12 {
        change(&world, "keys", &format!("k{n}"), "one").await;
    }
    for _ in 0..5 {
        change(&world, "map", "value", "one").await;
    }
    let theirs = json!({"data": {"value": "theirs"}});
    merge(&world.api("ConfigMap"), "map", &theirs).await;
    let message = world.message("one", "Drifted").await;
    assert_contains!(message, "an-editor keeps changing", "/map");
    // A conflict over one field does not affect repairs of another.
    change(&world, "keys", "k3", "one").await;
    world.is("one", "Drifted").await;
    world.data("map", json!({"value": "theirs"})).await;
}

#[tokio::test]
async fn drift_is_repaired_after_a_forced_upgrade() {
    let project = project(&[("map.yaml", MAP)]);
    let world = or_skip!(project.start("forced").await);
    world.deploy("one", json!({"value": "one"})).await;
    world.annotate("one", "upgrade-force", json!("true")).await;
    world.widget("one", json!({"value": "two"})).await;
    world.data("map", json!({"value": "two"})).await;
    world.ready("Widget", "one").await;
    change(&world, "map", "value", "two").await;
    // An upgrade without force removes what the forced one wrote.
    world.annotate("one", "upgrade-force", Value::Null).await;
    world.widget("one", json!({"value": "three"})).await;
    world.data("map", json!({"value": "three"})).await;
    change(&world, "map", "value", "three").await;
}

#[tokio::test]
async fn job_removed_by_its_ttl_is_not_run_again() {
    const JOB: &str = "\
apiVersion: batch/v1
kind: Job
metadata: {name: job}
spec:
  ttlSecondsAfterFinished: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: image}]
";
    let project = project(&[("map.yaml", MAP), ("job.yaml", JOB)]);
    let world = or_skip!(project.start("expired").await);
    world.widget("one", json!({})).await;
    world.data("map", json!({"value": "one"})).await;
    // The TTL controller does not run here, so the test deletes the Job.
    world.until("Job", "job", "to be there", |_| true).await;
    let now = DeleteParams::background();
    drop(world.api("Job").delete("job", &now).await.unwrap());
    world.gone("Job", "job").await;
    // The release is ready without it, and drift of other objects is repaired.
    world.ready("Widget", "one").await;
    change(&world, "map", "value", "one").await;
    world.ready("Widget", "one").await;
    assert!(world.api("Job").get_opt("job").await.unwrap().is_none());
    // A new revision runs it again, as in Helm.
    world.widget("one", json!({"value": "two"})).await;
    world.until("Job", "job", "to be there", |_| true).await;
}

//! The life of a release: hooks, failures and remediation, random values, tests, recreation of
//! objects.

use kube::api::ListParams;
use serde_json::{Value, json};

use crate::world::{Project, World, apply, condition, delete, eventually, exists, says};

/// A `ConfigMap` that the API server rejects if `bad` is set.
const MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-map
  {{- if .Values.bad }}
  labels: {\"not a label!\": x}
  {{- end }}
data: {value: {{ .Values.value | default \"none\" | quote }}}
";

/// Returns a Job that is a hook.
fn hook(name: &str, event: &str, weight: i32, more: &str, annotations: &str) -> String {
    format!(
        "apiVersion: batch/v1
kind: Job
metadata:
  name: {{{{ .Release.Name }}}}-{name}
  annotations: {{helm.sh/hook: {event}, helm.sh/hook-weight: \"{weight}\"{more}}}
spec:
  backoffLimit: 0
  template:
    metadata: {{annotations: {{{annotations}}}}}
    spec: {{restartPolicy: Never, containers: [{{name: main, image: image}}]}}
"
    )
}

#[tokio::test]
async fn hooks_run_in_weight_order_are_awaited_and_run_once() {
    let policy = ", helm.sh/hook-delete-policy: hook-succeeded";
    let templates = [
        ("second.yaml", hook("second", "pre-install", 5, "", "")),
        ("first.yaml", hook("first", "pre-install", -5, "", "")),
        ("after.yaml", hook("after", "post-install", 0, policy, "")),
        ("map.yaml", MAP.to_owned()),
    ];
    let templates: Vec<(&str, &str)> = templates.iter().map(|(n, t)| (*n, t.as_str())).collect();
    let world = or_skip!(World::of("hooks", "", &templates).await);
    world.deploy("one", json!({})).await;
    let jobs = world.api("Job");
    let first = jobs.get("one-first").await.unwrap();
    let second = jobs.get("one-second").await.unwrap().metadata;
    let completed = first.data["status"]["completionTime"].as_str().unwrap();
    let created = second.creation_timestamp.unwrap().0.to_string();
    assert!(completed <= created.as_str());
    world.gone("Job", "one-after").await;
    // A spec change runs only the upgrade hooks.
    world.widget("one", json!({"value": "new"})).await;
    world.data("one-map", json!({"value": "new"})).await;
    world.ready("Widget", "one").await;
    let again = jobs.get("one-first").await.unwrap();
    assert_eq!(again.metadata.uid, first.metadata.uid);

    world.remove("Widget", "one").await;
    world.gone("Job", "one-first").await;
}

#[tokio::test]
async fn hanging_hook_blocks_no_other_release_and_fails_at_its_timeout() {
    let pod = "test.hybrid-operator/pod: {{ .Values.pod }}";
    let stuck = hook("check", "pre-install", 0, "", pod);
    let stuck = format!("{{{{ if .Values.pod }}}}\n{stuck}{{{{ end }}}}\n");
    let templates = [("hook.yaml", stuck.as_str()), ("map.yaml", MAP)];
    let options = "maxConcurrentReconciles: 1, install: {timeout: 3s}";
    let world = or_skip!(World::of("stuck", options, &templates).await);
    world.widget("hangs", json!({"pod": "pending"})).await;
    let text = "waiting for pre-install hook hangs-check";
    let waits = |cr: &Value| condition(cr, "Ready").is_some_and(|c| c["message"] == text);
    world.until("Widget", "hangs", "waiting", waits).await;
    world.widget("free", json!({"value": "v"})).await;
    world.data("free-map", json!({"value": "v"})).await;
    let message = world.message("hangs", "ReleaseFailed").await;
    assert_contains!(message, "did not complete within 3s");

    world.widget("fails", json!({"pod": "failed"})).await;
    let failed = world.is("fails", "ReleaseFailed").await;
    assert_eq!(failed["reason"], "InstallError");
    let message = failed["message"].as_str().unwrap();
    assert_contains!(message, "pre-install hook fails-check");
    // No object of the chart exists.
    assert!(!exists(&world.api("ConfigMap"), "fails-map").await);
}

#[tokio::test]
async fn failed_upgrade_is_rolled_back_once_and_not_retried() {
    let world = or_skip!(World::of("bad", "", &[("map.yaml", MAP)]).await);
    world.deploy("one", json!({"value": "good"})).await;
    world.bad("one", "worse").await;
    assert_contains!(world.message("one", "Stalled").await, "reset-at");
    let history = ["superseded", "failed", "deployed"];
    assert_eq!(world.history("one").await, history);
    let cr = world.api("Widget").get("one").await.unwrap();
    let failed = condition(&serde_json::to_value(&cr).unwrap(), "ReleaseFailed").cloned();
    assert!(
        failed.is_some_and(|c| c["reason"] == "UpgradeError" || c["status"] == "False"),
        "{cr:?}"
    );
    world.data("one-map", json!({"value": "good"})).await;

    world.annotate("one", "reset-at", json!("1")).await;
    world
        .until("Widget", "one", "another attempt", |cr| {
            cr["status"]["handled"]["resetAt"] == "1"
                && cr["status"]["history"][0]["revision"] == 5
                && cr["status"]["history"][0]["status"] == "deployed"
        })
        .await;
    world.widget("one", json!({"value": "better"})).await;
    world.data("one-map", json!({"value": "better"})).await;
    world.ready("Widget", "one").await;
}

#[tokio::test]
async fn failed_install_is_retried_in_place_and_recovers_when_the_obstacle_is_removed() {
    let world = or_skip!(World::of("never", "", &[("map.yaml", MAP)]).await);
    world.widget("one", json!({"bad": true})).await;
    let several = |cr: &Value| {
        // The attempts are counted in the record.
        says(cr, "Irreconcilable", "the next attempt is at") && condition(cr, "Stalled").is_none()
    };
    world
        .until("Widget", "one", "the next attempt", several)
        .await;
    let attempts = async || {
        let secrets = world.api("Secret");
        let record = secrets.get("sh.helm.release.v1.one.v1").await.unwrap();
        let labels = record.metadata.labels.unwrap_or_default();
        labels
            .get("helm.sdk.operatorframework.io/failures")
            .is_some_and(|failures| failures == "1-3")
    };
    eventually("a third attempt", attempts).await;
    assert_eq!(world.history("one").await, ["failed"]);
    world.remove("Widget", "one").await;

    // A foreign object has the name and is then deleted.
    let maps = world.api("ConfigMap");
    apply(&maps, "two-map", &json!({"data": {"mine": "yes"}})).await;
    world.widget("two", json!({"value": "v"})).await;
    world.is("two", "Irreconcilable").await;
    delete(&maps, "two-map").await;
    world.ready("Widget", "two").await;
    assert_eq!(world.history("two").await, ["deployed"]);
}

#[tokio::test]
async fn failing_template_is_reported_with_its_line() {
    let template = "a: 1\nb: {{ required \"give .Values.b\" .Values.b }}\n";
    let world = or_skip!(World::of("render", "", &[("map.yaml", template)]).await);
    world.widget("one", json!({})).await;
    let failed = world.is("one", "ReleaseFailed").await;
    assert_eq!(failed["reason"], "InstallError");
    let text = failed["message"].as_str().unwrap();
    assert_contains!(text, "chart/templates/map.yaml:2", "give .Values.b");
    let reported = world.is("one", "Irreconcilable").await;
    assert_eq!(reported["reason"], "ReconcileError");
}

#[tokio::test]
async fn random_values_are_generated_once() {
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-map}\ndata: {password: {{ randAlphaNum 20 }}}\n";
    let project = Project::new("reconcilePeriod: 200ms", &[("map.yaml", template)]);
    let mut world = or_skip!(project.start("random").await);
    world.deploy("one", json!({})).await;
    let maps = world.api("ConfigMap");
    let password = maps.get("one-map").await.unwrap().data["data"].clone();
    delete(&maps, "one-map").await;
    world.data("one-map", password.clone()).await;
    world.operator.sigkill().unwrap();
    world.operator.exited(crate::world::LIMIT).await.unwrap();
    delete(&maps, "one-map").await;
    world.operator.restart().await.unwrap();
    world.data("one-map", password).await;
    assert_eq!(world.history("one").await, ["deployed"]);
}

#[tokio::test]
async fn chart_tests_run_and_set_a_condition() {
    let test = hook("check", "test", 0, "", "");
    let templates = [("check.yaml", test.as_str()), ("map.yaml", MAP)];
    let world = or_skip!(World::of("tests", "test: {}", &templates).await);
    world.widget("one", json!({})).await;
    world.is("one", "TestSuccess").await;
    world.there("Job", "one-check").await;
}

#[tokio::test]
async fn rejected_test_hook_fails_the_test_and_the_release_stays_deployed() {
    // A Job that was not created is not deleted, either.
    let invalid = |name: &str, policy: &str| {
        hook(name, "test", 0, policy, "").replace("restartPolicy: Never", "restartPolicy: Always")
    };
    for policy in ["", ", helm.sh/hook-delete-policy: hook-failed"] {
        let test = invalid("check", policy);
        let templates = [("check.yaml", test.as_str()), ("map.yaml", MAP)];
        let world = or_skip!(World::of("refused", "test: {}", &templates).await);
        world.widget("one", json!({})).await;
        let failed = |cr: &Value| {
            condition(cr, "TestSuccess").is_some_and(|tests| {
                let message = tests["message"].as_str().unwrap();
                tests["status"] == "False"
                    && message.contains("one-check")
                    && message.contains("restartPolicy")
            })
        };
        let cr = world.until("Widget", "one", "TestSuccess", failed).await;
        for (type_, status) in [
            ("Deployed", "True"),
            ("Ready", "True"),
            ("Irreconcilable", "False"),
            ("ReleaseFailed", "False"),
        ] {
            assert_eq!(condition(&cr, type_).unwrap()["status"], status, "{type_}");
        }
        assert_eq!(world.history("one").await, ["deployed"]);
    }
}

#[tokio::test]
async fn changed_job_is_recreated_and_changed_selector_is_reported() {
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: {{ .Release.Name }}-job}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: {{ .Values.image }}}]}}}\n";
    let service = "{{ if .Values.label }}\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: {{ .Release.Name }}-web}\nspec: {selector: {matchLabels: {a: {{ .Values.label }}}}, template: {metadata: {labels: {a: {{ .Values.label }}}}, spec: {containers: [{name: main, image: i}]}}}\n{{ end }}\n";
    let project = Project::new("", &[("job.yaml", job), ("web.yaml", service)]);
    let world = or_skip!(project.start("immutable").await);
    world
        .deploy("one", json!({"image": "a", "label": "x"}))
        .await;
    world
        .widget("one", json!({"image": "b", "label": "x"}))
        .await;
    world
        .until("Job", "one-job", "image b", |job| {
            job.pointer("/spec/template/spec/containers/0/image") == Some(&json!("b"))
        })
        .await;
    world.ready("Widget", "one").await;
    world
        .widget("one", json!({"image": "b", "label": "y"}))
        .await;
    let message = world.message("one", "ReleaseFailed").await;
    assert_contains!(message, "spec.selector", "one-web");
}

#[tokio::test]
async fn objects_with_generate_name_are_created_once_per_revision() {
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: {{ .Release.Name }}-run-, labels: {run: {{ .Release.Name }}}}\ndata: {value: {{ .Values.value | quote }}}\n";
    let project = Project::new("", &[("map.yaml", template), ("twin.yaml", template)]);
    let world = or_skip!(project.start("generate").await);
    let count = async || {
        let labels = ListParams::default().labels("run=one");
        let maps = world.api("ConfigMap").list(&labels).await;
        maps.unwrap().items.len()
    };
    world.deploy("one", json!({"value": "1"})).await;
    assert_eq!(count().await, 2);
    world.widget("one", json!({"value": "2"})).await;
    world.revision("one", 2).await;
    assert_eq!(count().await, 2);
    world.remove("Widget", "one").await;
    assert_eq!(count().await, 0);
}

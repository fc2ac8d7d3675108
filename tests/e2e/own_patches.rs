//! Patches that a custom resource holds itself (`patchesFrom`).

use std::process::Command;

use kube::api::PostParams;
use serde_json::{Value, json};

use crate::transcript::{is_current, programs};
use crate::world::{
    Project, World, api, api_of, condition, create, define, holds, new_namespace, output, until,
};

const GROUP: &str = "patches.example.com";

const TWO: &str = "\
{{- range list `a` `b` }}
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ $.Release.Name }}-{{ . }}, labels: {part: {{ . }}}}
spec:
  selector: {matchLabels: {app: {{ $.Release.Name }}-{{ . }}}}
  template:
    metadata: {labels: {app: {{ $.Release.Name }}-{{ . }}}}
    spec: {containers: [{name: main, image: example.com/main}]}
---
{{- end }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-values}
data: {values: {{ .Values | toJson | quote }}}
";

const OPTIONS: &str = "
  patches: [{
    target: {kind: Deployment},
    patch: {spec: {template: {spec: {tolerations: [{key: base, operator: Exists}]}}}}
  }],
  patchesFrom: {path: spec.own.patches, allow: [Deployment.spec.template.spec.tolerations]}";

/// Returns the spec with a patch that tolerates a taint.
fn tolerating(key: &str) -> Value {
    let toleration = json!({"key": key, "operator": "Exists"});
    with_patch(
        json!({"kind": "Deployment", "labels": {"matchLabels": {"part": "a"}}}),
        json!([{"op": "add", "path": "/spec/template/spec/tolerations/-", "value": toleration}]),
    )
}

#[expect(clippy::needless_pass_by_value, reason = "literals read better")]
fn with_patch(target: Value, patch: Value) -> Value {
    json!({"text": "x", "own": {"patches": [{"target": target, "patch": patch}]}})
}

/// Returns the keys of the taints that a Deployment tolerates.
fn tolerated(deployment: &Value) -> Vec<&str> {
    let tolerations = deployment["spec"]["template"]["spec"]["tolerations"].as_array();
    let keys = tolerations.into_iter().flatten();
    keys.filter_map(|one| one["key"].as_str()).collect()
}

async fn deployment(world: &World, name: &str) -> Value {
    serde_json::to_value(world.get("Deployment", name).await).unwrap()
}

#[tokio::test]
async fn patches_of_a_custom_resource_change_what_the_entry_allows() {
    let project = Project::new(OPTIONS, &[("all.yaml", TWO)]);
    let world = or_skip!(project.start("own-patches").await);
    let cr = world.deploy("one", tolerating("gpu")).await;
    // After those of the entry, and only where the target is.
    let patched = deployment(&world, "one-a").await;
    assert_eq!(tolerated(&patched), ["base", "gpu"]);
    let other = deployment(&world, "one-b").await;
    assert_eq!(tolerated(&other), ["base"]);
    let values = world.get("ConfigMap", "one-values").await;
    assert_eq!(values.data["data"]["values"], r#"{"text":"x"}"#);
    let manifest = cr.data["status"]["deployedRelease"]["manifest"]
        .as_str()
        .unwrap();
    assert_contains!(manifest, "key: gpu");

    // The command computes the same.
    let file = json!({"apiVersion": "test.example.com/v1", "kind": "Widget",
        "metadata": {"name": "one", "namespace": world.namespace.name()}, "spec": tolerating("gpu")});
    project.write("one.json", &file.to_string());
    is_current("hybrid-operator").unwrap();
    let template = output(
        Command::new(programs().join("hybrid-operator"))
            .args(["template", "--cr"])
            .arg(project.watches_file().with_file_name("one.json"))
            .arg("--watches-file")
            .arg(project.watches_file()),
    );
    assert_eq!(template.trim(), manifest.trim());

    // They are inputs of the release.
    world.widget("one", tolerating("spot")).await;
    world.revision("one", 2).await;
    let patched = deployment(&world, "one-a").await;
    assert_eq!(tolerated(&patched), ["base", "spot"]);
    world.widget("one", json!({"text": "x"})).await;
    world.revision("one", 3).await;
    let patched = deployment(&world, "one-a").await;
    assert_eq!(tolerated(&patched), ["base"]);
}

#[tokio::test]
async fn refused_patch_of_a_custom_resource_is_reported_and_changes_nothing() {
    let project = Project::new(OPTIONS, &[("all.yaml", TWO)]);
    let world = or_skip!(project.start("refused-patches").await);
    world.deploy("one", tolerating("gpu")).await;
    let before = deployment(&world, "one-a").await;
    let deployments = json!({"kind": "Deployment"});
    let tolerations = json!({"spec": {"template": {"spec": {"tolerations": []}}}});
    let allowed = "allowed are only Deployment.spec.template.spec.tolerations";
    for (spec, expected) in [
        (
            with_patch(json!({"name": "one-a"}), json!({"spec": {"replicas": 3}})),
            format!(
                "spec.own.patches[0] changes Deployment.spec.replicas of Deployment.apps one-a; {allowed}"
            ),
        ),
        (
            with_patch(json!({"kind": "ConfigMap"}), json!({"data": {"a": "b"}})),
            format!("spec.own.patches[0] changes ConfigMap.data.a of ConfigMap one-values; {allowed}"),
        ),
        (
            with_patch(json!({"name": "none"}), tolerations.clone()),
            "spec.own.patches[0] matches no object of the release; a patch must match exactly one"
                .to_owned(),
        ),
        (
            with_patch(deployments, tolerations),
            "spec.own.patches[0] matches 2 objects (Deployment.apps one-a, Deployment.apps one-b); \
             a patch must match exactly one, so narrow its target"
                .to_owned(),
        ),
        (
            with_patch(json!("text"), json!({})),
            "spec.own.patches[0].target: expected a map, found a string".to_owned(),
        ),
    ] {
        world.widget("one", spec).await;
        let says = |cr: &Value| {
            let refused = condition(cr, "Irreconcilable");
            refused.is_some_and(|refused| {
                refused["reason"] == "PatchesRefused" && refused["message"] == expected
            })
        };
        world.until("Widget", "one", &expected, says).await;
        let now = deployment(&world, "one-a").await;
        assert_eq!(now["metadata"]["generation"], before["metadata"]["generation"]);
        assert_eq!(world.history("one").await, ["deployed"]);
    }
    // Another custom resource is not affected, nor is this one any longer.
    world.deploy("two", tolerating("gpu")).await;
    world.widget("one", tolerating("spot")).await;
    world.revision("one", 2).await;
}

#[tokio::test]
async fn definition_of_a_kind_with_a_spec_of_its_own_has_its_patches() {
    let (plane, namespace) = or_skip!(new_namespace("defined-patches").await);
    let project = Project::new("", &[("all.yaml", TWO)]);
    let fields = "api: {fields: {text: string | optional, own: {size: integer | optional}}},";
    project.watch(GROUP, "Store", &format!("{fields}{OPTIONS}"));
    let crds = project.watches_file().with_file_name("crds");
    is_current("hybrid-operator").unwrap();
    output(
        Command::new(programs().join("hybrid-operator"))
            .args(["generate", "crds", "--watches-file"])
            .arg(project.watches_file())
            .arg("--output-dir")
            .arg(&crds)
            // In the project of this workspace, it would build the program, too.
            .current_dir(project.watches_file().parent().unwrap()),
    );
    let definition = std::fs::read_to_string(crds.join(format!("{GROUP}_stores.yaml"))).unwrap();
    define(plane, &definition).await;
    let operator = project.run(plane, &namespace).await;
    let stores = api_of(&namespace, GROUP, "Store");
    let store = |spec: Value| {
        json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Store",
            "metadata": {"name": "one"}, "spec": spec})
    };
    let wrong = json!({"own": {"patches": [{"target": {"kind": "Deployment"}}]}});
    let wrong = serde_json::from_value(store(wrong)).unwrap();
    let refused = stores.create(&PostParams::default(), &wrong).await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("spec.own.patches[0].patch: Required value"),
        "{refused}"
    );

    create(&stores, store(tolerating("gpu"))).await;
    until(&stores, "one", "Ready", holds("Ready")).await;
    let deployments = api(&namespace, "Deployment");
    let patched = serde_json::to_value(deployments.get("one-a").await.unwrap()).unwrap();
    assert_eq!(tolerated(&patched), ["base", "gpu"], "{}", operator.log());
}

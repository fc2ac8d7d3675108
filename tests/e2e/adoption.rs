//! Adoption of releases made by Helm's command line and by Go operators.

use std::path::Path;

use kube::api::{DeleteParams, ResourceExt};
use serde_json::{Value, json};

use crate::helm_cli::helm;
use crate::world::{Project, World, delete, merge, revision_of};

const WEB: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}-web, annotations: {{ .Values.notes | default dict | toJson }}}
spec:
  replicas: {{ .Values.replicas | default 1 }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec: {containers: [{name: main, image: image}]}
";

/// Installs the project's chart with the helm command.
pub(crate) fn install(world: &World, project: &Project, program: &Path, flags: &[&str]) {
    let chart = project.watches_file().with_file_name("chart");
    let args = ["install", "one", chart.to_str().unwrap()];
    world.helm(program, &[&args[..], flags].concat());
}

/// Returns the Deployment's uid and generation, which show whether it was changed.
async fn web(world: &World) -> (Option<String>, Option<i64>) {
    let web = world.api("Deployment").get("one-web").await.unwrap();
    (web.uid(), web.metadata.generation)
}

#[tokio::test]
async fn helm_4_release_is_adopted_on_request_without_touching_its_pods() {
    check_adoption_of_helm_release("--server-side=true").await;
}

/// Helm 3 writes its objects as Helm 4 does without server-side apply.
#[tokio::test]
async fn helm_3_release_is_adopted_on_request_without_touching_its_pods() {
    check_adoption_of_helm_release("--server-side=false").await;
}

async fn check_adoption_of_helm_release(how: &str) {
    let Some(program) = helm() else { return };
    let project = Project::new("", &[("web.yaml", WEB)]);
    let world = or_skip!(project.start("adopt").await);
    let flags = ["--set", "replicas=2,notes.old=x", how];
    install(&world, &project, &program, &flags);
    let before = web(&world).await;
    let spec = json!({"replicas": 2, "notes": {"old": "x"}});
    world.widget("one", spec).await;
    let message = world.message("one", "Irreconcilable").await;
    assert_contains!(message, "adopt-release");
    assert_eq!(world.history("one").await, ["deployed"]);

    world.annotate("one", "adopt-release", json!("true")).await;
    let cr = world.ready("Widget", "one").await;
    assert_eq!(revision_of(&cr), 1, "no new revision");
    assert_eq!(web(&world).await, before);
    let secret = "sh.helm.release.v1.one.v1";
    let record = world.api("Secret").get(secret).await.unwrap();
    let label = "helm.sdk.operatorframework.io/cr";
    assert!(record.labels().contains_key(label));
    // After the adoption, objects that the chart no longer has are pruned.
    let spec = json!({"replicas": 3, "notes": {"new": "y"}});
    world.widget("one", spec).await;
    world
        .until("Deployment", "one-web", "other replicas and notes", |web| {
            let notes = web.pointer("/metadata/annotations").unwrap();
            web.pointer("/spec/replicas") == Some(&json!(3))
                && notes.get("old").is_none()
                && notes["new"] == "y"
        })
        .await;
}

#[tokio::test]
async fn go_operator_release_is_adopted_by_its_owner_reference() {
    let Some(program) = helm() else { return };
    let project = Project::new("", &[("web.yaml", WEB)]);
    let world = or_skip!(project.start("legacy").await);
    install(&world, &project, &program, &["--set", "replicas=1"]);
    let before = web(&world).await;
    // Go operators leave it in this state; paused while it is set up here.
    let paused = json!({"metadata": {
        "annotations": {"helm.sdk.operatorframework.io/paused": "true"},
        "finalizers": ["uninstall-helm-release"]}, "spec": {"replicas": 1}});
    crate::world::apply(&world.api("Widget"), "one", &paused).await;
    let uid = world.api("Widget").get("one").await.unwrap().uid().unwrap();
    let owner = json!([{"apiVersion": "test.example.com/v1", "kind": "Widget", "name": "one",
        "uid": uid, "controller": true, "blockOwnerDeletion": true}]);
    let secret = "sh.helm.release.v1.one.v1";
    let patch = json!({"metadata": {"ownerReferences": owner}});
    merge(&world.api("Secret"), secret, &patch).await;
    world.annotate("one", "paused", Value::Null).await;

    let cr = world.ready("Widget", "one").await;
    assert_eq!(revision_of(&cr), 1, "no new revision");
    assert_eq!(web(&world).await, before);
    let record = world.api("Secret").get(secret).await.unwrap();
    assert!(
        record.owner_references().is_empty(),
        "garbage collection must not delete it"
    );
    world.remove("Widget", "one").await;
    world.gone("Deployment", "one-web").await;
}

#[tokio::test]
async fn adopted_object_without_helm_metadata_is_upgraded() {
    let Some(program) = helm() else { return };
    let project = Project::new("", &[("web.yaml", WEB)]);
    let world = or_skip!(project.start("bare").await);
    install(&world, &project, &program, &["--set", "replicas=1"]);
    // Releases of early versions of Helm and of Go operators have no metadata of Helm on their objects,
    // only an owner reference.
    let paused = json!({"metadata": {
        "annotations": {"helm.sdk.operatorframework.io/paused": "true"}}, "spec": {"replicas": 2}});
    crate::world::apply(&world.api("Widget"), "one", &paused).await;
    let uid = world.api("Widget").get("one").await.unwrap().uid().unwrap();
    let owner = json!([{"apiVersion": "test.example.com/v1", "kind": "Widget", "name": "one",
        "uid": uid, "controller": true, "blockOwnerDeletion": true}]);
    let bare = json!({"metadata": {"labels": null, "annotations": null, "ownerReferences": owner}});
    merge(&world.api("Deployment"), "one-web", &bare).await;
    let (before, _) = web(&world).await;
    world.annotate("one", "adopt-release", json!("true")).await;
    world.annotate("one", "paused", Value::Null).await;

    let cr = world.ready("Widget", "one").await;
    assert_eq!(cr.data["status"]["release"]["revision"], 2);
    let after = world.api("Deployment").get("one-web").await.unwrap();
    assert_eq!(after.data["spec"]["replicas"], 2);
    assert_eq!(web(&world).await.0, before);
}

/// Stores a Helm record as helm-operator-plugins does: an index and chunks.
async fn chunk(world: &World, secret: &str) {
    let secrets = world.api("Secret");
    let record = secrets.get(secret).await.unwrap();
    // Secret data base64-encodes Helm's payload, which is base64 itself; chunks hold it decoded.
    let decode = |text: &str| data_encoding::BASE64.decode(text.as_bytes()).unwrap();
    let payload = decode(record.data["data"]["release"].as_str().unwrap());
    let packed = decode(std::str::from_utf8(&payload).unwrap());
    let (first, second) = packed.split_at(packed.len() / 2);
    let encode = |bytes: &[u8]| json!(data_encoding::BASE64.encode(bytes));
    let mut labels = json!(record.labels());
    labels["owner"] = json!("helm-operator");
    labels["type"] = json!("index");
    let index = json!({
        "type": "operatorframework.io/index.v1",
        "metadata": {"labels": labels},
        "data": {"chunk": encode(first), "extraChunks": encode(br#"["one-extra"]"#)},
    });
    delete(&secrets, secret).await;
    crate::world::apply(&secrets, secret, &index).await;
    let extra = json!({"type": "operatorframework.io/chunk.v1", "data": {"chunk": encode(second)}});
    crate::world::apply(&secrets, "one-extra", &extra).await;
}

#[tokio::test]
async fn chunked_go_operator_release_is_adopted() {
    let Some(program) = helm() else { return };
    let project = Project::new("", &[("web.yaml", WEB)]);
    let world = or_skip!(project.start("chunks").await);
    for name in ["upgraded", "removed"] {
        install(&world, &project, &program, &["--set", "replicas=1"]);
        let before = web(&world).await;
        chunk(&world, "sh.helm.release.v1.one.v1").await;
        let custom = json!({
            "metadata": {"finalizers": ["uninstall-helm-release"],
                "annotations": {"helm.sdk.operatorframework.io/paused": (name == "removed").to_string()}},
            "spec": {"replicas": 1},
        });
        crate::world::apply(&world.api("Widget"), "one", &custom).await;
        if name == "upgraded" {
            world.ready("Widget", "one").await;
            assert_eq!(web(&world).await, before);
            assert_eq!(world.history("one").await, ["deployed"]);
        }
        world.remove("Widget", "one").await;
        world.gone("Deployment", "one-web").await;
        assert!(world.history("one").await.is_empty());
        for left in ["sh.helm.release.v1.one.v1", "one-extra"] {
            let secrets = world.api("Secret");
            drop(secrets.delete(left, &DeleteParams::default()).await);
        }
    }
}

//! Releases that stay when their custom resources are deleted, and protected ones.

use std::process::Command;

use hybrid_operator_test::TestNamespace;
use hybrid_operator_test::fault::Faults;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, DynamicObject};
use serde_json::{Value, json};

use crate::transcript::{is_current, programs};
use crate::world::{
    InProcessOperator, MAP, Project, World, api, api_of, apply, cluster_api, create_empty,
    define_kind, deploy, events, eventually, gone, has_event, history, merge, new_namespace,
    output, records, remove, says, undefine, until,
};

/// Objects of the chart, among them one that a hook creates and that stays.
const OBJECTS: &[(&str, &str)] = &[
    ("map.yaml", MAP),
    (
        "hook.yaml",
        "\
apiVersion: v1
kind: Secret
metadata:
  name: {{ .Release.Name }}-once
  annotations: {helm.sh/hook: pre-install}
stringData: {password: {{ randAlphaNum 8 }}}
",
    ),
];

const NAMES: [(&str, &str); 2] = [("ConfigMap", "one-map"), ("Secret", "one-once")];

/// Returns the metadata of the objects, none of which is being deleted.
async fn present(namespace: &TestNamespace) -> Vec<ObjectMeta> {
    let mut present = Vec::new();
    for (kind, name) in NAMES {
        let metadata = api(namespace, kind).get(name).await.unwrap().metadata;
        assert_eq!(metadata.deletion_timestamp, None, "{kind} {name}");
        present.push(metadata);
    }
    present
}

/// Returns the uids of the objects, none of which has an owner.
async fn left(namespace: &TestNamespace) -> Vec<Option<String>> {
    let present = present(namespace).await.into_iter();
    present
        .map(|metadata| {
            assert_eq!(metadata.owner_references, None, "{:?}", metadata.name);
            metadata.uid
        })
        .collect()
}

async fn delete_in_foreground(widgets: &Api<DynamicObject>) {
    let deleted = widgets.delete("one", &DeleteParams::foreground()).await;
    drop(deleted.unwrap());
}

fn is_unowned(object: &Value) -> bool {
    object["metadata"]["ownerReferences"].is_null()
}

#[tokio::test]
async fn a_release_outlives_its_custom_resource_and_another_one_takes_it_over() {
    for (prefix, options) in [("orphan", "deletionPolicy: Orphan"), ("orphaned", "")] {
        let world = or_skip!(World::of(prefix, options, OBJECTS).await);
        world.deploy("one", json!({"value": "first"})).await;
        if options.is_empty() {
            world
                .annotate("one", "deletion-policy", json!("Orphan"))
                .await;
        }
        for (kind, name) in NAMES {
            world.until(kind, name, "without owner", is_unowned).await;
        }
        let before = left(&world.namespace).await;
        delete_in_foreground(&world.api("Widget")).await;
        world.gone("Widget", "one").await;
        assert!(has_event(&world.namespace, "ReleaseOrphaned").await);
        world.has_history("one", &["deployed"]).await;
        // Another custom resource of the name takes the release over as it is.
        world.deploy("one", json!({"value": "first"})).await;
        world.has_history("one", &["deployed"]).await;
        let now = present(&world.namespace).await.into_iter();
        let now: Vec<Option<String>> = now.map(|metadata| metadata.uid).collect();
        assert_eq!(now, before);
        world.deploy("one", json!({"value": "second"})).await;
        world.data("one-map", json!({"value": "second"})).await;
        world.has_history("one", &["superseded", "deployed"]).await;
        // And deletes it, if it has no such policy.
        world
            .annotate("one", "deletion-policy", json!("Delete"))
            .await;
        world.remove("Widget", "one").await;
        for (kind, name) in NAMES {
            world.gone(kind, name).await;
        }
        assert!(records(&world.namespace, "one").await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_left_also_if_the_policy_comes_with_the_deletion() {
    let (plane, namespace) = or_skip!(new_namespace("left").await);
    let project = Project::new("", OBJECTS);
    let operator = InProcessOperator::faulty(&project, plane, &namespace, &Faults::new()).await;
    let widgets = api(&namespace, "Widget");
    deploy(&widgets, "one", json!({"value": "first"})).await;
    drop(operator);
    drop(widgets.delete("one", &DeleteParams::default()).await);
    project.watch(
        "test.example.com",
        "Widget",
        "deletionPolicy: Orphan, driftDetection: {mode: warn}",
    );
    let _operator = InProcessOperator::faulty(&project, plane, &namespace, &Faults::new()).await;
    gone(&widgets, "one").await;
    left(&namespace).await;
    assert_eq!(history(&namespace, "one").await, ["deployed"]);
    let notes = events(&namespace).await;
    let told = notes
        .iter()
        .filter(|event| event.data["reason"] == "ReleaseOrphaned");
    assert_eq!(told.count(), 1);
}

#[tokio::test]
async fn a_protected_custom_resource_keeps_its_release() {
    let options = "protect: true, reconcilePeriod: 1s";
    let world = or_skip!(World::of("protected", options, OBJECTS).await);
    for end in ["annotation", "namespace"] {
        world.deploy("one", json!({})).await;
        for (kind, name) in NAMES {
            world.until(kind, name, "without owner", is_unowned).await;
        }
        delete_in_foreground(&world.api("Widget")).await;
        let held = |cr: &Value| {
            says(cr, "Irreconcilable", "the deletion waits")
                && says(cr, "Irreconcilable", "protect=false")
        };
        world.until("Widget", "one", "held", held).await;
        left(&world.namespace).await;
        if end == "annotation" {
            world.annotate("one", "protect", json!("false")).await;
        } else {
            let namespaces: Api<Namespace> = Api::all(world.namespace.client());
            let name = world.namespace.name();
            drop(namespaces.delete(name, &DeleteParams::default()).await);
        }
        world.gone("Widget", "one").await;
        for (kind, name) in NAMES {
            world.gone(kind, name).await;
        }
    }
}

const GROUP: &str = "protected.example.com";

/// Returns why the API server refuses to delete an object; `None` if it does not. Deletes nothing.
async fn refusal(api: &Api<DynamicObject>, name: &str) -> Option<String> {
    let dry_run = DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    };
    let answer = api.delete(name, &dry_run).await;
    answer.err().map(|error| error.to_string())
}

#[tokio::test]
async fn the_api_server_refuses_to_delete_what_the_generated_policy_protects() {
    let (plane, namespace) = or_skip!(new_namespace("policies").await);
    let project = Project::new("", OBJECTS);
    let kinds = [("Vault", true), ("Cache", false)];
    let entry = |(kind, protect)| {
        format!(
            "- {{group: {GROUP}, version: v1, kind: {kind}, chart: chart, protect: {protect}}}\n"
        )
    };
    project.write("watches.yaml", &kinds.map(entry).concat());
    let directory = project.watches_file().with_file_name("policies");
    is_current("hybrid-operator").unwrap();
    let generate = || {
        let mut command = Command::new(programs().join("hybrid-operator"));
        command.args(["generate", "protection", "--watches-file"]);
        command.arg(project.watches_file());
        command.arg("--output-dir").arg(&directory);
        output(command.current_dir(directory.parent().unwrap()))
    };
    assert_contains!(generate(), "created", "vaults.yaml", "caches.yaml");
    assert_eq!(generate(), "");
    for (kind, protect) in kinds {
        define_kind(plane, GROUP, kind).await;
        let objects = api_of(&namespace, GROUP, kind);
        create_empty(&objects, GROUP, kind, "one").await;
        let plural = format!("{}s", kind.to_lowercase());
        let text = std::fs::read(directory.join(format!("{GROUP}_{plural}.yaml"))).unwrap();
        let documents: Vec<Value> = go_yaml::documents(&text).unwrap();
        let mut names = Vec::new();
        for document in &documents {
            let kind = document["kind"].as_str().unwrap();
            let name = document["metadata"]["name"].as_str().unwrap();
            apply(&cluster_api(&namespace, kind), name, document).await;
            names.push((kind, name));
        }
        let (policy_kind, policy) = names[0];
        let policies = cluster_api(&namespace, policy_kind);
        let is_checked = |policy: &Value| !policy["status"]["observedGeneration"].is_null();
        let checked = until(&policies, policy, "checked", is_checked).await;
        let warnings = &checked["status"]["typeChecking"]["expressionWarnings"];
        assert!(warnings.is_null(), "{warnings}");
        let annotate = async |value: Value| {
            let annotations = json!({"helm.sdk.operatorframework.io/protect": value});
            merge(
                &objects,
                "one",
                &json!({"metadata": {"annotations": annotations}}),
            )
            .await;
        };
        for (value, is_protected) in [
            (json!("true"), true),
            (json!("false"), false),
            (json!("maybe"), protect),
            (Value::Null, protect),
        ] {
            annotate(value.clone()).await;
            let same = async || refusal(&objects, "one").await.is_some() == is_protected;
            eventually(format!("{kind} {value}"), same).await;
        }
        let definitions = cluster_api(&namespace, "CustomResourceDefinition");
        let definition = format!("{plural}.{GROUP}");
        if protect {
            let told = refusal(&objects, "one").await.unwrap();
            let way = format!(
                "Vault one is protected; to delete it: kubectl annotate vaults.{GROUP} one --namespace {} --overwrite helm.sdk.operatorframework.io/protect=false",
                namespace.name()
            );
            assert_contains!(told, &*way);
            let told = refusal(&definitions, &definition).await.unwrap();
            let way = format!(
                "{definition} is protected; to delete it: kubectl annotate customresourcedefinitions.apiextensions.k8s.io {definition} --overwrite"
            );
            assert_contains!(told, &*way);
            // The namespace takes the object with it.
            let namespaces: Api<Namespace> = Api::all(namespace.client());
            let other = TestNamespace::create(plane, "ending").await.unwrap();
            let inside = api_of(&other, GROUP, kind);
            create_empty(&inside, GROUP, kind, "one").await;
            assert!(refusal(&inside, "one").await.is_some());
            drop(
                namespaces
                    .delete(other.name(), &DeleteParams::default())
                    .await,
            );
            gone(&inside, "one").await;
        }
        annotate(json!("false")).await;
        for (kind, name) in names {
            remove(&cluster_api(&namespace, kind), name).await;
        }
        let unprotected = async || refusal(&definitions, &definition).await.is_none();
        eventually("without the policy", unprotected).await;
        undefine(&namespace, &definition).await;
    }
}

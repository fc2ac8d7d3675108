//! Content of the status of a custom resource, and where the operator remembers what it lacks.

use hybrid_operator_test::wait;
use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};

use crate::world::{
    LIMIT, Project, World, api_of, condition, create_empty, define, definition_of, eventually,
    history, holds, merge, new_namespace, set_ready, until,
};

const GROUP: &str = "pruned.example.com";

/// A status of which the API server keeps the conditions only.
const CONDITIONS: &str = "{type: object, properties: {\
    spec: {type: object, x-kubernetes-preserve-unknown-fields: true},\
    status: {type: object, properties: {conditions: {type: array, items: {\
        type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}";

const MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map, labels: {bad: {{ .Values.label | default `good` | quote }}}}
data: {value: {{ .Values.value | default `1` | quote }}}
";

async fn change(api: &Api<DynamicObject>, change: Value) {
    merge(api, "one", &change).await;
}

fn annotate(name: &str, value: &str) -> Value {
    let name = format!("helm.sdk.operatorframework.io/{name}");
    json!({"metadata": {"annotations": {name: value}}})
}

#[tokio::test]
async fn one_time_annotations_take_effect_once_where_the_schema_prunes_the_status() {
    let (plane, namespace) = or_skip!(new_namespace("pruned").await);
    let definition = definition_of(GROUP, "Cut", "Namespaced", CONDITIONS);
    define(plane, &definition).await;
    let project = Project::new("", &[("map.yaml", MAP)]);
    project.watch(GROUP, "Cut", "reconcilePeriod: 200ms");
    let mut operator = project.run(plane, &namespace).await;
    let resources = api_of(&namespace, GROUP, "Cut");
    create_empty(&resources, GROUP, "Cut", "one").await;
    let statuses = async |wanted: &[&str], operator: &str| {
        let found = async || match history(&namespace, "one").await {
            found if found == wanted => Ok(()),
            found => Err(format!("{found:?}")),
        };
        let found = wait::until(LIMIT, format!("the history {wanted:?}"), found).await;
        found.unwrap_or_else(|error| panic!("{error}\n{operator}"));
    };
    statuses(&["deployed"], &operator.log()).await;

    change(&resources, annotate("force-at", "now")).await;
    statuses(&["superseded", "deployed"], &operator.log()).await;
    operator.restart().await.unwrap();
    // Several reconciles and a restart later there is no further revision but for the change.
    let next = json!({"spec": {"value": "2"}});
    change(&resources, next).await;
    let all = ["superseded", "superseded", "deployed"];
    statuses(&all, &operator.log()).await;
    let planned = || operator.log().matches("planned").count();
    for n in 0..5 {
        let seen = planned();
        change(&resources, annotate("reconcile-at", &n.to_string())).await;
        let more = async || planned() > seen;
        eventually("another reconcile", more).await;
    }
    assert_eq!(history(&namespace, "one").await, all, "{}", operator.log());

    // It clears failures that are older than it, not those of later revisions.
    change(&resources, annotate("reset-at", "now")).await;
    change(&resources, json!({"spec": {"label": "not a label!"}})).await;
    until(&resources, "one", "Stalled", holds("Stalled")).await;
    let newest = history(&namespace, "one").await;
    assert_eq!(newest.len(), 5, "{newest:?}");
}

const GADGET: &str = "\
apiVersion: test.example.com/v1
kind: Gadget
metadata: {name: {{ .Release.Name }}-gadget}
spec: {value: {{ .Values.value | default 1 }}}
";

#[tokio::test]
async fn ready_follows_the_objects_even_if_their_changes_are_not_repaired_at_once() {
    // No resync would show it either.
    let options = "watchDependentResources: false, reconcilePeriod: 0s";
    let world = or_skip!(World::of("unwatched", options, &[("gadget.yaml", GADGET)]).await);
    world.deploy("one", json!({})).await;
    for status in ["False", "True"] {
        set_ready(&world.api("Gadget"), "one-gadget", status).await;
        let is = |cr: &Value| condition(cr, "Ready").is_some_and(|c| c["status"] == status);
        world.until("Widget", "one", "Ready", is).await;
    }
}

/// The second version of the chart cannot be deployed without a label.
const VERSIONED: &str = "\
{{- $default := eq .Chart.Version `0.1.0` | ternary `good` `not a label!` }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map, labels: {bad: {{ .Values.label | default $default | quote }}}}
data: {value: {{ .Values.value | quote }}}
";

const SECOND_CHART: &str = "apiVersion: v2\nname: chart\nversion: 0.2.0\nappVersion: '9'\n";

#[tokio::test]
async fn status_shows_chart_and_manifest_of_the_deployed_revision() {
    let project = Project::new("", &[("map.yaml", VERSIONED)]);
    let world = or_skip!(project.start("deployed").await);
    let cr = world.deploy("one", json!({"value": "first"})).await;
    assert_eq!(cr.data["status"]["release"]["chartVersion"], "chart-0.1.0");
    let manifest = cr.data["status"]["deployedRelease"]["manifest"].clone();
    assert!(manifest.as_str().unwrap().contains("first"), "{manifest}");

    project.write("chart/Chart.yaml", SECOND_CHART);
    let stalled = holds("Stalled");
    let cr = world.until("Widget", "one", "Stalled", stalled).await;
    let release = &cr["status"]["release"];
    assert_eq!(release["chartVersion"], "chart-0.1.0", "{release}");
    assert_eq!(release["appVersion"], Value::Null, "{release}");
    assert_eq!(cr["status"]["deployedRelease"]["manifest"], manifest);

    // A manifest that is too large for the status is left out, not replaced by an older one.
    let long = "x".repeat(40_000);
    let spec = json!({"value": long, "label": "good"});
    world.widget("one", spec).await;
    let is_new = |cr: &Value| cr["status"]["release"]["chartVersion"] == "chart-0.2.0";
    let cr = world.until("Widget", "one", "the new chart", is_new).await;
    assert_eq!(cr["status"]["release"]["appVersion"], "9");
    let deployed = |cr: &Value| cr["status"]["deployedRelease"] == json!({"name": "one"});
    world.until("Widget", "one", "no manifest", deployed).await;
}

const BROKEN: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
---
{{ .Values.second | default `apiVersion: v1
kind: Secret` }}
";

#[tokio::test]
async fn condition_names_template_document_and_line_of_a_bad_object() {
    let world = or_skip!(World::of("place", "", &[("objects.yaml", BROKEN)]).await);
    for (second, wanted) in [
        (
            Value::Null,
            ["document 2", "line 5", "Secret has no metadata.name"],
        ),
        (
            json!("a: 1\nb: c: d"),
            ["document 2", "line 6", "YAML parse error"],
        ),
    ] {
        world.widget("one", json!({"second": second})).await;
        let named = |cr: &Value| {
            let message = condition(cr, "Irreconcilable").map(|found| found["message"].to_string());
            let message = message.unwrap_or_default();
            let all = wanted.iter().all(|part| message.contains(part));
            all && message.contains("chart/templates/objects.yaml")
        };
        world.until("Widget", "one", "the place", named).await;
    }
    assert!(world.history("one").await.is_empty(), "nothing is applied");
}

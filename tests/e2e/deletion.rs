//! Deleted custom resources: nothing is installed for them, and nothing blocks their deletion,
//! whatever has become of their templates, chart or dependencies.

use hybrid_operator_test::TestNamespace;
use hybrid_operator_test::fault::{Fault, Faults};
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::adoption::install;
use crate::helm_cli::helm;
use crate::world::{
    InProcessOperator, Project, api, apply, control_plane, deploy, gone, grant, has_condition,
    injected, is_true, namespace_of, new_namespace, records, says, subject, until,
};

const MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
{{- if .Values.extra }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-extra}
data: {value: ours}
{{- end }}
";

/// Deletes the custom resource, and waits until it and its release are gone.
async fn uninstalled(namespace: &TestNamespace) {
    let widgets = api(namespace, "Widget");
    drop(widgets.delete("one", &DeleteParams::default()).await);
    gone(&widgets, "one").await;
    let maps = api(namespace, "ConfigMap");
    let maps = maps.list(&ListParams::default()).await.unwrap().items;
    let names = maps.into_iter().filter_map(|map| map.metadata.name);
    let left: Vec<String> = names.filter(|name| name != "kube-root-ca.crt").collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(records(namespace, "one").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resource_deleted_before_it_has_the_finalizer_is_not_installed() {
    let (plane, namespace) = or_skip!(new_namespace("vanishing").await);
    let project = Project::new("", &[("map.yaml", MAP)]);
    let faults = Faults::new();
    faults.at(1, Fault::Status(404), |request| {
        request.resource == "widgets"
            && request.name.as_deref() == Some("one")
            && request.is_write()
    });
    let _operator = InProcessOperator::faulty(&project, plane, &namespace, &faults).await;
    let widgets = api(&namespace, "Widget");
    apply(&widgets, "one", &json!({"spec": {}})).await;
    injected(&faults).await;
    drop(widgets.delete("one", &DeleteParams::default()).await);
    gone(&widgets, "one").await;
    deploy(&widgets, "two", json!({})).await;
    assert!(records(&namespace, "one").await.is_empty());
    let map = api(&namespace, "ConfigMap").get_opt("one-map").await;
    assert!(map.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_templates_do_not_block_deletion() {
    let plane = or_skip!(control_plane().await);
    for option in ["releaseName", "serviceAccountName"] {
        let options = format!("{option}: '{{{{ .Spec.deep.name }}}}'");
        let project = Project::new(&options, &[("map.yaml", MAP)]);
        for restart in [false, true] {
            let namespace = namespace_of(plane, "template").await;
            allow_accounts(&namespace).await;
            let faults = Faults::new();
            let mut operator =
                InProcessOperator::faulty(&project, plane, &namespace, &faults).await;
            let widgets = api(&namespace, "Widget");
            deploy(&widgets, "one", json!({"deep": {"name": "one"}})).await;
            apply(&widgets, "one", &json!({"spec": {"deep": "text"}})).await;
            let refused =
                |cr: &Value| is_true(cr, "Irreconcilable") && says(cr, "Irreconcilable", option);
            until(&widgets, "one", option, refused).await;
            if restart {
                drop(operator);
                operator = InProcessOperator::faulty(&project, plane, &namespace, &faults).await;
            }
            uninstalled(&namespace).await;
            drop(operator);
        }
    }
}

/// Lets the service accounts of a namespace change its `ConfigMap`s.
async fn allow_accounts(namespace: &TestNamespace) {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    let group = format!("system:serviceaccounts:{}", namespace.name());
    grant(namespace, "maps", subject("Group", &group), rules).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chart_that_no_longer_renders_does_not_block_deletion() {
    let (plane, namespace) = or_skip!(new_namespace("broken").await);
    let project = Project::new("", &[("map.yaml", MAP)]);
    let operator = InProcessOperator::faulty(&project, plane, &namespace, &Faults::new()).await;
    let widgets = api(&namespace, "Widget");
    deploy(&widgets, "one", json!({})).await;
    drop(operator);
    project.write("chart/templates/map.yaml", "{{ fail \"no\" }}");
    let _operator = InProcessOperator::faulty(&project, plane, &namespace, &Faults::new()).await;
    uninstalled(&namespace).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dependency_of_an_unserved_kind_does_not_block_deletion() {
    check_deletion_despite_a_dependency("Nothing").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_dependency_does_not_block_deletion() {
    check_deletion_despite_a_dependency("Gadget").await;
}

/// Deletes a custom resource that depends on one of this kind. Listing Gadgets is forbidden.
async fn check_deletion_despite_a_dependency(kind: &str) {
    let (plane, namespace) = or_skip!(new_namespace("dependency").await);
    let project = Project::new("", &[("map.yaml", MAP)]);
    let operator = InProcessOperator::faulty(&project, plane, &namespace, &Faults::new()).await;
    let widgets = api(&namespace, "Widget");
    deploy(&widgets, "one", json!({})).await;
    drop(operator);
    let group = "test.example.com";
    let base = format!("dependsOn: [{{apiVersion: {group}/v1, kind: {kind}, name: base}}]");
    project.watch(group, "Widget", &base);
    let faults = Faults::new();
    faults.inject_with(|r| (r.resource == "gadgets").then_some(Fault::Status(403)));
    let _operator = InProcessOperator::faulty(&project, plane, &namespace, &faults).await;
    // The spec change requires another revision, which has to wait.
    apply(&widgets, "one", &json!({"spec": {"extra": true}})).await;
    let waits = |cr: &Value| has_condition(cr, "Ready", "False", "");
    until(&widgets, "one", "waiting", waits).await;
    uninstalled(&namespace).await;
}

#[tokio::test]
async fn adopting_a_release_does_not_take_over_later_objects() {
    let Some(program) = helm() else { return };
    let project = Project::new("", &[("map.yaml", MAP)]);
    let world = or_skip!(project.start("licence").await);
    install(&world, &project, &program, &[]);
    world.widget("one", json!({})).await;
    world.annotate("one", "adopt-release", json!("true")).await;
    world.ready("Widget", "one").await;
    let theirs = json!({"data": {"value": "theirs"}});
    apply(&world.api("ConfigMap"), "one-extra", &theirs).await;
    world.widget("one", json!({"extra": true})).await;
    assert_contains!(world.message("one", "ReleaseFailed").await, "one-extra");
    world.data("one-extra", json!({"value": "theirs"})).await;
    world.remove("Widget", "one").await;
    world.data("one-extra", json!({"value": "theirs"})).await;
}

//! The operator runs with the permissions in `config/rbac` and reports those that it lacks.

use hybrid_operator_test::TestNamespace;
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::api_outage::SwitchableProxy;
use crate::world::{
    MAP, Project, World, api, apply, condition, delete, eventually, gone, is_true, merge,
    new_namespace, operator, resource, root, subject, until,
};

/// Returns the rules of a file in `config/rbac`.
fn rules(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(root().join("config/rbac").join(file)).unwrap();
    let role: Value = go_yaml::from_str(&text).unwrap();
    role["rules"].as_array().unwrap().clone()
}

/// Grants the rules to the operator's user in a namespace.
async fn grant(namespace: &TestNamespace, name: &str, rules: &[Value]) {
    crate::world::grant(namespace, name, subject("User", "operator"), json!(rules)).await;
}

#[tokio::test]
async fn operator_runs_with_its_manifest_roles_and_reports_missing_permissions() {
    let (plane, namespace) = or_skip!(new_namespace("rbac").await);
    let chart = rules("charts/memcached_role.yaml");
    let (apps, rest): (Vec<Value>, Vec<Value>) = chart
        .into_iter()
        .partition(|rule| rule["apiGroups"] == json!(["apps"]));
    grant(&namespace, "operator", &rules("operator_role.yaml")).await;
    grant(&namespace, "chart", &rest).await;
    let running = operator(plane, namespace.name(), &[])
        .env("POD_NAMESPACE", namespace.name())
        .kubeconfig(plane.operator_kubeconfig())
        .start()
        .await
        .unwrap();
    let memcacheds = api(&namespace, "Memcached");
    apply(&memcacheds, "cache", &json!({"spec": {"replicaCount": 1}})).await;
    let is = async |resources: &Api<DynamicObject>, type_: &str| {
        let holds = |cr: &Value| is_true(cr, type_);
        until(resources, "cache", type_, holds).await
    };
    let failed = is(&memcacheds, "ReleaseFailed").await;
    let message = condition(&failed, "ReleaseFailed").unwrap()["message"].to_string();
    assert_contains!(message, "patch", "deployments", "cache-memcached");
    grant(&namespace, "apps", &apps).await;
    is(&memcacheds, "Ready").await;
    let native = rules("native/memcachedbackup_role.yaml");
    grant(&namespace, "native", &native).await;
    let backups = api(&namespace, "MemcachedBackup");
    apply(&backups, "cache", &json!({"spec": {"size": 1}})).await;
    is(&backups, "Ready").await;
    delete(&memcacheds, "cache").await;
    gone(&memcacheds, "cache").await;
    // Only the permissions removed above were denied.
    let refused: Vec<String> = running
        .log()
        .lines()
        .filter(|line| line.contains("forbidden") || line.contains("no permission"))
        .filter(|line| !line.contains("deployments") && !line.contains("memcachedbackups"))
        .filter(|line| !line.contains("pods"))
        // A namespace's roles cannot grant access to cluster-scoped resources.
        .filter(|line| !line.contains("customresourcedefinitions"))
        .map(ToOwned::to_owned)
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// Grants what an operator of Widgets with a `ConfigMap` needs, but not to watch `ConfigMaps`.
async fn grant_all_but_the_watch(namespace: &TestNamespace) {
    grant(namespace, "operator", &rules("operator_role.yaml")).await;
    let widgets = &["widgets", "widgets/status", "widgets/finalizers"];
    let writes = &["get", "create", "patch", "delete"];
    let own = [
        rule("test.example.com", widgets, &["*"]),
        rule("", &["secrets"], &["*"]),
        rule("", &["configmaps"], writes),
    ];
    grant(namespace, "own", &own).await;
}

/// Grants the operator to watch `ConfigMaps`.
async fn grant_the_watch(namespace: &TestNamespace) {
    let watches = [rule("", &["configmaps"], &["list", "watch"])];
    grant(namespace, "watches", &watches).await;
}

#[tokio::test]
async fn revoked_watch_permission_is_named_in_a_condition_until_it_is_back() {
    let (plane, namespace) = or_skip!(new_namespace("taken").await);
    // Nothing but watches tells of a change.
    let project = Project::new("reconcilePeriod: 0s", &[("map.yaml", MAP)]);
    grant_all_but_the_watch(&namespace).await;
    grant_the_watch(&namespace).await;
    let dir = tempfile::tempdir().unwrap();
    let (proxy, kubeconfig) =
        SwitchableProxy::before(&plane.operator_kubeconfig(), dir.path()).await;
    proxy.set(true);
    let operator = project
        .operator(plane, namespace.name())
        .kubeconfig(&kubeconfig);
    let world = World::run(plane, operator, namespace).await;
    let repaired = async |name: &str| {
        let theirs = json!({"data": {"value": "theirs"}});
        merge(&world.api("ConfigMap"), name, &theirs).await;
        world.data(name, json!({"value": "1"})).await;
    };
    for name in ["one", "two"] {
        world.deploy(name, json!({"value": "1"})).await;
    }
    let widgets = world.api("Widget");
    let version = async || widgets.get("one").await.unwrap().metadata.resource_version;
    let before = version().await;
    // A watch that is only interrupted changes nothing.
    proxy.set(true);
    repaired("two-map").await;
    assert_eq!(version().await, before, "{}", world.operator.log());

    // The API server asks for the permission again when a watch is opened.
    world.remove("RoleBinding", "watches").await;
    let user = plane.client_as("operator").await.unwrap();
    let maps: Api<DynamicObject> =
        Api::namespaced_with(user, world.namespace.name(), &resource("ConfigMap"));
    let refused = async || maps.list(&ListParams::default()).await.is_err();
    eventually("no permission", refused).await;
    proxy.set(true);
    for name in ["one", "two"] {
        let message = world.message(name, "WatchRefused").await;
        assert_contains!(message, "ConfigMap", name, "watch configmaps");
    }
    // What was read is as it should be.
    world.ready("Widget", "one").await;

    grant_the_watch(&world.namespace).await;
    for name in ["one", "two"] {
        let watched = |cr: &Value| condition(cr, "WatchRefused").is_none();
        world
            .until("Widget", name, "no WatchRefused", watched)
            .await;
        repaired(&format!("{name}-map")).await;
    }
}

#[tokio::test]
async fn unwatchable_kind_is_named_in_a_condition_until_it_can_be_watched() {
    let (plane, namespace) = or_skip!(new_namespace("unwatched").await);
    let project = Project::new("", &[("map.yaml", MAP)]);
    grant_all_but_the_watch(&namespace).await;
    let operator = project
        .operator(plane, namespace.name())
        .kubeconfig(plane.operator_kubeconfig());
    let world = World::run(plane, operator, namespace).await;
    world.widget("one", json!({"value": "1"})).await;
    let message = world.message("one", "WatchRefused").await;
    assert_contains!(message, "ConfigMap", "one-map", "watch configmaps");
    // What cannot be watched is read, so that the release is as good as any other.
    world.ready("Widget", "one").await;
    grant_the_watch(&world.namespace).await;
    let named = |cr: &Value| condition(cr, "WatchRefused").is_some();
    world
        .until("Widget", "one", "no WatchRefused", |cr| !named(cr))
        .await;
}

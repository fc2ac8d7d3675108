//! The operator runs with the permissions in `config/rbac` and reports those that it lacks.

use hybrid_operator_test::TestNamespace;
use kube::Api;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::world::{Project, World, api, apply, condition, control_plane, operator, root, until};

/// Returns the rules of a file in `config/rbac`.
fn rules(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(root().join("config/rbac").join(file)).unwrap();
    let role: Value = go_yaml::from_str(&text).unwrap();
    role["rules"].as_array().unwrap().clone()
}

/// Grants the rules to the operator's user in a namespace.
async fn grant(namespace: &TestNamespace, name: &str, rules: &[Value]) {
    apply(&api(namespace, "Role"), name, &json!({"rules": rules})).await;
    let binding = json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "operator"}],
    });
    apply(&api(namespace, "RoleBinding"), name, &binding).await;
}

#[tokio::test]
async fn operator_runs_with_its_manifest_roles_and_reports_missing_permissions() {
    let Some(plane) = control_plane().await else {
        return;
    };
    let namespace = TestNamespace::create(plane, "rbac").await.unwrap();
    let chart = rules("charts/memcached_role.yaml");
    let (apps, rest): (Vec<Value>, Vec<Value>) = chart
        .into_iter()
        .partition(|rule| rule["apiGroups"] == json!(["apps"]));
    grant(&namespace, "operator", &rules("operator_role.yaml")).await;
    grant(&namespace, "chart", &rest).await;
    let running = operator(plane, namespace.name(), &[])
        .kubeconfig(plane.operator_kubeconfig())
        .start()
        .await
        .unwrap();
    let memcacheds = api(&namespace, "Memcached");
    apply(&memcacheds, "cache", &json!({"spec": {"replicaCount": 1}})).await;
    let is = async |resources: &Api<DynamicObject>, type_: &str| {
        let holds = |cr: &Value| condition(cr, type_).is_some_and(|c| c["status"] == "True");
        until(resources, "cache", type_, holds)
            .await
            .unwrap_or_else(|error| panic!("{error}\n{}", running.log()))
    };
    let failed = is(&memcacheds, "ReleaseFailed").await;
    let message = condition(&failed, "ReleaseFailed").unwrap()["message"].to_string();
    for part in ["patch", "deployments", "cache-memcached"] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    grant(&namespace, "apps", &apps).await;
    is(&memcacheds, "Ready").await;
    let native = rules("native/memcachedbackup_role.yaml");
    grant(&namespace, "native", &native).await;
    let backups = api(&namespace, "MemcachedBackup");
    apply(&backups, "cache", &json!({"spec": {"size": 1}})).await;
    is(&backups, "Ready").await;
    memcacheds
        .delete("cache", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    hybrid_operator_test::wait::gone(&memcacheds, "cache", crate::world::LIMIT)
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", running.log()));
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

#[tokio::test]
async fn a_kind_that_may_not_be_watched_is_named_in_a_condition_until_it_may() {
    let Some(plane) = control_plane().await else {
        return;
    };
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-map}\ndata: {value: {{ .Values.value | quote }}}\n";
    let project = Project::new("", &[("map.yaml", map)]);
    let namespace = TestNamespace::create(plane, "unwatched").await.unwrap();
    grant(&namespace, "operator", &rules("operator_role.yaml")).await;
    let rule = |group: &str, resources: Value, verbs: Value| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let widgets = json!(["widgets", "widgets/status", "widgets/finalizers"]);
    let writes = json!(["get", "create", "patch", "delete"]);
    let own = [
        rule("test.example.com", widgets, json!(["*"])),
        rule("", json!(["secrets"]), json!(["*"])),
        rule("", json!(["configmaps"]), writes),
    ];
    grant(&namespace, "own", &own).await;
    let operator = project
        .operator(plane, namespace.name())
        .kubeconfig(plane.operator_kubeconfig())
        .start()
        .await
        .unwrap();
    let world = World {
        plane,
        namespace,
        operator,
    };
    world.widget("one", json!({"value": "1"})).await;
    let refused = world.is("one", "WatchRefused").await;
    let message = refused["message"].as_str().unwrap();
    for part in ["ConfigMap", "one-map", "watch configmaps"] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    // What cannot be watched is read, so that the release is as good as any other.
    world.ready("Widget", "one").await;
    let watches = [rule("", json!(["configmaps"]), json!(["list", "watch"]))];
    grant(&world.namespace, "watches", &watches).await;
    let named = |cr: &Value| condition(cr, "WatchRefused").is_some();
    world
        .until("Widget", "one", "no WatchRefused", |cr| !named(cr))
        .await;
}

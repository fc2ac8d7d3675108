//! Deletion of releases whose service account is not known any more, or may not delete them: the
//! operator's own permissions are never used instead.

use hybrid_operator_test::wait;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::security::grant;
use crate::world::{
    LIMIT, Project, World, api_in, apply, cluster_api, eventually, is_true, merge, says,
};

const ACCOUNT: &str = "serviceAccountName: '{{ .Object.spec.account }}'";

/// A `ConfigMap`, and one that a hook creates before the deletion and that stays.
const CHART: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-farewell
  annotations: {helm.sh/hook: pre-delete, helm.sh/resource-policy: keep}
";

/// Names no service account.
const NOBODY: &str = "No One!";

/// Lets an account change `ConfigMap`s.
pub(crate) async fn allow_maps(world: &World, account: &str) {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    grant(world, account, account, rules).await;
}

/// Deploys a Widget as this account, and then lets it name none.
async fn deployed_as(world: &World, account: &str) {
    allow_maps(world, account).await;
    world.deploy("one", json!({"account": account})).await;
    world.widget("one", json!({"account": NOBODY})).await;
    let message = world.message("one", "Irreconcilable").await;
    assert_contains!(message, "serviceAccountName");
}

async fn delete(world: &World) {
    let widgets = world.api("Widget");
    drop(widgets.delete("one", &DeleteParams::default()).await);
}

/// Waits until the condition of the Widget, which stays, contains these texts.
async fn stays(world: &World, parts: &[&str]) {
    let said = |cr: &Value| {
        let says = |part: &&str| says(cr, "Irreconcilable", part);
        is_true(cr, "Irreconcilable") && parts.iter().all(says)
    };
    world.until("Widget", "one", "why it stays", said).await;
    assert!(exists(world, "one-map").await);
}

async fn exists(world: &World, map: &str) -> bool {
    world.api("ConfigMap").get_opt(map).await.unwrap().is_some()
}

#[tokio::test]
async fn a_release_whose_account_is_a_placeholder_is_deleted_as_the_proven_account() {
    let mut world = or_skip!(World::of("placeholder", ACCOUNT, &[("map.yaml", CHART)]).await);
    deployed_as(&world, "deployer").await;
    // The account alone counts: without its permissions nothing is deleted.
    world.remove("RoleBinding", "deployer").await;
    delete(&world).await;
    let name = format!("service account {}/deployer", world.namespace.name());
    let parts = [
        "cannot",
        "configmaps",
        &name,
        "restore",
        "remove the finalizer",
    ];
    stays(&world, &parts).await;
    world.operator.restart().await.unwrap();
    stays(&world, &parts).await;
    allow_maps(&world, "deployer").await;
    world.gone("Widget", "one").await;
    world.gone("ConfigMap", "one-map").await;
    assert!(!exists(&world, "one-farewell").await);
}

#[tokio::test]
async fn a_release_whose_account_no_record_proves_stays() {
    let world = or_skip!(World::of("unproven", ACCOUNT, &[("map.yaml", CHART)]).await);
    deployed_as(&world, "deployer").await;
    allow_maps(&world, "mighty").await;
    let label = "helm.sdk.operatorframework.io/account";
    let mighty = format!("1-{}.mighty-1", world.namespace.name());
    let secrets = world.api("Secret");
    for named in [Value::Null, mighty.into()] {
        let patch = json!({"metadata": {"labels": {label: named}}});
        merge(&secrets, "sh.helm.release.v1.one.v1", &patch).await;
    }
    delete(&world).await;
    let parts = ["no release record proves", "correct serviceAccountName"];
    stays(&world, &parts).await;
    world.widget("one", json!({"account": "deployer"})).await;
    world.gone("Widget", "one").await;
    world.gone("ConfigMap", "one-map").await;
}

#[tokio::test]
async fn a_release_whose_account_is_refused_stays_and_says_so() {
    let project = Project::new("serviceAccountName: deployer", &[("map.yaml", CHART)]);
    let world = or_skip!(project.start("refused").await);
    allow_maps(&world, "deployer").await;
    world.deploy("one", json!({})).await;
    world.remove("RoleBinding", "deployer").await;
    delete(&world).await;
    let name = format!("service account {}/deployer", world.namespace.name());
    stays(&world, &["cannot", &name, "remove the finalizer"]).await;
    allow_maps(&world, "deployer").await;
    world.gone("Widget", "one").await;
    world.gone("ConfigMap", "one-map").await;
    // The account is the custom resource's: its hook ran.
    assert!(exists(&world, "one-farewell").await);
}

#[tokio::test]
async fn in_a_namespace_that_ends_what_a_refused_account_leaves_outside_is_named() {
    let role = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: '{{ .Release.Namespace }}-{{ .Release.Name }}'}
rules: []
";
    let templates = [("map.yaml", CHART), ("role.yaml", role)];
    let world = or_skip!(World::of("last", ACCOUNT, &templates).await);
    let namespace = world.namespace.name();
    let (group, plural) = ("rbac.authorization.k8s.io", "clusterroles");
    let rules = json!({"rules": [{"apiGroups": [group], "resources": [plural], "verbs": ["*"]}]});
    let cluster_roles = cluster_api(&world.namespace, "ClusterRole");
    let granted = format!("{namespace}-granted");
    apply(&cluster_roles, &granted, &rules).await;
    let bindings = cluster_api(&world.namespace, "ClusterRoleBinding");
    let subject = json!({"kind": "ServiceAccount", "name": "deployer", "namespace": namespace});
    let binding = json!({
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": granted},
        "subjects": [subject],
    });
    apply(&bindings, &granted, &binding).await;
    deployed_as(&world, "deployer").await;
    // In a namespace that ends, accounts and their permissions may go first.
    drop(bindings.delete(&granted, &DeleteParams::default()).await);
    world.remove("RoleBinding", "deployer").await;
    let namespaces: Api<Namespace> = Api::all(world.namespace.client());
    drop(namespaces.delete(namespace, &DeleteParams::default()).await);
    let gone = wait::gone(&namespaces, namespace, LIMIT * 4).await;
    gone.unwrap_or_else(|error| panic!("{error}\n{}", world.operator.log()));
    let left = format!("{namespace}-one");
    assert!(cluster_roles.get_opt(&left).await.unwrap().is_some());
    let events = api_in(&world.namespace, "default", "Event");
    let named = async || {
        let events = events.list(&ListParams::default()).await.unwrap();
        events.iter().any(|event| {
            event.data["reason"] == "ObjectLeft"
                && event.data["involvedObject"]["name"] == namespace
                && event.data["message"].to_string().contains(&left)
        })
    };
    eventually("the event", named).await;
    for name in [&left, &granted] {
        drop(cluster_roles.delete(name, &DeleteParams::default()).await);
    }
}

//! RELEASES 1 and 2, attacked: nothing of others is taken or deleted, and nothing that holds data.

use kube::api::{DeleteParams, PostParams, ResourceExt};
use serde_json::{Value, json};

use crate::world::{LIMIT, Project, apply, merge};

const MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Values.map | default \"map\" }}}
data: {value: {{ .Release.Name }}}
";

const NAMESPACE: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: {{ .Release.Namespace }}-made}
";

const CLAIM: &str = "\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: {{ .Release.Name }}-data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";

#[tokio::test]
async fn rule_1_1_a_foreign_object_of_the_same_name_stays_as_it_is() {
    let project = Project::new("", &[("map.yaml", MAP)]);
    let Some(world) = project.start("foreign").await else {
        return;
    };
    let foreign = json!({"data": {"value": "theirs", "more": "x"}});
    apply(&world.api("ConfigMap"), "map", &foreign).await;
    world.widget("one", json!({})).await;
    let refused = world.is("one", "ReleaseFailed").await;
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains("ConfigMap") && message.contains("map"),
        "{message}"
    );
    world
        .data("map", json!({"value": "theirs", "more": "x"}))
        .await;
    // Nor does it go with the custom resource.
    let widgets = world.api("Widget");
    widgets
        .delete("one", &DeleteParams::default())
        .await
        .unwrap();
    world.gone("Widget", "one").await;
    world
        .data("map", json!({"value": "theirs", "more": "x"}))
        .await;
}

#[tokio::test]
async fn rule_1_1_two_custom_resources_that_want_one_object_do_not_fight() {
    let project = Project::new("", &[("map.yaml", MAP)]);
    let Some(world) = project.start("race").await else {
        return;
    };
    world.widget("one", json!({})).await;
    world.ready("Widget", "one").await;
    world.widget("two", json!({})).await;
    world.is("two", "ReleaseFailed").await;
    world.data("map", json!({"value": "one"})).await;
    let widgets = world.api("Widget");
    widgets
        .delete("two", &DeleteParams::default())
        .await
        .unwrap();
    world.gone("Widget", "two").await;
    world.data("map", json!({"value": "one"})).await;
}

#[tokio::test]
async fn rule_2_1_what_is_no_longer_watched_is_not_deleted() {
    let project = Project::new("selector: {matchLabels: {team: a}}", &[("map.yaml", MAP)]);
    let Some(mut world) = project.start("shrink").await else {
        return;
    };
    let cr = json!({"metadata": {"labels": {"team": "a"}}, "spec": {}});
    apply(&world.api("Widget"), "one", &cr).await;
    let before = world.ready("Widget", "one").await;
    // The label goes, the operator restarts, and another one shows that it works.
    let label = json!({"metadata": {"labels": {"team": null}}});
    merge(&world.api("Widget"), "one", &label).await;
    world.operator.stop(LIMIT).await.unwrap();
    world.operator.restart().await.unwrap();
    let other = json!({"metadata": {"labels": {"team": "a"}}, "spec": {"map": "other"}});
    apply(&world.api("Widget"), "two", &other).await;
    world.ready("Widget", "two").await;
    world.data("map", json!({"value": "one"})).await;
    assert_eq!(world.history("one").await, ["deployed"]);
    let after = world.api("Widget").get("one").await.unwrap();
    assert_eq!(after.uid(), before.uid());
}

#[tokio::test]
async fn rule_2_3_a_claim_that_somebody_has_asked_to_keep_survives_the_release() {
    let project = Project::new("", &[("claim.yaml", CLAIM)]);
    let Some(world) = project.start("keep").await else {
        return;
    };
    world.widget("one", json!({})).await;
    let claims = world.api("PersistentVolumeClaim");
    world
        .until("PersistentVolumeClaim", "one-data", "there", |claim| {
            !claim.is_null()
        })
        .await;
    let keep = json!({"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}});
    merge(&claims, "one-data", &keep).await;
    let uid = claims.get("one-data").await.unwrap().uid();
    let widgets = world.api("Widget");
    widgets
        .delete("one", &DeleteParams::default())
        .await
        .unwrap();
    world.gone("Widget", "one").await;
    let claim = claims.get("one-data").await.unwrap();
    assert_eq!(claim.uid(), uid);
    assert!(claim.metadata.deletion_timestamp.is_none());
    assert!(
        claim.owner_references().is_empty(),
        "or garbage collection would take it"
    );
}

#[tokio::test]
async fn rule_4_3_stripped_labels_come_back_and_lose_nothing() {
    let project = Project::new("", &[("map.yaml", MAP)]);
    let Some(world) = project.start("strip").await else {
        return;
    };
    world.widget("one", json!({})).await;
    world.ready("Widget", "one").await;
    let maps = world.api("ConfigMap");
    let before = maps.get("map").await.unwrap();
    let bare = json!({"metadata": {"labels": null, "annotations": null}});
    merge(&maps, "map", &bare).await;
    let operator = "helm.sdk.operatorframework.io/operator";
    let labelled = |map: &Value| map["metadata"]["labels"].get(operator).is_some();
    world
        .until("ConfigMap", "map", "its labels", labelled)
        .await;
    assert_eq!(maps.get("map").await.unwrap().uid(), before.uid());
}

#[tokio::test]
async fn a_corrupt_record_is_told_and_its_release_is_still_uninstalled_from_an_earlier_one() {
    let project = Project::new("", &[("map.yaml", MAP)]);
    let Some(world) = project.start("corrupt").await else {
        return;
    };
    world.widget("one", json!({"x": 1})).await;
    world.ready("Widget", "one").await;
    world.widget("one", json!({"x": 2})).await;
    world
        .until("Widget", "one", "revision 2", |cr| {
            cr["status"]["release"]["revision"] == 2
        })
        .await;
    let secrets = world.api("Secret");
    let broken = json!({"data": {"release": "AAAA"}});
    merge(&secrets, "sh.helm.release.v1.one.v2", &broken).await;
    let widgets = world.api("Widget");
    widgets
        .delete("one", &DeleteParams::default())
        .await
        .unwrap();
    world.gone("Widget", "one").await;
    world.gone("ConfigMap", "map").await;
}

#[tokio::test]
async fn a_custom_resource_made_anew_gets_a_release_of_its_own() {
    let project = Project::new("", &[("map.yaml", MAP)]);
    let Some(world) = project.start("anew").await else {
        return;
    };
    world.widget("one", json!({})).await;
    let first = world.ready("Widget", "one").await;
    let widgets = world.api("Widget");
    widgets
        .delete("one", &DeleteParams::default())
        .await
        .unwrap();
    // As soon as the name is free it is taken again.
    world.gone("Widget", "one").await;
    let body = json!({"apiVersion": "test.example.com/v1", "kind": "Widget",
        "metadata": {"name": "one"}, "spec": {}});
    let body = serde_json::from_value(body).unwrap();
    widgets.create(&PostParams::default(), &body).await.unwrap();
    let second = world.ready("Widget", "one").await;
    assert_ne!(first.uid(), second.uid());
    assert_eq!(world.history("one").await, ["deployed"]);
    let map = world.api("ConfigMap").get("map").await.unwrap();
    assert_eq!(map.owner_references()[0].uid, second.uid().unwrap());
}

#[tokio::test]
async fn rule_2_2_a_namespace_that_others_use_outlives_its_release() {
    let project = Project::new("", &[("namespace.yaml", NAMESPACE)]);
    let Some(world) = project.start("inner").await else {
        return;
    };
    world.widget("one", json!({})).await;
    world.ready("Widget", "one").await;
    let name = format!("{}-made", world.namespace.name());
    let client = world.namespace.client();
    let theirs: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::namespaced(client.clone(), &name);
    let body = serde_json::from_value(json!({"metadata": {"name": "theirs"}})).unwrap();
    theirs.create(&PostParams::default(), &body).await.unwrap();
    let widgets = world.api("Widget");
    widgets
        .delete("one", &DeleteParams::default())
        .await
        .unwrap();
    world.gone("Widget", "one").await;
    assert!(theirs.get_opt("theirs").await.unwrap().is_some());
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(client);
    let namespace = namespaces.get(&name).await.unwrap();
    assert!(namespace.metadata.deletion_timestamp.is_none());
    namespaces
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
}

//! The native controller next to the chart.

use kube::api::DeleteParams;
use serde_json::json;

use crate::world::{World, apply};

#[tokio::test]
async fn backup_runs_the_requested_number_of_pods_and_lists_them() {
    let Some(world) = World::start("backup").await else {
        return;
    };
    let backups = world.api("MemcachedBackup");
    apply(
        &backups,
        "b",
        &json!({"spec": {"size": 2, "memcachedRef": {"name": "cache"}}}),
    )
    .await;
    let ready = world.ready("MemcachedBackup", "b").await;
    let nodes = ready.data["status"]["nodes"].as_array().unwrap().clone();
    assert_eq!(nodes.len(), 2);
    for node in &nodes {
        world.api("Pod").get(node.as_str().unwrap()).await.unwrap();
    }
    let deployment = world.api("Deployment").get("b").await.unwrap();
    assert_eq!(
        deployment.metadata.owner_references.unwrap()[0].kind,
        "MemcachedBackup"
    );

    apply(&backups, "b", &json!({"spec": {"size": 3}})).await;
    world
        .until("MemcachedBackup", "b", "3 nodes", |b| {
            b["status"]["nodes"]
                .as_array()
                .is_some_and(|nodes| nodes.len() == 3)
        })
        .await;

    backups.delete("b", &DeleteParams::default()).await.unwrap();
    world.gone("Deployment", "b").await;
}

#[tokio::test]
async fn negative_size_is_rejected_by_the_crd() {
    let Some(world) = World::start("negative").await else {
        return;
    };
    let object = json!({
        "apiVersion": "cache.example.com/v1alpha1", "kind": "MemcachedBackup",
        "metadata": {"name": "b"}, "spec": {"size": -1},
    });
    let object = serde_json::from_value(object).unwrap();
    let error = world
        .api("MemcachedBackup")
        .create(&kube::api::PostParams::default(), &object)
        .await;
    assert!(error.unwrap_err().to_string().contains("spec.size"));
}

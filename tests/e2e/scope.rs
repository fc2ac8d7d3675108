//! The scope of an operator: namespaces, and cluster-scoped kinds.

use serde_json::json;

use crate::world::{
    api, apply, cluster_api, control_plane, gone, holds, namespace_of, new_namespace, operator,
    remove, root, until,
};

#[tokio::test]
async fn two_namespaces_are_watched_and_a_third_is_not() {
    let plane = or_skip!(control_plane().await);
    let mut namespaces = Vec::new();
    for prefix in ["one", "two", "three"] {
        namespaces.push(namespace_of(plane, prefix).await);
    }
    let watched = format!("{},{}", namespaces[0].name(), namespaces[1].name());
    let _running = operator(plane, &watched, &[]).start().await.unwrap();
    // The unwatched namespace comes first, so that it has the most time.
    for namespace in namespaces.iter().rev() {
        let memcacheds = api(namespace, "Memcached");
        apply(&memcacheds, "cache", &json!({"spec": {"replicaCount": 1}})).await;
    }
    for namespace in &namespaces[..2] {
        let memcacheds = api(namespace, "Memcached");
        until(&memcacheds, "cache", "Ready", holds("Ready")).await;
    }
    let other = api(&namespaces[2], "Memcached").get("cache").await.unwrap();
    assert!(other.data.get("status").is_none() && other.metadata.finalizers.is_none());
}

#[tokio::test]
async fn cluster_scoped_resource_has_its_release_in_the_configured_namespace() {
    let (plane, namespace) = or_skip!(new_namespace("global").await);
    let dir = tempfile::tempdir().unwrap();
    let chart = root().join("helm-charts/memcached");
    let watches = format!(
        "- {{group: test.example.com, version: v1, kind: GlobalCache, chart: {}, releaseNamespace: {}}}\n",
        chart.display(),
        namespace.name()
    );
    let file = dir.path().join("watches.yaml");
    std::fs::write(&file, watches).unwrap();
    let file = file.display().to_string();
    let _running = operator(plane, "", &["--watches-file", &file])
        .env("OPERATOR_NAME", namespace.name())
        .start()
        .await
        .unwrap();

    let caches = cluster_api(&namespace, "GlobalCache");
    let name = namespace.name();
    apply(&caches, name, &json!({"spec": {"replicaCount": 1}})).await;
    until(&caches, name, "Ready", holds("Ready")).await;
    let deployments = api(&namespace, "Deployment");
    let object = format!("{name}-memcached");
    let deployment = deployments.get(&object).await.unwrap();
    assert_eq!(
        deployment.metadata.owner_references.unwrap()[0].kind,
        "GlobalCache"
    );

    remove(&caches, name).await;
    gone(&deployments, &object).await;
}

//! The helm command reads releases of the operator.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::world::World;

/// Returns the path of helm, or `None` after printing a line if it cannot be built.
pub(crate) fn helm() -> Option<PathBuf> {
    hybrid_operator_test::helm::ensure_or_skip().unwrap()
}

#[tokio::test]
async fn helm_lists_and_shows_releases_of_the_operator() {
    let Some(program) = helm() else { return };
    let world = or_skip!(World::start("cli").await);
    world.memcached("cache", json!({"replicaCount": 1})).await;
    world.memcached("cache", json!({"replicaCount": 2})).await;
    let helm = |args: &[&str]| world.helm(&program, args);
    let list: Value = serde_json::from_str(&helm(&["ls", "-o", "json"])).unwrap();
    assert_eq!(list[0]["name"], "cache");
    assert_eq!(list[0]["status"], "deployed");
    assert_eq!(list[0]["chart"], "memcached-0.1.0");
    let history: Value = serde_json::from_str(&helm(&["history", "cache", "-o", "json"])).unwrap();
    let statuses: Vec<&str> = history
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|r| r["status"].as_str())
        .collect();
    assert_eq!(statuses, ["superseded", "deployed"]);
    let manifest = helm(&["get", "manifest", "cache"]);
    assert_contains!(manifest, "# Source: memcached/templates/deployment.yaml");
    assert!(
        !manifest.contains("helm.sdk.operatorframework.io"),
        "the record is the chart's text alone"
    );
    let values: Value =
        serde_json::from_str(&helm(&["get", "values", "cache", "-o", "json"])).unwrap();
    assert_eq!(values, json!({"replicaCount": 2}));
}

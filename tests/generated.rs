//! Checks that the CRDs of native controllers are up to date. `make generate` writes them, and those
//! of charts.

#![allow(clippy::unwrap_used, reason = "a test stops at the first error")]

use std::process::Command;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use memcached_operator::api::v1alpha1::MemcachedBackup;
use serde_json::{Value, json};

/// Compares a generated CRD with its file, or writes the file.
fn check(path: &str, crd: &CustomResourceDefinition) {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    let wanted = go_yaml::to_string(crd).unwrap();
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let present = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        present == wanted,
        "{path} is out of date; run `make generate`"
    );
}

#[test]
fn crd_of_memcached_backup_is_up_to_date() {
    check(
        "config/crd/bases/cache.example.com_memcachedbackups.yaml",
        &MemcachedBackup::crd(),
    );
}

#[test]
fn the_program_describes_its_definitions_and_permissions() {
    let output = Command::new(env!("CARGO_BIN_EXE_memcached-operator"))
        .arg("describe")
        .output()
        .unwrap();
    assert!(output.status.success());
    let description: Value = serde_json::from_slice(&output.stdout).unwrap();
    let crd = serde_json::to_value(MemcachedBackup::crd()).unwrap();
    assert_eq!(description["crds"], json!([crd]));
    let controller = &description["controllers"][0];
    assert_eq!(controller["name"], "memcachedbackup");
    assert_eq!(controller["group"], "cache.example.com");
    assert_eq!(controller["version"], "v1alpha1");
    assert_eq!(controller["kind"], "MemcachedBackup");
    let rules = controller["rules"].as_array().unwrap();
    let deployments = json!({"apiGroups": ["apps"], "resources": ["deployments"],
        "verbs": ["create", "delete", "get", "list", "patch", "watch"]});
    assert!(rules.contains(&deployments), "{rules:#?}");
}

#[test]
fn crds_of_the_examples_are_up_to_date() {
    check("examples/at/config/crd.yaml", &at_operator::api::At::crd());
    check(
        "examples/etcd-cluster/config/crd.yaml",
        &etcd_cluster::api::EtcdCluster::crd(),
    );
    check(
        "examples/memcached-native/config/crd.yaml",
        &memcached_native::api::Memcached::crd(),
    );
    check(
        "examples/multi-secret/config/crd.yaml",
        &multi_secret::api::MultiSecret::crd(),
    );
    check(
        "examples/visitors/config/crd.yaml",
        &visitors::api::VisitorsApp::crd(),
    );
}

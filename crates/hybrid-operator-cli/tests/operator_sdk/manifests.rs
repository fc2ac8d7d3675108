//! The project's manifests, unchanged, with this operator as the image.

use std::path::{Path, PathBuf};

use hybrid_operator_test::process::RunningOperator;
use hybrid_operator_test::{ControlPlane, Options, TestNamespace, binary_or_skip, wait};
use kube::api::{Api, DeleteParams, DynamicObject};
use serde_json::{Value, json};

use crate::project::{
    LIMIT, NAME, api, apply, condition, define, grant, is_ready, kubeconfig, operator, sample,
    stores, until,
};

/// Message logged once about the permission to watch definitions, which the role lacks.
const DEGRADED: &str = "cannot watch the definitions of kinds; refreshing discovery periodically";

/// Message logged once about the events that the role allows.
const CORE_EVENTS: &str = "events of events.k8s.io are forbidden; sending core events instead";

/// Puts the program where the Go operators' image has it, and returns the path.
fn entry_point(directory: &Path) -> PathBuf {
    let path = directory.join("helm-operator");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_hybrid-operator"), &path).unwrap();
    path
}

/// Returns the lines of the log that tell somebody to act: warnings, errors, and refused requests.
fn complaints(operator: &RunningOperator) -> Vec<String> {
    let log = operator.log();
    let lines = log.lines().filter(|line| {
        let entry: Value = serde_json::from_str(line).unwrap_or_default();
        let level = entry["level"].as_str().unwrap_or("not JSON").to_lowercase();
        let refused = ["orbidden", "no permission"];
        let is_refusal = refused.iter().any(|part| line.contains(part));
        let is_known = line.contains(DEGRADED) || line.contains(CORE_EVENTS);
        !matches!(level.as_str(), "info" | "debug") || is_refusal && !is_known
    });
    lines.map(ToOwned::to_owned).collect()
}

#[tokio::test]
async fn operator_runs_with_the_manifests_of_operator_sdk() {
    if binary_or_skip().await.unwrap().is_none() {
        return;
    }
    // The operator watches all namespaces, so it has a cluster of its own.
    let options = Options {
        audit: true,
        ..Options::default()
    };
    let plane = ControlPlane::start(options).await.unwrap();
    let system = TestNamespace::create(&plane, "store-operator-system")
        .await
        .unwrap();
    let tenant = TestNamespace::create(&plane, "tenant").await.unwrap();
    define(&system).await;
    let account = grant(&system, "store-operator").await;
    let audit = plane.audit_log().unwrap();
    let mark = audit.mark().unwrap();
    let files = tempfile::tempdir().unwrap();
    let running = operator(&entry_point(files.path()))
        .kubeconfig(kubeconfig(&plane, &system, &account, files.path()).await)
        // Stands in for the file of the service account that every Pod has.
        .env("POD_NAMESPACE", system.name())
        .start()
        .await
        .unwrap();
    let stores = stores(&tenant);
    let ready = async |revision: u32| {
        until(&stores, NAME, "Ready", |cr| is_ready(cr, revision))
            .await
            .unwrap_or_else(|error| panic!("{error}\n{}", running.log()))
    };

    drop(apply(&tenant, &sample(&json!({}))).await);
    let installed = ready(1).await;
    let deployed = condition(&installed, "Deployed").unwrap();
    assert_eq!(deployed["reason"], "InstallSuccessful");
    let web = api(&tenant, "apps/v1", "StatefulSet");
    assert_eq!(web.get(NAME).await.unwrap().data["spec"]["replicas"], 2);

    drop(apply(&tenant, &sample(&json!({"replicaCount": 3}))).await);
    drop(ready(2).await);
    assert_eq!(web.get(NAME).await.unwrap().data["spec"]["replicas"], 3);

    let gone = async |api: Api<DynamicObject>| {
        let gone = wait::gone(&api, NAME, LIMIT).await;
        gone.unwrap_or_else(|error| panic!("{error}\n{}", running.log()));
    };
    drop(stores.delete(NAME, &DeleteParams::default()).await.unwrap());
    gone(stores.clone()).await;
    gone(web).await;
    gone(api(&tenant, "v1", "Service")).await;
    gone(api(&tenant, "policy/v1", "PodDisruptionBudget")).await;

    let user = format!("system:serviceaccount:{}:{account}", system.name());
    let requests = audit.since(mark, &user).unwrap();
    let mut refused: Vec<String> = requests
        .iter()
        .filter(|request| request.status == 403)
        .map(|request| format!("{} {}", request.verb, request.resource))
        .collect();
    refused.sort_unstable();
    let complaints = complaints(&running);
    assert!(
        complaints.is_empty(),
        "{complaints:#?}\nrefused: {refused:#?}"
    );
    for substitute in [DEGRADED, CORE_EVENTS] {
        let told = running.log().matches(substitute).count();
        assert!(told <= 1, "{}", running.log());
    }
    // What the role lacks has a substitute, or is not needed for a release.
    let known = ["create events", "list events", "list pods"];
    refused.retain(|request| !known.contains(&request.as_str()));
    assert!(refused.is_empty(), "{refused:#?}");
}

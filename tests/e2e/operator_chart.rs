//! The Helm chart of the operator: Helm installs it, and so does an operator of this project.

use std::fs;
use std::process::Command;

use hybrid_operator_test::control_plane::Options;
use hybrid_operator_test::process::Operator;
use hybrid_operator_test::{ControlPlane, helm};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, DynamicObject};
use serde_json::json;

use crate::deployment::{
    can_run, metrics_need, nothing_was_forbidden, run, samples_are_ready, start,
};
use crate::pod::OperatorPod;
use crate::transcript::{is_current, programs};
use crate::world::{
    ANYTHING, LIMIT, apply, define, definition_of, holds, output, program, resource, root, until,
};

/// Writes the chart of the repository's operator, and returns its directory.
fn chart() -> tempfile::TempDir {
    is_current("hybrid-operator").unwrap();
    let directory = tempfile::tempdir().unwrap();
    output(
        Command::new(programs().join("hybrid-operator"))
            .args(["generate", "chart", "--output-dir"])
            .arg(directory.path().join("chart"))
            .current_dir(root()),
    );
    directory
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_installs_an_operator_that_needs_only_its_account() {
    let helm = or_skip!(helm::ensure_or_skip().unwrap());
    if !can_run().await {
        return;
    }
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let client = plane.client().await.unwrap();
    let config = plane.kubeconfig_path();
    let directory = chart();
    let chart = directory.path().join("chart");
    let helm = |command: &str, flags: &str| {
        let arguments = format!(
            "{command} cache {} --namespace ops {flags}",
            chart.display()
        );
        run(config, helm.to_str().unwrap(), &arguments)
    };
    helm("install", "--create-namespace");
    let pod = OperatorPod::of(&client, "ops").await;
    assert_eq!(pod.image, "example.com/memcached-operator:v0.1.0");
    let operator = start(&plane, &pod, directory.path()).await;
    run(config, "kubectl", "apply -k config/samples");
    samples_are_ready(&client).await;
    metrics_need(
        "cache-memcached-operator-metrics-reader",
        &client,
        &operator,
    )
    .await;
    nothing_was_forbidden(&operator);
    run(config, "kubectl", "delete -k config/samples");
    let stopped = operator.stop(LIMIT).await.unwrap();
    assert!(stopped.success(), "{}", operator.log());
    drop(operator);

    // In one namespace, with roles that are bound in this namespace.
    helm("upgrade", "--set watchNamespaces={default}");
    let pod = OperatorPod::of(&client, "ops").await;
    let operator = start(&plane, &pod, directory.path()).await;
    run(config, "kubectl", "apply -k config/samples");
    samples_are_ready(&client).await;
    nothing_was_forbidden(&operator);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_of_this_project_installs_the_chart() {
    if !can_run().await {
        return;
    }
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let client = plane.client().await.unwrap();
    let directory = chart();
    let watches = "- {group: test.example.com, version: v1, kind: Widget, chart: chart}\n";
    fs::write(directory.path().join("watches.yaml"), watches).unwrap();
    let definition = definition_of("test.example.com", "Widget", "Namespaced", ANYTHING);
    define(&plane, &definition).await;
    let _operator = Operator::new(program())
        .args([
            "run",
            "--health-probe-bind-address",
            "127.0.0.1:{probe_port}",
        ])
        .args(["--metrics-bind-address=0", "--watches-file"])
        .arg(directory.path().join("watches.yaml").to_str().unwrap())
        .env("OPERATOR_NAME", "outer")
        .env("POD_NAMESPACE", "default")
        .kubeconfig(plane.kubeconfig_path())
        .dir(directory.path())
        .start()
        .await
        .unwrap();
    let widgets: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), "default", &resource("Widget"));
    apply(&widgets, "cache", &json!({"spec": {"replicas": 2}})).await;
    until(&widgets, "cache", "Ready", holds("Ready")).await;
    let deployments: Api<Deployment> = Api::namespaced(client, "default");
    let name = "cache-memcached-operator-controller-manager";
    let deployment = deployments.get(name).await.unwrap();
    assert_eq!(deployment.spec.unwrap().replicas, Some(2));
}

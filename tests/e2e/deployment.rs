//! `make deploy` and `make undeploy` on a control plane of their own, and the operator with the account,
//! the arguments and the environment of the Deployment.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use hybrid_operator_test::control_plane::Options;
use hybrid_operator_test::process::{Operator, RunningOperator};
use hybrid_operator_test::{ControlPlane, shared_or_skip, skipped};
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};

use crate::operations::scrape;
use crate::pod::{self, OperatorPod};
use crate::transcript::{has_kubectl, is_current, programs};
use crate::world::{
    ANYTHING, define, definition_of, eventually, holds, output, program, resource, root, until,
};

const IMAGE: &str = "registry.example.com:5000/team/operator@sha256:0000000000000000000000000000000000000000000000000000000000000000";
const SYSTEM: &str = "memcached-operator-system";

/// Runs a command in the root of the repository, which must succeed, and returns its output.
#[track_caller]
pub(crate) fn run(kubeconfig: &Path, program: &str, arguments: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    output(
        Command::new("timeout")
            .args(["120", program])
            .args(arguments.split_whitespace())
            .current_dir(root())
            .env("KUBECONFIG", kubeconfig)
            // kubectl caches there what an API server serves.
            .env("HOME", home.path())
            // Of `make test`.
            .env_remove("MAKELEVEL")
            .env_remove("MAKEFLAGS")
            .env_remove("MFLAGS"),
    )
}

/// Returns whether the test can run; prints why not.
pub(crate) async fn can_run() -> bool {
    if !has_kubectl() {
        skipped(1, &"there is no kubectl in $PATH");
        return false;
    }
    shared_or_skip().await.unwrap().is_some()
}

/// Returns the content of the files below `config`, and the names of what is beside it.
fn repository() -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root()).unwrap() {
        found.insert(entry.unwrap().path().display().to_string(), Vec::new());
    }
    let mut left = vec![root().join("config")];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(
                fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else {
            found.insert(path.display().to_string(), fs::read(&path).unwrap());
        }
    }
    found
}

/// Starts the program with the token of a deployed operator's account, and with nothing more.
pub(crate) async fn start(plane: &ControlPlane, pod: &OperatorPod, dir: &Path) -> RunningOperator {
    let client = plane.client().await.unwrap();
    let token = pod.token(&client).await;
    let operator = Operator::new(program())
        .args(["run", "--watches-file=./watches.yaml"])
        .dir(root())
        .kubeconfig(pod::kubeconfig(plane, &token, dir));
    pod.given_to(operator).start().await.unwrap()
}

/// Waits until the objects of `config/samples` are ready in the namespace `default`.
pub(crate) async fn samples_are_ready(client: &Client) {
    for kind in ["Memcached", "MemcachedBackup"] {
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), "default", &resource(kind));
        let name = format!("{}-sample", kind.to_lowercase());
        until(&api, &name, "Ready", holds("Ready")).await;
    }
}

/// Checks that metrics are for an account to which `role` is bound, and for nobody else.
pub(crate) async fn metrics_need(role: &str, client: &Client, operator: &RunningOperator) {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let params = PostParams::default();
    for name in ["prometheus", "somebody"] {
        let account = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        accounts.create(&params, &account).await.unwrap();
    }
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "prometheus"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "default"}],
    }))
    .unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    bindings.create(&params, &binding).await.unwrap();
    let port = operator.metrics_port();
    assert_eq!(scrape(port, None).await, Err(401));
    let somebody = pod::token(client, "default", "somebody").await;
    assert_eq!(scrape(port, Some(&somebody)).await, Err(403));
    let prometheus = pod::token(client, "default", "prometheus").await;
    // The API server may need a moment to see the binding.
    let allowed = async || scrape(port, Some(&prometheus)).await.is_ok();
    eventually("the metrics", allowed).await;
    let text = scrape(port, Some(&prometheus)).await.unwrap();
    assert_contains!(text, "controller_runtime_reconcile_total{");
}

/// Checks that the log has no line about a missing permission.
pub(crate) fn nothing_was_forbidden(operator: &RunningOperator) {
    let log = operator.log();
    let mut lines = log.lines();
    let forbidden = lines.find(|line| line.contains("forbidden") || line.contains("no permission"));
    assert_eq!(forbidden, None, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn make_deploys_an_operator_that_needs_only_its_account_and_removes_it_again() {
    if !can_run().await {
        return;
    }
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let client = plane.client().await.unwrap();
    let config = plane.kubeconfig_path();
    let before = repository();
    run(config, "make", "install");
    run(config, "make", &format!("deploy IMG={IMAGE}"));
    assert!(before == repository(), "make deploy changed files");
    let pod = OperatorPod::of(&client, SYSTEM).await;
    assert_eq!(pod.image, IMAGE);
    optional_parts_are_accepted(&plane).await;

    let directory = tempfile::tempdir().unwrap();
    let operator = start(&plane, &pod, directory.path()).await;
    run(config, "kubectl", "apply -k config/samples");
    samples_are_ready(&client).await;
    metrics_need("memcached-operator-metrics-reader", &client, &operator).await;
    nothing_was_forbidden(&operator);

    // The operator uninstalls the release of the sample before its account goes.
    run(config, "make", "undeploy");
    let namespaces: Api<Namespace> = Api::all(client.clone());
    assert!(namespaces.get_opt(SYSTEM).await.unwrap().is_none());
    let definitions: Api<DynamicObject> =
        Api::all_with(client.clone(), &resource("CustomResourceDefinition"));
    let definitions = definitions.list(&ListParams::default()).await.unwrap();
    let left = definitions
        .items
        .iter()
        .map(|crd| crd.metadata.name.clone().unwrap());
    let left: Vec<String> = left
        .filter(|name| name.ends_with("cache.example.com"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let records = secrets
        .list(&ListParams::default().labels("owner=helm"))
        .await
        .unwrap();
    assert!(records.items.is_empty(), "{}", operator.log());
    run(config, "make", "undeploy ignore-not-found=true");
    assert!(before == repository(), "make undeploy changed files");
}

/// Installs `config/default` with the parts that it has as comments, as a dry run, and checks that the
/// parts fit together.
async fn optional_parts_are_accepted(plane: &ControlPlane) {
    for kind in ["ServiceMonitor", "PrometheusRule"] {
        let definition = definition_of("monitoring.coreos.com", kind, "Namespaced", ANYTHING);
        define(plane, &definition).await;
    }
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().display().to_string();
    let config = plane.kubeconfig_path();
    run(config, "cp", &format!("-R config {path}"));
    let file = copy.path().join("config/default/kustomization.yaml");
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.matches("# - ../").count(), 2, "{text}");
    fs::write(&file, text.replace("# - ../", "- ../")).unwrap();
    let all = run(
        config,
        "kubectl",
        &format!("kustomize {path}/config/default"),
    );
    run(
        config,
        "kubectl",
        &format!("apply --dry-run=server -k {path}/config/default"),
    );
    let objects: Vec<Value> = all
        .split("\n---\n")
        .map(|document| go_yaml::from_str(document).unwrap())
        .collect();
    let of_kind = |kind: &str| {
        let mut found = objects.iter().filter(|object| object["kind"] == kind);
        let first = found.next().unwrap_or_else(|| panic!("no {kind}"));
        assert!(found.next().is_none(), "several {kind}s");
        first
    };
    let (service, monitor) = (of_kind("Service"), of_kind("ServiceMonitor"));
    let (rule, policy) = (of_kind("PrometheusRule"), of_kind("NetworkPolicy"));
    let pod = &of_kind("Deployment")["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    let labels = &pod["metadata"]["labels"];
    assert!(selects(
        &monitor["spec"]["selector"]["matchLabels"],
        &service["metadata"]["labels"]
    ));
    assert!(selects(&service["spec"]["selector"], labels));
    assert!(selects(
        &policy["spec"]["podSelector"]["matchLabels"],
        labels
    ));
    let port = &service["spec"]["ports"][0];
    assert_eq!(monitor["spec"]["endpoints"][0]["port"], port["name"]);
    assert_eq!(
        policy["spec"]["ingress"][0]["ports"][0]["port"],
        port["targetPort"]
    );
    assert_eq!(container["ports"][0]["name"], port["targetPort"]);
    let address = format!(
        "--metrics-bind-address=:{}",
        container["ports"][0]["containerPort"]
    );
    assert!(
        container["args"]
            .as_array()
            .unwrap()
            .contains(&json!(address))
    );
    // Prometheus gives what it reads from a Service the Service's name as the label job.
    let name = service["metadata"]["name"].as_str().unwrap();
    assert!(name.ends_with("controller-manager-metrics"), "{name}");
    let groups = rule["spec"]["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    for rule in rules {
        let expression = rule["expr"].as_str().unwrap();
        assert_contains!(expression, r#"job=~".*controller-manager-metrics""#);
    }
}

fn selects(selector: &Value, labels: &Value) -> bool {
    let mut wanted = selector.as_object().unwrap().iter();
    !selector.as_object().unwrap().is_empty() && wanted.all(|(name, value)| labels[name] == *value)
}

/// `init` and `create` refuse longer names.
#[tokio::test(flavor = "multi_thread")]
async fn a_project_and_kinds_with_the_longest_names_can_be_deployed() {
    if !can_run().await {
        return;
    }
    is_current("hybrid-operator").unwrap();
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let cli = programs().join("hybrid-operator");
    let in_project = |program: &str, arguments: &str| {
        let arguments = format!("-C {} {program} {arguments}", directory.path().display());
        run(plane.kubeconfig_path(), "env", &arguments)
    };
    let cli = |arguments: &str| in_project(&cli.display().to_string(), arguments);
    let name = "p".repeat(36);
    cli(&format!("init --domain example.com --project-name {name}"));
    let chart = format!("C{}", "h".repeat(58));
    let native = format!("N{}", "a".repeat(58));
    let create = format!("create api --group shop --kind {native} --native --version");
    cli(&format!(
        "create api --group shop --version v1 --kind {chart}"
    ));
    cli(&format!("{create} v1"));
    cli(&format!("{create} v1beta1"));
    cli(&format!(
        "create webhook --group shop --version v1 --kind {native} --defaulting --conversion"
    ));
    in_project("kubectl", "apply -k config/default");
    in_project(
        "kubectl",
        "wait --for=condition=Established --timeout=60s customresourcedefinitions --all",
    );
    let created = in_project("kubectl", "apply -k config/samples");
    assert_eq!(created.lines().count(), 3, "{created}");
}

#[test]
fn targets_of_the_image_use_the_given_image_tool_and_platforms() {
    let output = run(
        Path::new(""),
        "make",
        "-s docker-build docker-push docker-buildx IMG=r.example.com/o:v9 PLATFORMS=linux/arm64 CONTAINER_TOOL=echo",
    );
    let builder = "memcached-operator-builder";
    assert_eq!(
        output.lines().collect::<Vec<_>>(),
        [
            "build -t r.example.com/o:v9 .".to_owned(),
            "push r.example.com/o:v9".to_owned(),
            format!("buildx create --name {builder}"),
            format!(
                "buildx build --builder {builder} --platform linux/arm64 --push -t r.example.com/o:v9 ."
            ),
            format!("buildx rm {builder}"),
        ]
    );
}

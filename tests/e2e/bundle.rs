//! What OLM creates from a bundle, created by the test: the definitions, the accounts with the permissions
//! of the `ClusterServiceVersion`, and the Deployment. The operator runs with the token of that account.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use hybrid_operator_test::control_plane::Options;
use hybrid_operator_test::process::Operator;
use hybrid_operator_test::wait;
use hybrid_operator_test::{ControlPlane, shared_or_skip};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::transcript::{is_current, programs};
use crate::world::{LIMIT, condition, define, program, root, until};

/// The namespace that the operator is installed into.
const OPERATORS: &str = "operators";

/// Makes a bundle of this repository's project.
fn bundle(directory: &Path) {
    is_current("hybrid-operator").unwrap();
    for part in ["config", "PROJECT"] {
        let copied = Command::new("cp")
            .arg("-r")
            .arg(root().join(part))
            .arg(directory)
            .status();
        assert!(copied.unwrap().success());
    }
    let made = Command::new(programs().join("hybrid-operator"))
        .args(["generate", "bundle", "--version", "0.1.0"])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
}

/// Returns the API of an object's kind in the operator's namespace, or of the cluster.
fn api_of(client: &Client, object: &Value, namespace: &str) -> Api<DynamicObject> {
    let text = |field: &str| object[field].as_str().unwrap();
    let (group, version) = text("apiVersion")
        .split_once('/')
        .unwrap_or(("", text("apiVersion")));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("kind")));
    if text("kind").starts_with("Cluster") || text("kind") == "Namespace" {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    }
}

async fn create(client: &Client, namespace: &str, object: Value) {
    let api = api_of(client, &object, namespace);
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Creates a role with rules and binds it to an account.
async fn grant(client: &Client, (role, binding): (&str, &str), permission: &Value) {
    let account = permission["serviceAccountName"].as_str().unwrap();
    let group = "rbac.authorization.k8s.io";
    let api_version = format!("{group}/v1");
    let rules = &permission["rules"];
    let object = json!({"apiVersion": api_version, "kind": role, "metadata": {"name": account}, "rules": rules});
    create(client, OPERATORS, object).await;
    let object = json!({
        "apiVersion": api_version, "kind": binding, "metadata": {"name": account},
        "roleRef": {"apiGroup": group, "kind": role, "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": OPERATORS}],
    });
    create(client, OPERATORS, object).await;
}

/// Creates what OLM creates for a bundle, and returns the `ClusterServiceVersion`.
async fn install(plane: &ControlPlane, client: &Client, bundle: &Path) -> Value {
    create(
        client,
        "",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OPERATORS}}),
    )
    .await;
    let mut csv = Value::Null;
    for entry in fs::read_dir(bundle.join("manifests")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let object: Value = go_yaml::from_str(&text).unwrap();
        match object["kind"].as_str().unwrap() {
            "ClusterServiceVersion" => csv = object,
            "CustomResourceDefinition" => define(plane, &text).await,
            _ => create(client, OPERATORS, object).await,
        }
    }
    let strategy = &csv["spec"]["install"]["spec"];
    let list = |name: &str| strategy[name].as_array().unwrap().clone();
    let (local, global) = (list("permissions"), list("clusterPermissions"));
    let accounts: BTreeSet<&str> = local
        .iter()
        .chain(&global)
        .map(|permission| permission["serviceAccountName"].as_str().unwrap())
        .collect();
    for account in accounts {
        let object =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}});
        create(client, OPERATORS, object).await;
    }
    for permission in &local {
        grant(client, ("Role", "RoleBinding"), permission).await;
    }
    for permission in &global {
        grant(client, ("ClusterRole", "ClusterRoleBinding"), permission).await;
    }
    for deployment in list("deployments") {
        let mut spec = deployment["spec"].clone();
        // The OperatorGroup selects all namespaces.
        spec["template"]["metadata"]["annotations"]["olm.targetNamespaces"] = json!("");
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "spec": spec,
            "metadata": {"name": deployment["name"], "labels": deployment["label"]},
        });
        create(client, OPERATORS, object).await;
    }
    csv
}

/// Writes a kubeconfig with the token of an account in place of the administrator's certificate.
async fn kubeconfig(plane: &ControlPlane, client: &Client, account: &str, path: &Path) {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), OPERATORS);
    let request = json!({"spec": {"audiences": [], "expirationSeconds": 3600}});
    let request = serde_json::from_value(request).unwrap();
    let created = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await;
    let token = created.unwrap().status.unwrap().token.unwrap();
    let text = fs::read_to_string(plane.kubeconfig_path()).unwrap();
    let mut config: Value = go_yaml::from_str(&text).unwrap();
    for user in config["users"].as_array_mut().unwrap() {
        user["user"] = json!({"token": token});
    }
    fs::write(path, config.to_string()).unwrap();
}

/// Returns the program with the arguments and the environment of a container, and addresses of this
/// machine.
fn operator(container: &Value) -> Operator {
    let mut operator = Operator::new(program())
        .args(["run", "--watches-file=./watches.yaml"])
        .dir(root());
    for arg in container["args"].as_array().unwrap() {
        let arg = arg.as_str().unwrap();
        operator = operator.arg(match arg.split_once('=') {
            Some((flag @ "--health-probe-bind-address", _)) => {
                format!("{flag}=127.0.0.1:{{probe_port}}")
            }
            Some((flag @ "--metrics-bind-address", _)) => {
                format!("{flag}=127.0.0.1:{{metrics_port}}")
            }
            _ => arg.to_owned(),
        });
    }
    for variable in container["env"].as_array().unwrap() {
        let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            Some("metadata.name") => "operator-0",
            Some("metadata.uid") => "00000000-0000-0000-0000-000000000001",
            Some("metadata.namespace") => OPERATORS,
            Some(other) => panic!("{other} is not known here"),
            None => variable["value"].as_str().unwrap(),
        };
        operator = operator.env(variable["name"].as_str().unwrap(), value);
    }
    operator
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_with_the_permissions_of_its_bundle_alone_makes_the_examples_ready() {
    if shared_or_skip().await.unwrap().is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let project = directory.path();
    bundle(project);
    // The operator watches all namespaces, so it cannot share the control plane of the other tests.
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let client = plane.client().await.unwrap();
    let csv = install(&plane, &client, &project.join("bundle")).await;
    let deployment = &csv["spec"]["install"]["spec"]["deployments"][0];
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), OPERATORS);
    let name = deployment["name"].as_str().unwrap();
    wait::deployment_available(&deployments, name, LIMIT)
        .await
        .unwrap();

    let pod = &deployment["spec"]["template"]["spec"];
    let config = project.join("kubeconfig");
    kubeconfig(
        &plane,
        &client,
        pod["serviceAccountName"].as_str().unwrap(),
        &config,
    )
    .await;
    let running = operator(&pod["containers"][0])
        .kubeconfig(&config)
        .start()
        .await
        .unwrap();
    let examples = csv["metadata"]["annotations"]["alm-examples"]
        .as_str()
        .unwrap();
    let examples: Vec<Value> = serde_json::from_str(examples).unwrap();
    assert_eq!(examples.len(), 2);
    for example in &examples {
        create(&client, "default", example.clone()).await;
    }
    for example in &examples {
        let api = api_of(&client, example, "default");
        let name = example["metadata"]["name"].as_str().unwrap();
        let ready =
            |object: &Value| condition(object, "Ready").is_some_and(|c| c["status"] == "True");
        let found = until(&api, name, "Ready", ready).await;
        found.unwrap_or_else(|error| panic!("{error}\n{}", running.log()));
    }
    let log = running.log();
    let refused = log
        .lines()
        .find(|line| line.contains("forbidden") || line.contains("no permission"));
    assert_eq!(refused, None, "{log}");
}

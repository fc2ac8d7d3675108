//! The container of a deployed operator: its account, arguments and environment, with which tests run the
//! program in its place. Nodes are simulated, so the container itself never runs.

use std::path::{Path, PathBuf};

use hybrid_operator_test::process::Operator;
use hybrid_operator_test::{ControlPlane, wait};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, Pod, ServiceAccount};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::world::LIMIT;

/// Selects the Deployment and the Pods of an operator.
pub(crate) const LABEL: &str = "control-plane=controller-manager";

/// Settings of the only container of an operator's Pod.
pub(crate) struct OperatorPod {
    pub(crate) namespace: String,
    pub(crate) account: String,
    pub(crate) image: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl OperatorPod {
    /// Waits for the Pod of the operator that is deployed in a namespace, as its Deployment is now.
    pub(crate) async fn of(client: &Client, namespace: &str) -> Self {
        let list = ListParams::default().labels(LABEL);
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let mut deployments = deployments.list(&list).await.unwrap().items;
        assert_eq!(deployments.len(), 1, "Deployments with {LABEL}");
        let wanted = deployments.remove(0).spec.unwrap().template.spec.unwrap();
        let given = |container: &Container| {
            let image = container.image.clone();
            (image, container.args.clone(), container.env.clone())
        };
        let wanted = given(&wanted.containers[0]);
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let created = async || {
            let mut pods = pods.list(&list).await.unwrap().items.into_iter();
            pods.find(|pod| given(&pod.spec.as_ref().unwrap().containers[0]) == wanted)
        };
        let pod = wait::until(LIMIT, "a Pod of the operator", created).await;
        Self::from_pod(&pod.unwrap())
    }

    /// Reads what a Pod says.
    pub(crate) fn from_pod(pod: &Pod) -> Self {
        let spec = pod.spec.as_ref().unwrap();
        let container = &spec.containers[0];
        Self {
            namespace: pod.namespace().unwrap(),
            account: spec.service_account_name.clone().unwrap(),
            image: container.image.clone().unwrap(),
            env: env(container, pod),
            args: container.args.clone().unwrap_or_default(),
        }
    }

    /// Adds the arguments and the environment, with addresses of this machine.
    pub(crate) fn given_to(&self, operator: Operator) -> Operator {
        let args = self.args.iter().map(|arg| match arg.split_once('=') {
            Some((flag @ "--health-probe-bind-address", _)) => {
                format!("{flag}=127.0.0.1:{{probe_port}}")
            }
            Some((flag @ "--metrics-bind-address", _)) => {
                format!("{flag}=127.0.0.1:{{metrics_port}}")
            }
            _ => arg.clone(),
        });
        let operator = operator.args(args);
        self.env.iter().fold(operator, |operator, (name, value)| {
            operator.env(name, value)
        })
    }

    /// Returns a token of the account.
    pub(crate) async fn token(&self, client: &Client) -> String {
        token(client, &self.namespace, &self.account).await
    }
}

/// Returns the environment as the kubelet would set it.
fn env(container: &Container, pod: &Pod) -> Vec<(String, String)> {
    let variables = container.env.iter().flatten();
    let value_of = |path: &str| match path {
        "metadata.name" => pod.name_any(),
        "metadata.uid" => pod.uid().unwrap(),
        "metadata.namespace" => pod.namespace().unwrap(),
        other => {
            let annotation = other.strip_prefix("metadata.annotations['");
            let annotation = annotation.and_then(|rest| rest.strip_suffix("']"));
            let annotation = annotation.unwrap_or_else(|| panic!("{other} is not known here"));
            pod.annotations()[annotation].clone()
        }
    };
    let value = |variable: &k8s_openapi::api::core::v1::EnvVar| {
        let field = variable.value_from.as_ref();
        let field = field.map(|source| source.field_ref.as_ref().unwrap());
        let field = field.map(|field| value_of(&field.field_path));
        field.or_else(|| variable.value.clone()).unwrap_or_default()
    };
    variables
        .map(|variable| (variable.name.clone(), value(variable)))
        .collect()
}

/// Returns a token of a service account that exists.
pub(crate) async fn token(client: &Client, namespace: &str, account: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request = json!({"spec": {"audiences": [], "expirationSeconds": 3600}});
    let request = serde_json::from_value(request).unwrap();
    let created = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await;
    created.unwrap().status.unwrap().token.unwrap()
}

/// Writes a kubeconfig with a token in place of the administrator's certificate.
pub(crate) fn kubeconfig(plane: &ControlPlane, token: &str, directory: &Path) -> PathBuf {
    let mut config = administrator(plane);
    for user in config["users"].as_array_mut().unwrap() {
        user["user"] = json!({"token": token});
    }
    let path = directory.join("kubeconfig");
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

/// Returns the certificate of the control plane's authority, PEM.
pub(crate) fn authority(plane: &ControlPlane) -> Vec<u8> {
    let config = administrator(plane);
    let cluster = &config["clusters"][0]["cluster"];
    match cluster["certificate-authority-data"].as_str() {
        Some(data) => data_encoding::BASE64.decode(data.as_bytes()).unwrap(),
        None => std::fs::read(cluster["certificate-authority"].as_str().unwrap()).unwrap(),
    }
}

fn administrator(plane: &ControlPlane) -> Value {
    let text = std::fs::read_to_string(plane.kubeconfig_path()).unwrap();
    go_yaml::from_str(&text).unwrap()
}

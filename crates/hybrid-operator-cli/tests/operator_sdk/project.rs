//! The project's files, and its manifests as kustomize builds `config/default`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hybrid_operator_test::wait;
use hybrid_operator_test::{ControlPlane, Operator, TestNamespace};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

/// Time limit of every wait.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

/// The only custom resource of the tests.
pub(crate) const NAME: &str = "store-sample";

/// Returns the directory of the project.
pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/operator_sdk/project")
}

/// Reads the YAML documents of a file of the project.
pub(crate) fn documents(file: &str) -> Vec<Value> {
    let text = std::fs::read(directory().join(file)).unwrap();
    go_yaml::documents(&text).unwrap()
}

/// Returns the API of an object's kind in a namespace.
pub(crate) fn api(namespace: &TestNamespace, api_version: &str, kind: &str) -> Api<DynamicObject> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    if matches!(
        kind,
        "ClusterRole" | "ClusterRoleBinding" | "CustomResourceDefinition"
    ) {
        return Api::all_with(namespace.client(), &resource);
    }
    Api::namespaced_with(namespace.client(), namespace.name(), &resource)
}

/// Returns the API of the project's custom resources.
pub(crate) fn stores(namespace: &TestNamespace) -> Api<DynamicObject> {
    api(namespace, "shop.example.org/v1alpha1", "Store")
}

/// Applies an object as `kubectl apply --server-side` does.
pub(crate) async fn apply(namespace: &TestNamespace, object: &Value) -> DynamicObject {
    let text = |field: &str| object[field].as_str().unwrap();
    let api = api(namespace, text("apiVersion"), text("kind"));
    let params = PatchParams::apply("kubectl").force();
    let name = object["metadata"]["name"].as_str().unwrap();
    api.patch(name, &params, &Patch::Apply(object))
        .await
        .unwrap()
}

/// Waits until an object exists and a condition holds for it, and returns it.
pub(crate) async fn until(
    api: &Api<DynamicObject>,
    name: &str,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Result<Value, wait::WaitError> {
    wait::holds(api, name, what, LIMIT, wanted).await
}

pub(crate) fn condition<'v>(object: &'v Value, type_: &str) -> Option<&'v Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|found| found["type"] == type_)
}

/// Returns whether a custom resource is ready at its current generation with a revision.
pub(crate) fn is_ready(object: &Value, revision: u32) -> bool {
    let status = &object["status"];
    condition(object, "Ready").is_some_and(|ready| ready["status"] == "True")
        && status["observedGeneration"] == object["metadata"]["generation"]
        && status["release"]["revision"] == revision
}

/// Installs the project's CRD and waits until it is served.
pub(crate) async fn define(namespace: &TestNamespace) {
    let crd = documents("config/crd/bases/shop.example.org_stores.yaml").remove(0);
    drop(apply(namespace, &crd).await);
    let version = "apiextensions.k8s.io/v1";
    let crds = api(namespace, version, "CustomResourceDefinition");
    let is_established =
        |crd: &Value| condition(crd, "Established").is_some_and(|found| found["status"] == "True");
    let name = "stores.shop.example.org";
    let established = until(&crds, name, "Established", is_established).await;
    drop(established.unwrap());
}

/// Returns the sample with further content of its spec.
pub(crate) fn sample(change: &Value) -> Value {
    let mut sample = documents("config/samples/shop_v1alpha1_store.yaml").remove(0);
    for (key, value) in change.as_object().unwrap() {
        sample["spec"][key] = value.clone();
    }
    sample
}

/// Applies the service account, roles and bindings of `config/rbac` with the namespace and a prefix, as
/// `config/default/kustomization.yaml` has them, and returns the name of the account.
pub(crate) async fn grant(namespace: &TestNamespace, prefix: &str) -> String {
    let prefixed = |name: &Value| json!(format!("{prefix}-{}", name.as_str().unwrap()));
    let files = "service_account role role_binding leader_election_role leader_election_role_binding \
        metrics_auth_role metrics_auth_role_binding";
    for file in files.split_whitespace() {
        for mut object in documents(&format!("config/rbac/{file}.yaml")) {
            object["metadata"]["name"] = prefixed(&object["metadata"]["name"]);
            if !object["metadata"]["namespace"].is_null() {
                object["metadata"]["namespace"] = json!(namespace.name());
            }
            if !object["roleRef"].is_null() {
                object["roleRef"]["name"] = prefixed(&object["roleRef"]["name"]);
                let subject = &mut object["subjects"][0];
                subject["name"] = prefixed(&subject["name"]);
                subject["namespace"] = json!(namespace.name());
            }
            drop(apply(namespace, &object).await);
        }
    }
    format!("{prefix}-controller-manager")
}

/// Writes a kubeconfig with a token of a service account, and returns its path.
pub(crate) async fn kubeconfig(
    plane: &ControlPlane,
    namespace: &TestNamespace,
    account: &str,
    directory: &Path,
) -> PathBuf {
    let accounts = namespace.api::<ServiceAccount>();
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: Some(3600),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let params = PostParams::default();
    let created = accounts.create_token_request(account, &params, &request);
    let token = created.await.unwrap().status.unwrap().token;
    let mut config = Kubeconfig::read_from(plane.kubeconfig_path()).unwrap();
    for user in &mut config.auth_infos {
        user.auth_info = serde_json::from_value(json!({"token": token})).unwrap();
    }
    let path = directory.join("kubeconfig");
    std::fs::write(&path, serde_json::to_string(&config).unwrap()).unwrap();
    path
}

/// Returns the operator as the manager's container runs it with the image replaced: the entry point of
/// the image, the arguments of `config/manager/manager.yaml` with the patches of `config/default`, and
/// the image's working directory. Only the ports differ: the container's own are fixed.
pub(crate) fn operator(entry_point: &Path) -> Operator {
    let deployment = documents("config/manager/manager.yaml").remove(1);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let args = |list: &Value| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|arg| arg.as_str().unwrap().to_owned()).collect()
    };
    let patches = documents("config/default/manager_metrics_patch.yaml").remove(0);
    let mut all = args(&container["args"]);
    for patch in patches.as_array().unwrap() {
        assert_eq!(patch["path"], "/spec/template/spec/containers/0/args/0");
        all.insert(0, patch["value"].as_str().unwrap().to_owned());
    }
    let all = all.iter().map(|arg| {
        let arg = arg.replace(":8443", "127.0.0.1:{metrics_port}");
        arg.replace(":8081", "127.0.0.1:{probe_port}")
    });
    Operator::new(entry_point)
        .args(["run", "--watches-file=./watches.yaml"])
        .args(all)
        .env("HOSTNAME", "store-operator-controller-manager-5d8c-x2x7p")
        .dir(directory())
}

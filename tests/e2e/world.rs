//! Setup shared by the tests: CRDs, a namespace, an operator.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hybrid_operator::helm::{self, HelmController};
use hybrid_operator::manager::Manager;
use hybrid_operator::options::{Options, RunArgs};
use hybrid_operator_test::fault::{Fault, Faults};
use hybrid_operator_test::process::RunningOperator;
use hybrid_operator_test::request::Recorded;
use hybrid_operator_test::wait::{self, Check};
use hybrid_operator_test::{ControlPlane, Operator, TestNamespace, shared_or_skip};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

/// Time limit of every wait.
pub(crate) const LIMIT: Duration = Duration::from_mins(3);

/// Returns the root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A namespace with an operator that watches only it.
pub(crate) struct World {
    pub(crate) plane: &'static ControlPlane,
    pub(crate) namespace: TestNamespace,
    pub(crate) operator: RunningOperator,
}

impl World {
    /// Starts the operator. Returns `None` if no control plane is available.
    pub(crate) async fn start(prefix: &str) -> Option<Self> {
        let plane = control_plane().await?;
        let namespace = TestNamespace::create(plane, prefix).await.unwrap();
        let operator = operator(plane, namespace.name(), &[])
            .start()
            .await
            .unwrap();
        Some(Self {
            plane,
            namespace,
            operator,
        })
    }

    /// Returns the API of a kind in this namespace.
    pub(crate) fn api(&self, kind: &str) -> Api<DynamicObject> {
        api(&self.namespace, kind)
    }

    /// Applies a Memcached and waits until it is ready at its current generation.
    pub(crate) async fn memcached(&self, name: &str, spec: Value) -> DynamicObject {
        apply(&self.api("Memcached"), name, &json!({"spec": spec})).await;
        self.ready("Memcached", name).await
    }

    /// Waits until a custom resource is ready at its current generation.
    pub(crate) async fn ready(&self, kind: &str, name: &str) -> DynamicObject {
        let found = wait::object(&self.api(kind), name, "Ready", LIMIT, is_ready).await;
        found.unwrap_or_else(|error| panic!("{error}\n{}", self.operator.log()))
    }

    /// Applies a Widget, the custom resource of a [`Project`]'s chart.
    pub(crate) async fn widget(&self, name: &str, spec: Value) {
        apply(&self.api("Widget"), name, &json!({"spec": spec})).await;
    }

    /// Annotates a Widget; null removes the annotation.
    pub(crate) async fn annotate(&self, name: &str, annotation: &str, value: Value) {
        let annotation = format!("helm.sdk.operatorframework.io/{annotation}");
        let patch = json!({"metadata": {"annotations": {annotation: value}}});
        merge(&self.api("Widget"), name, &patch).await;
    }

    /// Waits until a condition of a Widget is true and returns it.
    pub(crate) async fn is(&self, name: &str, type_: &str) -> Value {
        let holds = |cr: &Value| condition(cr, type_).is_some_and(|c| c["status"] == "True");
        let cr = self.until("Widget", name, type_, holds).await;
        condition(&cr, type_).unwrap().clone()
    }

    /// Waits until the data of a `ConfigMap` equal `data`.
    pub(crate) async fn data(&self, name: &str, data: Value) -> Value {
        self.until("ConfigMap", name, "its data", |map| map["data"] == data)
            .await
    }

    /// Returns the statuses of a release's records, oldest first.
    pub(crate) async fn history(&self, release: &str) -> Vec<String> {
        history(&self.namespace, release).await
    }

    /// Waits until the records of a release have these statuses. Objects are applied before the
    /// record says that they are deployed.
    pub(crate) async fn has_history(&self, release: &str, statuses: &[&str]) {
        let there = async || self.history(release).await == statuses;
        let there = wait::until(LIMIT, "the history", there).await;
        there.unwrap_or_else(|error| panic!("{error}\n{}", self.operator.log()));
    }

    /// Waits until a condition holds for an object.
    pub(crate) async fn until(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        until(&self.api(kind), name, what, wanted)
            .await
            .unwrap_or_else(|error| panic!("{error}\n{}", self.operator.log()))
    }

    /// Deletes an object and waits until it is gone.
    pub(crate) async fn remove(&self, kind: &str, name: &str) {
        let deleted = self.api(kind).delete(name, &DeleteParams::default()).await;
        drop(deleted.unwrap());
        self.gone(kind, name).await;
    }

    /// Waits until an object is gone.
    pub(crate) async fn gone(&self, kind: &str, name: &str) {
        let gone = wait::gone(&self.api(kind), name, LIMIT).await;
        gone.unwrap_or_else(|error| panic!("{error}\n{}", self.operator.log()));
    }
}

/// A temporary project: charts and a watches file in one folder.
pub(crate) struct Project {
    dir: tempfile::TempDir,
}

impl Project {
    /// Creates a project with a chart named `chart`, bound to the kind `Widget` with further
    /// `options` of its entry (YAML).
    pub(crate) fn new(options: &str, templates: &[(&str, &str)]) -> Self {
        let project = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        project.write("chart/Chart.yaml", CHART);
        for (name, text) in templates {
            project.write(&format!("chart/templates/{name}"), text);
        }
        let watches = format!(
            "- {{group: test.example.com, version: v1, kind: Widget, chart: chart{}{options}}}\n",
            if options.is_empty() { "" } else { ", " }
        );
        project.write("watches.yaml", &watches);
        project
    }

    /// Writes a file of the project.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Runs an operator of this project in a new namespace. Returns `None` if no control plane is
    /// available.
    pub(crate) async fn start(&self, prefix: &str) -> Option<World> {
        let plane = control_plane().await?;
        let namespace = TestNamespace::create(plane, prefix).await.unwrap();
        let operator = self
            .operator(plane, namespace.name())
            .start()
            .await
            .unwrap();
        Some(World {
            plane,
            namespace,
            operator,
        })
    }

    /// Runs an operator, makes a change, and crashes the operator at the `nth` request from now on
    /// for which `counts` returns true: before the server executes it ([`Fault::Unreachable`]) or
    /// after ([`Fault::AnswerLost`]). Returns false if `end` completes without a crash.
    pub(crate) async fn crash_at(
        &self,
        plane: &ControlPlane,
        namespace: &TestNamespace,
        (nth, fault): (usize, Fault),
        counts: impl Fn(&Recorded) -> bool + Send + 'static,
        change: impl Future<Output = ()>,
        end: impl Future<Output = ()>,
    ) -> bool {
        let faults = Faults::new();
        let client = plane.client_with(&faults).await.unwrap();
        faults.stop_at(nth, fault, counts);
        let operator = InProcessOperator::start(self, client, namespace.name());
        change.await;
        tokio::select! {
            () = injected(&faults) => {}
            () = end => {}
        }
        drop(operator);
        faults.was_injected()
    }

    pub(crate) fn watches_file(&self) -> PathBuf {
        self.dir.path().join("watches.yaml")
    }

    /// Returns an operator of this project.
    pub(crate) fn operator(&self, plane: &ControlPlane, namespaces: &str) -> Operator {
        let file = self.dir.path().join("watches.yaml").display().to_string();
        operator(plane, namespaces, &["--watches-file", &file])
    }
}

/// An operator of a project in this process. Dropping it stops it without any cleanup.
pub(crate) struct InProcessOperator(Option<tokio::runtime::Runtime>);

impl InProcessOperator {
    pub(crate) fn start(project: &Project, client: Client, namespace: &str) -> Self {
        Self::extended(project, client, namespace, |chart| chart)
    }

    /// Starts it with `extend` applied to the controllers of the charts.
    pub(crate) fn extended(
        project: &Project,
        client: Client,
        namespace: &str,
        extend: impl Fn(HelmController) -> HelmController,
    ) -> Self {
        Self::with(project, client, namespace, extend, |_| {})
    }

    /// Starts it with changed options.
    pub(crate) fn with(
        project: &Project,
        client: Client,
        namespace: &str,
        extend: impl Fn(HelmController) -> HelmController,
        change: impl FnOnce(&mut Options),
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let args = <RunArgs as clap::Parser>::parse_from([
            "run",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
        ]);
        let name = namespace.to_owned();
        let mut options = args.options(|variable| match variable {
            "WATCH_NAMESPACE" | "OPERATOR_NAME" | "POD_NAME" => Some(name.clone()),
            _ => None,
        });
        options.watches_file = project.watches_file();
        change(&mut options);
        let charts = helm::load(&options.watches_file).unwrap();
        let manager = charts
            .into_iter()
            .map(extend)
            .fold(Manager::new(options).client(client), Manager::with);
        runtime.spawn(manager.run_until(CancellationToken::new()));
        Self(Some(runtime))
    }
}

impl Drop for InProcessOperator {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

const CHART: &str = "apiVersion: v2\nname: chart\nversion: 0.1.0\n";

/// A schema that accepts everything.
pub(crate) const ANYTHING: &str = "{type: object, x-kubernetes-preserve-unknown-fields: true}";

/// Returns the CRD of a kind.
pub(crate) fn definition_of(group: &str, kind: &str, scope: &str, schema: &str) -> String {
    let one = kind.to_lowercase();
    format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {one}s.{group}}}
spec:
  group: {group}
  names: {{kind: {kind}, listKind: {kind}List, plural: {one}s, singular: {one}}}
  scope: {scope}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {{status: {{}}}}
    schema: {{openAPIV3Schema: {schema}}}
"
    )
}

/// Returns the shared control plane with the CRDs of the tests installed.
pub(crate) async fn control_plane() -> Option<&'static ControlPlane> {
    static DEFINED: OnceCell<()> = OnceCell::const_new();
    let plane = shared_or_skip().await.unwrap()?;
    let define = || async {
        for file in ["memcacheds", "memcachedbackups"] {
            let path = root().join(format!("config/crd/bases/cache.example.com_{file}.yaml"));
            define(plane, &std::fs::read_to_string(path).unwrap()).await;
        }
        for (kind, scope) in [
            ("Widget", "Namespaced"),
            ("Gadget", "Namespaced"),
            ("GlobalCache", "Cluster"),
        ] {
            define(
                plane,
                &definition_of("test.example.com", kind, scope, ANYTHING),
            )
            .await;
        }
    };
    DEFINED.get_or_init(define).await;
    Some(plane)
}

/// Installs a CRD and waits until it is served.
pub(crate) async fn define(plane: &ControlPlane, definition: &str) {
    let object: DynamicObject = go_yaml::from_str(definition).unwrap();
    let name = object.metadata.name.clone().unwrap();
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let client = plane.client().await.unwrap();
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    let params = PatchParams::apply("e2e").force();
    api.patch(&name, &params, &Patch::Apply(&object))
        .await
        .unwrap();
    until(&api, &name, "Established", |definition| {
        condition(definition, "Established").is_some_and(|c| c["status"] == "True")
    })
    .await
    .unwrap();
    // The server answers 404 for a moment more.
    let spec = &object.data["spec"];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let versions = spec["versions"].as_array().unwrap().iter();
    for version in versions.filter(|version| version["served"] == true) {
        let gvk = GroupVersionKind {
            group: text(&spec["group"]),
            version: text(&version["name"]),
            kind: text(&spec["names"]["kind"]),
        };
        let is_served = async || kube::discovery::pinned_kind(&client, &gvk).await.is_ok();
        wait::until(LIMIT, &name, is_served).await.unwrap();
    }
}

/// Returns an operator process that watches a comma-separated list of namespaces under its own
/// identity.
pub(crate) fn operator(plane: &ControlPlane, namespaces: &str, args: &[&str]) -> Operator {
    let name: String = namespaces
        .chars()
        .map(|c| if c == ',' { '-' } else { c })
        .collect();
    Operator::new(program())
        .arg("run")
        .args(["--zap-log-level=debug"])
        .args(["--health-probe-bind-address", "127.0.0.1:{probe_port}"])
        .args(["--metrics-bind-address", "127.0.0.1:{metrics_port}"])
        .args(args.iter().copied())
        .env("WATCH_NAMESPACE", namespaces)
        .env("OPERATOR_NAME", name)
        .kubeconfig(plane.kubeconfig_path())
        .dir(root())
}

/// Returns the path of the operator's program.
pub(crate) fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_memcached-operator"))
}

pub(crate) fn api(namespace: &TestNamespace, kind: &str) -> Api<DynamicObject> {
    Api::namespaced_with(namespace.client(), namespace.name(), &resource(kind))
}

/// Returns the API of a kind whose group is not in [`KINDS`].
pub(crate) fn api_of(namespace: &TestNamespace, group: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    Api::namespaced_with(namespace.client(), namespace.name(), &resource)
}

/// Creates an object of such a kind with an empty spec.
pub(crate) async fn create(api: &Api<DynamicObject>, group: &str, kind: &str, name: &str) {
    let object = json!({
        "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": name}, "spec": {},
    });
    let object = serde_json::from_value(object).unwrap();
    let created = api.create(&PostParams::default(), &object).await;
    drop(created.unwrap());
}

/// Returns the API of a cluster-scoped kind.
pub(crate) fn cluster_api(namespace: &TestNamespace, kind: &str) -> Api<DynamicObject> {
    Api::all_with(namespace.client(), &resource(kind))
}

/// Deletes a CRD and waits until it is gone. The API server tries that again with pauses that double after each
/// failure, of which there are several while it has little processor time.
pub(crate) async fn undefine(namespace: &TestNamespace, name: &str) {
    let definitions = cluster_api(namespace, "CustomResourceDefinition");
    let deleted = definitions.delete(name, &DeleteParams::default()).await;
    drop(deleted.unwrap());
    wait::gone(&definitions, name, 5 * LIMIT).await.unwrap();
}

/// The kinds that the tests apply.
const KINDS: &[&str] = &[
    "Memcached",
    "MemcachedBackup",
    "GlobalCache",
    "Widget",
    "Gadget",
    "Deployment",
    "ConfigMap",
    "Secret",
    "Job",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ResourceQuota",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
];

/// Returns the API resource of a kind in [`KINDS`].
pub(crate) fn resource(kind: &str) -> ApiResource {
    let (group, version) = match kind {
        "Memcached" | "MemcachedBackup" => ("cache.example.com", "v1alpha1"),
        "GlobalCache" | "Widget" | "Gadget" => ("test.example.com", "v1"),
        "Deployment" | "StatefulSet" => ("apps", "v1"),
        "CustomResourceDefinition" => ("apiextensions.k8s.io", "v1"),
        "ValidatingAdmissionPolicy"
        | "ValidatingAdmissionPolicyBinding"
        | "ValidatingWebhookConfiguration" => ("admissionregistration.k8s.io", "v1"),
        "Job" => ("batch", "v1"),
        "Lease" => ("coordination.k8s.io", "v1"),
        "Role" | "RoleBinding" | "ClusterRole" | "ClusterRoleBinding" => {
            ("rbac.authorization.k8s.io", "v1")
        }
        _ => ("", "v1"),
    };
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// Applies an object, given its content without the name.
pub(crate) async fn apply(api: &Api<DynamicObject>, name: &str, content: &Value) {
    let url = api.resource_url();
    let plural = url.rsplit('/').next().unwrap_or_default();
    let resource = KINDS
        .iter()
        .map(|kind| resource(kind))
        .find(|resource| resource.plural == plural)
        .unwrap();
    let mut object = content.clone();
    object["apiVersion"] = json!(resource.api_version);
    object["kind"] = json!(resource.kind);
    object["metadata"]["name"] = json!(name);
    let params = PatchParams::apply("e2e").force();
    api.patch(name, &params, &Patch::Apply(&object))
        .await
        .unwrap();
}

/// Applies a merge patch under another field manager.
pub(crate) async fn merge(api: &Api<DynamicObject>, name: &str, patch: &Value) {
    let params = PatchParams {
        field_manager: Some("an-editor".to_owned()),
        ..PatchParams::default()
    };
    api.patch(name, &params, &Patch::Merge(patch))
        .await
        .unwrap();
}

/// Waits until a condition holds for an object and returns it.
pub(crate) async fn until(
    api: &Api<DynamicObject>,
    name: &str,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Result<Value, wait::WaitError> {
    wait::object(api, name, what, LIMIT, |object| {
        let value = serde_json::to_value(object).unwrap();
        if wanted(&value) {
            Check::Met(value)
        } else {
            Check::NotYet(serde_json::to_string_pretty(&value).unwrap())
        }
    })
    .await
}

/// Returns the statuses of the records of a release, oldest first.
pub(crate) async fn history(namespace: &TestNamespace, release: &str) -> Vec<String> {
    let labels = format!("owner=helm,name={release}");
    let list = ListParams::default().labels(&labels);
    let mut records: Vec<(u32, String)> = api(namespace, "Secret")
        .list(&list)
        .await
        .unwrap()
        .items
        .into_iter()
        .map(|secret| {
            let labels = secret.metadata.labels.unwrap();
            (labels["version"].parse().unwrap(), labels["status"].clone())
        })
        .collect();
    records.sort_unstable();
    records.into_iter().map(|(_, status)| status).collect()
}

/// Waits until the planned fault has been injected.
pub(crate) async fn injected(faults: &Faults) {
    let injected = async || faults.was_injected();
    wait::until(LIMIT, "the fault", injected).await.unwrap();
}

pub(crate) fn condition<'v>(object: &'v Value, type_: &str) -> Option<&'v Value> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == type_)
}

fn is_ready(object: Option<&DynamicObject>) -> Check<DynamicObject> {
    let Some(object) = object else {
        return Check::NotYet("absent".to_owned());
    };
    let value = serde_json::to_value(object).unwrap();
    let ready = condition(&value, "Ready").is_some_and(|c| c["status"] == "True");
    if ready && value["status"]["observedGeneration"] == value["metadata"]["generation"] {
        Check::Met(object.clone())
    } else {
        Check::NotYet(serde_json::to_string_pretty(&value["status"]).unwrap())
    }
}

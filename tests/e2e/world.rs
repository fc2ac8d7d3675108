//! Setup shared by the tests: CRDs, a namespace, an operator.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hybrid_operator_test::fault::{Fault, Faults};
use hybrid_operator_test::process::RunningOperator;
use hybrid_operator_test::request::Recorded;
use hybrid_operator_test::{ControlPlane, Operator, TestNamespace, shared_or_skip, wait};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

pub(crate) use self::project::{InProcessOperator, Project, entry, free_address, options};
pub(crate) use self::waits::{
    condition, delete, eventually, gone, has_condition, holds, injected, is_false, is_ready,
    is_true, ready_at, remove, says, try_until, until,
};

mod project;
mod waits;

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
    _project: Option<Project>,
}

impl World {
    /// Starts the operator in a new namespace. Returns `None` if no control plane is available.
    pub(crate) async fn start(prefix: &str) -> Option<Self> {
        Self::with(prefix, |plane, name| operator(plane, name, &[])).await
    }

    /// Starts the operator of a new [`Project`] in a new namespace. Returns `None` if no control
    /// plane is available.
    pub(crate) async fn of(
        prefix: &str,
        options: &str,
        templates: &[(&str, &str)],
    ) -> Option<Self> {
        let project = Project::new(options, templates);
        let world = project.start(prefix).await?;
        Some(Self {
            _project: Some(project),
            ..world
        })
    }

    /// Starts what `operator` returns for a new namespace. Returns `None` if no control plane is
    /// available.
    pub(crate) async fn with(
        prefix: &str,
        operator: impl FnOnce(&ControlPlane, &str) -> Operator,
    ) -> Option<Self> {
        let (plane, namespace) = new_namespace(prefix).await?;
        let operator = operator(plane, namespace.name());
        Some(Self::run(plane, operator, namespace).await)
    }

    /// Starts an operator of this namespace.
    pub(crate) async fn run(
        plane: &'static ControlPlane,
        operator: Operator,
        namespace: TestNamespace,
    ) -> Self {
        let operator = operator.start().await.unwrap();
        Self {
            plane,
            namespace,
            operator,
            _project: None,
        }
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
        let ready = |cr: &Value| {
            is_true(cr, "Ready")
                && cr["status"]["observedGeneration"] == cr["metadata"]["generation"]
        };
        let found = self.until(kind, name, "Ready", ready).await;
        serde_json::from_value(found).unwrap()
    }

    /// Applies a Widget, the custom resource of a [`Project`]'s chart.
    pub(crate) async fn widget(&self, name: &str, spec: Value) {
        apply(&self.api("Widget"), name, &json!({"spec": spec})).await;
    }

    /// Applies a Widget whose chart then has an object that the API server rejects.
    pub(crate) async fn bad(&self, name: &str, value: &str) {
        self.widget(name, json!({"value": value, "bad": true}))
            .await;
    }

    /// Applies a Widget and waits until it is ready at its current generation.
    pub(crate) async fn deploy(&self, name: &str, spec: Value) -> DynamicObject {
        self.widget(name, spec).await;
        self.ready("Widget", name).await
    }

    /// Returns an object that exists.
    pub(crate) async fn get(&self, kind: &str, name: &str) -> DynamicObject {
        self.api(kind).get(name).await.unwrap()
    }

    /// Annotates a Widget; null removes the annotation.
    pub(crate) async fn annotate(&self, name: &str, annotation: &str, value: Value) {
        let annotation = format!("helm.sdk.operatorframework.io/{annotation}");
        let patch = json!({"metadata": {"annotations": {annotation: value}}});
        merge(&self.api("Widget"), name, &patch).await;
    }

    /// Runs the helm command, which must succeed, in this namespace and returns its output.
    #[track_caller]
    pub(crate) fn helm(&self, program: &Path, args: &[&str]) -> String {
        output(
            Command::new(program)
                .args(args)
                .args(["--namespace", self.namespace.name()])
                .env("KUBECONFIG", self.plane.kubeconfig_path()),
        )
    }

    /// Waits until a condition of a Widget is true and returns it.
    pub(crate) async fn is(&self, name: &str, type_: &str) -> Value {
        let holds = |cr: &Value| is_true(cr, type_);
        let cr = self.until("Widget", name, type_, holds).await;
        condition(&cr, type_).unwrap().clone()
    }

    /// Waits until a condition of a Widget is true and returns its message.
    pub(crate) async fn message(&self, name: &str, type_: &str) -> String {
        let condition = self.is(name, type_).await;
        condition["message"].as_str().unwrap().to_owned()
    }

    /// Waits until a revision of a Widget is deployed and ready.
    pub(crate) async fn revision(&self, name: &str, revision: u32) -> Value {
        let ready = ready_at(revision);
        self.until("Widget", name, "the revision", ready).await
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
        eventually("the history", there).await;
    }

    /// Waits until a condition holds for an object.
    pub(crate) async fn until(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        until(&self.api(kind), name, what, wanted).await
    }

    /// Limits the number of `ConfigMap`s of the namespace, and waits until that is in force.
    pub(crate) async fn limit_maps(&self, maps: u32) {
        let hard = json!({"spec": {"hard": {"configmaps": maps.to_string()}}});
        apply(&self.api("ResourceQuota"), "few", &hard).await;
        let in_force = |quota: &Value| quota["status"]["hard"] == hard["spec"]["hard"];
        self.until("ResourceQuota", "few", "in force", in_force)
            .await;
    }

    /// Waits until an object exists.
    pub(crate) async fn there(&self, kind: &str, name: &str) -> Value {
        self.until(kind, name, "there", |_| true).await
    }

    /// Deletes an object and waits until it is gone.
    pub(crate) async fn remove(&self, kind: &str, name: &str) {
        delete(&self.api(kind), name).await;
        self.gone(kind, name).await;
    }

    /// Waits until an object is gone.
    pub(crate) async fn gone(&self, kind: &str, name: &str) {
        gone(&self.api(kind), name).await;
    }
}

/// A `ConfigMap` of a chart, with the value of the custom resource.
pub(crate) const MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data: {value: {{ .Values.value | default \"none\" | quote }}}
";

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
            let definition = definition_of("test.example.com", kind, scope, ANYTHING);
            define(plane, &definition).await;
        }
    };
    DEFINED.get_or_init(define).await;
    Some(plane)
}

/// Creates a namespace on the shared control plane. Returns `None` if that is not available.
pub(crate) async fn new_namespace(prefix: &str) -> Option<(&'static ControlPlane, TestNamespace)> {
    let plane = control_plane().await?;
    Some((plane, namespace_of(plane, prefix).await))
}

pub(crate) async fn namespace_of(plane: &ControlPlane, prefix: &str) -> TestNamespace {
    TestNamespace::create(plane, prefix).await.unwrap()
}

/// Installs the CRD of a namespaced kind that accepts everything and waits until it is served.
pub(crate) async fn define_kind(plane: &ControlPlane, group: &str, kind: &str) {
    define(plane, &definition_of(group, kind, "Namespaced", ANYTHING)).await;
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
    until(&api, &name, "Established", holds("Established")).await;
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
        eventually(&name, is_served).await;
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

/// Returns the sum of the samples of metrics whose lines begin with a text.
pub(crate) fn sum_of(metrics: &str, begin: &str) -> u64 {
    let lines = metrics.lines().filter(|line| line.starts_with(begin));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    values.sum()
}

/// Runs a command, which must succeed, and returns its standard output.
#[track_caller]
pub(crate) fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{text}{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the path of the operator's program.
pub(crate) fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_memcached-operator"))
}

pub(crate) fn api(namespace: &TestNamespace, kind: &str) -> Api<DynamicObject> {
    namespace.objects(&resource(kind))
}

/// Returns the API of a kind in another namespace.
pub(crate) fn api_in(namespace: &TestNamespace, other: &str, kind: &str) -> Api<DynamicObject> {
    Api::namespaced_with(namespace.client(), other, &resource(kind))
}

/// Returns the API of a kind whose group is not in [`KINDS`].
pub(crate) fn api_of(namespace: &TestNamespace, group: &str, kind: &str) -> Api<DynamicObject> {
    namespace.objects(&ApiResource::from_gvk(&GroupVersionKind::gvk(
        group, "v1", kind,
    )))
}

/// Creates an object of such a kind with an empty spec.
pub(crate) async fn create_empty(api: &Api<DynamicObject>, group: &str, kind: &str, name: &str) {
    let object = json!({
        "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": name}, "spec": {},
    });
    create(api, object).await;
}

/// Creates an object.
pub(crate) async fn create(api: &Api<DynamicObject>, object: Value) {
    let object = serde_json::from_value(object).unwrap();
    drop(api.create(&PostParams::default(), &object).await.unwrap());
}

/// Grants rules to a subject in a namespace.
pub(crate) async fn grant(namespace: &TestNamespace, name: &str, subject: Value, rules: Value) {
    apply(&api(namespace, "Role"), name, &json!({"rules": rules})).await;
    let binding = json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [subject],
    });
    apply(&api(namespace, "RoleBinding"), name, &binding).await;
}

/// Returns the subject of a role binding that is a user or a group.
pub(crate) fn subject(kind: &str, name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name})
}

/// Sets the condition `Ready` of a custom resource.
pub(crate) async fn set_ready(api: &Api<DynamicObject>, name: &str, status: &str) {
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": status,
        "reason": "Test", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}});
    let patch = Patch::Merge(&ready);
    let patched = api
        .patch_status(name, &PatchParams::default(), &patch)
        .await;
    drop(patched.unwrap());
}

/// Sets the replicas of a Deployment to 5, as an autoscaler does.
pub(crate) async fn autoscale(deployments: &Api<DynamicObject>, name: &str) {
    let params = PatchParams {
        field_manager: Some("kube-controller-manager".to_owned()),
        ..PatchParams::default()
    };
    let scale = Patch::Merge(json!({"spec": {"replicas": 5}}));
    let scaled = deployments.patch_scale(name, &params, &scale).await;
    assert_eq!(scaled.unwrap().spec.unwrap().replicas, Some(5));
}

/// Rejects all writes to the `ConfigMap` of this name.
pub(crate) fn refuse(faults: &Faults, name: &'static str) {
    faults.inject_with(move |request| is_write_to(request, name).then_some(Fault::Status(403)));
}

/// Returns whether a request writes to the `ConfigMap` of this name.
pub(crate) fn is_write_to(request: &Recorded, name: &str) -> bool {
    let body = request.body.as_ref();
    let made = body.is_some_and(|body| body["metadata"]["name"] == name);
    request.resource == "configmaps"
        && request.method != http::Method::GET
        && (made || request.name.as_deref() == Some(name))
}

/// Returns the API of a cluster-scoped kind.
pub(crate) fn cluster_api(namespace: &TestNamespace, kind: &str) -> Api<DynamicObject> {
    Api::all_with(namespace.client(), &resource(kind))
}

/// Deletes a CRD and waits until it is gone. The API server tries that again with pauses that
/// double after each failure, of which there are several while it has little processor time.
pub(crate) async fn undefine(namespace: &TestNamespace, name: &str) {
    let definitions = cluster_api(namespace, "CustomResourceDefinition");
    delete(&definitions, name).await;
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
    "ClusterRoleBinding",
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

/// Applies a custom resource and waits until it is ready.
pub(crate) async fn deploy(api: &Api<DynamicObject>, name: &str, spec: Value) {
    apply(api, name, &json!({"spec": spec})).await;
    until(api, name, "Ready", is_ready).await;
}

/// Returns whether an object exists.
pub(crate) async fn exists(api: &Api<DynamicObject>, name: &str) -> bool {
    api.get_opt(name).await.unwrap().is_some()
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

/// Returns the revision that the status of a custom resource has.
pub(crate) fn revision_of(custom_resource: &DynamicObject) -> &Value {
    &custom_resource.data["status"]["release"]["revision"]
}

/// Returns the records of a release.
pub(crate) async fn records(namespace: &TestNamespace, release: &str) -> Vec<DynamicObject> {
    let list = ListParams::default().labels(&format!("owner=helm,name={release}"));
    api(namespace, "Secret").list(&list).await.unwrap().items
}

/// Returns the statuses of the records of a release, oldest first.
pub(crate) async fn history(namespace: &TestNamespace, release: &str) -> Vec<String> {
    let records = records(namespace, release).await.into_iter();
    let labels = records.map(|record| record.metadata.labels.unwrap());
    let mut statuses: Vec<(u32, String)> = labels
        .map(|labels| (labels["version"].parse().unwrap(), labels["status"].clone()))
        .collect();
    statuses.sort_unstable();
    statuses.into_iter().map(|(_, status)| status).collect()
}

/// Returns the events in a namespace.
pub(crate) async fn events(namespace: &TestNamespace) -> Vec<DynamicObject> {
    let events = api(namespace, "Event").list(&ListParams::default()).await;
    events.unwrap().items
}

/// Returns whether there is an event with a reason.
pub(crate) async fn has_event(namespace: &TestNamespace, reason: &str) -> bool {
    let events = events(namespace).await;
    events.iter().any(|event| event.data["reason"] == reason)
}

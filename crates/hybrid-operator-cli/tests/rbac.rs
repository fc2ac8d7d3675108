//! `hybrid-operator generate rbac`: its files, and an operator that has only the permissions that it
//! generates.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hybrid_operator_test::http_server::Reply;
use hybrid_operator_test::wait::{self, Check};
use hybrid_operator_test::{
    ControlPlane, HttpServer, TestNamespace, packaged_chart, shared_or_skip,
};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use support::{Done, PROGRAM, Project, Text as _, definition, operator, or_skip};

const LIMIT: Duration = Duration::from_mins(1);

impl Project {
    /// Runs the generator with arguments that are separated by spaces.
    fn run(&self, arguments: &str) -> Done {
        let program = Command::new(PROGRAM)
            .args(["generate", "rbac"])
            .args(arguments.split_whitespace())
            // Stands in for cargo, where the project has code.
            .env("CARGO", self.path("cargo"))
            .env("CHART_CACHE", self.path("cache"))
            .current_dir(self.0.path())
            .output();
        Done::of(program.unwrap())
    }

    /// Runs the generator and returns what it prints.
    fn generate(&self, arguments: &str) -> String {
        let done = self.run(arguments);
        assert_eq!(done.code, Some(0), "{}", done.err);
        done.out + &done.err
    }

    /// Checks the files, which must be out of date, and returns how they differ.
    fn outdated(&self) -> String {
        let done = self.run("--check");
        assert_eq!(done.code, Some(3), "{}", done.err);
        done.out
    }

    /// Reads a file with one object below `config/rbac`.
    fn object(&self, file: &str) -> Value {
        go_yaml::from_str(&self.read(&format!("config/rbac/{file}"))).unwrap()
    }
}

const WATCHES: &str =
    "- {group: shop.example.com, version: v1, kind: Shop, chart: helm-charts/shop}\n";
const CHART: &str = "apiVersion: v2\nname: shop\nversion: 0.1.0\n";
const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}'}\n";

fn shop(template: &str) -> Project {
    Project::with(&[
        ("watches.yaml", WATCHES),
        ("helm-charts/shop/Chart.yaml", CHART),
        ("helm-charts/shop/templates/a.yaml", template),
    ])
}

#[test]
fn a_second_run_changes_nothing_and_check_tells_what_is_out_of_date() {
    let project = shop(MAP);
    let missing = project.outdated();
    missing.must_have("missing config/rbac/charts/shop_role.yaml\n");
    assert!(!project.path("config").exists());
    let first = project.generate("");
    first.must_have("created config/rbac/charts/shop_role.yaml\n");
    assert_eq!(project.generate(""), "");
    assert_eq!(project.generate("--check"), "");
    let service = MAP.replace("ConfigMap", "Service");
    project.write("helm-charts/shop/templates/b.yaml", &service);
    let diff = project.outdated();
    diff.must_have("+  resources: [configmaps, services]");
    let file = "--- a/config/rbac/charts/shop_role.yaml\n";
    assert!(diff.starts_with(file), "{diff}");
}

#[test]
fn plurals_are_those_of_the_project_file_or_of_kubebuilder() {
    let rules = |project: &Project| {
        project.generate("");
        project.read("config/rbac/charts/shop_role.yaml")
    };
    let project = shop(MAP);
    project.write("watches.yaml", &WATCHES.replace("Shop", "Photo"));
    let regular = rules(&project);
    regular.must_have("[photos]");
    let file = "domain: example.com\nlayout:\n- helm.sdk.operatorframework.io/v1\nprojectName: shop\nresources:\n\
                - api: {crdVersion: v1, namespaced: true}\n  domain: example.com\n  group: shop\n  kind: Photo\n  plural: photoes\n  version: v1\n\
                version: \"3\"\n";
    project.write("PROJECT", file);
    let given = project.generate("--prune") + &project.read("config/rbac/charts/shop_role.yaml");
    given.must_have("[photoes]");
    given.must_lack("[photos]");
}

#[test]
fn every_file_is_in_the_kustomization() {
    let project = shop(MAP);
    project.generate("");
    let kustomization = project.object("kustomization.yaml");
    let resources = kustomization["resources"].as_array().unwrap().iter();
    let mut listed: Vec<&str> = resources.map(|file| file.as_str().unwrap()).collect();
    listed.sort_unstable();
    let wanted = "\
        charts/shop_role.yaml charts/shop_role_binding.yaml leader_election_role.yaml \
        leader_election_role_binding.yaml metrics_auth_role.yaml metrics_auth_role_binding.yaml \
        metrics_reader_role.yaml operator_role.yaml operator_role_binding.yaml \
        service_account.yaml shop_admin_role.yaml shop_editor_role.yaml shop_viewer_role.yaml";
    assert_eq!(listed, wanted.split(' ').collect::<Vec<_>>());
    for file in listed {
        let object = project.object(file);
        assert!(object["kind"].is_string(), "{file}: {object}");
    }
}

#[test]
fn admission_brings_a_service_and_permissions_that_a_project_with_webhooks_has() {
    let project = shop(MAP);
    let watches = WATCHES.replace('}', ", admission: render}");
    project.write("watches.yaml", &watches);
    project.generate("");
    let kustomization = project.read("config/rbac/kustomization.yaml");
    for file in ["role", "role_binding", "service"] {
        kustomization.must_have(&format!("- admission/{file}.yaml\n"));
    }
    let service = project.object("admission/service.yaml");
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 9443);
    let role = project.read("config/rbac/admission/role.yaml");
    role.must_have("validatingwebhookconfigurations");
    role.must_have("resources: [secrets]");
    project.write("config/webhook/service.yaml", "");
    let stale = project.generate("");
    stale.must_have("admission/service.yaml is for no entry with `admission`");
    let other = shop(MAP);
    other.write("watches.yaml", &watches);
    other.write("config/webhook/service.yaml", "");
    other.generate("");
    assert!(!other.path("config/rbac/admission").exists());
}

#[test]
fn files_of_the_project_itself_are_kept() {
    let project = shop(MAP);
    let role = "# mine\nkind: ClusterRole\n";
    project.write("config/rbac/operator_role.yaml", role);
    let own = "# mine\nresources:\n- own.yaml # why\n";
    project.write("config/rbac/kustomization.yaml", own);
    project.generate("");
    assert_eq!(project.read("config/rbac/operator_role.yaml"), role);
    let kustomization = project.read("config/rbac/kustomization.yaml");
    assert!(kustomization.starts_with(own), "{kustomization}");
}

#[test]
fn kinds_of_earlier_versions_stay_until_they_are_pruned() {
    let role = "config/rbac/charts/shop_role.yaml";
    let project = shop(MAP);
    project.generate("");
    let service = MAP.replace("ConfigMap", "Service");
    project.write("helm-charts/shop/templates/a.yaml", &service);
    project.generate("");
    let kept = project.read(role);
    let comment = "# Of an earlier version of the chart";
    let (_, earlier) = kept.split_once(comment).unwrap();
    earlier.must_have("resources: [configmaps]");
    assert_eq!(project.generate(""), "");
    project.generate("--prune");
    let pruned = project.read(role);
    pruned.must_lack("configmaps");
    // The same from an earlier chart instead of the earlier file.
    project.write("old/Chart.yaml", CHART);
    project.write("old/templates/a.yaml", MAP);
    project.generate("--previous-chart old");
    assert_eq!(project.read(role), kept);
}

#[test]
fn charts_of_one_name_do_not_overwrite_each_other() {
    let project = shop(MAP);
    project.write("other/Chart.yaml", CHART);
    let store = "- {group: shop.example.com, version: v1, kind: Store, chart: other}\n";
    project.write("watches.yaml", &format!("{WATCHES}{store}"));
    project.generate("");
    for (kind, plural) in [("shop", "shops"), ("store", "stores")] {
        let role = project.read(&format!("config/rbac/charts/shop-{kind}_role.yaml"));
        role.must_have(&format!("resources: [{plural}]"));
    }
}

#[test]
fn reasons_and_what_was_not_reached_are_explained() {
    let project = shop(
        "{{ if eq .Values.kind \"b\" }}\napiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\n{{ end }}\n\
         {{ if and .Values.a (not .Values.a) }}\napiVersion: v1\nkind: Secret\n{{ end }}\n",
    );
    project.write("helm-charts/shop/values.yaml", "kind: a\n");
    let text = project.generate("--explain");
    let mut lines = text.lines();
    let cronjob = lines.find(|line| line.starts_with("cronjobs.batch"));
    let reason = "templates/a.yaml (--set kind=b)";
    assert!(cronjob.unwrap().ends_with(reason), "{text}");
    text.must_have("  v1 Secret in templates/a.yaml:8\n");
}

#[test]
fn ci_values_and_given_values_reach_more() {
    let template = "{{ if .Values.never }}\napiVersion: v1\nkind: {{ .Values.never }}\nmetadata: {name: a}\n{{ end }}\n";
    let project = shop(template);
    project.write("helm-charts/shop/.helmignore", "ci/\n");
    project.write("helm-charts/shop/ci/a-values.yaml", "never: ConfigMap\n");
    project.write("b.yaml", "never: Service\n");
    project.generate("--values b.yaml --explain");
    let role = project.read("config/rbac/charts/shop_role.yaml");
    role.must_have("resources: [configmaps, services]");
    let text = project.generate("--explain");
    text.must_have("--values ci/a-values.yaml");
}

#[test]
fn namespaced_roles_name_what_cannot_work() {
    let project = shop("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n");
    let text = project.generate("--namespaced");
    text.must_have("warning: helm-charts/shop: cluster-scoped resources");
    let role = project.object("charts/shop_role.yaml");
    assert_eq!(role["kind"], "Role");
    assert_eq!(role["metadata"]["namespace"], "system");
    // And back.
    project.generate("");
    let role = project.object("operator_role.yaml");
    assert_eq!(role["kind"], "ClusterRole");
}

const DEPLOYMENT: &str = "\
apiVersion: v1
kind: ServiceAccount
metadata: {name: controller-manager, namespace: system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: controller-manager, namespace: system}
spec:
  template:
    spec:
      serviceAccountName: controller-manager
      containers:
      - name: manager
        args: [--leader-elect, --leader-election-id=shop.example.com]
";

/// Serves the chart `shop` at any address.
fn shop_server() -> HttpServer {
    let files = [("templates/a.yaml", MAP)];
    HttpServer::start(move |_| Reply::body(packaged_chart("shop", "0.1.0", &files))).unwrap()
}

/// Returns an entry of a watches file with the chart of a server.
fn entry(server: &HttpServer, kind: &str, secret: &str) -> String {
    let url = server.url("/shop.tgz");
    format!(
        "- {{group: shop.example.com, version: v1, kind: {kind}, chart: {{url: '{url}', credentialsSecret: {secret}}}}}\n"
    )
}

/// Returns a project with a Deployment of the operator `shop.example.com`.
fn deployed(watches: &str) -> Project {
    Project::with(&[
        ("watches.yaml", watches),
        (
            "config/default/kustomization.yaml",
            "namespace: shop-system\nnamePrefix: shop-\nresources: [../manager]\n",
        ),
        (
            "config/manager/kustomization.yaml",
            "resources: [manager.yaml]\n",
        ),
        ("config/manager/manager.yaml", DEPLOYMENT),
    ])
}

#[test]
fn namespaced_roles_cover_the_key_of_the_records_and_the_credentials_of_charts() {
    let server = shop_server();
    let entry = |kind: &str, secret: &str| entry(&server, kind, secret);
    let watches = [
        entry("Shop", "registry/one"),
        entry("Mall", "registry/two"),
        entry("Stall", "'1/one'"),
        entry("Cart", "own"),
        entry("Till", "shop-system/till"),
    ];
    let project = deployed(&watches.concat());
    let text = project.generate("--namespaced");
    for wanted in [
        "warning: ./config/rbac/credentials/registry_role.yaml is not part of the kustomization",
        "created config/rbac/credentials/1_role.yaml\n",
    ] {
        text.must_have(wanted);
    }
    let read = |name: &str| -> Vec<Value> {
        let text = project.read(&format!("config/rbac/{name}_role.yaml"));
        go_yaml::documents(text.as_bytes()).unwrap()
    };
    let [role, binding]: [Value; 2] = read("credentials/registry").try_into().unwrap();
    let name = "shop-controller-manager-chart-credentials";
    assert_eq!(
        role,
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": name, "namespace": "registry"},
            "rules": [{
                "apiGroups": [""],
                "resources": ["secrets"],
                "resourceNames": ["one", "two"],
                "verbs": ["get"],
            }],
        })
    );
    assert_eq!(
        binding,
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": "registry"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{
                "kind": "ServiceAccount",
                "name": "shop-controller-manager",
                "namespace": "shop-system",
            }],
        })
    );
    assert_eq!(read("credentials/1")[0]["metadata"]["namespace"], "1");
    let directory = fs::read_dir(project.path("config/rbac/credentials")).unwrap();
    // The operator's own namespace has none.
    assert_eq!(directory.count(), 2);
    let own = &read("operator_secrets")[0];
    assert_eq!(own["metadata"]["namespace"], "system");
    let granted = |names: &[&str], verb: &str| {
        let mut granted = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": [verb]});
        if !names.is_empty() {
            granted["resourceNames"] = json!(names);
        }
        granted
    };
    let key = granted(&["shop.example.com-release-record-key"], "get");
    let credentials = granted(&["own", "till"], "get");
    let expected = json!([key, granted(&[], "create"), credentials]);
    assert_eq!(own["rules"], expected);
    let resources = project.read("config/rbac/kustomization.yaml");
    resources.must_have("\n- operator_secrets_role.yaml\n- operator_secrets_role_binding.yaml\n");
    resources.must_lack("credentials");
}

#[test]
fn roles_for_credentials_that_are_not_needed_are_named_and_roles_of_the_cluster_have_none() {
    let server = shop_server();
    let entry = |kind: &str, secret: &str| entry(&server, kind, secret);
    let project = deployed(&entry("Shop", "'1/one'"));
    project.generate("--namespaced");
    project.write("watches.yaml", &entry("Shop", "registry/one"));
    let text = project.generate("--namespaced");
    let stale = "credentials/1_role.yaml is for no Secret in the watches file; delete it";
    text.must_have(stale);
    // Roles for the cluster include all Secrets.
    project.write("watches.yaml", &entry("Shop", "other/one"));
    project.generate("");
    let other = project.path("config/rbac/credentials/other_role.yaml");
    assert!(!other.exists());
}

#[test]
fn namespaced_roles_of_a_project_without_a_deployment_name_what_they_are_for() {
    let project = shop(MAP);
    let text = project.generate("--namespaced");
    let wanted = "its roles are for the operator hybrid-operator with the account controller-manager in the namespace system";
    text.must_have(wanted);
    let role = project.read("config/rbac/operator_secrets_role.yaml");
    role.must_have("resourceNames: [hybrid-operator-release-record-key]");
}

#[test]
fn mistakes_are_named_and_leave_no_files() {
    for (file, text, wanted) in [
        ("watches.yaml", "- {kind: 1}\n", "watches.yaml"),
        (
            "helm-charts/shop/templates/a.yaml",
            "{{ fail \"no\" }}",
            "add a values file",
        ),
        (
            "config/rbac/kustomization.yaml",
            "resources: [a.yaml]\n",
            "kustomization.yaml",
        ),
    ] {
        let project = shop(MAP);
        project.write(file, text);
        let done = project.run("");
        assert_eq!(done.code, Some(1), "{file}");
        done.err.must_have(wanted);
        assert!(!project.path("config/rbac/charts").exists(), "{file}");
    }
    let empty = Project::with(&[]);
    empty.run("").err.must_have("is not in a project");
}

#[test]
fn native_controllers_have_roles_of_their_own() {
    let project = shop(MAP);
    project.write("Cargo.toml", "");
    let description = r#"{"crds": [], "controllers": [{"name": "backup", "group": "shop.example.com", "version": "v1",
        "kind": "Backup", "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}]}"#;
    project.write("cargo", &format!("#!/bin/sh\necho '{description}'\n"));
    fs::set_permissions(project.path("cargo"), Permissions::from_mode(0o755)).unwrap();
    project.generate("--charts-only");
    assert!(!project.path("config/rbac/native").exists());
    project.generate("");
    let role = project.read("config/rbac/native/backup_role.yaml");
    role.must_have("name: native-backup-role\n");
    let kustomization = project.read("config/rbac/kustomization.yaml");
    kustomization.must_have("- native/backup_role_binding.yaml\n");
}

#[test]
fn roles_of_this_repository_are_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // `make check` also looks at the roles of native controllers, for which it builds the program.
    for arguments in ["rbac --charts-only", "dashboards"] {
        let mut command = Command::new(PROGRAM);
        command.arg("generate").args(arguments.split(' '));
        let output = command.arg("--check").current_dir(&root).output().unwrap();
        let shown = support::text(&output.stdout);
        let way_out = format!("run `hybrid-operator generate {arguments}`");
        assert!(output.status.success(), "{way_out}: {shown}");
    }
}

// === With a cluster ===

const GROUP: &str = "rbac.test.example.com";

/// A chart with hooks, a role, lookups, definitions and values from a Secret.
const EVERYTHING: &str = "\
{{ $found := lookup \"v1\" \"Service\" .Release.Namespace \"absent\" }}
apiVersion: v1
kind: ConfigMap
metadata: {name: '{{ .Release.Name }}'}
data: {value: '{{ .Values.value }}', password: '{{ .Values.password }}', found: '{{ len $found }}'}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: '{{ .Release.Name }}'}
spec:
  selector: {matchLabels: {app: '{{ .Release.Name }}'}}
  template:
    metadata: {labels: {app: '{{ .Release.Name }}'}}
    spec: {containers: [{name: a, image: 'a:1'}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: '{{ .Release.Name }}'}
rules: [{apiGroups: [''], resources: [endpoints], verbs: [get], resourceNames: ['{{ .Release.Name }}']}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: '{{ .Release.Name }}'}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: '{{ .Release.Name }}'}
subjects: [{kind: ServiceAccount, name: default}]
{{- if .Values.extra.enabled }}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: '{{ .Release.Name }}'}
{{- end }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: '{{ .Release.Name }}-hook'
  annotations: {helm.sh/hook: 'pre-install,pre-upgrade', helm.sh/hook-delete-policy: before-hook-creation}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: 'a:1'}]}}}
";

/// Returns a project with [`EVERYTHING`], whose entry has more fields.
fn everything(kind: &str, options: &str) -> Project {
    let watches =
        format!("- {{group: {GROUP}, version: v1, kind: {kind}, chart: chart{options}}}\n");
    Project::with(&[
        ("watches.yaml", &watches),
        (
            "chart/Chart.yaml",
            "apiVersion: v2\nname: generated\nversion: 0.1.0\n",
        ),
        (
            "chart/values.yaml",
            "value: a\npassword: ''\nextra: {enabled: false}\n",
        ),
        ("chart/templates/a.yaml", EVERYTHING),
    ])
}

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// Applies an object, whose name it must have.
async fn apply(api: &Api<DynamicObject>, object: &DynamicObject) {
    let name = object.metadata.name.as_ref().unwrap();
    let params = PatchParams::apply("test").force();
    let applied = api.patch(name, &params, &Patch::Apply(object)).await;
    drop(applied.unwrap());
}

/// Reads an object, and the kind of its API.
fn read_object(text: &str) -> (DynamicObject, ApiResource) {
    let object: DynamicObject = go_yaml::from_str(text).unwrap();
    let types = object.types.clone().unwrap();
    let gvk = GroupVersionKind::try_from(types).unwrap();
    (object, ApiResource::from_gvk(&gvk))
}

/// Applies an object given as YAML, under another name if one is given.
async fn apply_cluster(client: &kube::Client, text: &str, rename: Option<&str>) {
    let (mut object, resource) = read_object(text);
    if let Some(name) = rename {
        object.metadata.name = Some(name.to_owned());
    }
    apply(&Api::all_with(client.clone(), &resource), &object).await;
}

/// Waits until an object exists and a condition holds for it.
async fn until(
    api: &Api<DynamicObject>,
    name: &str,
    what: &str,
    log: impl Fn() -> String,
    holds: impl Fn(&Value) -> bool,
) {
    let check = |object: Option<&DynamicObject>| {
        let value = serde_json::to_value(object).unwrap();
        if object.is_some() && holds(&value) {
            Check::Met(())
        } else {
            Check::NotYet(value["status"].to_string())
        }
    };
    let found = wait::object(api, name, what, LIMIT, check).await;
    found.unwrap_or_else(|error| panic!("{error}\n{}", log()));
}

/// Changes the value in a `ConfigMap` of a release, as somebody else.
async fn take_over(maps: &Api<DynamicObject>) {
    let theirs = Patch::Merge(json!({"data": {"value": "theirs"}}));
    let changed = maps.patch("one", &PatchParams::default(), &theirs).await;
    drop(changed.unwrap());
}

/// Waits until an object of the release is gone.
async fn gone(api: &Api<DynamicObject>, log: impl Fn() -> String) {
    let gone = wait::gone(api, "one", LIMIT).await;
    gone.unwrap_or_else(|error| panic!("{error}\n{}", log()));
}

#[tokio::test]
async fn an_operator_with_only_the_generated_permissions_is_never_refused() {
    let plane = or_skip!(shared_or_skip().await.unwrap());
    // Only a control plane of the test's own has one, which ends with everything that is created here.
    let audit = or_skip!(plane.audit_log());
    let project = everything("Store", ", valuesFrom: [{kind: Secret, name: password}]");
    project.write("chart/crds/order.yaml", &definition(GROUP, "Order"));
    project.generate("");
    let client = plane.client().await.unwrap();
    apply_cluster(&client, &definition(GROUP, "Store"), None).await;
    let namespace = TestNamespace::create(plane, "generated").await.unwrap();
    for (file, name) in [
        ("operator_role.yaml", "generated-operator"),
        ("charts/generated_role.yaml", "generated-chart"),
    ] {
        let text = project.read(&format!("config/rbac/{file}"));
        apply_cluster(&client, &text, Some(name)).await;
        let binding = format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {name}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {name}}}\n\
             subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: operator}}]\n"
        );
        apply_cluster(&client, &binding, None).await;
    }
    let api = |group: &str, version: &str, kind: &str| -> Api<DynamicObject> {
        let resource = resource(group, version, kind);
        Api::namespaced_with(client.clone(), namespace.name(), &resource)
    };
    let (stores, maps) = (api(GROUP, "v1", "Store"), api("", "v1", "ConfigMap"));
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password"},
        "stringData": {"values.yaml": "password: hidden"}});
    let secret = serde_json::from_value(secret).unwrap();
    apply(&api("", "v1", "Secret"), &secret).await;
    let mark = audit.mark().unwrap();
    let operator = operator(namespace.name())
        .kubeconfig(plane.operator_kubeconfig())
        .dir(project.0.path())
        .start()
        .await
        .unwrap();
    let log = || operator.log();
    let ready = |store: &Value| {
        let conditions = store["status"]["conditions"].as_array();
        let is_ready =
            |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        store["status"]["observedGeneration"] == store["metadata"]["generation"]
            && conditions.is_some_and(|all| all.iter().any(is_ready))
    };
    let store = async |spec: Value| {
        let store = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Store",
            "metadata": {"name": "one"}, "spec": spec});
        apply(&stores, &serde_json::from_value(store).unwrap()).await;
    };

    // Install, upgrade with another kind, repair, and upgrade without it.
    store(json!({"value": "a"})).await;
    until(&stores, "one", "Ready", log, ready).await;
    store(json!({"value": "b", "extra": {"enabled": true}})).await;
    until(&maps, "one", "value b", log, |map| {
        map["data"]["value"] == "b" && map["data"]["password"] == "hidden"
    })
    .await;
    until(&stores, "one", "Ready", log, ready).await;
    take_over(&maps).await;
    let has_b = |map: &Value| map["data"]["value"] == "b";
    until(&maps, "one", "repair", log, has_b).await;
    store(json!({"value": "c"})).await;
    let account = api("", "v1", "ServiceAccount");
    wait::gone(&account, "one", LIMIT).await.unwrap();
    until(&stores, "one", "Ready", log, ready).await;

    let params = DeleteParams::default();
    drop(stores.delete("one", &params).await.unwrap());
    for api in [&stores, &maps, &api("apps", "v1", "Deployment")] {
        gone(api, log).await;
    }
    let requests = audit.since(mark, "operator").unwrap();
    assert!(requests.len() > 30, "{requests:#?}");
    let refused: Vec<_> = requests
        .iter()
        .filter(|request| request.status == 403)
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

/// An operator that has only the roles of its namespace that `generate rbac --namespaced` writes.
struct Limited {
    namespace: TestNamespace,
    project: Project,
    kind: &'static str,
}

impl Limited {
    async fn new(plane: &ControlPlane, kind: &'static str, options: &str) -> Self {
        let project = everything(kind, options);
        project.generate("--namespaced");
        let namespace = TestNamespace::create(plane, &kind.to_lowercase()).await;
        let namespace = namespace.unwrap();
        apply_cluster(&namespace.client(), &definition(GROUP, kind), None).await;
        let limited = Self {
            namespace,
            project,
            kind,
        };
        for file in [
            "service_account.yaml",
            "operator_role.yaml",
            "operator_role_binding.yaml",
            "charts/generated_role.yaml",
            "charts/generated_role_binding.yaml",
        ] {
            let text = limited.project.read(&format!("config/rbac/{file}"));
            limited.apply(&text).await;
        }
        limited
    }

    fn api(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let resource = resource(group, version, kind);
        Api::namespaced_with(self.namespace.client(), self.namespace.name(), &resource)
    }

    fn resources(&self) -> Api<DynamicObject> {
        self.api(GROUP, "v1", self.kind)
    }

    /// Applies an object in the namespace, which kustomize would name in place of `system`.
    async fn apply(&self, text: &str) {
        let name = self.namespace.name();
        let text = text.replace("namespace: system", &format!("namespace: {name}"));
        let (object, resource) = read_object(&text);
        let client = self.namespace.client();
        let api: Api<DynamicObject> = Api::namespaced_with(client, name, &resource);
        apply(&api, &object).await;
    }

    /// Writes a kubeconfig with the token of the operator's service account.
    async fn kubeconfig(&self, plane: &ControlPlane) -> PathBuf {
        let accounts: Api<ServiceAccount> =
            Api::namespaced(self.namespace.client(), self.namespace.name());
        let request = TokenRequest::default();
        let token = accounts
            .create_token_request("controller-manager", &PostParams::default(), &request)
            .await
            .unwrap();
        let text = fs::read(plane.kubeconfig_path()).unwrap();
        let mut kubeconfig: Value = go_yaml::from_slice(&text).unwrap();
        kubeconfig["users"][0]["user"] = json!({"token": token.status.unwrap().token});
        self.project.write("kubeconfig", &kubeconfig.to_string());
        self.project.path("kubeconfig")
    }

    /// Installs, upgrades, repairs and uninstalls a release, and returns the refused requests.
    async fn refused(&self, plane: &ControlPlane) -> Option<Vec<String>> {
        let audit = plane.audit_log()?;
        let mark = audit.mark().unwrap();
        let name = self.namespace.name();
        let operator = operator(name)
            .env("POD_NAMESPACE", name)
            .kubeconfig(self.kubeconfig(plane).await)
            .dir(self.project.0.path())
            .start()
            .await
            .unwrap();
        let log = || operator.log();
        let maps = self.api("", "v1", "ConfigMap");
        let has = |value: &'static str| move |map: &Value| map["data"]["value"] == value;
        let wanted = |value: &str, extra: bool| {
            format!(
                "apiVersion: {GROUP}/v1\nkind: {}\nmetadata: {{name: one}}\nspec: {{value: {value}, extra: {{enabled: {extra}}}}}\n",
                self.kind
            )
        };
        self.apply(&wanted("a", true)).await;
        until(&maps, "one", "value a", log, has("a")).await;
        self.apply(&wanted("b", false)).await;
        until(&maps, "one", "value b", log, has("b")).await;
        let account = self.api("", "v1", "ServiceAccount");
        wait::gone(&account, "one", LIMIT).await.unwrap();
        take_over(&maps).await;
        until(&maps, "one", "repair", log, has("b")).await;
        let params = DeleteParams::default();
        drop(self.resources().delete("one", &params).await.unwrap());
        let deployments = self.api("apps", "v1", "Deployment");
        for api in [&self.resources(), &maps, &deployments] {
            gone(api, log).await;
        }
        let user = format!("system:serviceaccount:{name}:controller-manager");
        let requests = audit.since(mark, &user).unwrap();
        assert!(requests.len() > 30, "{requests:#?}");
        let refused = requests.iter().filter(|request| {
            // A Role cannot grant these; without them, new kinds are noticed later.
            let of_cluster = ["customresourcedefinitions", "apiservices"];
            request.status == 403 && !of_cluster.contains(&request.resource.as_str())
        });
        Some(refused.map(|request| format!("{request:?}")).collect())
    }
}

#[tokio::test]
async fn an_operator_with_roles_of_its_namespace_is_never_refused_what_a_role_can_grant() {
    let plane = or_skip!(shared_or_skip().await.unwrap());
    let limited = Limited::new(plane, "Stall", "").await;
    if let Some(refused) = limited.refused(plane).await {
        assert_eq!(refused, [] as [String; 0]);
    }
}

#[tokio::test]
async fn an_operator_that_acts_as_a_service_account_is_never_refused() {
    let plane = or_skip!(shared_or_skip().await.unwrap());
    let limited = Limited::new(plane, "Booth", ", serviceAccountName: deployer").await;
    let role = "config/rbac/charts/generated_role.yaml";
    let role = limited.project.read(role);
    let hint = "list, patch and update on the chart's objects, and get and list on what templates look up: Service";
    role.must_have(hint);
    // The operator itself only reads what the service account changes.
    role.must_have("resources: [deployments]\n  verbs: [get, list, watch]\n");
    // What the warning of the command asks for, and the permissions that the chart's role grants.
    for text in [
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: deployer}\n",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: deployer}\nrules:\n\
         - {apiGroups: ['', apps, batch, rbac.authorization.k8s.io], resources: [configmaps, deployments, jobs, roles, rolebindings, serviceaccounts], verbs: [create, delete, get, list, patch, update]}\n\
         - {apiGroups: [''], resources: [endpoints], verbs: [get]}\n\
         - {apiGroups: [''], resources: [services], verbs: [get, list]}\n",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: deployer}\n\
         roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: deployer}\n\
         subjects: [{kind: ServiceAccount, name: deployer}]\n",
    ] {
        limited.apply(text).await;
    }
    if let Some(refused) = limited.refused(plane).await {
        assert_eq!(refused, [] as [String; 0]);
    }
}

//! Runs `hybrid-operator migrate` on projects as operator-sdk and helm-operator-plugins write them.
//! What it prints is compared with `NAME.check` and `NAME.out` in tests/projects.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hybrid_operator_test::{TestNamespace, helm, shared_or_skip, wait};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;

use support::{Done, PROGRAM, Text as _, copy, definition, or_skip};

/// Time limit of every wait.
const LIMIT: Duration = Duration::from_mins(1);

fn projects() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/projects")
}

fn migrate(directory: &Path, flags: &[&str]) -> Done {
    let mut command = Command::new(PROGRAM);
    command.arg("migrate").args(flags).arg(directory);
    Done::of(command.output().unwrap())
}

/// Compares the output of a command that leaves something to do with a file.
fn compare(done: &Done, file: &str) {
    let Done { out, err, .. } = done;
    let expected = fs::read_to_string(projects().join(file)).unwrap_or_default();
    assert!(*out == expected, "{file} differs; printed:\n{out}{err}");
    assert_eq!(done.code, Some(3), "{file}");
}

/// Checks a project, migrates it, and migrates it again.
fn check(name: &str) {
    let directory = tempfile::tempdir().unwrap();
    let project = directory.path().join("project");
    copy(&projects().join(name), &project);
    let before = fs::read(project.join("watches.yaml")).unwrap();
    let checked = migrate(&project, &["--check", "--diff"]);
    compare(&checked, &format!("{name}.check"));
    assert_eq!(fs::read(project.join("watches.yaml")).unwrap(), before);
    migrate(&project, &[]);
    compare(&migrate(&project, &[]), &format!("{name}.out"));
}

#[test]
fn a_project_of_operator_sdk_needs_a_new_base_image_and_a_few_permissions() {
    check("sdk");
}

#[test]
fn the_go_code_of_helm_operator_plugins_is_named_line_by_line() {
    check("plugins");
}

#[test]
fn a_project_from_before_kubebuilders_layout_is_migrated_too() {
    check("early");
}

#[test]
fn a_directory_that_is_no_project_is_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let Done { code, err, .. } = migrate(directory.path(), &["--check"]);
    assert_eq!(err.lines().count(), 1, "{err}");
    err.must_have("has no watches.yaml");
    assert_eq!(code, Some(1));
}

const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata: {debug: {{ .Values.debug | quote }}, size: {{ .Values.size | quote }}}\n";

#[tokio::test]
async fn releases_of_the_go_operator_are_compared_with_what_would_be_deployed() {
    let helm = or_skip!(helm::ensure_or_skip().unwrap());
    let plane = or_skip!(shared_or_skip().await.unwrap());
    let namespace = TestNamespace::create(plane, "migrate").await.unwrap();
    let crd = go_yaml::from_str(&definition("migrate.example.com", "Web")).unwrap();
    let resource = ApiResource::erase::<CustomResourceDefinition>(&());
    let crds: Api<DynamicObject> = Api::all_with(namespace.client(), &resource);
    let apply = PatchParams::apply("test").force();
    let crd: Patch<DynamicObject> = Patch::Apply(crd);
    let name = "webs.migrate.example.com";
    drop(crds.patch(name, &apply, &crd).await.unwrap());

    let directory = tempfile::tempdir().unwrap();
    let project = directory.path();
    let write = |name: &str, text: &str| support::write(&project.join(name), text);
    let watches = "- group: migrate.example.com\n  version: v1\n  kind: Web\n  chart: web\n  overrideValues: {debug: 'true'}\n";
    write("watches.yaml", watches);
    let base = "FROM quay.io/operator-framework/helm-operator:v1.42.3\n";
    write("Dockerfile", base);
    let metadata = "apiVersion: v2\nname: web\nversion: 0.1.0\n";
    write("web/Chart.yaml", metadata);
    write("web/templates/map.yaml", TEMPLATE);

    // What the Go operator left: a release with its values, owned by the custom resource.
    let kubeconfig = plane.kubeconfig_path();
    let installed = Command::new(helm)
        .args(["install", "one"])
        .arg(project.join("web"))
        .args(["--namespace", namespace.name()])
        .args(["--set-string", "debug=true", "--set", "size=3"])
        .env("KUBECONFIG", kubeconfig)
        .output()
        .unwrap();
    assert!(installed.status.success(), "{installed:?}");
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("migrate.example.com", "v1", "Web"));
    let webs: Api<DynamicObject> =
        Api::namespaced_with(namespace.client(), namespace.name(), &kind);
    let web = json!({
        "apiVersion": "migrate.example.com/v1", "kind": "Web",
        "metadata": {"name": "one"}, "spec": {"size": 3},
    });
    let mut created = None;
    let create = async || {
        created = webs.patch("one", &apply, &Patch::Apply(&web)).await.ok();
        created.is_some()
    };
    let served = wait::until(LIMIT, "the kind to be served", create).await;
    served.unwrap();
    let web = created.unwrap();
    let reference = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "migrate.example.com/v1", "kind": "Web", "name": "one", "uid": web.uid(),
    }]}});
    let secrets: Api<Secret> = Api::namespaced(namespace.client(), namespace.name());
    let record = "sh.helm.release.v1.one.v1";
    let (params, patch) = (PatchParams::default(), Patch::Merge(&reference));
    drop(secrets.patch(record, &params, &patch).await.unwrap());

    let flags = ["--check", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let printed = migrate(project, &flags).out;
    let name = namespace.name();
    let title = format!("Web {name}/one (release {name}/one)");
    printed.must_have(&format!("  {title}: no new revision\n"));

    let changed = TEMPLATE.replace("data: {", "data: {added: 'yes', ");
    write("web/templates/map.yaml", &changed);
    let done = migrate(project, &flags);
    assert_eq!(done.code, Some(3));
    done.out.must_have(&format!("  a new revision of {title}"));
    done.out.must_have("added");
}

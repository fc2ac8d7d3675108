//! Runs `hybrid-operator migrate` on projects as operator-sdk and helm-operator-plugins write them.
//! What it prints is compared with `NAME.check` and `NAME.out` in tests/projects.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use hybrid_operator_test::{TestNamespace, helm, shared_or_skip, wait};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;

use support::{PROGRAM, Text as _, copy, definition, or_skip, text};

/// Time limit of every wait.
const LIMIT: Duration = Duration::from_mins(1);

fn projects() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/projects")
}

fn migrate(directory: &Path, flags: &[&str]) -> Output {
    Command::new(PROGRAM)
        .arg("migrate")
        .args(flags)
        .arg(directory)
        .output()
        .unwrap()
}

/// Compares the output with a file.
fn compare(output: &Output, file: &str, code: i32) {
    let printed = text(&output.stdout);
    let errors = text(&output.stderr);
    let expected = fs::read_to_string(projects().join(file)).unwrap_or_default();
    assert!(
        printed == expected,
        "{file} differs; printed:\n{printed}{errors}"
    );
    assert_eq!(output.status.code(), Some(code), "{file}");
}

/// Checks a project, migrates it, and migrates it again.
fn check(name: &str, code: i32) {
    let directory = tempfile::tempdir().unwrap();
    let project = directory.path().join("project");
    copy(&projects().join(name), &project);
    let before = fs::read(project.join("watches.yaml")).unwrap();
    compare(
        &migrate(&project, &["--check", "--diff"]),
        &format!("{name}.check"),
        code,
    );
    assert_eq!(fs::read(project.join("watches.yaml")).unwrap(), before);
    migrate(&project, &[]);
    compare(&migrate(&project, &[]), &format!("{name}.out"), code);
}

#[test]
fn a_project_of_operator_sdk_needs_a_new_base_image_and_a_few_permissions() {
    check("sdk", 1);
}

#[test]
fn the_go_code_of_helm_operator_plugins_is_named_line_by_line() {
    check("plugins", 1);
}

#[test]
fn a_project_from_before_kubebuilders_layout_is_migrated_too() {
    check("early", 1);
}

#[test]
fn a_directory_that_is_no_project_is_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let output = migrate(directory.path(), &["--check"]);
    let errors = text(&output.stderr);
    assert_eq!(errors.lines().count(), 1, "{errors}");
    errors.must_have("has no watches.yaml");
    assert_eq!(output.status.code(), Some(1));
}

const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata: {debug: {{ .Values.debug | quote }}, size: {{ .Values.size | quote }}}\n";

#[tokio::test]
async fn releases_of_the_go_operator_are_compared_with_what_would_be_deployed() {
    let helm = or_skip!(helm::ensure_or_skip().unwrap());
    let plane = or_skip!(shared_or_skip().await.unwrap());
    let namespace = TestNamespace::create(plane, "migrate").await.unwrap();
    let crd = go_yaml::from_str(&definition("migrate.example.com", "Web")).unwrap();
    let crds: Api<DynamicObject> = Api::all_with(
        namespace.client(),
        &ApiResource::erase::<CustomResourceDefinition>(&()),
    );
    let apply = PatchParams::apply("test").force();
    let applied: Patch<&DynamicObject> = Patch::Apply(&crd);
    drop(
        crds.patch("webs.migrate.example.com", &apply, &applied)
            .await
            .unwrap(),
    );

    let directory = tempfile::tempdir().unwrap();
    let project = directory.path();
    let write = |name: &str, text: &str| support::write(&project.join(name), text);
    write(
        "watches.yaml",
        "- group: migrate.example.com\n  version: v1\n  kind: Web\n  chart: web\n  overrideValues: {debug: 'true'}\n",
    );
    write(
        "Dockerfile",
        "FROM quay.io/operator-framework/helm-operator:v1.42.3\n",
    );
    write(
        "web/Chart.yaml",
        "apiVersion: v2\nname: web\nversion: 0.1.0\n",
    );
    write("web/templates/map.yaml", TEMPLATE);

    // What the Go operator left: a release with its values, owned by the custom resource.
    let kubeconfig = plane.kubeconfig_path();
    let installed = Command::new(helm)
        .args(["install", "one"])
        .arg(project.join("web"))
        .args([
            "--namespace",
            namespace.name(),
            "--set-string",
            "debug=true",
            "--set",
            "size=3",
        ])
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
    wait::until(LIMIT, "the kind to be served", create)
        .await
        .unwrap();
    let web = created.unwrap();
    let owner = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "migrate.example.com/v1", "kind": "Web", "name": "one", "uid": web.uid(),
    }]}});
    let secrets: Api<Secret> = Api::namespaced(namespace.client(), namespace.name());
    let record = "sh.helm.release.v1.one.v1";
    let patched = secrets
        .patch(record, &PatchParams::default(), &Patch::Merge(&owner))
        .await;
    drop(patched.unwrap());

    let flags = ["--check", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let same = migrate(project, &flags);
    let printed = text(&same.stdout);
    let title = format!(
        "Web {}/one (release {}/one)",
        namespace.name(),
        namespace.name()
    );
    printed.must_have(&format!("  {title}: no new revision\n"));

    write(
        "web/templates/map.yaml",
        &TEMPLATE.replace("data: {", "data: {added: 'yes', "),
    );
    let changed = migrate(project, &flags);
    let printed = text(&changed.stdout);
    assert_eq!(changed.status.code(), Some(1));
    printed.must_have(&format!("  a new revision of {title}"));
    printed.must_have("added");
}

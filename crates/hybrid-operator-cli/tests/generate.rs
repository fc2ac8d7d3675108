//! Runs `hybrid-operator generate` in projects: what it writes, checks, refuses, and whether an API
//! server takes it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails with a panic"
)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hybrid_operator_test::{TestNamespace, shared_or_skip};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Request};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tempfile::TempDir;

use support::{Done, PROGRAM, Text as _, copy, or_skip, write};

#[path = "generate/web_values.rs"]
#[allow(clippy::doc_markdown, reason = "comments of the chart")]
pub mod web_values;

/// Longest wait for the API server.
const LIMIT: Duration = Duration::from_mins(1);
const WATCHES: &str = "\
- group: test.example.com
  version: v1beta1
  kind: Guestbook
  chart: charts/guestbook
- group: test.example.com
  version: v1
  kind: Guestbook
  chart: charts/guestbook
- group: test.example.com
  version: v1alpha1
  kind: Web
  chart: charts/web
";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/generate")
}

/// A project with two kinds, one of them in two versions.
fn project() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for chart in ["web", "guestbook"] {
        let to = directory.path().join("charts").join(chart);
        copy(&folder().join(chart), &to);
    }
    fs::write(directory.path().join("watches.yaml"), WATCHES).unwrap();
    let text = "domain: example.com\nlayout: [hybrid]\nprojectName: p\nversion: \"3\"\n";
    fs::write(directory.path().join("PROJECT"), text).unwrap();
    directory
}

/// Runs `generate` with arguments that are separated by spaces.
fn run(directory: &Path, arguments: &str) -> Done {
    let mut command = Command::new(PROGRAM);
    command.arg("generate").args(arguments.split_whitespace());
    Done::of(command.current_dir(directory).output().unwrap())
}

#[track_caller]
fn succeed(directory: &Path, arguments: &str) -> String {
    run(directory, arguments).ok()
}

/// Runs the command, which must fail with this code and message, and returns its output.
#[track_caller]
fn ends(directory: &Path, arguments: &str, code: i32, message: &str) -> String {
    let done = run(directory, arguments);
    assert_eq!(done.code, Some(code), "{arguments}");
    done.err.must_have(message);
    done.out
}

/// Runs the command, which must fail with this message.
#[track_caller]
fn refused(directory: &Path, arguments: &str, message: &str) {
    ends(directory, arguments, 1, message);
}

#[test]
fn all_files_of_a_project_are_written_once_and_then_up_to_date() {
    let project = project();
    let root = project.path();
    let way_out = "run 'hybrid-operator generate crds'";
    let out = ends(root, "--check", 3, way_out);
    out.must_have("missing config/crd/bases/test.example.com_webs.yaml");
    assert!(!root.join("config").exists());
    // Also from a directory inside of the project.
    let written = succeed(&root.join("charts"), "");
    let files = "\
        crd/bases/test.example.com_guestbooks.yaml crd/bases/test.example.com_webs.yaml \
        rbac/charts/guestbook_role.yaml \
        rbac/charts/web_role.yaml rbac/web_editor_role.yaml samples/test_v1_guestbook.yaml \
        samples/test_v1alpha1_web.yaml samples/test_v1beta1_guestbook.yaml";
    for file in files.split(' ') {
        written.must_have(&format!("created config/{file}\n"));
        assert!(root.join("config").join(file).exists(), "{file}");
    }
    assert_eq!(succeed(root, "--check"), "all files are up to date\n");
    assert_eq!(succeed(root, ""), "all files are up to date\n");
    let sample = root.join("config/samples/test_v1alpha1_web.yaml");
    fs::write(&sample, "edited: true\n").unwrap();
    assert_eq!(succeed(root, "--check"), "all files are up to date\n");
    let updated = "updated config/samples/test_v1alpha1_web.yaml\n";
    assert_eq!(succeed(root, "samples --force"), updated);
    let sample = fs::read_to_string(&sample).unwrap();
    sample.must_have("  # Number of servers.\n");
}

#[test]
fn a_changed_chart_is_shown_as_a_difference() {
    let project = project();
    let root = project.path();
    succeed(root, "crds");
    let values = root.join("charts/web/values.yaml");
    let text = fs::read_to_string(&values).unwrap();
    fs::write(&values, text.replace("replicaCount: 3", "replicaCount: 5")).unwrap();
    let Done { code, out, err } = run(root, "crds --check");
    assert_eq!(code, Some(3));
    out.must_have("-                description: 'Number of servers. Default: 3'\n");
    out.must_have("+                description: 'Number of servers. Default: 5'\n");
    let outdated = "Error: config/crd/bases/test.example.com_webs.yaml is out of date; run 'hybrid-operator generate crds'\n";
    assert_eq!(err, outdated);
}

/// With `UPDATE_GOLDEN`, the golden files are written.
#[test]
fn the_crd_and_types_of_a_commented_chart_are_those_of_the_golden_files() {
    let project = project();
    let root = project.path();
    succeed(root, "crds");
    let file = root.join("config/crd/bases/test.example.com_webs.yaml");
    let crd = fs::read_to_string(file).unwrap();
    let types = succeed(root, "types --kind Web");
    for (name, text) in [("web_crd.yaml", crd), ("web_values.rs", types)] {
        let path = folder().join(name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &text).unwrap();
        }
        assert!(fs::read_to_string(&path).unwrap() == text, "{name} differs");
    }
}

#[test]
fn types_of_a_spec_of_its_own_have_its_fields() {
    let project = project();
    let root = project.path();
    let entry =
        "- {group: test.example.com, version: v1, kind: Cache, chart: charts/web, api: {fields: {
        size: 'string | enum=small,large', limits: {memory: 'string | description=How much.'}}}}\n";
    write(&root.join("own.yaml"), entry);
    let types = succeed(root, "types --watches-file own.yaml");
    for expected in [
        "//! Spec of the kind `Cache`.",
        "pub struct CacheSpec {",
        "/// One of: small, large.",
        "pub limits: Option<CacheSpecLimits>,",
        "/// How much.",
        "pub memory: Option<String>,",
    ] {
        assert!(types.contains(expected), "{expected}: {types}");
    }
}

#[test]
fn generated_types_lose_nothing_of_the_defaults() {
    let text = fs::read_to_string(folder().join("web/values.yaml")).unwrap();
    let defaults: Value = go_yaml::from_str(&text).unwrap();
    let mut extended = defaults.clone();
    extended["image"]["digest"] = json!("sha256:1");
    extended["somethingElse"] = json!([1, null]);
    for values in [defaults, extended] {
        let typed: web_values::WebValues = serde_json::from_value(values.clone()).unwrap();
        assert_eq!(typed.replica_count, Some(3));
        assert_eq!(serde_json::to_value(typed).unwrap(), values);
    }
}

#[test]
fn names_and_scope_of_an_existing_crd_are_kept() {
    let project = project();
    let root = project.path();
    let bases = root.join("config/crd/bases");
    let file = bases.join("test.example.com_webz.yaml");
    let existing = "spec: {group: test.example.com, scope: Cluster, names: {kind: Web, plural: webz, shortNames: [w]}}\n";
    write(&file, existing);
    succeed(root, "crds");
    let text = fs::read_to_string(file).unwrap();
    let crd: Value = go_yaml::from_str(&text).unwrap();
    assert_eq!(crd["spec"]["scope"], "Cluster");
    assert_eq!(crd["spec"]["names"]["shortNames"], json!(["w"]));
    assert!(!bases.join("test.example.com_webs.yaml").exists());
}

#[test]
fn breaking_changes_since_a_revision_are_named() {
    let project = project();
    let root = project.path();
    succeed(root, "crds");
    for arguments in ["init -q", "add .", "commit -q -m one"] {
        let status = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
            .args(arguments.split(' '))
            .current_dir(root)
            .output()
            .unwrap();
        assert!(status.status.success(), "{status:?}");
    }
    assert_eq!(succeed(root, "crds --compat HEAD"), "");
    let schema = root.join("charts/guestbook/values.schema.json");
    let text = fs::read_to_string(&schema).unwrap();
    let text = text
        .replace(r#""minimum": 0"#, r#""minimum": 1"#)
        .replace(r#""fast", "#, "");
    fs::write(&schema, text).unwrap();
    let breaking = "4 breaking change(s) since HEAD";
    let expected = "updated config/crd/bases/test.example.com_guestbooks.yaml\n\
                    Guestbook v1.spec.frontend.replicas: minimum tightened from 0 to 1\n\
                    Guestbook v1.spec.storage.class: the value \"fast\" is no longer allowed\n\
                    Guestbook v1beta1.spec.frontend.replicas: minimum tightened from 0 to 1\n\
                    Guestbook v1beta1.spec.storage.class: the value \"fast\" is no longer allowed\n";
    let out = ends(root, "crds --compat HEAD", 3, breaking);
    assert_eq!(out, expected);
    let unknown = "git does not know the revision \"no-such-tag\"";
    refused(root, "crds --compat no-such-tag", unknown);
}

#[test]
fn mistakes_are_named_with_the_way_out_and_write_nothing() {
    let empty = tempfile::tempdir().unwrap();
    refused(empty.path(), "crds", "hybrid-operator init");
    let project = project();
    let root = project.path();
    let schema = root.join("charts/guestbook/values.schema.json");
    fs::write(schema, "{").unwrap();
    let no_json = "the chart guestbook has a values.schema.json that is not JSON";
    refused(root, "crds", no_json);
    assert!(!root.join("config").exists());
    ends(root, "types", 2, "choose one of the kinds with --kind");
}

/// A project whose program is described by a stand-in for cargo.
fn program(description: &str) -> (TempDir, PathBuf) {
    let project = project();
    let cargo = project.path().join("cargo");
    let script = format!("#!/bin/sh\necho \"$@\" >arguments\ncat <<'END'\n{description}\nEND\n");
    fs::write(&cargo, script).unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(project.path().join("Cargo.toml"), "").unwrap();
    (project, cargo)
}

#[test]
fn definitions_of_the_program_are_written_beside_those_of_charts() {
    let (project, cargo) = program(
        r#"{"crds": [{"spec": {"group": "test.example.com", "names": {"plural": "backups"}}}], "controllers": []}"#,
    );
    let root = project.path();
    fs::write(root.join("Cargo.lock"), "").unwrap();
    let crds = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(["generate", "crds"]).args(arguments);
        command.env("CARGO", &cargo).current_dir(root);
        Done::of(command.output().unwrap())
    };
    let expected = "created config/crd/bases/test.example.com_backups.yaml\n\
                    created config/crd/bases/test.example.com_guestbooks.yaml\n\
                    created config/crd/bases/test.example.com_webs.yaml\n";
    assert_eq!(crds(&[]).ok(), expected);
    let arguments = fs::read_to_string(root.join("arguments")).unwrap();
    assert_eq!(arguments, "run --quiet --locked -- describe\n");
    // A version that was added to the file, as 'create api' does.
    let file = root.join("config/crd/bases/test.example.com_backups.yaml");
    let written = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{written}  versions:\n  - name: v2\n")).unwrap();
    let done = crds(&[]);
    assert_eq!(done.code, Some(1));
    done.err.must_have("would be lost: v2; leave out");
    fs::write(&file, written).unwrap();
    // A program that is no operator.
    fs::write(&cargo, "#!/bin/sh\necho hello\n").unwrap();
    let done = crds(&[]);
    assert_eq!(done.code, Some(1));
    done.err.must_have("printed no description");
    crds(&["--charts-only", "--check"]).ok();
}

#[test]
fn the_files_of_this_repository_are_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let said = succeed(&root, "--check --charts-only");
    assert_eq!(said, "all files are up to date\n");
}

#[test]
fn a_ring_lists_each_kind_of_the_project_once_and_lets_its_sharder_move_them() {
    let project = project();
    let printed = succeed(project.path(), "ring guests --watches-file watches.yaml");
    let documents: Vec<Value> = printed
        .split("---\n")
        .map(|text| go_yaml::from_str(text).unwrap())
        .collect();
    let [ring, role, binding] = documents.try_into().unwrap();
    assert_eq!(ring["metadata"]["name"], "guests");
    let group = "test.example.com";
    let listed = |plural: &str| json!({"group": group, "resource": plural});
    assert_eq!(
        ring["spec"]["resources"],
        json!([listed("guestbooks"), listed("webs")])
    );
    let permitted = json!({
        "apiGroups": [group], "resources": ["guestbooks", "webs"], "verbs": ["list", "patch"],
    });
    assert_eq!(role["rules"], json!([permitted]));
    assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
    ends(
        project.path(),
        "ring Guests --watches-file watches.yaml",
        2,
        "not the name of a ControllerRing",
    );
}

#[test]
fn policies_of_kinds_that_are_protected_no_more_are_named() {
    let project = project();
    let root = project.path();
    let watches = root.join("watches.yaml");
    fs::write(&watches, format!("{WATCHES}  protect: true\n")).unwrap();
    let file = "config/protection/test.example.com_webs.yaml";
    assert_eq!(succeed(root, "protection"), format!("created {file}\n"));
    write(&root.join("config/protection/own.yaml"), "a: b\n");
    fs::write(&watches, WATCHES).unwrap();
    let done = run(root, "protection --check");
    assert_eq!(done.code, Some(0));
    let expected = format!("warning: {file} is for no entry with `protect` in the watches file");
    done.err.must_have(&expected);
    done.err.must_lack("own.yaml");
}

#[test]
fn the_schema_of_watches_is_json_and_can_be_checked() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let schema: Value = serde_json::from_str(&succeed(root, "watches-schema")).unwrap();
    let draft = "https://json-schema.org/draft/2020-12/schema";
    assert_eq!(schema["$schema"], draft);
    let arguments = "watches-schema --output watches.schema.json";
    assert_eq!(succeed(root, arguments), "created watches.schema.json\n");
    let check = format!("{arguments} --check");
    assert_eq!(succeed(root, &check), "");
    fs::write(root.join("watches.schema.json"), "{}").unwrap();
    assert_eq!(run(root, &check).code, Some(3));
}

/// Checks the generated CRDs and custom resources with an API server.
#[tokio::test]
async fn an_api_server_takes_the_crds_the_samples_and_what_helm_takes() {
    let plane = or_skip!(shared_or_skip().await.unwrap());
    let project = project();
    let root = project.path();
    succeed(root, "");
    let namespace = TestNamespace::create(plane, "generate").await.unwrap();
    let client = namespace.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let parameters = PatchParams::apply("test");
    for plural in ["guestbooks", "webs"] {
        let path = root.join(format!("config/crd/bases/test.example.com_{plural}.yaml"));
        let crd: Value = go_yaml::from_slice(&fs::read(path).unwrap()).unwrap();
        let name = format!("{plural}.test.example.com");
        let applied = Patch::Apply(&crd);
        let applied = definitions.patch(&name, &parameters, &applied).await;
        applied.unwrap();
        let established = kube::runtime::conditions::is_crd_established();
        let served = kube::runtime::wait::await_condition(definitions.clone(), &name, established);
        tokio::time::timeout(LIMIT, served).await.unwrap().unwrap();
    }
    let api = |kind: &str, version: &str| -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("test.example.com", version, kind);
        let resource = ApiResource::from_gvk(&gvk);
        Api::namespaced_with(client.clone(), namespace.name(), &resource)
    };
    for (file, kind, version) in [
        ("test_v1_guestbook", "Guestbook", "v1"),
        ("test_v1alpha1_web", "Web", "v1alpha1"),
    ] {
        let path = root.join(format!("config/samples/{file}.yaml"));
        let sample: DynamicObject = go_yaml::from_slice(&fs::read(path).unwrap()).unwrap();
        let created = created(&client, &api(kind, version), &sample).await;
        assert_eq!(created.unwrap().data["spec"], sample.data["spec"]);
    }
    let cases = r#"Web v1alpha1 {"replicaCount": "{{ 3 }}", "image": null}
Web v1alpha1 {"extraEnv": {"A": "b"}, "own": [null]}
Guestbook v1 {"storage": null, "frontend": {"replicas": null}}
Guestbook v1 {"storage": {"class": null, "size": "1Gi"}}
Guestbook v1 {"own": {"a": null}}
Guestbook v1 {"storage": {"class": "slow"}} => spec.storage.class
Guestbook v1 {"storage": {"clas": "fast"}} => spec.storage.clas
Guestbook v1 {"frontend": {"hosts": [{}]}} => frontend.hosts[0].name
Guestbook v1 {"frontend": {"replicas": -1}} => frontend.replicas"#;
    for case in cases.lines() {
        let (case, refusal) = case.split_once(" => ").unwrap_or((case, ""));
        let mut words = case.splitn(3, ' ');
        let mut word = || words.next().unwrap();
        let (kind, version, spec) = (word(), word(), word());
        let spec: Value = serde_json::from_str(spec).unwrap();
        let object = serde_json::from_value(json!({
            "apiVersion": format!("test.example.com/{version}"), "kind": kind,
            "metadata": {"generateName": "try-"}, "spec": spec}))
        .unwrap();
        match created(&client, &api(kind, version), &object).await {
            Ok(created) if refusal.is_empty() => assert_eq!(created.data["spec"], spec),
            Err(error) if !refusal.is_empty() => {
                assert!(error.to_string().contains(refusal), "{spec}: {error}");
            }
            result => panic!("{spec}: {result:?}"),
        }
    }
    for plural in ["guestbooks", "webs"] {
        let name = format!("{plural}.test.example.com");
        let deleted = definitions.delete(&name, &DeleteParams::default()).await;
        deleted.unwrap();
    }
    namespace.finish(LIMIT).await.unwrap();
}

/// Creates an object as kubectl does: unknown fields are errors. A kind may be established a moment
/// before it is served.
async fn created(
    client: &Client,
    api: &Api<DynamicObject>,
    object: &DynamicObject,
) -> Result<DynamicObject, kube::Error> {
    let create = async {
        loop {
            let mut request = Request::new(api.resource_url())
                .create(&PostParams::default(), serde_json::to_vec(object).unwrap())
                .unwrap();
            let url = format!("{}?fieldValidation=Strict", request.uri().path());
            *request.uri_mut() = url.parse().unwrap();
            match client.request(request).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                result => return result,
            }
        }
    };
    tokio::time::timeout(LIMIT, create).await.unwrap()
}

//! Makes bundles and catalogs with `hybrid-operator`, and compares what it finds and writes with the
//! packages of Operator Framework.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails with a panic"
)]

mod broken;
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use support::{Done, PROGRAM, Text as _, copy, files, or_skip, text};

const CSV: &str = "manifests/memcached-operator.clusterserviceversion.yaml";
const BASE: &str = "config/manifests/bases/memcached-operator.clusterserviceversion.yaml";

/// Returns a copy of the project in the root of the repository, as far as a bundle needs it.
fn project() -> TempDir {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = tempfile::tempdir().unwrap();
    copy(&root.join("config"), &directory.path().join("config"));
    fs::copy(root.join("PROJECT"), directory.path().join("PROJECT")).unwrap();
    directory
}

/// Runs the program with arguments that are separated by spaces.
fn run(directory: &Path, arguments: &str) -> Done {
    let mut command = Command::new(PROGRAM);
    command.args(arguments.split_whitespace());
    Done::of(command.current_dir(directory).output().unwrap())
}

/// Runs the program, which must end with this code.
#[track_caller]
fn ends(directory: &Path, arguments: &str, code: i32) -> Done {
    let done = run(directory, arguments);
    assert_eq!(done.code, Some(code), "{arguments}\n{done:?}");
    done
}

#[track_caller]
fn succeed(directory: &Path, arguments: &str) -> String {
    ends(directory, arguments, 0).out
}

#[track_caller]
fn fail(directory: &Path, arguments: &str) -> String {
    let done = ends(directory, arguments, 1);
    done.out + &done.err
}

/// Makes a bundle of a version, with further arguments.
#[track_caller]
fn bundle(project: &Path, version: &str, more: &str) -> String {
    let image = format!("--image example.com/memcached-operator:v{version}");
    let arguments = format!("olm bundle --version {version} {image} {more}");
    succeed(project, &arguments)
}

fn yaml(path: &Path) -> Value {
    go_yaml::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Changes an object in a file.
fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut object = yaml(path);
    change(&mut object);
    fs::write(path, go_yaml::to_string(&object).unwrap()).unwrap();
}

/// Runs the program of the Go packages.
#[track_caller]
fn olm(program: &Path, arguments: &[&str]) -> String {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(program)
        .args(arguments)
        .env("HOME", home.path())
        .output()
        .unwrap();
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{arguments:?}\n{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_bundle_is_written_once_and_is_then_up_to_date() {
    let project = project();
    let root = project.path();
    let check = "olm bundle --version 0.1.0 --check";
    let out = ends(root, check, 3).out;
    out.must_have("missing bundle/metadata/annotations.yaml");
    assert!(!root.join("bundle").exists());

    let out = bundle(&root.join("config"), "0.1.0", "");
    for file in [
        BASE,
        "bundle.Dockerfile",
        "bundle/manifests/cache.example.com_memcachedbackups.yaml",
        "bundle/manifests/cache.example.com_memcacheds.yaml",
        "bundle/manifests/memcached-operator-metrics-reader_rbac.authorization.k8s.io_v1_clusterrole.yaml",
        "bundle/manifests/memcached-operator.clusterserviceversion.yaml",
        "bundle/metadata/annotations.yaml",
        "bundle/tests/scorecard/config.yaml",
    ] {
        out.must_have(&format!("created {file}\n"));
    }
    let written = files(root);
    assert_eq!(bundle(root, "0.1.0", ""), "");
    assert_eq!(files(root), written);
    let image = "--image example.com/memcached-operator:v0.1.0";
    assert_eq!(succeed(root, &format!("{check} {image}")), "");
    let validate = "olm validate bundle";
    assert_eq!(succeed(root, validate), "bundle is valid\n");
    let all = "--select-optional suite=operatorframework --select-optional name=good-practices";
    let out = succeed(root, &format!("{validate} {all}"));
    let warning = "warning [icon-missing]: spec.icon is not set\nbundle is valid\n";
    assert_eq!(out, warning);

    // An edited file is shown, and replaced; files of others are kept and named.
    let annotations = root.join("bundle/metadata/annotations.yaml");
    fs::write(annotations, "annotations: {}\n").unwrap();
    let priority =
        "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 1\n";
    fs::write(root.join("bundle/manifests/priority.yaml"), priority).unwrap();
    let out = ends(root, &format!("{check} {image}"), 3).out;
    out.must_have("-annotations: {}\n");
    let done = ends(root, &format!("olm bundle --version 0.1.0 {image}"), 0);
    assert_eq!(done.out, "updated bundle/metadata/annotations.yaml\n");
    let kept = "bundle/manifests/priority.yaml does not follow from the project";
    done.err.must_have(kept);
}

#[test]
fn the_install_strategy_is_what_the_project_deploys() {
    let project = project();
    let root = project.path();
    let channels = "--channels stable,fast --default-channel fast";
    bundle(root, "0.1.0", channels);
    let csv = yaml(&root.join("bundle").join(CSV));
    let strategy = &csv["spec"]["install"]["spec"];
    let deployment = &strategy["deployments"][0];
    let manager = "memcached-operator-controller-manager";
    assert_eq!(deployment["name"], manager);
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], manager);
    let image = &pod["containers"][0]["image"];
    assert_eq!(image, "example.com/memcached-operator:v0.1.0");
    let rules = |list: &str| strategy[list][0]["rules"].as_array().unwrap().clone();
    for rule in rules("permissions") {
        assert_eq!(rule["apiGroups"], json!(["coordination.k8s.io"]));
    }
    let of_chart = yaml(&root.join("config/rbac/charts/memcached_role.yaml"));
    for rule in of_chart["rules"].as_array().unwrap() {
        assert!(rules("clusterPermissions").contains(rule), "{rule}");
    }
    let names: Vec<&str> = csv["spec"]["customresourcedefinitions"]["owned"]
        .as_array()
        .unwrap()
        .iter()
        .map(|owned| owned["displayName"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["Memcached Backup", "Memcached"]);
    let examples = csv["metadata"]["annotations"]["alm-examples"].as_str();
    let examples: Value = serde_json::from_str(examples.unwrap()).unwrap();
    assert_eq!(examples[0]["metadata"]["name"], "memcached-sample");
    let annotations = yaml(&root.join("bundle/metadata/annotations.yaml"));
    let of = |name: &str| {
        annotations["annotations"][format!("operators.operatorframework.io.bundle.{name}")].clone()
    };
    assert_eq!(of("channels.v1"), "stable,fast");
    assert_eq!(of("channel.default.v1"), "fast");
    let dockerfile = fs::read_to_string(root.join("bundle.Dockerfile")).unwrap();
    let label = "LABEL operators.operatorframework.io.bundle.channels.v1=stable,fast";
    dockerfile.must_have(&format!("\n{label}\n"));
    dockerfile.must_have("\nCOPY bundle/manifests /manifests/\n");
}

/// Checks what the scorecard test `olm-crds-have-resources` looks for.
#[test]
fn definitions_name_the_kinds_that_charts_contain_and_controllers_own() {
    let project = project();
    let root = project.path();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    copy(&repository.join("helm-charts"), &root.join("helm-charts"));
    for file in ["watches.yaml", "Cargo.toml"] {
        fs::copy(repository.join(file), root.join(file)).unwrap();
    }
    let description = json!({"crds": [], "controllers": [
        {"name": "memcachedbackup", "group": "cache.example.com", "version": "v1alpha1", "kind": "MemcachedBackup",
            "owns": [{"group": "apps", "version": "v1", "kind": "Deployment"},
                {"group": "other.example.com", "version": "v1beta1", "kind": "Policy"}]}]});
    fs::write(root.join("description.json"), description.to_string()).unwrap();
    let program = root.join("program");
    fs::write(&program, "#!/bin/sh\ncat description.json\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();

    let resources = |more: &str| {
        bundle(root, "0.1.0", more);
        let csv = yaml(&root.join("bundle").join(CSV));
        let owned = &csv["spec"]["customresourcedefinitions"]["owned"];
        (owned[0]["resources"].clone(), owned[1]["resources"].clone())
    };
    let (of_controller, of_chart) = resources(&format!("--program {}", program.display()));
    let expected = json!([{"kind": "Deployment", "name": "", "version": "v1"},
        {"kind": "Policy", "name": "policies.other.example.com", "version": "v1beta1"}]);
    assert_eq!(of_controller, expected);
    let kinds = of_chart.as_array().unwrap().iter();
    let kinds: Vec<&str> = kinds
        .map(|resource| resource["kind"].as_str().unwrap())
        .collect();
    let expected = "ConfigMap Pod Service ServiceAccount Deployment HorizontalPodAutoscaler PodDisruptionBudget";
    assert_eq!(kinds.join(" "), expected);
    assert_eq!(resources("--charts-only"), (Value::Null, of_chart));

    let template = root.join("helm-charts/memcached/templates/service.yaml");
    fs::write(template, "{{ fail \"no\" }}").unwrap();
    let done = ends(root, "olm bundle --version 0.1.0 --charts-only", 0);
    let unknown = "does not say what kinds of objects Memcached.cache.example.com has";
    done.err.must_have(unknown);
}

#[test]
fn edits_of_the_base_survive_and_what_cannot_hold_is_refused() {
    let project = project();
    let root = project.path();
    bundle(root, "0.1.0", "");
    let base = root.join(BASE);
    let text = fs::read_to_string(&base).unwrap();
    let text = text.replace("name: Provider", "name: The shop # ours");
    fs::write(&base, &text).unwrap();
    let replaces = "--replaces memcached-operator.v0.1.0 --skip-range <0.2.0";
    bundle(root, "0.2.0", replaces);
    assert_eq!(fs::read_to_string(&base).unwrap(), text);
    let csv = yaml(&root.join("bundle").join(CSV));
    assert_eq!(csv["spec"]["provider"]["name"], "The shop");
    assert_eq!(csv["spec"]["replaces"], "memcached-operator.v0.1.0");
    assert_eq!(csv["metadata"]["annotations"]["olm.skipRange"], "<0.2.0");

    let next = "olm bundle --version 0.3.0";
    let refused = fail(root, &format!("{next} --image-digests"));
    refused.must_have("asks no registry for that of example.com/memcached-operator:v0.1.0");
    let messages = ends(root, &format!("{next} --default-channel fast"), 2).err;
    messages.must_have("--default-channel fast is not one of --channels (stable)");
    let messages = ends(root, "olm bundle --version v1", 2).err;
    messages.must_have("without a v");
    edit(&base, |base| base["spec"]["minKubeVersion"] = json!("1.30"));
    let refused = ends(root, next, 3).out;
    refused.must_have("error [min-kube-version]");
}

#[test]
fn objects_can_come_from_kustomize() {
    let project = project();
    let root = project.path();
    let mut objects = String::new();
    for file in [
        "manager/manager.yaml",
        "rbac/service_account.yaml",
        "crd/bases/cache.example.com_memcacheds.yaml",
        "samples/cache_v1alpha1_memcached.yaml",
    ] {
        objects += "---\n";
        objects += &fs::read_to_string(root.join("config").join(file)).unwrap();
    }
    fs::write(root.join("all.yaml"), objects).unwrap();
    let kustomization = root.join("config/default/kustomization.yaml");
    fs::write(kustomization, "patches: []\n").unwrap();
    let refused = fail(root, "olm bundle --version 0.1.0");
    refused.must_have("has \"patches\"");
    let places = "--manifests all.yaml --output-dir elsewhere/olm";
    bundle(root, "0.1.0", places);
    let csv = yaml(&root.join("elsewhere/olm").join(CSV));
    let deployment = &csv["spec"]["install"]["spec"]["deployments"][0];
    assert_eq!(deployment["name"], "controller-manager");
    let examples = &csv["metadata"]["annotations"]["alm-examples"];
    examples.as_str().unwrap().must_have("memcached-sample");
    assert!(root.join("elsewhere/bundle.Dockerfile").is_file());
    assert!(!root.join("bundle").exists());
}

#[test]
fn a_catalog_is_what_opm_writes() {
    let project = project();
    let root = project.path();
    for (version, replaces) in [
        ("0.1.0", ""),
        ("0.2.0", "--replaces memcached-operator.v0.1.0"),
    ] {
        let output = format!("--output-dir bundles/{version} --skip-range <0.2.0");
        bundle(root, version, &format!("{output} {replaces}"));
    }
    let generate = |arguments: &str| {
        let image = "--image example.com/{package}-bundle:v{version}";
        succeed(root, &format!("olm catalog {image} {arguments}"))
    };
    let read = |directory: &str| {
        let file = root.join(directory).join("memcached-operator/catalog.yaml");
        fs::read_to_string(file).unwrap()
    };
    // Both at once, and one after the other.
    let out = generate("bundles/0.2.0 bundles/0.1.0");
    let expected = "created catalog/memcached-operator/catalog.yaml\ncreated catalog.Dockerfile\n";
    assert_eq!(out, expected);
    let catalog = read("catalog");
    for version in ["0.1.0", "0.2.0"] {
        generate(&format!("bundles/{version} --output-dir other/catalog"));
    }
    assert_eq!(read("other/catalog"), catalog);
    generate("bundles/0.2.0 --check");
    generate("bundles/0.2.0 --output-dir third/catalog --objects full");
    let full = read("third/catalog");

    let program = or_skip!(hybrid_operator_test::olm::ensure_or_skip().unwrap());
    // opm reads it, and would write the same.
    let loaded = olm(&program, &["load", root.join("catalog").to_str().unwrap()]);
    assert_eq!(loaded, catalog);
    let made = "example.com/{{.Package}}-bundle:v{{.Version}}";
    for (version, objects, whole) in [
        ("0.1.0", "all", &catalog),
        ("0.2.0", "all", &catalog),
        ("0.2.0", "none", &full),
    ] {
        let directory = root.join("bundles").join(version);
        let directory = directory.to_str().unwrap();
        whole.must_have(&olm(&program, &["render", objects, made, directory]));
    }
    let package = olm(&program, &["init", "memcached-operator", "stable"]);
    let first: Value = go_yaml::from_str(&catalog).unwrap();
    let package: Value = go_yaml::from_str(&package).unwrap();
    for field in ["schema", "name", "defaultChannel"] {
        assert_eq!(first[field], package[field], "{field}");
    }
}

#[test]
fn make_goes_from_a_project_to_the_images_of_bundle_and_catalog() {
    let project = project();
    let root = project.path();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for file in ["Makefile", "olm.mk"] {
        fs::copy(repository.join(file), root.join(file)).unwrap();
    }
    let make = |arguments: &str| {
        let made = Command::new("make")
            .args(arguments.split(' '))
            .args(["VERSION=0.3.0", "IMG=example.com/a:v0.3.0"])
            // It prints what it would build and push.
            .args([&format!("HYBRID={PROGRAM}"), "CONTAINER_TOOL=echo built"])
            .current_dir(root)
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL")
            .env_remove("MFLAGS")
            .output()
            .unwrap();
        let messages = text(&made.stderr);
        assert!(made.status.success(), "{arguments:?}\n{messages}");
        String::from_utf8(made.stdout).unwrap()
    };
    let out = make("bundle");
    assert!(out.ends_with("bundle is valid\n"), "{out}");
    let csv = yaml(&root.join("bundle").join(CSV));
    assert_eq!(csv["metadata"]["name"], "memcached-operator.v0.3.0");
    let image = &csv["metadata"]["annotations"]["containerImage"];
    assert_eq!(image, "example.com/a:v0.3.0");
    let out = make("bundle-build bundle-push catalog-build catalog-push");
    let image = |name: &str| format!("example.com/memcached-operator-{name}:v0.3.0");
    for name in ["bundle", "catalog"] {
        let image = image(name);
        for line in [
            format!("built build -f {name}.Dockerfile -t {image} ."),
            format!("built push {image}"),
        ] {
            let is_printed = out.lines().any(|printed| printed == line);
            assert!(is_printed, "{line} is not in\n{out}");
        }
    }
    let catalog = fs::read_to_string(root.join("catalog/memcached-operator/catalog.yaml")).unwrap();
    catalog.must_have(&format!("\nimage: {}\n", image("bundle")));
}

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
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use support::{PROGRAM, Text as _, copy, files, or_skip, text};

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

fn run(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

/// Runs the program and returns its exit code, output and messages.
fn outcome(directory: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = run(directory, arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[track_caller]
fn succeed(directory: &Path, arguments: &[&str]) -> String {
    let (code, out, messages) = outcome(directory, arguments);
    assert_eq!(code, 0, "{arguments:?}\n{out}{messages}");
    out
}

#[track_caller]
fn fail(directory: &Path, arguments: &[&str]) -> String {
    let (code, out, messages) = outcome(directory, arguments);
    assert_eq!(code, 1, "{arguments:?}\n{out}{messages}");
    out + &messages
}

/// Makes a bundle of a version, with further arguments.
#[track_caller]
fn bundle(project: &Path, version: &str, more: &[&str]) -> String {
    let image = format!("example.com/memcached-operator:v{version}");
    let arguments = [
        "generate",
        "bundle",
        "--version",
        version,
        "--image",
        &image,
    ];
    succeed(project, &[&arguments, more].concat())
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
    let arguments = ["generate", "bundle", "--version", "0.1.0", "--check"];
    let out = fail(root, &arguments);
    out.must_have("missing bundle/metadata/annotations.yaml");
    assert!(!root.join("bundle").exists());

    let out = bundle(&root.join("config"), "0.1.0", &[]);
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
        assert!(
            out.contains(&format!("created {file}\n")),
            "{file} is not in\n{out}"
        );
    }
    let written = files(root);
    assert_eq!(bundle(root, "0.1.0", &[]), "");
    assert_eq!(files(root), written);
    let image = ["--image", "example.com/memcached-operator:v0.1.0"];
    assert_eq!(succeed(root, &[arguments.as_slice(), &image].concat()), "");
    assert_eq!(
        succeed(root, &["bundle", "validate", "bundle"]),
        "bundle is valid\n"
    );
    let all = [
        "--select-optional",
        "suite=operatorframework",
        "--select-optional",
        "name=good-practices",
    ];
    let out = succeed(
        root,
        &[["bundle", "validate", "bundle"].as_slice(), &all].concat(),
    );
    assert_eq!(
        out,
        "warning [icon-missing]: spec.icon is not set\nbundle is valid\n"
    );

    // An edited file is shown, and replaced; files of others are kept and named.
    fs::write(
        root.join("bundle/metadata/annotations.yaml"),
        "annotations: {}\n",
    )
    .unwrap();
    fs::write(
        root.join("bundle/manifests/priority.yaml"),
        "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 1\n",
    )
    .unwrap();
    let out = fail(root, &[arguments.as_slice(), &image].concat());
    out.must_have("-annotations: {}\n");
    let (code, out, messages) = outcome(root, &[&arguments[..4], &image].concat());
    assert_eq!(
        (code, out.as_str()),
        (0, "updated bundle/metadata/annotations.yaml\n"),
        "{messages}"
    );
    messages.must_have("bundle/manifests/priority.yaml does not follow from the project");
}

#[test]
fn the_install_strategy_is_what_the_project_deploys() {
    let project = project();
    let root = project.path();
    bundle(
        root,
        "0.1.0",
        &["--channels", "stable,fast", "--default-channel", "fast"],
    );
    let csv = yaml(&root.join("bundle").join(CSV));
    let strategy = &csv["spec"]["install"]["spec"];
    let deployment = &strategy["deployments"][0];
    assert_eq!(deployment["name"], "memcached-operator-controller-manager");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(
        pod["serviceAccountName"],
        "memcached-operator-controller-manager"
    );
    assert_eq!(
        pod["containers"][0]["image"],
        "example.com/memcached-operator:v0.1.0"
    );
    let rules = |list: &str| strategy[list][0]["rules"].as_array().unwrap().clone();
    assert!(
        rules("permissions")
            .iter()
            .all(|rule| rule["apiGroups"] == json!(["coordination.k8s.io"]))
    );
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
    let examples: Value = serde_json::from_str(
        csv["metadata"]["annotations"]["alm-examples"]
            .as_str()
            .unwrap(),
    )
    .unwrap();
    assert_eq!(examples[0]["metadata"]["name"], "memcached-sample");
    let annotations = yaml(&root.join("bundle/metadata/annotations.yaml"));
    let of = |name: &str| {
        annotations["annotations"][format!("operators.operatorframework.io.bundle.{name}")].clone()
    };
    assert_eq!(of("channels.v1"), "stable,fast");
    assert_eq!(of("channel.default.v1"), "fast");
    let dockerfile = fs::read_to_string(root.join("bundle.Dockerfile")).unwrap();
    assert!(
        dockerfile
            .contains("\nLABEL operators.operatorframework.io.bundle.channels.v1=stable,fast\n")
    );
    assert!(dockerfile.contains("\nCOPY bundle/manifests /manifests/\n"));
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

    let resources = |more: &[&str]| {
        bundle(root, "0.1.0", more);
        let csv = yaml(&root.join("bundle").join(CSV));
        let owned = &csv["spec"]["customresourcedefinitions"]["owned"];
        (owned[0]["resources"].clone(), owned[1]["resources"].clone())
    };
    let (of_controller, of_chart) = resources(&["--program", program.to_str().unwrap()]);
    assert_eq!(
        of_controller,
        json!([{"kind": "Deployment", "name": "", "version": "v1"},
            {"kind": "Policy", "name": "policies.other.example.com", "version": "v1beta1"}])
    );
    let kinds: Vec<&Value> = of_chart
        .as_array()
        .unwrap()
        .iter()
        .map(|resource| &resource["kind"])
        .collect();
    assert_eq!(
        kinds,
        [
            "ConfigMap",
            "Pod",
            "Service",
            "ServiceAccount",
            "Deployment",
            "HorizontalPodAutoscaler",
            "PodDisruptionBudget"
        ]
    );
    assert_eq!(resources(&["--charts-only"]), (Value::Null, of_chart));

    let template = root.join("helm-charts/memcached/templates/service.yaml");
    fs::write(template, "{{ fail \"no\" }}").unwrap();
    let arguments = ["generate", "bundle", "--version", "0.1.0", "--charts-only"];
    let (code, _, messages) = outcome(root, &arguments);
    assert_eq!(code, 0, "{messages}");
    messages.must_have("does not say what kinds of objects Memcached.cache.example.com has");
}

#[test]
fn edits_of_the_base_survive_and_what_cannot_hold_is_refused() {
    let project = project();
    let root = project.path();
    bundle(root, "0.1.0", &[]);
    let base = root.join(BASE);
    let text = fs::read_to_string(&base)
        .unwrap()
        .replace("name: Provider", "name: The shop # ours");
    fs::write(&base, &text).unwrap();
    bundle(
        root,
        "0.2.0",
        &[
            "--replaces",
            "memcached-operator.v0.1.0",
            "--skip-range",
            "<0.2.0",
        ],
    );
    assert_eq!(fs::read_to_string(&base).unwrap(), text);
    let csv = yaml(&root.join("bundle").join(CSV));
    assert_eq!(csv["spec"]["provider"]["name"], "The shop");
    assert_eq!(csv["spec"]["replaces"], "memcached-operator.v0.1.0");
    assert_eq!(csv["metadata"]["annotations"]["olm.skipRange"], "<0.2.0");

    let arguments = ["generate", "bundle", "--version", "0.3.0"];
    let refused = fail(root, &[arguments.as_slice(), &["--image-digests"]].concat());
    refused.must_have("asks no registry for that of example.com/memcached-operator:v0.1.0");
    let (code, _, messages) = outcome(
        root,
        &[arguments.as_slice(), &["--default-channel", "fast"]].concat(),
    );
    assert_eq!(code, 2);
    messages.must_have("--default-channel fast is not one of --channels (stable)");
    let (code, _, messages) = outcome(root, &["generate", "bundle", "--version", "v1"]);
    assert_eq!(code, 2);
    messages.must_have("without a v");
    edit(&base, |base| base["spec"]["minKubeVersion"] = json!("1.30"));
    let refused = fail(root, &arguments);
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
    fs::write(
        root.join("config/default/kustomization.yaml"),
        "patches: []\n",
    )
    .unwrap();
    let refused = fail(root, &["generate", "bundle", "--version", "0.1.0"]);
    refused.must_have("has \"patches\"");
    bundle(
        root,
        "0.1.0",
        &["--manifests", "all.yaml", "--output-dir", "elsewhere/olm"],
    );
    let csv = yaml(&root.join("elsewhere/olm").join(CSV));
    assert_eq!(
        csv["spec"]["install"]["spec"]["deployments"][0]["name"],
        "controller-manager"
    );
    assert!(
        csv["metadata"]["annotations"]["alm-examples"]
            .as_str()
            .unwrap()
            .contains("memcached-sample")
    );
    assert!(root.join("elsewhere/bundle.Dockerfile").is_file());
    assert!(!root.join("bundle").exists());
}

#[test]
fn a_catalog_is_what_opm_writes() {
    let project = project();
    let root = project.path();
    for (version, replaces) in [
        ("0.1.0", None),
        ("0.2.0", Some("memcached-operator.v0.1.0")),
    ] {
        let output = format!("bundles/{version}");
        let mut more = vec!["--output-dir", &output, "--skip-range", "<0.2.0"];
        more.extend(replaces.into_iter().flat_map(|name| ["--replaces", name]));
        bundle(root, version, &more);
    }
    let image = "example.com/{package}-bundle:v{version}";
    let generate = ["generate", "catalog", "--image", image];
    // Both at once, and one after the other.
    let out = succeed(
        root,
        &[generate.as_slice(), &["bundles/0.2.0", "bundles/0.1.0"]].concat(),
    );
    assert_eq!(
        out,
        "created catalog/memcached-operator/catalog.yaml\ncreated catalog.Dockerfile\n"
    );
    let file = root.join("catalog/memcached-operator/catalog.yaml");
    let catalog = fs::read_to_string(&file).unwrap();
    for version in ["0.1.0", "0.2.0"] {
        let directory = format!("bundles/{version}");
        succeed(
            root,
            &[
                generate.as_slice(),
                &[directory.as_str(), "--output-dir", "other/catalog"],
            ]
            .concat(),
        );
    }
    assert_eq!(
        fs::read_to_string(root.join("other/catalog/memcached-operator/catalog.yaml")).unwrap(),
        catalog
    );
    succeed(
        root,
        &[generate.as_slice(), &["bundles/0.2.0", "--check"]].concat(),
    );
    let alone = [
        generate.as_slice(),
        &[
            "bundles/0.2.0",
            "--output-dir",
            "third/catalog",
            "--objects",
            "full",
        ],
    ]
    .concat();
    succeed(root, &alone);
    let full =
        fs::read_to_string(root.join("third/catalog/memcached-operator/catalog.yaml")).unwrap();

    let program = or_skip!(hybrid_operator_test::olm::ensure_or_skip().unwrap());
    // opm reads it, and would write the same.
    let loaded = olm(&program, &["load", root.join("catalog").to_str().unwrap()]);
    assert_eq!(loaded, catalog);
    let made = "example.com/{{.Package}}-bundle:v{{.Version}}";
    for version in ["0.1.0", "0.2.0"] {
        let directory = root.join("bundles").join(version);
        let rendered = olm(
            &program,
            &["render", "all", made, directory.to_str().unwrap()],
        );
        assert!(
            catalog.contains(&rendered),
            "{rendered}\nis not in\n{catalog}"
        );
    }
    let directory = root.join("bundles/0.2.0");
    let rendered = olm(
        &program,
        &["render", "none", made, directory.to_str().unwrap()],
    );
    assert!(full.contains(&rendered), "{rendered}\nis not in\n{full}");
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
    fs::copy(repository.join("Makefile"), root.join("Makefile")).unwrap();
    let make = |arguments: &[&str]| {
        let made = Command::new("make")
            .args(arguments)
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
    let out = make(&["bundle"]);
    assert!(out.ends_with("bundle is valid\n"), "{out}");
    let csv = yaml(&root.join("bundle").join(CSV));
    assert_eq!(csv["metadata"]["name"], "memcached-operator.v0.3.0");
    assert_eq!(
        csv["metadata"]["annotations"]["containerImage"],
        "example.com/a:v0.3.0"
    );
    let out = make(&[
        "bundle-build",
        "bundle-push",
        "catalog-build",
        "catalog-push",
    ]);
    let image = |name: &str| format!("example.com/memcached-operator-{name}:v0.3.0");
    for line in [
        format!("built build -f bundle.Dockerfile -t {} .", image("bundle")),
        format!("built push {}", image("bundle")),
        format!(
            "built build -f catalog.Dockerfile -t {} .",
            image("catalog")
        ),
        format!("built push {}", image("catalog")),
    ] {
        assert!(
            out.lines().any(|printed| printed == line),
            "{line} is not in\n{out}"
        );
    }
    let catalog = fs::read_to_string(root.join("catalog/memcached-operator/catalog.yaml")).unwrap();
    catalog.must_have(&format!("\nimage: {}\n", image("bundle")));
}

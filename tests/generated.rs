//! Checks that the CRDs of native controllers are up to date. `make generate` writes them, and those
//! of charts. Also checks that versions that several files need are the same in all of them.

#![allow(clippy::unwrap_used, reason = "a test stops at the first error")]

use std::process::Command;

use hybrid_operator::native::crd;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use memcached_operator::api::v1alpha1::MemcachedBackup;
use serde_json::{Value, json};

/// Compares a generated CRD with its file, or writes the file.
fn check(path: &str, crd: &CustomResourceDefinition) {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    let wanted = go_yaml::to_string(crd).unwrap();
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let present = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        present == wanted,
        "{path} is out of date; run `make generate`"
    );
}

#[test]
fn crd_of_memcached_backup_is_up_to_date() {
    check(
        "config/crd/bases/cache.example.com_memcachedbackups.yaml",
        &crd::<MemcachedBackup>(),
    );
}

#[test]
fn the_program_describes_its_definitions_and_controllers() {
    let output = Command::new(env!("CARGO_BIN_EXE_memcached-operator"))
        .arg("describe")
        .output()
        .unwrap();
    assert!(output.status.success());
    let description: Value = serde_json::from_slice(&output.stdout).unwrap();
    let crd = serde_json::to_value(crd::<MemcachedBackup>()).unwrap();
    assert_eq!(description["crds"], json!([crd]));
    let controller = &description["controllers"][0];
    assert_eq!(controller["name"], "memcachedbackup");
    assert_eq!(controller["group"], "cache.example.com");
    assert_eq!(controller["version"], "v1alpha1");
    assert_eq!(controller["kind"], "MemcachedBackup");
    assert_eq!(
        controller["owns"],
        json!([{"group": "apps", "version": "v1", "kind": "Deployment"}])
    );
    let rules = controller["rules"].as_array().unwrap();
    let deployments = json!({"apiGroups": ["apps"], "resources": ["deployments"],
        "verbs": ["create", "delete", "get", "list", "patch", "watch"]});
    assert!(rules.contains(&deployments), "{rules:#?}");
}

#[test]
fn crds_of_the_examples_are_up_to_date() {
    check(
        "examples/at/config/crd.yaml",
        &crd::<at_operator::api::At>(),
    );
    check(
        "examples/etcd-cluster/config/crd.yaml",
        &crd::<etcd_cluster::api::EtcdCluster>(),
    );
    check(
        "examples/memcached-native/config/crd.yaml",
        &crd::<memcached_native::api::Memcached>(),
    );
    check(
        "examples/multi-secret/config/crd.yaml",
        &crd::<multi_secret::api::MultiSecret>(),
    );
    check(
        "examples/visitors/config/crd.yaml",
        &crd::<visitors::api::VisitorsApp>(),
    );
}

/// Returns what follows `start` in the only line of a file that begins with it, up to the next `end`.
fn after(path: &str, start: &str, end: &str) -> String {
    let text = std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let mut found = text.lines().filter_map(|line| line.strip_prefix(start));
    let rest = found.next().unwrap();
    assert!(found.next().is_none(), "{path} has {start} several times");
    rest.split(end).next().unwrap().to_owned()
}

#[test]
fn crates_that_are_released_have_the_version_of_the_workspace() {
    let version = env!("CARGO_PKG_VERSION");
    for name in [
        "bounded",
        "chart-source",
        "go-yaml",
        "go-template",
        "helm-core",
        "helm-release",
        "kube-objects",
        "object-cel",
        "object-key",
        "operator-runtime",
        "hybrid-operator",
        "hybrid-operator-cli",
    ] {
        let dependency = format!("{name} = {{ path = \"crates/{name}\", version = \"");
        assert_eq!(after("Cargo.toml", &dependency, "\""), version, "{name}");
        let manifest = format!("crates/{name}/Cargo.toml");
        assert_eq!(after(&manifest, "publish = ", " "), "true", "{name}");
    }
}

/// Beginning of the Dockerfiles.
const COMPILER: &str = "FROM --platform=$BUILDPLATFORM docker.io/library/rust:";

#[test]
fn images_and_new_projects_use_the_compiler_of_the_repository() {
    let minimum = after("Cargo.toml", "rust-version = \"", "\"");
    let templates = "crates/hybrid-operator-cli/templates/project";
    let channel = after("rust-toolchain.toml", "channel = \"", "\"");
    assert!(channel.starts_with(&minimum), "{channel}");
    let template = format!("{templates}/rust-toolchain.toml");
    assert_eq!(after(&template, "channel = \"", "\""), channel);
    assert_eq!(
        after(
            &format!("{templates}/Cargo.toml"),
            "rust-version = \"",
            "\""
        ),
        minimum
    );
    for file in [
        "Dockerfile",
        "images/hybrid-operator/Dockerfile",
        "images/hybrid-operator/Dockerfile.ubi",
        &format!("{templates}/Dockerfile.native"),
    ] {
        // Exactly this toolchain gets the target of the image.
        let image = after(file, COMPILER, "-");
        assert_eq!(image, channel, "{file}");
    }
}

/// Their programs are as small, and render as fast, as those of this repository.
#[test]
fn new_projects_are_compiled_as_the_programs_of_the_repository() {
    let profile = |file: &str| {
        let path = format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let (_, profile) = text.split_once("[profile.release]").unwrap();
        // What comes after it is for the command line alone.
        let (profile, _) = profile
            .split_once("# The allocator")
            .unwrap_or((profile, ""));
        profile.to_owned()
    };
    let template = "crates/hybrid-operator-cli/templates/project/Cargo.toml";
    assert_eq!(profile(template), profile("Cargo.toml"));
}

/// Returns the package and the program that a line with `cargo build … --bin PROGRAM` names. Without `-p` it is the
/// package of the current directory.
fn built(line: &str) -> Option<(&str, &str)> {
    let (_, arguments) = line.split_once("cargo build ")?;
    let after = |flag: &str| {
        let mut words = arguments.split_whitespace();
        words.find(|word| *word == flag)?;
        words.next()
    };
    Some((
        after("-p").unwrap_or(env!("CARGO_PKG_NAME")),
        after("--bin")?,
    ))
}

#[test]
fn images_and_releases_are_built_from_programs_that_their_package_has() {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--locked"])
        .args(["--format-version", "1", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let has = |package: &str, program: &str| {
        let mut packages = metadata["packages"].as_array().unwrap().iter();
        let found = packages.find(|one| one["name"] == package).unwrap();
        let mut targets = found["targets"].as_array().unwrap().iter();
        targets.any(|target| target["kind"] == json!(["bin"]) && target["name"] == program)
    };
    for file in [
        "Dockerfile",
        "images/hybrid-operator/Dockerfile",
        "images/hybrid-operator/Dockerfile.ubi",
        ".github/workflows/release.yml",
    ] {
        let path = format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let built: Vec<_> = text.lines().filter_map(built).collect();
        assert_eq!(built.len(), 1, "{file}: {built:?}");
        for (package, program) in built {
            assert!(has(package, program), "{file}: {package} has no {program}");
        }
    }
}

//! The manifest of the plugin for krew, which a release has: what krew requires of it, and of its archives.

#![allow(clippy::unwrap_used, reason = "a test fails with a panic")]

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

const TAG: &str = "v1.2.3";
const ARCHIVES: [(&str, &str); 2] = [
    ("amd64", "hybrid-operator-x86_64-unknown-linux-musl.tar.gz"),
    ("arm64", "hybrid-operator-aarch64-unknown-linux-musl.tar.gz"),
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Writes the manifest of a release with these archives.
fn manifest(dist: &Path) -> Value {
    let output = Command::new(root().join(".github/krew"))
        .args([TAG.as_ref(), dist.as_os_str()])
        .env("GITHUB_REPOSITORY", "example/operator")
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    go_yaml::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_manifest_has_what_krew_requires() {
    let dist = tempfile::tempdir().unwrap();
    for (_, archive) in ARCHIVES {
        fs::write(dist.path().join(archive), archive).unwrap();
    }
    let manifest = manifest(dist.path());
    let api = "krew.googlecontainertools.github.com/v1alpha2";
    assert_eq!(manifest["apiVersion"], api);
    assert_eq!(manifest["kind"], "Plugin");
    // kubectl-hybrid, and the file's name.
    assert_eq!(manifest["metadata"]["name"], "hybrid");
    let spec = &manifest["spec"];
    assert_eq!(spec["version"], TAG);
    assert_eq!(spec["homepage"], "https://github.com/example/operator");
    let short = spec["shortDescription"].as_str().unwrap();
    assert!(!short.is_empty() && short.len() <= 50, "{short}");
    assert!(!spec["description"].as_str().unwrap().is_empty());
    let platforms = spec["platforms"].as_array().unwrap();
    assert_eq!(platforms.len(), ARCHIVES.len());
    for (platform, (arch, archive)) in platforms.iter().zip(ARCHIVES) {
        let selector = serde_json::json!({"matchLabels": {"os": "linux", "arch": arch}});
        assert_eq!(platform["selector"], selector);
        let uri = format!("https://github.com/example/operator/releases/download/{TAG}/{archive}");
        assert_eq!(platform["uri"], uri);
        let sum = data_encoding::HEXLOWER.encode(&Sha256::digest(archive.as_bytes()));
        assert_eq!(platform["sha256"], sum);
        let files = platform["files"].as_array().unwrap().iter();
        let files: Vec<&Value> = files.map(|file| &file["from"]).collect();
        assert_eq!(files, ["hybrid-operator", "LICENSE"]);
        assert_eq!(platform["bin"], "hybrid-operator");
    }
}

#[test]
fn a_release_has_the_manifest_and_its_archives() {
    let path = root().join(".github/workflows/release.yml");
    let workflow: Value = go_yaml::from_slice(&fs::read(path).unwrap()).unwrap();
    let jobs = &workflow["jobs"];
    let targets = jobs["programs"]["strategy"]["matrix"]["include"].as_array();
    let targets: Vec<String> = targets
        .unwrap()
        .iter()
        .map(|entry| {
            let target = entry["target"].as_str().unwrap();
            format!("hybrid-operator-{target}.tar.gz")
        })
        .collect();
    assert_eq!(targets, ARCHIVES.map(|(_, archive)| archive));
    let commands = |job: &str| {
        let steps = jobs[job]["steps"].as_array().unwrap().iter();
        let commands: Vec<&str> = steps.filter_map(|step| step["run"].as_str()).collect();
        commands.join("\n")
    };
    let packed = r#"-czf "dist/hybrid-operator-$TARGET.tar.gz" hybrid-operator -C "$PWD" LICENSE"#;
    assert!(commands("programs").contains(packed));
    let written = r#".github/krew "$GITHUB_REF_NAME" dist > hybrid.yaml && mv hybrid.yaml dist"#;
    assert!(commands("publish").contains(written));
}

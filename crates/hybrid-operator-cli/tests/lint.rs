//! `hybrid-operator lint`: formats, exit codes and mistakes. The rules are tested beside their code.

#![allow(clippy::unwrap_used, reason = "a test fails with a panic")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use support::{PROGRAM, Text as _, text};

/// Creates a chart with an error, a warning and a note.
fn chart(directory: &Path) {
    let write = |name: &str, text: &str| {
        support::write(&directory.join("shop").join(name), text);
    };
    write("Chart.yaml", "apiVersion: v2\nname: shop\nversion: 0.1.0\n");
    write(
        "templates/a.yaml",
        "apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata:\n  name: {{ .Release.Name }}\n  \
         annotations:\n    helm.sh/resource-policy: keep\n    at: {{ now | quote }}\n",
    );
}

fn lint(directory: &Path, arguments: &[&str]) -> Output {
    let program = Command::new(PROGRAM)
        .arg("lint")
        .args(arguments)
        .current_dir(directory)
        .output();
    program.unwrap()
}

#[test]
fn findings_have_rule_place_and_way_out() {
    let directory = tempfile::tempdir().unwrap();
    chart(directory.path());
    let output = lint(directory.path(), &["shop"]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    let expected = "\
shop
SEVERITY  RULE                  PLACE               FINDING
error     removed-api           templates/a.yaml:1  policy/v1beta1 PodDisruptionBudget is not served since Kubernetes 1.25; use policy/v1
note      resource-policy-keep  templates/a.yaml:6  PodDisruptionBudget RELEASE stays when its release is uninstalled or no longer contains it (helm.sh/resource-policy: keep); delete it by hand; a new custom resource of the same name needs the annotation helm.sdk.operatorframework.io/adopt-release to use it
warning   clock                 templates/a.yaml:7  'now' reads the clock: the operator renders only when the inputs change, so the time is that of the last change; remove it; to restart Pods with a change of configuration, use a checksum of the configuration
";
    assert_eq!(shown, expected);
    let message = text(&output.stderr);
    message.must_have("1 error and 1 warning;");
}

#[test]
fn json_and_yaml_have_the_same_content() {
    let directory = tempfile::tempdir().unwrap();
    chart(directory.path());
    let json = lint(directory.path(), &["shop", "--output", "json"]).stdout;
    let yaml = lint(directory.path(), &["shop", "-o", "yaml"]).stdout;
    let json: Value = serde_json::from_slice(&json).unwrap();
    let yaml: Value = go_yaml::from_slice(&yaml).unwrap();
    assert_eq!(json, yaml);
    assert_eq!(json[0]["findings"][0]["id"], "removed-api");
    assert_eq!(json[0]["findings"][0]["line"], 1);
}

#[test]
fn only_errors_fail_unless_warnings_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    chart(directory.path());
    let code = |arguments: &[&str]| {
        let arguments: Vec<&str> = ["shop"].iter().chain(arguments).copied().collect();
        lint(directory.path(), &arguments).status.code()
    };
    assert_eq!(code(&["--ignore", "removed-api"]), Some(0));
    assert_eq!(code(&["--kube-version", "1.24"]), Some(0));
    assert_eq!(code(&["--ignore", "removed-api", "--strict"]), Some(1));
    assert_eq!(
        code(&["--ignore", "removed-api,clock", "--strict"]),
        Some(0)
    );
}

#[test]
fn a_project_is_linted_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    chart(directory.path());
    let watches = "- {group: a.io, version: v1, kind: Shop, chart: shop}\n- {group: a.io, version: v1, kind: Store, chart: shop}\n";
    fs::write(directory.path().join("watches.yaml"), watches).unwrap();
    let output = lint(directory.path(), &["--output", "json"]);
    let reports: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reports.as_array().unwrap().len(), 1);
    assert_eq!(reports[0]["chart"], "shop");
}

#[test]
fn mistakes_are_named() {
    let directory = tempfile::tempdir().unwrap();
    chart(directory.path());
    for (arguments, wanted) in [
        (&["absent"][..], "absent not found"),
        (&["shop/templates"], "neither a chart nor a project"),
        (&["shop", "--kube-version", "2"], "no version of Kubernetes"),
        (&["shop", "--ignore", "nothing"], "invalid value 'nothing'"),
    ] {
        let output = lint(directory.path(), arguments);
        let message = text(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(message.contains(wanted), "{wanted} is not in {message}");
    }
}

#[test]
fn the_rules_are_listed() {
    let output = lint(Path::new("."), &["--rules"]);
    let rules = text(&output.stdout);
    rules.must_have("\nlookup ");
    assert!(output.status.success());
}

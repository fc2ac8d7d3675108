//! `hybrid-operator lint`: formats, exit codes and mistakes. The rules are tested beside their code.

#![allow(clippy::unwrap_used, reason = "a test fails with a panic")]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use support::{Done, PROGRAM, Text as _};

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

/// Runs `lint` with arguments that are separated by spaces.
fn lint(directory: &Path, arguments: &str) -> Done {
    let mut command = Command::new(PROGRAM);
    command.arg("lint").args(arguments.split_whitespace());
    Done::of(command.current_dir(directory).output().unwrap())
}

#[test]
fn findings_have_rule_place_and_way_out() {
    let directory = tempfile::tempdir().unwrap();
    chart(directory.path());
    let done = lint(directory.path(), "shop");
    assert_eq!(done.code, Some(3));
    let expected = "\
shop
SEVERITY  RULE                  PLACE               FINDING
error     removed-api           templates/a.yaml:1  policy/v1beta1 PodDisruptionBudget is not served since Kubernetes 1.25; use policy/v1
note      resource-policy-keep  templates/a.yaml:6  PodDisruptionBudget RELEASE stays when its release is uninstalled or no longer contains it (helm.sh/resource-policy: keep); delete it by hand; a new custom resource of the same name needs the annotation helm.sdk.operatorframework.io/adopt-release to use it
warning   clock                 templates/a.yaml:7  'now' reads the clock: the operator renders only when the inputs change, so the time is that of the last change; remove it; to restart Pods with a change of configuration, use a checksum of the configuration
";
    assert_eq!(done.out, expected);
    done.err.must_have("1 error and 1 warning;");
}

#[test]
fn json_and_yaml_have_the_same_content() {
    let directory = tempfile::tempdir().unwrap();
    chart(directory.path());
    let json = lint(directory.path(), "shop --output json").out;
    let yaml = lint(directory.path(), "shop -o yaml").out;
    let json: Value = serde_json::from_str(&json).unwrap();
    let yaml: Value = go_yaml::from_str(&yaml).unwrap();
    assert_eq!(json, yaml);
    assert_eq!(json[0]["findings"][0]["id"], "removed-api");
    assert_eq!(json[0]["findings"][0]["line"], 1);
}

#[test]
fn only_errors_fail_unless_warnings_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    chart(directory.path());
    for (arguments, code) in [
        ("--ignore removed-api", 0),
        ("--kube-version 1.24", 0),
        ("--ignore removed-api --strict", 3),
        ("--ignore removed-api,clock --strict", 0),
    ] {
        let done = lint(directory.path(), &format!("shop {arguments}"));
        assert_eq!(done.code, Some(code), "{arguments}");
    }
}

#[test]
fn a_project_is_linted_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    chart(directory.path());
    let watches = "- {group: a.io, version: v1, kind: Shop, chart: shop}\n- {group: a.io, version: v1, kind: Store, chart: shop}\n";
    fs::write(directory.path().join("watches.yaml"), watches).unwrap();
    let out = lint(directory.path(), "--output json").out;
    let reports: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(reports.as_array().unwrap().len(), 1);
    assert_eq!(reports[0]["chart"], "shop");
}

#[test]
fn mistakes_are_named() {
    let directory = tempfile::tempdir().unwrap();
    chart(directory.path());
    for (arguments, wanted) in [
        ("absent", "absent not found"),
        ("shop/templates", "neither a chart nor a project"),
        ("shop --kube-version 2", "no version of Kubernetes"),
        ("shop --ignore nothing", "invalid value 'nothing'"),
    ] {
        let done = lint(directory.path(), arguments);
        assert_ne!(done.code, Some(0), "{arguments}");
        done.err.must_have(wanted);
    }
}

#[test]
fn the_rules_are_listed() {
    let rules = lint(Path::new("."), "--rules").ok();
    rules.must_have("\nlookup ");
}

#[test]
fn expressions_are_checked_against_the_kinds_of_the_chart_and_named_with_their_place() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| support::write(&directory.path().join(name), text);
    chart(directory.path());
    write(
        "shop/crds/widget.yaml",
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: widgets.g.com}\n\
         spec:\n  group: g.com\n  names: {kind: Widget}\n  versions:\n  - name: v1\n    schema:\n      \
         openAPIV3Schema: {type: object, properties: {status: {type: object, properties: {phase: {type: string}}}}}\n",
    );
    let watches = "- group: g.com\n  version: v1\n  kind: Shop\n  chart: shop\n  objects: {w: {kind: Widget}}\n  \
                   status:\n    phase: objects.w.status.phase\n  readyWhen:\n  - objects.w.status.phases == 'up'\n";
    write("watches.yaml", watches);
    let done = lint(directory.path(), "");
    assert_eq!(done.code, Some(1));
    let expected = "watches.yaml:9:5: [0].readyWhen[0]: 1:18: ";
    done.err.must_have(expected);
    done.err.must_have("did you mean phase?");
}

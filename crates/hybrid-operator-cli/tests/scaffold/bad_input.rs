//! Bad input: each mistake is named with its way out, and nothing is written.

use std::fs;

use super::{files, ok, run, text};

/// The mistakes: the directory and the exit code, the arguments, and a part of the message.
const CASES: &str = r#"
# Usage.
empty 2: init => --domain is required, for example --domain example.com
empty 2: init --domain => a value is required for '--domain
empty 2: init --plugins go --domain a.b => possible values: helm, native, hybrid
empty 2: init --domain a.b --plugins native --kind Shop => --group is required
project 2: create api => --group is required
project 2: create api --group a --version v1 => --kind is required
project 2: create webhook --group a --version v1 --kind Order => at least one of --defaulting
project 2: {api} X --native --helm-chart ../lonely => --helm-chart and the flags about fetching it cannot be used for a native kind
project 2: {api} X --plain-http => flags about repositories and registries need a chart in --helm-chart
# Names.
empty 2: init --domain Example.com => the domain "Example.com" is not valid: use lower case
empty 2: init --domain a.b --project-name Shop_1 => the project name "Shop_1" is not valid
empty 2: init --domain a.b --project-name async => "async" is a reserved word
project 2: create api --group A --version v1 --kind X => the group "A" is not valid
project 2: create api --group a --version 1 --kind X => use v1, v1beta1, v1alpha1 and the like
project 2: {api} shop => the kind "shop" is not valid: use at most 59 letters
project 2: {api} K{59 k} => use at most 59 letters
empty 2: init --domain a.b --project-name {37 p} => use at most 36 lower case letters
empty 2: init --domain apps.k8s.io => the domain "apps.k8s.io" is not valid: Kubernetes keeps groups
project 2: {api} Type --native => "type" is a reserved word
project 2: {api} Deployment --native => choose another name
project 2: {api} X --plural X => the plural "X" is not valid
# The project.
empty 1: {api} Shop => create one with 'hybrid-operator init'
project 1: {api} Shop --native => the kind Shop of a.example.com is in the project already, as v1 with the chart helm-charts/shop
project 1: create api --group a --version v2 --kind Shop => is in the project already
project 1: init --domain other.org --project-name p => this is the directory of the project p already: PROJECT has domain example.com
native 2: {api} Shop --helm-chart ../lonely => cannot be used for a native kind; leave them out
native 2: create chart --group a --version v1 --kind Shop => 'hybrid-operator create chart' is gone: use 'hybrid-operator create api'
helm 1: {api} Shop --native => this project has no code
project 1: create webhook --group a --version v1 --kind Shop --defaulting => no native kind Shop
project 1: create webhook --group a --version v1 --kind Order --conversion => has no version to convert v1 to
blocked 1: init --domain a.b --project-name p => config
empty 1: init --domain a.b --framework /nonexistent => /nonexistent is not a checkout of the framework
# Charts.
project 1: create api --helm-chart ../library => the chart lib is a library
project 1: create api --helm-chart ../lonely => run 'helm dependency update ../lonely' first
project 1: create api --helm-chart ../nothing => cannot load the chart ../nothing: validation: {end}
project 1: create api --helm-chart PROJECT => does not appear to be a gzipped archive
project 2: create api --helm-chart oci://r.io --helm-chart-version 1.2.3 => "oci://r.io" does not name a chart in a registry: it has no path
project 2: create api --helm-chart c --helm-chart-repo r.io => "r.io" is not a URL
project 1: create api --helm-chart bitnami/redis => has no repository "bitnami"; add it with 'helm repo add bitnami URL'
project 1: create api --helm-chart helm-charts/shop --helm-chart-version 9.0.0 => has version 0.1.0, not 9.0.0
"#;

#[test]
fn bad_input_is_named_with_a_way_out_and_nothing_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let made = |name: &str| {
        let folder = directory.path().join(name);
        fs::create_dir(&folder).unwrap();
        folder
    };
    made("empty");
    let project = made("project");
    fs::write(made("blocked").join("config"), "a file").unwrap();
    let chart = |name: &str, text: &str| {
        fs::write(made(name).join("Chart.yaml"), text).unwrap();
    };
    let library = "apiVersion: v2\nname: lib\nversion: 1.0.0\ntype: library\n";
    chart("library", library);
    let lonely = "apiVersion: v2\nname: lonely\nversion: 1.0.0\ndependencies:\n- {name: db, version: 1.0.0, repository: ''}\n";
    chart("lonely", lonely);
    chart("nothing", "apiVersion: v2\n");
    let init = "init --domain example.com --project-name p";
    ok(&project, init);
    for kind in ["Shop", "Order --native"] {
        let create = "create api --group a --version v1 --kind";
        ok(&project, &format!("{create} {kind}"));
    }
    for plugin in ["native", "helm"] {
        ok(&made(plugin), &format!("{init} --plugins {plugin}"));
    }

    let cases = CASES
        .replace("{api}", "create api --group a --version v1 --kind")
        .replace("{59 k}", &"k".repeat(59))
        .replace("{37 p}", &"p".repeat(37))
        .replace("{end}", "");
    let before = files(directory.path());
    let is_case = |line: &&str| !line.is_empty() && !line.starts_with('#');
    for line in cases.lines().filter(is_case) {
        let (place, rest) = line.split_once(": ").unwrap();
        let (folder, code) = place.split_once(' ').unwrap();
        let (arguments, wanted) = rest.split_once(" => ").unwrap();
        let output = run(&directory.path().join(folder), arguments);
        let err = text(&output.stderr);
        let code: i32 = code.parse().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments}\n{err}");
        assert!(err.contains(wanted), "{arguments}\n{err}");
        assert_eq!(files(directory.path()), before, "{arguments}");
    }
}

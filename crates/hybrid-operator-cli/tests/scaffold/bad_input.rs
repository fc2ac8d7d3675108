//! Bad input: each mistake is named with its way out, and nothing is written.

use std::fs;
use std::path::Path;

use super::{files, ok, run, text};

#[test]
#[expect(clippy::too_many_lines, reason = "a table of mistakes")]
fn bad_input_is_named_with_a_way_out_and_nothing_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let (empty, project) = (
        directory.path().join("empty"),
        directory.path().join("project"),
    );
    let blocked = directory.path().join("blocked");
    for folder in [&empty, &project, &blocked] {
        fs::create_dir(folder).unwrap();
    }
    fs::write(blocked.join("config"), "a file").unwrap();
    let chart = |name: &str, text: &str| {
        let chart = directory.path().join(name);
        fs::create_dir(&chart).unwrap();
        fs::write(chart.join("Chart.yaml"), text).unwrap();
    };
    chart(
        "library",
        "apiVersion: v2\nname: lib\nversion: 1.0.0\ntype: library\n",
    );
    chart(
        "lonely",
        "apiVersion: v2\nname: lonely\nversion: 1.0.0\ndependencies:\n- {name: db, version: 1.0.0, repository: ''}\n",
    );
    chart("nothing", "apiVersion: v2\n");
    ok(&project, "init --domain example.com --project-name p");
    ok(&project, "create api --group a --version v1 --kind Shop");
    ok(
        &project,
        "create api --group a --version v1 --kind Order --native",
    );
    let native = directory.path().join("native");
    let helm = directory.path().join("helm");
    for (folder, plugin) in [(&native, "native"), (&helm, "helm")] {
        fs::create_dir(folder).unwrap();
        ok(
            folder,
            &format!("init --plugins {plugin} --domain example.com --project-name p"),
        );
    }

    let api = "create api --group a --version v1 --kind";
    let cases: &[(&Path, &str, i32, &str)] = &[
        // Usage.
        (
            &empty,
            "init",
            2,
            "--domain is required, for example --domain example.com",
        ),
        (
            &empty,
            "init --domain",
            2,
            "a value is required for '--domain",
        ),
        (
            &empty,
            "init --plugins go --domain a.b",
            2,
            "possible values: helm, native, hybrid",
        ),
        (
            &empty,
            "init --domain a.b --plugins native --kind Shop",
            2,
            "--group is required",
        ),
        (&project, "create api", 2, "--group is required"),
        (
            &project,
            "create api --group a --version v1",
            2,
            "--kind is required",
        ),
        (
            &project,
            "create webhook --group a --version v1 --kind Order",
            2,
            "at least one of --defaulting",
        ),
        (
            &project,
            &format!("{api} X --native --helm-chart ../lonely"),
            2,
            "--helm-chart and the flags about fetching it cannot be used for a native kind",
        ),
        (
            &project,
            &format!("{api} X --plain-http"),
            2,
            "flags about repositories and registries need a chart in --helm-chart",
        ),
        // Names.
        (
            &empty,
            "init --domain Example.com",
            1,
            "the domain \"Example.com\" is not valid: use lower case",
        ),
        (
            &empty,
            "init --domain a.b --project-name Shop_1",
            1,
            "the project name \"Shop_1\" is not valid",
        ),
        (
            &empty,
            "init --domain a.b --project-name async",
            1,
            "\"async\" is a reserved word",
        ),
        (
            &project,
            "create api --group A --version v1 --kind X",
            1,
            "the group \"A\" is not valid",
        ),
        (
            &project,
            "create api --group a --version 1 --kind X",
            1,
            "use v1, v1beta1, v1alpha1 and the like",
        ),
        (
            &project,
            &format!("{api} shop"),
            1,
            "the kind \"shop\" is not valid: use at most 59 letters",
        ),
        (
            &project,
            &format!("{api} K{}", "k".repeat(59)),
            1,
            "use at most 59 letters",
        ),
        (
            &empty,
            &format!("init --domain a.b --project-name {}", "p".repeat(37)),
            1,
            "use at most 36 lower case letters",
        ),
        (
            &empty,
            "init --domain apps.k8s.io",
            1,
            "the domain \"apps.k8s.io\" is not valid: Kubernetes keeps groups",
        ),
        (
            &project,
            &format!("{api} Type --native"),
            1,
            "\"type\" is a reserved word",
        ),
        (
            &project,
            &format!("{api} Deployment --native"),
            1,
            "choose another name",
        ),
        (
            &project,
            &format!("{api} X --plural X"),
            1,
            "the plural \"X\" is not valid",
        ),
        // The project.
        (
            &empty,
            &format!("{api} Shop"),
            1,
            "create one with 'hybrid-operator init'",
        ),
        (
            &project,
            &format!("{api} Shop --native"),
            1,
            "the kind Shop of a.example.com is in the project already, as v1 with the chart helm-charts/shop",
        ),
        (
            &project,
            "create api --group a --version v2 --kind Shop",
            1,
            "is in the project already",
        ),
        (
            &project,
            "init --domain other.org --project-name p",
            1,
            "this is the directory of the project p already: PROJECT has domain example.com",
        ),
        (
            &native,
            &format!("{api} Shop --helm-chart ../lonely"),
            2,
            "cannot be used for a native kind; leave them out",
        ),
        (
            &native,
            "create chart --group a --version v1 --kind Shop",
            1,
            "this project has no charts",
        ),
        (
            &helm,
            &format!("{api} Shop --native"),
            1,
            "this project has no code",
        ),
        (
            &project,
            "create webhook --group a --version v1 --kind Shop --defaulting",
            1,
            "no native kind Shop",
        ),
        (
            &project,
            "create webhook --group a --version v1 --kind Order --conversion",
            1,
            "has no version to convert v1 to",
        ),
        (&blocked, "init --domain a.b --project-name p", 1, "config"),
        (
            &empty,
            "init --domain a.b --framework /nonexistent",
            1,
            "/nonexistent is not a checkout of the framework",
        ),
        // Charts.
        (
            &project,
            "create api --helm-chart ../library",
            1,
            "the chart lib is a library",
        ),
        (
            &project,
            "create api --helm-chart ../lonely",
            1,
            "run 'hybrid-operator charts dependency update ../lonely' first",
        ),
        (
            &project,
            "create api --helm-chart ../nothing",
            1,
            "cannot load the chart ../nothing: validation: ",
        ),
        (
            &project,
            "create api --helm-chart PROJECT",
            1,
            "does not appear to be a gzipped archive",
        ),
        (
            &project,
            "create api --helm-chart oci://r.io --helm-chart-version 1.2.3",
            1,
            "\"oci://r.io\" does not name a chart in a registry: it has no path",
        ),
        (
            &project,
            "create api --helm-chart c --helm-chart-repo r.io",
            1,
            "\"r.io\" is not a URL",
        ),
        (
            &project,
            "create api --helm-chart bitnami/redis",
            1,
            "has no repository \"bitnami\"; add it with 'helm repo add bitnami URL'",
        ),
        (
            &project,
            "create api --helm-chart helm-charts/shop --helm-chart-version 9.0.0",
            1,
            "has version 0.1.0, not 9.0.0",
        ),
    ];
    let before = files(directory.path());
    for (folder, arguments, code, wanted) in cases {
        let output = run(folder, arguments);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{arguments}\n{err}");
        assert!(err.contains(wanted), "{arguments}\n{err}");
        assert_eq!(files(directory.path()), before, "{arguments}");
    }
}

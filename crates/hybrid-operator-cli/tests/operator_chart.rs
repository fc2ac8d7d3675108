//! Tests of `generate chart`: the chart of an operator is made from a project, and rendered by Helm and by
//! this program.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hybrid_operator_test::helm;
use serde_json::{Value, json};

use support::{Done, PROGRAM, Text as _, or_skip};

fn start(program: &Path, directory: &Path, arguments: &str) -> Done {
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace());
    command.current_dir(directory).env("HOME", directory);
    Done::of(command.output().unwrap())
}

#[track_caller]
fn hybrid(directory: &Path, arguments: &str) -> String {
    start(Path::new(PROGRAM), directory, arguments).ok()
}

/// Makes the chart of the operator again, which must fail with this message.
#[track_caller]
fn refused(root: &Path, flags: &str, wanted: &str) {
    let arguments = format!("generate chart {flags}");
    let done = start(Path::new(PROGRAM), root, &arguments);
    assert_eq!(done.code, Some(1), "{}", done.err);
    done.err.must_have(wanted);
}

/// Makes a project with a chart, a native controller and a webhook, and the chart of its operator.
fn project() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let memcached = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../helm-charts/memcached");
    let memcached = fs::canonicalize(memcached).unwrap();
    let chart = memcached.display();
    let kind = "--group apps --version v1 --kind";
    for arguments in [
        "init --domain example.com --project-name shop-operator --with monitoring --license apache2 --owner me",
        &format!("create api {kind} Cache --helm-chart {chart}"),
        &format!("create api {kind} Order --native"),
        &format!("create webhook {kind} Order --defaulting"),
        "generate chart --image registry.example.com:5000/shop:v1.2.3",
    ] {
        hybrid(root, arguments);
    }
    directory
}

/// Renders the chart and returns its objects.
fn rendered(root: &Path, flags: &str) -> Vec<Value> {
    let arguments = format!("template shop dist/chart --namespace ops {flags}");
    let output = hybrid(root, &arguments);
    let mut objects: Vec<Value> = go_yaml::documents(output.as_bytes()).unwrap();
    objects.retain(|object| !object.is_null());
    objects
}

fn named<'v>(objects: &'v [Value], kind: &str) -> Vec<&'v str> {
    let found = objects.iter().filter(|object| object["kind"] == kind);
    found
        .map(|object| object["metadata"]["name"].as_str().unwrap())
        .collect()
}

fn one<'v>(objects: &'v [Value], kind: &str) -> &'v Value {
    let mut found = objects.iter().filter(|object| object["kind"] == kind);
    let first = found.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(found.next().is_none(), "several {kind}s");
    first
}

#[test]
fn helm_accepts_the_chart_and_renders_what_this_program_renders() {
    let helm = or_skip!(helm::ensure_or_skip().unwrap());
    let directory = project();
    let root = directory.path();
    let linted = start(&helm, root, "lint --strict dist/chart").ok();
    linted.must_have("0 chart(s) failed");
    let everything = "--set networkPolicy.enabled=true,metrics.serviceMonitor.enabled=true,metrics.alerts.enabled=true,watchNamespaces={a,b},image.digest=sha256:0,serviceAccount.annotations.a=b,nodeSelector.c=d,priorityClassName=e,crds.keep=false,replicas=2";
    for flags in ["", everything, "--set rbac.create=false,crds.install=false"] {
        let arguments = format!("template shop dist/chart --namespace ops {flags}");
        let theirs = start(&helm, root, &arguments).ok();
        assert_eq!(theirs, hybrid(root, &arguments), "{flags}");
    }
}

#[test]
fn values_change_what_they_name() {
    let directory = project();
    let root = directory.path();
    let objects = rendered(root, "");
    let deployment = one(&objects, "Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    let manager = &pod["containers"][0];
    assert_eq!(manager["image"], "registry.example.com:5000/shop:v1.2.3");
    let account = "shop-shop-operator-controller-manager";
    assert_eq!(pod["serviceAccountName"], account);
    assert_eq!(deployment["metadata"]["namespace"], "ops");
    let args = manager["args"].as_array().unwrap();
    for arg in [
        "--metrics-secure",
        "--webhook-service-name=shop-shop-operator-webhook",
    ] {
        assert!(args.contains(&json!(arg)), "{args:?}");
    }
    assert!(named(&objects, "Service").contains(&"shop-shop-operator-webhook"));
    assert_eq!(pod.get("nodeSelector"), None);
    assert_eq!(named(&objects, "CustomResourceDefinition").len(), 2);
    for kind in "Namespace ServiceMonitor PrometheusRule NetworkPolicy".split(' ') {
        assert_eq!(named(&objects, kind), Vec::<&str>::new());
    }
    // All objects have names of the release, and bindings are to its account and roles.
    for object in &objects {
        let name = object["metadata"]["name"].as_str().unwrap();
        let is_definition = object["kind"] == "CustomResourceDefinition";
        let is_named = is_definition || name.starts_with("shop-shop-operator-");
        assert!(is_named, "{name}");
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/instance"], "shop");
        if let Some(subject) = object["subjects"].get(0) {
            assert_eq!(subject["name"], account);
            assert_eq!(subject["namespace"], "ops");
            let role = object["roleRef"]["name"].as_str().unwrap();
            let roles = [named(&objects, "ClusterRole"), named(&objects, "Role")].concat();
            assert!(roles.contains(&role), "{role}");
        }
    }

    let flags =
        "--set image.tag=v2,image.digest=sha256:0,replicas=2,env[0].name=A,nodeSelector.a=b";
    let objects = rendered(root, flags);
    let deployment = one(&objects, "Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(deployment["spec"]["replicas"], 2);
    let image = &pod["containers"][0]["image"];
    assert_eq!(image, "registry.example.com:5000/shop:v2@sha256:0");
    assert_eq!(pod["nodeSelector"], json!({"a": "b"}));
    let env = pod["containers"][0]["env"].as_array().unwrap();
    assert_eq!(env.last().unwrap(), &json!({"name": "A"}));

    let flags = "--set rbac.create=false,crds.install=false,serviceAccount.create=false,serviceAccount.name=mine";
    let objects = rendered(root, flags);
    let absent =
        "ClusterRole ClusterRoleBinding Role RoleBinding ServiceAccount CustomResourceDefinition";
    for kind in absent.split(' ') {
        assert_eq!(named(&objects, kind), Vec::<&str>::new());
    }
    let pod = &one(&objects, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "mine");

    let objects = rendered(root, "--set rbac.userRoles=false,fullnameOverride=other");
    let roles = named(&objects, "ClusterRole");
    assert!(roles.contains(&"other-operator-role"), "{roles:?}");
    let mut viewers = roles.iter().filter(|name| name.ends_with("-viewer-role"));
    assert_eq!(viewers.next(), None);

    let flags = "--set networkPolicy.enabled=true,metrics.serviceMonitor.enabled=true,metrics.alerts.enabled=true";
    let objects = rendered(root, flags);
    assert_eq!(named(&objects, "NetworkPolicy").len(), 2);
    let alerts = one(&objects, "PrometheusRule").to_string();
    alerts.must_have("{{ $labels.controller }}");
    one(&objects, "ServiceMonitor");
}

#[test]
fn with_watch_namespaces_only_rules_for_no_namespace_are_bound_in_the_cluster() {
    let directory = project();
    let objects = rendered(directory.path(), "--set watchNamespaces={a,b}");
    let pod = &one(&objects, "Deployment")["spec"]["template"]["spec"];
    let env = pod["containers"][0]["env"].as_array().unwrap();
    let watched = json!({"name": "WATCH_NAMESPACE", "value": "a,b"});
    assert!(env.contains(&watched), "{env:?}");
    let of = |kind: &str, name: &str| -> Vec<&Value> {
        let name = format!("shop-shop-operator-{name}");
        let of_kind = objects.iter().filter(|object| object["kind"] == kind);
        of_kind
            .filter(|object| object["metadata"]["name"] == name)
            .collect()
    };
    for role in ["chart-memcached", "native-order", "operator"] {
        let binding = format!("{role}-rolebinding");
        let bindings = of("RoleBinding", &binding).into_iter();
        let namespaces: Vec<_> = bindings.map(|one| &one["metadata"]["namespace"]).collect();
        assert_eq!(namespaces, ["a", "b"], "{role}");
        assert!(of("ClusterRoleBinding", &binding).is_empty());
    }
    let cluster = of("ClusterRole", "operator-role-cluster");
    assert_eq!(
        cluster[0]["rules"],
        json!([
            {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["list", "watch"]},
            {"apiGroups": ["apiregistration.k8s.io"], "resources": ["apiservices"], "verbs": ["list", "watch"]},
        ])
    );
    let bound = of("ClusterRoleBinding", "operator-rolebinding-cluster");
    let role = &bound[0]["roleRef"]["name"];
    assert_eq!(role, "shop-shop-operator-operator-role-cluster");
    // Reviews are made in no namespace.
    let reviewers = of("ClusterRoleBinding", "metrics-auth-rolebinding");
    assert_eq!(reviewers.len(), 1);
    assert_eq!(of("Role", "release-record-key").len(), 1);
}

#[test]
fn the_chart_describes_itself_and_keeps_what_was_added() {
    let directory = project();
    let root = directory.path();
    let path = root.join("dist/chart/Chart.yaml");
    let read = || -> Value { go_yaml::from_slice(&fs::read(&path).unwrap()).unwrap() };
    let chart = read();
    assert_eq!(chart["version"], "1.2.3");
    assert_eq!(chart["appVersion"], "v1.2.3");
    let annotation = |name: &str| {
        chart["annotations"][format!("artifacthub.io/{name}")]
            .as_str()
            .unwrap()
    };
    let crds: Value = go_yaml::from_str(annotation("crds")).unwrap();
    assert_eq!(crds[0]["kind"], "Cache");
    assert_eq!(crds[0]["name"], "caches.apps.example.com");
    assert_eq!(crds[0]["version"], "v1");
    let samples: Value = go_yaml::from_str(annotation("crdsExamples")).unwrap();
    assert_eq!(samples[1]["kind"], "Order");
    assert_eq!(annotation("operator"), "true");
    assert_eq!(annotation("license"), "Apache-2.0");
    assert!(annotation("images").contains("registry.example.com:5000/shop:v1.2.3"));

    let mut changed = chart.clone();
    let icon = "https://example.com/icon.svg";
    changed["icon"] = json!(icon);
    changed["version"] = json!("7.0.0");
    fs::write(&path, changed.to_string()).unwrap();
    let newer = "generate chart --image registry.example.com:5000/shop:v1.2.4";
    hybrid(root, newer);
    let chart = read();
    assert_eq!(chart["icon"], icon);
    assert_eq!(chart["version"], "7.0.0");
    assert_eq!(chart["appVersion"], "v1.2.4");
    hybrid(root, "generate chart --version 8.0.0 --image a:v1");
    assert_eq!(read()["version"], "8.0.0");
    assert_eq!(hybrid(root, "generate chart --check --image a:v1"), "");
    let outdated = "dist/chart/Chart.yaml is out of date";
    let arguments = "generate chart --check --image a:v2";
    let done = start(Path::new(PROGRAM), root, arguments);
    assert_eq!(done.code, Some(3), "{}", done.err);
    done.err.must_have(outdated);
}

#[test]
fn what_the_chart_cannot_have_is_refused_with_the_file() {
    let directory = project();
    let root = directory.path();
    let file: PathBuf = root.join("config/manager/kustomization.yaml");
    let before = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{before}patches: [{{path: p.yaml}}]\n")).unwrap();
    let patches = "config/manager/kustomization.yaml has the field patches";
    refused(root, "", patches);
    fs::write(&file, "resources: []\n").unwrap();
    refused(root, "", "config/manager has no Deployment");
}

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
use std::process::{Command, Output};

use hybrid_operator_test::helm;
use serde_json::{Value, json};

use support::{PROGRAM, Text as _, or_skip, text};

fn start(program: &Path, directory: &Path, arguments: &str) -> Output {
    Command::new(program)
        .args(arguments.split_whitespace())
        .current_dir(directory)
        .env("HOME", directory)
        .output()
        .unwrap()
}

#[track_caller]
fn ok(program: &Path, directory: &Path, arguments: &str) -> String {
    let output = start(program, directory, arguments);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments}\n{out}{err}");
    out
}

fn hybrid(directory: &Path, arguments: &str) -> String {
    ok(Path::new(PROGRAM), directory, arguments)
}

/// Makes a project with a chart, a native controller and a webhook, and the chart of its operator.
fn project() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let memcached = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../helm-charts/memcached");
    let memcached = fs::canonicalize(memcached).unwrap();
    hybrid(
        root,
        "init --domain example.com --project-name shop-operator --owner me",
    );
    let kind = "--group apps --version v1 --kind";
    hybrid(
        root,
        &format!(
            "create api {kind} Cache --helm-chart {}",
            memcached.display()
        ),
    );
    hybrid(root, &format!("create api {kind} Order --native"));
    hybrid(root, &format!("create webhook {kind} Order --defaulting"));
    hybrid(
        root,
        "generate chart --image registry.example.com:5000/shop:v1.2.3",
    );
    directory
}

/// Renders the chart and returns its objects.
fn rendered(root: &Path, flags: &str) -> Vec<Value> {
    let output = hybrid(
        root,
        &format!("template shop dist/chart --namespace ops {flags}"),
    );
    let objects: Vec<Value> = go_yaml::documents(output.as_bytes()).unwrap();
    objects
        .into_iter()
        .filter(|object| !object.is_null())
        .collect()
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
    let linted = ok(&helm, root, "lint --strict dist/chart");
    linted.must_have("0 chart(s) failed");
    let everything = "--set networkPolicy.enabled=true,metrics.serviceMonitor.enabled=true,metrics.alerts.enabled=true,watchNamespaces={a,b},image.digest=sha256:0,serviceAccount.annotations.a=b,nodeSelector.c=d,priorityClassName=e,crds.keep=false,replicas=2";
    for flags in ["", everything, "--set rbac.create=false,crds.install=false"] {
        let arguments = format!("template shop dist/chart --namespace ops {flags}");
        assert_eq!(
            ok(&helm, root, &arguments),
            hybrid(root, &arguments),
            "{flags}"
        );
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
    for kind in [
        "Namespace",
        "ServiceMonitor",
        "PrometheusRule",
        "NetworkPolicy",
    ] {
        assert_eq!(named(&objects, kind), Vec::<&str>::new());
    }
    // All objects have names of the release, and bindings are to its account and roles.
    for object in &objects {
        let name = object["metadata"]["name"].as_str().unwrap();
        let is_definition = object["kind"] == "CustomResourceDefinition";
        assert!(
            is_definition || name.starts_with("shop-shop-operator-"),
            "{name}"
        );
        assert_eq!(
            object["metadata"]["labels"]["app.kubernetes.io/instance"],
            "shop"
        );
        if let Some(subject) = object["subjects"].get(0) {
            assert_eq!(
                (&subject["name"], &subject["namespace"]),
                (&json!(account), &json!("ops"))
            );
            let role = object["roleRef"]["name"].as_str().unwrap();
            let roles = [named(&objects, "ClusterRole"), named(&objects, "Role")].concat();
            assert!(roles.contains(&role), "{role}");
        }
    }

    let objects = rendered(
        root,
        "--set image.tag=v2,image.digest=sha256:0,replicas=2,env[0].name=A,nodeSelector.a=b",
    );
    let deployment = one(&objects, "Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(deployment["spec"]["replicas"], 2);
    assert_eq!(
        pod["containers"][0]["image"],
        "registry.example.com:5000/shop:v2@sha256:0"
    );
    assert_eq!(pod["nodeSelector"], json!({"a": "b"}));
    let env = pod["containers"][0]["env"].as_array().unwrap();
    assert_eq!(env.last().unwrap(), &json!({"name": "A"}));

    let objects = rendered(
        root,
        "--set rbac.create=false,crds.install=false,serviceAccount.create=false,serviceAccount.name=mine",
    );
    for kind in [
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "ServiceAccount",
        "CustomResourceDefinition",
    ] {
        assert_eq!(named(&objects, kind), Vec::<&str>::new());
    }
    let pod = &one(&objects, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "mine");

    let objects = rendered(root, "--set rbac.userRoles=false,fullnameOverride=other");
    let roles = named(&objects, "ClusterRole");
    assert!(roles.contains(&"other-operator-role"), "{roles:?}");
    assert!(
        !roles.iter().any(|name| name.ends_with("-viewer-role")),
        "{roles:?}"
    );

    let objects = rendered(
        root,
        "--set networkPolicy.enabled=true,metrics.serviceMonitor.enabled=true,metrics.alerts.enabled=true",
    );
    assert_eq!(named(&objects, "NetworkPolicy").len(), 2);
    let alerts = one(&objects, "PrometheusRule");
    assert!(
        alerts.to_string().contains("{{ $labels.controller }}"),
        "{alerts}"
    );
    one(&objects, "ServiceMonitor");
}

#[test]
fn with_watch_namespaces_only_rules_for_no_namespace_are_bound_in_the_cluster() {
    let directory = project();
    let objects = rendered(directory.path(), "--set watchNamespaces={a,b}");
    let pod = &one(&objects, "Deployment")["spec"]["template"]["spec"];
    let env = pod["containers"][0]["env"].as_array().unwrap();
    assert!(
        env.contains(&json!({"name": "WATCH_NAMESPACE", "value": "a,b"})),
        "{env:?}"
    );
    let of = |kind: &str, name: &str| -> Vec<&Value> {
        let is_it = |object: &&Value| {
            object["kind"] == kind
                && object["metadata"]["name"] == format!("shop-shop-operator-{name}")
        };
        objects.iter().filter(is_it).collect()
    };
    for role in ["chart-memcached", "native-order", "operator"] {
        let bindings = of("RoleBinding", &format!("{role}-rolebinding"));
        let namespaces: Vec<_> = bindings
            .iter()
            .map(|one| &one["metadata"]["namespace"])
            .collect();
        assert_eq!(namespaces, ["a", "b"], "{role}");
        assert!(of("ClusterRoleBinding", &format!("{role}-rolebinding")).is_empty());
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
    assert_eq!(
        bound[0]["roleRef"]["name"],
        "shop-shop-operator-operator-role-cluster"
    );
    // Reviews are made in no namespace.
    assert_eq!(
        of("ClusterRoleBinding", "metrics-auth-rolebinding").len(),
        1
    );
    assert_eq!(of("Role", "release-record-key").len(), 1);
}

#[test]
fn the_chart_describes_itself_and_keeps_what_was_added() {
    let directory = project();
    let root = directory.path();
    let path = root.join("dist/chart/Chart.yaml");
    let read = || -> Value { go_yaml::from_slice(&fs::read(&path).unwrap()).unwrap() };
    let chart = read();
    assert_eq!(
        (&chart["version"], &chart["appVersion"]),
        (&json!("1.2.3"), &json!("v1.2.3"))
    );
    let annotation = |name: &str| {
        chart["annotations"][format!("artifacthub.io/{name}")]
            .as_str()
            .unwrap()
    };
    let crds: Value = go_yaml::from_str(annotation("crds")).unwrap();
    assert_eq!(
        (&crds[0]["kind"], &crds[0]["name"], &crds[0]["version"]),
        (
            &json!("Cache"),
            &json!("caches.apps.example.com"),
            &json!("v1")
        )
    );
    let samples: Value = go_yaml::from_str(annotation("crdsExamples")).unwrap();
    assert_eq!(samples[1]["kind"], "Order");
    assert_eq!(annotation("operator"), "true");
    assert_eq!(annotation("license"), "Apache-2.0");
    assert!(annotation("images").contains("registry.example.com:5000/shop:v1.2.3"));

    let mut changed = chart.clone();
    changed["icon"] = json!("https://example.com/icon.svg");
    changed["version"] = json!("7.0.0");
    fs::write(&path, changed.to_string()).unwrap();
    hybrid(
        root,
        "generate chart --image registry.example.com:5000/shop:v1.2.4",
    );
    let chart = read();
    assert_eq!(
        (&chart["icon"], &chart["version"], &chart["appVersion"]),
        (
            &json!("https://example.com/icon.svg"),
            &json!("7.0.0"),
            &json!("v1.2.4")
        )
    );
    hybrid(root, "generate chart --version 8.0.0 --image a:v1");
    assert_eq!(read()["version"], "8.0.0");
    assert_eq!(hybrid(root, "generate chart --check --image a:v1"), "");
    let outdated = start(
        Path::new(PROGRAM),
        root,
        "generate chart --check --image a:v2",
    );
    assert_eq!(outdated.status.code(), Some(1));
    let error = text(&outdated.stderr);
    error.must_have("dist/chart/Chart.yaml is out of date");
}

#[test]
fn what_the_chart_cannot_have_is_refused_with_the_file() {
    let directory = project();
    let root = directory.path();
    let refused = |wanted: &str| {
        let output = start(Path::new(PROGRAM), root, "generate chart");
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        error.must_have(wanted);
    };
    let file: PathBuf = root.join("config/manager/kustomization.yaml");
    let before = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{before}patches: [{{path: p.yaml}}]\n")).unwrap();
    refused("config/manager/kustomization.yaml has the field patches");
    fs::write(&file, "resources: []\n").unwrap();
    refused("config/manager has no Deployment");
}

//! Has the code of Argo CD and Flux judge custom resources with what `hybrid-operator generate health` prints.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails with a panic"
)]

mod support;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use hybrid_operator_test::gitops;
use serde_json::{Value, json};

use support::{Done, PROGRAM, Project, Text as _, or_skip};

/// Statuses that the operator writes, made by a test of the crate `hybrid-operator`.
const STATES: &str = include_str!("health/states.json");
/// Verdicts of Argo CD and Flux on them.
const JUDGED: &str = include_str!("health/judged.txt");
const WATCHES: &str = "\
- {group: shop.example.com, version: v1, kind: Shop, chart: shop}
- {group: shop.example.com, version: v1beta1, kind: Shop, chart: shop}
- {group: shop.example.com, version: v1alpha1, kind: Cart, chart: shop}
";

/// A project with two kinds, one of them in two versions.
fn project() -> Project {
    Project::with(&[
        (
            "shop/Chart.yaml",
            "{apiVersion: v2, name: shop, version: 1.0.0}",
        ),
        ("watches.yaml", WATCHES),
        (
            "PROJECT",
            "domain: example.com\nlayout: [hybrid]\nprojectName: p\nversion: \"3\"\n",
        ),
    ])
}

fn run(project: &Project, arguments: &str) -> Done {
    let mut command = Command::new(PROGRAM);
    command.args(["generate", "health"]);
    command.args(arguments.split_whitespace());
    Done::of(command.current_dir(project.0.path()).output().unwrap())
}

/// Returns the states as objects of a kind.
fn objects(api_version: &str, kind: &str) -> Vec<Value> {
    let mut objects: Vec<Value> = serde_json::from_str(STATES).unwrap();
    for object in &mut objects {
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
    }
    objects
}

/// Returns the lines with which a program answers.
fn ask(program: &Path, input: &Value) -> Vec<Value> {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let name = program.display();
    assert!(output.status.success(), "{name}: {}", output.status);
    let lines = output.stdout.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

#[test]
fn argo_cd_and_flux_judge_every_state_as_the_table_says() {
    let (argo_cd, flux) = or_skip!(gitops::ensure_or_skip().unwrap());
    let project = project();
    let config_map = run(&project, "--argocd").ok();
    let expressions = run(&project, "--flux").ok();
    // Checks are of a kind, whatever its version is.
    for (api_version, kind) in [
        ("shop.example.com/v1", "Shop"),
        ("shop.example.com/v1alpha1", "Cart"),
    ] {
        let objects = objects(api_version, kind);
        let healths = ask(
            &argo_cd,
            &json!({"configMap": config_map, "objects": objects}),
        );
        let statuses = ask(
            &flux,
            &json!({"expressions": expressions, "objects": objects}),
        );
        let mut judged =
            "# state: Argo CD, Flux with the expressions, Flux without them\n".to_owned();
        for ((object, health), status) in objects.iter().zip(&healths).zip(&statuses) {
            let name = object["metadata"]["name"].as_str().unwrap();
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let all = [&health["status"], &status["flux"], &status["default"]].map(text);
            writeln!(judged, "{name}: {}", all.join(", ")).unwrap();
        }
        for (now, wanted) in judged.lines().zip(JUDGED.lines()) {
            assert_eq!(now, wanted, "{kind}");
        }
        assert_eq!(judged.lines().count(), JUDGED.lines().count());
        let messages = healths.iter().map(|health| health["message"].as_str());
        let messages: Vec<&str> = messages.map(Option::unwrap_or_default).collect();
        assert!(messages.contains(&"quota exceeded"), "{messages:?}");
    }
}

#[test]
fn kinds_that_the_project_does_not_have_are_left_to_others() {
    let (argo_cd, _) = or_skip!(gitops::ensure_or_skip().unwrap());
    let project = project();
    let config_map = run(&project, "--argocd --kind Cart").ok();
    let objects = json!([
        {"apiVersion": "shop.example.com/v1", "kind": "Shop", "metadata": {"name": "a", "generation": 1}},
        {"apiVersion": "shop.example.com/v1", "kind": "Cart", "metadata": {"name": "b", "generation": 1}},
    ]);
    let healths = ask(
        &argo_cd,
        &json!({"configMap": config_map, "objects": objects}),
    );
    let statuses: Vec<&Value> = healths.iter().map(|health| &health["status"]).collect();
    assert_eq!(statuses, ["None", "Progressing"]);
}

#[test]
fn each_kind_has_one_check_whatever_its_versions_are() {
    let project = project();
    let config_map = run(&project, "--argocd").ok();
    config_map.must_have("  name: argocd-cm\ndata:\n  resource.customizations.health.shop.example.com_Cart: &health |\n    local");
    assert!(
        config_map.ends_with("\n  resource.customizations.health.shop.example.com_Shop: *health\n"),
        "{config_map}"
    );
    let expressions = run(&project, "--flux --kind Shop").ok();
    let head = "healthCheckExprs:\n- apiVersion: shop.example.com/v1\n  kind: Shop\n  inProgress: ";
    assert!(expressions.starts_with(head), "{expressions}");
    assert_eq!(expressions.matches("kind: ").count(), 1, "{expressions}");
}

#[test]
fn the_page_shows_what_is_printed() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = std::fs::read_to_string(docs.join("guides/outputs.md")).unwrap();
    let project = project();
    for arguments in ["--argocd", "--flux --kind Shop"] {
        let printed = run(&project, arguments).ok();
        page.must_have(&format!("```yaml\n{printed}```"));
    }
}

#[test]
fn what_cannot_be_generated_is_refused_with_the_way_out() {
    let empty = Project::with(&[("watches.yaml", "[]\n")]);
    for (project, arguments, code, message) in [
        (project(), "", 2, "<--argocd|--flux>"),
        (project(), "--argocd --flux", 2, "cannot be used with"),
        (
            project(),
            "--flux --kind Basket",
            1,
            "no chart serves the kind \"Basket\"; kinds of the watches file: Cart, Shop",
        ),
        (
            project(),
            "--flux --watches-file other.yaml",
            1,
            "other.yaml",
        ),
        (Project::with(&[]), "--flux", 1, "is not in a project"),
        (
            empty,
            "--argocd --watches-file watches.yaml",
            1,
            "watches.yaml has no kinds",
        ),
    ] {
        let done = run(&project, arguments);
        assert_eq!(done.code, Some(code), "{arguments}: {}", done.err);
        assert_eq!(done.out, "", "{arguments}");
        done.err.must_have(message);
    }
    let outside = Project::with(&[
        ("watches.yaml", WATCHES),
        (
            "shop/Chart.yaml",
            "{apiVersion: v2, name: shop, version: 1.0.0}",
        ),
    ]);
    let printed = run(&outside, "--flux --watches-file watches.yaml").ok();
    assert_eq!(printed, run(&project(), "--flux").ok());
}

//! Runs the operator through generated histories, and compares the result with a fresh install.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says what it found"
)]

mod components;
mod replay;

use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Instant;

use clap::Parser;
use hybrid_operator::helm::Charts;
use hybrid_operator::manager::Manager;
use hybrid_operator::options::{Options, RunArgs};
use hybrid_operator_test::simulation::{Custom, Field, History, Process, Project, Simulation};
use kube::Client;
use mimalloc::MiMalloc;
use serde_json::{Value, json};
use tower::BoxError;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Returns the options of a process.
fn options(process: &Process) -> Result<Options, BoxError> {
    let mut arguments = vec![
        "run",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
    ];
    if process.is_elected {
        arguments.push("--leader-elect");
    }
    Ok(
        RunArgs::try_parse_from(arguments)?.options(|name| match name {
            "POD_NAMESPACE" => Some("operator".to_owned()),
            "POD_NAME" => Some(process.name.clone()),
            _ => None,
        }),
    )
}

/// Runs the operator as a process.
async fn operator(process: Process) -> Result<(), BoxError> {
    let options = options(&process)?;
    let charts = Charts::load(&process.directory.join("watches.yaml"), |chart| chart)?;
    let client = Client::new(process.transport, "operator");
    let manager = charts
        .watch_files(false)
        .add_to(Manager::new(options).network(client));
    Ok(manager.run_until(process.stop).await?)
}

/// Returns a patch of a container. The entries allow another image, and nothing else.
#[expect(clippy::needless_pass_by_value, reason = "literals read better")]
fn patches(field: &str, value: Value) -> Value {
    let path = format!("/spec/template/spec/containers/0/{field}");
    json!([{"target": {"kind": "Deployment"}, "patch": [{"op": "add", "path": path, "value": value}]}])
}

/// The fields of the specification that vary: values of the charts, and patches.
fn fields() -> Vec<Field> {
    let fields = [
        ("text", json!([null, "b", "c"])),
        ("replicas", json!([null, 3])),
        ("autoscaler", json!([null, "v2", "both"])),
        ("account", json!([null, "hook", "none"])),
        ("roleNamespace", json!([null, "x", "y"])),
        ("space", json!([null, true])),
        (
            "definition",
            json!([null, "alone", "v1", "v2", "v3", "generated"]),
        ),
        ("generated", json!([null, "plain", "kept"])),
        (
            "task",
            json!([null, "always", "once", "after", "delete", "test"]),
        ),
        ("kept", json!([null, true])),
        ("list", json!([null, true])),
        ("valid", json!([null, false, "fails"])),
        (
            "patches",
            json!([
                null,
                patches("image", json!("example.com/web:2")),
                patches("tty", json!(true))
            ]),
        ),
    ];
    fields
        .map(|(name, values)| Field::new(name, values.as_array().unwrap().clone()))
        .to_vec()
}

/// Returns the definition of a kind.
fn definition(kind: &str, scope: &str) -> Value {
    let name = kind.to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{name}s.demo.example.com")},
        "spec": {
            "group": "demo.example.com", "scope": scope,
            "names": {
                "plural": format!("{name}s"), "singular": name,
                "kind": kind, "listKind": format!("{kind}List"),
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}

/// Returns a custom resource.
fn custom(kind: &str, namespace: &str, name: &str) -> Custom {
    Custom {
        fields: fields(),
        annotations: [("upgrade-force", "true"), ("reconcile-period", "0s")]
            .map(|(name, value)| {
                let name = format!("helm.sdk.operatorframework.io/{name}");
                (name, value.to_owned())
            })
            .to_vec(),
        ..Custom::new("demo.example.com/v1", kind, namespace, name)
    }
}

fn project() -> Project {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulation");
    let namespace =
        |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    Project {
        versions: ["one", "two", "three"]
            .map(|version| directory.join(version))
            .to_vec(),
        objects: vec![
            namespace("operator"),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "deployer"},
                "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": "deployer"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "deployer"},
                "subjects": [{
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts",
                }],
            }),
        ],
        replaced: vec![
            namespace("team"),
            definition("Web", "Namespaced"),
            definition("Site", "Cluster"),
        ],
        settings: ["setting: of-the-cluster", "setting: other", "valid: fails"]
            .map(|values| {
                json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "operator"},
                    "data": {"values.yaml": values},
                })
            })
            .to_vec(),
        suspends: Some((
            "helm.sdk.operatorframework.io/paused".to_owned(),
            "true".to_owned(),
        )),
        elects: true,
        requests: 100,
        resources: vec![
            custom("Web", "team", "a"),
            custom("Web", "team", "b"),
            custom("Site", "", "site"),
        ],
        others: vec![
            json!({"apiVersion": "a.example.com/v1", "kind": "Page", "metadata": {"name": "mine", "namespace": "team"}}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine", "namespace": "a-space"}, "data": {"a": "b"}}),
        ],
    }
}

/// The simulation of the operator, whose fresh installs the tests share.
static SIMULATION: LazyLock<Simulation> =
    LazyLock::new(|| Simulation::new(operator, project()).unwrap());

/// Number of histories of a run without `SEEDS`.
const HISTORIES: u64 = 100;

/// Number of histories between two lines about the progress.
const BETWEEN_REPORTS: u64 = 1_000;

/// Returns the seeds `FROM..TO` of a variable of the environment.
fn seeds(variable: &str) -> Option<Range<u64>> {
    let seeds = std::env::var(variable).ok()?;
    let (from, to) = seeds.split_once("..").unwrap();
    Some(from.parse().unwrap()..to.parse().unwrap())
}

/// Runs the histories of the seeds `SEEDS=FROM..TO`, and prints the shortest ones that fail as they are found.
#[test]
fn histories_end_like_a_fresh_install() {
    search(&SIMULATION, "SEEDS", HISTORIES);
}

/// Runs the histories of the seeds that a variable of the environment has, or else those below a number.
fn search(simulation: &Simulation, variable: &str, below: u64) {
    let seeds = seeds(variable).unwrap_or(0..below);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let begin = Instant::now();
    let mut found = Vec::new();
    let mut next = seeds.start;
    while next < seeds.end {
        let part = next..seeds.end.min(next + BETWEEN_REPORTS);
        next = part.end;
        for finding in simulation.search(part, threads).unwrap() {
            println!("{finding}");
            found.push(finding.history.seed);
        }
        let count = next - seeds.start;
        println!("{count} histories in {:.1?}", begin.elapsed());
    }
    assert!(
        found.is_empty(),
        "the histories of these seeds fail: {found:?}"
    );
}

/// Runs the changes of one custom resource from one state to another: all of them if `CHANGES` is set, or else
/// some.
#[test]
fn changes_end_like_a_fresh_install() {
    let changes = SIMULATION.changes();
    let runs_all = std::env::var_os("CHANGES").is_some();
    let every = if runs_all { 1 } else { 40 };
    let begin = Instant::now();
    let mut count = 0;
    let mut findings = Vec::new();
    for history in changes.iter().skip(1).step_by(every) {
        count += 1;
        findings.extend(SIMULATION.run(history).unwrap());
    }
    println!("{count} changes in {:.1?}", begin.elapsed());
    for finding in &findings {
        println!("{finding}");
    }
    assert!(count > 0 && findings.is_empty());
}

/// Runs the history in the file `HISTORY`, and prints its requests if it fails.
#[test]
fn history_of_a_file_ends_like_a_fresh_install() {
    let Ok(file) = std::env::var("HISTORY") else {
        return;
    };
    let history = History::read(&std::fs::read_to_string(file).unwrap()).unwrap();
    if let Some(finding) = SIMULATION.run(&history).unwrap() {
        panic!("{}\n{finding}", finding.log.join("\n"));
    }
}

/// Each history of `histories/` fails with a defect that the operator once had, which the file names.
#[test]
fn histories_of_former_defects_end_like_a_fresh_install() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulation/histories");
    let mut count = 0;
    let mut failed = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let history = History::read(&std::fs::read_to_string(&path).unwrap()).unwrap();
        count += 1;
        if let Some(finding) = SIMULATION.run(&history).unwrap() {
            failed.push(format!("{}:\n{finding}", path.display()));
        }
    }
    assert!(count > 0, "there are no histories");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_program_that_does_nothing_after_a_restart_is_found() {
    let lazy = |process: Process| async move {
        if process.number == 1 {
            return operator(process).await;
        }
        process.stop.cancelled().await;
        Ok(())
    };
    let simulation = Simulation::new(lazy, project()).unwrap();
    let findings = simulation.search(0..20, 1).unwrap();
    assert!(!findings.is_empty());
    let finding = &findings[0];
    assert!(finding.history.steps.len() <= 4, "{finding}");
    let again = History::read(&finding.history.to_string()).unwrap();
    assert_eq!(again, finding.history);
    assert_eq!(
        simulation.run(&again).unwrap().unwrap().wrong,
        finding.wrong
    );
}

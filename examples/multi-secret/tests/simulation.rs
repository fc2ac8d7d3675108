//! Runs the operator through generated histories in virtual time, and finds a defect that is put in.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use clap::Parser;
use hybrid_operator::manager::Manager;
use hybrid_operator::native::{self, Action, Context, Error, NativeController};
use hybrid_operator::options::RunArgs;
use hybrid_operator_test::simulation::{Custom, Field, Process, Project, Simulation};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Client;
use kube::core::ObjectMeta;
use multi_secret::api::MultiSecret;
use multi_secret::controller::controller;
use serde_json::{Value, json};
use tower::BoxError;

/// Runs a controller as a process of the simulation.
async fn run(process: Process, controller: NativeController<MultiSecret>) -> Result<(), BoxError> {
    let mut arguments = vec![
        "run",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
    ];
    if process.is_elected {
        arguments.push("--leader-elect");
    }
    let options = RunArgs::try_parse_from(arguments)?.options(|name| match name {
        "POD_NAMESPACE" => Some("operator".to_owned()),
        "POD_NAME" => Some(process.name.clone()),
        _ => None,
    });
    let client = Client::new(process.transport, "operator");
    let manager = Manager::new(options).network(client).with(controller);
    Ok(manager.run_until(process.stop).await?)
}

/// Removes rules in CEL, which the API server in memory does not evaluate.
fn drop_rules(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-validations");
            fields.values_mut().for_each(drop_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_rules),
        _ => {}
    }
}

/// Two namespaces, of which one is deleted and made again, and a `MultiSecret` whose content and
/// selector vary.
fn project() -> Project {
    let namespace = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"team": name}},
        })
    };
    let mut definition = serde_json::to_value(native::crd::<MultiSecret>()).unwrap();
    drop_rules(&mut definition);
    let secret = Custom {
        fields: vec![
            Field::new(
                "stringData",
                [json!({"a": "b"}), json!({"a": "c", "d": "e"})],
            ),
            Field::new(
                "namespaceSelector",
                [
                    json!({"matchExpressions": [{"key": "team", "operator": "Exists"}]}),
                    json!({"matchLabels": {"team": "left"}}),
                    json!({"matchLabels": {"team": "none"}}),
                ],
            ),
        ],
        ..Custom::new("example.com/v1", "MultiSecret", "home", "shared")
    };
    Project {
        versions: vec![std::env::temp_dir()],
        objects: vec![
            namespace("operator"),
            namespace("home"),
            definition,
            namespace("left"),
        ],
        replaced: vec![namespace("right")],
        resources: vec![secret],
        others: vec![
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine", "namespace": "left"}}),
        ],
        elects: true,
        requests: 100,
        ..Project::default()
    }
}

#[test]
fn histories_end_like_a_fresh_install() {
    let simulation = Simulation::new(|process| run(process, controller()), project()).unwrap();
    let findings = simulation.search(0..30, 2).unwrap();
    let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(texts.is_empty(), "{}", texts.join("\n"));
}

/// Applies the Secrets and forgets those of namespaces that are no longer selected.
async fn apply_only(
    object: Arc<MultiSecret>,
    context: Context<MultiSecret>,
) -> Result<Action, Error> {
    let selector = &object.spec.namespace_selector.match_labels;
    for namespace in context.cached::<Namespace>()?.list() {
        let labels = namespace.metadata.labels.clone().unwrap_or_default();
        let mut wanted = selector.iter().flatten();
        if wanted.all(|(key, value)| labels.get(key) == Some(value)) {
            let metadata = ObjectMeta {
                name: object.metadata.name.clone(),
                namespace: namespace.metadata.name.clone(),
                ..ObjectMeta::default()
            };
            let secret = Secret {
                metadata,
                string_data: Some(object.spec.string_data.clone()),
                ..Secret::default()
            };
            context.apply(&secret).await?;
        }
    }
    Ok(Action::done())
}

#[test]
fn a_controller_that_does_not_remove_what_is_no_longer_wanted_is_found() {
    let defective = || {
        native::controller::<MultiSecret>("multisecret")
            .owns::<Secret>()
            .watches_for::<Namespace>(|_, _| true)
            .reconcile(apply_only)
    };
    let simulation = Simulation::new(move |process| run(process, defective()), project()).unwrap();
    let mut findings = (0..100).flat_map(|seed| simulation.search(seed..seed + 1, 1).unwrap());
    let finding = findings.next().unwrap();
    assert!(finding.history.steps.len() <= 3, "{finding}");
    let again = simulation.run(&finding.history).unwrap().unwrap();
    assert_eq!(again.wrong, finding.wrong);
    let left = |line: &String| line.contains("/shared: expected nothing, found");
    assert!(finding.wrong.iter().any(left), "{finding}");
}

//! The operator's container: its arguments must be known here.

use std::path::Path;

use clap::Parser as _;
use hybrid_operator::options::{RunArgs, double_dashes};
use serde_json::Value;

use super::{Kind, Tree, is_yaml_in, line_with};

pub(super) fn check(tree: &mut Tree) {
    let files = tree.matching(|path| is_yaml_in(path, &["config", "deploy"]));
    for (path, text) in files {
        let documents: Vec<Value> = go_yaml::documents(text.as_bytes()).unwrap_or_default();
        for document in &documents {
            for argument in arguments(document) {
                check_argument(tree, &path, &text, &argument);
            }
        }
    }
}

/// Returns the arguments of the operator in a Deployment, in a patch of one, or in a JSON patch.
fn arguments(document: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    if let Some(operations) = document.as_array() {
        let values = operations.iter().filter_map(|operation| {
            let path = operation.get("path")?.as_str()?;
            path.contains("/args").then_some(operation.get("value")?)
        });
        return values
            .flat_map(|value| match value {
                Value::Array(all) => all.iter().filter_map(text).collect(),
                one => text(one).into_iter().collect::<Vec<String>>(),
            })
            .collect();
    }
    if document.get("kind").and_then(Value::as_str) != Some("Deployment") {
        return Vec::new();
    }
    let containers = document.pointer("/spec/template/spec/containers");
    let containers = containers.and_then(Value::as_array).into_iter().flatten();
    containers
        .filter(|container| {
            container.get("name").and_then(Value::as_str) != Some("kube-rbac-proxy")
        })
        .filter_map(|container| container.get("args")?.as_array())
        .flatten()
        .filter_map(text)
        .collect()
}

fn check_argument(tree: &mut Tree, path: &Path, text: &str, argument: &str) {
    if !argument.starts_with('-') {
        return;
    }
    let name = argument.split('=').next().unwrap_or(argument);
    let line = line_with(text, argument);
    let double = format!("--{}", name.trim_start_matches('-'));
    if double == "--config" {
        let way_out = "there is no configuration file; pass its settings as flags (leaderElection.resourceName is --leader-election-id, metrics.bindAddress is --metrics-bind-address, health.healthProbeBindAddress is --health-probe-bind-address)";
        let problem = format!("{name} is not known: {way_out}");
        return tree.add(Kind::ByHand, path, line, problem);
    }
    if let Err(error) = parse(argument) {
        let message = error.to_string();
        let first = message.lines().next().unwrap_or_default();
        let first = first.trim_start_matches("error: ");
        let problem = format!("{first}; remove or replace it");
        tree.add(Kind::ByHand, path, line, problem);
    }
}

/// Parses one argument as `run` does.
fn parse(argument: &str) -> Result<RunArgs, clap::Error> {
    let arguments = double_dashes(["run".into(), argument.into()]);
    match RunArgs::try_parse_from(arguments) {
        // Its value is the next argument.
        Err(error)
            if error.kind() == clap::error::ErrorKind::InvalidValue && !argument.contains('=') =>
        {
            RunArgs::try_parse_from(["run"])
        }
        parsed => parsed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_of_the_operator_are_found_in_deployments_and_patches() {
        let deployment = json!({"kind": "Deployment", "spec": {"template": {"spec": {"containers": [
            {"name": "kube-rbac-proxy", "args": ["--upstream=http://127.0.0.1:8080/"]},
            {"name": "manager", "args": ["--leader-elect"]},
        ]}}}});
        assert_eq!(arguments(&deployment), ["--leader-elect"]);
        let patch = json!([
            {"op": "add", "path": "/spec/template/spec/containers/0/args/0", "value": "--metrics-secure"},
            {"op": "add", "path": "/spec/template/spec/containers/0/ports", "value": "--no"},
        ]);
        assert_eq!(arguments(&patch), ["--metrics-secure"]);
        assert_eq!(arguments(&json!({"kind": "Service"})), [""; 0]);
    }

    #[test]
    fn flags_of_the_go_operators_are_known() {
        for argument in [
            "--leader-elect",
            "--leader-election-id=memcached-operator",
            "--health-probe-bind-address=:8081",
            "--enable-leader-election",
            "-zap-log-level=debug",
            "--max-concurrent-reconciles",
            "--zap-encoder",
            "--metrics-secure",
            "--metrics-require-rbac",
        ] {
            assert!(parse(argument).is_ok(), "{argument}");
        }
        assert!(parse("--no-such-flag").is_err());
        assert!(parse("--reconcile-period=often").is_err());
    }
}

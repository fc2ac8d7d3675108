//! The operator as the objects of a project describe it: its name, its account, and its namespace.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::Parser as _;
use hybrid_operator::options::{ProcessArgs, double_dashes};
use serde_json::Value;

use crate::olm::{items, kind, text};

/// Name of the operator's container.
const CONTAINER: &str = "manager";

/// The operator as a project deploys it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Deployed {
    /// Name of the operator, which the Secret with the key of its records begins with.
    pub(crate) operator: String,
    /// Service account of the operator.
    pub(crate) account: String,
    pub(crate) namespace: String,
}

impl Default for Deployed {
    /// Returns the names that the roles of a project have before kustomize changes them.
    fn default() -> Self {
        Self {
            operator: operator_name(&[], &BTreeMap::new()).unwrap_or_default(),
            account: "controller-manager".to_owned(),
            namespace: "system".to_owned(),
        }
    }
}

impl Deployed {
    /// Finds the operator's Deployment among objects.
    pub(crate) fn of(objects: &[Value]) -> Option<Self> {
        let deployments = objects.iter().filter(|object| kind(object) == "Deployment");
        let (deployment, container) = deployments.into_iter().find_map(|deployment| {
            let mut containers = items(deployment, "/spec/template/spec/containers");
            let container = containers.find(|container| text(container, "/name") == CONTAINER);
            Some((deployment, container?))
        })?;
        let args: Vec<&str> = items(container, "/args")
            .filter_map(Value::as_str)
            .collect();
        let variables: BTreeMap<&str, &str> = items(container, "/env")
            .map(|variable| (text(variable, "/name"), text(variable, "/value")))
            .collect();
        let field = |pointer: &str, default: &str| match text(deployment, pointer) {
            "" => default.to_owned(),
            given => given.to_owned(),
        };
        Some(Self {
            operator: operator_name(&args, &variables)?,
            account: field("/spec/template/spec/serviceAccountName", "default"),
            namespace: field("/metadata/namespace", "default"),
        })
    }
}

/// Returns the name of an operator with these arguments and environment variables.
fn operator_name(args: &[&str], variables: &BTreeMap<&str, &str>) -> Option<String> {
    let parse = |args: &[&str]| {
        let args = std::iter::once(&"run").chain(args).map(OsString::from);
        ProcessArgs::try_parse_from(double_dashes(args)).ok()
    };
    let mut run = parse(&[])?;
    // One by one: the program of a project may have flags of its own.
    for (index, argument) in args.iter().enumerate() {
        let with_next = args.get(index..index + 2).and_then(parse);
        let parsed = parse(&[argument]).or(with_next);
        let given = parsed.and_then(|parsed| parsed.leader_election_id);
        run.leader_election_id = given.or(run.leader_election_id);
    }
    let value = |name: &str| variables.get(name).map(|value| (*value).to_owned());
    Some(run.options(value).operator_name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(args: &[&str], variables: &Value) -> Value {
        json!({
            "kind": "Deployment",
            "metadata": {"name": "shop-controller-manager", "namespace": "shop-system"},
            "spec": {"template": {"spec": {
                "serviceAccountName": "shop-controller-manager",
                "containers": [
                    {"name": "proxy", "args": ["--leader-election-id=proxy"]},
                    {"name": "manager", "args": args, "env": variables},
                ],
            }}},
        })
    }

    #[test]
    fn the_operator_has_the_name_that_its_arguments_and_variables_give_it() {
        let named = json!([{"name": "OPERATOR_NAME", "value": "variable"}]);
        for (args, variables, expected) in [
            (&["--leader-election-id=shop"][..], &json!([]), "shop"),
            (&["run", "--leader-election-id", "shop"], &named, "shop"),
            (&["-leader-election-id=shop"], &named, "shop"),
            (&["--leader-elect"], &named, "variable"),
            (
                &["--own-flag=1", "--leader-election-id=shop"],
                &named,
                "shop",
            ),
            (&["--own-flag"], &json!([]), "hybrid-operator"),
        ] {
            let found = Deployed::of(&[deployment(args, variables)]).unwrap();
            assert_eq!(found.operator, expected, "{args:?}");
            assert_eq!(found.account, "shop-controller-manager");
            assert_eq!(found.namespace, "shop-system");
        }
        assert_eq!(Deployed::of(&[json!({"kind": "Service"})]), None);
        assert_eq!(Deployed::default().operator, "hybrid-operator");
    }
}

//! The permissions of an operator, computed without a cluster.
//!
//! ```text
//! chart -> matrix (combinations of values) -> survey (renders) -> chart (rules) -> write (YAML)
//! ```
//!
//! Only this file's callers read and write files.

pub(crate) mod chart;
pub(crate) mod credentials;
pub(crate) mod deployed;
pub(crate) mod explain;
pub(crate) mod fixed;
mod gates;
pub(crate) mod kinds;
pub(crate) mod kustomization;
pub(crate) mod matrix;
pub(crate) mod native;
pub(crate) mod rules;
pub(crate) mod survey;
pub(crate) mod write;

use chart::{ChartRules, RoleOptions, WatchNeeds};
use kinds::Kinds;
use write::RoleScope;

use crate::generate::ChartApi;

/// Returns the role for a new kind and its chart, as `generate rbac` writes it.
pub(crate) fn chart_role(api: &ChartApi<'_>) -> anyhow::Result<String> {
    let survey = survey::survey(api.chart, &[])?;
    let needs = WatchNeeds::default();
    let kinds = Kinds::default();
    let options = RoleOptions::default();
    let rules = chart::rules(&[(*api, needs)], &survey, &kinds, &[], options);
    Ok(role_text(
        &api.chart.name().to_lowercase(),
        api.directory,
        &rules,
        RoleScope::Cluster,
    ))
}

/// Returns the manifest of the role for a chart.
pub(crate) fn role_text(
    name: &str,
    directory: &str,
    rules: &ChartRules,
    scope: RoleScope,
) -> String {
    let mut comment = format!("What the operator does for the chart {directory}.");
    for warning in &rules.warnings {
        comment.push_str("\nWarning: ");
        comment.push_str(warning);
    }
    write::role(scope, &format!("chart-{name}-role"), &comment, &rules.rules)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use helm_core::chart::Chart;

    use super::*;

    /// Returns a file of this repository's own project.
    fn of_repository(file: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        std::fs::read_to_string(root.join(file)).unwrap()
    }

    #[test]
    fn the_role_of_a_new_chart_is_the_one_that_is_generated_later() {
        let directory = "helm-charts/memcached";
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let chart = Chart::load(root.join(directory)).unwrap();
        let api = ChartApi {
            group: "cache.example.com",
            version: "v1alpha1",
            kind: "Memcached",
            plural: "memcacheds",
            namespaced: true,
            chart: &chart,
            directory,
        };
        assert_eq!(
            chart_role(&api).unwrap(),
            of_repository("config/rbac/charts/memcached_role.yaml")
        );
    }

    #[test]
    fn roles_of_every_operator_are_those_of_this_repository() {
        let binding = |scope, name: &str| {
            write::binding(
                scope,
                &format!("{name}-rolebinding"),
                &format!("{name}-role"),
            )
        };
        for (file, text) in [
            ("operator_role", &*fixed::operator_role(RoleScope::Cluster)),
            ("leader_election_role", fixed::LEADER_ELECTION_ROLE),
            (
                "leader_election_role_binding",
                &binding(RoleScope::Namespace, "leader-election"),
            ),
            ("metrics_auth_role", fixed::METRICS_AUTH_ROLE),
            (
                "metrics_auth_role_binding",
                &binding(RoleScope::Cluster, "metrics-auth"),
            ),
            ("metrics_reader_role", fixed::METRICS_READER_ROLE),
            ("service_account", fixed::SERVICE_ACCOUNT),
        ] {
            let expected = of_repository(&format!("config/rbac/{file}.yaml"));
            assert_eq!(text, expected, "{file}");
        }
    }
}

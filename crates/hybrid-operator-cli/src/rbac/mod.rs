//! The permissions of an operator, computed without a cluster.
//!
//! ```text
//! chart -> matrix (combinations of values) -> survey (renders) -> chart (rules) -> write (YAML)
//! ```
//!
//! Only this file's callers read and write files.

pub(crate) mod chart;
pub(crate) mod explain;
pub(crate) mod fixed;
mod gates;
pub(crate) mod kinds;
pub(crate) mod kustomization;
mod matrix;
pub(crate) mod native;
pub(crate) mod rules;
pub(crate) mod survey;
pub(crate) mod write;

use chart::{ChartRules, RoleOptions, WatchNeeds};
use kinds::Kinds;
use write::RoleScope;

use crate::generate::ChartApi;

/// Returns the role for a new kind and its chart, as `generate rbac` writes it.
#[allow(dead_code, reason = "called by `create api`")]
pub(crate) fn chart_role(api: &ChartApi<'_>) -> anyhow::Result<String> {
    let survey = survey::survey(api.chart, &[])?;
    let needs = WatchNeeds::default();
    let kinds = Kinds::default();
    let options = RoleOptions::default();
    let rules = chart::rules(&[(*api, needs)], &survey, &kinds, &[], options);
    Ok(role_text(
        api.chart.name(),
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

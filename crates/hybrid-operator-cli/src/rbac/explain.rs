//! The table of `generate rbac --explain`.

use std::fmt::Write as _;

use comfy_table::{ContentArrangement, Table, presets};

use super::rules::Rules;
use super::survey::Survey;

/// Maximum number of reasons in a cell.
const MAX_REASONS: usize = 3;

/// Returns the rules with their reasons, and what was not reached.
pub(crate) fn explain(title: &str, rules: &Rules, survey: &Survey, warnings: &[String]) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(["RESOURCE", "VERBS", "WHY"]);
    for grant in rules.grants() {
        let verbs: Vec<&str> = grant.verbs.iter().map(String::as_str).collect();
        let mut why: Vec<&str> = grant.why.iter().map(String::as_str).collect();
        let more = format!("and {} more", why.len().saturating_sub(MAX_REASONS));
        if why.len() > MAX_REASONS {
            why.truncate(MAX_REASONS);
            why.push(&more);
        }
        table.add_row([grant.subject.to_string(), verbs.join(","), why.join("; ")]);
    }
    let mut text = format!("{title}\n");
    for line in table.to_string().lines() {
        text.push_str(line.trim());
        text.push('\n');
    }
    let (rendered, refused) = (survey.renders.len(), survey.refused.len());
    let _ = writeln!(
        text,
        "{rendered} combinations of values rendered, {refused} refused by the chart, {} left out",
        survey.left_out
    );
    if let Some((label, why)) = survey.refused.first() {
        let why = why.lines().next().unwrap_or_default();
        let _ = writeln!(text, "  refused first: {label}: {why}");
    }
    if !survey.unreached.is_empty() {
        text.push_str(
            "not reached; add a values file under ci/, pass --values, or use --include-unreached:\n",
        );
        for unreached in &survey.unreached {
            let version = unreached.api_version.as_deref().unwrap_or("?");
            let _ = writeln!(
                text,
                "  {version} {} in {}:{}",
                unreached.kind, unreached.template, unreached.line
            );
        }
    }
    for warning in warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}

//! Problems and surprises of a chart that runs under an operator.
//!
//! `source` looks at the text of the templates, `objects` at what the chart renders to. Both are pure
//! and return [`Finding`]s.

mod objects;
mod place;
mod pods;
mod source;
pub(crate) mod spec;

use std::collections::BTreeSet;

use helm_core::Values;
use helm_core::chart::Chart;
use hybrid_operator::watches::{ChartLimits, way_to_raise};
use serde::Serialize;

use crate::rbac::kinds::Kinds;
use crate::rbac::survey::{RefusedRender, RenderOptions, SurveyError, survey_with};
use crate::template_source::templates;
use place::Places;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// Installs, upgrades or deletions fail.
    Error,
    /// The chart works, but not as its author or user may expect.
    Warning,
    /// Worth knowing.
    Note,
}

impl Severity {
    /// Returns the word in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// Something to know about a chart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Finding {
    /// File, relative to the chart.
    pub(crate) file: String,
    /// Line, counted from 1.
    pub(crate) line: usize,
    /// Rule, one of [`rules`].
    pub(crate) id: &'static str,
    pub(crate) severity: Severity,
    /// Description of the finding and its effect.
    pub(crate) message: String,
    /// Advice: what to do about the finding.
    pub(crate) help: String,
}

/// The rules, each with what it finds, sorted.
const RULES: &str = "
    certificate a certificate or key that each render makes anew
    clock the current time
    cluster-scoped an object outside of namespaces
    crd-in-templates a CustomResourceDefinition among the templates
    crds-directory definitions in crds/
    deprecated-api an API version that Kubernetes will remove
    dropped-document a document that is neither installed nor run
    duplicate-object an object that is rendered twice
    fixed-name a name without the release's name
    foreign-namespace an object in another namespace
    generate-name an object whose name the API server makes
    hook-delete-policy a hook that stays in the cluster
    hook-never-ends a hook that cannot end, or has no deadline
    image-tag an image without a fixed version
    immutable-field a field that cannot be changed and will
    lookup objects that templates read from the cluster
    missing-name an object without a name
    missing-namespace a namespace that the chart does not create
    missing-schema values without a schema
    random-value a value that differs in each render
    refused-list a list whose items are not created
    removed-api an API version that Kubernetes no longer serves
    render a chart that cannot be rendered
    resource-policy-keep an object that outlives its release
    test-hook a test that is not run by default
    unread-field a field of the spec in api that nothing reads
    wide-rbac a role with wildcards
";

/// Returns the rules with what they find, sorted.
pub(crate) fn rules() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = RULES.lines().map(str::trim_start);
    lines.filter_map(|line| line.split_once(' '))
}

/// A chart to lint, with values and options.
#[derive(Debug, Clone)]
pub(crate) struct Input<'a> {
    pub(crate) chart: &'a Chart,
    /// Values files with their names.
    pub(crate) given: &'a [(String, Values)],
    /// Minor version of Kubernetes 1 that the chart is for.
    pub(crate) kube_minor: u32,
    /// Limits of one render.
    pub(crate) limits: ChartLimits,
    /// Whether errors of templates show the contents of values.
    pub(crate) values_in_errors: bool,
}

/// Returns the findings, sorted by file, line and rule.
pub(crate) fn lint(input: &Input<'_>) -> Vec<Finding> {
    let files = templates(input.chart);
    let mut findings = source::findings(input.chart, &files);
    let options = RenderOptions {
        limits: input.limits.of_render(),
        values_in_errors: input.values_in_errors,
    };
    match survey_with(&options, input.chart, input.given) {
        Ok(survey) => {
            let places = Places::new(&files);
            let mut kinds = Kinds::default();
            kinds.add_chart(input.chart);
            findings.extend(objects::findings(input, &survey, &kinds, &places));
        }
        Err(error) => findings.push(not_rendered(&error)),
    }
    let unique: BTreeSet<Finding> = findings.into_iter().collect();
    unique.into_iter().collect()
}

fn not_rendered(error: &SurveyError) -> Finding {
    let cause =
        std::error::Error::source(error).map_or(String::new(), |cause| format!(": {cause}"));
    let way = match error {
        SurveyError::Refused { source, .. } => match &**source {
            RefusedRender::Render(error) => error.limit().and_then(way_to_raise),
            RefusedRender::Values(_) => None,
        },
        SurveyError::Parse(_) => None,
    };
    Finding {
        file: "Chart.yaml".to_owned(),
        line: 1,
        id: "render",
        severity: Severity::Error,
        message: format!("{error}{cause}"),
        help: way
            .unwrap_or("make the defaults complete, or add a values file under ci/")
            .to_owned(),
    }
}

/// Drops findings of ignored rules, and makes warnings errors if `strict`.
pub(crate) fn judge(findings: Vec<Finding>, ignored: &[String], strict: bool) -> Vec<Finding> {
    let kept = findings
        .into_iter()
        .filter(|finding| !ignored.iter().any(|id| id == finding.id));
    kept.map(|mut finding| {
        if strict && finding.severity == Severity::Warning {
            finding.severity = Severity::Error;
        }
        finding
    })
    .collect()
}

#[cfg(test)]
mod tests;

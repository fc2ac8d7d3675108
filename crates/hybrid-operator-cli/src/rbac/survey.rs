//! Renders a chart with every combination of the matrix and records what it contains.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use helm_core::capabilities::{ApiVersions, KubeVersion};
use helm_core::chart::Chart;
use helm_core::engine::{ReleaseInfo, RenderInput, RenderLimits};
use helm_core::manifest::{
    Dropped, Hook, ListProblem, ManifestError, ManifestObject, OutputLogPolicy, parse_objects,
};
use helm_core::release::Revision;
use helm_core::values::CoalesceError;
use helm_core::{Capabilities, Coalesced, CompiledChart, RenderError, Rendered, Values};
use serde_json::Value;

use super::kinds::{GroupKind, Kinds};
use super::matrix::{self, Apis, Combination};
use crate::output::Steps;
use crate::template_source::{TemplateFile, TokenKind, templates};

/// Name of the release in every render. Names that contain it depend on the release.
pub(crate) const RELEASE: &str = "hybrid-survey";
/// Namespace of the release in every render.
pub(crate) const NAMESPACE: &str = "hybrid-survey-namespace";

/// API versions that current Kubernetes does not serve, though Helm assumes them without a cluster.
const REMOVED: &[&str] = &[
    "apps/v1beta1",
    "apps/v1beta2",
    "extensions/v1beta1",
    "batch/v1beta1",
    "policy/v1beta1",
    "networking.k8s.io/v1beta1",
    "rbac.authorization.k8s.io/v1beta1",
    "rbac.authorization.k8s.io/v1alpha1",
    "apiextensions.k8s.io/v1beta1",
    "discovery.k8s.io/v1beta1",
];

/// An object of a render.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) object: ManifestObject,
    /// The template, without the chart's name.
    pub(crate) template: String,
    /// The hook that it belongs to.
    pub(crate) hook: Option<Arc<Hook>>,
}

/// Content of a render.
#[derive(Debug, Clone)]
pub(crate) struct Render {
    /// Combination of values that gave the render.
    pub(crate) label: String,
    /// Values, API versions and version of Kubernetes that gave the render.
    pub(crate) combination: Combination,
    /// The objects, then the hooks.
    pub(crate) objects: Vec<Found>,
    /// Documents that are neither installed nor run. Templates are without the chart's name.
    pub(crate) dropped: Vec<Dropped>,
    /// The first list whose items are not created.
    pub(crate) refused: Option<RefusedList>,
    /// Whether a hook asks for the output of its containers.
    pub(crate) reads_logs: bool,
    /// Kinds that templates looked up.
    pub(crate) lookups: BTreeSet<GroupKind>,
}

/// A list whose items are not created.
#[derive(Debug, Clone)]
pub(crate) struct RefusedList {
    /// The template, without the chart's name.
    pub(crate) template: String,
    pub(crate) problem: ListProblem,
}

/// Way in which a kind was reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reach {
    /// The templates that contain it, with the first combination of values in which each did.
    pub(crate) templates: BTreeMap<String, String>,
    /// Whether an object of the kind is a hook.
    pub(crate) is_hook: bool,
}

/// A kind in the text of a template that no render contained.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Unreached {
    pub(crate) template: String,
    /// Line of its `kind`.
    pub(crate) line: usize,
    pub(crate) kind: String,
    /// API version of the kind, if it is a constant.
    pub(crate) api_version: Option<String>,
}

/// Possible content of a chart.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The kinds that were reached.
    pub(crate) kinds: BTreeMap<GroupKind, Reach>,
    /// Kinds that templates look up, with the place of a lookup.
    pub(crate) lookups: BTreeMap<GroupKind, String>,
    /// Kinds that no render reached.
    pub(crate) unreached: Vec<Unreached>,
    /// Renders that succeeded, in the order of the matrix.
    pub(crate) renders: Vec<Render>,
    /// Combinations that the chart refuses, with the reason.
    pub(crate) refused: Vec<(String, String)>,
    /// Combinations that were left out because there are too many.
    pub(crate) left_out: usize,
    /// Definitions of custom resources that were found.
    pub(crate) definitions: Kinds,
}

/// Error surveying a chart.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SurveyError {
    #[error("cannot parse the templates")]
    Parse(#[source] Box<RenderError>),
    #[error(
        "the chart cannot be rendered with any of {combinations} combinations of values; add a values file with what it requires under ci/, or pass it with --values if the command has that flag"
    )]
    Refused {
        /// Number of combinations that were tried.
        combinations: usize,
        /// Reason of the first refusal.
        #[source]
        source: Box<RefusedRender>,
    },
}

/// Renders a chart with every combination. `given` are values files with their names.
///
/// # Errors
/// If the templates cannot be parsed, or no combination can be rendered.
pub(crate) fn survey(chart: &Chart, given: &[(String, Values)]) -> Result<Survey, SurveyError> {
    survey_with(&RenderOptions::default(), chart, given)
}

/// Options for the render of each combination.
#[derive(Debug, Default)]
pub(crate) struct RenderOptions {
    pub(crate) limits: RenderLimits,
    /// Whether errors show the contents of values.
    pub(crate) values_in_errors: bool,
}

/// Like [`survey`], with options of each render.
///
/// # Errors
/// As those of `survey`.
pub(crate) fn survey_with(
    options: &RenderOptions,
    chart: &Chart,
    given: &[(String, Values)],
) -> Result<Survey, SurveyError> {
    let compiled =
        CompiledChart::compile(chart).map_err(|error| SurveyError::Parse(Box::new(error)))?;
    let templates = templates(chart);
    let apis = named_api_versions(&templates);
    let steps = Steps::new(format!("rendering the chart {}", chart.name()));
    let accepts = |values: &Values| {
        let combination = Combination::of(values.clone());
        steps.expect(1);
        let accepted = render(&compiled, &combination, &apis, options).is_ok();
        steps.done();
        accepted
    };
    let (combinations, left_out) = matrix::combinations(&compiled, &templates, given, &accepts);
    steps.expect(combinations.len());
    let mut survey = Survey {
        left_out,
        ..Survey::default()
    };
    survey.definitions.add_chart(chart);
    let mut first_error = None;
    for (combination, result) in
        combinations
            .iter()
            .zip(render_all(&compiled, &combinations, &apis, options, &steps))
    {
        match result {
            Ok(render) => survey.add(render),
            Err(error) => {
                let label = combination.label.clone();
                survey.refused.push((label, error.to_string()));
                first_error.get_or_insert(error);
            }
        }
    }
    if let (true, Some(source)) = (survey.renders.is_empty(), first_error) {
        let combinations = combinations.len();
        return Err(SurveyError::Refused {
            combinations,
            source: Box::new(source),
        });
    }
    survey.add_static(&templates);
    Ok(survey)
}

impl From<CoalesceError> for RefusedRender {
    fn from(error: CoalesceError) -> Self {
        Self::Values(Box::new(error))
    }
}

impl From<RenderError> for RefusedRender {
    fn from(error: RenderError) -> Self {
        Self::Render(Box::new(error))
    }
}

/// Reason why a combination was not rendered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RefusedRender {
    /// The values do not match the chart's schema.
    #[error(transparent)]
    Values(Box<CoalesceError>),
    /// The templates fail, or their output is not a list of objects.
    #[error(transparent)]
    Render(Box<RenderError>),
}

/// Renders the combinations on all processors. The results are in the order of the combinations.
fn render_all(
    chart: &CompiledChart,
    combinations: &[Combination],
    apis: &BTreeSet<String>,
    options: &RenderOptions,
    steps: &Steps,
) -> Vec<Result<Render, RefusedRender>> {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    // Those with every switch on take longer, so that equal parts would not end together.
    let next = AtomicUsize::new(0);
    let work = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(combination) = combinations.get(index) else {
                return results;
            };
            results.push((index, render(chart, combination, apis, options)));
            steps.done();
        }
    };
    let mut results: Vec<_> = thread::scope(|scope| {
        // Without other threads it only takes longer.
        let others: Vec<_> = (1..threads)
            .map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
            .collect();
        let mut results = work();
        for other in others {
            let done = other.join();
            results.extend(done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        results
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

fn render(
    chart: &CompiledChart,
    combination: &Combination,
    apis: &BTreeSet<String>,
    options: &RenderOptions,
) -> Result<Render, RefusedRender> {
    let values = chart.coalesce(combination.values.clone())?;
    render_values(chart, combination, &values, apis, options)
}

/// Renders a chart as a combination says, but with these values.
///
/// # Errors
/// If the templates fail, or their output is not a list of objects.
pub(crate) fn render_values(
    chart: &CompiledChart,
    combination: &Combination,
    values: &Coalesced,
    apis: &BTreeSet<String>,
    options: &RenderOptions,
) -> Result<Render, RefusedRender> {
    let mut capabilities = Capabilities::default();
    let known = capabilities.api_versions.iter();
    let served: ApiVersions = known.filter(|version| !REMOVED.contains(version)).collect();
    capabilities.api_versions = match combination.apis {
        Apis::BuiltIn => served,
        Apis::All => served.with(apis.iter().cloned()),
    };
    if let Some(Ok(version)) = combination.kube_version.map(KubeVersion::parse) {
        capabilities.kube_version = version;
    }
    let mut release = ReleaseInfo::new(RELEASE, NAMESPACE);
    if combination.is_upgrade {
        release = release.upgrade_to(Revision(2));
    }
    let mut input = RenderInput::new(release, values).capabilities(&capabilities);
    // Only the kinds of objects count. Generating RSA keys would take most of the time.
    input.weak_secrets = true;
    input.limits = options.limits.clone();
    input.values_in_errors = options.values_in_errors;
    let rendered = chart.render(&input)?;
    Ok(facts(chart.chart().name(), combination, &rendered)?)
}

fn facts(
    chart: &str,
    combination: &Combination,
    rendered: &Rendered,
) -> Result<Render, RenderError> {
    let short = |path: &str| {
        let path = path.strip_prefix(chart).unwrap_or(path);
        path.trim_start_matches('/').to_owned()
    };
    let mut objects = Vec::new();
    let mut refused = None;
    let found = match rendered.objects() {
        // `lint` names objects without a name, and lists that are refused.
        Err(RenderError::Object(ManifestError::Rendered { .. })) => {
            parse_objects(rendered.manifest())?
        }
        Err(RenderError::Object(ManifestError::RenderedList {
            template, problem, ..
        })) => {
            refused = Some(RefusedList {
                template: short(&template),
                problem,
            });
            parse_objects(rendered.manifest()).unwrap_or_default()
        }
        found => found?,
    };
    for object in found {
        objects.push(Found {
            template: short(object.source().unwrap_or_default()),
            object,
            hook: None,
        });
    }
    for hook in rendered.hooks() {
        let objects_of_hook = match parse_objects(&hook.manifest) {
            Err(_) if refused.is_some() => continue,
            objects => objects?,
        };
        let hook = Arc::new(hook.clone());
        for object in objects_of_hook {
            objects.push(Found {
                template: short(&hook.path),
                object,
                hook: Some(Arc::clone(&hook)),
            });
        }
    }
    let dropped = rendered.dropped().iter().map(|dropped| Dropped {
        template: short(&dropped.template),
        ..dropped.clone()
    });
    let reads_logs = rendered.hooks().iter().any(|hook| {
        let mut policies = hook.output_log_policies.iter();
        policies.any(|policy| !matches!(policy, OutputLogPolicy::Other(_)))
    });
    let lookups = rendered.lookups().iter();
    Ok(Render {
        label: combination.label.clone(),
        combination: combination.clone(),
        objects,
        dropped: dropped.collect(),
        refused,
        reads_logs,
        lookups: lookups
            .map(|key| GroupKind::of_api_version(&key.api_version, &key.kind))
            .collect(),
    })
}

impl Survey {
    fn add(&mut self, render: Render) {
        for found in &render.objects {
            let key = found.object.key();
            let kind = GroupKind::new(&key.group, &key.kind);
            self.definitions.add_definition(found.object.object());
            let reach = self.kinds.entry(kind).or_default();
            reach.is_hook |= found.hook.is_some();
            let label = reach
                .templates
                .entry(found.template.clone())
                .or_insert_with(|| render.label.clone());
            if complexity(&render.label) < complexity(label) {
                label.clone_from(&render.label);
            }
        }
        for kind in &render.lookups {
            let place = || format!("lookup ({})", render.label);
            self.lookups.entry(kind.clone()).or_insert_with(place);
        }
        self.renders.push(render);
    }

    /// Adds what the text of the templates says: lookups, and kinds that no render contained.
    fn add_static(&mut self, templates: &[TemplateFile]) {
        for file in templates {
            for action in &file.source.actions {
                for (call, arguments) in action.calls() {
                    let mut texts = arguments
                        .iter()
                        .take_while(|token| token.kind == TokenKind::Text);
                    if call.text != "lookup" {
                        continue;
                    }
                    if let (Some(version), Some(kind)) = (texts.next(), texts.next()) {
                        let kind = GroupKind::of_api_version(&version.text, &kind.text);
                        let place = format!("lookup in {}:{}", file.path, call.line);
                        self.lookups.insert(kind, place);
                    }
                }
            }
        }
        let mut unreached = BTreeSet::new();
        for file in templates {
            if file.path.ends_with("NOTES.txt") {
                continue;
            }
            for document in file.source.documents() {
                for kind in &document.kinds {
                    let version = document.api_versions.first().filter(|text| {
                        // Constant parts of a computed version are not a version.
                        document.api_versions.len() == 1 && !text.ends_with('/')
                    });
                    let is_reached = self.kinds.keys().any(|known| {
                        known.kind == *kind
                            && version.is_none_or(|version| {
                                GroupKind::of_api_version(version, kind).group == known.group
                            })
                    });
                    if !is_reached && is_kind(kind) {
                        unreached.insert(Unreached {
                            template: file.path.clone(),
                            line: document.kind_line,
                            kind: kind.clone(),
                            api_version: version.cloned(),
                        });
                    }
                }
            }
        }
        self.unreached = unreached.into_iter().collect();
    }

    /// Returns the objects of a kind in all renders.
    pub(crate) fn objects(&self, group: &str) -> impl Iterator<Item = (&Found, &Value)> {
        let found = self.renders.iter().flat_map(|render| &render.objects);
        found
            .filter(move |found| found.object.key().group == group)
            .map(|found| (found, found.object.object()))
    }
}

/// Returns how many things a person must change for a combination, roughly.
fn complexity(label: &str) -> u8 {
    match label {
        "defaults" => 0,
        label if label.starts_with("--set") && !label.contains(" with ") => 1,
        _ => 2,
    }
}

/// Returns whether a text can be the name of a kind whose objects are sent to the cluster.
fn is_kind(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_alphanumeric())
        && !(text == "List" || text == "Kustomization")
}

/// Returns the API versions that templates ask for in `.Capabilities.APIVersions.Has`, unless
/// current Kubernetes does not serve them.
pub(crate) fn named_api_versions(templates: &[TemplateFile]) -> BTreeSet<String> {
    let mut versions = BTreeSet::new();
    for file in templates {
        for action in &file.source.actions {
            let asks = |text: &str| text.ends_with("APIVersions.Has");
            for (index, token) in action.tokens.iter().enumerate() {
                let next = action.tokens.get(index + 1);
                if let Some(next) =
                    next.filter(|next| next.kind == TokenKind::Text && asks(&token.text))
                {
                    versions.insert(next.text.clone());
                }
            }
        }
    }
    let is_removed = |version: &String| {
        REMOVED.iter().any(|removed| {
            version
                .strip_prefix(removed)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    versions.retain(|version| !is_removed(version));
    versions
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use helm_core::chart::File;

    use super::*;

    fn of(files: &[(&str, &str)]) -> Survey {
        let files = files.iter().map(|(name, text)| File::new(*name, text));
        let metadata = File::new("Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\n");
        survey(&Chart::from_files(files.chain([metadata])).unwrap(), &[]).unwrap()
    }

    fn kinds(survey: &Survey) -> Vec<String> {
        survey.kinds.keys().map(ToString::to_string).collect()
    }

    #[test]
    fn kinds_behind_switches_apis_and_hooks_are_reached() {
        let survey = of(&[
            (
                "values.yaml",
                "monitor: {enabled: false}\nmode: a\nhosts: []\n",
            ),
            (
                "templates/a.yaml",
                "{{ if and .Values.monitor.enabled (.Capabilities.APIVersions.Has \"monitoring.coreos.com/v1\") }}\n\
                 apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {name: a}\n{{ end }}\n---\n\
                 {{ if eq .Values.mode \"b\" }}\napiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: a}\n{{ end }}\n---\n\
                 {{ with .Values.hosts }}\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a}\n{{ end }}\n",
            ),
            (
                "templates/hook.yaml",
                "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a, annotations: {helm.sh/hook: pre-install}}\n",
            ),
        ]);
        let expected = "StatefulSet.apps Job.batch ServiceMonitor.monitoring.coreos.com Ingress.networking.k8s.io";
        assert_eq!(kinds(&survey).join(" "), expected);
        assert_eq!(survey.unreached, []);
        let monitor = &survey.kinds[&GroupKind::new("monitoring.coreos.com", "ServiceMonitor")];
        let is_of_it = monitor.templates.contains_key("templates/a.yaml");
        assert!(is_of_it, "{monitor:?}");
    }

    #[test]
    fn kinds_of_the_items_of_lists_are_reached() {
        let survey = of(&[
            (
                "templates/typed.yaml",
                "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleList\nitems:\n- metadata: {name: a}\n\
                 - {apiVersion: v1, kind: Secret, metadata: {name: b}}\n",
            ),
            (
                "templates/hook.yaml",
                "apiVersion: v1\nkind: List\nmetadata: {annotations: {helm.sh/hook: pre-install}}\nitems:\n\
                 - {apiVersion: batch/v1, kind: Job, metadata: {name: a}}\n",
            ),
            (
                "templates/never.yaml",
                "{{ if and .Values.a (not .Values.a) }}\napiVersion: batch/v1\nkind: CronJobList\nitems:\n\
                 - metadata: {name: a}\n{{ end }}\n",
            ),
        ]);
        let expected = ["Secret", "Job.batch", "Role.rbac.authorization.k8s.io"];
        assert_eq!(kinds(&survey), expected);
        assert!(survey.kinds[&GroupKind::new("batch", "Job")].is_hook);
        let unreached: Vec<&str> = survey.unreached.iter().map(|u| &*u.kind).collect();
        assert_eq!(unreached, ["CronJob"]);
    }

    #[test]
    fn what_no_render_contains_is_listed_with_its_line() {
        let survey = of(&[(
            "templates/a.yaml",
            "{{ if and .Values.a (not .Values.a) }}\napiVersion: batch/v1\nkind: CronJob\n{{ end }}\n",
        )]);
        let expected = Unreached {
            template: "templates/a.yaml".to_owned(),
            line: 3,
            kind: "CronJob".to_owned(),
            api_version: Some("batch/v1".to_owned()),
        };
        assert_eq!(survey.unreached, [expected]);
    }

    #[test]
    fn every_kind_of_a_chart_with_keys_is_found() {
        let mut values = String::new();
        let mut template = String::from(
            "{{ $ca := genCA \"ca\" 1 }}{{ genPrivateKey \"rsa\" | b64enc | printf \"# %s\" }}\n",
        );
        for index in 0..60 {
            let _ = writeln!(values, "a{index}: false");
            let _ = writeln!(
                template,
                "{{{{ if .Values.a{index} }}}}\n---\napiVersion: v{index}\nkind: Pod{index}\nmetadata: {{name: a}}\n{{{{ end }}}}"
            );
        }
        let survey = of(&[("values.yaml", &values), ("templates/a.yaml", &template)]);
        assert_eq!((survey.kinds.len(), survey.unreached.len()), (60, 0));
        assert_eq!(survey.refused, []);
    }

    #[test]
    fn refused_combinations_are_recorded_and_skipped() {
        let fails = "{{ if .Values.a }}{{ fail \"no\" }}{{ end }}";
        let survey = of(&[("values.yaml", "a: false\n"), ("templates/a.yaml", fails)]);
        assert!(!survey.refused.is_empty());
        for (_, why) in &survey.refused {
            assert!(why.contains("no"), "{why}");
        }
        assert!(!survey.renders.is_empty());
    }

    #[test]
    fn lookups_are_found_even_where_they_are_not_reached() {
        let survey = of(&[(
            "templates/a.yaml",
            "{{ if .Values.never }}{{ $x := lookup \"v1\" \"Secret\" .Release.Namespace \"a\" }}{{ end }}\
             {{ $y := lookup \"apps/v1\" \"Deployment\" \"\" \"\" }}",
        )]);
        let found: Vec<String> = survey.lookups.keys().map(ToString::to_string).collect();
        assert_eq!(found, ["Secret", "Deployment.apps"]);
    }
}

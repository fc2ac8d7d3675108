//! `watches.yaml`: which custom resource kind is served by which chart, and how.
//!
//! ```yaml
//! - group: cache.example.com
//!   version: v1alpha1
//!   kind: Memcached
//!   chart: helm-charts/memcached
//!   overrideValues:
//!     image.repository: $MEMCACHED_IMAGE
//! ```
//!
//! [`load`] reads a file whole and reports every mistake at once, each with its line, column and
//! field, so that a person mends them in one go. Nothing outside the file system is contacted.

mod parse;
mod suggest;
mod validate;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::core::{GroupVersionKind, Selector};
use serde_json::Value;

pub use parse::parse;
pub use validate::validate;

/// One entry of `watches.yaml`: a custom resource kind and the chart that serves it.
#[derive(Debug, Clone)]
pub struct Watch {
    /// The kind of the custom resources.
    pub gvk: GroupVersionKind,
    /// Directory or `.tgz` of the chart, resolved against the folder of the file that names it.
    pub chart: PathBuf,
    /// Whether a change of an owned object triggers its custom resource at once. Default: true.
    pub watch_dependent_resources: bool,
    /// Texts laid over the spec, by dotted path as in Helm's `--set`.
    pub override_values: BTreeMap<String, String>,
    /// Whether an overriding text is typed as by `--set` or stays a string.
    pub override_values_type: OverrideValuesType,
    /// Time between two looks at an unchanged custom resource; zero means never.
    pub reconcile_period: Option<Duration>,
    /// How many custom resources of this kind are worked on at once.
    pub max_concurrent_reconciles: Option<NonZeroUsize>,
    /// Only custom resources with these labels are served.
    pub selector: Option<Selector>,
    /// Whether the results of `lookup` count as inputs of the release.
    pub lookup_is_input: bool,
    /// A tree laid over the spec; its string leaves may be templates.
    pub values: Option<Value>,
    /// Secrets and `ConfigMap`s whose content becomes values.
    pub values_from: Vec<ValuesFrom>,
    /// How a release is installed.
    pub install: ActionPolicy,
    /// How a release is upgraded.
    pub upgrade: ActionPolicy,
    /// How a release is rolled back.
    pub rollback: ActionPolicy,
    /// How a release is uninstalled.
    pub uninstall: ActionPolicy,
    /// Whether the chart's test hooks run after a change, and for how long.
    pub test: Option<ActionPolicy>,
    /// What happens to changes that somebody else makes to the release's objects.
    pub drift_detection: DriftDetection,
    /// Changes made to rendered objects before they are applied.
    pub patches: Vec<Patch>,
    /// The service account that the operator acts as; may be a template.
    pub service_account_name: Option<String>,
    /// Custom resources that must be `Ready` first.
    pub depends_on: Vec<Dependency>,
    /// How many revisions of a release are kept. Default: 10.
    pub max_history: Option<NonZeroUsize>,
    /// Template of the release's name; the custom resource's name by default.
    pub release_name: Option<String>,
    /// Namespace of the releases of cluster-scoped custom resources.
    pub release_namespace: Option<String>,
    /// Annotation that pauses a custom resource, instead of the standard one.
    pub pause_annotation: Option<String>,
    /// Whether a chart that renders nothing may replace a release that holds objects.
    pub allow_empty: bool,
    /// What happens to the definitions in the chart's `crds/`.
    pub crds: CrdPolicy,
}

impl Watch {
    /// An entry with every option at its default.
    pub fn new(gvk: GroupVersionKind, chart: impl Into<PathBuf>) -> Self {
        Self {
            gvk,
            chart: chart.into(),
            watch_dependent_resources: true,
            override_values: BTreeMap::new(),
            override_values_type: OverrideValuesType::default(),
            reconcile_period: None,
            max_concurrent_reconciles: None,
            selector: None,
            lookup_is_input: false,
            values: None,
            values_from: Vec::new(),
            install: ActionPolicy::default(),
            upgrade: ActionPolicy::default(),
            rollback: ActionPolicy::default(),
            uninstall: ActionPolicy::default(),
            test: None,
            drift_detection: DriftDetection::default(),
            patches: Vec::new(),
            service_account_name: None,
            depends_on: Vec::new(),
            max_history: None,
            release_name: None,
            release_namespace: None,
            pause_annotation: None,
            allow_empty: false,
            crds: CrdPolicy::default(),
        }
    }
}

/// How `overrideValues` texts are typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OverrideValuesType {
    /// As Helm's `--set`: `true`, `null` and integers are recognised.
    #[default]
    Typed,
    /// Every text stays a string, as in operator-sdk.
    String,
}

/// A Secret or `ConfigMap` whose content becomes values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValuesFrom {
    /// What kind of object is read.
    pub kind: ReferenceKind,
    /// Its name; may be a template over the custom resource.
    pub name: String,
    /// Its namespace; the custom resource's by default.
    pub namespace: Option<String>,
    /// The entry of its `data`; `values.yaml` by default.
    pub key: String,
    /// Dotted path at which the entry's text is set; without it the entry is a values file.
    pub target_path: Option<String>,
    /// Whether the object or its entry may be absent at the first install. Once it was there, its
    /// last value holds.
    pub optional: bool,
}

/// The kinds that `valuesFrom` reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReferenceKind {
    /// `v1/Secret`
    Secret,
    /// `v1/ConfigMap`
    ConfigMap,
}

impl fmt::Display for ReferenceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
        })
    }
}

/// Options of one of Helm's actions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ActionPolicy {
    /// How long hooks and waits may take; 5 minutes by default, as in Helm.
    pub timeout: Option<Duration>,
    /// Whether the action ends only when every object is ready.
    pub wait: bool,
    /// Whether waiting includes the completion of Jobs.
    pub wait_for_jobs: bool,
    /// Whether hooks are left out.
    pub disable_hooks: bool,
    /// What follows a failure. Only install and upgrade have it.
    pub remediation: Remediation,
    /// Kinds that are deleted and created anew when a field of theirs cannot be changed.
    /// Only upgrade has it; `None` means `Job`.
    pub recreate: Option<Vec<String>>,
}

/// What follows a failed install or upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Remediation {
    /// How often the action is tried again on the same inputs.
    pub retries: Option<u32>,
    /// What is done to the failed release; the action's own default when absent.
    pub strategy: Option<RemediationStrategy>,
}

/// What is done to a release whose install or upgrade failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemediationStrategy {
    /// Roll back to the last deployed revision.
    Rollback,
    /// Uninstall the release.
    Uninstall,
    /// Leave it and try again in place.
    None,
}

/// What happens to changes that others make to a release's objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DriftDetection {
    /// What is done about a change.
    pub mode: DriftMode,
    /// Fields that others may own.
    pub ignore: Vec<DriftIgnore>,
}

/// What is done about drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DriftMode {
    /// The recorded manifest is applied again.
    #[default]
    Repair,
    /// The condition `Drifted` tells of it.
    Warn,
    /// Nothing.
    Off,
}

/// Fields of certain objects that others may own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriftIgnore {
    /// The objects meant; all of them when every field is empty.
    pub target: Target,
    /// JSON pointers (RFC 6901), such as `/spec/replicas`.
    pub paths: Vec<String>,
}

/// Selects rendered objects; what is absent matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// API group; the empty string is the core group.
    pub group: Option<String>,
    /// API version.
    pub version: Option<String>,
    /// Kind.
    pub kind: Option<String>,
    /// Name.
    pub name: Option<String>,
    /// Namespace.
    pub namespace: Option<String>,
}

/// A change made to rendered objects.
#[derive(Debug, Clone, PartialEq)]
pub struct Patch {
    /// The objects meant.
    pub target: Target,
    /// The change.
    pub patch: PatchBody,
}

/// The two forms of a patch.
#[derive(Debug, Clone, PartialEq)]
pub enum PatchBody {
    /// JSON Patch, RFC 6902.
    Json(json_patch::Patch),
    /// An object laid over the rendered one, lists of associative keys merged by key.
    StrategicMerge(Value),
}

/// Another custom resource that must be `Ready` first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name; may be a template over the custom resource.
    pub name: String,
    /// Its namespace; the custom resource's by default.
    pub namespace: Option<String>,
}

/// What happens to the definitions in a chart's `crds/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CrdPolicy {
    /// They are left out.
    Skip,
    /// They are created when absent, as Helm does.
    #[default]
    Create,
    /// They are created, and changed when the chart's differ.
    CreateReplace,
}

/// One mistake in a watches file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line, counted from 1; 0 when the mistake is the whole file's.
    pub line: usize,
    /// Column, counted from 1.
    pub column: usize,
    /// The field, such as `[0].install.timeout`; empty for the whole file.
    pub field: String,
    /// What is wrong and, where it is known, how to mend it.
    pub message: String,
}

/// Everything that is wrong with a watches file.
#[derive(Debug, thiserror::Error)]
pub enum WatchesError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file says something that cannot be meant.
    #[error("{}", Listing { path, problems })]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Every mistake, in the order of the file.
        problems: Vec<Problem>,
    },
}

struct Listing<'a> {
    path: &'a Path,
    problems: &'a [Problem],
}

impl fmt::Display for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            let Problem {
                line,
                column,
                field,
                message,
            } = problem;
            write!(f, "{}", self.path.display())?;
            if *line > 0 {
                write!(f, ":{line}:{column}")?;
            }
            if !field.is_empty() {
                write!(f, ": {field}")?;
            }
            write!(f, ": {message}")?;
        }
        Ok(())
    }
}

/// Reads a watches file and checks it: its fields, its kinds, and that its charts are there.
///
/// Relative chart paths are resolved against the folder of `path`.
///
/// # Errors
/// [`WatchesError::Read`] when the file cannot be read, else [`WatchesError::Invalid`] with every
/// mistake found.
pub fn load(path: &Path) -> Result<Vec<Watch>, WatchesError> {
    load_with(path, |entry| Ok(entry.watch))
}

/// Reads a watches file as [`load`] does, and makes something of each entry. What `make` says is
/// wrong with an entry's chart is reported with all other mistakes.
///
/// # Errors
/// As [`load`].
pub fn load_with<T>(
    path: &Path,
    make: impl Fn(Entry) -> Result<T, String>,
) -> Result<Vec<T>, WatchesError> {
    let text = std::fs::read(path).map_err(|source| WatchesError::Read {
        path: path.to_owned(),
        source,
    })?;
    let base = path.parent().unwrap_or(Path::new(""));
    let (entries, mut problems) = parse(&text, base);
    problems.extend(validate(&entries));
    let mut results = Vec::new();
    for entry in entries {
        let (line, column) = entry.chart_mark;
        let field = format!("[{}].chart", entry.index);
        // Of a chart that is not there nothing more need be said.
        if problems.iter().any(|problem| problem.field == field) {
            continue;
        }
        match make(entry) {
            Ok(value) => results.push(value),
            Err(message) => problems.push(Problem {
                line,
                column,
                field,
                message,
            }),
        }
    }
    if problems.is_empty() {
        return Ok(results);
    }
    problems.sort_by_key(|p| (p.line, p.column));
    Err(WatchesError::Invalid {
        path: path.to_owned(),
        problems,
    })
}

/// An entry together with where it stands in the file.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The entry.
    pub watch: Watch,
    /// Its index in the list.
    pub index: usize,
    /// Line of the entry, counted from 1.
    pub line: usize,
    /// Column of the entry, counted from 1.
    pub column: usize,
    /// Line and column of the `chart` field.
    pub chart_mark: (usize, usize),
}

#[cfg(test)]
mod tests;

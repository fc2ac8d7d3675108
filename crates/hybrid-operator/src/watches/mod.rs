//! `watches.yaml`: binds kinds of custom resources to charts, with options.
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
//! [`load`] reads a file and reports all mistakes at once, each with its line, column and field. It
//! sends no requests to the cluster.

mod chart;
pub(crate) mod expand;
mod fields;
mod limits;
mod lock;
mod parse;
mod suggest;
pub(crate) mod template;
mod validate;
mod verify;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::core::{GroupVersionKind, Selector};
use serde_json::Value;

pub use chart::{ChartSource, RemoteChart, SecretName};
pub use kube_objects::target::Target;
pub use limits::{ChartLimits, parse_duration, parse_size, way_to_raise};
pub use lock::{Lock, LockError, LockedChart};
pub(crate) use parse::NEVER_RECREATED;
pub use parse::parse;
pub use suggest::nearest;
pub use validate::validate;
pub use verify::Verify;

/// One entry of `watches.yaml`: a custom resource kind and the chart that serves it.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option")]
pub struct Watch {
    /// The kind of the custom resources.
    pub gvk: GroupVersionKind,
    /// The chart; relative paths are resolved against the folder of the watches file.
    pub chart: ChartSource,
    /// Whether a change of an owned object triggers its custom resource at once. Default: true.
    pub watch_dependent_resources: bool,
    /// Values that replace those of the spec, by dotted path as in Helm's `--set`.
    pub override_values: BTreeMap<String, String>,
    /// Conversion of the strings of `overrideValues` to values.
    pub override_values_type: OverrideValuesType,
    /// Time between two reconciles of an unchanged custom resource; zero disables resyncs.
    pub reconcile_period: Option<Duration>,
    /// Maximum number of concurrent reconciles of this kind.
    pub max_concurrent_reconciles: Option<NonZeroUsize>,
    /// Only custom resources that match this label selector are reconciled.
    pub selector: Option<Selector>,
    /// Whether the results of `lookup` count as inputs of the release.
    pub lookup_is_input: bool,
    /// Whether a text given to `tpl` may look up everything that the operator may read, although it
    /// may come from a custom resource. Default: only objects of the release's namespace, and no
    /// Secrets.
    pub lookup_is_trusted: bool,
    /// Values merged over the spec; its strings may be templates.
    pub values: Option<Value>,
    /// Secrets and `ConfigMap`s that provide values.
    pub values_from: Vec<ValuesFrom>,
    /// Options of the install of a release.
    pub install: ActionPolicy,
    /// Options of the upgrade of a release.
    pub upgrade: ActionPolicy,
    /// Options of the rollback of a release.
    pub rollback: ActionPolicy,
    /// Options of the uninstall of a release.
    pub uninstall: ActionPolicy,
    /// Whether the chart's test hooks run after a change, and for how long.
    pub test: Option<ActionPolicy>,
    /// Handling of drift.
    pub drift_detection: DriftDetection,
    /// Patches for rendered objects, applied before the objects are sent.
    pub patches: Vec<Patch>,
    /// The service account that the operator impersonates; may be a template.
    pub service_account_name: Option<String>,
    /// Whether a template of `serviceAccountName` may pick an account of the operator's namespace.
    pub allow_operator_accounts: bool,
    /// Custom resources that must be `Ready` first.
    pub depends_on: Vec<Dependency>,
    /// Number of revisions of a release that are kept. Default: 10.
    pub max_history: Option<NonZeroUsize>,
    /// Template of the release's name. Default: the custom resource's name.
    pub release_name: Option<String>,
    /// Namespace of the releases of cluster-scoped custom resources.
    pub release_namespace: Option<String>,
    /// Annotation that pauses a custom resource, instead of the standard one.
    pub pause_annotation: Option<String>,
    /// Whether a chart that renders no objects may replace a release that has some.
    pub allow_empty: bool,
    /// Whether the status shows the last lines of a crashed container's log. Default: true.
    pub crash_logs: bool,
    /// Limits of one render of the chart.
    pub limits: ChartLimits,
    /// Handling of the CRDs in the chart's `crds/`.
    pub crds: CrdPolicy,
    /// Whether values are not checked against the schemas of the chart and its dependencies.
    pub skip_schema: bool,
}

impl Watch {
    /// Creates an entry with every option at its default.
    pub fn new(gvk: GroupVersionKind, chart: impl Into<PathBuf>) -> Self {
        Self {
            gvk,
            chart: ChartSource::Local(chart.into()),
            watch_dependent_resources: true,
            override_values: BTreeMap::new(),
            override_values_type: OverrideValuesType::default(),
            reconcile_period: None,
            max_concurrent_reconciles: None,
            selector: None,
            lookup_is_input: false,
            lookup_is_trusted: false,
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
            allow_operator_accounts: false,
            depends_on: Vec::new(),
            max_history: None,
            release_name: None,
            release_namespace: None,
            pause_annotation: None,
            allow_empty: false,
            crash_logs: true,
            limits: ChartLimits::default(),
            crds: CrdPolicy::default(),
            skip_schema: false,
        }
    }

    /// Returns a chart as the entry uses it: without the check of its schemas if that is skipped.
    #[must_use]
    pub fn with_schema_policy(&self, chart: helm_core::Chart) -> helm_core::Chart {
        if self.skip_schema {
            chart.skip_schemas()
        } else {
            chart
        }
    }

    /// Sets the limits that the entry does not set.
    #[must_use]
    pub(crate) fn with_limits(mut self, defaults: ChartLimits) -> Self {
        self.limits = self.limits.or(defaults);
        self
    }
}

/// Conversion of the strings of `overrideValues` to values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OverrideValuesType {
    /// As with Helm's `--set`: `true`, `false`, `null` and integers are recognised.
    #[default]
    Typed,
    /// All values are strings, as in operator-sdk.
    String,
}

/// A Secret or `ConfigMap` that provides values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValuesFrom {
    /// The kind of the object.
    pub kind: ReferenceKind,
    /// Name of the object; may be a template over the custom resource.
    pub name: String,
    /// Namespace of the object; the custom resource's by default.
    pub namespace: Option<String>,
    /// The entry of its `data`; `values.yaml` by default.
    pub key: String,
    /// Dotted path at which the entry is set as a string; without it, the entry is a values file.
    pub target_path: Option<String>,
    /// Whether the object or its entry may be missing at the first install. Once it has been
    /// read, its last value is used.
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
    /// Time limit of hooks and waits. Default: 5 minutes, as in Helm.
    pub timeout: Option<Duration>,
    /// Whether the action waits until every object is ready.
    pub wait: bool,
    /// Whether the action also waits until every Job is complete, and fails with a Job that failed.
    /// Without it, Jobs are not waited for.
    pub wait_for_jobs: bool,
    /// Whether hooks are skipped.
    pub disable_hooks: bool,
    /// Reaction to a failure. Only for install and upgrade.
    pub remediation: Remediation,
    /// Kinds whose objects are deleted and created again when an immutable field changes. Only for
    /// upgrade; `None` means `Job`.
    pub recreate: Option<Vec<String>>,
}

/// Reaction to a failed install or upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Remediation {
    /// Number of retries of the action with the same inputs.
    pub retries: Option<u32>,
    /// Strategy for the failed release; `None` means the action's default.
    pub strategy: Option<RemediationStrategy>,
}

/// Strategy for a release whose install or upgrade failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemediationStrategy {
    /// Roll back to the last deployed revision.
    Rollback,
    /// Uninstall the release.
    Uninstall,
    /// Keep it and retry in place.
    None,
}

/// Handling of drift: changes that others make to a release's objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DriftDetection {
    /// Reaction to drift.
    pub mode: DriftMode,
    /// Fields that others may own.
    pub ignore: Vec<DriftIgnore>,
}

/// Reaction to drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DriftMode {
    /// Apply the recorded manifest again.
    #[default]
    Repair,
    /// Report it in the condition `Drifted`.
    Warn,
    /// Ignore it.
    Off,
}

/// Fields of certain objects that others may own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriftIgnore {
    /// The objects; all of them if every field is empty.
    pub target: Target,
    /// JSON pointers (RFC 6901), such as `/spec/replicas`.
    pub paths: Vec<String>,
}

/// A patch for rendered objects.
#[derive(Debug, Clone, PartialEq)]
pub struct Patch {
    /// The objects to patch.
    pub target: Target,
    /// The change.
    pub patch: PatchBody,
}

/// The content of a patch.
#[derive(Debug, Clone, PartialEq)]
pub enum PatchBody {
    /// JSON Patch, RFC 6902.
    Json(json_patch::Patch),
    /// Strategic merge patch: lists with associative keys are merged by key.
    StrategicMerge(Value),
}

/// Another custom resource that must be `Ready` first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// `apiVersion` of the dependency.
    pub api_version: String,
    /// Kind of the dependency.
    pub kind: String,
    /// Name of the dependency; may be a template over the custom resource.
    pub name: String,
    /// Namespace of the dependency; the custom resource's by default.
    pub namespace: Option<String>,
}

/// Handling of the CRDs in a chart's `crds/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CrdPolicy {
    /// Do not create them.
    Skip,
    /// Create those that are missing, as Helm does.
    #[default]
    Create,
    /// Create those that are missing, and update those that differ from the chart's.
    CreateReplace,
}

/// One mistake in a watches file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line, counted from 1; 0 if the mistake concerns the whole file.
    pub line: usize,
    /// Column, counted from 1.
    pub column: usize,
    /// The field, such as `[0].install.timeout`; empty for the whole file.
    pub field: String,
    /// Description of the mistake and, if known, of the fix.
    pub message: String,
}

/// Reason why a watches file cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum WatchesError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The lock beside the file cannot be used.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The file has mistakes.
    #[error("{}", ProblemList { path, problems })]
    Invalid {
        path: PathBuf,
        /// Every mistake, in the order of the file.
        problems: Vec<Problem>,
    },
}

struct ProblemList<'a> {
    path: &'a Path,
    problems: &'a [Problem],
}

impl fmt::Display for ProblemList<'_> {
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

/// Reads a watches file and its lock, and checks its fields, its kinds, and that its charts exist. Charts
/// that are fetched are not asked for.
///
/// Relative chart paths are resolved against the folder of `path`.
///
/// # Errors
/// [`WatchesError::Read`] if the file cannot be read, else [`WatchesError::Invalid`] with all
/// mistakes.
pub fn load(path: &Path) -> Result<Vec<Watch>, WatchesError> {
    load_with(path, |entry| Ok(entry.watch))
}

/// Reads a watches file as [`load`] does, but not its lock, for the command that writes it.
///
/// # Errors
/// As [`load`].
pub fn load_unlocked(path: &Path) -> Result<Vec<Watch>, WatchesError> {
    let (entries, problems) = read(path)?;
    let entries = entries.into_iter().map(|entry| entry.watch).collect();
    finish(path, entries, problems)
}

/// Reads a watches file as [`load`] does, and calls `make` for each entry. An error of `make` is
/// reported as a mistake of the entry's chart, together with all others.
///
/// # Errors
/// As [`load`].
pub fn load_with<T>(
    path: &Path,
    make: impl Fn(Entry) -> Result<T, String>,
) -> Result<Vec<T>, WatchesError> {
    let (mut entries, mut problems) = read(path)?;
    if entries
        .iter()
        .any(|entry| entry.watch.chart.remote().is_some())
    {
        let lock = Lock::read(path)?;
        problems.extend(lock::apply(&mut entries, lock.as_ref(), &Lock::path(path)));
    }
    let mut results = Vec::new();
    for entry in entries {
        let (line, column) = entry.chart_position;
        let field = format!("[{}].chart", entry.index);
        // A missing chart has already been reported.
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
    finish(path, results, problems)
}

/// Reads the entries of a file, and the mistakes in them.
fn read(path: &Path) -> Result<(Vec<Entry>, Vec<Problem>), WatchesError> {
    let text = std::fs::read(path).map_err(|source| WatchesError::Read {
        path: path.to_owned(),
        source,
    })?;
    let base = path.parent().unwrap_or(Path::new(""));
    let (entries, mut problems) = parse(&text, base);
    problems.extend(validate(&entries));
    Ok((entries, problems))
}

fn finish<T>(
    path: &Path,
    results: Vec<T>,
    mut problems: Vec<Problem>,
) -> Result<Vec<T>, WatchesError> {
    if problems.is_empty() {
        return Ok(results);
    }
    problems.sort_by_key(|p| (p.line, p.column));
    Err(WatchesError::Invalid {
        path: path.to_owned(),
        problems,
    })
}

/// An entry and its position in the file.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The entry.
    pub watch: Watch,
    /// Index of the entry in the list.
    pub index: usize,
    /// Line of the entry, counted from 1.
    pub line: usize,
    /// Column of the entry, counted from 1.
    pub column: usize,
    /// Line and column of the `chart` field.
    pub chart_position: (usize, usize),
}

#[cfg(test)]
mod tests;

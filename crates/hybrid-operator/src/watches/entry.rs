//! Entries of `watches.yaml`.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use kube::core::{GroupVersionKind, Selector};
use kube_objects::target::Target;
use serde_json::Value;

use super::chart::ChartSource;
use super::limits::ChartLimits;

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

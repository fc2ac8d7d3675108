//! Entries of `watches.yaml`.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::core::{GroupVersionKind, Selector};
use object_cel::{Expression, Type};
use serde_json::Value;

use helm_release::engine::{OwnPatchError, OwnPatches};
use helm_release::policy::{ChartLimits, ReleasePolicy};

use super::admission::Admission;
use super::api::Api;
use super::chart::ChartSource;
use super::mapping::ValuePath;
use super::outputs::Outputs;
use super::patches_from::PatchesFrom;
use super::problem::Mistake;

/// One entry of `watches.yaml`: a custom resource kind and the chart that serves it.
#[derive(Debug, Clone, PartialEq)]
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
    /// Values merged over the spec; its strings may be templates.
    pub values: Option<Value>,
    /// Secrets and `ConfigMap`s that provide values.
    pub values_from: Vec<ValuesFrom>,
    /// Options of the releases.
    pub policy: ReleasePolicy,
    /// The service account that the operator impersonates; may be a template.
    pub service_account_name: Option<String>,
    /// Whether a template of `serviceAccountName` may pick an account of the operator's namespace.
    pub allow_operator_accounts: bool,
    /// Custom resources that must be `Ready` first.
    pub depends_on: Vec<Dependency>,
    /// Template of the release's name. Default: the custom resource's name.
    pub release_name: Option<String>,
    /// Namespace of the releases of cluster-scoped custom resources.
    pub release_namespace: Option<String>,
    /// Annotation that pauses a custom resource, instead of the standard one.
    pub pause_annotation: Option<String>,
    /// Whether values are not checked against the schemas of the chart and its dependencies.
    pub skip_schema: bool,
    /// Whether the API server refuses the deletion of custom resources, unless an annotation says otherwise; `None` if
    /// it is not to know of protection.
    pub protect: Option<bool>,
    /// Check of custom resources before they are stored. Default: none.
    pub admission: Option<Admission>,
    /// The spec, if it is not the chart's values.
    pub api: Option<Api>,
    /// Patches that custom resources hold themselves.
    pub patches_from: Option<PatchesFrom>,
    /// Values that expressions compute from the custom resource.
    pub map: BTreeMap<ValuePath, Arc<Expression>>,
    /// Values that are the content of Secrets, with the fields of the spec that refer to these.
    pub secrets: BTreeMap<ValuePath, Vec<String>>,
    /// Outputs in the status, and conditions of readiness.
    pub outputs: Arc<Outputs>,
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
            values: None,
            values_from: Vec::new(),
            policy: ReleasePolicy::default(),
            service_account_name: None,
            allow_operator_accounts: false,
            depends_on: Vec::new(),
            release_name: None,
            release_namespace: None,
            pause_annotation: None,
            skip_schema: false,
            protect: None,
            admission: None,
            api: None,
            patches_from: None,
            map: BTreeMap::new(),
            secrets: BTreeMap::new(),
            outputs: Arc::default(),
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

    /// Returns the patches that a custom resource holds.
    pub(crate) fn patches_of(&self, object: &Value) -> Result<OwnPatches, OwnPatchError> {
        let from = self.patches_from.as_ref();
        from.map_or_else(|| Ok(OwnPatches::default()), |from| from.patches_of(object))
    }

    /// Checks the path of `patchesFrom` against the values of the chart, and the expressions of an entry against the kinds
    /// that it defines, too.
    ///
    /// # Errors
    /// Says what is wrong with the first one.
    pub fn of_chart(mut self, chart: &helm_core::chart::Chart) -> Result<Self, Mistake> {
        if let Some(from) = self.patches_from.as_ref().filter(|_| self.api.is_none()) {
            let checked = from.check_values(chart.values());
            checked.map_err(|message| Mistake::new("patchesFrom.path", message))?;
        }
        let spec = self.api.as_ref().map_or(Type::Dyn, Api::spec);
        self.outputs = Arc::new(Arc::unwrap_or_clone(self.outputs).of_chart(chart, spec)?);
        Ok(self)
    }

    /// Returns what expressions read of a custom resource: its metadata, and its spec with its defaults.
    pub(crate) fn variables(&self, object: &Value) -> BTreeMap<String, Value> {
        let field = |name: &str| object.get(name).cloned().unwrap_or_default();
        let spec = match &self.api {
            Some(api) => api.with_defaults(&field("spec")),
            None => field("spec"),
        };
        let variables = [("metadata", field("metadata")), ("spec", spec)];
        variables
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }

    /// Sets the limits that the entry does not set.
    #[must_use]
    pub(crate) fn with_limits(mut self, defaults: ChartLimits) -> Self {
        self.policy.limits = self.policy.limits.or(defaults);
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
    /// Lines and columns of the fields that are checked against the chart, too.
    pub(super) positions: BTreeMap<String, (usize, usize)>,
}

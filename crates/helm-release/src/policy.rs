//! Options of the actions on a release.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use helm_core::engine::{BudgetError, RenderLimits};
use kube_objects::target::Target;
use kube_objects::watch::Fields;
use serde_json::Value;

/// Kinds that hold user data or other objects: never deleted and created again.
pub const NEVER_RECREATED: &[&str] = &[
    "PersistentVolumeClaim",
    "PersistentVolume",
    "Namespace",
    "CustomResourceDefinition",
];

/// Fields of the specification of a StatefulSet that can be changed.
pub const MUTABLE_OF_STATEFUL_SETS: &[&str] = &[
    "minReadySeconds",
    "ordinals",
    "persistentVolumeClaimRetentionPolicy",
    "replicas",
    "revisionHistoryLimit",
    "template",
    "updateStrategy",
];

/// Options of a release.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option")]
pub struct ReleasePolicy {
    /// Options of the install.
    pub install: ActionPolicy,
    /// Options of the upgrade.
    pub upgrade: ActionPolicy,
    /// Options of the rollback.
    pub rollback: ActionPolicy,
    /// Options of the uninstall.
    pub uninstall: ActionPolicy,
    /// Whether the chart's test hooks run after a change, and for how long.
    pub test: Option<ActionPolicy>,
    /// Handling of drift.
    pub drift_detection: DriftDetection,
    /// Patches for rendered objects, applied before the objects are sent.
    pub patches: Vec<Patch>,
    /// Whether the results of `lookup` count as inputs of the release.
    pub lookup_is_input: bool,
    /// Whether a text given to `tpl` may look up everything that the operator may read, although it
    /// may come from an owner. Default: only objects of the release's namespace, and no
    /// Secrets.
    pub lookup_is_trusted: bool,
    /// Number of revisions that are kept. Default: 10.
    pub max_history: Option<NonZeroUsize>,
    /// Whether a chart that renders no objects may replace a release that has some.
    pub allow_empty: bool,
    /// Whether the log of a crashed container is shown. Default: true.
    pub crash_logs: bool,
    /// Limits of one render of the chart.
    pub limits: ChartLimits,
    /// Handling of the CRDs in the chart's `crds/`.
    pub crds: CrdPolicy,
    /// Fate of the release when its owner is deleted.
    pub deletion: DeletionPolicy,
    /// Whether the release stays although its owner is being deleted.
    pub protected: bool,
    /// Fields of the release's objects that stay in memory as the watches show them, by kind.
    pub kept_fields: BTreeMap<String, Arc<Fields>>,
}

impl Default for ReleasePolicy {
    fn default() -> Self {
        Self {
            install: ActionPolicy::default(),
            upgrade: ActionPolicy::default(),
            rollback: ActionPolicy::default(),
            uninstall: ActionPolicy::default(),
            test: None,
            drift_detection: DriftDetection::default(),
            patches: Vec::new(),
            lookup_is_input: false,
            lookup_is_trusted: false,
            max_history: None,
            allow_empty: false,
            crash_logs: true,
            limits: ChartLimits::default(),
            crds: CrdPolicy::default(),
            deletion: DeletionPolicy::default(),
            protected: false,
            kept_fields: BTreeMap::new(),
        }
    }
}

/// Options of one of Helm's actions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option")]
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
    /// Whether the volumes of a StatefulSet grow with its `volumeClaimTemplates`: its claims are changed, and it is
    /// deleted without its Pods and created again. Only for upgrade; it holds for all actions.
    pub expand_volumes: bool,
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

/// Fate of a release when its owner is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeletionPolicy {
    /// The release is uninstalled.
    #[default]
    Delete,
    /// The objects and records stay, for another owner of the same name.
    Orphan,
}

/// Limits of one render of a chart. `None` means the default of the operator, and of Helm's engine
/// here if it has none either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChartLimits {
    /// Memory that values and output hold at one time, in bytes. Default: 256 MiB.
    pub memory: Option<usize>,
    /// Processor time; zero means no limit. Default: 10 s.
    pub time: Option<Duration>,
}

impl ChartLimits {
    /// Returns these limits, and those of `other` where there are none.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            memory: self.memory.or(other.memory),
            time: self.time.or(other.time),
        }
    }

    /// Returns the limits of a render.
    pub fn of_render(self) -> RenderLimits {
        let mut limits = RenderLimits::default();
        if let Some(memory) = self.memory {
            limits.memory = memory;
        }
        if let Some(time) = self.time {
            limits.time = Some(time).filter(|time| !time.is_zero());
        }
        limits
    }
}

/// Returns how an exceeded limit is raised, if an option does that.
pub fn way_to_raise(limit: &BudgetError) -> Option<&'static str> {
    match limit {
        BudgetError::Memory { .. } => {
            Some("raise it with `limits.memory` in watches.yaml or with --limit-memory")
        }
        BudgetError::Time { .. } => {
            Some("raise it with `limits.time` in watches.yaml or with --limit-time")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_an_entry_come_before_those_of_the_operator() {
        let own = ChartLimits {
            memory: Some(1 << 30),
            time: None,
        };
        let operator = ChartLimits {
            memory: Some(1 << 25),
            time: Some(Duration::ZERO),
        };
        let limits = own.or(operator).of_render();
        assert_eq!((limits.memory, limits.time), (1 << 30, None));
        let limits = ChartLimits::default().of_render();
        let seconds = Some(Duration::from_secs(10));
        assert_eq!((limits.memory, limits.time), (256 << 20, seconds));
    }
}

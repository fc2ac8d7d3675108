//! Configuration of a chart controller. Immutable: a reload makes a new one.

use std::sync::Arc;
use std::time::Duration;

use helm_core::CompiledChart;
use kube_objects::apply::{ApplyPolicy, LeaveOut};
use kube_objects::{InstanceId, OperatorId};
use operator_runtime::manager::ControllerContext;

use super::chart::Chart;
use super::extend::Extensions;
use super::kind::ActionKind;
use crate::options::ChartOptions;
use crate::watches::{ActionPolicy, Watch};

/// Entry of `watches.yaml` with its chart and the identity of the operator.
pub(super) struct Setup {
    /// Increases with each reload.
    pub(super) version: u64,
    pub(super) watch: Watch,
    pub(super) chart: Arc<CompiledChart>,
    pub(super) extensions: Extensions,
    /// Interval between reconciles of an unchanged custom resource.
    pub(super) period: Duration,
    pub(super) operator: OperatorId,
    pub(super) instance: InstanceId,
    /// Whether leader election ensures that no other replica writes.
    pub(super) elected: bool,
    pub(super) operator_namespace: Option<String>,
    /// Whether an event about `overrideValues` contains the texts of `watches.yaml`.
    pub(super) shows_overrides: bool,
    /// Whether the status contains the manifest of the release.
    pub(super) shows_manifest: bool,
    /// Watched namespaces; all if empty.
    pub(super) namespaces: Vec<String>,
}

impl Setup {
    /// Returns the configuration of an entry without extensions.
    pub(super) fn of(watch: Watch, chart: &Chart, context: &ControllerContext) -> Self {
        let (identity, options) = (&context.identity, ChartOptions::of(context));
        Self {
            version: 0,
            chart: chart.used_by(&watch),
            extensions: Extensions::default(),
            period: watch.reconcile_period.unwrap_or(options.reconcile_period),
            watch: watch.with_limits(options.limits()),
            operator: identity.operator.clone(),
            instance: identity.instance.clone(),
            elected: identity.elected,
            operator_namespace: identity.namespace.clone(),
            shows_overrides: !options.suppress_override_values,
            shows_manifest: options.status_manifest,
            namespaces: context.namespaces.clone(),
        }
    }

    /// Returns the policy of an action.
    pub(super) fn policy(&self, kind: ActionKind) -> &ActionPolicy {
        match kind {
            ActionKind::Install => &self.watch.install,
            ActionKind::Upgrade => &self.watch.upgrade,
            ActionKind::Rollback => &self.watch.rollback,
            ActionKind::Uninstall => &self.watch.uninstall,
            ActionKind::Test => self.watch.test.as_ref().unwrap_or(&self.watch.upgrade),
        }
    }

    /// Returns the kinds that an action may delete and recreate.
    pub(super) fn recreated(&self, kind: ActionKind) -> Vec<String> {
        match (&self.watch.upgrade.recreate, kind) {
            (_, ActionKind::Install | ActionKind::Uninstall) => Vec::new(),
            (Some(kinds), _) => kinds.clone(),
            (None, _) => vec!["Job".to_owned()],
        }
    }

    /// Returns the fields that other clients may set.
    pub(super) fn ignored_fields(&self) -> Vec<LeaveOut> {
        let mut rules = ApplyPolicy::default().leave_out;
        rules.extend(
            self.watch
                .drift_detection
                .ignore
                .iter()
                .map(|ignore| LeaveOut {
                    target: ignore.target.clone(),
                    paths: ignore.paths.clone(),
                }),
        );
        rules
    }
}

/// Returns the timeout of hooks and waits. Defaults to 5 minutes, as in Helm.
pub(super) fn timeout(asked: Option<Duration>) -> Duration {
    asked.unwrap_or(Duration::from_mins(5))
}

//! Configuration of a chart controller. Immutable: a reload makes a new one.

use std::sync::Arc;

use helm_release::Identity;
use operator_runtime::manager::ControllerContext;

use super::chart::Chart;
use super::extend::Extensions;
use crate::options::ChartOptions;
use crate::watches::Watch;

/// Entry of `watches.yaml` with its chart and the identity of the operator.
pub(super) struct Setup {
    /// Increases with each reload.
    pub(super) version: u64,
    pub(super) watch: Watch,
    /// Chart and options of the releases.
    pub(super) release: Arc<helm_release::engine::Setup>,
    pub(super) extensions: Extensions,
    pub(super) operator_namespace: Option<String>,
    /// Whether an event about `overrideValues` contains the texts of `watches.yaml`.
    pub(super) shows_overrides: bool,
    /// Whether the status contains the manifest of the release.
    pub(super) shows_manifest: bool,
}

impl Setup {
    /// Returns the configuration of an entry without extensions.
    pub(super) fn of(watch: Watch, chart: &Chart, context: &ControllerContext) -> Self {
        let (identity, options) = (&context.identity, ChartOptions::of(context));
        let watch = watch.with_limits(options.limits());
        let release = helm_release::engine::Setup {
            chart: chart.used_by(&watch),
            policy: watch.policy.clone(),
            period: watch.reconcile_period.unwrap_or(options.reconcile_period),
            identity: identity_of(context),
        };
        Self {
            version: 0,
            watch,
            release: Arc::new(release),
            extensions: Extensions::default(),
            operator_namespace: identity.namespace.clone(),
            shows_overrides: !options.suppress_override_values,
            shows_manifest: options.status_manifest,
        }
    }
}

/// Returns who manages the releases of a process.
pub(super) fn identity_of(context: &ControllerContext) -> Identity {
    let identity = &context.identity;
    Identity {
        operator: identity.operator.clone(),
        instance: identity.instance.clone(),
        elected: identity.elected,
        namespaces: context.namespaces.clone(),
    }
}

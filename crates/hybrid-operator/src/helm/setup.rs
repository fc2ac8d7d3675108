//! What a controller of charts is made of: read at start, and never changed.

use std::sync::Arc;
use std::time::Duration;

use helm_core::CompiledChart;

use super::extend::Extensions;
use super::kind::Kind;
use crate::cluster::apply::{ApplyPolicy, LeaveOut};
use crate::cluster::{InstanceId, OperatorId};
use crate::watches::{ActionPolicy, Watch};

/// One entry of `watches.yaml` with its chart, and who serves it.
pub(super) struct Setup {
    pub(super) watch: Watch,
    pub(super) chart: Arc<CompiledChart>,
    pub(super) extensions: Extensions,
    /// Time between two looks at an unchanged custom resource.
    pub(super) period: Duration,
    pub(super) operator: OperatorId,
    pub(super) instance: InstanceId,
    /// Whether a lease makes sure that no other replica writes.
    pub(super) elected: bool,
    pub(super) operator_namespace: Option<String>,
    /// Namespaces that are watched; all when empty.
    pub(super) namespaces: Vec<String>,
}

impl Setup {
    /// How an action is done.
    pub(super) fn policy(&self, kind: Kind) -> &ActionPolicy {
        match kind {
            Kind::Install => &self.watch.install,
            Kind::Upgrade => &self.watch.upgrade,
            Kind::Rollback => &self.watch.rollback,
            Kind::Uninstall => &self.watch.uninstall,
            Kind::Test => self.watch.test.as_ref().unwrap_or(&self.watch.upgrade),
        }
    }

    /// Kinds that an action may delete and create anew.
    pub(super) fn recreated(&self, kind: Kind) -> Vec<String> {
        match (&self.watch.upgrade.recreate, kind) {
            (_, Kind::Install | Kind::Uninstall) => Vec::new(),
            (Some(kinds), _) => kinds.clone(),
            (None, _) => vec!["Job".to_owned()],
        }
    }

    /// Fields that others may set.
    pub(super) fn left_to_others(&self) -> Vec<LeaveOut> {
        let mut rules = ApplyPolicy::default().leave_out;
        rules.extend(self.watch.drift_detection.ignore.iter().map(|ignore| {
            let target = ignore.target.clone();
            LeaveOut {
                group: target.group,
                version: target.version,
                kind: target.kind,
                namespace: target.namespace,
                name: target.name,
                labels: target.labels,
                paths: ignore.paths.clone(),
            }
        }));
        rules
    }
}

/// How long hooks and waits may take: 5 minutes unless said otherwise, as in Helm.
pub(super) fn timeout(asked: Option<Duration>) -> Duration {
    asked.unwrap_or(Duration::from_mins(5))
}

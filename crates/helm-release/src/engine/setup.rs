//! Chart and options of a release. Immutable: a change makes new ones.

use std::sync::Arc;
use std::time::Duration;

use helm_core::CompiledChart;
use kube_objects::apply::{ApplyPolicy, LeaveOut};
use kube_objects::{InstanceId, OperatorId};

use super::kind::ActionKind;
use crate::policy::{ActionPolicy, ReleasePolicy};

/// Chart and options of a release, and who manages it.
pub struct Setup {
    /// The chart.
    pub chart: Arc<CompiledChart>,
    /// Options of the actions.
    pub policy: ReleasePolicy,
    /// Interval between checks of an unchanged release.
    pub period: Duration,
    /// The program that manages the release.
    pub identity: Identity,
}

/// The program that manages releases.
#[derive(Clone)]
pub struct Identity {
    /// The program, in all of its processes.
    pub operator: OperatorId,
    /// This process.
    pub instance: InstanceId,
    /// Whether leader election ensures that no other replica writes.
    pub elected: bool,
    /// Watched namespaces; all if empty.
    pub namespaces: Vec<String>,
}

impl Setup {
    /// Returns the policy of an action.
    pub fn policy(&self, kind: ActionKind) -> &ActionPolicy {
        match kind {
            ActionKind::Install => &self.policy.install,
            ActionKind::Upgrade => &self.policy.upgrade,
            ActionKind::Rollback => &self.policy.rollback,
            ActionKind::Uninstall => &self.policy.uninstall,
            ActionKind::Test => self.policy.test.as_ref().unwrap_or(&self.policy.upgrade),
        }
    }

    /// Returns the kinds that an action may delete and recreate.
    pub fn recreated(&self, kind: ActionKind) -> Vec<String> {
        match (&self.policy.upgrade.recreate, kind) {
            (_, ActionKind::Install | ActionKind::Uninstall) => Vec::new(),
            (Some(kinds), _) => kinds.clone(),
            (None, _) => vec!["Job".to_owned()],
        }
    }

    /// Returns the fields that other clients may set.
    pub fn ignored_fields(&self) -> Vec<LeaveOut> {
        let mut rules = ApplyPolicy::default().leave_out;
        rules.extend(
            self.policy
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

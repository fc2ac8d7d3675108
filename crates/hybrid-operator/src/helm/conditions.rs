//! Conditions of a custom resource.

use serde::{Deserialize, Serialize};

/// Condition types. `Initialized`, `Deployed`, `ReleaseFailed`, `Irreconcilable` and `Paused` are
/// those of the Go operators; the others are additions.
pub(crate) mod types {
    /// The operator has processed the custom resource.
    pub(crate) const INITIALIZED: &str = "Initialized";
    /// A release is deployed.
    pub(crate) const DEPLOYED: &str = "Deployed";
    /// The last install, upgrade or uninstall failed.
    pub(crate) const RELEASE_FAILED: &str = "ReleaseFailed";
    /// The custom resource cannot be reconciled.
    pub(crate) const IRRECONCILABLE: &str = "Irreconcilable";
    /// The custom resource is paused.
    pub(crate) const PAUSED: &str = "Paused";
    /// Every object of the release is ready.
    pub(crate) const READY: &str = "Ready";
    /// The current inputs failed too often and are not retried.
    pub(crate) const STALLED: &str = "Stalled";
    /// The chart's tests succeeded on the deployed revision.
    pub(crate) const TEST_SUCCESS: &str = "TestSuccess";
    /// The release is managed by another operator than the one that sets this condition.
    pub(crate) const CONTESTED: &str = "Contested";
    /// Objects differ from what was applied and are not repaired.
    pub(crate) const DRIFTED: &str = "Drifted";
    /// Objects cannot be watched, so that changes of them are seen late.
    pub(crate) const WATCH_REFUSED: &str = "WatchRefused";
    /// Something was applied otherwise than the chart renders it, or was left in the cluster.
    pub(crate) const NOT_AS_RENDERED: &str = "NotAsRendered";
    /// The release record does not fit into one Secret.
    pub(crate) const LARGE_RECORD: &str = "LargeRecord";
    /// The API server drops fields of the status.
    pub(crate) const STATUS_PRUNED: &str = "StatusPruned";
}

/// Status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// An error prevents determining the status.
    Unknown,
}

/// Condition of a custom resource, as `metav1.Condition`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Condition {
    /// Type.
    #[serde(rename = "type")]
    pub(crate) type_: String,
    /// Status.
    pub(crate) status: ConditionStatus,
    /// Machine-readable reason in `CamelCase`; never empty.
    #[serde(default)]
    pub(crate) reason: String,
    /// Human-readable message.
    #[serde(default)]
    pub(crate) message: String,
    /// Time of the last change of the status.
    #[serde(default)]
    pub(crate) last_transition_time: String,
    /// Generation of the custom resource that the condition was set for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) observed_generation: Option<i64>,
}

/// Sets a condition at `now`. Returns whether its status or reason changed.
pub(crate) fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: ConditionStatus,
    reason: &str,
    message: &str,
    now: &str,
    generation: Option<i64>,
) -> bool {
    let condition = Condition {
        type_: type_.to_owned(),
        status,
        // The API conventions require a reason.
        reason: if reason.is_empty() {
            type_.to_owned()
        } else {
            reason.to_owned()
        },
        message: message.to_owned(),
        last_transition_time: now.to_owned(),
        observed_generation: generation,
    };
    let Some(present) = conditions.iter_mut().find(|present| present.type_ == type_) else {
        conditions.push(condition);
        return status == ConditionStatus::True;
    };
    let changed = present.status != condition.status || present.reason != condition.reason;
    let since = if present.status == condition.status {
        present.last_transition_time.clone()
    } else {
        condition.last_transition_time.clone()
    };
    *present = Condition {
        last_transition_time: since,
        ..condition
    };
    changed
}

/// Removes a condition.
pub(crate) fn remove(conditions: &mut Vec<Condition>, type_: &str) {
    conditions.retain(|condition| condition.type_ != type_);
}

#[cfg(test)]
mod tests {
    use super::{ConditionStatus, set};

    #[test]
    fn transition_time_changes_with_status_and_reason_is_never_empty() {
        let mut conditions = Vec::new();
        let mut put = |status, reason, now| {
            set(
                &mut conditions,
                "Deployed",
                status,
                reason,
                "",
                now,
                Some(1),
            )
        };
        assert!(put(ConditionStatus::True, "InstallSuccessful", "t1"));
        assert!(put(ConditionStatus::True, "UpgradeSuccessful", "t2"));
        assert!(!put(ConditionStatus::True, "UpgradeSuccessful", "t3"));
        assert!(put(ConditionStatus::False, "", "t4"));
        assert_eq!(conditions[0].reason, "Deployed");
        assert_eq!(conditions[0].last_transition_time, "t4");
    }
}

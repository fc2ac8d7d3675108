//! The conditions of a custom resource: what `kubectl wait` and people read.

use serde::{Deserialize, Serialize};

/// `Initialized`, `Deployed`, `ReleaseFailed`, `Irreconcilable`, `Paused` as the Go operators have
/// them; `Ready`, `Stalled`, `Drifted` and `Contested` are ours.
pub(crate) mod types {
    /// The custom resource has been seen.
    pub(crate) const INITIALIZED: &str = "Initialized";
    /// A release is deployed.
    pub(crate) const DEPLOYED: &str = "Deployed";
    /// The last install, upgrade or uninstall failed.
    pub(crate) const RELEASE_FAILED: &str = "ReleaseFailed";
    /// The custom resource cannot be brought to what it says.
    pub(crate) const IRRECONCILABLE: &str = "Irreconcilable";
    /// The custom resource is paused.
    pub(crate) const PAUSED: &str = "Paused";
    /// Every object of the release is ready.
    pub(crate) const READY: &str = "Ready";
    /// These inputs failed too often; they must change.
    pub(crate) const STALLED: &str = "Stalled";
    /// The chart's tests succeeded on the deployed revision.
    pub(crate) const TEST_SUCCESS: &str = "TestSuccess";
    /// Another operator watches the custom resource, too, and leaves the release alone.
    pub(crate) const CONTESTED: &str = "Contested";
    /// Objects differ from what was applied and are left so.
    pub(crate) const DRIFTED: &str = "Drifted";
    /// Objects cannot be watched, so that changes of them are seen late.
    pub(crate) const WATCH_REFUSED: &str = "WatchRefused";
}

/// A condition's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ConditionStatus {
    /// It is so.
    True,
    /// It is not so.
    False,
    /// An error hides whether it is so.
    Unknown,
}

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub(crate) type_: String,
    /// Whether it is so.
    pub(crate) status: ConditionStatus,
    /// One word why; never empty.
    #[serde(default)]
    pub(crate) reason: String,
    /// Why, for people.
    #[serde(default)]
    pub(crate) message: String,
    /// Since when it is so.
    #[serde(default)]
    pub(crate) last_transition_time: String,
    /// The generation that it speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) observed_generation: Option<i64>,
}

/// Sets a condition at `now`; whether its status or reason changed.
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
        // An empty reason is invalid by the API conventions.
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

/// Takes a condition away.
pub(crate) fn remove(conditions: &mut Vec<Condition>, type_: &str) {
    conditions.retain(|condition| condition.type_ != type_);
}

#[cfg(test)]
mod tests {
    use super::{ConditionStatus, set};

    #[test]
    fn the_transition_time_follows_the_status_and_reasons_are_never_empty() {
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

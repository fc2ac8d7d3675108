//! Conditions of a custom resource.

use serde::{Deserialize, Serialize};

use crate::reasons::ConditionType;

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
    type_: ConditionType,
    status: ConditionStatus,
    reason: &'static str,
    message: &str,
    now: &str,
    generation: Option<i64>,
) -> bool {
    let condition = Condition {
        type_: type_.as_str().to_owned(),
        status,
        reason: reason.to_owned(),
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
pub(crate) fn remove(conditions: &mut Vec<Condition>, type_: ConditionType) {
    conditions.retain(|condition| condition.type_ != type_);
}

#[cfg(test)]
mod tests {
    use super::{ConditionStatus, set};
    use crate::reasons::{ConditionType, Reason};

    #[test]
    fn transition_time_changes_with_the_status() {
        let mut conditions = Vec::new();
        let mut put = |status, reason: Reason, now| {
            set(
                &mut conditions,
                ConditionType::Deployed,
                status,
                reason.as_str(),
                "",
                now,
                Some(1),
            )
        };
        assert!(put(ConditionStatus::True, Reason::InstallSuccessful, "t1"));
        assert!(put(ConditionStatus::True, Reason::UpgradeSuccessful, "t2"));
        assert!(!put(ConditionStatus::True, Reason::UpgradeSuccessful, "t3"));
        assert!(put(ConditionStatus::False, Reason::UpgradeError, "t4"));
        assert_eq!(conditions[0].reason, "UpgradeError");
        assert_eq!(conditions[0].last_transition_time, "t4");
    }
}

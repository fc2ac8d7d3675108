//! Conditions that follow the Kubernetes API conventions.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Sets a condition. Its transition time changes only if the status changes.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: bool,
    reason: &str,
    message: &str,
    generation: Option<i64>,
) {
    let status = if status { "True" } else { "False" };
    let present = conditions
        .iter_mut()
        .find(|condition| condition.type_ == type_);
    let same = present
        .as_ref()
        .filter(|condition| condition.status == status);
    let since = same.map(|condition| condition.last_transition_time.clone());
    let condition = Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: since.unwrap_or_else(|| Time(Timestamp::now())),
    };
    match present {
        Some(present) => *present = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::set_condition;

    #[test]
    fn transition_time_changes_only_with_the_status() {
        let mut conditions = Vec::new();
        set_condition(&mut conditions, "Ready", false, "Waiting", "one", Some(1));
        let since = conditions[0].last_transition_time.clone();
        set_condition(&mut conditions, "Ready", false, "Waiting", "two", Some(2));
        assert_eq!(
            (conditions.len(), conditions[0].message.as_str()),
            (1, "two")
        );
        assert_eq!(conditions[0].last_transition_time, since);
        set_condition(&mut conditions, "Ready", true, "AllReady", "", Some(2));
        assert_eq!(conditions[0].status, "True");
    }
}

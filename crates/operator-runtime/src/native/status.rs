//! Conditions of a status, as the API conventions of Kubernetes define them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Conditions that are being updated. Made by [`Context::conditions`](super::Context::conditions).
///
/// ```
/// # use operator_runtime::native::Conditions;
/// let conditions = Conditions::new(Vec::new(), Some(3))
///     .set("Ready", false, "PodsNotReady", "1 of 3 pods is ready")
///     .remove("Degraded")
///     .into_vec();
/// assert_eq!(conditions[0].observed_generation, Some(3));
/// ```
#[derive(Debug, Clone)]
pub struct Conditions {
    conditions: Vec<Condition>,
    generation: Option<i64>,
}

impl Conditions {
    /// Starts from these conditions, for this generation of the object.
    pub fn new(present: Vec<Condition>, generation: Option<i64>) -> Self {
        Self {
            conditions: present,
            generation,
        }
    }

    /// Sets a condition. Its transition time changes only with its status.
    ///
    /// `reason` is one word in `CamelCase`, `message` a sentence for people.
    #[must_use]
    pub fn set(self, type_: &str, status: bool, reason: &str, message: impl Into<String>) -> Self {
        let status = if status { "True" } else { "False" };
        self.put(type_, status, reason, message.into())
    }

    /// Sets a condition to `Unknown`.
    #[must_use]
    pub fn unknown(self, type_: &str, reason: &str, message: impl Into<String>) -> Self {
        self.put(type_, "Unknown", reason, message.into())
    }

    /// Removes a condition.
    #[must_use]
    pub fn remove(mut self, type_: &str) -> Self {
        self.conditions.retain(|condition| condition.type_ != type_);
        self
    }

    /// Returns the conditions, for a status.
    pub fn into_vec(self) -> Vec<Condition> {
        self.conditions
    }

    fn put(mut self, type_: &str, status: &str, reason: &str, message: String) -> Self {
        let present = self.conditions.iter_mut().find(|c| c.type_ == type_);
        let same = present.as_ref().filter(|c| c.status == status);
        let since = same.map(|condition| condition.last_transition_time.clone());
        let condition = Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: self.generation,
            last_transition_time: since.unwrap_or_else(|| Time(host::timestamp())),
        };
        match present {
            Some(present) => *present = condition,
            None => self.conditions.push(condition),
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::Conditions;

    #[test]
    fn the_transition_time_changes_with_the_status_alone() {
        let waiting = Conditions::new(Vec::new(), Some(1)).set("Ready", false, "Waiting", "one");
        let since = waiting.clone().into_vec()[0].last_transition_time.clone();
        let waiting = Conditions::new(waiting.into_vec(), Some(2))
            .set("Ready", false, "Waiting", "two")
            .into_vec();
        assert_eq!((waiting.len(), waiting[0].message.as_str()), (1, "two"));
        assert_eq!(waiting[0].last_transition_time, since);
        assert_eq!(waiting[0].observed_generation, Some(2));
        let ready = Conditions::new(waiting, Some(2)).set("Ready", true, "AllReady", "");
        assert_eq!(ready.clone().into_vec()[0].status, "True");
        assert!(ready.remove("Ready").into_vec().is_empty());
    }
}

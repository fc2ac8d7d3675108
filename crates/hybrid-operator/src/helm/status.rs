//! The status of a custom resource. Pure.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::conditions::{self, Condition, ConditionStatus, types};

/// Status that is being written.
#[derive(Debug, Clone)]
pub struct Status {
    before: Value,
    now: String,
    generation: Option<i64>,
    /// The conditions.
    pub conditions: Vec<Condition>,
    /// What is said of the release.
    pub release: Option<Value>,
    /// Conditions that came to be true or changed their reason: reason and message of each.
    pub transitions: Vec<(bool, String, String)>,
}

impl Status {
    /// The status as it is, to be changed at `now` for `generation`.
    pub fn read(status: Option<&Value>, now: Timestamp, generation: Option<i64>) -> Self {
        let before = status.cloned().unwrap_or(Value::Null);
        let conditions = before.get("conditions").cloned().unwrap_or(Value::Null);
        let second = Timestamp::from_second(now.as_second()).unwrap_or(now);
        Self {
            conditions: serde_json::from_value(conditions).unwrap_or_default(),
            release: before.get("release").cloned(),
            before,
            now: second.to_string(),
            generation,
            transitions: Vec::new(),
        }
    }

    fn set(&mut self, type_: &str, status: ConditionStatus, reason: &str, message: &str) {
        let changed = conditions::set(
            &mut self.conditions,
            type_,
            status,
            reason,
            message,
            &self.now,
            self.generation,
        );
        let worth_telling = status == ConditionStatus::True
            && matches!(
                type_,
                types::DEPLOYED
                    | types::RELEASE_FAILED
                    | types::IRRECONCILABLE
                    | types::PAUSED
                    | types::STALLED
            );
        if changed && worth_telling {
            let bad = !matches!(type_, types::DEPLOYED | types::PAUSED);
            self.transitions
                .push((bad, reason.to_owned(), message.to_owned()));
        }
    }

    /// The custom resource was seen.
    pub fn initialized(&mut self) {
        self.set(types::INITIALIZED, ConditionStatus::True, "Initialized", "");
    }

    /// A release is deployed.
    pub fn deployed(&mut self, reason: &str, message: &str) {
        self.initialized();
        self.set(types::DEPLOYED, ConditionStatus::True, reason, message);
        self.set(types::RELEASE_FAILED, ConditionStatus::False, reason, "");
        self.reconciled();
    }

    /// The custom resource is what it says.
    pub fn reconciled(&mut self) {
        self.set(
            types::IRRECONCILABLE,
            ConditionStatus::False,
            "Reconciled",
            "",
        );
        if self.conditions.iter().any(|c| c.type_ == types::PAUSED) {
            self.set(types::PAUSED, ConditionStatus::False, "NotPaused", "");
        }
        conditions::remove(&mut self.conditions, types::STALLED);
        conditions::remove(&mut self.conditions, types::DRIFTED);
    }

    /// An action failed.
    pub fn failed(&mut self, reason: &str, message: &str) {
        self.initialized();
        if !self.conditions.iter().any(|c| c.type_ == types::DEPLOYED) {
            self.set(types::DEPLOYED, ConditionStatus::False, reason, "");
        }
        self.set(
            types::RELEASE_FAILED,
            ConditionStatus::True,
            reason,
            message,
        );
        self.set(types::READY, ConditionStatus::False, reason, message);
    }

    /// The custom resource cannot be brought to what it says.
    pub fn irreconcilable(&mut self, reason: &str, error: &dyn std::error::Error) {
        self.initialized();
        let message = chain(error);
        self.set(
            types::IRRECONCILABLE,
            ConditionStatus::True,
            reason,
            &message,
        );
        self.set(types::READY, ConditionStatus::False, reason, &message);
    }

    /// These inputs failed too often.
    pub fn stalled(&mut self, message: &str) {
        self.set(
            types::STALLED,
            ConditionStatus::True,
            "RetriesExhausted",
            message,
        );
        self.set(types::READY, ConditionStatus::False, "Stalled", message);
    }

    /// The custom resource is paused.
    pub fn paused(&mut self) {
        self.set(
            types::PAUSED,
            ConditionStatus::True,
            "PauseReconcileAnnotationTrue",
            "",
        );
    }

    /// Objects differ and are left so.
    pub fn drifted(&mut self, message: &str) {
        self.set(
            types::DRIFTED,
            ConditionStatus::True,
            "ObjectsChanged",
            message,
        );
    }

    /// Whether everything is ready; `missing` says what is not.
    pub fn ready(&mut self, missing: &[String]) {
        match missing.first() {
            None => self.set(types::READY, ConditionStatus::True, "AllObjectsReady", ""),
            Some(first) => {
                let more = missing.len() - 1;
                let message = if more > 0 {
                    format!("{first} (and {more} more)")
                } else {
                    first.clone()
                };
                self.set(
                    types::READY,
                    ConditionStatus::False,
                    "ObjectsNotReady",
                    &message,
                );
            }
        }
    }

    /// Something goes on.
    pub fn progressing(&mut self, why: &str) {
        self.initialized();
        self.set(
            types::READY,
            ConditionStatus::False,
            "Progressing",
            &format!("waiting for {why}"),
        );
    }

    /// The merge patch that makes the status so, `None` when it is so already.
    pub fn patch(&self) -> Option<Value> {
        let mut status = Map::new();
        let conditions = serde_json::to_value(&self.conditions).unwrap_or_default();
        status.insert("conditions".to_owned(), conditions);
        status.insert("observedGeneration".to_owned(), json!(self.generation));
        if let Some(release) = &self.release {
            status.insert("release".to_owned(), release.clone());
            let deployed = release.get("name").map(|name| json!({"name": name}));
            status.insert("deployedRelease".to_owned(), json!(deployed));
        }
        let same = status
            .iter()
            .all(|(key, value)| self.before.get(key) == Some(value));
        (!same).then_some(Value::Object(status))
    }
}

/// An error with its sources.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::Status;

    #[test]
    fn an_unchanged_status_is_not_written() {
        let now = Timestamp::from_second(1_000).unwrap();
        let mut status = Status::read(None, now, Some(2));
        status.deployed("InstallSuccessful", "notes");
        status.ready(&[]);
        status.release = Some(json!({"name": "r", "revision": 1}));
        let patch = status.patch().unwrap();
        assert_eq!(patch["observedGeneration"], 2);
        assert_eq!(patch["deployedRelease"]["name"], "r");
        assert_eq!(status.transitions.len(), 1);

        let later = Timestamp::from_second(2_000).unwrap();
        let mut again = Status::read(Some(&patch), later, Some(2));
        again.deployed("InstallSuccessful", "notes");
        again.ready(&[]);
        assert_eq!(again.patch(), None);
        assert!(again.transitions.is_empty());
    }

    #[test]
    fn a_failure_is_told_once_and_leaves_the_deployed_release() {
        let now = Timestamp::from_second(1_000).unwrap();
        let mut status = Status::read(None, now, Some(1));
        status.deployed("InstallSuccessful", "");
        status.failed("UpgradeError", "the server said no");
        let told: Vec<&str> = status
            .transitions
            .iter()
            .map(|(_, reason, _)| reason.as_str())
            .collect();
        assert_eq!(told, ["InstallSuccessful", "UpgradeError"]);
        let deployed = status
            .conditions
            .iter()
            .find(|c| c.type_ == "Deployed")
            .unwrap();
        assert_eq!(deployed.reason, "InstallSuccessful");
        assert!(
            status
                .conditions
                .iter()
                .all(|condition| !condition.reason.is_empty())
        );
    }
}

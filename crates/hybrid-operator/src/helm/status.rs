//! The status of a custom resource. Pure.

use std::hash::{DefaultHasher, Hash, Hasher};

use helm_core::release::Revision;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::annotations::Annotations;
use super::conditions::{self, Condition, ConditionStatus, types};

/// Status that is being written.
#[derive(Debug, Clone)]
pub struct Status {
    before: Value,
    now: String,
    generation: Option<i64>,
    failure_told: bool,
    /// The conditions.
    pub conditions: Vec<Condition>,
    /// What is said of the release.
    pub release: Option<Value>,
    /// The manifest of the release, where it is new and to be told.
    pub manifest: Option<String>,
    /// The newest revisions.
    pub history: Option<Value>,
    /// The values of one-time annotations that were acted upon.
    pub handled: Option<Value>,
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
            manifest: None,
            history: before.get("history").cloned(),
            handled: before.get("handled").cloned(),
            before,
            now: second.to_string(),
            generation,
            failure_told: false,
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
                    | types::CONTESTED
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

    /// Whether it says already that this revision is deployed and that nothing failed.
    pub fn says_deployed(&self, revision: Revision) -> bool {
        let is = |type_: &str, status: ConditionStatus| {
            let mut conditions = self.conditions.iter();
            conditions.any(|condition| condition.type_ == type_ && condition.status == status)
        };
        let told = self
            .release
            .as_ref()
            .and_then(|release| release.get("revision"));
        told == Some(&json!(revision.0))
            && is(types::DEPLOYED, ConditionStatus::True)
            && is(types::RELEASE_FAILED, ConditionStatus::False)
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

    /// It is not known how the release is, because of an error.
    pub fn unknown(&mut self, reason: &str) {
        self.set(types::RELEASE_FAILED, ConditionStatus::Unknown, reason, "");
    }

    /// Remembers that the tests of a revision ran.
    pub fn mark_tested(&mut self, revision: u32) {
        if let Some(release) = self.release.as_mut().and_then(Value::as_object_mut) {
            release.insert("tested".to_owned(), json!(revision));
        }
    }

    /// The outcome of the chart's tests.
    pub fn tested(&mut self, failure: Option<&str>) {
        let (status, reason) = match failure {
            None => (ConditionStatus::True, "TestsSucceeded"),
            Some(_) => (ConditionStatus::False, "TestsFailed"),
        };
        self.set(types::TEST_SUCCESS, status, reason, failure.unwrap_or(""));
    }

    /// The custom resource cannot be brought to what it says.
    pub fn irreconcilable(&mut self, reason: &str, error: &dyn std::error::Error) {
        self.failure_told = true;
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

    /// Whether [`Self::irreconcilable`] has said what is wrong.
    pub fn is_failure_told(&self) -> bool {
        self.failure_told
    }

    /// The generation that the conditions speak of. As long as nothing is said of the newest one,
    /// whether because of a lost connection or because there is more to do, it counts as unseen:
    /// what is said of an older one must not be taken for an answer to it.
    fn observed_generation(&self) -> Option<i64> {
        let speaks = |condition: &&Condition| {
            matches!(condition.type_.as_str(), types::READY | types::PAUSED)
                && condition.observed_generation == self.generation
        };
        match self.conditions.iter().find(speaks) {
            Some(_) => self.generation,
            None => self
                .before
                .get("observedGeneration")
                .and_then(Value::as_i64),
        }
    }

    /// Remembers the one-time annotations that the revision `revision` has acted upon.
    pub fn handle(&mut self, annotations: &Annotations, revision: u32) {
        let mut handled = self.handled.clone().unwrap_or_else(|| json!({}));
        let Some(fields) = handled.as_object_mut() else {
            return;
        };
        if let Some(at) = &annotations.force_at {
            fields.insert("forceAt".to_owned(), json!(at));
        }
        if let Some(at) = &annotations.reset_at
            && fields.get("resetAt") != Some(&json!(at))
        {
            fields.insert("resetAt".to_owned(), json!(at));
            fields.insert("forgiven".to_owned(), json!(revision.saturating_sub(1)));
        }
        if !fields.is_empty() {
            self.handled = Some(handled);
        }
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

    /// Another operator looks after the release. What was said of this generation stays, whichever
    /// operator said it.
    pub fn contested(&mut self, message: &str) {
        if !self.is_contested() {
            self.set(
                types::CONTESTED,
                ConditionStatus::True,
                "OtherOperator",
                message,
            );
        }
    }

    /// Forgets that the release is contested: when it came to be ours, or with a generation of
    /// which nobody has said so. An operator that still contests it will say so again.
    pub fn uncontested(&mut self, came_to_be_ours: bool) {
        if came_to_be_ours || !self.is_contested() {
            conditions::remove(&mut self.conditions, types::CONTESTED);
        }
    }

    fn is_contested(&self) -> bool {
        self.conditions.iter().any(|condition| {
            condition.type_ == types::CONTESTED && condition.observed_generation == self.generation
        })
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
                // While the same object is waited for, its progress is not worth a write.
                let object = |message: &str| message.split(": ").next().map(ToOwned::to_owned);
                let told = self.conditions.iter().any(|condition| {
                    condition.type_ == types::READY
                        && condition.status == ConditionStatus::False
                        && condition.reason == "ObjectsNotReady"
                        && condition.observed_generation == self.generation
                        && object(&condition.message) == object(&message)
                });
                if !told {
                    self.set(
                        types::READY,
                        ConditionStatus::False,
                        "ObjectsNotReady",
                        &message,
                    );
                }
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
    pub fn patch(&self, told: &Told) -> Option<Value> {
        let mut status = Map::new();
        let conditions = serde_json::to_value(&self.conditions).unwrap_or_default();
        status.insert("conditions".to_owned(), conditions);
        if let Some(generation) = self.observed_generation() {
            status.insert("observedGeneration".to_owned(), json!(generation));
        }
        if let Some(release) = &self.release {
            status.insert("release".to_owned(), release.clone());
            let name = release.get("name").cloned().unwrap_or_default();
            let mut deployed = json!({"name": name});
            if let Some(manifest) = &self.manifest {
                deployed = json!({"name": name, "manifest": manifest});
            }
            let known = self.before.pointer("/deployedRelease/name") == Some(&name);
            if self.manifest.is_some() || !known {
                status.insert("deployedRelease".to_owned(), deployed);
            }
        }
        for (field, value) in [("history", &self.history), ("handled", &self.handled)] {
            if let Some(value) = value {
                status.insert(field.to_owned(), value.clone());
            }
        }
        let same = status
            .iter()
            .all(|(key, value)| self.before.get(key) == Some(value));
        let status = Value::Object(status);
        // What the API server does not keep need not be told again.
        (!same && !told.is(&status, &self.before)).then_some(status)
    }
}

/// What was last told of a custom resource, and what was kept of it: the schema of its definition
/// may have no place for all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    sent: u64,
    kept: u64,
}

impl Told {
    /// Remembers a status that was sent, and the one that the API server has answered with.
    pub fn new(sent: &Value, kept: Option<&Value>) -> Self {
        Self {
            sent: hash(sent),
            kept: hash(kept.unwrap_or(&Value::Null)),
        }
    }

    fn is(&self, status: &Value, present: &Value) -> bool {
        *self != Self::default() && self.sent == hash(status) && self.kept == hash(present)
    }

    /// The fields of `sent` that were not kept.
    pub fn pruned(sent: &Value, kept: Option<&Value>) -> Vec<String> {
        let Some(kept) = kept else {
            return Vec::new();
        };
        let fields = sent.as_object().into_iter().flatten();
        fields
            .filter(|(field, value)| !value.is_null() && kept.get(*field).is_none())
            .map(|(field, _)| field.clone())
            .collect()
    }
}

fn hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// An error with its sources, but for those that it has told already.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::{Status, Told};

    #[test]
    fn an_unchanged_status_is_not_written() {
        let now = Timestamp::from_second(1_000).unwrap();
        let mut status = Status::read(None, now, Some(2));
        status.deployed("InstallSuccessful", "notes");
        status.ready(&[]);
        status.release = Some(json!({"name": "r", "revision": 1}));
        let patch = status.patch(&Told::default()).unwrap();
        assert_eq!(patch["observedGeneration"], 2);
        assert_eq!(patch["deployedRelease"]["name"], "r");
        assert_eq!(status.transitions.len(), 1);

        let later = Timestamp::from_second(2_000).unwrap();
        let mut again = Status::read(Some(&patch), later, Some(2));
        again.deployed("InstallSuccessful", "notes");
        again.ready(&[]);
        assert_eq!(again.patch(&Told::default()), None);
        assert!(again.transitions.is_empty());
    }

    #[test]
    fn a_generation_of_which_nothing_is_said_is_not_observed() {
        let now = Timestamp::from_second(1_000).unwrap();
        let mut status = Status::read(None, now, Some(1));
        status.deployed("InstallSuccessful", "");
        assert_eq!(
            status
                .patch(&Told::default())
                .unwrap()
                .get("observedGeneration"),
            None
        );
        status.ready(&[]);
        let patch = status.patch(&Told::default()).unwrap();
        assert_eq!(patch["observedGeneration"], 1);

        // The next reconcile ended early, for example because a connection broke.
        let mut cut_short = Status::read(Some(&patch), now, Some(2));
        assert_eq!(cut_short.patch(&Told::default()), None);
        cut_short.progressing("its Pods");
        let patch = cut_short.patch(&Told::default()).unwrap();
        assert_eq!(patch["observedGeneration"], 2);
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

    #[test]
    fn what_another_operator_says_of_this_generation_stays_until_the_release_is_ours() {
        let now = Timestamp::from_second(1_000).unwrap();
        let mut status = Status::read(None, now, Some(1));
        status.contested("the first has it, says the second");
        assert_eq!(status.transitions.len(), 1);
        let patch = status.patch(&Told::default()).unwrap();
        for (generation, came_to_be_ours, stays) in
            [(1, false, true), (1, true, false), (2, false, false)]
        {
            let mut owner = Status::read(Some(&patch), now, Some(generation));
            owner.uncontested(came_to_be_ours);
            assert_eq!(owner.conditions.len(), usize::from(stays));
        }
        let mut third = Status::read(Some(&patch), now, Some(1));
        third.contested("the first has it, says the third");
        assert_eq!(third.patch(&Told::default()), None);
    }
}

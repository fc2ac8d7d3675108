//! The status of a custom resource. Pure.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use helm_core::release::Revision;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::annotations::Annotations;
use super::conditions::{self, Condition, ConditionStatus, types};

/// Number of objects that a message names.
const NAMED: usize = 5;

/// What the status says of the release.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReleaseStatus {
    /// Name of the release.
    pub(crate) name: String,
    /// Newest revision.
    pub(crate) revision: u32,
    /// Helm's status of that revision.
    pub(crate) status: String,
    /// Name and version of its chart, `NAME-VERSION`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) chart_version: Option<String>,
    /// Version of what the chart installs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) app_version: Option<String>,
    /// Digest of its inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
    /// Hash of what is ours on all objects of the deployed revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) baseline: Option<String>,
    /// The revision that the chart's tests ran on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tested: Option<u32>,
}

/// One of the newest revisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HistoryEntry {
    /// Its number.
    pub(crate) revision: u32,
    /// Helm's status of it.
    pub(crate) status: String,
    /// Digest of its inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
}

/// The values of one-time annotations that were acted upon.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Handled {
    /// `force-at`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) force_at: Option<String>,
    /// `reset-at`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reset_at: Option<String>,
    /// The newest revision whose failures no longer count since `reset-at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) forgiven: Option<u32>,
}

/// A condition that came to be true, or came to be true for another reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transition {
    /// Whether it is bad news.
    pub(crate) warning: bool,
    /// Its reason.
    pub(crate) reason: String,
    /// Its message.
    pub(crate) message: String,
}

/// Status that is being written.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    before: Value,
    now: String,
    generation: Option<i64>,
    /// The conditions.
    pub(crate) conditions: Vec<Condition>,
    /// What is said of the release.
    pub(crate) release: Option<ReleaseStatus>,
    /// The manifest of the release, where it is new and to be shown.
    pub(crate) manifest: Option<String>,
    /// The newest revisions.
    pub(crate) history: Option<Vec<HistoryEntry>>,
    /// The values of one-time annotations that were acted upon.
    pub(crate) handled: Handled,
    /// What is worth an event.
    pub(crate) transitions: Vec<Transition>,
}

impl Status {
    /// The status as it is, to be changed at `now` for `generation`.
    pub(crate) fn read(status: Option<&Value>, now: Timestamp, generation: Option<i64>) -> Self {
        let before = status.cloned().unwrap_or(Value::Null);
        let field = |name: &str| before.get(name).cloned().unwrap_or(Value::Null);
        let second = Timestamp::from_second(now.as_second()).unwrap_or(now);
        Self {
            conditions: serde_json::from_value(field("conditions")).unwrap_or_default(),
            release: serde_json::from_value(field("release")).unwrap_or_default(),
            manifest: None,
            history: serde_json::from_value(field("history")).unwrap_or_default(),
            handled: serde_json::from_value(field("handled")).unwrap_or_default(),
            before,
            now: second.to_string(),
            generation,
            transitions: Vec::new(),
        }
    }

    fn set(&mut self, type_: &str, status: ConditionStatus, reason: &str, message: &str) {
        let told = |condition: &Condition| {
            condition.type_ == type_
                && condition.status == ConditionStatus::True
                && condition.message == message
        };
        // A second failure may have the reason of the first.
        let repeated = self.conditions.iter().any(told);
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
        let another_failure = type_ == types::RELEASE_FAILED && !repeated;
        if worth_telling && (changed || another_failure) {
            self.transitions.push(Transition {
                warning: !matches!(type_, types::DEPLOYED | types::PAUSED),
                reason: reason.to_owned(),
                message: message.to_owned(),
            });
        }
    }

    fn remove(&mut self, type_: &str) {
        conditions::remove(&mut self.conditions, type_);
    }

    /// The custom resource was seen.
    pub(crate) fn initialized(&mut self) {
        self.set(types::INITIALIZED, ConditionStatus::True, "Initialized", "");
    }

    /// A release is deployed.
    pub(crate) fn deployed(&mut self, reason: &str, message: &str) {
        self.initialized();
        self.set(types::DEPLOYED, ConditionStatus::True, reason, message);
        self.set(types::RELEASE_FAILED, ConditionStatus::False, reason, "");
        self.reconciled();
    }

    /// Whether it says already that this revision is deployed and that nothing failed.
    pub(crate) fn says_deployed(&self, revision: Revision) -> bool {
        let is = |type_: &str, status: ConditionStatus| {
            let mut conditions = self.conditions.iter();
            conditions.any(|condition| condition.type_ == type_ && condition.status == status)
        };
        let told = self.release.as_ref().map(|release| release.revision);
        told == Some(revision.0)
            && is(types::DEPLOYED, ConditionStatus::True)
            && is(types::RELEASE_FAILED, ConditionStatus::False)
    }

    /// The custom resource is what it says.
    pub(crate) fn reconciled(&mut self) {
        self.set(
            types::IRRECONCILABLE,
            ConditionStatus::False,
            "Reconciled",
            "",
        );
        if self.conditions.iter().any(|c| c.type_ == types::PAUSED) {
            self.set(types::PAUSED, ConditionStatus::False, "NotPaused", "");
        }
        self.remove(types::STALLED);
    }

    /// An action failed.
    pub(crate) fn failed(&mut self, reason: &str, message: &str) {
        self.initialized();
        let is_deployed = |condition: &Condition| {
            condition.type_ == types::DEPLOYED && condition.status == ConditionStatus::True
        };
        if !self.conditions.iter().any(is_deployed) {
            self.set(types::DEPLOYED, ConditionStatus::False, reason, message);
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
    pub(crate) fn unknown(&mut self, reason: &str) {
        self.set(types::RELEASE_FAILED, ConditionStatus::Unknown, reason, "");
    }

    /// Whether it says already why this revision failed.
    pub(crate) fn tells_failure_of(&self, revision: Revision) -> bool {
        let failed = |condition: &Condition| {
            condition.type_ == types::RELEASE_FAILED
                && condition.status == ConditionStatus::True
                && !condition.message.is_empty()
        };
        let told = self.release.as_ref().map(|release| release.revision);
        told == Some(revision.0) && self.conditions.iter().any(failed)
    }

    /// The outcome of tests of an earlier revision says nothing of a new one.
    pub(crate) fn untested(&mut self) {
        self.remove(types::TEST_SUCCESS);
    }

    /// The outcome of the chart's tests.
    pub(crate) fn tested(&mut self, failure: Option<&str>) {
        let (status, reason) = match failure {
            None => (ConditionStatus::True, "TestsSucceeded"),
            Some(_) => (ConditionStatus::False, "TestsFailed"),
        };
        self.set(types::TEST_SUCCESS, status, reason, failure.unwrap_or(""));
    }

    /// The custom resource cannot be brought to what it says.
    pub(crate) fn irreconcilable(&mut self, reason: &str, message: &str) {
        self.initialized();
        self.set(
            types::IRRECONCILABLE,
            ConditionStatus::True,
            reason,
            message,
        );
        self.set(types::READY, ConditionStatus::False, reason, message);
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
    pub(crate) fn handle(&mut self, annotations: &Annotations, revision: Revision) {
        if let Some(at) = &annotations.force_at {
            self.handled.force_at = Some(at.clone());
        }
        if let Some(at) = &annotations.reset_at
            && self.handled.reset_at.as_ref() != Some(at)
        {
            self.handled.reset_at = Some(at.clone());
            self.handled.forgiven = Some(revision.0.saturating_sub(1));
        }
    }

    /// Another attempt would do harm.
    pub(crate) fn stalled(&mut self, message: &str) {
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
    pub(crate) fn contested(&mut self, message: &str) {
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
    pub(crate) fn uncontested(&mut self, came_to_be_ours: bool) {
        if came_to_be_ours || !self.is_contested() {
            self.remove(types::CONTESTED);
        }
    }

    fn is_contested(&self) -> bool {
        self.conditions.iter().any(|condition| {
            condition.type_ == types::CONTESTED && condition.observed_generation == self.generation
        })
    }

    /// The custom resource is paused.
    pub(crate) fn paused(&mut self) {
        self.set(
            types::PAUSED,
            ConditionStatus::True,
            "PauseReconcileAnnotationTrue",
            "",
        );
    }

    /// Objects differ and are left so.
    pub(crate) fn drifted(&mut self, message: &str) {
        self.set(
            types::DRIFTED,
            ConditionStatus::True,
            "ObjectsChanged",
            message,
        );
    }

    /// All objects are as they were applied.
    pub(crate) fn undrifted(&mut self) {
        self.remove(types::DRIFTED);
    }

    /// Objects that cannot be watched, with the reason; none when all can.
    pub(crate) fn unwatched(&mut self, objects: &BTreeSet<String>) {
        if objects.is_empty() {
            self.remove(types::WATCH_REFUSED);
            return;
        }
        let mut named: Vec<&str> = objects.iter().map(String::as_str).collect();
        let more = named.len().saturating_sub(NAMED);
        named.truncate(NAMED);
        let mut message = named.join("; ");
        if more > 0 {
            message = format!("{message}; and {more} more");
        }
        self.set(
            types::WATCH_REFUSED,
            ConditionStatus::True,
            "CannotWatch",
            &message,
        );
    }

    /// Whether everything is ready; `missing` says what is not.
    pub(crate) fn ready(&mut self, missing: &[String]) {
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
    pub(crate) fn progressing(&mut self, why: &str) {
        self.initialized();
        self.set(
            types::READY,
            ConditionStatus::False,
            "Progressing",
            &format!("waiting for {why}"),
        );
    }

    /// The merge patch that makes the status so, `None` when it is so already.
    pub(crate) fn patch(&self, written: &Written) -> Option<Value> {
        let mut status = Map::new();
        status.insert("conditions".to_owned(), json!(self.conditions));
        if let Some(generation) = self.observed_generation() {
            status.insert("observedGeneration".to_owned(), json!(generation));
        }
        if let Some(release) = &self.release {
            status.insert("release".to_owned(), json!(release));
            let name = Some(Value::from(release.name.as_str()));
            let known = self.before.pointer("/deployedRelease/name") == name.as_ref();
            if let Some(manifest) = &self.manifest {
                let deployed = json!({"name": name, "manifest": manifest});
                status.insert("deployedRelease".to_owned(), deployed);
            } else if !known && self.is_deployed() {
                status.insert("deployedRelease".to_owned(), json!({"name": name}));
            }
        }
        if let Some(history) = &self.history {
            status.insert("history".to_owned(), json!(history));
        }
        if self.handled != Handled::default() {
            status.insert("handled".to_owned(), json!(self.handled));
        }
        let same = status
            .iter()
            .all(|(key, value)| self.before.get(key) == Some(value));
        let status = Value::Object(status);
        // What the API server does not keep need not be sent again.
        if same || written.is(&status, &self.before) {
            return None;
        }
        let mut patch = status;
        remove_what_is_gone(&mut patch, &self.before, "release");
        remove_what_is_gone(&mut patch, &self.before, "handled");
        Some(patch)
    }

    fn is_deployed(&self) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|condition| {
            condition.type_ == types::DEPLOYED && condition.status == ConditionStatus::True
        })
    }
}

/// Sets the fields of an object to null that it no longer has: a merge patch keeps what it does not
/// mention.
fn remove_what_is_gone(patch: &mut Value, before: &Value, field: &str) {
    let known = before.get(field).and_then(Value::as_object);
    if let Some(fields) = patch.get_mut(field).and_then(Value::as_object_mut) {
        for name in known.into_iter().flat_map(Map::keys) {
            fields.entry(name.clone()).or_insert(Value::Null);
        }
    }
}

/// The status that was last written, and what was kept of it: the schema of the custom resource's
/// definition may have no place for all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Written {
    sent: u64,
    kept: u64,
}

impl Written {
    /// Remembers a status that was sent, and the one that the API server has answered with.
    pub(crate) fn new(sent: &Value, kept: Option<&Value>) -> Self {
        Self {
            sent: hash(sent),
            kept: hash(kept.unwrap_or(&Value::Null)),
        }
    }

    fn is(&self, status: &Value, present: &Value) -> bool {
        *self != Self::default() && self.sent == hash(status) && self.kept == hash(present)
    }

    /// The fields of `sent` that were not kept.
    pub(crate) fn pruned(sent: &Value, kept: Option<&Value>) -> Vec<String> {
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

/// A hash of what a value says: a field that is null says nothing.
fn hash(value: &Value) -> u64 {
    fn feed(value: &Value, hasher: &mut DefaultHasher) {
        match value {
            Value::Object(fields) => {
                let mut fields: Vec<_> = fields.iter().filter(|(_, v)| !v.is_null()).collect();
                fields.sort_by_key(|(name, _)| *name);
                fields.len().hash(hasher);
                for (name, value) in fields {
                    name.hash(hasher);
                    feed(value, hasher);
                }
            }
            Value::Array(items) => {
                items.len().hash(hasher);
                for item in items {
                    feed(item, hasher);
                }
            }
            value => value.hash(hasher),
        }
    }
    let mut hasher = DefaultHasher::new();
    feed(value, &mut hasher);
    hasher.finish()
}

/// An error with its sources, but for those that it has told already.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
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

    use super::{ReleaseStatus, Status, Written};

    #[test]
    fn an_unchanged_status_is_not_written() {
        let now = Timestamp::from_second(1_000).unwrap();
        let mut status = Status::read(None, now, Some(2));
        status.deployed("InstallSuccessful", "notes");
        status.ready(&[]);
        status.release = Some(ReleaseStatus {
            name: "r".to_owned(),
            revision: 1,
            ..ReleaseStatus::default()
        });
        let patch = status.patch(&Written::default()).unwrap();
        assert_eq!(patch["observedGeneration"], 2);
        assert_eq!(patch["deployedRelease"]["name"], "r");
        assert_eq!(status.transitions.len(), 1);

        let later = Timestamp::from_second(2_000).unwrap();
        let mut again = Status::read(Some(&patch), later, Some(2));
        again.deployed("InstallSuccessful", "notes");
        again.ready(&[]);
        assert_eq!(again.patch(&Written::default()), None);
        assert!(again.transitions.is_empty());
    }

    #[test]
    fn a_generation_of_which_nothing_is_said_is_not_observed() {
        let now = Timestamp::from_second(1_000).unwrap();
        let mut status = Status::read(None, now, Some(1));
        status.deployed("InstallSuccessful", "");
        assert_eq!(
            status
                .patch(&Written::default())
                .unwrap()
                .get("observedGeneration"),
            None
        );
        status.ready(&[]);
        let patch = status.patch(&Written::default()).unwrap();
        assert_eq!(patch["observedGeneration"], 1);

        // The next reconcile ended early, for example because a connection broke.
        let mut cut_short = Status::read(Some(&patch), now, Some(2));
        assert_eq!(cut_short.patch(&Written::default()), None);
        cut_short.progressing("its Pods");
        let patch = cut_short.patch(&Written::default()).unwrap();
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
            .map(|transition| transition.reason.as_str())
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
        let patch = status.patch(&Written::default()).unwrap();
        for (generation, came_to_be_ours, stays) in
            [(1, false, true), (1, true, false), (2, false, false)]
        {
            let mut owner = Status::read(Some(&patch), now, Some(generation));
            owner.uncontested(came_to_be_ours);
            assert_eq!(owner.conditions.len(), usize::from(stays));
        }
        let mut third = Status::read(Some(&patch), now, Some(1));
        third.contested("the first has it, says the third");
        assert_eq!(third.patch(&Written::default()), None);
    }
}

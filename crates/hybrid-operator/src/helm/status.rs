//! Status of a custom resource. No I/O.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use helm_core::release::Revision;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::annotations::Annotations;
use super::bounded::{bounded, remembered};
use super::conditions::{self, Condition, ConditionStatus};
use crate::action::live::Remark;
use crate::diagnosis::Cause;
use crate::reasons::{ConditionType, EventReason, Reason};

/// Maximum number of objects that a message names.
const NAMED: usize = 5;
/// Maximum size of the message of `Deployed`, the chart's notes, in bytes. The API machinery accepts
/// messages of up to 32768 characters.
const MAX_NOTES: usize = 32 * 1024;
/// Maximum size of any other message, in bytes.
const MAX_MESSAGE: usize = 8 * 1024;
/// Maximum size of a chart's version and of its `appVersion`, in bytes.
const MAX_VERSION: usize = 256;

/// Release in the status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ReleaseStatus {
    /// Name of the release.
    pub(crate) name: String,
    /// Newest revision.
    pub(crate) revision: u32,
    /// Helm's status of that revision.
    pub(crate) status: String,
    /// Name and version of the chart, `NAME-VERSION`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) chart_version: Option<String>,
    /// `appVersion` of the chart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) app_version: Option<String>,
    /// Digest of the inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
    /// Hash of the operator's fields of all objects of the deployed revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) baseline: Option<String>,
    /// Revision that the chart's tests ran on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tested: Option<u32>,
}

/// Revision in the status history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HistoryEntry {
    /// Number of the revision.
    pub(crate) revision: u32,
    /// Helm's status of the revision.
    pub(crate) status: String,
    /// Digest of the inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
}

/// Handled values of one-time annotations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Handled {
    /// `force-at`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) force_at: Option<String>,
    /// `reset-at`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reset_at: Option<String>,
    /// Newest revision whose failures no longer count after `reset-at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) forgiven: Option<u32>,
}

/// Condition that became true, or is true for a new reason; published as an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transition {
    /// Whether the event is a warning.
    pub(crate) warning: bool,
    /// Reason of the condition.
    pub(crate) reason: Reason,
    /// Message of the condition.
    pub(crate) message: String,
}

/// Manifest in `deployedRelease`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeployedManifest {
    /// That of the revision that the status already reports as deployed.
    Same,
    /// That of a newly deployed revision; `None` if it is not shown.
    Of(Option<String>),
}

/// Status being built.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    before: Value,
    now: String,
    generation: Option<i64>,
    /// Conditions.
    pub(crate) conditions: Vec<Condition>,
    /// Release.
    pub(crate) release: Option<ReleaseStatus>,
    /// Manifest of the deployed revision.
    pub(crate) manifest: DeployedManifest,
    /// Whether the status must not contain a manifest.
    without_manifest: bool,
    /// Newest revisions.
    pub(crate) history: Option<Vec<HistoryEntry>>,
    /// Handled values of one-time annotations.
    pub(crate) handled: Handled,
    /// Transitions to publish as events.
    pub(crate) transitions: Vec<Transition>,
}

impl Status {
    /// Replaces the messages of all conditions and of their events.
    pub(crate) fn redact(&mut self, clean: impl Fn(&str) -> String) {
        for condition in &mut self.conditions {
            condition.message = clean(&condition.message);
        }
        for transition in &mut self.transitions {
            transition.message = clean(&transition.message);
        }
    }

    /// Reads the current status, to be changed at `now` for `generation`.
    pub(crate) fn read(status: Option<&Value>, now: Timestamp, generation: Option<i64>) -> Self {
        let before = status.cloned().unwrap_or(Value::Null);
        let field = |name: &str| before.get(name).cloned().unwrap_or(Value::Null);
        let second = Timestamp::from_second(now.as_second()).unwrap_or(now);
        Self {
            conditions: serde_json::from_value(field("conditions")).unwrap_or_default(),
            release: serde_json::from_value(field("release")).unwrap_or_default(),
            manifest: DeployedManifest::Same,
            without_manifest: false,
            history: serde_json::from_value(field("history")).unwrap_or_default(),
            handled: serde_json::from_value(field("handled")).unwrap_or_default(),
            before,
            now: second.to_string(),
            generation,
            transitions: Vec::new(),
        }
    }

    fn set(
        &mut self,
        type_: ConditionType,
        status: ConditionStatus,
        reason: Reason,
        message: &str,
    ) {
        #[cfg(test)]
        crate::reference::conditions::assert_documented(type_, &format!("{status:?}"), reason);
        let limit = if type_ == ConditionType::Deployed {
            MAX_NOTES
        } else {
            MAX_MESSAGE
        };
        let message = bounded(message, limit);
        let message = message.as_ref();
        let is_same = |condition: &Condition| {
            condition.type_ == type_
                && condition.status == ConditionStatus::True
                && condition.message == message
        };
        // A second failure may have the same reason as the first.
        let repeated = self.conditions.iter().any(is_same);
        let changed = conditions::set(
            &mut self.conditions,
            type_,
            status,
            reason,
            message,
            &self.now,
            self.generation,
        );
        let publishes_event = status == ConditionStatus::True
            && matches!(
                type_,
                ConditionType::Deployed
                    | ConditionType::ReleaseFailed
                    | ConditionType::Irreconcilable
                    | ConditionType::Paused
                    | ConditionType::Stalled
                    | ConditionType::Contested
            );
        let another_failure = type_ == ConditionType::ReleaseFailed && !repeated;
        if publishes_event && (changed || another_failure) {
            self.transitions.push(Transition {
                warning: !matches!(type_, ConditionType::Deployed | ConditionType::Paused),
                reason,
                message: message.to_owned(),
            });
        }
    }

    fn remove(&mut self, type_: ConditionType) {
        conditions::remove(&mut self.conditions, type_);
    }

    /// Reports that the operator processes the custom resource.
    pub(crate) fn initialized(&mut self) {
        self.set(
            ConditionType::Initialized,
            ConditionStatus::True,
            Reason::Initialized,
            "",
        );
    }

    /// Reports a deployed release.
    pub(crate) fn deployed(&mut self, reason: Reason, message: &str) {
        self.initialized();
        self.set(
            ConditionType::Deployed,
            ConditionStatus::True,
            reason,
            message,
        );
        self.set(
            ConditionType::ReleaseFailed,
            ConditionStatus::False,
            reason,
            "",
        );
        self.reconciled();
    }

    /// Returns whether the status already reports this revision as deployed without a failure.
    pub(crate) fn reports_deployed(&self, revision: Revision) -> bool {
        let is = |type_: ConditionType, status: ConditionStatus| {
            let mut conditions = self.conditions.iter();
            conditions.any(|condition| condition.type_ == type_ && condition.status == status)
        };
        let reported = self.release.as_ref().map(|release| release.revision);
        reported == Some(revision.0)
            && is(ConditionType::Deployed, ConditionStatus::True)
            && is(ConditionType::ReleaseFailed, ConditionStatus::False)
    }

    /// Reports that the custom resource is reconciled.
    pub(crate) fn reconciled(&mut self) {
        self.set(
            ConditionType::Irreconcilable,
            ConditionStatus::False,
            Reason::Reconciled,
            "",
        );
        if self
            .conditions
            .iter()
            .any(|c| c.type_ == ConditionType::Paused)
        {
            self.set(
                ConditionType::Paused,
                ConditionStatus::False,
                Reason::NotPaused,
                "",
            );
        }
        self.remove(ConditionType::Stalled);
    }

    /// Reports a failed action.
    pub(crate) fn failed(&mut self, reason: Reason, message: &str) {
        self.initialized();
        let is_deployed = |condition: &Condition| {
            condition.type_ == ConditionType::Deployed && condition.status == ConditionStatus::True
        };
        if !self.conditions.iter().any(is_deployed) {
            self.set(
                ConditionType::Deployed,
                ConditionStatus::False,
                reason,
                message,
            );
        }
        self.set(
            ConditionType::ReleaseFailed,
            ConditionStatus::True,
            reason,
            message,
        );
        self.set(
            ConditionType::Ready,
            ConditionStatus::False,
            reason,
            message,
        );
    }

    /// Reports that the state of the release is unknown because of an error.
    pub(crate) fn unknown(&mut self, reason: Reason) {
        self.set(
            ConditionType::ReleaseFailed,
            ConditionStatus::Unknown,
            reason,
            "",
        );
    }

    /// Returns whether the status already reports the failure of this revision.
    pub(crate) fn reports_failure_of(&self, revision: Revision) -> bool {
        let failed = |condition: &Condition| {
            condition.type_ == ConditionType::ReleaseFailed
                && condition.status == ConditionStatus::True
                && !condition.message.is_empty()
        };
        let reported = self.release.as_ref().map(|release| release.revision);
        reported == Some(revision.0) && self.conditions.iter().any(failed)
    }

    /// Removes the test result, which belongs to an earlier revision.
    pub(crate) fn clear_test_result(&mut self) {
        self.remove(ConditionType::TestSuccess);
    }

    /// Reports the result of the chart's tests.
    pub(crate) fn tested(&mut self, failure: Option<&str>) {
        let (status, reason) = match failure {
            None => (ConditionStatus::True, Reason::TestsSucceeded),
            Some(_) => (ConditionStatus::False, Reason::TestsFailed),
        };
        self.set(
            ConditionType::TestSuccess,
            status,
            reason,
            failure.unwrap_or(""),
        );
    }

    /// Reports that the custom resource cannot be reconciled.
    pub(crate) fn irreconcilable(&mut self, reason: Reason, message: &str) {
        self.initialized();
        self.set(
            ConditionType::Irreconcilable,
            ConditionStatus::True,
            reason,
            message,
        );
        self.set(
            ConditionType::Ready,
            ConditionStatus::False,
            reason,
            message,
        );
    }

    /// Returns the generation that the conditions apply to. The newest generation is not observed
    /// until `Ready` or `Paused` was set for it, so that conditions of an older one are not
    /// mistaken for its result.
    fn observed_generation(&self) -> Option<i64> {
        let is_current = |condition: &&Condition| {
            (condition.type_ == ConditionType::Ready || condition.type_ == ConditionType::Paused)
                && condition.observed_generation == self.generation
        };
        match self.conditions.iter().find(is_current) {
            Some(_) => self.generation,
            None => self
                .before
                .get("observedGeneration")
                .and_then(Value::as_i64),
        }
    }

    /// Records the one-time annotations as handled by `revision`.
    pub(crate) fn handle(&mut self, annotations: &Annotations, revision: Revision) {
        if let Some(at) = &annotations.force_at {
            self.handled.force_at = Some(remembered(at).into_owned());
        }
        if let Some(at) = &annotations.reset_at
            && self.handled.reset_at.as_deref() != Some(&*remembered(at))
        {
            self.handled.reset_at = Some(remembered(at).into_owned());
            self.handled.forgiven = Some(revision.0.saturating_sub(1));
        }
    }

    /// Reports that the release is not retried automatically.
    pub(crate) fn stalled(&mut self, message: &str) {
        self.set(
            ConditionType::Stalled,
            ConditionStatus::True,
            Reason::RetriesExhausted,
            message,
        );
        self.set(
            ConditionType::Ready,
            ConditionStatus::False,
            Reason::Stalled,
            message,
        );
    }

    /// Reports that another operator manages the release. Keeps a condition that any operator has
    /// set for this generation.
    pub(crate) fn contested(&mut self, message: &str) {
        if !self.is_contested() {
            self.set(
                ConditionType::Contested,
                ConditionStatus::True,
                Reason::OtherOperator,
                message,
            );
        }
    }

    /// Removes the condition `Contested` if this operator took over the release, or if it was set
    /// for an older generation. An operator that still contests the release sets it again.
    pub(crate) fn clear_contested(&mut self, taken_over: bool) {
        if taken_over || !self.is_contested() {
            self.remove(ConditionType::Contested);
        }
    }

    fn is_contested(&self) -> bool {
        self.conditions.iter().any(|condition| {
            condition.type_ == ConditionType::Contested
                && condition.observed_generation == self.generation
        })
    }

    /// Reports that the custom resource is paused.
    pub(crate) fn paused(&mut self) {
        self.set(
            ConditionType::Paused,
            ConditionStatus::True,
            Reason::PauseReconcileAnnotationTrue,
            "",
        );
    }

    /// Reports drift that is not repaired.
    pub(crate) fn drifted(&mut self, message: &str) {
        self.set(
            ConditionType::Drifted,
            ConditionStatus::True,
            Reason::ObjectsChanged,
            message,
        );
    }

    /// Reports that there is no drift.
    pub(crate) fn clear_drifted(&mut self) {
        self.remove(ConditionType::Drifted);
    }

    /// Reports objects that cannot be watched, with the reason; removes the condition if there are none.
    pub(crate) fn unwatched(&mut self, objects: &BTreeSet<String>) {
        if objects.is_empty() {
            return self.remove(ConditionType::WatchRefused);
        }
        let message = some_of(objects.iter().map(String::as_str));
        self.set(
            ConditionType::WatchRefused,
            ConditionStatus::True,
            Reason::CannotWatch,
            &message,
        );
    }

    /// Reports what is not as the chart renders it, each with the reason of its event; removes the
    /// condition if there is nothing.
    pub(crate) fn not_as_rendered(&mut self, remarks: &BTreeSet<Remark>) {
        let reasons: BTreeSet<EventReason> = remarks.iter().map(|remark| remark.reason).collect();
        let reason = match reasons.first() {
            None => return self.remove(ConditionType::NotAsRendered),
            Some(EventReason::ListEntriesMerged) if reasons.len() == 1 => Reason::ListEntriesMerged,
            Some(EventReason::ObjectLeft) if reasons.len() == 1 => Reason::ObjectLeft,
            Some(_) => Reason::SeveralReasons,
        };
        let message = some_of(remarks.iter().map(|remark| remark.note.as_str()));
        self.set(
            ConditionType::NotAsRendered,
            ConditionStatus::True,
            reason,
            &message,
        );
    }

    /// Reports why the newest record does not fit into one Secret; `None` if it does. Returns whether
    /// the status said so already.
    pub(crate) fn large_record(&mut self, why: Option<&str>) -> bool {
        let of = |condition: &&Condition| condition.type_ == ConditionType::LargeRecord;
        let told = self.conditions.iter().find(of);
        let told = told.map(|condition| condition.message.clone());
        match why {
            None => self.remove(ConditionType::LargeRecord),
            Some(why) => {
                let status = ConditionStatus::True;
                self.set(
                    ConditionType::LargeRecord,
                    status,
                    Reason::StoredInParts,
                    why,
                );
            }
        }
        told.as_deref() == why
    }

    /// Reports the fields of the status that the API server drops.
    pub(crate) fn pruned(&mut self, why: Option<&str>) {
        match why {
            None => self.remove(ConditionType::StatusPruned),
            Some(why) => {
                let status = ConditionStatus::True;
                self.set(
                    ConditionType::StatusPruned,
                    status,
                    Reason::NotInSchema,
                    why,
                );
            }
        }
    }

    /// Reports whether all objects are ready; `missing` lists those that are not, and `cause` is why,
    /// if that is known.
    pub(crate) fn ready(&mut self, missing: &[String], cause: Option<&Cause>) {
        let Some(first) = missing.first() else {
            return self.set(
                ConditionType::Ready,
                ConditionStatus::True,
                Reason::AllObjectsReady,
                "",
            );
        };
        if let Some(cause) = cause {
            return self.unready(cause.reason, &cause.message);
        }
        let more = missing.len() - 1;
        let message = if more > 0 {
            format!("{first} (and {more} more)")
        } else {
            first.clone()
        };
        // Do not write the status for progress of the same object.
        let object = |message: &str| message.split(": ").next().map(ToOwned::to_owned);
        let reported = self.conditions.iter().any(|condition| {
            condition.type_ == ConditionType::Ready
                && condition.status == ConditionStatus::False
                && condition.reason == Reason::ObjectsNotReady
                && condition.observed_generation == self.generation
                && object(&condition.message) == object(&message)
        });
        if !reported {
            self.unready(Reason::ObjectsNotReady, &message);
        }
    }

    /// Reports that the release waits for something; `cause` is why it is not there yet, if that is
    /// known.
    pub(crate) fn progressing(&mut self, why: &str, cause: Option<&Cause>) {
        self.initialized();
        match cause {
            Some(cause) => self.unready(cause.reason, &cause.message),
            None => self.unready(Reason::Progressing, &format!("waiting for {why}")),
        }
    }

    fn unready(&mut self, reason: Reason, message: &str) {
        self.set(
            ConditionType::Ready,
            ConditionStatus::False,
            reason,
            message,
        );
    }

    /// Returns since when the status says that the release is not ready.
    pub(crate) fn unready_since(&self) -> Option<Timestamp> {
        let ready = self.conditions.iter().find(|condition| {
            condition.type_ == ConditionType::Ready && condition.status == ConditionStatus::False
        });
        ready?.last_transition_time.parse().ok()
    }

    /// Leaves the manifest of the release out of the status, and removes one that is there.
    pub(crate) fn leave_out_manifest(&mut self) {
        self.without_manifest = true;
    }

    /// Returns the merge patch for the status, `None` if it is unchanged.
    pub(crate) fn patch(&self, written: &WrittenStatus) -> Option<Value> {
        let mut status = Map::new();
        status.insert("conditions".to_owned(), json!(self.conditions));
        if let Some(generation) = self.observed_generation() {
            status.insert("observedGeneration".to_owned(), json!(generation));
        }
        if let Some(release) = &self.release {
            status.insert("release".to_owned(), json!(release.bounded()));
            let name = release.name.as_str();
            let known = self.before.pointer("/deployedRelease/name");
            let known = known.and_then(Value::as_str) == Some(name);
            let mut deployed = json!({"name": name});
            if let DeployedManifest::Of(Some(manifest)) = &self.manifest {
                deployed = json!({"name": name, "manifest": manifest});
            }
            if self.manifest != DeployedManifest::Same || !known && self.is_deployed() {
                status.insert("deployedRelease".to_owned(), deployed);
            }
        }
        if self.without_manifest {
            remove_manifest(&mut status, &self.before);
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
        // Do not send fields again that the API server drops.
        if same || written.is(&status, &self.before) {
            return None;
        }
        let mut patch = status;
        add_removed_fields(&mut patch, &self.before, "release");
        add_removed_fields(&mut patch, &self.before, "deployedRelease");
        add_removed_fields(&mut patch, &self.before, "handled");
        Some(patch)
    }

    fn is_deployed(&self) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|condition| {
            condition.type_ == ConditionType::Deployed && condition.status == ConditionStatus::True
        })
    }
}

impl ReleaseStatus {
    /// Returns it without what a chart may make arbitrarily long.
    fn bounded(&self) -> Self {
        let bounded = |version: &String| bounded(version, MAX_VERSION).into_owned();
        Self {
            chart_version: self.chart_version.as_ref().map(bounded),
            app_version: self.app_version.as_ref().map(bounded),
            ..self.clone()
        }
    }
}

/// Takes the manifest out of a new status, and removes that of the present one.
fn remove_manifest(status: &mut Map<String, Value>, before: &Value) {
    let shown = before.pointer("/deployedRelease/manifest").is_some();
    let present = before.get("deployedRelease").filter(|_| shown).cloned();
    let deployed = status.remove("deployedRelease").or(present);
    if let Some(Value::Object(mut deployed)) = deployed {
        deployed.remove("manifest");
        if shown {
            deployed.insert("manifest".to_owned(), Value::Null);
        }
        if before.get("deployedRelease").and_then(Value::as_object) != Some(&deployed) {
            status.insert("deployedRelease".to_owned(), Value::Object(deployed));
        }
    }
}

/// Sets removed fields of an object to null: a merge patch keeps fields that it does not contain.
fn add_removed_fields(patch: &mut Value, before: &Value, field: &str) {
    let known = before.get(field).and_then(Value::as_object);
    if let Some(fields) = patch.get_mut(field).and_then(Value::as_object_mut) {
        for name in known.into_iter().flat_map(Map::keys) {
            fields.entry(name.clone()).or_insert(Value::Null);
        }
    }
}

/// Hashes of the status last sent and of what the API server stored of it: the schema of the CRD
/// may prune fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WrittenStatus {
    sent: u64,
    kept: u64,
}

impl WrittenStatus {
    /// Records the status sent and the one that the API server returned.
    pub(crate) fn new(sent: &Value, kept: Option<&Value>) -> Self {
        Self {
            sent: hash(sent),
            kept: hash(kept.unwrap_or(&Value::Null)),
        }
    }

    fn is(&self, status: &Value, present: &Value) -> bool {
        *self != Self::default() && self.sent == hash(status) && self.kept == hash(present)
    }

    /// Returns the fields of `sent` that were pruned, each as `status.FIELD`.
    pub(crate) fn pruned(sent: &Value, kept: Option<&Value>) -> Vec<String> {
        let Some(kept) = kept else {
            return Vec::new();
        };
        let fields = sent.as_object().into_iter().flatten();
        fields
            .filter(|(field, value)| !value.is_null() && kept.get(*field).is_none())
            .map(|(field, _)| format!("status.{field}"))
            .collect()
    }
}

/// Hashes a value, ignoring null fields.
/// Joins the first few texts.
fn some_of<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let mut named: Vec<&str> = all.collect();
    let more = named.len().saturating_sub(NAMED);
    named.truncate(NAMED);
    let message = named.join("; ");
    if more > 0 {
        format!("{message}; and {more} more")
    } else {
        message
    }
}

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

/// Formats an error with its sources, omitting those that its text already contains.
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
    use helm_core::release::Revision;
    use jiff::Timestamp;
    use serde_json::json;

    use crate::helm::annotations;
    use crate::reasons::Reason;

    use super::{DeployedManifest, MAX_NOTES, ReleaseStatus, Status, WrittenStatus};

    #[test]
    fn manifest_is_left_out_of_the_status_and_removed_from_it_on_request() {
        let now = Timestamp::from_second(1_000).unwrap();
        let build = |before: Option<&serde_json::Value>, manifest: bool| {
            let mut status = Status::read(before, now, Some(1));
            status.deployed(Reason::InstallSuccessful, "");
            status.release = Some(ReleaseStatus {
                name: "r".to_owned(),
                ..ReleaseStatus::default()
            });
            status.manifest = DeployedManifest::Of(Some("kind: Secret".to_owned()));
            if !manifest {
                status.leave_out_manifest();
            }
            status.patch(&WrittenStatus::default())
        };
        let shown = build(None, true).unwrap();
        assert_eq!(shown["deployedRelease"]["manifest"], "kind: Secret");
        let new = build(None, false).unwrap();
        assert_eq!(new["deployedRelease"], serde_json::json!({"name": "r"}));
        let removed = build(Some(&shown), false).unwrap();
        let null = serde_json::json!({"name": "r", "manifest": null});
        assert_eq!(removed["deployedRelease"], null);
        assert_eq!(build(Some(&new), false), None);
    }

    #[test]
    fn an_unchanged_status_is_not_written() {
        let now = Timestamp::from_second(1_000).unwrap();
        let mut status = Status::read(None, now, Some(2));
        status.deployed(Reason::InstallSuccessful, "notes");
        status.ready(&[], None);
        status.release = Some(ReleaseStatus {
            name: "r".to_owned(),
            revision: 1,
            ..ReleaseStatus::default()
        });
        let patch = status.patch(&WrittenStatus::default()).unwrap();
        assert_eq!(patch["observedGeneration"], 2);
        assert_eq!(patch["deployedRelease"]["name"], "r");
        assert_eq!(status.transitions.len(), 1);

        let later = Timestamp::from_second(2_000).unwrap();
        let mut again = Status::read(Some(&patch), later, Some(2));
        again.deployed(Reason::InstallSuccessful, "notes");
        again.ready(&[], None);
        assert_eq!(again.patch(&WrittenStatus::default()), None);
        assert!(again.transitions.is_empty());
    }

    #[test]
    fn manifest_is_that_of_the_deployed_revision_or_absent() {
        let now = Timestamp::from_second(1_000).unwrap();
        let release = |revision| ReleaseStatus {
            name: "r".to_owned(),
            revision,
            ..ReleaseStatus::default()
        };
        let mut status = Status::read(None, now, Some(1));
        status.deployed(Reason::InstallSuccessful, "");
        status.release = Some(release(1));
        status.manifest = DeployedManifest::Of(Some("first".to_owned()));
        let first = status.patch(&WrittenStatus::default()).unwrap();
        assert_eq!(first["deployedRelease"]["manifest"], "first");

        // A pending revision leaves it alone.
        let mut pending = Status::read(Some(&first), now, Some(2));
        pending.progressing("its Pods", None);
        pending.release = Some(release(2));
        let patch = pending.patch(&WrittenStatus::default()).unwrap();
        assert_eq!(patch.get("deployedRelease"), None);

        // The manifest of the second revision is not shown.
        let mut second = Status::read(Some(&first), now, Some(2));
        second.deployed(Reason::UpgradeSuccessful, "");
        second.release = Some(release(2));
        second.manifest = DeployedManifest::Of(None);
        let mut patch = second.patch(&WrittenStatus::default()).unwrap();
        assert_eq!(
            patch["deployedRelease"],
            json!({"name": "r", "manifest": null})
        );
        // The API server drops what is null.
        patch["deployedRelease"] = json!({"name": "r"});
        let mut again = Status::read(Some(&patch), now, Some(2));
        again.deployed(Reason::UpgradeSuccessful, "");
        again.manifest = DeployedManifest::Of(None);
        assert_eq!(again.patch(&WrittenStatus::default()), None);
    }

    #[test]
    fn status_is_bounded_and_what_is_cut_is_marked() {
        let now = Timestamp::from_second(1_000).unwrap();
        // The limit is in the middle of a character.
        let long = "\u{fc}".repeat(500_000);
        let mut status = Status::read(None, now, Some(1));
        status.deployed(Reason::InstallSuccessful, &long);
        status.failed(Reason::UpgradeError, &long);
        status.irreconcilable(Reason::ReconcileError, &long);
        status.stalled(&long);
        status.drifted(&long);
        status.contested(&long);
        status.tested(Some(&long));
        status.unwatched(&(0..9).map(|n| format!("{n}{long}")).collect());
        status.release = Some(ReleaseStatus {
            chart_version: Some(long.clone()),
            app_version: Some(long.clone()),
            ..ReleaseStatus::default()
        });
        let pairs = ["force-at", "reset-at"].map(|name| {
            let name = format!("{}{name}", annotations::PREFIX);
            (name, long.clone())
        });
        status.handle(
            &annotations::read(&pairs.into(), None, std::iter::empty()),
            Revision(1),
        );
        for condition in &status.conditions {
            assert!(condition.message.len() <= MAX_NOTES, "{}", condition.type_);
            let cut = condition.message.ends_with(" bytes in all)");
            assert!(cut || condition.message.is_empty(), "{}", condition.type_);
        }
        let patch = status.patch(&WrittenStatus::default()).unwrap();
        let size = patch.to_string().len();
        assert!((MAX_NOTES..160_000).contains(&size), "{size}");

        // What was cut is not reported again.
        let mut again = Status::read(Some(&patch), now, Some(1));
        again.stalled(&long);
        again.drifted(&long);
        again.contested(&long);
        again.tested(Some(&long));
        assert!(again.transitions.is_empty());
        assert_eq!(again.patch(&WrittenStatus::default()), None);
    }

    #[test]
    fn generation_without_conditions_is_not_observed() {
        let now = Timestamp::from_second(1_000).unwrap();
        let mut status = Status::read(None, now, Some(1));
        status.deployed(Reason::InstallSuccessful, "");
        assert_eq!(
            status
                .patch(&WrittenStatus::default())
                .unwrap()
                .get("observedGeneration"),
            None
        );
        status.ready(&[], None);
        let patch = status.patch(&WrittenStatus::default()).unwrap();
        assert_eq!(patch["observedGeneration"], 1);

        // The next reconcile ended early, for example because of a connection error.
        let mut cut_short = Status::read(Some(&patch), now, Some(2));
        assert_eq!(cut_short.patch(&WrittenStatus::default()), None);
        cut_short.progressing("its Pods", None);
        let patch = cut_short.patch(&WrittenStatus::default()).unwrap();
        assert_eq!(patch["observedGeneration"], 2);
    }

    #[test]
    fn failure_is_published_and_keeps_the_deployed_condition() {
        let now = Timestamp::from_second(1_000).unwrap();
        let mut status = Status::read(None, now, Some(1));
        status.deployed(Reason::InstallSuccessful, "");
        status.failed(Reason::UpgradeError, "the server said no");
        let reported: Vec<&str> = status
            .transitions
            .iter()
            .map(|transition| transition.reason.as_str())
            .collect();
        assert_eq!(reported, ["InstallSuccessful", "UpgradeError"]);
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
    fn contested_is_kept_for_its_generation_until_takeover() {
        let now = Timestamp::from_second(1_000).unwrap();
        let mut status = Status::read(None, now, Some(1));
        status.contested("the first has it, says the second");
        assert_eq!(status.transitions.len(), 1);
        let patch = status.patch(&WrittenStatus::default()).unwrap();
        for (generation, taken_over, stays) in
            [(1, false, true), (1, true, false), (2, false, false)]
        {
            let mut owner = Status::read(Some(&patch), now, Some(generation));
            owner.clear_contested(taken_over);
            assert_eq!(owner.conditions.len(), usize::from(stays));
        }
        let mut third = Status::read(Some(&patch), now, Some(1));
        third.contested("the first has it, says the third");
        assert_eq!(third.patch(&WrittenStatus::default()), None);
    }
}

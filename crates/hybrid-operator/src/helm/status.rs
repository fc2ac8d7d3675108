//! Status of a custom resource. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use helm_core::manifest::ObjectKey;
use helm_core::release::Revision;
use helm_release::engine::{
    Handled, Instructions, Message, Reader, Redactor, ReleaseStatus, Remark, Reported, bounded,
    is_same, remembered,
};
use helm_release::event::EventReason;
use jiff::Timestamp;
use kube_objects::diagnosis::{self, Cause};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::conditions::{self, Condition, ConditionStatus};
use super::outputs::Evaluated;
use crate::reasons::{ConditionType, Reason};

mod patch;

pub(crate) use patch::WrittenStatus;

/// Maximum number of objects that a message names.
const NAMED: usize = 5;
/// Maximum size of the message of `Deployed`, the chart's notes, in bytes. The API machinery accepts
/// messages of up to 32768 characters.
const MAX_NOTES: usize = 32 * 1024;
/// Maximum size of any other message, in bytes.
const MAX_MESSAGE: usize = 8 * 1024;

/// Shortest pause before another attempt that the status tells of. What passes within the first few
/// attempts costs no write.
pub(super) const TOLD_PAUSE: Duration = Duration::from_secs(4);

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

/// Condition that became true, or is true for a new reason; published as an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transition {
    /// Whether the event is a warning.
    pub(crate) warning: bool,
    /// Reason of the condition.
    pub(crate) reason: &'static str,
    /// Message of the condition, for readers of events.
    pub(crate) message: String,
}

/// Manifest in `deployedRelease`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeployedManifest {
    /// Manifest of the revision that the status already reports as deployed.
    Same,
    /// Manifest of a newly deployed revision; `None` if it is not shown.
    Of(Option<String>),
}

/// Status being built.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    before: Value,
    now: String,
    generation: Option<i64>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) release: Option<ReleaseStatus>,
    /// Manifest of the deployed revision.
    pub(crate) manifest: DeployedManifest,
    /// Whether the status must not contain a manifest.
    without_manifest: bool,
    /// Newest revisions.
    pub(crate) history: Option<Vec<HistoryEntry>>,
    /// Outputs of the release; `None` for those that are not there yet.
    outputs: BTreeMap<String, Option<Value>>,
    /// Handled values of one-time instructions.
    pub(crate) handled: Handled,
    /// Transitions to publish as events.
    pub(crate) transitions: Vec<Transition>,
    redactor: Redactor,
    /// Reader of the conditions.
    reader: Reader,
}

impl Status {
    /// Lets a redactor decide what `reader` sees in conditions, and what others see in events. Conditions
    /// of former reconciles do not quote what is known to be secret now.
    pub(super) fn redact(&mut self, redactor: &Redactor, reader: Reader) {
        (self.redactor, self.reader) = (redactor.clone(), reader);
        for condition in &mut self.conditions {
            condition.message = redactor.clean(&condition.message);
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
            outputs: BTreeMap::new(),
            handled: serde_json::from_value(field("handled")).unwrap_or_default(),
            before,
            now: second.to_string(),
            generation,
            transitions: Vec::new(),
            redactor: Redactor::default(),
            reader: Reader::default(),
        }
    }

    fn set(
        &mut self,
        type_: ConditionType,
        status: ConditionStatus,
        reason: impl Into<&'static str>,
        message: impl Into<Message>,
    ) {
        let reason = reason.into();
        #[cfg(test)]
        crate::tests::reference::conditions::assert_documented(
            type_,
            &format!("{status:?}"),
            reason,
        );
        let limit = if type_ == ConditionType::Deployed {
            MAX_NOTES
        } else {
            MAX_MESSAGE
        };
        let source = message.into();
        let message = self.redactor.text(&source, self.reader);
        let message = bounded(&message, limit).into_owned();
        let message = message.as_str();
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
            let shown = self.redactor.text(&source, Reader::Anybody);
            self.transitions.push(Transition {
                warning: !matches!(type_, ConditionType::Deployed | ConditionType::Paused),
                reason,
                message: bounded(&shown, limit).into_owned(),
            });
        }
    }

    fn set_true(
        &mut self,
        type_: ConditionType,
        reason: impl Into<&'static str>,
        message: impl Into<Message>,
    ) {
        self.set(type_, ConditionStatus::True, reason, message);
    }

    fn set_false(
        &mut self,
        type_: ConditionType,
        reason: impl Into<&'static str>,
        message: impl Into<Message>,
    ) {
        self.set(type_, ConditionStatus::False, reason, message);
    }

    fn remove(&mut self, type_: ConditionType) {
        conditions::remove(&mut self.conditions, type_);
    }

    /// Returns the condition of a type if it has this status.
    fn find(&self, type_: ConditionType, status: ConditionStatus) -> Option<&Condition> {
        let mut conditions = self.conditions.iter();
        conditions.find(|condition| condition.type_ == type_ && condition.status == status)
    }

    /// Returns what the status says of the release.
    pub(super) fn reported(&self) -> Reported {
        let failure = self.failure();
        let is_sound = self.find(ConditionType::ReleaseFailed, ConditionStatus::False);
        let ready = self.find(ConditionType::Ready, ConditionStatus::True);
        let observed = ready.and_then(|ready| ready.observed_generation);
        let is_close = |observed| self.generation.is_none_or(|now| observed + 1 >= now);
        Reported {
            release: self.release.clone(),
            is_deployed: self.is_deployed(),
            is_sound: is_sound.is_some(),
            is_failed: failure.is_some(),
            is_failed_now: failure
                .is_some_and(|failed| failed.observed_generation == self.generation),
            was_ready: observed.is_some_and(is_close),
            handled: self.handled.clone(),
        }
    }

    /// Reports that the operator processes the custom resource.
    pub(crate) fn initialized(&mut self) {
        self.set_true(ConditionType::Initialized, Reason::Initialized, "");
    }

    /// Reports a deployed release.
    pub(crate) fn deployed(&mut self, reason: Reason, message: impl Into<Message>) {
        self.initialized();
        self.set_true(ConditionType::Deployed, reason, message);
        self.set_false(ConditionType::ReleaseFailed, reason, "");
        self.reconciled();
    }

    /// Reports that a revision of a former generation runs, unless the status says so.
    pub(crate) fn restored(&mut self, reason: Reason, message: impl Into<Message>) {
        if self.is_deployed() {
            return;
        }
        let deployed = ConditionType::Deployed;
        self.set_true(deployed, reason, message);
        for condition in &mut self.conditions {
            if condition.type_ == deployed {
                let former = self.generation.map(|generation| generation - 1);
                condition.observed_generation = former.filter(|former| *former > 0);
            }
        }
    }

    /// Returns the manifest that the status had before.
    pub(super) fn deployed_manifest(&self) -> &str {
        let manifest = self.before.pointer("/deployedRelease/manifest");
        manifest.and_then(Value::as_str).unwrap_or_default()
    }

    fn is_deployed(&self) -> bool {
        let deployed = self.find(ConditionType::Deployed, ConditionStatus::True);
        deployed.is_some()
    }

    /// Reports that the custom resource is reconciled.
    pub(crate) fn reconciled(&mut self) {
        self.set_false(ConditionType::Irreconcilable, Reason::Reconciled, "");
        // A generation that changes nothing is deployed like the former one; `kubectl wait` passes over
        // conditions of former generations.
        for condition in &mut self.conditions {
            let about_release = [
                ConditionType::Initialized,
                ConditionType::Deployed,
                ConditionType::ReleaseFailed,
                ConditionType::TestSuccess,
                ConditionType::Paused,
            ];
            if about_release.iter().any(|type_| condition.type_ == *type_) {
                condition.observed_generation = self.generation;
            }
        }
        self.remove(ConditionType::Stalled);
    }

    /// Removes what was reported about a failure that is not retried.
    pub(super) fn no_longer_stalled(&mut self) {
        self.remove(ConditionType::Stalled);
    }

    /// Reports a failed action.
    pub(crate) fn failed(&mut self, reason: Reason, message: impl Into<Message>) {
        let message = message.into();
        self.initialized();
        // What is installed has no former revision: somebody may have uninstalled it.
        let is_install = reason == Reason::InstallError;
        if is_install {
            self.remove(ConditionType::Stalled);
        }
        if is_install || !self.is_deployed() {
            self.clear_test_result();
            self.set_false(ConditionType::Deployed, reason, message.clone());
        }
        self.set_true(ConditionType::ReleaseFailed, reason, message.clone());
        self.unready(reason, message);
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

    /// Returns the condition that says why a release failed.
    fn failure(&self) -> Option<&Condition> {
        self.find(ConditionType::ReleaseFailed, ConditionStatus::True)
            .filter(|failed| !failed.message.is_empty())
    }

    /// Removes the test result, which belongs to an earlier revision.
    pub(crate) fn clear_test_result(&mut self) {
        self.remove(ConditionType::TestSuccess);
        if let Some(release) = &mut self.release {
            release.tested = None;
        }
    }

    /// Reports the result of the chart's tests.
    pub(crate) fn tested(&mut self, failure: Option<&Message>) {
        let (status, reason) = match failure {
            None => (ConditionStatus::True, Reason::TestsSucceeded),
            Some(_) => (ConditionStatus::False, Reason::TestsFailed),
        };
        self.set(
            ConditionType::TestSuccess,
            status,
            reason,
            failure.cloned().unwrap_or_default(),
        );
    }

    /// Reports that the custom resource cannot be reconciled.
    pub(crate) fn irreconcilable(&mut self, reason: Reason, message: impl Into<Message>) {
        let message = message.into();
        self.initialized();
        self.set_true(ConditionType::Irreconcilable, reason, message.clone());
        self.unready(reason, message);
    }

    /// Returns the generation that the conditions apply to. The newest generation is not observed
    /// until `Ready` was set for it, or `Paused` to `True`, so that conditions of an older one are not
    /// mistaken for its result.
    fn observed_generation(&self) -> Option<i64> {
        let is_current = |condition: &&Condition| {
            let is_paused = condition.type_ == ConditionType::Paused
                && condition.status == ConditionStatus::True;
            (condition.type_ == ConditionType::Ready || is_paused)
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

    /// Records that a pass has followed a change of `reconcile-at`.
    pub(crate) fn acknowledge(&mut self, instructions: &Instructions) {
        if let Some(at) = &instructions.reconcile_at {
            self.handled.reconcile_at = Some(remembered(at).into_owned());
        }
    }

    /// Records the one-time annotations as handled by `revision`.
    pub(crate) fn handle(&mut self, instructions: &Instructions, revision: Revision) {
        if let Some(at) = &instructions.force_at {
            self.handled.force_at = Some(remembered(at).into_owned());
        }
        if let Some(at) = &instructions.reset_at
            && self.handled.reset_at.as_deref() != Some(&*remembered(at))
        {
            self.handled.reset_at = Some(remembered(at).into_owned());
            self.handled.forgiven = Some(revision.0.saturating_sub(1));
        }
    }

    /// Reports that the release is not retried automatically. A repair that has failed since then is not
    /// the reason.
    pub(crate) fn stalled(&mut self, message: &str) {
        if let Some(failure) = self.failure() {
            let why = failure.message.clone();
            self.irreconcilable(Reason::ReconcileError, why);
        }
        self.set_true(ConditionType::Stalled, Reason::RetriesExhausted, message);
        self.unready(Reason::Stalled, message);
    }

    /// Reports that no replica has the custom resource.
    pub(crate) fn unassigned(&mut self, message: &str) {
        let unknown = ConditionStatus::Unknown;
        self.set(ConditionType::Ready, unknown, Reason::Unassigned, message);
    }

    /// Reports that another operator manages the release. Keeps a condition that any operator has
    /// set for this generation.
    pub(crate) fn contested(&mut self, message: &str) {
        if !self.is_contested() {
            self.set_true(ConditionType::Contested, Reason::OtherOperator, message);
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

    /// Reports that the custom resource is not paused any more.
    pub(crate) fn unpaused(&mut self) {
        if self
            .find(ConditionType::Paused, ConditionStatus::True)
            .is_some()
        {
            self.set_false(ConditionType::Paused, Reason::NotPaused, "");
        }
    }

    /// Reports that the custom resource is paused.
    pub(crate) fn paused(&mut self) {
        self.set_true(
            ConditionType::Paused,
            Reason::PauseReconcileAnnotationTrue,
            "",
        );
    }

    /// Reports drift that is not repaired.
    pub(crate) fn drifted(&mut self, message: &str) {
        self.set_true(ConditionType::Drifted, Reason::ObjectsChanged, message);
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
        self.set_true(ConditionType::WatchRefused, Reason::CannotWatch, message);
    }

    /// Reports what is not as the chart renders it, each with the reason of its event; removes the
    /// condition if there is nothing.
    pub(crate) fn not_as_rendered(&mut self, remarks: &BTreeSet<Remark>) {
        let reasons: BTreeSet<EventReason> = remarks.iter().map(|remark| remark.reason).collect();
        let reason = match reasons.first() {
            None => return self.remove(ConditionType::NotAsRendered),
            Some(EventReason::VolumeSizeKept) if reasons.len() == 1 => Reason::VolumeSizeKept,
            Some(EventReason::ListEntriesMerged) if reasons.len() == 1 => Reason::ListEntriesMerged,
            Some(EventReason::ObjectLeft) if reasons.len() == 1 => Reason::ObjectLeft,
            Some(EventReason::RenderedTwice) if reasons.len() == 1 => Reason::RenderedTwice,
            Some(EventReason::DependencyMissing) if reasons.len() == 1 => Reason::DependencyMissing,
            Some(_) => Reason::SeveralReasons,
        };
        let message = some_of(remarks.iter().map(|remark| remark.note.as_str()));
        self.set_true(ConditionType::NotAsRendered, reason, message);
    }

    /// Reports that what was not as rendered before is not so for the present generation either.
    pub(crate) fn still_not_as_rendered(&mut self) {
        for condition in &mut self.conditions {
            if condition.type_ == ConditionType::NotAsRendered {
                condition.observed_generation = self.generation;
            }
        }
    }

    /// Reports why the newest record does not fit into one Secret; `None` if it does. Returns whether
    /// the status said so already.
    pub(crate) fn large_record(&mut self, why: Option<&str>) -> bool {
        let of = |condition: &&Condition| condition.type_ == ConditionType::LargeRecord;
        let told = self
            .conditions
            .iter()
            .find(of)
            .map(|condition| condition.message.clone());
        match why {
            None => self.remove(ConditionType::LargeRecord),
            Some(why) => self.set_true(ConditionType::LargeRecord, Reason::StoredInParts, why),
        }
        told.as_deref() == why
    }

    /// Reports the fields of the status that the API server drops.
    pub(crate) fn pruned(&mut self, why: Option<&str>) {
        match why {
            None => self.remove(ConditionType::StatusPruned),
            Some(why) => self.set_true(ConditionType::StatusPruned, Reason::NotInSchema, why),
        }
    }

    /// Reports whether all objects are ready; `missing` lists those that are not, with the reason, and `cause` is
    /// why, if that is known. `awaited` is what else is waited for.
    pub(crate) fn ready(
        &mut self,
        missing: &[(ObjectKey, String)],
        cause: Option<&Cause>,
        awaited: Option<&str>,
    ) {
        let Some((first, why)) = missing.first() else {
            return match awaited {
                None => self.set_true(ConditionType::Ready, Reason::AllObjectsReady, ""),
                Some(awaited) => self.unready(Reason::AwaitsCondition, awaited),
            };
        };
        if let Some(cause) = cause {
            return self.unready(cause.reason, cause.message.as_str());
        }
        let object = format!("{first}: ");
        // Progress of the same object is not written.
        let told = self.redactor.text(&object.as_str().into(), self.reader);
        let is_reported = self
            .find(ConditionType::Ready, ConditionStatus::False)
            .is_some_and(|ready| {
                ready.reason == diagnosis::Reason::ObjectsNotReady.as_str()
                    && ready.observed_generation == self.generation
                    && ready.message.starts_with(&told)
            });
        if is_reported {
            return;
        }
        let message = match missing.len() - 1 {
            0 => object + why,
            more => format!("{object}{why} (and {more} more)"),
        };
        self.unready(diagnosis::Reason::ObjectsNotReady, message);
    }

    /// Removes what was reported about outputs.
    pub(super) fn without_outputs(&mut self) {
        self.remove(ConditionType::OutputsComplete);
    }

    /// Sets the outputs of the release, and reports which are not there yet.
    pub(super) fn output(&mut self, outputs: Evaluated) {
        let named = |all: &[String]| some_of(all.iter().map(String::as_str));
        if !outputs.failed.is_empty() {
            let message = named(&outputs.failed);
            self.set_false(
                ConditionType::OutputsComplete,
                Reason::OutputsFailed,
                message,
            );
        } else if !outputs.missing.is_empty() {
            let message = named(&outputs.missing);
            self.set_false(
                ConditionType::OutputsComplete,
                Reason::OutputsMissing,
                message,
            );
        } else {
            self.set_true(ConditionType::OutputsComplete, Reason::OutputsEvaluated, "");
        }
        self.outputs = outputs.fields;
    }

    /// Removes outputs that the entry no longer has.
    pub(super) fn remove_outputs(&mut self, names: Vec<String>) {
        self.outputs
            .extend(names.into_iter().map(|name| (name, None)));
    }

    /// Reports that the release waits for something; `cause` is why it is not there yet, if that is
    /// known.
    pub(crate) fn progressing(&mut self, why: &str, cause: Option<&Cause>) {
        self.initialized();
        let stalled = self.find(ConditionType::Stalled, ConditionStatus::True);
        if stalled.is_some_and(|stalled| stalled.observed_generation != self.generation) {
            self.remove(ConditionType::Stalled);
        }
        match cause {
            Some(cause) => self.unready(cause.reason, cause.message.as_str()),
            None => self.unready(Reason::Progressing, format!("waiting for {why}")),
        }
    }

    /// Reports that an attempt has failed for a reason that may pass, and that the next one is after no more
    /// than `pause`.
    ///
    /// The text does not name the time, so that it stays the same while the pauses have the same length:
    /// they double, up to some minutes. Messages that differ in numbers and the order of their words alone
    /// are not written either.
    pub(super) fn retrying(&mut self, cause: &Message, pause: Duration) {
        if pause < TOLD_PAUSE {
            return;
        }
        let separator = if cause.is_long() { "\n" } else { "; " };
        let next = format!(
            "{separator}the next attempt is within {} s",
            pause.as_secs()
        );
        let message = cause.followed_by(&next);
        let told = self.redactor.text(&message, self.reader);
        let before: Vec<Condition> = self.conditions_before();
        let same = before.into_iter().find(|condition| {
            condition.type_ == ConditionType::Ready
                && condition.reason == Reason::Retrying
                && condition.observed_generation == self.generation
                && condition.message.ends_with(&next)
                && is_same(&condition.message, &told)
        });
        match same {
            None => self.unready(Reason::Retrying, message),
            Some(same) => {
                let ready = |condition: &&mut Condition| condition.type_ == ConditionType::Ready;
                match self.conditions.iter_mut().find(ready) {
                    Some(condition) => *condition = same,
                    None => self.conditions.push(same),
                }
            }
        }
    }

    /// Returns whether `Ready` says that something is retried.
    pub(super) fn is_retrying(&self) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|it| it.type_ == ConditionType::Ready && it.reason == Reason::Retrying)
    }

    /// Returns whether `Ready` tells, for this generation, the result of a reconcile.
    pub(super) fn is_reconciled(&self) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|it| {
            it.type_ == ConditionType::Ready
                && it.reason != Reason::Retrying.as_str()
                && it.observed_generation == self.generation
        })
    }

    /// Removes what [`retrying`](Self::retrying) has reported, where nothing else sets the condition.
    pub(super) fn no_longer_retrying(&mut self) {
        self.conditions.retain(|condition| {
            condition.type_ != ConditionType::Ready.as_str()
                || condition.reason != Reason::Retrying.as_str()
        });
    }

    fn conditions_before(&self) -> Vec<Condition> {
        let conditions = self.before.get("conditions").cloned();
        serde_json::from_value(conditions.unwrap_or_default()).unwrap_or_default()
    }

    fn unready(&mut self, reason: impl Into<&'static str>, message: impl Into<Message>) {
        self.set_false(ConditionType::Ready, reason, message);
    }

    /// Returns why the release is not ready, as the status says for this generation.
    pub(crate) fn cause(&self) -> Option<Cause> {
        let ready = self.find(ConditionType::Ready, ConditionStatus::False)?;
        (ready.observed_generation == self.generation)
            .then(|| Cause::of_condition(&ready.reason, &ready.message))?
    }

    /// Leaves the manifest of the release out of the status, and removes one that is there.
    pub(crate) fn leave_out_manifest(&mut self) {
        self.without_manifest = true;
    }
}

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

#[cfg(test)]
mod tests;

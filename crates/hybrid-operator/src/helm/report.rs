//! Reports the outcome of a reconcile. The only module that writes the status and publishes events.
//!
//! A [`Report`] holds facts; [`apply`] turns them into conditions without I/O.

use std::collections::BTreeSet;
use std::time::Duration;

use helm_core::manifest::{ObjectKey, list_items};
use helm_core::release::Revision;
use jiff::Timestamp;
use kube::runtime::events::Event;

use super::access::Access;
use super::act::ActError;
use super::diagnose::{self, Diagnosis};
use super::events::{Notice, Notices};
use super::extend::ReleaseContext;
use super::finalizer;
use super::kind::ActionKind;
use super::memory::{Memory, Pruned};
use super::message::{Message, Reader};
use super::observe::Observation;
use super::setup::Setup;
use super::status::{
    DeployedManifest, HistoryEntry, ReleaseStatus, Status, TOLD_PAUSE, WrittenStatus,
};
use super::subject::Subject;
use crate::action::deploy::StoredRelease;
use crate::action::live::{JobReadiness, Live};
use crate::cluster::ApiError;
use crate::controller::{self, ReconcileError};
use crate::diagnosis::Cause;
use crate::reasons::{EventReason, Reason};
use crate::release::InputsDigest;
use crate::telemetry::causes::with_causes;
use crate::watches::DriftMode;

/// Maximum number of revisions in the status.
const MAX_HISTORY: usize = 5;
/// Maximum size of a manifest in the status, in bytes.
const MAX_MANIFEST: usize = 32 * 1024;
/// Delay before retrying a conflicting status update.
const STATUS_CONFLICT_DELAY: Duration = Duration::from_secs(1);

/// Result of a step.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) outcome: StepOutcome,
    pub(super) next: Next,
    /// Revision that has handled the one-time annotations.
    pub(super) handled: Option<Revision>,
    /// Error message if the reconcile counts as failed.
    pub(super) error: Option<Message>,
    /// Whether the error may pass without a change.
    pub(super) retried: bool,
    /// Error of a post hook of the extensions.
    pub(super) hook_error: Option<Message>,
}

/// Time of the next reconcile of the custom resource if nothing changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// After the reconcile period.
    Period,
    /// After this time.
    After(Duration),
    /// At once: the step has changed the facts.
    Now,
    /// Never: the custom resource is gone.
    Gone,
}

/// State after a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StepOutcome {
    /// A revision is deployed.
    Deployed(Box<Deployed>),
    /// The deployed revision is reconciled, and the status already reports it.
    Unchanged,
    /// An earlier revision is deployed again, but the failed inputs are still desired.
    RolledBack(Box<Deployed>),
    /// An action is in progress.
    Progressing {
        why: String,
        release: Option<Box<ReleaseStatus>>,
    },
    /// An attempt failed.
    Failed(Box<Failure>),
    /// The release failed and is not retried automatically.
    Stalled {
        message: String,
        failure: Option<Box<Failure>>,
    },
    /// Objects were repaired too often.
    Contended { message: String },
    /// The custom resource cannot be reconciled.
    Irreconcilable {
        reason: Reason,
        message: Message,
        /// Action that could not be started, if the chart is the cause.
        kind: Option<ActionKind>,
    },
    /// The custom resource is paused.
    Paused,
    /// Another operator manages the release.
    Contested { message: String },
    /// The chart's tests ran.
    Tested {
        revision: Revision,
        failure: Option<Message>,
    },
    /// Nothing to report.
    Silent,
}

/// Deployed revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Deployed {
    pub(super) kind: ActionKind,
    /// Whether the objects were those of another revision before this step.
    pub(super) is_new: bool,
    pub(super) notes: String,
    pub(super) manifest: Option<String>,
    pub(super) release: ReleaseStatus,
}

impl Deployed {
    pub(super) fn of(kind: ActionKind, stored: &StoredRelease) -> Self {
        Self {
            kind,
            is_new: true,
            notes: stored.release.info.notes.trim().to_owned(),
            manifest: redacted(&stored.release.manifest),
            release: describe(stored),
        }
    }

    /// Returns the message of the condition `Deployed`.
    fn message(&self) -> &str {
        if self.notes.is_empty() {
            self.kind.success_message()
        } else {
            &self.notes
        }
    }
}

/// Failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) kind: ActionKind,
    pub(super) message: Message,
    pub(super) release: ReleaseStatus,
    /// Time of the next attempt; `None` if it is not retried.
    pub(super) next: Option<Timestamp>,
}

impl StepOutcome {
    /// Returns whether a revision has just been deployed, also by a rollback.
    fn deploys(&self) -> bool {
        match self {
            Self::Deployed(_) => true,
            Self::RolledBack(deployed) => deployed.is_new,
            _ => false,
        }
    }

    /// Returns whether the release may be waiting for its objects to become ready.
    fn waits_for_objects(&self) -> bool {
        match self {
            Self::Deployed(_)
            | Self::Unchanged
            | Self::Progressing { .. }
            | Self::Contended { .. }
            | Self::Tested { .. } => true,
            Self::RolledBack(_)
            | Self::Failed(_)
            | Self::Stalled { .. }
            | Self::Irreconcilable { .. }
            | Self::Paused
            | Self::Contested { .. }
            | Self::Silent => false,
        }
    }
}

impl Report {
    pub(super) fn new(outcome: StepOutcome, next: Next) -> Self {
        Self {
            outcome,
            next,
            handled: None,
            error: None,
            retried: false,
            hook_error: None,
        }
    }

    /// Returns a report that nothing is left to do until the next period.
    pub(super) fn settle(outcome: StepOutcome) -> Self {
        Self::new(outcome, Next::Period)
    }

    /// Returns a report without an outcome that requests a new plan at once.
    pub(super) fn replan() -> Self {
        Self::new(StepOutcome::Silent, Next::Now)
    }

    /// Returns a report that the custom resource is gone.
    pub(super) fn gone() -> Self {
        Self::new(StepOutcome::Silent, Next::Gone)
    }

    /// Returns a report that the release waits for something.
    pub(super) fn wait(why: impl Into<String>, delay: Duration) -> Self {
        let outcome = StepOutcome::Progressing {
            why: why.into(),
            release: None,
        };
        Self::new(outcome, Next::After(delay))
    }

    /// Returns whether nothing is left to do.
    pub(super) fn is_settled(&self) -> bool {
        self.next == Next::Period && self.error.is_none()
    }
}

/// Returns the release status of a record.
pub(super) fn describe(stored: &StoredRelease) -> ReleaseStatus {
    let chart = stored.release.chart.as_ref();
    let metadata = chart.and_then(|chart| chart.metadata.as_ref());
    ReleaseStatus {
        name: stored.release.name.to_string(),
        revision: stored.release.revision.0,
        status: stored.release.info.status.to_string(),
        chart_version: metadata.map(|m| format!("{}-{}", m.name, m.version)),
        app_version: metadata
            .map(|m| m.app_version.clone())
            .filter(|version| !version.is_empty()),
        digest: stored.meta.digest.as_ref().map(ToString::to_string),
        baseline: None,
        tested: None,
    }
}

/// State of the objects of a release.
#[derive(Debug, Clone, Default)]
pub(super) struct ObjectsState {
    /// Objects that are not ready, with the reason.
    pub(super) unready: Vec<String>,
    /// Objects that differ from what was applied and are not repaired.
    pub(super) drifted: Vec<String>,
    /// Hash of all objects; `None` if they are unknown.
    pub(super) baseline: Option<String>,
    /// Reason why objects are not ready, if it was looked for and found.
    pub(super) cause: Option<Cause>,
}

impl ObjectsState {
    fn of(live: &Live, mode: DriftMode) -> Self {
        // A change that is not repaired does not make the release unready; a deleted object does.
        let changed = if mode == DriftMode::Repair {
            Vec::new()
        } else {
            live.drifted_states()
        };
        let is_left_alone = |key: &ObjectKey| {
            let mut changed = changed.iter();
            changed.any(|(changed, left)| changed == key && left.is_some())
        };
        let unready = live
            .unready(JobReadiness::Started)
            .into_iter()
            .filter(|(key, _)| !is_left_alone(key))
            .map(|(key, why)| format!("{key}: {why}"))
            .collect();
        let mut drifted = Vec::new();
        if mode == DriftMode::Warn {
            drifted.extend(live.drifted().iter().map(ToString::to_string));
        }
        Self {
            unready,
            drifted,
            baseline: live.complete.then(|| live.aggregate()),
            cause: None,
        }
    }
}

/// Applies the outcome of a step to the conditions. No I/O.
pub(super) fn apply(outcome: &StepOutcome, objects: &ObjectsState, status: &mut Status) {
    match outcome {
        StepOutcome::Deployed(deployed) => {
            deploy(deployed, objects, status);
            reconciled(objects, status);
        }
        StepOutcome::Unchanged => reconciled(objects, status),
        StepOutcome::RolledBack(deployed) => {
            status.restored(deployed.kind.success_reason(), deployed.message());
            drifted(objects, status);
            set_release(&deployed.release, objects, status);
            status.manifest = DeployedManifest::Of(deployed.manifest.clone());
        }
        StepOutcome::Progressing { why, release } => {
            if let Some(release) = release {
                status.release = Some(ReleaseStatus::clone(release));
            }
            status.progressing(why, objects.cause.as_ref());
        }
        StepOutcome::Failed(failure) => fail(failure, status),
        StepOutcome::Stalled { message, failure } => {
            if let Some(failure) = failure {
                let known = status.release.take();
                fail(failure, status);
                // The revision that failed may be older than the one that runs.
                let failed = failure.release.revision;
                status.release = known
                    .filter(|known| known.revision > failed)
                    .or(status.release.take());
            }
            status.stalled(message);
        }
        StepOutcome::Contended { message } => {
            status.drifted(message);
            ready(objects, status);
        }
        StepOutcome::Irreconcilable {
            reason,
            message,
            kind,
        } => {
            match kind {
                Some(kind) => status.failed(kind.error_reason(), message.clone()),
                None => status.unknown(*reason),
            }
            status.no_longer_stalled();
            status.irreconcilable(*reason, message.clone());
        }
        StepOutcome::Paused => {
            status.no_longer_retrying();
            status.paused();
        }
        StepOutcome::Contested { message } => status.contested(message),
        StepOutcome::Tested { revision, failure } => {
            status.tested(failure.as_ref());
            if let Some(release) = &mut status.release {
                release.tested = Some(revision.0);
            }
            reconciled(objects, status);
        }
        StepOutcome::Silent => {}
    }
}

fn deploy(deployed: &Deployed, objects: &ObjectsState, status: &mut Status) {
    status.deployed(deployed.kind.success_reason(), deployed.message());
    set_release(&deployed.release, objects, status);
    status.manifest = DeployedManifest::Of(deployed.manifest.clone());
}

/// Sets the release. Drops the test result of another revision.
fn set_release(release: &ReleaseStatus, objects: &ObjectsState, status: &mut Status) {
    let known = status.release.take().unwrap_or_default();
    let tested = known.tested.filter(|_| known.revision == release.revision);
    if tested.is_none() {
        status.clear_test_result();
    }
    status.release = Some(ReleaseStatus {
        tested,
        baseline: objects.baseline.clone(),
        ..release.clone()
    });
}

/// Sets the conditions of a reconciled custom resource, which may have unrepaired drift.
fn reconciled(objects: &ObjectsState, status: &mut Status) {
    status.reconciled();
    drifted(objects, status);
    ready(objects, status);
}

fn drifted(objects: &ObjectsState, status: &mut Status) {
    if objects.drifted.is_empty() {
        status.clear_drifted();
    } else {
        status.drifted(&objects.drifted.join(", "));
    }
}

fn ready(objects: &ObjectsState, status: &mut Status) {
    status.ready(&objects.unready, objects.cause.as_ref());
    if let Some(release) = &mut status.release {
        release.baseline.clone_from(&objects.baseline);
    }
}

fn fail(failure: &Failure, status: &mut Status) {
    status.release = Some(failure.release.clone());
    status.failed(failure.kind.error_reason(), failure.message.clone());
    let message = match failure.next {
        Some(at) => {
            // Not behind the last line of a log.
            let separator = if failure.message.is_long() {
                "\n"
            } else {
                "; "
            };
            let more = format!("{separator}the next attempt is at {at}");
            failure.message.followed_by(&more)
        }
        None => failure.message.clone(),
    };
    status.irreconcilable(Reason::ReconcileError, message);
}

/// Has the objects examined that a release waits for, and returns why they are not ready, if that is
/// known.
fn cause(
    setup: &Setup,
    access: &Access,
    subject: &Subject,
    memory: &mut Memory,
    status: &Status,
    outcome: &StepOutcome,
) -> Option<Cause> {
    if outcome.waits_for_objects() {
        return diagnose::update(access, subject, memory, status, setup.watch.crash_logs);
    }
    if !matches!(outcome, StepOutcome::Silent) {
        memory.diagnosis = Diagnosis::default();
    }
    None
}

/// The result of a reconcile.
pub(super) struct Attempt {
    pub(super) result: Result<Report, ActError>,
    /// Longest time until the next attempt if this one has failed.
    pub(super) pause: Duration,
}

/// Writes the status if it has changed, publishes events, and returns when to reconcile again.
pub(super) async fn publish(
    setup: &Setup,
    access: &Access,
    subject: &Subject,
    observation: &Observation,
    memory: &mut Memory,
    notices: &Notices,
    attempt: Attempt,
) -> Result<controller::Outcome, ReconcileError> {
    let mut status = subject.status();
    let own = Some(setup.operator.clone());
    let managing_operator = Some(observation.managing_operator.clone());
    if !observation.facts.contested {
        status
            .clear_contested(memory.managing_operator != own && memory.managing_operator.is_some());
    }
    memory.managing_operator = if observation.facts.contested {
        managing_operator
    } else {
        own
    };
    let mut objects = ObjectsState::of(&memory.live, setup.watch.drift_detection.mode);
    // After an error it is not known what the release waits for.
    if let Ok(report) = &attempt.result {
        objects.cause = cause(setup, access, subject, memory, &status, &report.outcome);
    }
    let redactor = memory.redactor.clone();
    status.redact(&redactor, setup.reader());
    let deployed = attempt
        .result
        .as_ref()
        .is_ok_and(|report| report.outcome.deploys());
    let ended = conclude(setup, subject, memory, &objects, &mut status, attempt);
    for remark in memory.live.take_remarks() {
        notices.add(Notice::new(remark.reason, "Reconcile", remark.note));
    }
    let mut written = true;
    let pruned_before = memory.pruned.clone();
    if !matches!(ended, Ok(Next::Gone)) {
        report_annotation_problems(subject, memory, notices);
        if !observation.facts.contested {
            report_what_lasts(access, subject, deployed, memory, notices, &mut status);
        }
        // What is not written is not reported.
        let reported = memory.reported.take();
        let answer = write(access, subject, memory, notices, &status).await;
        written = answer.map_err(|error| {
            let message = Message::from(with_causes(&error)).about(&memory.values(subject));
            redactor.text(&message, Reader::Anybody)
        })?;
        memory.reported = reported.filter(|_| written);
    }
    for notice in notices.take() {
        let note = redactor.clean(&notice.note);
        let notice = Notice { note, ..notice };
        match notice.namespace.clone() {
            Some(namespace) => {
                let events = &access.events;
                events
                    .publish_about_namespace(&namespace, notice.into())
                    .await;
            }
            None => send(setup, access, subject, notice.into()).await,
        }
    }
    memory.redactor.forget_record();
    if !written {
        return Ok(controller::Outcome::After(STATUS_CONFLICT_DELAY));
    }
    if memory.pruned != pruned_before && ended.is_ok() {
        // The condition about it is written at once.
        return Ok(controller::Outcome::After(Duration::ZERO));
    }
    Ok(match ended? {
        Next::Gone => controller::Outcome::Done,
        Next::Now => controller::Outcome::After(Duration::ZERO),
        Next::After(delay) => controller::Outcome::After(delay),
        Next::Period => {
            let asked = subject.annotations.options.reconcile_period;
            let period = Some(asked.unwrap_or(setup.period)).filter(|period| !period.is_zero());
            // An object that no watch shows does not wake the custom resource.
            let read = memory.live.read_in();
            match period.into_iter().chain(read).min() {
                None => controller::Outcome::Done,
                Some(delay) => controller::Outcome::After(delay),
            }
        }
    })
}

/// Sets the conditions that follow from the result of a reconcile. Returns when to reconcile again, or the
/// error as the log shows it. No I/O.
fn conclude(
    setup: &Setup,
    subject: &Subject,
    memory: &Memory,
    objects: &ObjectsState,
    status: &mut Status,
    attempt: Attempt,
) -> Result<Next, ReconcileError> {
    let Attempt { result, pause } = attempt;
    let logged = |message: &Message| memory.redactor.text(message, Reader::Anybody);
    match result {
        Ok(report) => {
            apply(&report.outcome, objects, status);
            if !setup.reporting.manifest {
                status.leave_out_manifest();
            }
            if let Some(revision) = report.handled {
                status.handle(&subject.annotations, revision);
            }
            if let Some(hook_error) = &report.hook_error {
                status.irreconcilable(Reason::ReconcileError, hook_error.clone());
            }
            if let Some(error) = report.error.as_ref().filter(|_| report.retried) {
                status.retrying(error, pause);
            }
            match report.error.or(report.hook_error) {
                Some(error) => Err(logged(&error).into()),
                None => Ok(report.next),
            }
        }
        Err(error) => {
            let message = error.message(&memory.values(subject));
            if error.is_cut_off() {
                status.retrying(&message, pause.max(TOLD_PAUSE));
                // The worker counts it.
                return Err(error.into());
            }
            if error.is_transient() {
                status.retrying(&message, pause);
            } else {
                status.irreconcilable(Reason::ReconcileError, message.clone());
            }
            Err(logged(&message).into())
        }
    }
}

/// Sends an event about the custom resource.
async fn send(setup: &Setup, access: &Access, subject: &Subject, event: Event) {
    let Some(record) = &setup.extensions.recorder else {
        return access.events.publish(&subject.primary, event).await;
    };
    let context = ReleaseContext::new(access, subject);
    if let Err(error) = record(context, event).await {
        let error: &dyn std::error::Error = error.as_ref();
        tracing::warn!(error, "the operator's event recorder failed");
    }
}

/// Writes the status if it has changed. Returns `false` on a conflict.
async fn write(
    access: &Access,
    subject: &Subject,
    memory: &mut Memory,
    notices: &Notices,
    status: &Status,
) -> Result<bool, ApiError> {
    if let Some(patch) = status.patch(&memory.written) {
        let before = std::mem::replace(&mut memory.written, WrittenStatus::unanswered());
        let kept = match finalizer::patch_status(access, subject, &patch).await {
            Err(ApiError::Conflict { .. }) => {
                memory.written = before;
                return Ok(false);
            }
            answer => answer?,
        };
        memory.written = WrittenStatus::new(&patch, kept.as_ref());
        let pruned = WrittenStatus::pruned(&patch, kept.as_ref());
        memory.pruned = if pruned.is_empty() {
            Pruned::None
        } else {
            let why = format!(
                "the CRD of {} has no {}, so the API server drops them; add the fields or x-kubernetes-preserve-unknown-fields",
                subject.primary.gvk.kind,
                pruned.join(", ")
            );
            let pruned = Pruned::Some(why.clone());
            if memory.pruned != pruned {
                notices.add(Notice::new(EventReason::StatusPruned, "Status", why));
            }
            pruned
        };
    }
    for transition in &status.transitions {
        notices.add(Notice {
            warning: transition.warning,
            reason: transition.reason.as_str(),
            action: "Reconcile",
            note: transition.message.clone(),
            namespace: None,
        });
    }
    Ok(true)
}

/// Adds an event for each invalid annotation, once.
fn report_annotation_problems(subject: &Subject, memory: &mut Memory, notices: &Notices) {
    let problems = &subject.annotations.problems;
    if memory.problems != *problems {
        for problem in problems {
            notices.add(Notice::new(
                EventReason::InvalidAnnotation,
                "Read",
                problem.as_str(),
            ));
        }
        memory.problems.clone_from(problems);
    }
}

/// Returns the objects that cannot be watched, with the reason. Adds an event for each new one.
fn report_unwatched(
    access: &Access,
    subject: &Subject,
    memory: &mut Memory,
    notices: &Notices,
) -> BTreeSet<String> {
    let unwatched = memory.live.unwatched().into_iter();
    let found: BTreeSet<String> = unwatched
        .map(|(key, reason)| format!("{key} cannot be watched: {reason}"))
        .chain(access.interests.problem(&subject.key()))
        .chain(subject.interests.problem(&subject.key()))
        .collect();
    for reason in found.difference(&memory.unwatched) {
        notices.add(Notice::new(
            EventReason::WatchRefused,
            "Watch",
            reason.as_str(),
        ));
    }
    memory.unwatched.clone_from(&found);
    found
}

/// Sets the conditions about what lasts whatever the step was: objects that are not watched or not as
/// rendered, a large record, a status that is cut. `deployed` says whether a revision was deployed.
fn report_what_lasts(
    access: &Access,
    subject: &Subject,
    deployed: bool,
    memory: &mut Memory,
    notices: &Notices,
    status: &mut Status,
) {
    status.unwatched(&report_unwatched(access, subject, memory, notices));
    memory.live.wake_when_known(&subject.primary.identity());
    status.history = Some(recent_history(access, subject));
    report_large_record(access, subject, memory, notices, status);
    // After a restart, what was remarked is known from the status alone.
    let remarks = memory.live.reported();
    if deployed || !remarks.is_empty() {
        status.not_as_rendered(remarks);
    } else {
        status.still_not_as_rendered();
    }
    match &memory.pruned {
        Pruned::Unknown => {}
        Pruned::None => status.pruned(None),
        Pruned::Some(why) => status.pruned(Some(why)),
    }
}

/// Reports whether the newest record is stored in parts. Adds an event for each new one.
fn report_large_record(
    access: &Access,
    subject: &Subject,
    memory: &mut Memory,
    notices: &Notices,
    status: &mut Status,
) {
    let history = access.store.history(&subject.namespace, &subject.name);
    let large = history.last().filter(|latest| latest.parts() > 0);
    let why = large.map(|latest| format!(
        "the record of revision {} is too large for one Secret and is stored in {} more, which the helm command does not read; to make it smaller, move large files out of the chart, or split the chart",
        latest.revision,
        latest.parts(),
    ));
    let told = status.large_record(why.as_deref());
    if let Some(why) = why.as_ref().filter(|_| !told && memory.large_record != why) {
        notices.add(Notice::new(
            EventReason::LargeRecord,
            "Record",
            why.as_str(),
        ));
    }
    memory.large_record = why;
}

/// Returns the newest revisions.
fn recent_history(access: &Access, subject: &Subject) -> Vec<HistoryEntry> {
    let history = access.store.history(&subject.namespace, &subject.name);
    let newest = history.iter().rev().take(MAX_HISTORY);
    newest
        .map(|meta| HistoryEntry {
            revision: meta.revision.0,
            status: meta.status.to_string(),
            digest: meta.digest.as_ref().map(InputsDigest::to_string),
        })
        .collect()
}

/// Returns the manifest without the content of Secrets; `None` if it is too large for a status.
fn redacted(manifest: &str) -> Option<String> {
    if manifest.len() > MAX_MANIFEST {
        return None;
    }
    let mut text = String::with_capacity(manifest.len());
    for document in helm_core::manifest::split(manifest) {
        text.push_str("---\n");
        let mut object: serde_json::Value = go_yaml::from_str(document).ok()?;
        if has_secret(&mut object) {
            let source = document.lines().take_while(|line| line.starts_with('#'));
            for line in source {
                text.push_str(line);
                text.push('\n');
            }
            let name = object
                .pointer("/metadata/name")
                .and_then(|name| name.as_str());
            text.push_str("# Secret ");
            text.push_str(name.unwrap_or_default());
            text.push_str(": its content is not shown\n");
        } else {
            text.push_str(document);
        }
    }
    Some(text)
}

/// Returns whether an object is a Secret, or a list with one.
fn has_secret(object: &mut serde_json::Value) -> bool {
    match list_items(object) {
        Some(items) => items.iter_mut().any(has_secret),
        None => object.get("kind").and_then(|kind| kind.as_str()) == Some("Secret"),
    }
}

#[cfg(test)]
mod tests;

//! Publishes the result of a reconcile. The only module that writes the status and publishes events.

use std::collections::BTreeSet;
use std::time::Duration;

use kube_objects::ApiError;
use kube_objects::diagnosis::Cause;
use kube_objects::with_causes;
use operator_runtime::controller::{self, ReconcileError};

use super::access::Access;
use super::act::error::ActError;
use super::diagnose::{self, Diagnosis};
use super::events::{Notice, Notices};
use super::memory::{Memory, Pruned};
use super::message::{Message, Reader};
use super::observe::Observation;
use super::owner::Reporter;
use super::report::{Next, ObjectsState, Report, StepOutcome, apply};
use super::setup::Setup;
use super::status::{HistoryEntry, Status, TOLD_PAUSE, WrittenStatus};
use super::subject::Subject;
use crate::reasons::{EventReason, Reason};
use crate::release::InputsDigest;

/// Maximum number of revisions in the status.
const MAX_HISTORY: usize = 5;
/// Delay before retrying a conflicting status update.
const STATUS_CONFLICT_DELAY: Duration = Duration::from_secs(1);

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
        let (diagnosis, live) = (&mut memory.told.diagnosis, &memory.release.live);
        let logs = setup.watch.crash_logs;
        return diagnose::update(access, &subject.target, diagnosis, live, status, logs);
    }
    if !matches!(outcome, StepOutcome::Silent) {
        memory.told.diagnosis = Diagnosis::default();
    }
    None
}

/// The result of a pass.
pub(super) struct Attempt<'a> {
    pub(super) observation: &'a Observation,
    pub(super) notices: &'a Notices,
    pub(super) result: Result<Report, ActError>,
    /// Longest time until the next attempt if this one has failed.
    pub(super) pause: Duration,
}

/// A pass whose result is published.
pub(super) struct Published {
    pub(super) status: Status,
    pub(super) outcome: Result<controller::Outcome, ReconcileError>,
}

/// Writes the status if it has changed, publishes events, and returns when to reconcile again.
pub(super) async fn publish(
    setup: &Setup,
    access: &Access,
    subject: &Subject,
    reporter: &dyn Reporter,
    memory: &mut Memory,
    attempt: Attempt<'_>,
) -> Published {
    let mut status = subject.status.clone();
    let outcome = report(
        setup,
        access,
        subject,
        reporter,
        memory,
        &mut status,
        attempt,
    )
    .await;
    Published { status, outcome }
}

async fn report(
    setup: &Setup,
    access: &Access,
    subject: &Subject,
    reporter: &dyn Reporter,
    memory: &mut Memory,
    status: &mut Status,
    attempt: Attempt<'_>,
) -> Result<controller::Outcome, ReconcileError> {
    let (observation, notices) = (attempt.observation, attempt.notices);
    let own = Some(setup.operator.clone());
    let managing_operator = Some(observation.managing_operator.clone());
    if !observation.facts.contested {
        status.clear_contested(
            memory.told.managing_operator != own && memory.told.managing_operator.is_some(),
        );
    }
    if !observation.facts.paused {
        status.unpaused();
    }
    memory.told.managing_operator = if observation.facts.contested {
        managing_operator
    } else {
        own
    };
    let mut objects = ObjectsState::of(&memory.release.live, setup.watch.drift_detection.mode);
    // After an error it is not known what the release waits for.
    if let Ok(report) = &attempt.result {
        objects.cause = cause(setup, access, subject, memory, status, &report.outcome);
    }
    let redactor = memory.release.redactor.clone();
    status.redact(&redactor, reporter.reader());
    let deployed = attempt.result.as_ref().is_ok_and(Report::deploys);
    let ended = conclude(setup, subject, memory, &objects, status, attempt);
    for remark in memory.release.live.take_remarks() {
        notices.tell(remark.reason, "Reconcile", remark.note);
    }
    let mut written = true;
    let pruned_before = memory.told.pruned.clone();
    if !matches!(ended, Ok(Next::Gone)) {
        report_annotation_problems(subject, memory, notices);
        if !observation.facts.contested {
            report_what_lasts(access, subject, deployed, memory, notices, status);
        }
        // What is not written is not reported.
        let revision = memory.release.reported.take();
        let answer = write(subject, reporter, memory, notices, status).await;
        written = answer.map_err(|error| {
            let message = Message::from(with_causes(&error))
                .about(&memory.release.values(subject.owner.quoted()));
            redactor.text(&message, Reader::Anybody)
        })?;
        memory.release.reported = revision.filter(|_| written);
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
            None => reporter.send(access, notice.into()).await,
        }
    }
    memory.release.redactor.forget_record();
    if !written {
        return Ok(controller::Outcome::After(STATUS_CONFLICT_DELAY));
    }
    if memory.told.pruned != pruned_before && ended.is_ok() {
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
            // An object that no watch shows does not wake the custom resource. Before the inputs, none is read.
            let read = memory.release.live.read_in();
            let read = read.filter(|_| observation.is_complete);
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
    attempt: Attempt<'_>,
) -> Result<Next, ReconcileError> {
    let Attempt { result, pause, .. } = attempt;
    let logged = |message: &Message| memory.release.redactor.text(message, Reader::Anybody);
    match result {
        Ok(report) => {
            for outcome in report.former.iter().chain([&report.outcome]) {
                apply(outcome, objects, status);
            }
            if !setup.shows_manifest {
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
            let message = error.message(&memory.release.values(subject.owner.quoted()));
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

/// Writes the status if it has changed. Returns `false` on a conflict.
async fn write(
    subject: &Subject,
    reporter: &dyn Reporter,
    memory: &mut Memory,
    notices: &Notices,
    status: &Status,
) -> Result<bool, ApiError> {
    if let Some(patch) = status.patch(&memory.told.written) {
        let before = std::mem::replace(&mut memory.told.written, WrittenStatus::unanswered());
        let kept = match reporter.patch_status(&patch).await {
            Err(ApiError::Conflict { .. }) => {
                memory.told.written = before;
                return Ok(false);
            }
            answer => answer?,
        };
        memory.told.written = WrittenStatus::new(&patch, kept.as_ref());
        let pruned = WrittenStatus::pruned(&patch, kept.as_ref());
        memory.told.pruned = if pruned.is_empty() {
            Pruned::None
        } else {
            let why = format!(
                "the CRD of {} has no {}, so the API server drops them; add the fields or x-kubernetes-preserve-unknown-fields",
                subject.target.primary.gvk.kind,
                pruned.join(", ")
            );
            let pruned = Pruned::Some(why.clone());
            if memory.told.pruned != pruned {
                notices.tell(EventReason::StatusPruned, "Status", why);
            }
            pruned
        };
    }
    for transition in &status.transitions {
        notices.add(Notice {
            warning: transition.warning,
            reason: transition.reason,
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
    if memory.told.problems != *problems {
        for problem in problems {
            notices.tell(EventReason::InvalidAnnotation, "Read", problem.as_str());
        }
        memory.told.problems.clone_from(problems);
    }
}

/// Returns the objects that cannot be watched, with the reason. Adds an event for each new one.
fn report_unwatched(
    access: &Access,
    subject: &Subject,
    memory: &mut Memory,
    notices: &Notices,
) -> BTreeSet<String> {
    let unwatched = memory.release.live.unwatched().into_iter();
    let found: BTreeSet<String> = unwatched
        .map(|(key, reason)| format!("{key} cannot be watched: {reason}"))
        .chain(access.interests.problem(&subject.target.key()))
        .chain(subject.target.interests.problem(&subject.target.key()))
        .collect();
    for reason in found.difference(&memory.told.unwatched) {
        notices.tell(EventReason::WatchRefused, "Watch", reason.as_str());
    }
    memory.told.unwatched.clone_from(&found);
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
    memory
        .release
        .live
        .wake_when_known(&subject.target.primary.identity());
    status.history = Some(recent_history(access, subject));
    report_large_record(access, subject, memory, notices, status);
    // After a restart, what was remarked is known from the status alone.
    let remarks = memory.release.live.reported();
    if deployed || !remarks.is_empty() {
        status.not_as_rendered(remarks);
    } else {
        status.still_not_as_rendered();
    }
    match &memory.told.pruned {
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
    let history = subject.target.history(access);
    let large = history.last().filter(|latest| latest.parts() > 0);
    let why = large.map(|latest| format!(
        "the record of revision {} is too large for one Secret and is stored in {} more, which the helm command does not read; to make it smaller, move large files out of the chart, or split the chart",
        latest.revision,
        latest.parts(),
    ));
    let told = status.large_record(why.as_deref());
    if let Some(why) = why
        .as_ref()
        .filter(|_| !told && memory.told.large_record != why)
    {
        notices.tell(EventReason::LargeRecord, "Record", why.as_str());
    }
    memory.told.large_record = why;
}

/// Returns the newest revisions.
fn recent_history(access: &Access, subject: &Subject) -> Vec<HistoryEntry> {
    let history = subject.target.history(access);
    let newest = history.iter().rev().take(MAX_HISTORY);
    newest
        .map(|meta| HistoryEntry {
            revision: meta.revision.0,
            status: meta.status.to_string(),
            digest: meta.digest.as_ref().map(InputsDigest::to_string),
        })
        .collect()
}

//! Publishes the result of a reconcile. The only module that writes the status and publishes events.

use std::collections::BTreeSet;
use std::time::Duration;

use kube_objects::ApiError;
use kube_objects::diagnosis::Cause;
use kube_objects::with_causes;
use operator_runtime::controller::{self, Key, Priority, ReconcileError};

use helm_release::engine::{
    Diagnosis, EngineError, Message, Next, ObjectsState, Outcome, Reader, Report, Step,
    StepOutcome, Subject, Taken,
};
use helm_release::event::{EventReason, Notice, Notices};
use helm_release::release::InputsDigest;

use super::access::Access;
use super::custom_resource::CustomResource;
use super::events::event;
use super::memory::{Memory, Pruned, Settled};
use super::outputs::{Evaluated, Evaluation, Numbers};
use super::report::apply;
use super::setup::Setup;
use super::status::{HistoryEntry, Status, TOLD_PAUSE, WrittenStatus};
use crate::reasons::Reason;

/// Maximum number of revisions in the status.
const MAX_HISTORY: usize = 5;
/// Delay before retrying a conflicting status update.
const STATUS_CONFLICT_DELAY: Duration = Duration::from_secs(1);

/// Has the objects examined that a release waits for, and returns why they are not ready, if that is
/// known.
fn cause(
    pass: &Pass<'_>,
    memory: &mut Memory,
    status: &Status,
    outcome: &StepOutcome,
) -> Option<Cause> {
    if outcome.waits_for_objects() {
        let Memory { told, release, .. } = memory;
        let logs = pass.setup.release.policy.crash_logs;
        let (access, target) = (pass.access, &pass.subject.target);
        // After a restart, the status has what the process before has found.
        let earlier = status.cause();
        let (key, queue) = (target.key(), access.queue.downgrade());
        let wake = move || {
            if let Some(queue) = queue.upgrade() {
                queue.add(key.clone(), Priority::Background);
            }
        };
        let (rounds, live) = (&access.rounds, &release.live);
        let diagnosis = &mut told.diagnosis;
        return diagnosis.update(rounds, target, live, logs, earlier, wake);
    }
    if !matches!(outcome, StepOutcome::Silent) {
        memory.told.diagnosis = Diagnosis::default();
    }
    None
}

/// A pass over the release of a custom resource.
pub(super) struct Pass<'a> {
    pub(super) setup: &'a Setup,
    pub(super) access: &'a Access,
    pub(super) subject: &'a Subject,
    pub(super) owner: &'a CustomResource,
    /// Longest time until the next attempt if this one fails.
    pub(super) pause: Duration,
}

/// Writes the status if it has changed, publishes events, and returns when to reconcile again.
pub(super) async fn publish(
    pass: &Pass<'_>,
    memory: &mut Memory,
    outcome: Outcome,
) -> Result<controller::Outcome, ReconcileError> {
    let mut status = pass.owner.status().clone();
    let status = &mut status;
    let Outcome {
        observation,
        notices,
        result,
        taken,
    } = outcome;
    let notices = &notices;
    let Pass {
        setup,
        access,
        subject,
        owner,
        ..
    } = pass;
    let own = Some(setup.release.identity.operator.clone());
    let managing_operator = Some(observation.managing_operator.clone());
    if !observation.is_contested() {
        status.clear_contested(
            memory.release.managing_operator != own && memory.release.managing_operator.is_some(),
        );
    }
    if !observation.is_paused() {
        status.unpaused();
    }
    memory.release.managing_operator = if observation.is_contested() {
        managing_operator
    } else {
        own
    };
    let mut objects = ObjectsState::of(
        &memory.release.live,
        setup.release.policy.drift_detection.mode,
    );
    // After an error it is not known what the release waits for.
    if let Ok(report) = &result {
        objects.cause = cause(pass, memory, status, &report.outcome);
    }
    let evaluation = evaluation(pass, memory, &result);
    let outputs = match evaluation {
        Some(evaluation) => Some(evaluation.run(&access.releases.pool).await),
        None => None,
    };
    objects.awaited = outputs.as_ref().and_then(|outputs| outputs.awaited.clone());
    let redactor = memory.release.redactor.clone();
    status.redact(&redactor, Reader::OfResource);
    let deployed = result.as_ref().is_ok_and(Report::deploys);
    let ended = conclude(pass, memory, &objects, status, result);
    for remark in memory.release.live.take_remarks() {
        notices.tell(remark.reason, "Reconcile", remark.note);
    }
    let mut written = true;
    let pruned_before = memory.told.pruned.clone();
    if !matches!(ended, Ok(Next::Gone)) {
        report_annotation_problems(owner, memory, notices);
        if observation.is_contested() {
            owner.set_numbers(Numbers::default());
        } else {
            report_outputs(pass, outputs, status);
            report_what_lasts(pass, deployed, memory, notices, status);
        }
        // What is not written is not reported.
        let revision = memory.release.reported.take();
        let answer = write(pass, memory, notices, status).await;
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
        match &notice.namespace {
            Some(namespace) => {
                let events = &access.events;
                events
                    .publish_about_namespace(namespace, event(&notice))
                    .await;
            }
            None => owner.send(access, event(&notice)).await,
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
    let ended = ended?;
    memory.settled = settled(pass, memory, taken.as_ref(), &ended);
    let is_complete = observation.is_complete();
    Ok(wake(pass, memory, ended, is_complete))
}

/// Returns the reconcile if nothing is left to do but to look again after the period.
fn settled(
    pass: &Pass<'_>,
    memory: &Memory,
    taken: Option<&Taken>,
    next: &Next,
) -> Option<Settled> {
    let is_settled = matches!(next, Next::Period)
        && taken.is_some_and(|taken| matches!(taken.step, Step::Settle))
        && !pass.subject.deleting
        && pass.setup.extensions.are_passive()
        && memory.release.is_at_rest(&pass.access.releases);
    let version = pass.owner.unchanged().filter(|_| is_settled)?;
    let period = period(pass);
    Some(Settled { version, period })
}

/// Returns the time between two reconciles if nothing changes.
fn period(pass: &Pass<'_>) -> Duration {
    let asked = pass.subject.instructions.options.reconcile_period;
    asked.unwrap_or(pass.setup.release.period)
}

/// Returns when to reconcile again. `is_complete` says whether the pass came to the inputs.
fn wake(pass: &Pass<'_>, memory: &Memory, next: Next, is_complete: bool) -> controller::Outcome {
    match next {
        Next::Gone => controller::Outcome::Done,
        Next::Now => controller::Outcome::After(Duration::ZERO),
        Next::After(delay) => controller::Outcome::After(delay),
        Next::Period => {
            let period = Some(period(pass)).filter(|period| !period.is_zero());
            let key = Key::from(&pass.subject.target.primary);
            let resync = period.map(|period| controller::resync_in(&key, period));
            // An object that no watch shows does not wake the custom resource. Before the inputs, none is read.
            let read = memory.release.live.read_in().filter(|_| is_complete);
            match resync.into_iter().chain(read).min() {
                None => controller::Outcome::Done,
                Some(delay) => controller::Outcome::After(delay),
            }
        }
    }
}

/// Returns how to evaluate what the status shows of the release; `None` if there is nothing to say.
fn evaluation(
    pass: &Pass<'_>,
    memory: &Memory,
    result: &Result<Report, EngineError>,
) -> Option<Evaluation> {
    if result.is_err() || pass.subject.deleting {
        return None;
    }
    Evaluation::of(&pass.setup.watch, pass.owner.object(), &memory.release.live)
}

/// Sets the outputs of the release in the status, and the numbers among them for the metrics.
fn report_outputs(pass: &Pass<'_>, outputs: Option<Evaluated>, status: &mut Status) {
    let (declared, owner) = (&pass.setup.watch.outputs, pass.owner);
    if declared.is_empty() {
        status.without_outputs();
        owner.set_numbers(Numbers::default());
    } else if let Some(outputs) = outputs.filter(|outputs| outputs.is_known) {
        owner.set_numbers(outputs.numbers(declared));
        status.output(outputs);
    }
    status.remove_outputs(owner.former_outputs());
}

/// Sets the conditions that follow from the result of a reconcile. Returns when to reconcile again, or the
/// error as the log shows it. No I/O.
fn conclude(
    pass: &Pass<'_>,
    memory: &Memory,
    objects: &ObjectsState,
    status: &mut Status,
    result: Result<Report, EngineError>,
) -> Result<Next, ReconcileError> {
    let Pass {
        setup,
        subject,
        pause,
        ..
    } = pass;
    let pause = *pause;
    let logged = |message: &Message| memory.release.redactor.text(message, Reader::Anybody);
    if !result.as_ref().is_err_and(EngineError::is_cut_off) {
        status.acknowledge(&subject.instructions);
    }
    match result {
        Ok(report) => {
            for outcome in report.former.iter().chain([&report.outcome]) {
                apply(outcome, objects, status);
            }
            if !setup.shows_manifest {
                status.leave_out_manifest();
            }
            if let Some(revision) = report.handled {
                status.handle(&subject.instructions, revision);
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
    pass: &Pass<'_>,
    memory: &mut Memory,
    notices: &Notices,
    status: &Status,
) -> Result<bool, ApiError> {
    if let Some(patch) = status.patch(&memory.told.written) {
        let before = std::mem::replace(&mut memory.told.written, WrittenStatus::unanswered());
        let kept = match pass.owner.patch_status(&patch).await {
            Err(ApiError::Conflict { .. }) => {
                memory.told.written = before;
                return Ok(false);
            }
            answer => answer?,
        };
        memory.told.written = WrittenStatus::new(&patch, kept.as_ref());
        let dropped = WrittenStatus::pruned(&patch, kept.as_ref());
        memory.told.pruned = if dropped.is_empty() {
            Pruned::None
        } else {
            let why = format!(
                "the CRD of {} has no {}, so the API server drops them; add the fields or x-kubernetes-preserve-unknown-fields",
                pass.subject.target.primary.gvk.kind,
                dropped.join(", ")
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
fn report_annotation_problems(owner: &CustomResource, memory: &mut Memory, notices: &Notices) {
    let problems = owner.problems();
    if memory.told.problems != *problems {
        for problem in problems {
            notices.tell(EventReason::InvalidAnnotation, "Read", problem.as_str());
        }
        memory.told.problems = problems.to_vec();
    }
}

/// Returns the objects that cannot be watched, with the reason. Adds an event for each new one.
fn report_unwatched(pass: &Pass<'_>, memory: &mut Memory, notices: &Notices) -> BTreeSet<String> {
    let target = &pass.subject.target;
    let unwatched = memory.release.live.unwatched().into_iter();
    let found: BTreeSet<String> = unwatched
        .map(|(key, reason)| format!("{key} cannot be watched: {reason}"))
        .chain(pass.access.releases.interests.problem(&target.key()))
        .chain(target.interests.problem(&target.key()))
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
    pass: &Pass<'_>,
    deployed: bool,
    memory: &mut Memory,
    notices: &Notices,
    status: &mut Status,
) {
    status.unwatched(&report_unwatched(pass, memory, notices));
    memory
        .release
        .live
        .wake_when_known(&pass.subject.target.primary.identity());
    status.history = Some(recent_history(pass));
    report_large_record(pass, memory, notices, status);
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
    pass: &Pass<'_>,
    memory: &mut Memory,
    notices: &Notices,
    status: &mut Status,
) {
    let history = pass.subject.target.history(&pass.access.releases);
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
fn recent_history(pass: &Pass<'_>) -> Vec<HistoryEntry> {
    let history = pass.subject.target.history(&pass.access.releases);
    let newest = history.iter().rev().take(MAX_HISTORY);
    newest
        .map(|meta| HistoryEntry {
            revision: meta.revision.0,
            status: meta.status.to_string(),
            digest: meta.digest.as_ref().map(InputsDigest::to_string),
        })
        .collect()
}

//! Runs the `test` hooks of the deployed revision. Their outcome only sets a condition.

use helm_core::manifest::HookEvent;
use helm_core::release::{Release, Revision, Time};
use kube_objects::with_causes;

use super::super::kind::ActionKind;
use super::super::memory::KnownRelease;
use super::super::message::{Message, Reader};
use super::super::report::{Next, Report, StepOutcome};
use super::context::{ActContext, POLL_INTERVAL};
use super::error::ActError;
use super::settle;
use crate::action::{ActionError, ActionProgress, Interrupted, run_hooks};

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    revision: Revision,
) -> Result<Report, ActError> {
    let Some(mut stored) = context.load_proven(revision).await? else {
        return Ok(Report::replan());
    };
    let unreported = settle::unreported(context).await?;
    // The status that says so may not be back yet.
    let is_over = has_ended(&stored.release);
    let config = stored.release.config.clone();
    let message = |error: &ActionError| Message::from(with_causes(error)).about_values(&config);
    let failure = {
        let action = context.action(ActionKind::Test, &[]);
        let (live, others) = (&mut memory.live, Interrupted::default());
        let ended = run_hooks(&action, live, &mut stored, &HookEvent::Test, &others).await;
        if ended.is_err() {
            memory.withhold_record(&stored.release, context.subject.owner.quoted());
        }
        match ended {
            Ok(ActionProgress::Done) => None,
            Ok(ActionProgress::Waiting { .. }) => {
                let outcome = unreported.unwrap_or(StepOutcome::Unchanged);
                return Ok(Report::new(outcome, Next::After(POLL_INTERVAL)));
            }
            Err(error @ (ActionError::Hook { .. } | ActionError::Timeout { .. })) => {
                Some(message(&error))
            }
            // The deletion policies of a hook that failed may be refused, too.
            Err(error) if error.is_refusal() => Some(message(&error)),
            Err(error) => return Err(error.into()),
        }
    };
    let tests = stored
        .release
        .hooks
        .iter()
        .filter(|hook| hook.events.contains(&HookEvent::Test));
    let begun = tests.filter_map(|hook| hook.last_run.started_at.as_ref());
    let done = context.done(Some(revision), begun.map(Time::instant).min());
    match &failure {
        _ if is_over => {}
        None => done.log(ActionKind::Test.done()),
        Some(error) => {
            let error = memory.redactor.text(error, Reader::Anybody);
            done.log_failure(&error, "the tests of the release failed");
        }
    }
    Ok(Report {
        former: unreported,
        ..Report::settle(StepOutcome::Tested { revision, failure })
    })
}

/// Returns whether all tests of a release have ended in its revision.
fn has_ended(release: &Release) -> bool {
    let mut tests = release
        .hooks
        .iter()
        .filter(|hook| hook.events.contains(&HookEvent::Test));
    tests.all(|hook| {
        let mut runs = hook.event_runs.iter();
        runs.any(|run| {
            run.event == HookEvent::Test
                && run.revision == release.revision
                && run.execution.completed_at.is_some()
        })
    })
}

//! Shared by the steps that deploy: turns a pending record into a deployed one, and records failures.

use helm_core::release::{Status, Time};
use jiff::Timestamp;
use kube_objects::with_causes;

use super::super::kind::ActionKind;
use super::super::memory::KnownRelease;
use super::super::message::{Message, Reader};
use super::super::plan::retry_delay;
use super::super::report::{Deployed, Next, Report, StepOutcome};
use super::context::{ActContext, waiting};
use super::error::ActError;
use super::obstacle;
use crate::action::StoredRelease;
use crate::action::deploy::{Deployment, deploy};
use crate::action::{ActionError, ActionProgress};
use crate::event::EventReason;
use crate::release::Failures;

/// Deploys a pending record, or continues its deployment. The owner must have the
/// finalizer.
pub(super) async fn continue_deployment(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    mut stored: StoredRelease,
) -> Result<Report, ActError> {
    let kind = ActionKind::of(stored.release.info.status);
    let revision = stored.release.revision;
    let (previous, leftovers) = predecessors(context, &stored).await?;
    for leftover in &leftovers {
        memory.add_leftovers(&leftover.release);
    }
    let recreate = context.setup.recreated(kind);
    let action = context.action(kind, &recreate);
    let policy = context.setup.policy(kind);
    let deployment = Deployment {
        previous,
        leftovers,
        pre: kind.pre(),
        post: kind.post(),
        wait: policy.wait,
        wait_for_jobs: policy.wait_for_jobs,
        description: kind.description(&context.subject.instructions.options),
        stored: &mut stored,
    };
    let ended = Box::pin(deploy(&action, &mut memory.live, deployment)).await;
    if ended.is_ok() {
        memory.repetition.forget();
        for name in context.setup.chart.missing_dependencies() {
            let note = format!(
                "the chart lists the dependency {name}, which is not in its charts/; the rest was deployed"
            );
            memory.live.remark(EventReason::DependencyMissing, note);
        }
    } else {
        memory.withhold_record(&stored.release, context.subject.owner.quoted());
    }
    let mut report = match ended {
        Ok(ActionProgress::Done) => done(context, memory, kind, &stored).await?,
        Ok(ActionProgress::Waiting { why }) => waiting(context, memory, &stored, why),
        // On a transient error the record stays pending and is resumed.
        Err(error) if error.is_transient() && !is_permanent(context, memory, &error) => {
            return Err(error.into());
        }
        Err(error) => failed(context, memory, kind, &mut stored, &error).await?,
    };
    report.handled = Some(revision);
    Ok(report)
}

async fn done(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    kind: ActionKind,
    stored: &StoredRelease,
) -> Result<Report, ActError> {
    memory.leftovers.clear();
    let revision = stored.release.revision;
    let began = stored.release.info.last_deployed.as_ref();
    let done = context.done(Some(revision), began.map(Time::instant));
    done.log(kind.done());
    // An earlier upgrade may have been cut off after it was deployed.
    context.supersede().await?;
    context.prune_history().await;
    let deployed = Box::new(Deployed::of(kind, stored));
    let report = if kind == ActionKind::Rollback {
        let former = context
            .observation
            .history
            .iter()
            .rev()
            .find(|meta| meta.revision < revision);
        let why = match former {
            Some(meta) if meta.status != Status::Failed => {
                format!("another client wrote revision {}", meta.revision)
            }
            _ => "the upgrade failed".to_owned(),
        };
        let note = format!(
            "{why}; revision {revision} restores revision {}",
            stored.release.info.rollback_revision
        );
        let notices = context.notices;
        notices.tell(EventReason::RolledBack, "Rollback", note);
        // The inputs that failed are still desired: the plan decides what follows.
        Report::new(StepOutcome::RolledBack(deployed), Next::Now)
    } else if !context.wants(&stored.meta) {
        // The inputs that are desired now cannot be computed.
        Report::new(StepOutcome::RolledBack(deployed), Next::Now)
    } else if context.setup.policy.test.is_some() || !memory.live.drifted().is_empty() {
        Report::new(StepOutcome::Deployed(deployed), Next::Now)
    } else {
        Report::settle(StepOutcome::Deployed(deployed))
    };
    Ok(report)
}

/// Returns whether an error that may be transient has come back so often that it is permanent.
fn is_permanent(context: &ActContext<'_>, memory: &mut KnownRelease, error: &ActionError) -> bool {
    let now = context.target.now;
    error.is_unexplained() && memory.repetition.failed(&with_causes(error), now)
}

/// Records a failure.
async fn failed(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    kind: ActionKind,
    stored: &mut StoredRelease,
    error: &ActionError,
) -> Result<Report, ActError> {
    let message = Message::from(with_causes(error))
        .about_values(&stored.release.config)
        .about(&memory.values(context.subject.owner.quoted()));
    // Others may read the record as it is, too.
    let told = memory.redactor.text(&message, Reader::OfResource);
    let before = stored.meta.failures.unwrap_or(Failures::NONE);
    let failures = Failures {
        attempts: before.attempts.saturating_add(1),
        hook: matches!(error, ActionError::Hook { .. }),
    };
    let description = format!("{}: {told}", kind.failure_description(&context.target.name));
    stored.release.set_status(Status::Failed, description);
    context.save(stored, Some(failures)).await?;
    memory.reported = Some(stored.release.revision);
    memory.repetition.forget();
    memory.waiting = None;
    memory.obstacles = obstacle::of(context, error).await;
    let delay = retry_delay(failures.attempts);
    Ok(Report::failed(kind, stored, message, Next::After(delay)))
}

/// Returns when a revision that has just failed is retried.
pub(super) fn next_attempt(context: &ActContext<'_>, delay: std::time::Duration) -> Timestamp {
    let second = (context.target.now + delay).as_second();
    Timestamp::from_second(second.saturating_add(1)).unwrap_or(context.target.now)
}

/// Returns the deployed revision and the later ones, which may have left objects. Corrupt records
/// are reported as events and skipped.
async fn predecessors(
    context: &ActContext<'_>,
    stored: &StoredRelease,
) -> Result<(Option<StoredRelease>, Vec<StoredRelease>), ActError> {
    let mut leftovers = Vec::new();
    for meta in context.observation.history.iter().rev() {
        if meta.revision == stored.meta.revision {
            continue;
        }
        let good = matches!(meta.status, Status::Deployed | Status::Superseded);
        let Some(found) = context.load_if_readable(meta).await? else {
            continue;
        };
        if good {
            return Ok((Some(found), leftovers));
        }
        leftovers.push(found);
    }
    Ok((None, leftovers))
}

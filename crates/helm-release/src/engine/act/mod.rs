//! Executes the steps of the plan, one file per step. An executor carries out a step and reports
//! its outcome; it makes no decisions, writes no status and publishes no events.

mod adopt;
mod begin;
mod clean_up;
mod context;
mod convert;
mod crds;
mod deployment;
mod discard;
mod endorse;
pub(crate) mod error;
mod hold;
mod inspect;
mod keep;
mod leave;
mod obstacle;
mod orphan;
mod orphans;
mod record;
mod refuse;
mod remove;
mod repair;
mod report;
mod resume;
mod retry;
mod rollback;
mod settle;
mod stranded;
mod test;
mod unbind;
mod uninstall;
mod wait;

use std::future::ready;

use futures::future::BoxFuture;

use super::desired::Prepared;
use super::kind::ActionKind;
use super::memory::KnownRelease;
use super::message::Message;
use super::owner::{BoxError, ReleaseRef};
use super::plan::Step;
use super::report::{Report, StepOutcome};

pub(super) use context::ActContext;
use error::ActError;
use host::phases;
use kube_objects::with_causes;

/// Executes a step, between the hooks of the owner; those after it run if nothing is left to do. If the step
/// waits for something, what is annotated to be kept does not wait with it.
pub(super) async fn run(
    step: &Step<Prepared>,
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
) -> Result<Report, ActError> {
    let owner = &context.subject.owner;
    if let Some(desired) = context.desired().filter(|_| runs_hooks(step)) {
        owner
            .before(desired.inputs.sources.coalesced.user())
            .await?;
    }
    let executing = phases::span(step.name()).run(execute(step, context, memory));
    let mut report = Box::pin(executing).await?;
    // Garbage collection comes before an uninstall could leave it.
    if matches!(report.outcome, StepOutcome::Progressing { .. }) {
        unbind::unbind_kept(context, memory).await?;
    }
    if report.is_settled()
        && runs_hooks(step)
        && let Some(latest) = context.target.history(context.access).pop()
    {
        let release = ReleaseRef {
            name: context.target.name.clone(),
            namespace: context.target.namespace.clone(),
            revision: latest.revision,
        };
        let after = owner.after(release).await;
        let values = memory.values(context.subject.owner.quoted());
        let message = |error: BoxError| Message::from(with_causes(error.as_ref())).about(&values);
        report.hook_error = after.err().map(message);
    }
    Ok(report)
}

/// Returns whether the owner's hooks run around a step.
fn runs_hooks(step: &Step<Prepared>) -> bool {
    !matches!(
        step,
        Step::Refuse(_)
            | Step::Wait { .. }
            | Step::Uninstall
            | Step::Orphan
            | Step::Leave
            | Step::Forget
    )
}

async fn execute(
    step: &Step<Prepared>,
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
) -> Result<Report, ActError> {
    let executing: BoxFuture<'_, Result<Report, ActError>> = match *step {
        // They are facts for another plan.
        Step::Compute | Step::Render { .. } => Box::pin(ready(Ok(Report::replan()))),
        Step::Settle => Box::pin(settle::run(context, memory)),
        Step::Forget => Box::pin(ready(Ok(Report::gone()))),
        Step::Leave => Box::pin(ready(Ok(leave::run(context, memory)))),
        Step::Hold => Box::pin(hold::run(context)),
        Step::Install(ref next) => Box::pin(begin::run(context, memory, next, ActionKind::Install)),
        Step::Upgrade(ref next) => Box::pin(begin::run(context, memory, next, ActionKind::Upgrade)),
        Step::Rollback { to } => Box::pin(rollback::run(context, memory, to)),
        Step::Resume { revision } => Box::pin(resume::run(context, memory, revision)),
        Step::Report { revision } => Box::pin(report::run(context, memory, revision)),
        Step::Retry { revision } => Box::pin(retry::run(context, memory, revision)),
        Step::Repair { revision } => Box::pin(repair::run(context, memory, revision)),
        Step::Inspect { revision } => Box::pin(inspect::run(context, memory, revision)),
        Step::Unbind => Box::pin(unbind::run(context, memory)),
        Step::Adopt { revision } => Box::pin(adopt::run(context, revision)),
        Step::Convert => Box::pin(convert::run(context)),
        Step::Keep { revision, ref next } => {
            Box::pin(keep::run(context, memory, &next.desired, revision))
        }
        Step::Crds { upgrade } => Box::pin(crds::run(context, memory, upgrade)),
        Step::Test { revision } => Box::pin(test::run(context, memory, revision)),
        Step::CleanUp { revision } => Box::pin(clean_up::run(context, memory, revision)),
        Step::Discard { revision } => Box::pin(discard::run(context, memory, revision)),
        Step::Remove { revision } => Box::pin(remove::run(context, memory, revision)),
        Step::Uninstall => Box::pin(uninstall::run(context, memory)),
        Step::Orphan => Box::pin(orphan::run(context, memory)),
        Step::Wait { delay, until } => Box::pin(wait::run(context, delay, until)),
        Step::Refuse(refusal) => Box::pin(refuse::run(context, memory, refusal)),
    };
    executing.await
}

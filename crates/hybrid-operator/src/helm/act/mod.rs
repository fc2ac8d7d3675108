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
pub(super) mod error;
mod hold;
mod inspect;
mod keep;
mod leave;
mod obstacle;
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

use super::extend::{ExtensionError, ReleaseRef};
use super::kind::ActionKind;
use super::memory::KnownRelease;
use super::message::Message;
use super::plan::Step;
use super::report::{Report, StepOutcome};
use operator_runtime::telemetry::causes::with_causes;
use operator_runtime::telemetry::traces;

pub(super) use context::ActContext;
use context::unplanned;
use error::ActError;

/// Executes a step, between the hooks of the owner; those after it run if nothing is left to do. If the step
/// waits for something, what is annotated to be kept does not wait with it.
pub(super) async fn run(
    step: &Step,
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
) -> Result<Report, ActError> {
    let owner = &context.subject.owner;
    if let Some(desired) = context.desired().filter(|_| runs_hooks(step)) {
        owner.before(desired.inputs.coalesced.user()).await?;
    }
    let executing = traces::span(step.name()).run(execute(step, context, memory));
    let mut report = Box::pin(executing).await?;
    // Garbage collection comes before an uninstall could leave it.
    if matches!(report.outcome, StepOutcome::Progressing { .. }) {
        unbind::run(context, memory).await?;
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
        let message =
            |error: ExtensionError| Message::from(with_causes(error.as_ref())).about(&values);
        report.hook_error = after.err().map(message);
    }
    Ok(report)
}

/// Returns whether the owner's hooks run around a step.
fn runs_hooks(step: &Step) -> bool {
    !matches!(
        step,
        Step::Refuse(_) | Step::Wait { .. } | Step::Uninstall | Step::Leave | Step::Forget
    )
}

async fn execute(
    step: &Step,
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
) -> Result<Report, ActError> {
    match *step {
        Step::Settle => settle::run(context, memory).await,
        Step::Forget => Ok(Report::gone()),
        Step::Leave => Ok(leave::run(context, memory)),
        Step::Hold => hold::run(context).await,
        // Another plan follows these in the same pass.
        Step::Compute | Step::Render { .. } => Ok(unplanned()),
        Step::Install => begin::run(context, memory, ActionKind::Install).await,
        Step::Upgrade => begin::run(context, memory, ActionKind::Upgrade).await,
        Step::Rollback { to } => Box::pin(rollback::run(context, memory, to)).await,
        Step::Resume { revision } => resume::run(context, memory, revision).await,
        Step::Report { revision } => report::run(context, memory, revision).await,
        Step::Retry { revision } => Box::pin(retry::run(context, memory, revision)).await,
        Step::Repair { revision } => repair::run(context, memory, revision).await,
        Step::Inspect { revision } => inspect::run(context, memory, revision).await,
        Step::Unbind => unbind::run(context, memory).await,
        Step::Adopt { revision } => adopt::run(context, revision).await,
        Step::Convert => convert::run(context).await,
        Step::Keep { revision } => keep::run(context, memory, revision).await,
        Step::Crds { upgrade } => crds::run(context, memory, upgrade).await,
        Step::Test { revision } => test::run(context, memory, revision).await,
        Step::CleanUp { revision } => clean_up::run(context, memory, revision).await,
        Step::Discard { revision } => discard::run(context, memory, revision).await,
        Step::Remove { revision } => remove::run(context, memory, revision).await,
        Step::Uninstall => uninstall::run(context, memory).await,
        Step::Wait { delay, until } => wait::run(context, delay, until).await,
        Step::Refuse(refusal) => refuse::run(context, memory, refusal).await,
    }
}

//! Executes the steps of the plan, one file per step. An executor carries out a step and reports
//! its outcome; it makes no decisions, writes no status and publishes no events.

mod adopt;
mod begin;
mod clean_up;
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

use std::sync::Arc;
use std::time::Duration;

use helm_core::release::Revision;
use jiff::Timestamp;

use super::access::Access;
use super::action_context::action_context;
use super::desired::{Content, Desired};
use super::desired_error::DesiredError;
use super::events::Notices;
use super::extend::{ExtensionError, ReleaseRef};
use super::kind::ActionKind;
use super::memory::KnownRelease;
use super::message::Message;
use super::observe::Observation;
use super::plan::Step;
use super::report::{Next, Report, StepOutcome, describe};
use super::setup::Setup;
use super::subject::Subject;
use super::target::Target;
use crate::action::ActionContext;
use crate::action::deploy::StoredRelease;
use crate::action::log::{Details, Done};
use operator_runtime::telemetry::causes::with_causes;
use operator_runtime::telemetry::traces;

use error::ActError;

/// Shortest delay before a waiting step runs again. Covers what is not watched; watches trigger earlier.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Longest one: it is an eighth of the time waited.
const LONGEST_POLL_INTERVAL: Duration = Duration::from_secs(30);

/// Returns the report of a step that is never planned without what it lacks. It is planned again after a pause, so
/// that a defect of the plan keeps no processor busy.
fn unplanned() -> Report {
    Report::wait("another plan", POLL_INTERVAL)
}

/// Returns a report that an action waits for something.
fn waiting(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    stored: &StoredRelease,
    why: String,
) -> Report {
    let now = context.target.now;
    let awaited = (stored.release.revision, why.clone());
    let known = memory.waiting.take().filter(|(known, _)| *known == awaited);
    let since = known.map_or(now, |(_, since)| since);
    memory.waiting = Some((awaited, since));
    let waited = now.duration_since(since).unsigned_abs();
    let release = Some(Box::new(describe(stored)));
    Report::new(
        StepOutcome::Progressing { why, release },
        Next::After((waited / 8).clamp(POLL_INTERVAL, LONGEST_POLL_INTERVAL)),
    )
}

/// Everything a step needs.
pub(super) struct ActContext<'a> {
    pub(super) setup: &'a Arc<Setup>,
    pub(super) access: &'a Access,
    pub(super) subject: &'a Subject,
    pub(super) target: &'a Target,
    pub(super) observation: &'a Observation,
    /// Desired state, or why it cannot be computed; `None` if the step does not depend on it.
    pub(super) desired: Option<&'a Result<Desired, DesiredError>>,
    /// Content of the next revision, if it was rendered.
    pub(super) content: Option<&'a Content>,
    pub(super) notices: &'a Notices,
}

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

impl<'a> ActContext<'a> {
    /// Returns the desired state if it is known.
    fn desired(&self) -> Option<&'a Desired> {
        self.desired.and_then(|desired| desired.as_ref().ok())
    }

    /// Returns what the log says of an action that is done.
    fn done(&self, revision: Option<Revision>, began: Option<Timestamp>) -> Done<'a> {
        Done {
            primary: &self.target.primary,
            release: &self.target.name,
            revision,
            began,
            details: Details::default(),
        }
    }

    /// Returns the context of a Helm action.
    fn action<'c>(&'c self, kind: ActionKind, recreate: &'c [String]) -> ActionContext<'c> {
        action_context(self.setup, self.access, self.subject, kind, recreate)
    }
}

//! Nothing left to do: supersedes records that a crash left deployed, and reports the deployed
//! revision.

use helm_core::release::Status;

use super::super::kind::ActionKind;
use super::super::memory::KnownRelease;
use super::super::report::{Deployed, Report, StepOutcome};
use super::context::ActContext;
use super::error::ActError;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
) -> Result<Report, ActError> {
    memory.live.forget_running_hooks();
    let unreported = unreported(context).await?;
    Ok(Report::settle(unreported.unwrap_or(StepOutcome::Unchanged)))
}

/// Supersedes records that a crash left deployed. Returns the outcome of the step that deployed the newest revision,
/// unless the status reports it.
pub(super) async fn unreported(context: &ActContext<'_>) -> Result<Option<StepOutcome>, ActError> {
    context.supersede().await?;
    let history = &context.observation.history;
    let Some(latest) = history.last().filter(|it| it.status == Status::Deployed) else {
        return Ok(None);
    };
    let reported = &context.subject.reported;
    let is_wanted = context.wants(latest);
    if reported.is_deployment_of(latest) || !is_wanted && reported.is_about(latest) {
        return Ok(None);
    }
    let stored = context.load(latest.revision).await?;
    let kind = ActionKind::of_deployed(latest.revision);
    let deployed = Box::new(Deployed::of(kind, &stored));
    Ok(Some(if is_wanted {
        StepOutcome::Deployed(deployed)
    } else {
        StepOutcome::RolledBack(deployed)
    }))
}

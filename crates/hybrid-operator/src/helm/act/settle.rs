//! Nothing left to do: supersedes records that a crash left deployed, and reports the deployed
//! revision.

use super::super::kind::ActionKind;
use super::super::memory::KnownRelease;
use super::super::report::{Deployed, Report, StepOutcome};
use super::{ActContext, ActError};

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
) -> Result<Report, ActError> {
    context.supersede().await?;
    memory.live.forget_running_hooks();
    let Some(latest) = context.observation.history.last() else {
        return Ok(Report::settle(StepOutcome::Unchanged));
    };
    if context.subject.status().reports_deployed(latest.revision) {
        return Ok(Report::settle(StepOutcome::Unchanged));
    }
    let stored = context.load(latest.revision).await?;
    let kind = ActionKind::of_deployed(latest.revision);
    let deployed = Box::new(Deployed::of(kind, &stored));
    Ok(Report::settle(StepOutcome::Deployed(deployed)))
}

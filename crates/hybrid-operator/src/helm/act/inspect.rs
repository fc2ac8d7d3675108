//! Compares the objects of the deployed revision with its record by dry-run applies. Used where
//! drift is not repaired; changes nothing.

use helm_core::release::Revision;

use super::super::kind::ActionKind;
use super::super::memory::Memory;
use super::super::report::{Deployed, Next, Report, StepOutcome};
use super::{ActContext, ActError};
use crate::action::repair::repair;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut Memory,
    revision: Revision,
) -> Result<Report, ActError> {
    context.supersede().await?;
    let Some(stored) = context.load_proven(revision).await? else {
        return Ok(Report::replan());
    };
    let mut action = context.action(ActionKind::Upgrade, &[]);
    action.policy.dry_run = true;
    memory.live.complete = false;
    let inspected = repair(&action, &mut memory.live, &stored.release, &|_| true).await;
    if inspected.is_err() {
        memory.withhold_record(&stored.release, context.subject);
    }
    inspected?;
    let deployed = || Deployed::of(ActionKind::of_deployed(revision), &stored);
    if !context.wants(&stored) {
        // Plan again.
        return Ok(Report::new(StepOutcome::RolledBack(deployed()), Next::Now));
    }
    let outcome = if context.subject.status().reports_deployed(revision) {
        StepOutcome::Unchanged
    } else {
        StepOutcome::Deployed(deployed())
    };
    Ok(Report::settle(outcome))
}

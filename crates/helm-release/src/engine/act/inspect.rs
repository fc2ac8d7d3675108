//! Compares the objects of the deployed revision with its record by dry-run applies. Used where
//! drift is not repaired; changes nothing.

use helm_core::release::Revision;

use super::super::kind::ActionKind;
use super::super::memory::KnownRelease;
use super::super::report::{Next, Report};
use super::context::ActContext;
use super::error::ActError;
use super::repair;
use crate::action;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    revision: Revision,
) -> Result<Report, ActError> {
    context.supersede().await?;
    let Some(stored) = context.load_proven(revision).await? else {
        return Ok(Report::replan());
    };
    let mut action = context.action(ActionKind::Upgrade, &[]);
    action.policy.dry_run = true;
    memory.live.complete = false;
    let returns = memory.live.is_later_than(revision.0);
    action::repair::repair(&action, &mut memory.live, &stored.release, &|_| true)
        .await
        .inspect_err(|_| memory.withhold_record(&stored.release, context.subject.owner.quoted()))?;
    Ok(repair::report(context, &stored, returns, Next::Period))
}

//! Compares the objects of the deployed revision with its record without changing anything, where
//! drift is not to be repaired: applies that are only tried answer how the objects would be.

use helm_core::release::Revision;

use super::super::kind::Kind;
use super::super::memory::Memory;
use super::super::report::{Deployed, Outcome, Report};
use super::{ActContext, ActError};
use crate::action::repair::repair;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut Memory,
    revision: Revision,
) -> Result<Report, ActError> {
    context.supersede().await?;
    let stored = context.load(revision).await?;
    let mut action = context.action(Kind::Upgrade, &[]);
    action.policy.dry_run = true;
    memory.live.complete = false;
    repair(&action, &mut memory.live, &stored.release, &|_| true).await?;
    let outcome = if context.subject.status().says_deployed(revision) {
        Outcome::AsBefore
    } else {
        Outcome::Deployed(Deployed::of(Kind::that_deployed(revision), &stored))
    };
    Ok(Report::settle(outcome))
}

//! Continues an interrupted action from its record. A new render would have other random values.

use helm_core::release::Revision;

use super::super::memory::KnownRelease;
use super::super::report::Report;
use super::context::{ActContext, POLL_INTERVAL};
use super::deployment;
use super::error::ActError;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    revision: Revision,
) -> Result<Report, ActError> {
    if !context.hold().await? {
        return Ok(Report::gone());
    }
    if memory.live.has_missing() && !is_wanted(context).await? {
        let change = "the change of the custom resource";
        return Ok(Report::wait(change, POLL_INTERVAL));
    }
    let Some(stored) = context.load_proven(revision).await? else {
        return Ok(Report::replan());
    };
    deployment::continue_deployment(context, memory, stored).await
}

/// Returns whether the owner is there, and is not being deleted. The watch of an owner may not show yet that
/// it is being deleted in the foreground, so that garbage collection deletes each object again.
async fn is_wanted(context: &ActContext<'_>) -> Result<bool, ActError> {
    let present = context.subject.owner.read().await?;
    Ok(present.is_some_and(|present| present.deleted.is_none()))
}

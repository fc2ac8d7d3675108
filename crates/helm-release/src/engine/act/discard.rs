//! Removes the objects that only this failed revision has, and then its record, so that failed
//! revisions do not accumulate.

use helm_core::release::{Revision, Status};

use super::super::kind::ActionKind;
use super::super::memory::KnownRelease;
use super::super::report::Report;
use super::context::ActContext;
use super::error::ActError;
use crate::action::prune_leftover;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    revision: Revision,
) -> Result<Report, ActError> {
    let history = &context.observation.history;
    let meta = context.record(revision)?;
    if let Some(leftover) = context.load_if_readable(meta).await? {
        // Keep the objects of the deployed revision and of all later ones.
        let deployed = history
            .iter()
            .rposition(|meta| matches!(meta.status, Status::Deployed | Status::Superseded));
        let mut kept = Vec::new();
        for other in history.get(deployed.unwrap_or(0)..).unwrap_or_default() {
            if other.revision != revision
                && let Some(other) = context.load_if_readable(other).await?
            {
                kept.push(other);
            }
        }
        let action = context.action(ActionKind::Upgrade, &[]);
        prune_leftover(&action, &mut memory.live, &leftover, &kept).await?;
    }
    context.access.store.delete(meta).await?;
    Ok(Report::replan())
}

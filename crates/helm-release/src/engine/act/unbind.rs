//! Removes the owner references of objects that somebody has annotated to be kept.

use super::super::memory::KnownRelease;
use super::super::report::Report;
use super::context::ActContext;
use super::error::ActError;
use crate::action::bound::unbind;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
) -> Result<Report, ActError> {
    let target = context.target;
    unbind(&target.cluster, &mut memory.live, &target.primary).await?;
    Ok(Report::replan())
}

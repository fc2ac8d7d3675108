//! What was begun is continued from its record: never from a new render, whose random values would
//! differ.

use helm_core::release::Revision;

use super::super::memory::Memory;
use super::super::report::Report;
use super::{ActContext, ActError, deployment};

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut Memory,
    revision: Revision,
) -> Result<Report, ActError> {
    if !context.add_finalizer().await? {
        return Ok(Report::gone());
    }
    let stored = context.load(revision).await?;
    deployment::go_on(context, memory, stored).await
}

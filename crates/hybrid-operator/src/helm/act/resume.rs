//! Continues an interrupted action from its record. A new render would have other random values.

use helm_core::release::Revision;

use super::super::memory::KnownRelease;
use super::super::report::Report;
use super::{ActContext, ActError, deployment};

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    revision: Revision,
) -> Result<Report, ActError> {
    if !context.add_finalizer().await? {
        return Ok(Report::gone());
    }
    let Some(stored) = context.load_proven(revision).await? else {
        return Ok(Report::replan());
    };
    deployment::continue_deployment(context, memory, stored).await
}

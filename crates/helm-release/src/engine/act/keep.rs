//! Treats the desired inputs as those of the deployed record because they would render equivalent
//! objects. No new revision is written: where releases look each other up, each write would trigger
//! the next one.

use helm_core::release::Revision;

use super::super::desired::Desired;
use super::super::memory::KnownRelease;
use super::super::report::Report;
use super::context::ActContext;
use super::error::ActError;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    desired: &Desired,
    revision: Revision,
) -> Result<Report, ActError> {
    let meta = context.record(revision)?;
    let wanted = desired.inputs.digest.clone();
    if let Some(deployed) = &meta.digest {
        memory.equal = Some((wanted, deployed.clone()));
    } else {
        // The record was written by someone else.
        let tags = context.tags(Some(wanted), None, false);
        context.access.store.adopt(meta, &tags, None).await?;
    }
    Ok(Report::replan())
}

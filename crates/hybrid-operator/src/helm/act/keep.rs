//! The wanted inputs count as those of a record that they would change nothing of. Nothing is
//! written: where releases look each other up, each write would be the others' next change.

use helm_core::release::Revision;

use super::super::memory::Memory;
use super::super::report::Report;
use super::{ActContext, ActError};

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut Memory,
    revision: Revision,
) -> Result<Report, ActError> {
    let wanted = context.wanted("keep")?.inputs.digest.clone();
    let mut history = context.observation.history.iter();
    let meta = history
        .find(|meta| meta.revision == revision)
        .ok_or(ActError::Lacks("keep", "its record"))?;
    if let Some(deployed) = &meta.digest {
        memory.equal = Some((wanted, deployed.clone()));
    } else {
        // Somebody else wrote the record.
        let tags = context.tags(Some(wanted), None);
        context.access.store.adopt(meta, &tags).await?;
    }
    Ok(Report::go_on())
}

//! Converts a release that helm-operator-plugins stored in chunks to Helm's format. The newest
//! deployed record is stored as the next revision because the index of the chunks occupies the name
//! of its own revision. Garbage collection deletes the chunks together with the owner.

use helm_core::release::Status;

use super::super::report::Report;
use super::adopt;
use super::context::ActContext;
use super::error::ActError;
use crate::release::RecordMeta;

pub(super) async fn run(context: &ActContext<'_>) -> Result<Report, ActError> {
    convert(context).await?;
    Ok(Report::replan())
}

/// Writes the converted record. Returns whether a chunked release existed.
pub(super) async fn convert(context: &ActContext<'_>) -> Result<bool, ActError> {
    let (target, store) = (context.target, &context.access.store);
    let chunked = store.chunked(&target.namespace, &target.name).await?;
    let Some(newest) = chunked.last() else {
        return Ok(false);
    };
    let is_deployed = |meta: &&RecordMeta| meta.status == Status::Deployed;
    let meta = chunked.iter().rev().find(is_deployed).unwrap_or(newest);
    let mut record = store.load(meta).await?;
    record.revision = newest.revision.next();
    let digest = adopt::digest_of(context, &record).await?;
    let proven = digest.is_some();
    context.create(record, digest, proven).await?;
    Ok(true)
}

//! Deploys a new revision with the content of an earlier one.

use helm_core::manifest::HookExecution;
use helm_core::release::{Revision, Time};

use super::super::kind::ActionKind;
use super::super::memory::KnownRelease;
use super::super::report::Report;
use super::context::ActContext;
use super::deployment;
use super::error::ActError;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    to: Revision,
) -> Result<Report, ActError> {
    if !context.hold().await? {
        return Ok(Report::gone());
    }
    let Some(good) = context.load_proven(to).await? else {
        return Ok(Report::replan());
    };
    context.abandon_pending(memory).await?;
    let mut record = good.release;
    record.revision = context.next_revision();
    record.info.last_deployed = Some(Time::utc(context.target.now));
    record.info.rollback_revision = to;
    for hook in &mut record.hooks {
        hook.last_run = HookExecution::default();
    }
    context.subject.asked().label(&mut record.labels);
    record.set_status(ActionKind::Rollback.pending(), format!("Rollback to {to}"));
    let stored = context.create(record, good.meta.digest, true).await?;
    memory.live.prepare(stored.release.revision.0);
    deployment::continue_deployment(context, memory, stored).await
}

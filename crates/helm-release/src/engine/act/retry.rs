//! Retries a failed revision from its record, without a new revision or new random values.

use helm_core::manifest::{HookExecution, HookPhase};
use helm_core::release::{Revision, Time};

use super::super::memory::{KnownRelease, Obstacles};
use super::super::report::Report;
use super::context::ActContext;
use super::deployment;
use super::error::ActError;
use crate::release::Failures;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    revision: Revision,
) -> Result<Report, ActError> {
    if !context.hold().await? {
        return Ok(Report::gone());
    }
    let Some(mut stored) = context.load_proven(revision).await? else {
        return Ok(Report::replan());
    };
    let kind = context.kind_of(&stored);
    stored
        .release
        .set_status(kind.pending(), kind.initial_description());
    stored.release.info.last_deployed = Some(Time::utc(context.target.now));
    // A retry does not run hooks that succeeded.
    for hook in &mut stored.release.hooks {
        if hook.last_run.phase == HookPhase::Failed {
            hook.last_run = HookExecution::default();
        }
    }
    let failures = if context.subject.is_reset(&context.observation.history) {
        context.subject.asked().label(&mut stored.release.labels);
        Some(Failures::NONE)
    } else {
        stored.meta.failures
    };
    context.save(&mut stored, failures).await?;
    memory.live.complete = false;
    memory.obstacles = Obstacles::default();
    deployment::continue_deployment(context, memory, stored).await
}

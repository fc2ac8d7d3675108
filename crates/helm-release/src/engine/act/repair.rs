//! Applies changed or deleted objects again, from the record.

use helm_core::release::Revision;

use super::super::kind::ActionKind;
use super::super::memory::KnownRelease;
use super::super::report::{Deployed, Next, Report, StepOutcome};
use super::context::ActContext;
use super::error::ActError;
use crate::action::StoredRelease;
use crate::action::repair::repair;
use crate::event::EventReason;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    revision: Revision,
) -> Result<Report, ActError> {
    context.supersede().await?;
    let now = context.target.now;
    let known = memory.live.revision == Some(revision.0) && memory.live.complete;
    let returns = memory.live.is_later_than(revision.0);
    let mut due = Vec::new();
    if known {
        for (key, state) in memory.live.drifted_states() {
            if !memory.repairs.exhausted(&key, state, now) {
                due.push((key, state));
            }
        }
    }
    let Some(stored) = context.load_proven(revision).await? else {
        return Ok(Report::replan());
    };
    let began = host::timestamp();
    let action = context.action(ActionKind::Upgrade, &[]);
    let repaired = repair(&action, &mut memory.live, &stored.release, &|key| {
        due.iter().any(|(due, _)| due == key)
    })
    .await
    .inspect_err(|_| memory.withhold_record(&stored.release, context.subject.owner.quoted()))?;
    // A repair that fails is tried again without a limit: nobody has undone it.
    for (key, state) in &due {
        memory.repairs.record(key, *state, now);
    }
    if known && !repaired.applied.is_empty() {
        let names: Vec<String> = repaired.applied.iter().map(ToString::to_string).collect();
        let names = names.join(", ");
        let mut done = context.done(Some(revision), Some(began));
        done.details.objects = Some(&names);
        done.log("repaired drift");
        let note = format!("reapplied drifted objects: {names}");
        let notices = context.notices;
        notices.tell(EventReason::DriftRepaired, "Repair", note);
    }
    // Objects that drifted during the repair are planned again; the plan decides which are left alone. A process that
    // did not know the objects has looked at nothing else before.
    let next = if known && repaired.drifted.is_empty() {
        Next::Period
    } else {
        Next::Now
    };
    Ok(report(context, &stored, returns, next))
}

/// Reports a deployed revision whose objects agree with its record. `returns` says whether they were those of a later
/// one.
pub(super) fn report(
    context: &ActContext<'_>,
    stored: &StoredRelease,
    returns: bool,
    next: Next,
) -> Report {
    let revision = stored.release.revision;
    let deployed = Box::new(Deployed {
        is_new: returns,
        ..Deployed::of(ActionKind::of_deployed(revision), stored)
    });
    if !context.wants(&stored.meta) {
        // Plan again.
        Report::new(StepOutcome::RolledBack(deployed), Next::Now)
    } else if context.subject.reported.is_deployment_of(&stored.meta) && !returns {
        Report::new(StepOutcome::Unchanged, next)
    } else {
        Report::new(StepOutcome::Deployed(deployed), next)
    }
}

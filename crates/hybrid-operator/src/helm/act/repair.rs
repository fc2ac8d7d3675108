//! Applies changed or deleted objects again, from the record.

use helm_core::release::Revision;

use super::super::events::Notice;
use super::super::kind::ActionKind;
use super::super::memory::Memory;
use super::super::report::{Deployed, Next, Report, StepOutcome};
use super::{ActContext, ActError};
use crate::action::log::{Details, Done};
use crate::action::repair::repair;
use crate::machine;
use crate::reasons::EventReason;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut Memory,
    revision: Revision,
) -> Result<Report, ActError> {
    context.supersede().await?;
    let now = context.subject.now;
    let known = memory.live.revision == Some(revision.0) && memory.live.complete;
    // Others have deleted the record of a later one.
    let returns = memory.live.revision > Some(revision.0);
    let mut due = Vec::new();
    if known {
        for (key, state) in memory.live.drifted_states() {
            if !memory.repairs.exhausted(&key, state, now) {
                memory.repairs.record(&key, state, now);
                due.push(key);
            }
        }
    }
    let Some(stored) = context.load_proven(revision).await? else {
        return Ok(Report::replan());
    };
    let began = machine::timestamp();
    let action = context.action(ActionKind::Upgrade, &[]);
    let repaired = repair(&action, &mut memory.live, &stored.release, &|key| {
        due.contains(key)
    })
    .await;
    if repaired.is_err() {
        memory.withhold_record(&stored.release, context.subject);
    }
    let repaired = repaired?;
    if known && !repaired.applied.is_empty() {
        let names: Vec<String> = repaired.applied.iter().map(ToString::to_string).collect();
        let names = names.join(", ");
        Done {
            primary: &context.subject.primary,
            release: &stored.release.name,
            revision: Some(revision),
            began: Some(began),
            details: Details {
                objects: Some(&names),
                ..Details::default()
            },
        }
        .log("repaired drift");
        let note = format!("reapplied drifted objects: {names}");
        context
            .notices
            .add(Notice::new(EventReason::DriftRepaired, "Repair", note));
    }
    let deployed = || Deployed::of(ActionKind::of_deployed(revision), &stored);
    if !context.wants(&stored) {
        // Plan again.
        return Ok(Report::new(StepOutcome::RolledBack(deployed()), Next::Now));
    }
    let outcome = if context.subject.status().reports_deployed(revision) && !returns {
        StepOutcome::Unchanged
    } else {
        StepOutcome::Deployed(deployed())
    };
    // Objects that drifted during the repair are planned again; the plan decides which are left
    // alone.
    Ok(if repaired.drifted.is_empty() {
        Report::settle(outcome)
    } else {
        Report::new(outcome, Next::Now)
    })
}

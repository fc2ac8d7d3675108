//! Objects that somebody changed or deleted are applied again, from the record.

use helm_core::release::Revision;

use super::super::events::Notice;
use super::super::kind::Kind;
use super::super::memory::Memory;
use super::super::report::{Deployed, Next, Outcome, Report};
use super::{ActContext, ActError};
use crate::action::repair::repair;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut Memory,
    revision: Revision,
) -> Result<Report, ActError> {
    context.supersede().await?;
    let now = context.subject.now;
    let known = memory.live.revision == Some(revision.0) && memory.live.complete;
    let mut due = Vec::new();
    if known {
        for (key, state) in memory.live.drifted_states() {
            if !memory.repairs.exhausted(&key, state, now) {
                memory.repairs.record(&key, state, now);
                due.push(key);
            }
        }
    }
    let stored = context.load(revision).await?;
    let action = context.action(Kind::Upgrade, &[]);
    let repaired = repair(&action, &mut memory.live, &stored.release, &|key| {
        due.contains(key)
    })
    .await?;
    if known && !repaired.applied.is_empty() {
        let names: Vec<String> = repaired.applied.iter().map(ToString::to_string).collect();
        let names = names.join(", ");
        tracing::info!(release = %stored.release.name, revision = revision.0, objects = names, "drift repaired");
        let note = format!("applied again what was changed: {names}");
        context
            .notices
            .add(Notice::normal("DriftRepaired", "Repair", note));
    }
    let deployed = || Deployed::of(Kind::that_deployed(revision), &stored);
    let desired = context.desired().map(|desired| &desired.inputs.digest);
    if desired.is_some() && stored.meta.digest.as_ref() != desired {
        // Other inputs are wanted: the plan goes on from here.
        return Ok(Report::new(Outcome::RolledBack(deployed()), Next::Now));
    }
    let outcome = if context.subject.status().says_deployed(revision) {
        Outcome::AsBefore
    } else {
        Outcome::Deployed(deployed())
    };
    // What changed meanwhile is looked at again; what is left alone on purpose is the plan's affair.
    Ok(if repaired.drifted.is_empty() {
        Report::settle(outcome)
    } else {
        Report::new(outcome, Next::Now)
    })
}

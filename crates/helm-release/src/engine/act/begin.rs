//! Begins a revision with the desired inputs: the first one, one after the release was uninstalled, or an upgrade.
//! Writes its pending record, and deploys it.

use helm_core::manifest::HookExecution;
use helm_core::release::{ApplyMethod, Release as Record, Time};

use super::super::desired::{Content, Prepared};
use super::super::kind::ActionKind;
use super::super::memory::{KnownRelease, Obstacles};
use super::super::report::Report;
use super::context::ActContext;
use super::deployment;
use super::error::ActError;
use crate::event::EventReason;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    next: &Prepared,
    kind: ActionKind,
) -> Result<Report, ActError> {
    if !context.hold().await? {
        return Ok(Report::gone());
    }
    let desired = &next.desired;
    let mut record = record_of(context, &next.content);
    context.abandon_pending(memory).await?;
    record.config = desired.inputs.sources.coalesced.user().clone();
    record.values_from.clone_from(&desired.inputs.kept);
    context.subject.asked().label(&mut record.labels);
    record.apply_method = Some(ApplyMethod::ServerSide);
    let now = Time::utc(context.target.now);
    record.info.first_deployed.get_or_insert(now);
    record.info.last_deployed = Some(now);
    record.set_status(kind.pending(), kind.initial_description());
    let digest = desired.inputs.digest.clone();
    let stored = context.create(record, Some(digest), true).await?;
    memory.equal = None;
    memory.obstacles = Obstacles::default();
    memory.live.prepare(stored.release.revision.0);
    if let Some(note) = &desired.inputs.note {
        let notices = context.notices;
        notices.tell(EventReason::ValueOverridden, "Values", note.as_str());
    }
    deployment::continue_deployment(context, memory, stored).await
}

/// Returns the record of a new revision with this content.
fn record_of(context: &ActContext<'_>, rendered: &Content) -> Record {
    let target = context.target;
    let revision = context.next_revision();
    let mut record = Record::new(target.name.clone(), target.namespace.as_str(), revision);
    record.chart = Some(context.setup.chart.chart().to_record());
    match rendered {
        Content::Rendered(rendered) => {
            rendered.manifest().clone_into(&mut record.manifest);
            record.hooks = rendered.hooks().to_vec();
            rendered.notes().clone_into(&mut record.info.notes);
        }
        Content::Recorded(known) => {
            record.manifest.clone_from(&known.manifest);
            record.hooks.clone_from(&known.hooks);
            record.info.notes.clone_from(&known.info.notes);
            record
                .info
                .first_deployed
                .clone_from(&known.info.first_deployed);
            for hook in &mut record.hooks {
                hook.last_run = HookExecution::default();
            }
        }
    }
    record
}

//! Uninstalls a release whose upgrade failed, as `upgrade.remediation.strategy: uninstall` asks for. The
//! next plan installs it again, with the inputs that failed.
//!
//! This uninstall is like that of a deleted owner: with hooks, and without what is to be kept.
//! Every object is awaited, so that none is applied while it is being deleted. The record keeps its count
//! of failures until the end, so that a crash in between is followed by the same step.

use helm_core::release::Revision;
use kube_objects::with_causes;

use super::super::kind::ActionKind;
use super::super::memory::KnownRelease;
use super::super::message::Message;
use super::super::plan::retry_delay;
use super::super::report::{Next, Report};
use super::context::{ActContext, POLL_INTERVAL, waiting};
use super::error::ActError;
use super::uninstall::{may_run_hooks, readable, unread};
use crate::action::uninstall::uninstall;
use crate::action::{ActionError, ActionProgress};
use crate::event::EventReason;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    revision: Revision,
) -> Result<Report, ActError> {
    let subject = context.subject;
    // The cache may be stale: uninstall only what the owner still asks for.
    let Some(present) = subject.owner.read().await? else {
        return Ok(Report::gone());
    };
    if present.generation != subject.generation || present.deleted.is_some() {
        return Ok(Report::wait(
            "the change of the custom resource",
            POLL_INTERVAL,
        ));
    }
    let own = context.target.own(&context.observation.history);
    let Some((mut stored, earlier)) = readable(context, &own).await? else {
        return Err(context.gone(revision).into());
    };
    let mut action = context.action(ActionKind::Uninstall, &[]);
    if !may_run_hooks(context, memory, &mut stored).await? {
        action.disable_hooks = true;
    }
    let description = "the upgrade failed; the release is uninstalled and installed again";
    let ended = uninstall(
        &action,
        &mut memory.live,
        &mut stored,
        &earlier,
        true,
        description,
    )
    .await;
    memory.live.complete = false;
    if ended.is_err() {
        for stored in std::iter::once(&stored).chain(&earlier) {
            memory.withhold_record(&stored.release, subject.owner.quoted());
        }
    }
    match ended {
        Ok(ActionProgress::Done) => {}
        Ok(ActionProgress::Waiting { why }) => {
            return Ok(waiting(context, memory, &stored, why));
        }
        Err(ActionError::Read(error)) if error.is_transient() => {
            return Ok(unread(&stored, &error));
        }
        Err(error) if error.is_transient() => return Err(error.into()),
        Err(error) => {
            let message = Message::from(with_causes(&error))
                .about_values(&stored.release.config)
                .about(&memory.values(subject.owner.quoted()));
            let next = Next::After(retry_delay(1));
            let report = Report::failed(ActionKind::Uninstall, &stored, message, next);
            return Ok(report);
        }
    }
    tracing::info!(release = %context.target.name, revision = revision.0, "uninstalled after a failed upgrade");
    let note = format!(
        "the upgrade to revision {revision} failed, and upgrade.remediation.strategy is uninstall: the release was uninstalled and is installed again"
    );
    let notices = context.notices;
    notices.tell(EventReason::UninstalledAfterFailure, "Uninstall", note);
    Ok(Report::replan())
}

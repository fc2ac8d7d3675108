//! Reports the failure of a revision before anything else is done about it.

use helm_core::release::Revision;

use super::super::kind::ActionKind;
use super::super::memory::KnownRelease;
use super::super::message::Message;
use super::super::report::{Failure, Next, Report, StepOutcome, describe};
use super::context::ActContext;
use super::error::ActError;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    revision: Revision,
) -> Result<Report, ActError> {
    let failure = failure_of(context, revision).await?;
    memory.reported = Some(revision);
    Ok(Report::new(
        StepOutcome::Failed(Box::new(failure)),
        Next::Now,
    ))
}

/// Returns the failure described by a record.
pub(super) async fn failure_of(
    context: &ActContext<'_>,
    revision: Revision,
) -> Result<Failure, ActError> {
    let stored = context.load(revision).await?;
    let kind = context.kind_of(&stored);
    let description = &stored.release.info.description;
    // A record that is gone may have told that it was another kind.
    let kinds = [
        ActionKind::Install,
        ActionKind::Upgrade,
        ActionKind::Rollback,
    ];
    let message = kinds.into_iter().find_map(|kind| {
        let what = kind.failure_description(&context.target.name);
        description.strip_prefix(&what)?.strip_prefix(": ")
    });
    let message = message.unwrap_or(description);
    Ok(Failure {
        kind,
        message: Message::from(message)
            .about_values(&stored.release.config)
            .about(context.subject.owner.quoted().as_slice()),
        release: describe(&stored),
        next: None,
    })
}

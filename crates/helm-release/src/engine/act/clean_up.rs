//! Removes the objects of a failed install. Keeps the record so that attempts are counted.

use helm_core::release::{Revision, Status};

use super::super::kind::ActionKind;
use super::super::memory::KnownRelease;
use super::super::report::Report;
use super::context::ActContext;
use super::error::ActError;
use crate::action::uninstall::remove_created;

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    revision: Revision,
) -> Result<Report, ActError> {
    let mut stored = context.load(revision).await?;
    let action = context.action(ActionKind::Uninstall, &[]);
    remove_created(&action, &mut memory.live, &stored, &[]).await?;
    memory.live.complete = false;
    stored.release.set_status(
        Status::Uninstalled,
        "the install failed and its objects were removed",
    );
    let failures = stored.meta.failures;
    context.save(&mut stored, failures).await?;
    Ok(Report::replan())
}

//! Everything is as it should be: what a crash has left behind is tidied, and the status says so.

use super::super::kind::Kind;
use super::super::memory::Memory;
use super::super::report::{Deployed, Outcome, Report};
use super::{ActContext, ActError};

pub(super) async fn run(
    context: &ActContext<'_>,
    _memory: &mut Memory,
) -> Result<Report, ActError> {
    context.supersede().await?;
    let Some(latest) = context.observation.history.last() else {
        return Ok(Report::settle(Outcome::AsBefore));
    };
    if context.subject.status().says_deployed(latest.revision) {
        return Ok(Report::settle(Outcome::AsBefore));
    }
    let stored = context.load(latest.revision).await?;
    let kind = Kind::that_deployed(latest.revision);
    Ok(Report::settle(Outcome::Deployed(Deployed::of(
        kind, &stored,
    ))))
}

//! Reports what a release waits for.

use std::time::Duration;

use super::super::plan::Until;
use super::super::report::{Failure, Next, Report, StepOutcome};
use super::context::ActContext;
use super::deployment;
use super::error::ActError;
use super::report::failure_of;

pub(super) async fn run(
    context: &ActContext<'_>,
    delay: Duration,
    until: Until,
) -> Result<Report, ActError> {
    Ok(match until {
        Until::OthersOperation => Report::wait("another Helm operation to finish", delay),
        Until::Dependency => {
            let desired = context.desired();
            let name = desired.and_then(|desired| desired.dependency.clone());
            Report::wait(name.unwrap_or_default(), delay)
        }
        Until::NextAttempt { revision } => {
            let failure = Failure {
                next: Some(deployment::next_attempt(context, delay)),
                ..failure_of(context, revision).await?
            };
            Report::new(StepOutcome::Failed(Box::new(failure)), Next::After(delay))
        }
    })
}

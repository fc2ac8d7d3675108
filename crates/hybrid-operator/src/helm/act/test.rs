//! Runs the hooks of the event `test` on the deployed revision. Their outcome is a condition, and no
//! reason to change anything.

use helm_core::manifest::HookEvent;
use helm_core::release::Revision;

use super::super::kind::Kind;
use super::super::memory::Memory;
use super::super::report::{Next, Outcome, Report};
use super::super::status::chain;
use super::{ActContext, ActError, LOOK_AGAIN};
use crate::action::{ActionError, ActionProgress, run_hooks};

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &mut Memory,
    revision: Revision,
) -> Result<Report, ActError> {
    let mut stored = context.load(revision).await?;
    let failure = {
        let action = context.action(Kind::Test, &[]);
        match run_hooks(&action, &mut memory.live, &mut stored, &HookEvent::Test).await {
            Ok(ActionProgress::Done) => None,
            Ok(ActionProgress::Waiting { .. }) => {
                return Ok(Report::new(Outcome::AsBefore, Next::After(LOOK_AGAIN)));
            }
            Err(error @ (ActionError::Hook { .. } | ActionError::Timeout { .. })) => {
                Some(chain(&error))
            }
            Err(error) => return Err(error.into()),
        }
    };
    Ok(Report::settle(Outcome::Tested { revision, failure }))
}

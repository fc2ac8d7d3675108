//! Inputs that every step has, and reports of steps that wait.

use std::sync::Arc;
use std::time::Duration;

use helm_core::release::Revision;
use jiff::Timestamp;

use super::super::access::Access;
use super::super::action_context::action_context;
use super::super::desired::{Desired, Wanted};
use super::super::kind::ActionKind;
use super::super::memory::KnownRelease;
use super::super::observe::Observation;
use super::super::report::{Next, Report, StepOutcome, describe};
use super::super::setup::Setup;
use super::super::subject::Subject;
use super::super::target::Target;
use crate::action::log::{Details, Done};
use crate::action::{ActionContext, StoredRelease};
use crate::event::Notices;

/// Shortest delay before a waiting step runs again. Covers what is not watched; watches trigger earlier.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Longest one: it is an eighth of the time waited.
const LONGEST_POLL_INTERVAL: Duration = Duration::from_secs(30);

/// Returns a report that an action waits for something.
pub(super) fn waiting(
    context: &ActContext<'_>,
    memory: &mut KnownRelease,
    stored: &StoredRelease,
    why: String,
) -> Report {
    let now = context.target.now;
    let awaited = (stored.release.revision, why.clone());
    let known = memory.waiting.take().filter(|(known, _)| *known == awaited);
    let since = known.map_or(now, |(_, since)| since);
    memory.waiting = Some((awaited, since));
    let waited = now.duration_since(since).unsigned_abs();
    let release = Some(Box::new(describe(stored)));
    Report::new(
        StepOutcome::Progressing { why, release },
        Next::After((waited / 8).clamp(POLL_INTERVAL, LONGEST_POLL_INTERVAL)),
    )
}

/// Everything a step needs.
pub(crate) struct ActContext<'a> {
    pub(crate) setup: &'a Arc<Setup>,
    pub(crate) access: &'a Access,
    pub(crate) subject: &'a Subject,
    pub(crate) target: &'a Target,
    pub(crate) observation: &'a Observation,
    /// Desired state, or why it cannot be computed; `None` if the step does not depend on it.
    pub(crate) desired: Option<&'a Wanted>,
    pub(crate) notices: &'a Notices,
}

impl<'a> ActContext<'a> {
    /// Returns the desired state if it is known.
    pub(super) fn desired(&self) -> Option<&'a Desired> {
        self.desired.and_then(|desired| desired.as_deref().ok())
    }

    /// Returns what the log says of an action that is done.
    pub(super) fn done(&self, revision: Option<Revision>, began: Option<Timestamp>) -> Done<'a> {
        Done {
            primary: &self.target.primary,
            release: &self.target.name,
            revision,
            began,
            details: Details::default(),
        }
    }

    /// Returns the context of a Helm action.
    pub(super) fn action<'c>(
        &'c self,
        kind: ActionKind,
        recreate: &'c [String],
    ) -> ActionContext<'c> {
        action_context(self.setup, self.access, self.subject, kind, recreate)
    }
}

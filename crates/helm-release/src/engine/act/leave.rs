//! Handles two operators that manage the same release: the operator was installed twice
//! under two names, or was renamed.
//!
//! The operator that wrote the newest record manages the release until it is removed, including
//! objects that outlive the records. The other operator only reports this in a condition until the
//! annotation `adopt-release` names it. The annotation must be a name, not `true`: otherwise two
//! operators that read it would take the release from each other repeatedly.

use super::super::memory::KnownRelease;
use super::super::owner::Remedy;
use super::super::report::{Report, StepOutcome};
use super::context::ActContext;

pub(super) fn run(context: &ActContext<'_>, memory: &mut KnownRelease) -> Report {
    // Stop watching objects of a release that another operator manages.
    *memory = KnownRelease::default();
    let (own, other) = (
        &context.setup.identity.operator,
        &context.observation.managing_operator,
    );
    let message = format!(
        "operator {other} manages this release, but operator {own} also watches this custom resource; to let {own} adopt the release, {}",
        context.subject.owner.remedy(Remedy::AdoptBy(own))
    );
    Report::settle(StepOutcome::Contested { message })
}

//! Two operators and one custom resource: somebody has installed the operator twice, under two
//! names, or has renamed it.
//!
//! Whoever wrote the newest record of the release looks after it to the end: when the records go
//! there may be more to remove. The other operator says so in a condition and does nothing else,
//! until the annotation `adopt-release` names it. That a name is needed, and `true` is not enough,
//! keeps two operators that read the same annotation from taking the release from each other for
//! ever.

use super::super::annotations::PREFIX;
use super::super::memory::Memory;
use super::super::report::{Outcome, Report};
use super::ActContext;

pub(super) fn run(context: &ActContext<'_>, memory: &mut Memory) -> Report {
    // What is not ours need not be watched.
    *memory = Memory {
        written: std::mem::take(&mut memory.written),
        keeper: memory.keeper.take(),
        ..Memory::default()
    };
    let (own, other) = (&context.setup.operator, &context.observation.keeper);
    let message = format!(
        "the operator {other} looks after this release, and the operator {own} watches this custom resource, too; to have {own} take it over, annotate the custom resource with {PREFIX}adopt-release={own}"
    );
    Report::settle(Outcome::Contested { message })
}

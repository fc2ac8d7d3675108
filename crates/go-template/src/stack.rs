//! Grows the stack before recursion that follows the shape of its input.

/// Upper bound for the stack use of one level of recursion.
const RED_ZONE: usize = 128 << 10;
const SEGMENT: usize = 2 << 20;

/// Runs `body` with enough stack for one more level.
#[inline]
pub(crate) fn grow<T>(body: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(RED_ZONE, SEGMENT, body)
}

//! Grows the stack before recursion that follows the shape of its input: threads with the 2 MiB that
//! are usual have too little for the deepest documents.

/// Room that one level of recursion never exceeds.
const RED_ZONE: usize = 128 << 10;
const SEGMENT: usize = 2 << 20;

/// Runs `body` with enough stack for one more level.
#[inline]
pub(crate) fn grow<T>(body: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(RED_ZONE, SEGMENT, body)
}

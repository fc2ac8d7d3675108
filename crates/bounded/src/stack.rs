//! Grows the stack before recursion that follows the shape of its input: the usual 2 MiB of a
//! thread are too little for the deepest documents.

use crate::memory::Held;

/// Whether the stack can grow. It cannot in WebAssembly, where the limits of depth are therefore lower by
/// default.
pub const STACK_GROWS: bool = !cfg!(target_family = "wasm");

/// Upper bound for the stack use of one level of recursion.
const RED_ZONE: usize = 128 << 10;
/// Enough for dropping or converting JSON of the maximum nesting without further checks.
const DEEP_ZONE: usize = 2 << 20;
const SEGMENT: usize = 4 << 20;

/// Runs `body` with enough stack for one more level. What the stack grows by counts as memory.
#[inline]
pub fn grow<T>(body: impl FnOnce() -> T) -> T {
    let is_enough = stacker::remaining_stack().is_some_and(|left| left >= RED_ZONE);
    if is_enough || !STACK_GROWS {
        body()
    } else {
        on_new_segment(body)
    }
}

#[cold]
fn on_new_segment<T>(body: impl FnOnce() -> T) -> T {
    let _held = Held::new(SEGMENT);
    stacker::grow(SEGMENT, body)
}

/// Runs `body` with enough stack for recursion that cannot be guarded, such as that of a derived
/// `Drop` or of another library, through JSON of the maximum nesting (see
/// [`Limits::for_json`](crate::Limits::for_json)).
#[inline]
pub fn grow_for_drop<T>(body: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(DEEP_ZONE, SEGMENT, body)
}

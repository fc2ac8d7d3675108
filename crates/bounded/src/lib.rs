//! Limits on the time, memory and nesting that untrusted input may cause.
//!
//! One mechanism for everything that reads, walks or writes untrusted data:
//!
//! * [`Limits`] are the limits of a render, and a [`Budget`] counts what it uses.
//! * [`Budget::descend`] is the only way to recurse: it limits the depth, counts a step, checks the
//!   clock and grows the stack.
//! * A [`Buffer`] is the only output: it does not grow beyond the memory that is left.
//! * [`memory`] counts the bytes that values hold while they are alive.
#![warn(clippy::missing_errors_doc)]

mod budget;
mod buffer;
pub mod memory;
mod stack;
mod stop;

pub use budget::{Budget, BudgetError, Limits};
pub use buffer::Buffer;
pub use stack::{STACK_GROWS, grow, grow_for_drop};
pub use stop::{Cancel, Stop};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

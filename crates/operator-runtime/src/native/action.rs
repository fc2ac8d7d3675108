//! Action that a reconcile function asks for when it has succeeded.

use std::time::Duration;

/// Time of the next reconcile of an object if nothing changes before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Only after a change, or after the controller's resync period.
    Done,
    /// After this time.
    After(Duration),
    /// As soon as possible. Repeated, the pauses double from 10 ms to 30 s.
    Now,
}

impl Action {
    /// Reconciles again only after a change.
    pub fn done() -> Self {
        Self::Done
    }

    /// Reconciles again after this time.
    pub fn after(delay: Duration) -> Self {
        Self::After(delay)
    }

    /// Reconciles again as soon as possible.
    pub fn now() -> Self {
        Self::Now
    }
}

//! `Stop`: the conditions that end a render regardless of its other limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::budget::BudgetError;

/// Cancels a render from another thread. Clones are the same handle.
///
/// ```
/// let cancel = bounded::Cancel::new();
/// let other = cancel.clone();
/// other.cancel();
/// assert!(cancel.is_cancelled());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Creates a handle that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests cancellation, which is irrevocable.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether cancellation was requested.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Ends a render at a deadline or on cancellation.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    cancel: Option<Cancel>,
    deadline: Option<(Instant, Duration)>,
}

impl Stop {
    /// Starts the clock: the render may take `time` from now, or unlimited time without it.
    pub fn new(cancel: Cancel, time: Option<Duration>) -> Self {
        Self {
            cancel: Some(cancel),
            ..Self::within(time)
        }
    }

    /// Like [`Stop::new`], without a handle to cancel it.
    pub fn within(time: Option<Duration>) -> Self {
        // A deadline beyond the range of the clock means no deadline.
        let deadline = time.and_then(|time| Some((Instant::now().checked_add(time)?, time)));
        Self {
            cancel: None,
            deadline,
        }
    }

    /// Checks the handle and the clock.
    ///
    /// # Errors
    /// [`BudgetError::Cancelled`] and [`BudgetError::Time`].
    pub fn check(&self) -> Result<(), BudgetError> {
        if self.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
            return Err(BudgetError::Cancelled);
        }
        match self.deadline {
            Some((deadline, limit)) if Instant::now() > deadline => {
                Err(BudgetError::Time { limit })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_without_time_limit_ends_only_when_cancelled() {
        let cancel = Cancel::new();
        for time in [None, Some(Duration::MAX), Some(Duration::from_hours(1))] {
            assert_eq!(Stop::new(cancel.clone(), time).check(), Ok(()));
        }
        cancel.cancel();
        for time in [None, Some(Duration::MAX), Some(Duration::ZERO)] {
            let stop = Stop::new(cancel.clone(), time);
            assert_eq!(stop.check(), Err(BudgetError::Cancelled));
        }
    }

    #[test]
    fn stop_reports_the_time_limit_after_the_deadline() {
        let limit = Duration::ZERO;
        let stop = Stop::new(Cancel::new(), Some(limit));
        let begin = Instant::now();
        while Instant::now() <= begin {}
        assert_eq!(stop.check(), Err(BudgetError::Time { limit }));
    }
}

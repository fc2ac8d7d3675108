//! `Stop`: when a render has to end, whatever it has left of its other limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::BudgetError;

/// Ends a render from another thread. Clones are the same handle.
///
/// ```
/// let cancel = go_template::Cancel::new();
/// let other = cancel.clone();
/// other.cancel();
/// assert!(cancel.is_cancelled());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A handle that nobody has cancelled yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the work that has this handle to end. It cannot be taken back.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the work is to end.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// When a render has to end: at a deadline, or when it is cancelled.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    cancel: Cancel,
    deadline: Option<(Instant, Duration)>,
}

impl Stop {
    /// Starts the clock: the render may take `time` from now, or for ever without it.
    pub fn new(cancel: Cancel, time: Option<Duration>) -> Self {
        // A deadline beyond what the clock can say is none.
        let deadline = time.and_then(|time| Some((Instant::now().checked_add(time)?, time)));
        Self { cancel, deadline }
    }

    /// Looks at the handle and at the clock.
    ///
    /// # Errors
    /// [`BudgetError::Cancelled`] and [`BudgetError::Time`].
    pub fn check(&self) -> Result<(), BudgetError> {
        if self.cancel.is_cancelled() {
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
    fn a_stop_without_time_ends_only_when_it_is_cancelled() {
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
    fn time_is_over_after_the_deadline() {
        let limit = Duration::ZERO;
        let stop = Stop::new(Cancel::new(), Some(limit));
        let begin = Instant::now();
        while Instant::now() <= begin {}
        assert_eq!(stop.check(), Err(BudgetError::Time { limit }));
    }
}

//! `Stop`: the conditions that end a render regardless of its other limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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
///
/// The clock is the processor time of the thread that creates the `Stop` and that must check it. A
/// busy machine, or a container that gets only a part of a processor, ends no render that others
/// finish; a render does not wait for anything else.
///
/// There is no clock on `wasm32-unknown-unknown`: a time limit has no effect there, and
/// [`Limits::steps`](crate::Limits::steps) bounds the work.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    cancel: Option<Cancel>,
    /// The processor time at which the render ends, and the limit.
    deadline: Option<(Duration, Duration)>,
}

/// Returns the processor time that this thread has used.
#[cfg(unix)]
fn used() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Returns no time, where there is no clock: reading that of the standard library panics.
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
fn used() -> Duration {
    Duration::ZERO
}

/// Returns the time since the first call, where the processor time is not known.
#[cfg(not(any(unix, all(target_family = "wasm", target_os = "unknown"))))]
fn used() -> Duration {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed()
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
        let deadline = time.and_then(|time| Some((used().checked_add(time)?, time)));
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
        self.check_cancelled()?;
        match self.deadline {
            Some((deadline, limit)) if used() > deadline => Err(BudgetError::Time { limit }),
            _ => Ok(()),
        }
    }

    /// Checks only the handle.
    pub(crate) fn check_cancelled(&self) -> Result<(), BudgetError> {
        match &self.cancel {
            Some(cancel) if cancel.is_cancelled() => Err(BudgetError::Cancelled),
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
        let begin = used();
        while used() <= begin {}
        assert_eq!(stop.check(), Err(BudgetError::Time { limit }));
    }

    #[test]
    #[cfg(unix)]
    fn time_in_which_other_threads_run_does_not_count() {
        let limit = Duration::from_millis(100);
        let stop = Stop::new(Cancel::new(), Some(limit));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let own = Stop::within(Some(limit));
                while own.check().is_ok() {}
            });
            other.join().unwrap();
        });
        assert_eq!(stop.check(), Ok(()));
    }
}

//! How long a failing key waits. Pure: randomness is an argument.

use std::collections::HashMap;
use std::time::Duration;

use super::Key;

/// Exponential waits, for each key its own.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: HashMap<Key, u32>,
}

impl Default for Backoff {
    /// From 500 ms, doubling, to 5 minutes.
    fn default() -> Self {
        Self::new(Duration::from_millis(500), Duration::from_mins(5))
    }
}

impl Backoff {
    /// Waits from `first`, doubling, to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            failures: HashMap::new(),
        }
    }

    /// Records a failure and answers the wait before the next turn: the doubled wait less up to a
    /// quarter, by `noise` of 0 to 255.
    pub fn failed(&mut self, key: &Key, noise: u8) -> Duration {
        let failures = self.failures.entry(key.clone()).or_insert(0);
        let wait = wait(self.first, self.longest, *failures, noise);
        *failures = failures.saturating_add(1);
        wait
    }

    /// Forgets a key that succeeded, was changed by its owner, or is gone.
    pub fn reset(&mut self, key: &Key) {
        self.failures.remove(key);
    }

    /// How often a key failed in a row.
    pub fn failures(&self, key: &Key) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }
}

/// The waits of a single thing that is tried again.
#[derive(Debug)]
pub(crate) struct Retry {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Retry {
    /// Waits from `first`, doubling, to `longest`.
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            failures: 0,
        }
    }

    /// Records a failure and answers the wait before the next attempt, as [`Backoff::failed`].
    pub(crate) fn failed(&mut self, noise: u8) -> Duration {
        let wait = wait(self.first, self.longest, self.failures, noise);
        self.failures = self.failures.saturating_add(1);
        wait
    }

    /// Forgets the failures.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// The longest wait.
    pub(crate) const fn longest(&self) -> Duration {
        self.longest
    }
}

/// The wait after so many earlier failures, less up to a quarter by `noise`.
fn wait(first: Duration, longest: Duration, failures: u32, noise: u8) -> Duration {
    let factor = 2_u32.saturating_pow(failures.min(20));
    let wait = first.saturating_mul(factor).min(longest);
    wait.saturating_sub(wait / 4 * u32::from(noise) / 255)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{Backoff, Retry};
    use crate::controller::Key;

    #[test]
    fn waits_double_up_to_the_longest_and_start_again_after_a_reset() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        let (a, b) = (Key::new(None, "a"), Key::new(None, "b"));
        let waits: Vec<u64> = (0..5).map(|_| backoff.failed(&a, 0).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 5, 5]);
        assert_eq!(
            backoff.failed(&b, 0),
            Duration::from_secs(1),
            "each key has its own"
        );
        backoff.reset(&a);
        assert_eq!(backoff.failures(&a), 0);
        assert_eq!(backoff.failed(&a, 0), Duration::from_secs(1));
        let mut retry = Retry::new(Duration::from_secs(1), Duration::from_secs(5));
        let waits: Vec<u64> = (0..4).map(|_| retry.failed(0).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 5]);
        retry.reset();
        assert_eq!(retry.failed(0), Duration::from_secs(1));
    }

    proptest! {
        #[test]
        fn noise_takes_at_most_a_quarter_away(rounds in 1_usize..60, noise: u8) {
            let mut noisy = Backoff::default();
            let mut even = Backoff::default();
            let key = Key::new(Some("n"), "a");
            for _ in 0..rounds {
                let (shorter, full) = (noisy.failed(&key, noise), even.failed(&key, 0));
                prop_assert!(shorter <= full && shorter >= full * 3 / 4);
                prop_assert!(full <= Duration::from_mins(5));
            }
        }
    }
}

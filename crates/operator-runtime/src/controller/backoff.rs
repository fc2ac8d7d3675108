//! Exponential backoff of failing keys. Pure: randomness is an argument.

use host::HashMap;
use std::time::Duration;

use kube_objects::watch::Retry;

use super::Key;

/// Exponential backoff, individually for each key.
#[derive(Debug)]
pub struct Backoff {
    /// Backoff of a key that has not failed.
    new: Retry,
    failing: HashMap<Key, Retry>,
}

impl Default for Backoff {
    /// Delays start at 500 ms and double up to 5 minutes.
    fn default() -> Self {
        Self::new(Duration::from_millis(500), Duration::from_mins(5))
    }
}

impl Backoff {
    /// Creates a backoff whose delays start at `first` and double up to `longest`.
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self {
            new: Retry::new(first, longest),
            failing: HashMap::default(),
        }
    }

    /// Records a failure and returns the delay before the next attempt. See [`Retry::failed`].
    pub fn failed(&mut self, key: &Key, noise: u8) -> Duration {
        let failing = self.failing.entry(key.clone()).or_insert(self.new);
        failing.failed(noise)
    }

    /// Returns the longest delay that [`failed`](Self::failed) would return now.
    pub fn next(&self, key: &Key) -> Duration {
        self.failing.get(key).unwrap_or(&self.new).next()
    }

    /// Resets a key that succeeded, was changed by its owner, or is gone.
    pub fn reset(&mut self, key: &Key) {
        self.failing.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::Backoff;
    use crate::controller::Key;

    #[test]
    fn delays_double_up_to_the_longest_and_start_again_after_a_reset() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        let (a, b) = (Key::new(None, "a"), Key::new(None, "b"));
        let mut waits = Vec::new();
        for _ in 0..5 {
            let next = backoff.next(&a);
            assert_eq!(backoff.failed(&a, 0), next);
            waits.push(next.as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 5, 5]);
        // Each key has its own delay.
        assert_eq!(backoff.failed(&b, 0), Duration::from_secs(1));
        backoff.reset(&a);
        assert_eq!(backoff.failed(&a, 0), Duration::from_secs(1));
    }

    proptest! {
        #[test]
        fn noise_reduces_a_delay_by_at_most_a_quarter(rounds in 1_usize..60, noise: u8) {
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

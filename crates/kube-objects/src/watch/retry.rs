//! Exponential backoff of an operation. Pure: randomness is an argument.

use std::time::Duration;

/// The backoff of a single operation.
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Retry {
    /// Creates a backoff whose delays start at `first` and double up to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            failures: 0,
        }
    }

    /// Records a failure and returns the delay before the next attempt: the doubled delay, reduced
    /// by up to a quarter in proportion to `noise`.
    pub fn failed(&mut self, noise: u8) -> Duration {
        let wait = self.next();
        self.failures = self.failures.saturating_add(1);
        wait.saturating_sub(wait / 4 * u32::from(noise) / 255)
    }

    /// Returns the longest delay that [`failed`](Self::failed) would return now.
    pub fn next(&self) -> Duration {
        let factor = 2_u32.saturating_pow(self.failures.min(20));
        self.first.saturating_mul(factor).min(self.longest)
    }

    /// Resets the backoff after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns the maximum delay.
    pub const fn longest(&self) -> Duration {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_start_again_after_a_reset() {
        let mut retry = Retry::new(Duration::from_secs(1), Duration::from_secs(5));
        let waits: Vec<u64> = (0..4).map(|_| retry.failed(0).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 5]);
        retry.reset();
        assert_eq!(retry.failed(0), Duration::from_secs(1));
    }
}

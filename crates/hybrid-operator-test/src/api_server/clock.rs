//! The server's time: a fixed start, and what tokio's clock adds to it.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A clock that is paused and advanced with tokio's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    started: Instant,
    epoch: Timestamp,
}

impl Clock {
    /// Returns a clock that shows `epoch` now.
    pub(super) fn starting(epoch: Timestamp) -> Self {
        Self {
            started: Instant::now(),
            epoch,
        }
    }

    /// Returns the time that has passed since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the instant at which this much time has passed.
    pub(super) fn instant(&self, elapsed: Duration) -> Instant {
        self.started + elapsed
    }

    /// Returns a time as metadata shows it, in whole seconds.
    pub(super) fn text(&self, elapsed: Duration) -> String {
        let elapsed = SignedDuration::try_from(elapsed).unwrap_or_default();
        let time = self.epoch.checked_add(elapsed).unwrap_or(self.epoch);
        time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// Returns the time since the start at which a clock shows this text.
    pub(super) fn elapsed_at(&self, text: &str) -> Option<Duration> {
        let time: Timestamp = text.parse().ok()?;
        Duration::try_from(time.duration_since(self.epoch)).ok()
    }
}

//! The controller runtime of charts and native controllers: a queue of keys, workers that reconcile
//! them, and the watches that add keys to the queue.
//!
//! ```text
//! source (CRs) ─┐
//! registry ─────┼─> queue ─> workers ─> Reconcile
//! resync, retry ┘
//! ```

mod backoff;
mod lane;
pub(crate) mod namespaces;
mod objects;
mod queue;
mod worker;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use futures::future::BoxFuture;

pub use backoff::Backoff;

pub use kube_objects::{ApiError, CrIdentity, ForeignOwner, Key, PathError, Target};
pub use objects::TypedObject;
pub use objects::{Cached, ObjectCache, ObjectCaches, ObjectScope};
pub use queue::{Priority, Queue, Turn};
pub use worker::{QueueHandle, WorkerOptions, Workers};

/// A reconcile that is due.
#[derive(Debug, Clone)]
pub struct Request {
    /// The object.
    pub key: Key,
    /// Longest time until the next attempt if this one fails.
    pub pause: Duration,
}

/// Next step after a successful reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Wait for the next event.
    Done,
    /// Reconcile again after this time, unless an event comes earlier.
    After(Duration),
}

/// Interval of the times at which keys are reconciled though nothing has changed. One waking of a thread serves all keys of
/// a time.
const RESYNC_TICK: i128 = 100_000_000;

/// Returns the time until a key is reconciled again though nothing has changed: once in each period, at a time of its
/// own, so that not all keys are at once, also after a restart.
pub fn resync_in(key: &Key, period: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    until_turn(hasher.finish(), host::timestamp().as_nanosecond(), period)
}

/// Returns the time from `now`, in nanoseconds, to the turn of a hash in a period: more than none, at most the period.
fn until_turn(hash: u64, now: i128, period: Duration) -> Duration {
    let length = i128::try_from(period.as_nanos())
        .unwrap_or(i128::MAX)
        .max(1);
    let turn = i128::from(hash) / RESYNC_TICK * RESYNC_TICK;
    let passed = (now - turn).rem_euclid(length);
    let left = u64::try_from(length - passed).unwrap_or(u64::MAX);
    Duration::from_nanos(left)
}

/// The error of a failed reconcile. The key is reconciled again after its backoff.
pub type ReconcileError = Box<dyn std::error::Error + Send + Sync>;

/// An error that a retry cannot cure: the key is reconciled again only after another event.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Terminal(ReconcileError);

impl Terminal {
    /// Wraps an error.
    pub fn new(error: impl Into<ReconcileError>) -> Self {
        Self(error.into())
    }
}

/// Reconciles objects with their desired state.
pub trait Reconcile: Send + Sync + 'static {
    /// Reconciles one key. The same key is never reconciled concurrently.
    fn reconcile(&self, request: Request) -> BoxFuture<'_, Result<Outcome, ReconcileError>>;

    /// Returns the time until the next resync of a key whose resync is due, if nothing else has happened and it needs no
    /// reconcile.
    fn at_rest(&self, _key: &Key) -> Option<Duration> {
        None
    }

    /// Forgets what is known of a key, which is gone or handled by another process.
    fn forget(&self, key: &Key);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resyncs_are_spread_over_the_period_and_repeated_after_it() {
        let period = Duration::from_mins(1);
        let mut slots = [0; 6];
        for name in 0..600 {
            let mut hasher = DefaultHasher::new();
            Key::new(Some("ns"), &name.to_string()).hash(&mut hasher);
            let (hash, now) = (hasher.finish(), 1_800_000_000_123_456_789);
            let left = until_turn(hash, now, period);
            assert!(!left.is_zero() && left <= period);
            slots[usize::try_from(left.as_secs() / 10).unwrap() % 6] += 1;
            let turn = now + i128::try_from(left.as_nanos()).unwrap();
            assert_eq!(
                (turn % RESYNC_TICK, until_turn(hash, turn, period)),
                (0, period)
            );
        }
        assert!(slots.iter().all(|count| *count > 60), "{slots:?}");
    }
}

//! The controller runtime of charts and native controllers: a queue of keys, workers that reconcile
//! them, and the watches that add keys to the queue.
//!
//! ```text
//! source (CRs) ─┐
//! registry ─────┼─> queue ─> workers ─> Reconcile
//! resync, retry ┘
//! ```

mod backoff;
pub(crate) mod namespaces;
mod objects;
mod queue;
mod worker;

use std::time::Duration;

use futures::future::BoxFuture;

pub use backoff::Backoff;

pub use kube_objects::{ApiError, CrIdentity, ForeignOwner, Key, PathError, Target};
pub use objects::TypedObject;
pub use objects::{Cached, ObjectCache, ObjectCaches, ObjectScope};
pub use queue::{Priority, Queue};
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
}

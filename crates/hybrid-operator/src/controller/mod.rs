//! What charts and native controllers share: a queue of keys, workers that reconcile them, and the
//! watches that put keys into the queue.
//!
//! ```text
//! source (CRs) ─┐
//! registry ─────┼─> queue ─> workers ─> Reconcile
//! resync, retry ┘
//! ```

mod backoff;
pub(crate) mod definitions;
mod ended;
pub(crate) mod follow;
mod objects;
mod queue;
mod registry;
pub(crate) mod served;
mod source;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

pub use backoff::Backoff;
pub use follow::WatchState;
pub use objects::{
    Cached, IndexFn, ObjectCache, ObjectCaches, ObjectScope, Subscriber, TypedObject,
};
pub use queue::{Priority, Queue};
pub use registry::{Owners, Registry, Route, Seen, WatchGuard, WatchKey};
pub use source::Source;
pub use worker::{QueueHandle, WorkerOptions, Workers};

/// Names one object of one controller.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace; `None` for cluster-scoped objects.
    pub namespace: Option<Arc<str>>,
    /// Name.
    pub name: Arc<str>,
}

impl Key {
    /// The key of a namespace and a name.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        Self {
            namespace: namespace.map(Into::into),
            name: name.into(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A key whose turn it is.
#[derive(Debug, Clone)]
pub struct Request {
    /// The object.
    pub key: Key,
    /// How many reconciles of it failed in a row before this one.
    pub attempt: u32,
}

/// What a reconcile that did not fail asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing before the next event.
    Done,
    /// Another turn after this time, if no event brings one earlier.
    After(Duration),
}

/// A reconcile that failed; the key's next turn comes after its backoff.
pub type ReconcileError = Box<dyn std::error::Error + Send + Sync>;

/// Brings one object to what it says it should be.
pub trait Reconcile: Send + Sync + 'static {
    /// Works on one key. The same key is never worked on twice at a time.
    fn reconcile(&self, request: Request) -> BoxFuture<'_, Result<Outcome, ReconcileError>>;
}

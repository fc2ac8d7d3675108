//! Watches: the loop that all share ([`follow`]), and watches of the objects of releases ([`Registry`]).

pub mod definitions;
mod ended;
mod fields;
pub mod follow;
mod registry;
mod retry;

use std::sync::Arc;

pub use fields::Fields;
pub use follow::{WatchState, panic_text};
pub use registry::{Change, Owners, Registry, Route, WatchGuard, WatchKey};
pub use retry::Retry;

type Count = dyn Fn(&str, &'static str) + Send + Sync;

/// Counts the restarts of watches with a fresh list; by default, nothing is counted.
#[derive(Clone, Default)]
pub struct Restarts(Option<Arc<Count>>);

impl Restarts {
    /// Calls a function with the kind and the cause of each restart.
    pub fn counted_by(count: impl Fn(&str, &'static str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(count)))
    }

    /// Counts a restart.
    pub fn restarted(&self, kind: &str, cause: &'static str) {
        if let Some(count) = &self.0 {
            count(kind, cause);
        }
    }
}

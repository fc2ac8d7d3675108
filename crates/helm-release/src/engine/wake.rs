//! Wakes the owners of releases.

use std::sync::Arc;

use kube_objects::Key;

/// Wakes the owner of a release when something changes that the release refers to.
pub type Wake = Arc<dyn Fn(&Key) + Send + Sync>;

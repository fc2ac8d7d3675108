//! Keys of objects in queues and caches.

use std::fmt;
use std::sync::Arc;

use kube::Resource;

use super::Primary;
use super::shared_text::shared;

/// Identifies an object of a controller.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace; `None` for cluster-scoped objects.
    pub namespace: Option<Arc<str>>,
    /// Name.
    pub name: Arc<str>,
}

impl Key {
    /// Creates the key of an object from its namespace and name.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        Self {
            namespace: namespace.map(Into::into),
            name: name.into(),
        }
    }

    /// Returns the key of an object.
    pub fn of<O: Resource>(object: &O) -> Self {
        let meta = object.meta();
        Self {
            namespace: meta.namespace.as_deref().map(shared),
            name: meta.name.as_deref().unwrap_or_default().into(),
        }
    }
}

impl From<&Primary> for Key {
    fn from(primary: &Primary) -> Self {
        Self::new(primary.namespace.as_deref(), &primary.name)
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

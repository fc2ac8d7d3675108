//! `lookup`: how templates ask for objects of the cluster, answered from a snapshot.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// How many different objects and lists the templates of one render may look up, in all rounds
/// together. Each is a request to the API server.
pub const MAX_LOOKUPS: usize = 1_000;

/// Bytes of API version, kind, namespace and name together. Kubernetes has 253 for a name, 63 for a
/// namespace.
pub(super) const LONGEST_KEY: usize = 1_024;

/// What a template asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LookupKey {
    /// The API version, `apps/v1`.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The namespace; empty for all, and for objects without one.
    pub namespace: String,
    /// The name; empty for a list.
    pub name: String,
}

impl LookupKey {
    /// Whether a list is asked for.
    pub fn is_list(&self) -> bool {
        self.name.is_empty()
    }
}

impl fmt::Display for LookupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            api_version,
            kind,
            namespace,
            name,
        } = self;
        write!(f, "{api_version} {kind} {namespace}/{name}")
    }
}

/// What is known of what a template asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum LookupAnswer {
    /// The object, or the list with its `items`.
    Found(Value),
    /// It does not exist: the template gets an empty map.
    Absent,
    /// It is not in the snapshot: the render ends with [`crate::RenderError::NeedsLookup`].
    Unknown,
    /// It could not be read; the render fails with this message.
    Failed(String),
}

/// A snapshot of a cluster. Asked for one key it gives one answer as long as a render lasts.
pub trait Lookup: Send + Sync {
    /// What is known of `key`.
    fn get(&self, key: &LookupKey) -> LookupAnswer;

    /// How many answers were fetched for it, which count towards [`MAX_LOOKUPS`].
    fn fetched(&self) -> usize {
        0
    }
}

/// No cluster at all: nothing exists, as for `helm template`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCluster;

impl Lookup for NoCluster {
    fn get(&self, _: &LookupKey) -> LookupAnswer {
        LookupAnswer::Absent
    }
}

/// A snapshot held in memory; what it does not have is unknown. Cheap to clone.
///
/// ```
/// use helm_core::engine::lookup::{Lookup, LookupAnswer, LookupKey, Snapshot};
/// let key = LookupKey {
///     api_version: "v1".to_owned(), kind: "Secret".to_owned(),
///     namespace: "prod".to_owned(), name: "db".to_owned(),
/// };
/// let mut snapshot = Snapshot::default();
/// assert_eq!(snapshot.get(&key), LookupAnswer::Unknown);
/// snapshot.insert(key.clone(), LookupAnswer::Absent);
/// assert_eq!(snapshot.get(&key), LookupAnswer::Absent);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Snapshot(Arc<HashMap<LookupKey, LookupAnswer>>);

impl Snapshot {
    /// Adds an answer. Clones made before do not see it.
    pub fn insert(&mut self, key: LookupKey, answer: LookupAnswer) {
        Arc::make_mut(&mut self.0).insert(key, answer);
    }
}

impl Lookup for Snapshot {
    fn get(&self, key: &LookupKey) -> LookupAnswer {
        self.0.get(key).cloned().unwrap_or(LookupAnswer::Unknown)
    }

    fn fetched(&self) -> usize {
        self.0.len()
    }
}

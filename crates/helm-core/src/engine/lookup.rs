//! `lookup`: objects of the cluster for templates, answered from a snapshot.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// Maximum number of different objects and lists that the templates of one render may look up, over
/// all rounds. Each is a request to the API server.
pub const MAX_LOOKUPS: usize = 1_000;

/// Maximum size of API version, kind, namespace and name together, in bytes. Kubernetes limits
/// names to 253 bytes and namespaces to 63.
pub(super) const MAX_KEY_LENGTH: usize = 1_024;

/// The arguments of a lookup.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LookupKey {
    /// The API version, `apps/v1`.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The namespace; empty for all namespaces and for cluster-scoped objects.
    pub namespace: String,
    /// The name; empty for a list.
    pub name: String,
}

impl LookupKey {
    /// Returns whether this is a lookup of a list.
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

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq)]
pub enum LookupAnswer {
    /// The object, or the list with its `items`.
    Found(Value),
    /// The object or list does not exist; the template gets an empty map.
    Absent,
    /// The answer is not in the snapshot; the render ends with [`crate::RenderError::NeedsLookup`].
    Unknown,
    /// The object or list could not be read; the render fails with this message.
    Failed(String),
}

/// A snapshot of a cluster. It must give the same answer for a key throughout a render.
pub trait Lookup: Send + Sync {
    /// Returns the answer for `key`.
    fn get(&self, key: &LookupKey) -> LookupAnswer;

    /// Returns the answer for `key` to a lookup during a call of `tpl`, whose text may come from
    /// values. Must not reveal anything that whoever sets the values may not read.
    fn get_in_tpl(&self, key: &LookupKey) -> LookupAnswer {
        self.get(key)
    }

    /// Returns how many answers were fetched for it, which count towards [`MAX_LOOKUPS`].
    fn fetched(&self) -> usize {
        0
    }
}

/// An empty snapshot: nothing exists, as for `helm template`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCluster;

impl Lookup for NoCluster {
    fn get(&self, _: &LookupKey) -> LookupAnswer {
        LookupAnswer::Absent
    }
}

/// A snapshot in memory; missing keys are unknown. Cheap to clone.
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
    /// Adds an answer. Existing clones do not see it.
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

//! Access to the objects of releases in a cluster: discovery, apply, delete, ownership, drift, watches, readiness
//! and diagnosis.
//!
//! ```text
//! manifest object --mark--> apply --> Applied { uid, ours }
//!                                          |      |
//!                        delete (uid) <----+      +--compared with--> drift::ours_hash of watches
//! ```
//!
//! * [`AnyObject`] (pure): decodes objects, however deep they are nested.
//! * [`ownership`] (pure): ownership metadata, and the owner of existing objects.
//! * [`discovery`]: kinds, scopes and capabilities, cached for the whole process.
//! * [`apply`]: server-side apply that never takes over objects that are not proven to be the
//!   release's.
//! * [`locate`]: objects whatever has become of their version.
//! * [`delete`]: deletion of exactly the recorded objects.
//! * [`contents`]: what namespaces and custom resource definitions hold.
//! * [`read`]: single objects and lists.
//! * [`drift`] (pure): hashes of the fields that the operator owns.
//! * [`watch`]: the loop of all watches, and watches that a process shares.
//! * [`shards`]: the objects that a process handles, if several share them.
//! * [`readiness`] (pure) and [`diagnosis`]: whether objects are ready, and why not.
//! * [`withheld`] (pure): texts that messages must not quote.
//! * [`client`]: the layers of the client.
//!
//! Requests are sent once. The layers of the client retry when the server is overloaded; the queue
//! retries failed reconciles.

mod any_object;
pub mod apply;
mod causes;
pub mod client;
mod conflict;
pub mod contents;
pub mod cut_off;
pub mod delete;
pub mod diagnosis;
pub mod discovery;
pub mod drift;
mod error;
pub mod events;
mod failure;
mod generated;
mod identity;
mod key;
pub mod locate;
mod nulls;
pub mod ownership;
mod prepare;
pub mod read;
pub mod readiness;
mod reasons;
pub mod request;
pub mod shards;
mod shared_text;
pub mod target;
pub mod watch;
pub mod withheld;

use host::HashSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::core::GroupVersionKind;
use object_key::{ObjectIdentity, ObjectKey};
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

pub use any_object::{AnyObject, left_out};
pub use causes::with_causes;
pub use discovery::{ApiKind, DiscoveryError, Scope, Served};
pub use error::{ApiError, Target};
pub use key::Key;
pub use ownership::{
    AccountName, AccountNameError, Claimant, InstanceId, Marks, OperatorId, Ownership, Primary,
};
pub use ownership::{CrIdentity, ForeignOwner};
pub use request::PathError;

use discovery::Discovery;

/// The field manager of all applies. It is Helm's own, so that the `helm` command gets no
/// conflicts.
pub const FIELD_MANAGER: &str = "helm";

/// Memory of the objects that are sent at the same time, however many releases they are of. A larger one is sent
/// alone.
const SENT_AT_ONCE: usize = 2 << 20;

/// Returns about the bytes that a value holds.
fn memory_of(value: &Value) -> usize {
    /// An entry of a map, which has a node for several.
    const ENTRY: usize = 100;
    let contained = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(memory_of).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| ENTRY + name.len() + memory_of(value))
            .sum(),
    };
    size_of::<Value>() + contained
}

/// A cluster: a client and its discovery cache. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    discovery: Arc<Discovery>,
    /// Bytes of objects that may be sent at the same time.
    sends: Arc<Semaphore>,
}

impl Cluster {
    /// Creates a cluster from a client. Sends no requests.
    pub fn new(client: Client) -> Self {
        let discovery = Arc::new(Discovery::new(client.clone()));
        let sends = Arc::new(Semaphore::new(SENT_AT_ONCE));
        Self {
            client,
            discovery,
            sends,
        }
    }

    /// Returns the same cluster with another client, such as one that impersonates a service
    /// account. The discovery cache is shared.
    #[must_use]
    pub fn with_client(&self, client: Client) -> Self {
        Self {
            client,
            discovery: Arc::clone(&self.discovery),
            sends: Arc::clone(&self.sends),
        }
    }

    /// Waits until an object may be sent, which takes several times its size until the answer is read. The result is
    /// held for so long.
    pub async fn turn(&self, object: &Value) -> Option<SemaphorePermit<'_>> {
        let bytes = memory_of(object).min(SENT_AT_ONCE);
        // The semaphore is never closed.
        self.sends
            .acquire_many(u32::try_from(bytes).unwrap_or(u32::MAX))
            .await
            .ok()
    }

    /// Returns the client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Resolves a kind. See [`Discovery::resolve`].
    pub async fn resolve(&self, gvk: &GroupVersionKind) -> Result<Arc<ApiKind>, DiscoveryError> {
        self.discovery.resolve(gvk).await
    }

    /// Returns what the API server serves, at most `max_age` old. See [`Discovery::served`].
    pub async fn served(&self, max_age: Duration) -> Result<Served, DiscoveryError> {
        self.discovery.served(max_age).await
    }

    /// Requests the version of the API server.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn ping(&self) -> Result<(), DiscoveryError> {
        self.discovery.fetch_version().await
    }

    /// Marks a group as changed because a `CustomResourceDefinition` or `APIService` was created,
    /// changed or deleted. Its kinds and the capabilities are requested again when they are next
    /// needed.
    pub fn group_changed(&self, group: &str) {
        self.discovery.group_changed(group);
    }

    /// Subscribes to changes of the served kinds. See [`Discovery::changes`].
    pub fn changes(&self) -> host::watch::Receiver<u64> {
        self.discovery.changes()
    }

    /// Returns how often the served kinds, and so the capabilities, have changed.
    pub fn capabilities_epoch(&self) -> u64 {
        self.discovery.epoch()
    }

    /// Returns the discovery cache.
    pub fn discovery(&self) -> &Discovery {
        &self.discovery
    }

    /// Returns which of these objects' kinds are cluster-scoped. A kind that is not served has the scope
    /// of its definition, if that is among the objects, and else counts as namespaced.
    pub async fn scopes(&self, objects: &[(&ObjectKey, &Value)]) -> Result<Scopes, DiscoveryError> {
        let mut scopes = Scopes::default();
        let mut asked = HashSet::default();
        for (key, _) in objects {
            let name = (key.group.clone(), key.kind.clone());
            if !asked.insert(name.clone()) {
                continue;
            }
            let gvk = GroupVersionKind::gvk(&key.group, &key.version, &key.kind);
            let is_cluster_scoped = match self.discovery.scope(&gvk).await? {
                Some(scope) => scope == Scope::Cluster,
                None => objects.iter().any(|(of, object)| {
                    of.kind == "CustomResourceDefinition" && defines(object, key)
                }),
            };
            if is_cluster_scoped {
                scopes.0.insert(name);
            }
        }
        Ok(scopes)
    }
}

/// Returns whether a definition is that of a cluster-scoped kind.
fn defines(object: &Value, key: &ObjectKey) -> bool {
    let text = |pointer| object.pointer(pointer).and_then(|v| v.as_str());
    text("/spec/group") == Some(&key.group)
        && text("/spec/names/kind") == Some(&key.kind)
        && text("/spec/scope") == Some("Cluster")
}

/// The cluster-scoped kinds of some objects, by group and kind.
#[derive(Clone, Debug, Default)]
pub struct Scopes(HashSet<(String, String)>);

impl Scopes {
    /// Returns whether the kind of an object is cluster-scoped.
    pub fn is_cluster_scoped(&self, key: &ObjectKey) -> bool {
        self.0.contains(&(key.group.clone(), key.kind.clone()))
    }

    /// Returns the identity of an object of a manifest.
    pub fn identity<'k>(
        &self,
        key: &'k ObjectKey,
        release_namespace: &'k str,
    ) -> ObjectIdentity<'k> {
        ObjectIdentity::of(key, release_namespace, &|key| self.is_cluster_scoped(key))
    }
}

#[cfg(test)]
impl Cluster {
    /// Returns a cluster that `script` answers, beside discovery.
    pub fn scripted(script: &hybrid_operator_test::scripted::Script) -> Self {
        script.serve_discovery();
        Self::new(script.client())
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cluster")
    }
}

/// Runs the example of the README as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

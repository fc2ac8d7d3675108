//! Access to the objects of releases in the cluster: discovery, apply, read, delete, ownership and
//! drift detection.
//!
//! ```text
//! manifest object --mark--> apply --> Applied { uid, ours }
//!                                          |      |
//!                        delete (uid) <----+      +--compared with--> drift::ours_hash of watches
//! ```
//!
//! * [`any_object`] (pure): decodes objects, however deep they are nested.
//! * [`ownership`] (pure): ownership metadata, and the owner of existing objects.
//! * [`discovery`]: kinds, scopes and capabilities, cached for the whole process.
//! * [`apply`]: server-side apply that never takes over objects that are not proven to be the
//!   release's.
//! * [`locate`]: objects whatever has become of their version.
//! * [`delete`]: deletion of exactly the recorded objects.
//! * [`contents`]: what namespaces and custom resource definitions hold.
//! * [`read`]: single objects and lists.
//! * [`drift`] (pure): hashes of the fields that the operator owns.
//!
//! Requests are sent once. The layers of the client retry when the server is overloaded; the queue
//! retries failed reconciles.

mod any_object;
pub(crate) mod apply;
mod conflict;
pub(crate) mod contents;
pub(crate) mod cut_off;
pub(crate) mod delete;
pub(crate) mod discovery;
pub(crate) mod drift;
mod error;
pub(crate) mod events;
mod failure;
mod generated;
mod identity;
pub(crate) mod locate;
mod nulls;
pub(crate) mod ownership;
mod prepare;
pub(crate) mod read;
pub(crate) mod request;

use host::HashSet;
use std::sync::Arc;
use std::time::Duration;

use helm_core::Capabilities;
use helm_core::manifest::{ManifestObject, ObjectIdentity, ObjectKey};
use kube::Client;
use kube::core::GroupVersionKind;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

pub use any_object::AnyObject;
pub(crate) use any_object::left_out;
pub(crate) use discovery::{ApiKind, DiscoveryError, Scope};
pub use error::{ApiError, Target};
pub(crate) use ownership::{
    AccountName, AccountNameError, Claimant, InstanceId, Marks, OperatorId, Ownership, Primary,
};
pub use ownership::{CrIdentity, ForeignOwner};
pub use request::PathError;

use discovery::Discovery;

/// The field manager of all applies. It is Helm's own, so that the `helm` command gets no
/// conflicts.
pub(crate) const FIELD_MANAGER: &str = "helm";

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
pub(crate) struct Cluster {
    client: Client,
    discovery: Arc<Discovery>,
    /// Bytes of objects that may be sent at the same time.
    sends: Arc<Semaphore>,
}

impl Cluster {
    /// Creates a cluster from a client. Sends no requests.
    pub(crate) fn new(client: Client) -> Self {
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
    pub(crate) fn with_client(&self, client: Client) -> Self {
        Self {
            client,
            discovery: Arc::clone(&self.discovery),
            sends: Arc::clone(&self.sends),
        }
    }

    /// Waits until an object may be sent, which takes several times its size until the answer is read. The result is
    /// held for so long.
    pub(crate) async fn turn(&self, object: &Value) -> Option<SemaphorePermit<'_>> {
        let bytes = memory_of(object).min(SENT_AT_ONCE);
        // The semaphore is never closed.
        self.sends
            .acquire_many(u32::try_from(bytes).unwrap_or(u32::MAX))
            .await
            .ok()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Resolves a kind. See [`Discovery::resolve`].
    pub(crate) async fn resolve(
        &self,
        gvk: &GroupVersionKind,
    ) -> Result<Arc<ApiKind>, DiscoveryError> {
        self.discovery.resolve(gvk).await
    }

    /// Returns the capabilities that templates see, at most `max_age` old. See
    /// [`Discovery::capabilities`].
    pub(crate) async fn capabilities(
        &self,
        max_age: Duration,
    ) -> Result<Capabilities, DiscoveryError> {
        self.discovery.capabilities(max_age).await
    }

    /// Requests the version of the API server.
    ///
    /// # Errors
    /// When the request fails.
    pub(crate) async fn ping(&self) -> Result<(), DiscoveryError> {
        self.discovery.fetch_version().await
    }

    /// Marks a group as changed because a `CustomResourceDefinition` or `APIService` was created,
    /// changed or deleted. Its kinds and the capabilities are requested again when they are next
    /// needed.
    pub(crate) fn group_changed(&self, group: &str) {
        self.discovery.group_changed(group);
    }

    /// Subscribes to changes of the served kinds. See [`Discovery::changes`].
    pub(crate) fn changes(&self) -> host::watch::Receiver<u64> {
        self.discovery.changes()
    }

    /// Returns how often the served kinds, and so the capabilities, have changed.
    pub(crate) fn capabilities_epoch(&self) -> u64 {
        self.discovery.epoch()
    }

    pub(crate) fn discovery(&self) -> &Discovery {
        &self.discovery
    }

    /// Returns which of these objects' kinds are cluster-scoped. A kind that is not served has the scope
    /// of its definition, if that is among the objects, and else counts as namespaced.
    pub(crate) async fn scopes<'o>(
        &self,
        objects: impl IntoIterator<Item = &'o ManifestObject>,
    ) -> Result<Scopes, DiscoveryError> {
        let objects: Vec<&ManifestObject> = objects.into_iter().collect();
        let mut scopes = Scopes::default();
        let mut asked = HashSet::default();
        for key in objects.iter().map(|object| object.key()) {
            let name = (key.group.clone(), key.kind.clone());
            if !asked.insert(name.clone()) {
                continue;
            }
            let gvk = GroupVersionKind::gvk(&key.group, &key.version, &key.kind);
            let is_cluster_scoped = match self.discovery.scope(&gvk).await? {
                Some(scope) => scope == Scope::Cluster,
                None => objects.iter().any(|object| defines(object, key)),
            };
            if is_cluster_scoped {
                scopes.0.insert(name);
            }
        }
        Ok(scopes)
    }
}

/// Returns whether an object is the definition of a cluster-scoped kind.
fn defines(object: &ManifestObject, key: &ObjectKey) -> bool {
    let text = |pointer| object.object().pointer(pointer).and_then(|v| v.as_str());
    object.key().kind == "CustomResourceDefinition"
        && text("/spec/group") == Some(&key.group)
        && text("/spec/names/kind") == Some(&key.kind)
        && text("/spec/scope") == Some("Cluster")
}

/// The cluster-scoped kinds of some objects, by group and kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scopes(HashSet<(String, String)>);

impl Scopes {
    pub(crate) fn is_cluster_scoped(&self, key: &ObjectKey) -> bool {
        self.0.contains(&(key.group.clone(), key.kind.clone()))
    }

    /// Returns the identity of an object of a manifest.
    pub(crate) fn identity<'k>(
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
    pub(crate) fn scripted(script: &hybrid_operator_test::scripted::Script) -> Self {
        script.serve_discovery();
        Self::new(script.client())
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cluster")
    }
}

//! The objects of releases in the cluster: finding kinds, applying, reading, deleting, and telling
//! whose an object is and whether it still is as it was applied.
//!
//! ```text
//! manifest object --mark--> apply --> Applied { uid, ours }
//!                                          |      |
//!                        delete (uid) <----+      +--compared with--> drift::ours_hash of watches
//! ```
//!
//! * [`ownership`] (pure): what marks an object as ours, and who owns an existing one.
//! * [`discovery`]: kinds, scopes and capabilities, cached for the whole process.
//! * [`apply`]: server-side apply that never takes over what is not proven ours.
//! * [`delete`]: deletion of exactly the object that was recorded, and of nothing else.
//! * [`read`]: single objects and lists.
//! * [`drift`] (pure): hashes of what we own on an object.
//!
//! Requests are sent once: retries of what is overloaded belong to the client's layers, repeating
//! a failed step to the queue.

pub mod apply;
mod conflict;
pub mod delete;
pub mod discovery;
pub mod drift;
mod error;
mod failure;
mod generated;
mod identity;
pub mod ownership;
mod prepare;
pub mod read;
pub(crate) mod request;
#[cfg(test)]
pub(crate) mod scripted;

use std::sync::Arc;
use std::time::Duration;

use helm_core::Capabilities;
use kube::Client;
use kube::core::GroupVersionKind;

pub use discovery::{ApiKind, DiscoveryError, Scope};
pub use error::{ApiError, Target};
pub use ownership::{
    Claimant, CrIdentity, ForeignOwner, InstanceId, Marks, OperatorId, OwnerHint, Ownership,
    Primary,
};
pub use prepare::Merged;
pub use request::{Answer, PathError, send};

use discovery::Discovery;

/// The field manager of all applies: Helm's own, so that its command line meets no conflicts.
pub const FIELD_MANAGER: &str = "helm";

/// A cluster: a client, and what is known of the kinds that it serves. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    discovery: Arc<Discovery>,
}

impl Cluster {
    /// A cluster behind a client. Nothing is requested yet.
    pub fn new(client: Client) -> Self {
        let discovery = Arc::new(Discovery::new(client.clone()));
        Self { client, discovery }
    }

    /// The same cluster, seen by another client: one that impersonates a service account. What
    /// is known of kinds is shared.
    #[must_use]
    pub fn with_client(&self, client: Client) -> Self {
        Self {
            client,
            discovery: Arc::clone(&self.discovery),
        }
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Finds out how a kind is served. See [`Discovery::resolve`].
    pub async fn resolve(&self, gvk: &GroupVersionKind) -> Result<Arc<ApiKind>, DiscoveryError> {
        self.discovery.resolve(gvk).await
    }

    /// What templates see of the cluster, at most `max_age` old. See
    /// [`Discovery::capabilities`].
    pub async fn capabilities(&self, max_age: Duration) -> Result<Capabilities, DiscoveryError> {
        self.discovery.capabilities(max_age).await
    }

    /// Asks the API server for its version.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn ping(&self) -> Result<(), DiscoveryError> {
        self.discovery.ask_version().await
    }

    /// Tells that a custom resource definition or an API service has appeared, changed or gone:
    /// the kinds of this group, and the capabilities, are asked for again when next needed.
    pub fn group_changed(&self, group: &str) {
        self.discovery.group_changed(group);
    }

    /// Tells when other kinds are served than before. See [`Discovery::changes`].
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.discovery.changes()
    }

    /// How often what is served, and so the capabilities, was found to have changed.
    pub fn capabilities_epoch(&self) -> u64 {
        self.discovery.epoch()
    }

    /// What is known of the kinds that are served.
    pub(crate) fn discovery(&self) -> &Discovery {
        &self.discovery
    }

    /// The kind that is served under a plural, in any of its versions.
    async fn kind_of_plural(
        &self,
        group: &str,
        plural: &str,
    ) -> Result<Option<Arc<ApiKind>>, DiscoveryError> {
        self.discovery.kind_of_plural(group, plural).await
    }

    /// All kinds that can be listed in a namespace.
    async fn listable(&self) -> Result<Vec<Arc<ApiKind>>, DiscoveryError> {
        self.discovery.listable().await
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cluster")
    }
}

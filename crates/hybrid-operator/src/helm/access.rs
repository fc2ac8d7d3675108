//! What a controller of charts reads and writes through.

use std::collections::HashMap;
use std::sync::Mutex;

use kube::Client;

use super::events::EventSink;
use super::interest::Interests;
use crate::cluster::Cluster;
use crate::controller::{Registry, Source};
use crate::release::SecretStore;
use crate::render_pool::RenderPool;

/// The connections and caches of one controller.
pub(super) struct Access {
    pub(super) client: Client,
    pub(super) cluster: Cluster,
    /// Clusters as service accounts see them, by namespace and name of the account.
    pub(super) impersonated: Mutex<HashMap<(String, String), Cluster>>,
    /// The watches of dependents.
    pub(super) registry: Registry,
    /// The release records.
    pub(super) store: SecretStore,
    /// The custom resources.
    pub(super) source: Source,
    /// What the custom resources refer to.
    pub(super) interests: Interests,
    pub(super) events: EventSink,
    /// Where charts are rendered.
    pub(super) pool: RenderPool,
}

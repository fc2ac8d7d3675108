//! Cluster connections and caches of a chart controller.

use std::collections::HashMap;
use std::sync::Mutex;

use kube::Client;

use super::events::EventSink;
use super::interest::Interests;
use crate::cluster::Cluster;
use crate::controller::{Registry, Source};
use crate::release::SecretStore;
use crate::render_pool::RenderPool;

/// Connections and caches of one controller.
pub(super) struct Access {
    pub(super) client: Client,
    pub(super) cluster: Cluster,
    /// Impersonating clusters by namespace and name of the service account.
    pub(super) impersonated: Mutex<HashMap<(String, String), Cluster>>,
    /// Watches of dependents.
    pub(super) registry: Registry,
    /// Release records.
    pub(super) store: SecretStore,
    /// Custom resources.
    pub(super) source: Source,
    /// Watches of the objects that custom resources refer to.
    pub(super) interests: Interests,
    pub(super) events: EventSink,
    /// Threads that render charts.
    pub(super) pool: RenderPool,
}

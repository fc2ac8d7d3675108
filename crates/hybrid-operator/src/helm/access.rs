//! Cluster connections and caches of a chart controller.

use std::collections::HashMap;
use std::sync::Mutex;

use kube::Client;

use super::events::EventSink;
use super::interest::Interests;
use super::resources::Resources;
use crate::cluster::Cluster;
use crate::controller::{QueueHandle, Registry};
use crate::manager::ControllerContext;
use crate::native::Readers;
use crate::release::{RecordStore, ReleaseIndex};
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
    pub(super) store: RecordStore,
    /// Release records in other storages.
    pub(super) other_records: Vec<ReleaseIndex>,
    /// Custom resources.
    pub(super) resources: Resources,
    /// Objects that the extensions read.
    pub(super) readers: Readers,
    /// Watches of the objects that custom resources refer to.
    pub(super) interests: Interests,
    pub(super) events: EventSink,
    /// Threads that render charts.
    pub(super) pool: RenderPool,
}

impl Access {
    pub(super) fn new(
        context: &ControllerContext,
        queue: &QueueHandle,
        resources: Resources,
        readers: Readers,
        records: ReleaseIndex,
    ) -> Self {
        let connection = &context.connection;
        let (client, cluster) = (&connection.client, &connection.cluster);
        let mut other_records = context.caches.records.all();
        other_records.retain(|other| other.storage() != records.storage());
        Self {
            impersonated: Mutex::default(),
            registry: context.caches.registry.clone(),
            store: RecordStore::new(client.clone(), records),
            other_records,
            resources,
            readers,
            interests: Interests::new(cluster, queue.clone(), context.stop.clone()),
            events: EventSink::new(connection.events.clone()),
            pool: context.limits.pool.clone(),
            client: client.clone(),
            cluster: cluster.clone(),
        }
    }
}

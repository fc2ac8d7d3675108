//! Connections and caches of a chart controller.

use std::sync::Arc;

use helm_release::engine::{Shared, Waking};
use helm_release::release::ReleaseIndex;
use kube_objects::Key;
use kube_objects::diagnosis::Rounds;
use operator_runtime::controller::{Priority, QueueHandle};
use operator_runtime::manager::ControllerContext;
use operator_runtime::telemetry::traces::Tracer;

use super::events::EventSink;
use crate::process::Process;

/// Connections and caches of one controller.
pub(super) struct Access {
    /// Connections and caches of the releases.
    pub(super) releases: Arc<helm_release::engine::Access>,
    /// Release records in other storages.
    pub(super) other_records: Vec<ReleaseIndex>,
    pub(super) queue: QueueHandle,
    pub(super) events: EventSink,
    /// Examines releases that are not ready.
    pub(super) rounds: Rounds,
    /// Sends traces.
    pub(super) tracer: Tracer,
}

impl Access {
    pub(super) fn new(
        context: &ControllerContext,
        queue: &QueueHandle,
        records: ReleaseIndex,
    ) -> Self {
        let connection = &context.connection;
        let process = Process::of(context);
        let mut other_records = process.records.all();
        other_records.retain(|other| other.storage() != records.storage());
        let store = process.records.store(records);
        let shared = Shared {
            pool: process.pool,
            memory: process.memory,
            registry: context.caches.registry.clone(),
        };
        let waking = Waking {
            wake: {
                let queue = queue.clone();
                Arc::new(move |key: &Key| queue.add(key.clone(), Priority::Event))
            },
            restarts: queue.watch_restarts(),
            stop: context.stop.clone(),
        };
        let releases =
            helm_release::engine::Access::new(&connection.cluster, store, shared, waking);
        Self {
            releases: Arc::new(releases),
            other_records,
            queue: queue.clone(),
            events: EventSink::new(connection.events.clone(), context.settings().cloned()),
            rounds: context.rounds.clone(),
            tracer: context.tracer.clone(),
        }
    }
}

//! Metrics of work queues, with the names and labels of controller-runtime.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    name: String,
    controller: String,
}

/// State of a queue at the time of a scrape.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct QueueState {
    /// Number of keys that wait.
    pub(crate) depth: usize,
    /// Time that the reconciles in progress have taken, all together.
    pub(crate) unfinished: Duration,
    /// Time that the longest of them has taken.
    pub(crate) longest: Duration,
}

/// Returns the state of a queue, or `None` if there is no such queue any more.
type StateOf = Box<dyn Fn() -> Option<QueueState> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct QueueMetrics {
    depth: Family<QueueLabels, Gauge>,
    adds: Family<QueueLabels, Counter>,
    waited: Family<QueueLabels, Histogram>,
    worked: Family<QueueLabels, Histogram>,
    unfinished: Family<QueueLabels, Gauge<f64, AtomicU64>>,
    longest: Family<QueueLabels, Gauge<f64, AtomicU64>>,
    retries: Family<QueueLabels, Counter>,
    queues: Arc<Mutex<BTreeMap<String, StateOf>>>,
}

impl fmt::Debug for QueueMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueMetrics").finish_non_exhaustive()
    }
}

impl Default for QueueMetrics {
    fn default() -> Self {
        let buckets = || Histogram::new(exponential_buckets(1e-8, 10.0, 12));
        Self {
            depth: Family::default(),
            adds: Family::default(),
            waited: Family::new_with_constructor(buckets),
            worked: Family::new_with_constructor(buckets),
            unfinished: Family::default(),
            longest: Family::default(),
            retries: Family::default(),
            queues: Arc::default(),
        }
    }
}

impl QueueMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        // The encoder appends `_total` to the names of counters.
        registry.register(
            "workqueue_depth",
            "Number of keys waiting to be reconciled",
            self.depth.clone(),
        );
        registry.register(
            "workqueue_adds",
            "Number of keys added to the queue",
            self.adds.clone(),
        );
        registry.register(
            "workqueue_queue_duration_seconds",
            "Time that keys wait in the queue",
            self.waited.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "Time that the work on keys takes",
            self.worked.clone(),
        );
        registry.register(
            "workqueue_unfinished_work_seconds",
            "Time that the work in progress has taken, summed up over its keys",
            self.unfinished.clone(),
        );
        registry.register(
            "workqueue_longest_running_processor_seconds",
            "Time that the longest work in progress has taken",
            self.longest.clone(),
        );
        registry.register(
            "workqueue_retries",
            "Number of keys added to the queue with a delay",
            self.retries.clone(),
        );
    }

    /// Reports the queue `name`, instead of a former one of that name.
    pub(super) fn watch(
        &self,
        name: &str,
        state: impl Fn() -> Option<QueueState> + Send + Sync + 'static,
    ) {
        self.queues.lock().insert(name.to_owned(), Box::new(state));
        let labels = labels(name);
        drop(self.adds.get_or_create(&labels));
        drop(self.waited.get_or_create(&labels));
        drop(self.worked.get_or_create(&labels));
        drop(self.retries.get_or_create(&labels));
    }

    pub(super) fn added(&self, name: &str, keys: u64) {
        self.adds.get_or_create(&labels(name)).inc_by(keys);
    }

    pub(super) fn taken(&self, name: &str, waited: Duration) {
        let histogram = self.waited.get_or_create(&labels(name));
        histogram.observe(waited.as_secs_f64());
    }

    pub(super) fn worked(&self, name: &str, worked: Duration) {
        let histogram = self.worked.get_or_create(&labels(name));
        histogram.observe(worked.as_secs_f64());
    }

    pub(super) fn retried(&self, name: &str) {
        self.retries.get_or_create(&labels(name)).inc();
    }

    /// Reads the state of all queues.
    pub(super) fn refresh(&self) {
        let mut gone = Vec::new();
        let mut queues = self.queues.lock();
        for (name, read) in queues.iter() {
            let found = read();
            if found.is_none() {
                gone.push(name.clone());
            }
            let (labels, state) = (labels(name), found.unwrap_or_default());
            let depth = i64::try_from(state.depth).unwrap_or(i64::MAX);
            self.depth.get_or_create(&labels).set(depth);
            let unfinished = self.unfinished.get_or_create(&labels);
            unfinished.set(state.unfinished.as_secs_f64());
            let longest = self.longest.get_or_create(&labels);
            longest.set(state.longest.as_secs_f64());
        }
        queues.retain(|name, _| !gone.contains(name));
    }
}

/// controller-runtime uses the name of the controller for both labels.
fn labels(name: &str) -> QueueLabels {
    QueueLabels {
        name: name.to_owned(),
        controller: name.to_owned(),
    }
}

//! Gauges of custom resources: `resource_created_at_seconds`, as operator-lib reports it, and
//! `hybrid_operator_output`, the numbers among the outputs of releases. Read from the caches at each scrape, so that
//! they take no memory of their own.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// Labels of a custom resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub struct ResourceLabels {
    /// API group of its kind.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its namespace; empty if it is cluster-scoped.
    pub namespace: String,
    /// API version of its kind, without the group.
    pub version: String,
}

/// Labels of an output in the status of a custom resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub struct OutputLabels {
    /// Name of the output.
    pub output: String,
    /// Custom resource.
    #[prometheus(flatten)]
    pub resource: ResourceLabels,
}

/// Returns the values of the custom resources of a cache, or `None` if the cache is gone.
type ListValues<L, V> = Box<dyn Fn() -> Option<Vec<(L, V)>> + Send + Sync>;

/// A gauge of the custom resources of all caches.
pub struct ResourceGauge<L, V> {
    name: &'static str,
    help: &'static str,
    caches: Arc<Mutex<Vec<ListValues<L, V>>>>,
}

/// Times at which custom resources were created, in seconds since 1970.
pub type ResourceAges = ResourceGauge<ResourceLabels, i64>;

/// Numbers in the outputs of releases.
pub type ResourceOutputs = ResourceGauge<OutputLabels, f64>;

impl<L, V> ResourceGauge<L, V> {
    pub(super) fn new(name: &'static str, help: &'static str) -> Self {
        Self {
            name,
            help,
            caches: Arc::default(),
        }
    }

    /// Reports the custom resources of a cache.
    pub fn watch(&self, list: impl Fn() -> Option<Vec<(L, V)>> + Send + Sync + 'static) {
        self.caches.lock().push(Box::new(list));
    }
}

impl<L, V> Clone for ResourceGauge<L, V> {
    fn clone(&self) -> Self {
        Self {
            caches: Arc::clone(&self.caches),
            ..*self
        }
    }
}

impl<L, V> fmt::Debug for ResourceGauge<L, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceGauge").finish_non_exhaustive()
    }
}

impl<L, V> Collector for ResourceGauge<L, V>
where
    L: EncodeLabelSet + Ord + 'static,
    V: EncodeGaugeValue + 'static,
{
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut caches = self.caches.lock();
        // During a reload two caches may hold the same custom resource.
        let mut found = BTreeMap::new();
        caches.retain(|list| match list() {
            Some(values) => {
                found.extend(values);
                true
            }
            None => false,
        });
        let mut metric =
            encoder.encode_descriptor(self.name, self.help, None, MetricType::Gauge)?;
        for (labels, value) in found {
            let gauge = ConstGauge::new(value);
            gauge.encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

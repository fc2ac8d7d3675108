//! `resource_created_at_seconds`: when each custom resource was created, as operator-lib reports it.
//! Read from the caches at each scrape, so that it takes no memory of its own.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
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

/// Returns the custom resources of a cache with the seconds since 1970 at which they were created, or
/// `None` if the cache is gone.
type ListResources = Box<dyn Fn() -> Option<Vec<(ResourceLabels, i64)>> + Send + Sync>;

/// The caches of custom resources.
#[derive(Clone, Default)]
pub struct ResourceAges(Arc<Mutex<Vec<ListResources>>>);

impl ResourceAges {
    /// Reports the custom resources of a cache.
    pub fn watch(
        &self,
        list: impl Fn() -> Option<Vec<(ResourceLabels, i64)>> + Send + Sync + 'static,
    ) {
        let mut caches = self.0.lock();
        caches.push(Box::new(list));
    }
}

impl fmt::Debug for ResourceAges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResourceAges").finish_non_exhaustive()
    }
}

impl Collector for ResourceAges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut caches = self.0.lock();
        // During a reload two caches may hold the same custom resource.
        let mut found = BTreeMap::new();
        caches.retain(|list| match list() {
            Some(resources) => {
                found.extend(resources);
                true
            }
            None => false,
        });
        let mut metric = encoder.encode_descriptor(
            "resource_created_at_seconds",
            "Time at which a custom resource was created",
            None,
            MetricType::Gauge,
        )?;
        for (labels, seconds) in found {
            let gauge = ConstGauge::new(seconds);
            gauge.encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

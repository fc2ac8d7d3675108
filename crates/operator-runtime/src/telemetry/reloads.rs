//! Metrics of reloads of the watches file and its charts.

use std::time::UNIX_EPOCH;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabel {
    controller: String,
}

/// Metrics of reloads.
#[derive(Clone)]
pub struct ReloadMetrics {
    total: Family<ResultLabel, Counter>,
    last_success: Gauge,
    charts_missing: Gauge,
    waiting: Family<ControllerLabel, Gauge>,
}

impl ReloadMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            total: Family::default(),
            last_success: Gauge::default(),
            charts_missing: Gauge::default(),
            waiting: Family::default(),
        };
        // The encoder appends `_total` to the names of counters.
        registry.register(
            "hybrid_operator_reload",
            "Number of changes of the watches file or its charts by result",
            metrics.total.clone(),
        );
        registry.register(
            "hybrid_operator_reload_last_success_timestamp_seconds",
            "Time at which the watches file and its charts were last loaded",
            metrics.last_success.clone(),
        );
        registry.register(
            "hybrid_operator_charts_missing",
            "Number of entries of the watches file that do not run because their charts could not be fetched yet",
            metrics.charts_missing.clone(),
        );
        registry.register(
            "hybrid_operator_rollout_waiting",
            "Number of releases that wait for a changed chart or changed options",
            metrics.waiting.clone(),
        );
        metrics
    }

    /// Records that the files were loaded at the start.
    pub fn started(&self) {
        let now = host::now().duration_since(UNIX_EPOCH);
        let seconds = now.map_or(0, |now| now.as_secs());
        self.last_success
            .set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }

    /// Counts a change that was taken.
    pub fn succeeded(&self) {
        self.started();
        self.total
            .get_or_create(&ResultLabel { result: "success" })
            .inc();
    }

    /// Counts a change that was refused.
    pub fn refused(&self) {
        self.total
            .get_or_create(&ResultLabel { result: "refused" })
            .inc();
    }

    /// Sets the number of entries that do not run.
    pub fn charts_missing(&self, entries: usize) {
        let entries = i64::try_from(entries).unwrap_or(i64::MAX);
        self.charts_missing.set(entries);
    }

    /// Sets the number of releases of a controller that wait.
    pub fn waiting(&self, controller: &str, waiting: usize) {
        let label = ControllerLabel {
            controller: controller.to_owned(),
        };
        let waiting = i64::try_from(waiting).unwrap_or(i64::MAX);
        self.waiting.get_or_create(&label).set(waiting);
    }
}

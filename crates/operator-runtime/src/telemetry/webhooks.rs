//! Metrics of webhooks, with the names that controller-runtime uses.

use tokio::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WebhookLabel {
    webhook: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    webhook: String,
    code: u16,
}

#[derive(Clone)]
pub(crate) struct WebhookMetrics {
    requests: Family<CodeLabels, Counter>,
    seconds: Family<WebhookLabel, Histogram>,
    in_flight: Family<WebhookLabel, Gauge>,
}

impl WebhookMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let buckets = || {
            Histogram::new([
                0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
            ])
        };
        let metrics = Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(buckets),
            in_flight: Family::default(),
        };
        // The encoder appends `_total` to the names of counters.
        registry.register(
            "controller_runtime_webhook_requests",
            "Number of requests to webhooks by HTTP status code",
            metrics.requests.clone(),
        );
        registry.register(
            "controller_runtime_webhook_latency_seconds",
            "Duration of requests to webhooks in seconds",
            metrics.seconds.clone(),
        );
        registry.register(
            "controller_runtime_webhook_requests_in_flight",
            "Number of requests to webhooks in progress",
            metrics.in_flight.clone(),
        );
        metrics
    }

    /// Begins to measure a request.
    pub(crate) fn begin(&self, webhook: &str) -> WebhookTimer {
        let label = WebhookLabel {
            webhook: webhook.to_owned(),
        };
        self.in_flight.get_or_create(&label).inc();
        WebhookTimer {
            metrics: self.clone(),
            label,
            start: Instant::now(),
        }
    }
}

/// Measures a request in progress. One that its client gives up has no code.
pub(crate) struct WebhookTimer {
    metrics: WebhookMetrics,
    label: WebhookLabel,
    start: Instant,
}

impl WebhookTimer {
    pub(crate) fn end(self, code: u16) {
        let seconds = self.start.elapsed().as_secs_f64();
        self.metrics
            .seconds
            .get_or_create(&self.label)
            .observe(seconds);
        let webhook = self.label.webhook.clone();
        let labels = CodeLabels { webhook, code };
        self.metrics.requests.get_or_create(&labels).inc();
    }
}

impl Drop for WebhookTimer {
    fn drop(&mut self) {
        self.metrics.in_flight.get_or_create(&self.label).dec();
    }
}

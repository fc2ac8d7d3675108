//! Serves the webhooks of a process: at its start, or once it has some.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube::Client;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::options::Options;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::webhooks::WebhookMetrics;
use crate::webhook::{self, WebhookError, WebhookOptions, Webhooks};

/// Webhooks that are served, or will be.
pub(super) struct Serving {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Serving {
    /// Answers the requests in progress, and stops.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

/// Serves webhooks as soon as there are any. The process is ready once they have a certificate.
pub(super) fn serve(
    webhooks: Webhooks,
    client: Client,
    options: &Options,
    metrics: &Metrics,
    certified: Arc<AtomicBool>,
) -> Result<Serving, WebhookError> {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let site = Site {
        client,
        options: options.webhooks.clone(),
        operator: options.operator_name.clone(),
        namespace: options.operator_namespace.clone(),
        namespaces: options.watch_namespaces.clone(),
        metrics: metrics.webhooks(),
        certified,
    };
    // What keeps webhooks from being served ends a process that starts.
    let task = if webhooks.is_empty() {
        tokio::spawn(async move {
            let Some(()) = stopped.run_until_cancelled(webhooks.expected()).await else {
                return;
            };
            match site.start(webhooks) {
                Ok(running) => until_stopped(running, &stopped).await,
                Err(error) => error!(
                    error = &error as &dyn std::error::Error,
                    "the webhooks are not served; restart the operator when this is corrected"
                ),
            }
        })
    } else {
        let running = site.start(webhooks)?;
        tokio::spawn(async move { until_stopped(running, &stopped).await })
    };
    Ok(Serving { stop, task })
}

async fn until_stopped(running: webhook::Running, stopped: &CancellationToken) {
    stopped.cancelled().await;
    running.stop().await;
}

/// Inputs of the webhooks.
struct Site {
    client: Client,
    options: WebhookOptions,
    operator: String,
    namespace: Option<String>,
    namespaces: Vec<String>,
    metrics: WebhookMetrics,
    certified: Arc<AtomicBool>,
}

impl Site {
    fn start(self, webhooks: Webhooks) -> Result<webhook::Running, WebhookError> {
        let environment = webhook::Environment {
            client: self.client,
            options: &self.options,
            operator: &self.operator,
            namespace: self.namespace.as_deref(),
            namespaces: &self.namespaces,
            metrics: self.metrics,
        };
        let running = webhooks.start(&environment)?;
        let (certificate, certified) = (running.ready(), self.certified);
        tokio::spawn(async move {
            certificate.await;
            certified.store(true, Ordering::SeqCst);
        });
        Ok(running)
    }
}

//! Sends spans over OTLP. The queue is bounded, and a reconcile never waits for it.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry::{Key, KeyValue};
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Destination, TraceError, Tracer};
use crate::telemetry::metrics::RegisterMetrics;
use kube_objects::with_causes;

/// Maximum number of spans that wait to be sent.
const QUEUE: usize = 2048;
/// Maximum number of spans of a request.
const BATCH: usize = 512;
/// Time that spans are collected before they are sent.
const DELAY: Duration = Duration::from_secs(1);
/// Time limit of a request, with its retries.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Counters of spans by what became of them.
#[derive(Debug, Clone, Default)]
struct SpanCounts(Family<ResultLabel, Counter>);

impl SpanCounts {
    fn new() -> Self {
        let counts = Self::default();
        for result in ["sent", "failed", "dropped"] {
            counts.add(result, 0);
        }
        counts
    }

    fn register(&self, registry: &mut Registry) {
        // The encoder appends `_total` to the names of counters.
        registry.register(
            "hybrid_operator_trace_spans",
            "Number of spans by result: sent, failed or dropped",
            self.0.clone(),
        );
    }

    fn add(&self, result: &'static str, number: usize) {
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        self.0.get_or_create(&ResultLabel { result }).inc_by(number);
    }
}

/// Takes spans.
pub(super) struct Sink {
    spans: mpsc::Sender<SpanData>,
    counts: SpanCounts,
}

impl Sink {
    /// Creates a sink whose spans a test receives.
    #[cfg(test)]
    pub(super) fn collecting(queue: usize) -> (Self, mpsc::Receiver<SpanData>) {
        let (spans, received) = mpsc::channel(queue);
        let counts = SpanCounts::new();
        (Self { spans, counts }, received)
    }

    /// Queues spans. Those that do not fit are counted and dropped.
    pub(super) fn send(&self, spans: impl IntoIterator<Item = SpanData>) {
        for span in spans {
            if self.spans.try_send(span).is_err() {
                self.counts.add("dropped", 1);
            }
        }
    }
}

/// The task that sends spans.
pub(crate) struct Sending(Option<Running>);

struct Running {
    closing: CancellationToken,
    task: JoinHandle<()>,
}

impl Sending {
    /// Sends what is queued, no longer than `within`.
    pub(crate) async fn finish(self, within: Duration) {
        let Some(Running { closing, mut task }) = self.0 else {
            return;
        };
        closing.cancel();
        if tokio::time::timeout(within, &mut task).await.is_err() {
            task.abort();
            warn!(?within, "not all traces were sent before the exit");
        }
    }
}

/// Starts to send spans, if there is a destination.
pub(crate) async fn start(
    destination: Option<Destination>,
    metrics: &mut Vec<RegisterMetrics>,
) -> Result<(Tracer, Sending), TraceError> {
    let Some(destination) = destination else {
        return Ok((Tracer::default(), Sending(None)));
    };
    let cause = LastCause::default();
    let exporter = exporter(&destination, &cause).await?;
    let counts = SpanCounts::new();
    let registered = counts.clone();
    metrics.push(Box::new(move |registry| registered.register(registry)));
    let (sender, spans) = mpsc::channel(QUEUE);
    let closing = CancellationToken::new();
    let worker = Worker {
        exporter,
        cause,
        url: destination.url,
        counts: counts.clone(),
        is_failing: false,
    };
    let sink = Sink {
        spans: sender,
        counts,
    };
    let task = tokio::spawn(worker.run(spans, closing.clone()));
    Ok((Tracer::to(sink), Sending(Some(Running { closing, task }))))
}

/// Creates what sends spans.
async fn exporter(
    destination: &Destination,
    cause: &LastCause,
) -> Result<SpanExporter, TraceError> {
    let wrong = |reason: String| TraceError::Endpoint {
        url: destination.url.clone(),
        reason,
    };
    let is_https = destination.url.starts_with("https:");
    // Reads files.
    let connector = host::blocking(move || connector(is_https)).await;
    let connector = connector.map_err(|error| wrong(error.to_string()))?;
    let connector = connector.map_err(|error| wrong(error.to_string()))?;
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_endpoint(&destination.url)
        .with_timeout(TIMEOUT)
        .with_http_client(ExplainingHttp {
            http: HyperClient::new(connector, TIMEOUT, None),
            cause: cause.clone(),
        })
        .build()
        .map_err(|error| wrong(error.to_string()))?;
    exporter.set_resource(&resource(destination));
    Ok(exporter)
}

/// Reason why the last request got no answer.
#[derive(Debug, Clone, Default)]
struct LastCause(Arc<Mutex<Option<String>>>);

impl LastCause {
    fn replace(&self, cause: Option<String>) -> Option<String> {
        let mut last = self.0.lock();
        std::mem::replace(&mut *last, cause)
    }
}

/// Sends requests, and keeps why one got no answer: the exporter tells only that.
#[derive(Debug)]
struct ExplainingHttp {
    http: HyperClient<HttpsConnector<HttpConnector>>,
    cause: LastCause,
}

impl HttpClient for ExplainingHttp {
    fn send_bytes<'client, 'answer>(
        &'client self,
        request: Request<Bytes>,
    ) -> BoxFuture<'answer, Result<Response<Bytes>, HttpError>>
    where
        'client: 'answer,
        Self: 'answer,
    {
        Box::pin(async move {
            let answer = self.http.send_bytes(request).await;
            let cause = answer
                .as_ref()
                .err()
                .map(|error| with_causes(error.as_ref()));
            self.cause.replace(cause);
            answer
        })
    }
}

/// Creates a connector with the certificates of the system, and the crypto provider that all connections of
/// the process use.
fn connector(is_https: bool) -> Result<HttpsConnector<HttpConnector>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    if is_https {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(tcp))
}

/// Returns what all spans of this process are marked with: the environment's settings, and the names of the
/// operator where it has none.
fn resource(destination: &Destination) -> Resource {
    let found = Resource::builder().build();
    let name = Key::from_static_str("service.name");
    let is_named = found
        .get(&name)
        .is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let mut own = vec![KeyValue::new(
        "service.instance.id",
        destination.instance.clone(),
    )];
    if let Some(namespace) = &destination.namespace {
        own.push(KeyValue::new("k8s.namespace.name", namespace.clone()));
    }
    own.retain(|attribute| found.get(&attribute.key).is_none());
    if !is_named {
        own.push(KeyValue::new(name, destination.service.clone()));
    }
    Resource::builder().with_attributes(own).build()
}

/// Sends spans in batches.
struct Worker {
    exporter: SpanExporter,
    cause: LastCause,
    url: String,
    counts: SpanCounts,
    /// Whether the last request failed, which is logged once.
    is_failing: bool,
}

impl Worker {
    async fn run(mut self, mut spans: mpsc::Receiver<SpanData>, closing: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH);
        while !closing.is_cancelled() {
            tokio::select! {
                biased;
                received = spans.recv_many(&mut batch, BATCH) => if received == 0 {
                    return;
                },
                () = closing.cancelled() => break,
            }
            let rest = async {
                while batch.len() < BATCH {
                    let left = BATCH - batch.len();
                    if spans.recv_many(&mut batch, left).await == 0 {
                        break;
                    }
                }
            };
            let rest = tokio::time::timeout(DELAY, rest);
            closing.run_until_cancelled(rest).await;
            self.send(&mut batch).await;
        }
        spans.close();
        while spans.recv_many(&mut batch, BATCH).await > 0 {
            self.send(&mut batch).await;
        }
    }

    async fn send(&mut self, batch: &mut Vec<SpanData>) {
        let sent = std::mem::replace(batch, Vec::with_capacity(BATCH));
        let number = sent.len();
        match self.exporter.export(sent).await {
            Ok(()) => {
                self.counts.add("sent", number);
                if self.is_failing {
                    info!(endpoint = self.url, "traces are sent again");
                }
                self.is_failing = false;
            }
            Err(error) => {
                self.counts.add("failed", number);
                let cause = self.cause.replace(None);
                let error = cause.unwrap_or_else(|| error.to_string());
                if !self.is_failing {
                    warn!(
                        endpoint = self.url,
                        error,
                        "cannot send traces; they are counted and lost until the endpoint answers"
                    );
                }
                self.is_failing = true;
            }
        }
    }
}

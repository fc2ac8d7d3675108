use std::collections::BTreeMap;
use std::time::Duration;

use host::phases::{self, End, Reason};
use hybrid_operator_test::http_server::{HttpServer, Received, Reply};
use hybrid_operator_test::wait;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_sdk::trace::SpanData;
use prometheus_client::registry::Registry;
use prost::Message as _;
use tokio::sync::mpsc;

use super::exporter::{Sending, Sink};
use super::{Destination, History, Tracer};

const LIMIT: Duration = Duration::from_secs(30);

/// An error with a value in its message.
struct Broken;

impl Reason for Broken {
    fn reason(&self) -> &'static str {
        "Broken"
    }
}

fn widget(generation: i64) -> DynamicObject {
    let kind = GroupVersionKind::gvk("test.example.com", "v1", "Widget");
    let mut widget = DynamicObject::new("one", &ApiResource::from_gvk(&kind));
    widget.metadata.uid = Some("b1d2".to_owned());
    widget.metadata.generation = Some(generation);
    widget
}

/// A tracer whose spans a test receives.
struct Collected {
    tracer: Tracer,
    spans: mpsc::Receiver<SpanData>,
    history: History,
}

impl Collected {
    fn new() -> Self {
        let (sink, spans) = Sink::collecting(64);
        Self {
            tracer: Tracer::to(sink),
            spans,
            history: History::default(),
        }
    }

    /// Runs an attempt for a generation.
    async fn run<F>(&mut self, generation: i64, work: F) -> Result<(), Broken>
    where
        F: Future<Output = Result<(), Broken>>,
    {
        let widget = widget(generation);
        let attempt = self
            .tracer
            .attempt(&mut self.history, &widget.metadata, work);
        attempt.await
    }

    /// Runs an attempt that ends so, and returns the names of the spans that it sends.
    async fn attempt(
        &mut self,
        generation: i64,
        step: &'static str,
        end: End,
        changes: bool,
    ) -> Vec<String> {
        let work = async {
            phases::span(step)
                .run(async { Ok::<_, Broken>(()) })
                .await?;
            if changes {
                phases::changed();
            }
            phases::ended(step, Some(1), end);
            Ok(())
        };
        assert!(self.run(generation, work).await.is_ok());
        self.sent()
            .iter()
            .map(|span| span.name.to_string())
            .collect()
    }

    fn sent(&mut self) -> Vec<SpanData> {
        std::iter::from_fn(|| self.spans.try_recv().ok()).collect()
    }
}

#[tokio::test]
async fn attempts_that_change_nothing_and_end_as_before_have_no_span() {
    let mut collected = Collected::new();
    let failed = End::Failed("InstallError");
    for (step, end, changes, expected) in [
        ("settle", End::Done, false, &[][..]),
        ("install", End::Waiting, true, &["reconcile", "install"]),
        ("resume", End::Waiting, false, &["reconcile", "resume"]),
        ("resume", End::Waiting, false, &[]),
        ("resume", End::Waiting, false, &[]),
        ("resume", End::Done, true, &["wait", "reconcile", "resume"]),
        ("settle", End::Done, false, &[]),
        ("refuse", failed, false, &["reconcile", "refuse"]),
        ("refuse", failed, false, &[]),
        ("wait", End::Idle, false, &[]),
        ("refuse", failed, false, &[]),
        ("retry", failed, true, &["reconcile", "retry"]),
        ("retry", failed, true, &["reconcile", "retry"]),
    ] {
        let sent = collected.attempt(1, step, end, changes).await;
        assert_eq!(sent, expected, "{step} {end:?}");
    }
}

#[tokio::test]
async fn the_trace_follows_from_the_uid_and_the_generation() {
    let mut collected = Collected::new();
    let mut traces = Vec::new();
    for generation in [1, 2] {
        collected.history = History::default();
        let work = async {
            phases::changed();
            Err(Broken)
        };
        assert!(collected.run(generation, work).await.is_err());
        let sent = collected.sent();
        assert_eq!(sent.len(), 1);
        traces.push(sent[0].span_context.trace_id().to_string());
    }
    // printf b1d2/1 | sha256sum
    assert_eq!(traces[0], "705b1d8efcab0c4ab7e0eab8030423d1");
    assert_ne!(traces[0], traces[1]);
}

#[tokio::test]
async fn a_wait_that_a_new_generation_ends_belongs_to_the_old_one() {
    let mut collected = Collected::new();
    collected.attempt(1, "install", End::Waiting, true).await;
    let work = async {
        phases::changed();
        phases::ended("upgrade", Some(2), End::Done);
        Ok::<_, Broken>(())
    };
    assert!(collected.run(2, work).await.is_ok());
    let sent = collected.sent();
    let of = |name: &str| {
        let span = sent.iter().find(|span| span.name == name).unwrap();
        span.span_context.trace_id()
    };
    assert_ne!(of("wait"), of("reconcile"));
}

#[tokio::test]
async fn phases_are_nested_and_their_errors_are_named() {
    let mut collected = Collected::new();
    let work = async {
        let inner = async {
            phases::failed("HookFailed");
            Ok::<_, Broken>(())
        };
        let outer = async {
            phases::span("hook")
                .text("name", &"x".repeat(600))
                .run(inner)
                .await?;
            Err::<(), _>(Broken)
        };
        phases::span("install").run(outer).await
    };
    assert!(collected.run(1, work).await.is_err());
    let sent = collected.sent();
    let by_name: BTreeMap<_, _> = sent.iter().map(|span| (&*span.name, span)).collect();
    let (root, install, hook) = (by_name["reconcile"], by_name["install"], by_name["hook"]);
    assert_eq!(install.parent_span_id, root.span_context.span_id());
    assert_eq!(hook.parent_span_id, install.span_context.span_id());
    let error = |span: &SpanData| format!("{:?}", span.status);
    assert!(error(root).contains("ReconcileError"), "{root:?}");
    assert!(error(install).contains("Broken"), "{install:?}");
    assert!(error(hook).contains("HookFailed"), "{hook:?}");
    assert_eq!(hook.attributes[0].value.as_str().len(), 512);
}

#[tokio::test]
async fn an_attempt_that_is_dropped_has_a_span_that_says_so() {
    let mut collected = Collected::new();
    let never = std::future::pending::<Result<(), Broken>>();
    let attempt = collected.run(1, never);
    let late = tokio::time::timeout(Duration::from_millis(1), attempt).await;
    assert!(late.is_err());
    let sent = collected.sent();
    assert_eq!(sent.len(), 1);
    assert!(format!("{:?}", sent[0].status).contains("Cancelled"));
}

fn destination(url: String) -> Destination {
    Destination {
        url,
        service: "memcached-operator".to_owned(),
        instance: "pod-1".to_owned(),
        namespace: Some("system".to_owned()),
    }
}

/// Starts to send spans, and returns the metrics as well.
async fn started(url: String) -> (Tracer, Sending, Registry) {
    let mut metrics = Vec::new();
    let started = super::start(Some(destination(url)), &mut metrics).await;
    let (tracer, sending) = started.unwrap();
    let mut registry = Registry::default();
    for register in metrics {
        register(&mut registry);
    }
    (tracer, sending, registry)
}

fn counted(registry: &Registry, result: &str) -> u64 {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    let line = format!("hybrid_operator_trace_spans_total{{result=\"{result}\"}} ");
    let mut lines = text.lines();
    let count = lines.find_map(|found| found.strip_prefix(&line));
    count.unwrap().parse().unwrap()
}

async fn one_attempt(tracer: &Tracer) {
    let (mut history, widget) = (History::default(), widget(1));
    let attempt = tracer.attempt(&mut history, &widget.metadata, async {
        phases::changed();
        Ok::<_, Broken>(())
    });
    assert!(attempt.await.is_ok());
}

#[tokio::test]
async fn spans_are_posted_as_protobuf_with_the_name_of_the_operator() {
    let collector = HttpServer::start(|_: &Received| Reply::body(Vec::new())).unwrap();
    let (tracer, sending, registry) = started(collector.url("/v1/traces")).await;
    one_attempt(&tracer).await;
    // Sent at once, not after the delay.
    sending.finish(LIMIT).await;
    let received = collector.received();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].target, "/v1/traces");
    let expected = "application/x-protobuf";
    assert_eq!(received[0].headers["content-type"], expected);
    let request = ExportTraceServiceRequest::decode(received[0].body.as_slice()).unwrap();
    let resource = request.resource_spans[0].resource.clone().unwrap();
    let attributes = resource.attributes.into_iter();
    let attributes: BTreeMap<_, _> = attributes
        .filter_map(|one| match one.value?.value? {
            Attribute::StringValue(text) => Some((one.key, text)),
            _ => None,
        })
        .collect();
    assert_eq!(attributes["service.name"], "memcached-operator");
    assert_eq!(attributes["service.instance.id"], "pod-1");
    assert_eq!(attributes["k8s.namespace.name"], "system");
    assert_eq!(counted(&registry, "sent"), 1);
    // After the end, nothing waits: what comes is dropped.
    one_attempt(&tracer).await;
    assert_eq!(counted(&registry, "dropped"), 1);
}

#[tokio::test]
async fn spans_beyond_the_queue_are_dropped_and_counted_and_the_exit_does_not_wait_for_long() {
    let silent = HttpServer::start(|_: &Received| Reply::Silence).unwrap();
    let (tracer, sending, registry) = started(silent.url("/v1/traces")).await;
    one_attempt(&tracer).await;
    let asked = async || !silent.received().is_empty();
    wait::until(LIMIT, "a request", asked).await.unwrap();
    for _ in 0..3000 {
        one_attempt(&tracer).await;
    }
    assert_eq!(counted(&registry, "dropped"), 3000 - 2048);
    sending.finish(Duration::from_millis(10)).await;
    assert_eq!(counted(&registry, "sent"), 0);
}

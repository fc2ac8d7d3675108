//! Attempts to reconcile a custom resource: which are sent, and how long the release waits between them.

use std::mem;
use std::sync::Arc;
use std::time::SystemTime;

use host::phases::{Attribute, Attributes, End, Phase, Recorded, Recording, random_id};
use kube::core::ObjectMeta;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use sha2::{Digest, Sha256};

use super::exporter::Sink;

/// Sends the spans of attempts, if there is an endpoint.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Sink>>);

/// Earlier attempts of a custom resource, as far as they are known.
#[derive(Debug, Clone, Default)]
pub struct History {
    trace: Option<TraceId>,
    /// The step of the last attempt, and how it ended.
    last: Option<(&'static str, End)>,
    wait: Option<Wait>,
}

/// A release that waits.
#[derive(Debug, Clone)]
struct Wait {
    trace: TraceId,
    /// The span of the attempt that began it.
    parent: u64,
    since: SystemTime,
    attributes: Attributes,
}

impl Tracer {
    pub(super) fn to(sink: Sink) -> Self {
        Self(Some(Arc::new(sink)))
    }

    /// Runs an attempt to reconcile the object with this metadata, and sends its spans unless it changed nothing and ended
    /// as the one before.
    pub async fn attempt<F, T, E>(
        &self,
        history: &mut History,
        metadata: &ObjectMeta,
        future: F,
    ) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        let Some(sink) = &self.0 else {
            return future.await;
        };
        let trace = trace_of(metadata);
        let attempt = Attempt {
            sink: Arc::clone(sink),
            recording: Arc::default(),
            trace,
            id: random_id(),
            attributes: attributes_of(metadata),
            start: host::now(),
            is_over: false,
        };
        let recording = Arc::clone(&attempt.recording);
        let result = recording.run(attempt.id, Box::pin(future)).await;
        attempt.end(history, result.is_err());
        result
    }
}

/// An attempt that has begun. If it is dropped before its end, its span says so.
struct Attempt {
    sink: Arc<Sink>,
    recording: Arc<Recording>,
    trace: TraceId,
    id: u64,
    attributes: Attributes,
    start: SystemTime,
    is_over: bool,
}

impl Attempt {
    fn end(mut self, history: &mut History, failed: bool) {
        self.is_over = true;
        let mut recorded = self.recording.take();
        let (now, trace) = (host::now(), self.trace);
        let (step, end) = ending(recorded.end, failed);
        if history.trace != Some(trace) {
            self.sink.send(history.end_wait(now));
            *history = History {
                trace: Some(trace),
                ..History::default()
            };
        }
        if recorded.changed || end != End::Waiting {
            self.sink.send(history.end_wait(now));
        }
        let is_sent = history.is_news(step, end, recorded.changed);
        if end == End::Waiting && history.wait.is_none() {
            history.wait = Some(Wait {
                trace,
                parent: self.id,
                since: now,
                attributes: wait_attributes(step, recorded.waits_for.take()),
            });
        }
        if end != End::Idle {
            history.last = Some((step, end));
        }
        if is_sent {
            let error = match end {
                End::Failed(reason) => Some(reason),
                End::Done | End::Waiting | End::Idle => None,
            };
            self.send(recorded, step, error, now);
        }
    }

    fn send(
        &mut self,
        recorded: Recorded,
        step: &'static str,
        error: Option<&'static str>,
        now: SystemTime,
    ) {
        let mut attributes = mem::take(&mut self.attributes);
        attributes.extend(recorded.attributes);
        attributes.push(("hybrid_operator.step", Attribute::Text(step.to_owned())));
        if recorded.lost > 0 {
            let lost = i64::try_from(recorded.lost).unwrap_or(i64::MAX);
            attributes.push(("hybrid_operator.lost_spans", Attribute::Number(lost)));
        }
        let root = Phase {
            name: "reconcile",
            ids: (self.id, 0),
            timing: (self.start, now),
            attributes,
            error,
        };
        let phases = std::iter::once(root).chain(recorded.phases);
        let trace = self.trace;
        self.sink.send(phases.map(|phase| span(trace, phase)));
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.is_over {
            let recorded = self.recording.take();
            let step = recorded.end.map_or("unknown", |(step, _)| step);
            self.send(recorded, step, Some("Cancelled"), host::now());
        }
    }
}

impl History {
    /// Returns whether an attempt is sent: it changed something, or ended otherwise than the last one.
    fn is_news(&self, step: &'static str, end: End, changed: bool) -> bool {
        changed
            || match end {
                End::Failed(_) | End::Waiting => self.last != Some((step, end)),
                End::Done | End::Idle => false,
            }
    }

    /// Returns the span of a wait that is over.
    fn end_wait(&mut self, now: SystemTime) -> Option<SpanData> {
        let wait = self.wait.take()?;
        let waited = Phase {
            name: "wait",
            ids: (random_id(), wait.parent),
            timing: (wait.since, now),
            attributes: wait.attributes,
            error: None,
        };
        Some(span(wait.trace, waited))
    }
}

/// Returns the step of an attempt and how it ended. An error before the step is planned, or after it, has no
/// reason of its own.
fn ending(end: Option<(&'static str, End)>, failed: bool) -> (&'static str, End) {
    match (end, failed) {
        (None, false) => ("unknown", End::Done),
        (None, true) => ("unknown", End::Failed("ReconcileError")),
        (Some((step, End::Done | End::Waiting)), true) => (step, End::Failed("StatusNotWritten")),
        (Some(end), _) => end,
    }
}

fn wait_attributes(step: &'static str, waits_for: Option<(&'static str, String)>) -> Attributes {
    let text = |text: &str| Attribute::Text(text.to_owned());
    let mut attributes = vec![("hybrid_operator.step", text(step))];
    if let Some((what, name)) = waits_for {
        attributes.push(("hybrid_operator.waits_for", text(what)));
        if !name.is_empty() {
            attributes.push(("hybrid_operator.waits_for.name", text(&name)));
        }
    }
    attributes
}

/// Returns the span of a phase, as it is sent.
fn span(trace: TraceId, phase: Phase) -> SpanData {
    let id = |id: u64| SpanId::from_bytes(id.to_be_bytes());
    let attributes = phase.attributes.into_iter();
    let error = phase.error.map(|error| KeyValue::new("error.type", error));
    let attributes = attributes.map(|(key, value)| match value {
        Attribute::Text(text) => KeyValue::new(key, text),
        Attribute::Number(number) => KeyValue::new(key, number),
    });
    let (start_time, end_time) = phase.timing;
    SpanData {
        span_context: SpanContext::new(
            trace,
            id(phase.ids.0),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        ),
        parent_span_id: id(phase.ids.1),
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: phase.name.into(),
        start_time,
        end_time: end_time.max(start_time),
        attributes: attributes.chain(error).collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: phase.error.map_or(Status::Unset, Status::error),
        instrumentation_scope: InstrumentationScope::builder("hybrid-operator")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build(),
    }
}

/// Returns the id of the trace of a generation: the first 16 bytes of the SHA-256 of `UID/GENERATION`.
fn trace_of(metadata: &ObjectMeta) -> TraceId {
    let uid = metadata.uid.as_deref().unwrap_or_default();
    let generation = metadata.generation.unwrap_or_default();
    let hash = Sha256::digest(format!("{uid}/{generation}"));
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(hash) {
        *to = from;
    }
    TraceId::from_bytes(bytes)
}

fn attributes_of(metadata: &ObjectMeta) -> Attributes {
    let text = |text: &Option<String>| text.clone().map(Attribute::Text);
    let known = [
        ("k8s.object.namespace", text(&metadata.namespace)),
        ("k8s.object.name", text(&metadata.name)),
        ("k8s.object.uid", text(&metadata.uid)),
        (
            "k8s.object.generation",
            metadata.generation.map(Attribute::Number),
        ),
    ];
    let known = known.into_iter();
    known
        .filter_map(|(key, value)| Some((key, value?)))
        .collect()
}

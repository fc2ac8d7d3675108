//! Attempts to reconcile a custom resource: which are sent, and how long the release waits between them.

use std::sync::Arc;
use std::time::SystemTime;

use kube::core::ObjectMeta;
use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_sdk::trace::SpanData;
use sha2::{Digest, Sha256};

use super::End;
use super::exporter::Sink;
use super::recording::{Recording, State, data, random_id};

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
    parent: SpanId,
    since: SystemTime,
    attributes: Vec<KeyValue>,
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
            recording: Recording::new(trace),
            id: random_id(),
            start: host::now(),
            is_over: false,
        };
        let recording = Arc::clone(&attempt.recording);
        recording.state().attributes = attributes_of(metadata);
        let result = recording.run(attempt.id, Box::pin(future)).await;
        attempt.end(history, result.is_err());
        result
    }
}

/// An attempt that has begun. If it is dropped before its end, its span says so.
struct Attempt {
    sink: Arc<Sink>,
    recording: Arc<Recording>,
    id: SpanId,
    start: SystemTime,
    is_over: bool,
}

impl Attempt {
    fn end(mut self, history: &mut History, failed: bool) {
        self.is_over = true;
        let mut state = std::mem::take(&mut *self.recording.state());
        let now = host::now();
        let trace = self.recording.trace;
        let (step, end) = ending(state.end, failed);
        if history.trace != Some(trace) {
            self.sink.send(history.end_wait(now));
            *history = History {
                trace: Some(trace),
                ..History::default()
            };
        }
        if state.changed || end != End::Waiting {
            self.sink.send(history.end_wait(now));
        }
        let is_sent = history.is_news(step, end, state.changed);
        if end == End::Waiting && history.wait.is_none() {
            history.wait = Some(Wait {
                trace,
                parent: self.id,
                since: now,
                attributes: wait_attributes(step, state.waits_for.take()),
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
            self.send(state, step, error, now);
        }
    }

    fn send(
        &self,
        mut state: State,
        step: &'static str,
        error: Option<&'static str>,
        now: SystemTime,
    ) {
        let mut attributes = std::mem::take(&mut state.attributes);
        attributes.push(KeyValue::new("hybrid_operator.step", step));
        if state.lost > 0 {
            let lost = i64::try_from(state.lost).unwrap_or(i64::MAX);
            attributes.push(KeyValue::new("hybrid_operator.lost_spans", lost));
        }
        let ids = (self.id, SpanId::INVALID);
        let timing = (self.start, now);
        let root = data(
            self.recording.trace,
            ids,
            "reconcile",
            timing,
            attributes,
            error,
        );
        self.sink.send(std::iter::once(root).chain(state.spans));
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.is_over {
            let state = std::mem::take(&mut *self.recording.state());
            let step = state.end.map_or("unknown", |(step, _)| step);
            self.send(state, step, Some("Cancelled"), host::now());
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
        let ids = (random_id(), wait.parent);
        let timing = (wait.since, now);
        Some(data(wait.trace, ids, "wait", timing, wait.attributes, None))
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

fn wait_attributes(step: &'static str, waits_for: Option<(&'static str, String)>) -> Vec<KeyValue> {
    let mut attributes = vec![KeyValue::new("hybrid_operator.step", step)];
    if let Some((what, name)) = waits_for {
        attributes.push(KeyValue::new("hybrid_operator.waits_for", what));
        if !name.is_empty() {
            attributes.push(KeyValue::new("hybrid_operator.waits_for.name", name));
        }
    }
    attributes
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

fn attributes_of(metadata: &ObjectMeta) -> Vec<KeyValue> {
    let text = |key: &'static str, value: &Option<String>| {
        let value = value.clone();
        value.map(|value| KeyValue::new(key, value))
    };
    let generation = metadata
        .generation
        .map(|number| KeyValue::new("k8s.object.generation", number));
    let known = [
        text("k8s.object.namespace", &metadata.namespace),
        text("k8s.object.name", &metadata.name),
        text("k8s.object.uid", &metadata.uid),
        generation,
    ];
    known.into_iter().flatten().collect()
}

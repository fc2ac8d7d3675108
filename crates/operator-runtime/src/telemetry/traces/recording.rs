//! The spans of one attempt, which are kept until it ends.

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use futures::future::BoxFuture;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use parking_lot::{Mutex, MutexGuard};

use super::{End, Reason};

/// Maximum number of spans of an attempt. A chart with more hooks than that loses some.
const MAX_SPANS: usize = 256;
/// Maximum length of an attribute, in bytes.
const MAX_TEXT: usize = 512;

/// Attempt and span in progress.
#[derive(Clone)]
pub(super) struct Scope {
    pub(super) recording: Arc<Recording>,
    /// The present span.
    pub(super) span: SpanId,
    /// Reason why the span failed.
    error: Arc<OnceLock<&'static str>>,
}

tokio::task_local! {
    static CURRENT: Scope;
}

/// The spans of an attempt, and what is known of it.
pub(super) struct Recording {
    pub(super) trace: TraceId,
    state: Mutex<State>,
}

/// Facts that are known of an attempt.
#[derive(Default)]
pub(super) struct State {
    /// Spans that have ended.
    pub(super) spans: Vec<SpanData>,
    /// Number of spans beyond the limit.
    pub(super) lost: usize,
    /// Attributes of the span of the attempt.
    pub(super) attributes: Vec<KeyValue>,
    /// Whether anything was written.
    pub(super) changed: bool,
    /// Type and name of what the release waits for.
    pub(super) waits_for: Option<(&'static str, String)>,
    /// The step, and how it ended.
    pub(super) end: Option<(&'static str, End)>,
}

impl Recording {
    pub(super) fn new(trace: TraceId) -> Arc<Self> {
        Arc::new(Self {
            trace,
            state: Mutex::default(),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Runs a future whose spans are children of `span`.
    pub(super) async fn run<F: Future>(self: Arc<Self>, span: SpanId, future: F) -> F::Output {
        let scope = Scope {
            recording: self,
            span,
            error: Arc::default(),
        };
        CURRENT.scope(scope, future).await
    }

    fn end(&self, span: SpanData) {
        let mut state = self.state();
        if state.spans.len() < MAX_SPANS {
            state.spans.push(span);
        } else {
            state.lost += 1;
        }
    }
}

fn current() -> Option<Scope> {
    CURRENT.try_with(Scope::clone).ok()
}

fn with_state(change: impl FnOnce(&mut State)) {
    let _ = CURRENT.try_with(|scope| change(&mut scope.recording.state()));
}

/// Adds attributes to the span of the present attempt.
pub fn about(attributes: &[(&'static str, &str)]) {
    with_state(|state| {
        let attributes = attributes
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| KeyValue::new(*key, short(value)));
        state.attributes.extend(attributes);
    });
}

/// Notes that the present attempt has written something.
pub fn changed() {
    with_state(|state| state.changed = true);
}

/// Notes that the present span has failed although its future returns no error.
pub fn failed(reason: &'static str) {
    let _ = CURRENT.try_with(|scope| scope.error.set(reason));
}

/// Notes what the release waits for.
pub fn waits_for(what: &'static str, name: &str) {
    with_state(|state| state.waits_for = Some((what, short(name))));
}

/// Notes the step of the present attempt, the latest revision, and how the step ended.
pub fn ended(step: &'static str, revision: Option<u32>, end: End) {
    with_state(|state| {
        state.end = Some((step, end));
        if let Some(revision) = revision {
            let revision = KeyValue::new("helm.release.revision", i64::from(revision));
            state.attributes.push(revision);
        }
    });
}

/// A phase of an attempt.
pub struct Span {
    name: &'static str,
    attributes: Vec<KeyValue>,
}

/// Describes a phase of the present attempt.
pub fn span(name: &'static str) -> Span {
    Span {
        name,
        attributes: Vec::new(),
    }
}

impl Span {
    /// Adds a name.
    #[must_use]
    pub fn text(mut self, key: &'static str, value: &str) -> Self {
        self.attributes.push(KeyValue::new(key, short(value)));
        self
    }

    /// Adds a number.
    #[must_use]
    pub fn number(mut self, key: &'static str, value: usize) -> Self {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.attributes.push(KeyValue::new(key, value));
        self
    }

    /// Runs the phase. Outside of an attempt nothing is recorded. The future is boxed, so that those of the
    /// callers stay small.
    pub fn run<'f, F, T, E>(self, future: F) -> BoxFuture<'f, Result<T, E>>
    where
        F: Future<Output = Result<T, E>> + Send + 'f,
        E: Reason,
    {
        Box::pin(async move {
            let Some(parent) = current() else {
                return future.await;
            };
            let (id, start) = (random_id(), host::now());
            let scope = Scope {
                recording: Arc::clone(&parent.recording),
                span: id,
                error: Arc::default(),
            };
            let error = Arc::clone(&scope.error);
            let result = CURRENT.scope(scope, future).await;
            let reason = result.as_ref().err().map(Reason::reason);
            let timing = (start, host::now());
            parent.recording.end(data(
                parent.recording.trace,
                (id, parent.span),
                self.name,
                timing,
                self.attributes,
                reason.or(error.get().copied()),
            ));
            result
        })
    }
}

/// Returns a span as it is sent. `ids` are its own and that of its parent.
pub(super) fn data(
    trace: TraceId,
    ids: (SpanId, SpanId),
    name: &'static str,
    (start_time, end_time): (SystemTime, SystemTime),
    mut attributes: Vec<KeyValue>,
    error: Option<&'static str>,
) -> SpanData {
    if let Some(error) = error {
        attributes.push(KeyValue::new("error.type", error));
    }
    SpanData {
        span_context: SpanContext::new(
            trace,
            ids.0,
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        ),
        parent_span_id: ids.1,
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: name.into(),
        start_time,
        end_time: end_time.max(start_time),
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: error.map_or(Status::Unset, Status::error),
        instrumentation_scope: InstrumentationScope::builder("hybrid-operator")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build(),
    }
}

/// Returns the id of a new span, which is never zero.
pub(super) fn random_id() -> SpanId {
    let mut bytes = [0_u8; 8];
    let _ = host::fill(&mut bytes);
    SpanId::from_bytes((u64::from_ne_bytes(bytes) | 1).to_ne_bytes())
}

/// Cuts a text that is too long.
fn short(text: &str) -> String {
    text.get(..text.floor_char_boundary(MAX_TEXT))
        .unwrap_or(text)
        .to_owned()
}

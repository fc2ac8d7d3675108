//! The functions of [`traces`](super) in programs that cannot send any.
#![expect(
    missing_docs,
    clippy::unused_async,
    reason = "the signatures and texts are those of the feature"
)]

use kube::core::ObjectMeta;

use super::{Destination, End, TraceError};
use crate::telemetry::metrics::RegisterMetrics;

/// Sends no traces.
#[derive(Debug, Clone, Default)]
pub struct Tracer;

/// Earlier attempts, of which nothing is known.
#[derive(Debug, Clone, Default)]
pub struct History;

/// A task that does not exist.
pub(crate) struct Sending;

/// A span that is not recorded.
pub struct Span;

/// Never called: the options are refused before.
pub(crate) async fn start(
    _: Option<Destination>,
    _: &mut Vec<RegisterMetrics>,
) -> Result<(Tracer, Sending), TraceError> {
    Ok((Tracer, Sending))
}

impl Sending {
    pub(crate) async fn finish(self, _: std::time::Duration) {}
}

impl Tracer {
    pub fn attempt<F: Future>(&self, _: &mut History, _: &ObjectMeta, future: F) -> F {
        future
    }
}

pub fn span(_: &'static str) -> Span {
    Span
}

impl Span {
    #[must_use]
    pub fn text(self, _: &'static str, _: &str) -> Self {
        self
    }

    #[must_use]
    pub fn number(self, _: &'static str, _: usize) -> Self {
        self
    }

    pub fn run<F: Future>(self, future: F) -> F {
        future
    }
}

pub fn about(_: &[(&'static str, &str)]) {}

pub fn changed() {}

pub fn failed(_: &'static str) {}

pub fn waits_for(_: &'static str, _: &str) {}

pub fn ended(_: &'static str, _: Option<u32>, _: End) {}

//! Traces of releases: one for each generation of a custom resource, with a span for each attempt to
//! reconcile it, its phases and its waits.
//!
//! The identity of a trace follows from the uid and the generation of the custom resource, so that
//! attempts of several processes share it. An attempt that changes nothing, and that ends as the one
//! before it, has no span. Attributes are names and numbers; errors are named by their reason, because
//! their messages may quote values.
//!
//! Without the feature `otlp` all of this does nothing, and a future is returned as it is.

#[cfg(feature = "otlp")]
mod attempt;
#[cfg(feature = "otlp")]
mod exporter;
#[cfg(not(feature = "otlp"))]
mod off;
#[cfg(feature = "otlp")]
mod recording;
#[cfg(test)]
#[cfg(feature = "otlp")]
mod tests;

#[cfg(feature = "otlp")]
pub use attempt::{History, Tracer};
#[cfg(feature = "otlp")]
pub(crate) use exporter::start;
#[cfg(not(feature = "otlp"))]
pub(crate) use off::start;
#[cfg(not(feature = "otlp"))]
pub use off::{History, Span, Tracer, about, changed, ended, failed, span, waits_for};
#[cfg(feature = "otlp")]
pub use recording::{Span, about, changed, ended, failed, span, waits_for};

/// Whether this program can send traces.
pub(crate) const AVAILABLE: bool = cfg!(feature = "otlp");

/// An error that has a name.
pub trait Reason {
    /// Names the cause, without any value.
    fn reason(&self) -> &'static str;
}

/// Outcome of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Success: all that the attempt had to do is done.
    Done,
    /// The release waits for something.
    Waiting,
    /// Failure, for this reason.
    Failed(&'static str),
    /// No attempt: the next one is due later.
    Idle,
}

/// Attributes and receiver of the spans of a process.
#[derive(Debug, Clone)]
#[cfg_attr(
    not(feature = "otlp"),
    expect(dead_code, reason = "without the feature, nothing is sent")
)]
pub(crate) struct Destination {
    /// URL that takes the spans.
    pub(crate) url: String,
    /// Name of the service, unless the environment has one.
    pub(crate) service: String,
    /// Name of this process.
    pub(crate) instance: String,
    /// Namespace of the operator.
    pub(crate) namespace: Option<String>,
}

/// Traces cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The endpoint or its settings are wrong.
    #[error("traces cannot be sent to {url}: {reason}")]
    Endpoint {
        /// URL of the endpoint.
        url: String,
        /// Reason of the failure.
        reason: String,
    },
}

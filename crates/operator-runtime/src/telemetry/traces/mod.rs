//! Traces of releases: one for each generation of a custom resource, with a span for each attempt to
//! reconcile it, its [phases](host::phases) and its waits.
//!
//! The identity of a trace follows from the uid and the generation of the custom resource, so that
//! attempts of several processes share it. An attempt that changes nothing, and that ends as the one
//! before it, has no span. Without the feature `otlp` none is recorded.

#[cfg(feature = "otlp")]
mod attempt;
#[cfg(feature = "otlp")]
mod exporter;
#[cfg(not(feature = "otlp"))]
mod off;
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
pub use off::{History, Tracer};

/// Whether this program can send traces.
pub(crate) const AVAILABLE: bool = cfg!(feature = "otlp");

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

//! Logs and metrics.

pub mod logs;
pub(crate) mod metrics;

pub use prometheus_client;

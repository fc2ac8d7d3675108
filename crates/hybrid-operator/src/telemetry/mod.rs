//! Logs and metrics.

pub mod logs;
pub(crate) mod metrics;
pub(crate) mod reloads;
pub(crate) mod webhooks;

pub use prometheus_client;

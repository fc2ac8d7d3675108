//! Logs and metrics.

pub mod logs;
pub(crate) mod metrics;

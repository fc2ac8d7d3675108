//! The framework: Helm charts and Rust controllers in one Kubernetes operator.

pub mod cluster;
pub mod duration;
pub mod readiness;
pub mod release;
pub mod watches;

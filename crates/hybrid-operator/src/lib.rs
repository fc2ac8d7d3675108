//! The framework: Helm charts and Rust controllers in one Kubernetes operator.

pub mod duration;
pub mod watches;

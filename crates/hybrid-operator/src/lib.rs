//! A framework for Kubernetes operators that run Helm charts and Rust controllers.
//!
//! A chart and one entry of `watches.yaml` make an operator; controllers written in Rust run in the
//! same manager. See [`helm`] for the life of a release, [`native`] for writing a controller, and
//! [`manager`] for running them.

pub mod helm;
pub mod operator;
pub mod options;
mod page;
mod process;
pub mod reasons;
mod values;
pub mod watches;

pub use operator_runtime::{controller, manager, native, telemetry, webhook};
/// The versions that fit.
pub use {helm_release, k8s_openapi, kube};

#[cfg(test)]
mod tests;

/// Runs the examples of the README as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

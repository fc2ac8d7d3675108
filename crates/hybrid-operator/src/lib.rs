//! A framework for Kubernetes operators that run Helm charts and Rust controllers.
//!
//! A chart and one entry of `watches.yaml` make an operator; controllers written in Rust run in the
//! same manager. See [`helm`] for the life of a release, [`native`] for writing a controller, and
//! [`manager`] for running them.

pub mod action;
pub mod client;
pub mod cluster;
pub mod controller;
pub mod duration;
pub mod helm;
pub mod leader;
pub mod manager;
pub mod native;
pub mod operator;
pub mod options;
pub mod readiness;
pub mod release;
pub mod render_pool;
pub mod telemetry;
pub mod values;
pub mod watches;

/// Runs the examples of the README as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

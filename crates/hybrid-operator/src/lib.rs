//! The framework: Helm charts and Rust controllers in one Kubernetes operator.
//!
//! A chart and one entry of `watches.yaml` become an operator; controllers written in Rust run
//! beside it in the same manager. Read [`helm`] for the story of a release, [`native`] for writing
//! a controller, [`manager`] for what runs them.

pub mod action;
pub mod client;
pub mod cluster;
pub mod controller;
pub mod duration;
pub mod helm;
pub mod leader;
pub mod manager;
pub mod native;
pub mod options;
pub mod readiness;
pub mod release;
pub mod render_pool;
pub mod telemetry;
pub mod values;
pub mod watches;

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

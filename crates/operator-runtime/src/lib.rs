//! The process of a Kubernetes operator: it runs [controllers](manager::Controller), such as
//! [those written in Rust](native), with leader election, [metrics](telemetry), probes and [webhooks](webhook).
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use clap::Parser;
//! use k8s_openapi::api::core::v1::ConfigMap as MyKind;
//! use operator_runtime::manager::Manager;
//! use operator_runtime::native::{self, Action, Context, Error};
//! use operator_runtime::options::{ProcessArgs, environment};
//!
//! async fn reconcile(object: Arc<MyKind>, context: Context<MyKind>) -> Result<Action, Error> {
//!     // Apply what the object says.
//!     # drop((object, context));
//!     Ok(Action::done())
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let options = ProcessArgs::parse().options(environment);
//!     let controller = native::controller::<MyKind>("mykind").reconcile(reconcile);
//!     Ok(Manager::new(options).with(controller).run().await?)
//! }
//! ```

pub mod controller;
pub mod duration;
mod leader;
pub mod manager;
pub mod naming;
pub mod native;
pub mod options;
pub mod ring;
pub mod telemetry;
pub mod webhook;

/// The versions that fit.
pub use {k8s_openapi, kube};

#[cfg(test)]
mod tests;

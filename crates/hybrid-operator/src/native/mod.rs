//! Controllers written in Rust, run by the same manager as the chart controllers.
//!
//! ```no_run
//! use hybrid_operator::controller::Outcome;
//! use hybrid_operator::native::{self, Context};
//! use k8s_openapi::api::apps::v1::Deployment;
//! # use k8s_openapi::api::core::v1::ConfigMap as MyKind;
//!
//! async fn reconcile(object: std::sync::Arc<MyKind>, context: Context<MyKind>)
//!     -> Result<Outcome, native::Error> {
//!     // context.apply(&deployment).await?; context.patch_status(&status).await?;
//!     Ok(Outcome::Done)
//! }
//!
//! let controller = native::controller::<MyKind>("mykind")
//!     .owns::<Deployment>("app.kubernetes.io/name=mykind")
//!     .reconcile(reconcile);
//! ```
//!
//! RBAC: `get`, `list`, `watch` on the kind, `patch` on its status, and what the function needs.

mod builder;
mod context;
mod dependents;
pub mod status;

pub use builder::{Builder, NativeController, controller};
pub use context::{Context, Error};

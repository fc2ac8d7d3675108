//! Controllers written in Rust, run by the same manager as the charts.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use operator_runtime::native::{self, Action, Context};
//! use k8s_openapi::api::apps::v1::Deployment;
//! # use k8s_openapi::api::core::v1::ConfigMap as MyKind;
//! # fn deployment_of(_: &MyKind) -> Deployment { Deployment::default() }
//! # fn status_of(_: &Deployment) -> u8 { 0 }
//!
//! async fn reconcile(object: Arc<MyKind>, context: Context<MyKind>) -> Result<Action, native::Error> {
//!     let deployment = context.apply(&deployment_of(&object)).await?;
//!     context.patch_status(&status_of(&deployment)).await?;
//!     Ok(Action::done())
//! }
//!
//! let controller = native::controller::<MyKind>("mykind")
//!     .owns::<Deployment>()
//!     .reconcile(reconcile);
//! ```
//!
//! # Flow
//! A change of a custom resource, of an object that it owns, or of one that the controller watches
//! puts the key of the custom resource into a queue; several changes of one key are one entry. A
//! worker takes the key and calls the function with the newest cached object, which is never older
//! than the change. The function makes the cluster what the object says, writes the status, and
//! returns an [`Action`] or an [`Error`].
//!
//! A custom resource that is being deleted is passed to the function of
//! [`finalizer`](Builder::finalizer); without one it is not reconciled any more, and what it owns is
//! removed by the garbage collector.
//!
//! # Guarantees
//! * Functions of one object never run at the same time; those of different objects run at the same
//!   time up to the controller's concurrency.
//! * No function is called before the caches of everything that the controller owns and watches are
//!   complete.
//! * After an error the function is called again, with pauses that double; after
//!   [`Error::terminal`] only when something changes. [`Action::Now`] again and again is slowed down
//!   in the same way.
//! * A function that panics, fails or exceeds its deadline affects its own object alone. Functions run
//!   on threads of their own: one that blocks its thread is reported in the log and in the metric
//!   `hybrid_operator_blocked_reconciles_total`, and others go on.
//! * Stored objects that cannot be decoded, for example after a change of the schema, are reported
//!   each on its own and do not stop the others.
//! * While another process is the leader, no function is called.
//!
//! # Caveats
//! * A function must be idempotent and must not rely on having seen every change: it may be called
//!   twice for one change and once for several, and may be cut off anywhere when the process is killed.
//! * A thread cannot be stopped from outside. A function that blocks forever keeps its thread until
//!   the process ends; its object is not reconciled any more.
//!
//! Needs `get`, `list` and `watch` on the kind, `patch` on its status, and what the calls of
//! [`Builder`] and [`Context`] need.

mod action;
mod apply;
mod builder;
mod context;
mod controller;
mod definition;
mod error;
mod fixture;
mod part;
mod permissions;
mod predicate;
mod reader;
mod shown;
mod status;

pub use action::Action;
pub use builder::{Builder, controller};
pub use context::Context;
pub use controller::NativeController;
pub use definition::{CATEGORY, crd};
pub use error::{BoxError, Error};
pub use fixture::Fixture;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
pub use part::{Part, RunningPart};
pub use predicate::Predicate;
pub use reader::Readers;
pub use reader::{MetadataReader, Reader};
pub use shown::{ShowControllers, ShownController, ShownObject, ShownObjects};
pub use status::Conditions;

pub use crate::controller::{Key, TypedObject};
pub use kube_objects::AnyObject;

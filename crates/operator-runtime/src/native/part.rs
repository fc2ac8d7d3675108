//! Parts of a native controller that manage more for a custom resource than its functions do.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube_objects::Primary;
use tokio::time::Instant;

use super::error::Error;
use crate::controller::{Key, QueueHandle};
use crate::manager::ControllerContext;

/// A part of a native controller that manages something for each custom resource, such as releases of charts.
/// [`Builder::with`](super::Builder::with) adds it, and functions find it with [`Context::part`](super::Context::part).
pub trait Part: Send {
    /// Returns the finalizer that holds a custom resource until the part has cleaned up, unless the controller
    /// has one of its own.
    fn finalizer(&self) -> &'static str;

    /// Returns the permissions that it needs.
    fn permissions(&self) -> Vec<PolicyRule>;

    /// Starts it for the custom resources of a controller, whose queue it may wake.
    fn start<'a>(
        &'a self,
        context: &'a ControllerContext,
        queue: &'a QueueHandle,
    ) -> BoxFuture<'a, Arc<dyn RunningPart>>;
}

/// A [`Part`] of a controller that runs.
pub trait RunningPart: Any + Send + Sync {
    /// Removes what it manages for a custom resource that is being deleted, before `until`; returns when to look
    /// again, or `None` if everything is gone.
    fn clean_up<'a>(
        &'a self,
        primary: &'a Primary,
        until: Instant,
    ) -> BoxFuture<'a, Result<Option<Duration>, Error>>;

    /// Forgets a custom resource that is gone.
    fn forget(&self, key: &Key);
}

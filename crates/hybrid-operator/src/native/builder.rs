//! Builds a controller from a reconcile function.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::NamespaceResourceScope;
use kube::core::ApiResource;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::{Context, Error};
use super::dependents::{self, Dependents, StartCache};
use crate::controller::{
    Key, Outcome, QueueHandle, Reconcile, ReconcileError, Request, Source, WorkerOptions, Workers,
};
use crate::manager::{Controller, ControllerContext, ControllerError};

/// Bounds of a type that native controllers handle.
pub trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static
{
}

/// Returns a builder for a controller of `K`.
pub fn controller<K: Kind>(name: &str) -> Builder<K> {
    Builder {
        name: name.to_owned(),
        starts: Vec::new(),
        concurrency: None,
        kind: PhantomData,
    }
}

/// Builder of a [`NativeController`].
pub struct Builder<K> {
    name: String,
    starts: Vec<StartCache>,
    concurrency: Option<usize>,
    kind: PhantomData<fn(K)>,
}

impl<K: Kind> Builder<K> {
    /// Watches objects that match the label selector and have a `K` as their controller owner. They
    /// are cached in full, so the selector should match only objects of this controller.
    #[must_use]
    pub fn owns<O: Kind>(self, selector: &str) -> Self {
        self.watches::<O>(selector, |object| {
            let owners = object.owner_references().iter();
            let mut controllers = owners.filter(|owner| owner.controller == Some(true));
            controllers
                .find(|owner| {
                    owner.kind == K::kind(&()) && owner.api_version == K::api_version(&())
                })
                .map(|owner| Key::new(object.namespace().as_deref(), &owner.name))
        })
    }

    /// Watches objects that match the label selector; `concerns` maps a changed object to the
    /// custom resource to reconcile.
    #[must_use]
    pub fn watches<O: Kind>(
        mut self,
        selector: &str,
        concerns: impl Fn(&O) -> Option<Key> + Send + Sync + 'static,
    ) -> Self {
        self.starts
            .push(dependents::cache::<O>(selector, Arc::new(concerns)));
        self
    }

    /// Sets the maximum number of concurrent reconciles.
    #[must_use]
    pub fn max_concurrent_reconciles(mut self, count: usize) -> Self {
        self.concurrency = Some(count.max(1));
        self
    }

    /// Sets the function that reconciles a custom resource, and returns the controller.
    pub fn reconcile<F, Fut>(self, function: F) -> NativeController<K>
    where
        F: Fn(Arc<K>, Context<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, Error>> + Send + 'static,
    {
        NativeController {
            name: self.name,
            starts: self.starts,
            concurrency: self.concurrency,
            function: Arc::new(move |object, context| Box::pin(function(object, context))),
        }
    }
}

type Function<K> =
    Arc<dyn Fn(Arc<K>, Context<K>) -> BoxFuture<'static, Result<Outcome, Error>> + Send + Sync>;

/// Controller that runs a reconcile function.
pub struct NativeController<K> {
    name: String,
    starts: Vec<StartCache>,
    concurrency: Option<usize>,
    function: Function<K>,
}

impl<K: Kind> Controller for NativeController<K> {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(
        self: Box<Self>,
        context: ControllerContext,
    ) -> BoxFuture<'static, Result<(), ControllerError>> {
        Box::pin(async move {
            let queue = QueueHandle::new(context.metrics.controller(&self.name));
            let dependents = dependents::start_all(self.starts, &context, &queue);
            let resource = ApiResource::erase::<K>(&());
            let source = Source::start(
                &context.connection.client,
                resource,
                &context.namespaces,
                None,
                &queue,
                &context.stop,
            );
            let stop = context.stop.clone();
            let options = WorkerOptions {
                concurrency: self
                    .concurrency
                    .unwrap_or(context.limits.max_concurrent_reconciles),
                ..WorkerOptions::default()
            };
            let reconcile = Arc::new(Native {
                name: self.name.clone(),
                function: self.function,
                source,
                dependents,
                context,
            });
            Workers::new(&queue, reconcile, options).run(stop).await;
            Ok(())
        })
    }
}

struct Native<K> {
    name: String,
    function: Function<K>,
    source: Source,
    dependents: Dependents,
    context: ControllerContext,
}

impl<K: Kind> Reconcile for Native<K> {
    fn reconcile(&self, request: Request) -> BoxFuture<'_, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(object) = self.source.get(&request.key) else {
                return Ok(Outcome::Done);
            };
            let object: K = (*object).clone().try_parse()?;
            if object.meta().deletion_timestamp.is_some() {
                // Garbage collection deletes the objects that it owns.
                return Ok(Outcome::Done);
            }
            let object = Arc::new(object);
            let context = Context::new(
                Arc::clone(&object),
                self.context.clone(),
                self.dependents.clone(),
                &self.name,
            );
            (self.function)(object, context).await.map_err(Into::into)
        })
    }
}

//! Reconciles the custom resources of a kind: takes what is known of one, and lets the engine advance its release.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::DynamicObject;
use kube_objects::with_causes;
use operator_runtime::controller::{Outcome, ReconcileError, Request};
use operator_runtime::native::Readers;
use tracing::{Instrument, Span};

use helm_release::engine::{Engine, Memories, Message};

use super::access::Access;
use super::custom_resource::CustomResource;
use super::memory::Memory;
use super::publish::{Pass, publish};
use super::reload::progress::Verdict;
use super::reload::verdict::{Ended, Trouble, verdict};
use super::resources::Resources;
use super::retried;
use super::setup::Setup;

/// Reconciles the custom resources of one entry of `watches.yaml`.
pub(super) struct HelmReconciler {
    pub(super) setup: Arc<Setup>,
    pub(super) access: Arc<Access>,
    pub(super) resources: Resources,
    /// Objects that the extensions read.
    pub(super) readers: Readers,
    pub(super) memories: Memories<Memory>,
}

/// Time that an attempt of a chart's controller has.
pub(super) const ATTEMPT_WITHIN: Duration = Duration::from_mins(5);
/// Time that it has then to write its status.
pub(super) const REPORT_WITHIN: Duration = Duration::from_mins(1);

impl HelmReconciler {
    /// Reconciles a custom resource.
    pub(super) fn reconcile(
        &self,
        request: Request,
        resource: Arc<DynamicObject>,
    ) -> BoxFuture<'_, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let uid = resource.metadata.uid.as_deref().unwrap_or_default();
            let forget = || self.access.releases.forget(&request.key);
            let mut memory = self.memories.take(&request.key, uid, forget);
            memory.for_setup(self.setup.version);
            let span = self
                .setup
                .extensions
                .span
                .as_ref()
                .map_or_else(Span::none, |span| span(&resource));
            let mut history = std::mem::take(&mut memory.traced);
            let reconcile = self.reconcile_release(&resource, &mut memory, request.pause);
            let reconcile = Box::pin(reconcile.instrument(span));
            let tracer = &self.access.tracer;
            let attempt =
                AssertUnwindSafe(tracer.attempt(&mut history, &resource.metadata, reconcile));
            match attempt.catch_unwind().await {
                Ok(outcome) => {
                    memory.traced = history;
                    outcome
                }
                Err(panic) => {
                    // What it knew may be half done, also if it is cancelled before the status is written.
                    *memory = Memory::default();
                    self.tell_of_panic(&request, uid).await;
                    // The worker counts and logs it.
                    resume_unwind(panic)
                }
            }
        })
    }

    /// Says in the status of the custom resource with this uid that its reconcile panicked. The message of the
    /// panic may quote values.
    async fn tell_of_panic(&self, request: &Request, uid: &str) {
        let known = self.resources.get(&request.key);
        let known = known.filter(|known| known.metadata.uid.as_deref() == Some(uid));
        let Some(resource) = known else { return };
        let cause =
            Message::from("the reconcile panicked; the log of the operator has the message");
        let told = retried::report(
            &self.resources,
            &self.setup,
            &resource,
            &cause,
            request.pause,
        );
        if let Err(error) = told.await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, "cannot write that the reconcile panicked");
        }
    }

    /// Reconciles the release of one custom resource. `pause` is the longest time until the next attempt
    /// if this one fails.
    async fn reconcile_release(
        &self,
        resource: &Arc<DynamicObject>,
        memory: &mut Memory,
        pause: Duration,
    ) -> Result<Outcome, ReconcileError> {
        memory.settled = None;
        memory.verdict = match resource.metadata.deletion_timestamp {
            Some(_) => Verdict::Skipped,
            None => Verdict::Unknown,
        };
        let (setup, access, resources) = (&self.setup, &self.access, &self.resources);
        let owner = CustomResource::new(resource, setup, access, resources, &self.readers);
        let owner = Arc::new(owner);
        let subject = match owner.subject(access) {
            Ok(subject) => subject,
            Err(error) => {
                // These errors name namespaces and kinds of storage.
                let cause = Message::from(with_causes(&error));
                retried::report(resources, setup, resource, &cause, pause).await?;
                return Err(error.into());
            }
        };
        let engine = Engine {
            setup: Arc::clone(&setup.release),
            access: Arc::clone(&access.releases),
            limit: ATTEMPT_WITHIN,
        };
        let outcome = engine.advance(&subject, &mut memory.release).await;
        if let Some(taken) = &outcome.taken {
            let error = outcome.result.as_ref().err();
            memory.verdict = verdict(&Ended {
                step: &taken.step,
                latest: (taken.latest.as_ref()).map(|meta| (meta.status, taken.is_wanted)),
                inputs: taken.inputs_fail.map(Trouble::of),
                error: error.map(|error| Trouble::of(error.is_transient())),
            });
        }
        let pass = Pass {
            setup,
            access,
            subject: &subject,
            owner: &owner,
            pause,
        };
        publish(&pass, memory, outcome).await
    }
}

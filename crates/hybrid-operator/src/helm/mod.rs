//! Helm charts as operators: each custom resource of a kind becomes a Helm release.
//!
//! ```text
//! observe (caches) -> desired (values, digest, content) -> plan -> act (one step) -> publish
//! ```
//!
//! `Engine::advance` is the whole flow, for releases of custom resources and of components alike. Each stage is a
//! function in its own module:
//!
//! | module | result | source |
//! |---|---|---|
//! | `custom_resource`, `component` | the release, and what is asked of it | watch of custom resources, native controllers |
//! | `observe` | facts | caches: records, objects, dependencies |
//! | `desired` | inputs with their digest, and the content of a new revision | values, chart, lookups |
//! | `plan` | one step | facts only; all decisions are made here |
//! | `act` | a report | the step, one file each; makes no decisions |
//! | `publish` | status and events | the report; nothing else writes them |
//!
//! RBAC: for the kind `get`, `list`, `watch`, `patch`, and `patch` on its status; for Secrets,
//! which hold the records, all verbs; for the chart's objects `get`, `list`, `watch`, `create`,
//! `patch`, `delete`.

mod access;
mod act;
mod annotations;
mod bounded;
mod builder;
mod chart;
mod component;
mod conditions;
mod credentials;
mod custom_resource;
mod deployed;
mod desired;
mod diagnose;
mod digest;
mod engine;
mod environment;
mod events;
mod extend;
mod interest;
mod kind;
mod lookup;
mod memory;
mod message;
mod observe;
mod offline;
mod owner;
mod patches;
mod plan;
mod preview;
mod publish;
mod records;
mod references;
mod reload;
mod remote;
mod render;
mod repairs;
mod repetition;
mod report;
mod resources;
mod retried;
mod router;
mod setup;
mod status;
mod subject;
#[cfg(test)]
mod tests;
mod traced;

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::DynamicObject;
use tracing::{Instrument, Span};

use crate::controller::{Outcome, Reconcile, ReconcileError, Request};
use crate::native::Readers;
use crate::telemetry::causes::with_causes;

pub use crate::release::{Storage, record_key_secret};
pub use annotations::ReleaseOptions;
pub use builder::{HelmController, load};
pub use chart::{BuildError, Chart};
pub use component::{Component, Release, install, uninstall};
pub use deployed::{DeployedRelease, deployed};
pub use extend::{ExtensionError, ReleaseContext, ReleaseRef};
pub use helm_core::Values;
pub use offline::{Preview, PreviewError, PreviewInput, offline};
pub use preview::in_cluster;
pub use records::{ObjectHealth, RecordInfo, Records, RecordsError, health};
pub use reload::Charts;
use reload::Verdict;
pub(crate) use reload::{MissingCharts, READINESS};
pub use remote::ChartReader;

use access::Access;
pub(crate) use component::Components;
use custom_resource::CustomResource;
pub(crate) use custom_resource::FINALIZER as UNINSTALL;
pub(crate) use deployed::Releases;
use engine::Engine;
use memory::{Memories, Memory};
use message::Message;
use resources::Resources;
use setup::Setup;

/// Reconciles the custom resources of one entry of `watches.yaml`.
struct HelmReconciler {
    setup: Arc<Setup>,
    access: Arc<Access>,
    resources: Resources,
    /// Objects that the extensions read.
    readers: Readers,
    memories: Memories,
}

/// Time that an attempt of a chart's controller has.
const ATTEMPT_WITHIN: Duration = Duration::from_mins(5);
/// Time that it has then to write its status.
const REPORT_WITHIN: Duration = Duration::from_mins(1);

impl Reconcile for HelmReconciler {
    fn reconcile(&self, request: Request) -> BoxFuture<'_, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(resource) = self.resources.get(&request.key) else {
                self.memories.forget(&request.key);
                self.access.forget(&request.key);
                return Ok(Outcome::Done);
            };
            let uid = resource.metadata.uid.as_deref().unwrap_or_default();
            let forget = || self.access.forget(&request.key);
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
                    *memory = Memory::new(uid);
                    self.tell_of_panic(&request, uid).await;
                    // The worker counts and logs it.
                    resume_unwind(panic)
                }
            }
        })
    }
}

impl HelmReconciler {
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
            setup: Arc::clone(setup),
            access: Arc::clone(access),
            limit: ATTEMPT_WITHIN,
        };
        let published = engine.advance(&subject, &*owner, memory, pause).await;
        published.outcome
    }
}

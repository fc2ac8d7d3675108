//! Helm charts as operators: each custom resource of a kind becomes a Helm release.
//!
//! ```text
//! observe (caches) -> desired (values, digest, content) -> plan -> act (one step) -> publish
//! ```
//!
//! `HelmReconciler::reconcile_release` is the whole flow. Each stage is a function in its own
//! module:
//!
//! | module | result | source |
//! |---|---|---|
//! | `subject` | the custom resource, and where its release is | watch of custom resources |
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
mod deployed;
mod desired;
mod diagnose;
mod digest;
mod environment;
mod events;
mod extend;
mod finalizer;
mod interest;
mod kind;
mod lookup;
mod memory;
mod message;
mod observe;
mod offline;
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
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::DynamicObject;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::cluster::cut_off;
use crate::controller::{Outcome, Reconcile, ReconcileError, Request};
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
use reload::{Ended, Trouble, Verdict, verdict};
pub(crate) use reload::{MissingCharts, READINESS};
pub use remote::ChartReader;

use access::Access;
use act::{ActContext, ActError};
pub(crate) use component::Components;
pub(crate) use deployed::Releases;
use desired::{NextRevision, desired};
use events::Notices;
pub(crate) use finalizer::FINALIZER as UNINSTALL;
use memory::{Memories, Memory};
use message::Message;
use observe::Observation;
use plan::Step;
use publish::Attempt;
use report::Report;
use setup::Setup;
use subject::Subject;

/// Reconciles the custom resources of one entry of `watches.yaml`.
struct HelmReconciler {
    setup: Arc<Setup>,
    access: Arc<Access>,
    memories: Memories,
    /// Time after which an attempt is cut off, and its status says so.
    limit: Duration,
}

/// Time that an attempt of a chart's controller has.
const ATTEMPT_WITHIN: Duration = Duration::from_mins(5);
/// Time that it has then to write its status.
const REPORT_WITHIN: Duration = Duration::from_mins(1);

impl Reconcile for HelmReconciler {
    fn reconcile(&self, request: Request) -> BoxFuture<'_, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(resource) = self.access.resources.get(&request.key) else {
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
            let attempt = AssertUnwindSafe(tracer.attempt(&mut history, &resource, reconcile));
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
        let known = self.access.resources.get(&request.key);
        let known = known.filter(|known| known.metadata.uid.as_deref() == Some(uid));
        let Some(resource) = known else { return };
        let cause =
            Message::from("the reconcile panicked; the log of the operator has the message");
        let told = retried::report(&self.setup, &self.access, &resource, &cause, request.pause);
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
        let (setup, access, notices) = (&self.setup, &self.access, Notices::default());
        memory.verdict = match resource.metadata.deletion_timestamp {
            Some(_) => Verdict::Skipped,
            None => Verdict::Unknown,
        };
        let subject = match Subject::of(resource, setup, access) {
            Ok(subject) => subject,
            Err(error) => {
                // These errors name namespaces and kinds of storage.
                let cause = Message::from(with_causes(&error));
                retried::report(setup, access, resource, &cause, pause).await?;
                return Err(error.into());
            }
        };
        traced::release(setup, &subject.target);
        let begun = Instant::now();
        let mut observation = observe::observe(setup, access, &subject, memory, self.limit).await;
        let result = if let Some(error) = observation.error.take() {
            Err(error)
        } else {
            let planned = OnceLock::new();
            let left = self.limit.saturating_sub(begun.elapsed());
            let step = self.take_step(&subject, &mut observation, memory, &notices, &planned);
            let result = cut_off::within(left, Box::pin(step)).await;
            result.unwrap_or_else(|source| {
                let step = planned.get().copied();
                Err(ActError::CutOff { step, source })
            })
        };
        publish::publish(
            setup,
            access,
            &subject,
            &observation,
            memory,
            &notices,
            Attempt { result, pause },
        )
        .await
    }

    /// Computes the desired state, and executes the step that the plan returns, whose name is put into
    /// `planned`. The next revision is rendered before a second plan, if the first one asks for it.
    async fn take_step(
        &self,
        subject: &Subject,
        observation: &mut Observation,
        memory: &mut Memory,
        notices: &Notices,
        planned: &OnceLock<&'static str>,
    ) -> Result<Report, ActError> {
        let (setup, access) = (&self.setup, &self.access);
        let mut wanted = match plan::before_inputs(&observation.facts) {
            // Failing templates must not prevent an uninstall.
            Some(_) => None,
            None => Some(desired(setup, access, subject, &mut memory.release, notices).await),
        };
        subject.target.share.shrink();
        if let Some(wanted) = &mut wanted {
            let known = &mut memory.release;
            observe::complete(observation, setup, access, subject, wanted, known).await?;
        }
        let mut rendered = None;
        let step = loop {
            let known = rendered.as_ref().map(|(_, known)| *known);
            let facts = desired::facts(setup, wanted.as_ref(), known);
            let step = plan::next_step(&observation.facts, &facts);
            tracing::debug!(?step, "planned");
            let (Step::Render { upgrade }, Some(Ok(desired))) = (&step, &wanted) else {
                break step;
            };
            let next = NextRevision {
                inputs: &desired.inputs,
                history: &observation.history,
                upgrade: *upgrade,
            };
            let redactor = &mut memory.release.redactor;
            let render = next.content(setup, access, subject, redactor, notices);
            match render.await {
                Ok(render) => rendered = Some(render),
                Err(error) => wanted = Some(Err(error)),
            }
            subject.target.share.shrink();
        };
        planned.get_or_init(|| step.name());
        let context = ActContext {
            setup,
            access,
            subject,
            target: &subject.target,
            observation,
            desired: wanted.as_ref(),
            content: rendered.as_ref().map(|(content, _)| content),
            notices,
        };
        let result = act::run(&step, &context, &mut memory.release).await;
        let latest = access.history(&subject.target);
        let known = wanted.as_ref().and_then(|wanted| wanted.as_ref().ok());
        let failure = wanted.as_ref().and_then(|wanted| wanted.as_ref().err());
        let digest = known.map(|desired| &desired.inputs.digest);
        memory.verdict = verdict(&Ended {
            step: &step,
            latest: latest.last().map(|meta| {
                (
                    meta.status,
                    digest.is_some() && meta.digest.as_ref() == digest,
                )
            }),
            inputs: failure.map(|error| Trouble::of(error.is_transient())),
            error: result
                .as_ref()
                .err()
                .map(|error| Trouble::of(error.is_transient())),
        });
        traced::ended(&step, latest.last(), &result);
        result
    }
}

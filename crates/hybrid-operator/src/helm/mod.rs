//! Charts as operators: every custom resource of a kind becomes a Helm release.
//!
//! ```text
//! observe (caches) -> desired (values, digest, render) -> plan -> execute one step -> status
//! ```
//!
//! Read `HelmReconciler::reconcile_one` first: it is the story. [`plan`] decides, the actions in
//! [`crate::action`] do, and no other part does either.
//!
//! Needs, for the kind: `get`, `list`, `watch`, `patch`, and `patch` on its status; for Secrets,
//! which hold the records: everything; for the chart's objects: `get`, `list`, `watch`, `create`,
//! `patch`, `delete`.

mod adoption;
pub mod annotations;
mod builder;
pub mod conditions;
mod contest;
mod definitions;
mod deployment;
mod desired;
mod events;
mod execute;
mod extend;
mod finalizer;
mod interest;
mod kind;
mod naming;
mod observe;
mod orphans;
mod patches;
pub mod plan;
mod references;
mod removal;
pub mod status;
mod trial;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use helm_core::CompiledChart;
use kube::api::DynamicObject;

use crate::action::live::Live;
use crate::cluster::{Cluster, OperatorId};
use crate::controller::{Key, Outcome, Reconcile, ReconcileError, Request, Source};
use crate::manager::ControllerContext;
use crate::release::{InputsDigest, SecretStore};
use crate::watches::Watch;

pub use builder::{BuildError, HelmController, load};
pub use extend::{ExtensionError, PostHook, PreHook, ReleaseRef, ValueTranslator};
pub use helm_core::Values;

use definitions::Definitions;
use desired::{Desired, Desires};
use execute::Done;
use extend::Extensions;
use interest::Interests;
use observe::Facts;
use plan::Step;
use status::{Status, Told};

/// Reconciles the custom resources of one entry of `watches.yaml`.
pub struct HelmReconciler {
    watch: Watch,
    chart: CompiledChart,
    manager: ControllerContext,
    source: Source,
    store: SecretStore,
    interests: Interests,
    extensions: Extensions,
    clusters: Mutex<HashMap<(String, String), Cluster>>,
    period: Duration,
    releases: Mutex<HashMap<Key, Release>>,
}

/// What this process remembers of one custom resource. All of it can be lost.
#[derive(Clone, Default)]
struct Release {
    live: Live,
    desires: Option<Desires>,
    /// Wanted inputs, and the deployed ones that they would change nothing of.
    equal: Option<(InputsDigest, InputsDigest)>,
    repairs: Vec<jiff::Timestamp>,
    /// The operator that looked after it when it was last looked at.
    keeper: Option<OperatorId>,
    told: Told,
    problems: Vec<String>,
    definitions: Option<Definitions>,
}

impl Reconcile for HelmReconciler {
    fn reconcile(&self, request: Request) -> BoxFuture<'_, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(resource) = self.source.get(&request.key) else {
                self.releases().remove(&request.key);
                self.interests.forget(&request.key);
                return Ok(Outcome::Done);
            };
            let mut release = self
                .releases()
                .get(&request.key)
                .cloned()
                .unwrap_or_default();
            let outcome = match self.other_operator(&resource, &release) {
                Some(other) => self.leave_to(&other, &resource, &mut release).await,
                None => self.reconcile_one(&resource, &mut release).await,
            };
            self.releases().insert(request.key, release);
            outcome
        })
    }
}

impl HelmReconciler {
    /// Brings one release to what its custom resource says: the whole flow.
    async fn reconcile_one(
        &self,
        resource: &Arc<DynamicObject>,
        release: &mut Release,
    ) -> Result<Outcome, ReconcileError> {
        let facts = match Facts::of(resource, self) {
            Ok(facts) => facts,
            Err(refused) => {
                let (status, error) = *refused;
                return self.refuse(resource, release, status, error).await;
            }
        };
        let mut status = facts.status();
        let own = Some(self.manager.operator.clone());
        status.uncontested(release.keeper != own);
        release.keeper = own;
        let result = match self.desire(&facts, release).await {
            Ok(desired) => {
                let observed = self.observe(&facts, release, &desired).await;
                let step = plan::next_step(&observed, &desired.plan());
                tracing::debug!(?step, "planned");
                self.take(step, &facts, &desired, release, &mut status)
                    .await
            }
            // A chart that no longer renders does not keep a release from being removed.
            Err(_) if facts.deleting => self.execute_uninstall(&facts, release, &mut status).await,
            Err(error) => self.cannot_tell(&facts, &error, &mut status),
        };
        if let Err(error) = &result
            && !status.is_failure_told()
            && !execute::is_transient(error)
        {
            status.irreconcilable("ReconcileError", error.as_ref());
        }
        self.write_status(&facts, status, release, &result).await?;
        match result? {
            Done::Settled => Ok(self.next_look(facts.annotations.reconcile_period)),
            Done::Again(delay) => Ok(Outcome::After(delay)),
            Done::Gone => Ok(Outcome::Done),
        }
    }

    /// Takes a step, between the hooks in code.
    async fn take(
        &self,
        step: Step,
        facts: &Facts,
        desired: &Desired,
        release: &mut Release,
        status: &mut Status,
    ) -> Result<Done, ReconcileError> {
        self.run_pre_hooks(&step, facts, desired).await?;
        let done = self
            .execute(step.clone(), facts, desired, release, status)
            .await?;
        self.run_post_hooks(&step, facts, done).await?;
        Ok(done)
    }

    /// When an unchanged custom resource is looked at next.
    fn next_look(&self, asked: Option<Duration>) -> Outcome {
        let period = asked.unwrap_or(self.period);
        if period.is_zero() {
            Outcome::Done
        } else {
            Outcome::After(period)
        }
    }

    fn releases(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Release>> {
        self.releases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

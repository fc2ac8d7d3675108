//! Does the one step that the plan has chosen, and says in the status how it went.

use std::time::Duration;

use helm_core::manifest::ObjectKey;
use helm_core::release::{Revision, Status as ReleaseStatus};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::deployment::redacted;
use super::desired::{Desired, DesiredError, timeout};
use super::kind::Kind;
use super::naming::NamingError;
use super::observe::Facts;
use super::plan::{Refusal, Step};
use super::status::{Status, Told};
use super::{HelmReconciler, Release};
use crate::action::deploy::Stored;
use crate::action::repair::repair;
use crate::action::{ActionContext, ActionError};
use crate::cluster::apply::{ApplyPolicy, LeaveOut};
use crate::cluster::{ApiError, FIELD_MANAGER, read};
use crate::controller::{Outcome, ReconcileError};
use crate::release::{InputsDigest, StoreError, removable};
use crate::watches::DriftMode;

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// Nothing is left to do now.
    Settled,
    /// It goes on when something has changed, or after this time.
    Again(Duration),
    /// The custom resource is gone.
    Gone,
}

/// What waits is woken by its watch; this is for what is not watched.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How many revisions the status tells of.
const RECENT: usize = 5;
/// How often objects are repaired within [`REPAIR_WINDOW`] before they are left alone.
const REPAIRS: usize = 5;
const REPAIR_WINDOW: Duration = Duration::from_mins(10);

impl HelmReconciler {
    pub(super) async fn execute(
        &self,
        step: Step,
        facts: &Facts,
        desired: &Desired,
        release: &mut Release,
        status: &mut Status,
    ) -> Result<Done, ReconcileError> {
        if matches!(
            step,
            Step::Nothing | Step::Repair { .. } | Step::Refuse(Refusal::Stalled)
        ) {
            self.supersede(facts).await?;
        }
        match step {
            Step::Nothing if facts.deleting => Ok(Done::Gone),
            Step::Nothing => {
                let history = self.store.history(&facts.namespace, &facts.name);
                if let Some(latest) = history.last()
                    && !status.says_deployed(latest.revision)
                    && let Some(stored) = self.load(&history, latest.revision).await?
                {
                    let kind = Kind::that_deployed(latest.revision);
                    self.tell_deployed(kind, &stored, release, status);
                }
                status.reconciled();
                Self::report(release, status);
                if self.watch.drift_detection.mode == DriftMode::Warn
                    && !release.live.drifted().is_empty()
                {
                    status.drifted(&names(&release.live.drifted()));
                }
                Ok(Done::Settled)
            }
            Step::Refuse(Refusal::Paused) => {
                status.paused();
                Ok(Done::Settled)
            }
            Step::Refuse(Refusal::Foreign) => {
                let message = format!(
                    "a release {}/{} exists and is not this custom resource's; to take it over, annotate the custom resource with {}adopt-release=true",
                    facts.namespace,
                    facts.name,
                    super::annotations::PREFIX,
                );
                status.irreconcilable("ErrorGettingReleaseState", &Refused(message));
                Ok(Done::Settled)
            }
            Step::Refuse(Refusal::Stalled) => {
                status.stalled(
                    "these values failed too often; change them, or annotate with reset-at",
                );
                Ok(Done::Settled)
            }
            Step::Wait { delay } => {
                status.progressing("somebody else's helm operation to end");
                Ok(Done::Again(delay.min(Duration::from_secs(30))))
            }
            Step::Uninstall => self.execute_uninstall(facts, release, status).await,
            Step::Adopt { revision } => self.adopt(facts, desired, status, revision).await,
            Step::Test { revision } => self.test(facts, release, status, revision).await,
            Step::CleanUp { revision } => self.clean_up(facts, release, status, revision).await,
            Step::Repair { revision } => {
                self.repair(facts, desired, release, status, revision).await
            }
            Step::Install | Step::Upgrade | Step::Rollback { .. } | Step::Resume { .. } => {
                if !facts.finalizer {
                    self.add_finalizer(facts).await?;
                }
                self.run_deployment(step, facts, desired, release, status)
                    .await
            }
        }
    }

    /// Applies what drifted again, unless somebody keeps changing it back.
    async fn repair(
        &self,
        facts: &Facts,
        desired: &Desired,
        release: &mut Release,
        status: &mut Status,
        revision: Revision,
    ) -> Result<Done, ReconcileError> {
        let drifted = release.live.drifted();
        let window =
            |at: &jiff::Timestamp| facts.now.duration_since(*at).unsigned_abs() < REPAIR_WINDOW;
        release.repairs.retain(window);
        if release.repairs.len() >= REPAIRS {
            let who = self.who_changed(facts, &drifted).await;
            status.drifted(&format!("{who} keeps changing {}", names(&drifted)));
            return Ok(Done::Again(Duration::from_mins(1)));
        }
        if !drifted.is_empty() {
            release.repairs.push(facts.now);
        }
        let history = self.store.history(&facts.namespace, &facts.name);
        let Some(stored) = self.load(&history, revision).await? else {
            return Ok(Done::Again(Duration::ZERO));
        };
        let context = self.context(facts, Kind::Upgrade, &[]);
        match repair(&context, &mut release.live, &stored.release).await {
            Ok(_) if drifted.is_empty() => {}
            Ok(repaired) => {
                let note = format!(
                    "applied again what somebody changed: {}",
                    repaired.join(", ")
                );
                self.event(facts, false, "DriftRepaired", "Repair", note)
                    .await;
            }
            Err(error) => {
                status.irreconcilable("ReconcileError", &error);
                return Err(error.into());
            }
        }
        if stored.meta.digest.as_ref() != Some(&desired.digest) {
            // These are not the inputs that are wanted: the plan goes on from here.
            status.release = Some(self.describe(&stored, release));
            return Ok(Done::Again(Duration::ZERO));
        }
        if !status.says_deployed(revision) {
            self.tell_deployed(Kind::that_deployed(revision), &stored, release, status);
        }
        status.reconciled();
        Self::report(release, status);
        Ok(Done::Settled)
    }

    /// The manager that wrote last to the first of these objects, besides us.
    async fn who_changed(&self, facts: &Facts, drifted: &[ObjectKey]) -> String {
        let mut live = None;
        if let Some(key) = drifted.first() {
            live = read::get(&facts.cluster, key).await.ok().flatten();
        }
        let entries = live
            .as_ref()
            .and_then(|live| live.pointer("/metadata/managedFields")?.as_array());
        let text = |entry: &Value, name: &str| entry.get(name)?.as_str().map(ToOwned::to_owned);
        entries
            .into_iter()
            .flatten()
            .filter_map(|entry| Some((text(entry, "time")?, text(entry, "manager")?)))
            .filter(|(_, manager)| manager != FIELD_MANAGER)
            .max()
            .map_or_else(|| "somebody".to_owned(), |(_, manager)| manager)
    }

    pub(super) fn context<'a>(
        &'a self,
        facts: &'a Facts,
        kind: Kind,
        recreate: &'a [String],
    ) -> ActionContext<'a> {
        let policy = self.policy(kind);
        let by_annotation = match kind {
            Kind::Install => facts.annotations.install_disable_hooks,
            Kind::Upgrade | Kind::Rollback => facts.annotations.upgrade_disable_hooks,
            Kind::Uninstall => facts.annotations.uninstall_disable_hooks,
            Kind::Test => false,
        };
        ActionContext {
            cluster: &facts.cluster,
            store: &self.store,
            registry: &self.manager.registry,
            namespaces: &self.manager.namespaces,
            primary: &facts.primary,
            operator: &self.manager.operator,
            instance: &self.manager.instance,
            chart: self.chart.chart().name(),
            name: &facts.name,
            namespace: &facts.namespace,
            policy: ApplyPolicy {
                take_over: facts.annotations.adopts(&self.manager.operator),
                replace: kind == Kind::Upgrade && facts.annotations.upgrade_force,
                leave_out: self.left_to_others(),
            },
            recreate,
            timeout: timeout(policy.timeout),
            disable_hooks: by_annotation || policy.disable_hooks,
            now: facts.now,
        }
    }

    /// Fields that others may set.
    fn left_to_others(&self) -> Vec<LeaveOut> {
        let mut rules = ApplyPolicy::default().leave_out;
        rules.extend(self.watch.drift_detection.ignore.iter().map(|ignore| {
            let target = &ignore.target;
            LeaveOut {
                any_group: target.group.is_none(),
                group: target.group.clone().unwrap_or_default(),
                kind: target.kind.clone().unwrap_or_default(),
                name: target.name.clone(),
                paths: ignore.paths.clone(),
            }
        }));
        rules
    }

    pub(super) fn policy(&self, kind: Kind) -> &crate::watches::ActionPolicy {
        match kind {
            Kind::Install => &self.watch.install,
            Kind::Upgrade => &self.watch.upgrade,
            Kind::Rollback => &self.watch.rollback,
            Kind::Uninstall => &self.watch.uninstall,
            Kind::Test => self.watch.test.as_ref().unwrap_or(&self.watch.upgrade),
        }
    }

    /// Says that a release is deployed.
    pub(super) fn tell_deployed(
        &self,
        kind: Kind,
        stored: &Stored,
        release: &Release,
        status: &mut Status,
    ) {
        let notes = stored.release.info.notes.trim();
        let message = if notes.is_empty() {
            kind.success()
        } else {
            notes
        };
        status.deployed(kind.success_reason(), message);
        status.release = Some(self.describe(stored, release));
        status.manifest = redacted(&stored.release.manifest);
        Self::report(release, status);
    }

    /// What the status says of a release.
    pub(super) fn describe(&self, stored: &Stored, release: &Release) -> Value {
        let metadata = self.chart.chart().metadata();
        json!({
            "name": stored.release.name.as_str(),
            "revision": stored.release.revision.0,
            "status": stored.release.info.status.as_str(),
            "chartVersion": format!("{}-{}", metadata.name, metadata.version),
            "appVersion": metadata.app_version,
            "digest": stored.meta.digest.as_ref().map(InputsDigest::as_str),
            "baseline": release.live.aggregate(),
        })
    }

    /// Says whether the objects are ready.
    pub(super) fn report(release: &Release, status: &mut Status) {
        status.ready(&release.live.unready(true));
        if let Some(described) = status.release.as_mut().and_then(Value::as_object_mut) {
            described.insert("baseline".to_owned(), json!(release.live.aggregate()));
        }
    }

    /// Deletes records beyond the limit.
    pub(super) async fn prune_history(&self, facts: &Facts) {
        let limit = self.watch.max_history.map_or(10, usize::from).max(2);
        let history = self.store.history(&facts.namespace, &facts.name);
        for meta in removable(&history, limit) {
            if let Err(error) = self.store.delete(meta).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "an old record could not be deleted"
                );
            }
        }
    }

    /// A custom resource that can have no release.
    pub(super) async fn refuse(
        &self,
        resource: &DynamicObject,
        release: &mut Release,
        mut status: Status,
        error: NamingError,
    ) -> Result<Outcome, ReconcileError> {
        status.irreconcilable("ErrorGettingReleaseState", &error);
        if let Some(patch) = status.patch(&release.told) {
            let answer = self
                .patch_status(&self.primary(resource), None, &patch)
                .await?;
            release.told = Told::new(&patch, answer.as_ref());
        }
        // Only another spec or another watches.yaml helps.
        Ok(Outcome::Done)
    }

    /// What should be cannot be told: the release stays as it is.
    pub(super) fn cannot_tell(
        &self,
        facts: &Facts,
        error: &DesiredError,
        status: &mut Status,
    ) -> Result<Done, ReconcileError> {
        let installed = self
            .store
            .history(&facts.namespace, &facts.name)
            .iter()
            .any(|meta| meta.status == ReleaseStatus::Deployed);
        if error.is_render() {
            let kind = if installed {
                Kind::Upgrade
            } else {
                Kind::Install
            };
            status.failed(kind.error_reason(), &super::status::chain(error));
        } else {
            status.unknown(error.reason());
        }
        status.irreconcilable(error.reason(), error);
        Err(super::status::chain(error).into())
    }

    /// Writes the status if it changed, and tells of its transitions.
    pub(super) async fn write_status(
        &self,
        facts: &Facts,
        mut status: Status,
        release: &mut Release,
        result: &Result<Done, ReconcileError>,
    ) -> Result<(), ReconcileError> {
        if matches!(result, Ok(Done::Gone)) {
            return Ok(());
        }
        status.history = Some(self.recent(facts));
        if let Some(patch) = status.patch(&release.told) {
            let answer = self.patch_status(&facts.primary, None, &patch).await?;
            release.told = Told::new(&patch, answer.as_ref());
            for field in Told::pruned(&patch, answer.as_ref()) {
                let note = format!(
                    "the definition of {} has no status.{field}, so it is not kept; add it, or x-kubernetes-preserve-unknown-fields",
                    facts.primary.gvk.kind
                );
                self.event(facts, true, "StatusPruned", "Status", note)
                    .await;
            }
        }
        self.tell_transitions(&facts.primary, &status).await;
        if release.problems != facts.annotations.problems {
            for problem in &facts.annotations.problems {
                self.event(facts, true, "InvalidAnnotation", "Read", problem.clone())
                    .await;
            }
            release.problems.clone_from(&facts.annotations.problems);
        }
        Ok(())
    }

    /// The newest revisions, as the status tells them.
    fn recent(&self, facts: &Facts) -> Value {
        let history = self.store.history(&facts.namespace, &facts.name);
        history
            .iter()
            .rev()
            .take(RECENT)
            .map(|meta| {
                json!({
                    "revision": meta.revision.0,
                    "status": meta.status.as_str(),
                    "digest": meta.digest.as_ref().map(InputsDigest::as_str),
                })
            })
            .collect()
    }
}

/// Whether the same may succeed in a moment, so that it is not worth a condition.
pub(super) fn is_transient(error: &ReconcileError) -> bool {
    let mut next: Option<&dyn std::error::Error> = Some(error.as_ref());
    while let Some(error) = next {
        let verdict = error
            .downcast_ref::<ApiError>()
            .map(ApiError::is_transient)
            .or_else(|| error.downcast_ref().map(StoreError::is_transient))
            .or_else(|| error.downcast_ref().map(ActionError::is_transient));
        if let Some(verdict) = verdict {
            return verdict;
        }
        next = error.source();
    }
    false
}

/// A decision that is not an error of anything.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refused(pub(super) String);

fn names(keys: &[ObjectKey]) -> String {
    keys.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

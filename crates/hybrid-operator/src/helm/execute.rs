//! Does the one step that the plan has chosen, and says in the status how it went.

use std::time::Duration;

use helm_core::manifest::{HookEvent, HookExecution};
use helm_core::release::{ApplyMethod, Release as Record, Revision, Status as ReleaseStatus, Time};
use kube::ResourceExt;
use serde_json::json;

use super::desired::{Desired, config, timeout};
use super::observe::Facts;
use super::plan::{Refusal, Step};
use super::status::{Status, chain};
use super::{HelmReconciler, Release};
use crate::action::deploy::{Deployment, Stored, deploy};
use crate::action::repair::repair;
use crate::action::uninstall::uninstall;
use crate::action::{ActionContext, ActionError, Progress};
use crate::cluster::apply::ApplyPolicy;
use crate::controller::ReconcileError;
use crate::release::{InputsDigest, RecordMeta, RecordTags};

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
const LOOK_AGAIN: Duration = Duration::from_secs(2);
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
        match step {
            Step::Nothing if facts.deleting => Ok(Done::Gone),
            Step::Nothing => {
                status.reconciled();
                Self::report(release, status);
                if !release.live.drifted().is_empty() {
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
                    super::annotations::PREFIX
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
            Step::Repair { revision } => self.repair(facts, release, status, revision).await,
            Step::Install | Step::Upgrade | Step::Rollback { .. } | Step::Resume { .. } => {
                if !facts.finalizer {
                    self.add_finalizer(facts).await?;
                }
                self.run_deployment(step, facts, desired, release, status)
                    .await
            }
        }
    }

    /// Begins or continues an install, upgrade or rollback.
    async fn run_deployment(
        &self,
        step: Step,
        facts: &Facts,
        desired: &Desired,
        release: &mut Release,
        status: &mut Status,
    ) -> Result<Done, ReconcileError> {
        let history = self.store.history(&facts.namespace, &facts.name);
        let previous = history
            .iter()
            .rev()
            .find(|m| m.status == ReleaseStatus::Deployed);
        let mut stored = match &step {
            Step::Resume { revision } => match self.load(&history, *revision).await? {
                Some(stored) => stored,
                None => return Ok(Done::Again(Duration::ZERO)),
            },
            Step::Rollback { to } => {
                let Some(good) = self.load(&history, *to).await? else {
                    return Ok(Done::Again(Duration::ZERO));
                };
                self.begin_rollback(facts, &history, good).await?
            }
            _ => match self
                .begin(facts, desired, &history, step == Step::Upgrade)
                .await
            {
                Ok(stored) => stored,
                Err(BeginError::Desired(error)) => {
                    let reason = if step == Step::Upgrade {
                        "UpgradeError"
                    } else {
                        "InstallError"
                    };
                    status.failed(reason, &chain(&error));
                    status.irreconcilable("ReconcileError", &error);
                    return Err(error.into());
                }
                Err(BeginError::Other(error)) => return Err(error),
            },
        };
        if !desired.overridden.is_empty() && !matches!(step, Step::Resume { .. }) {
            let note = format!("watches.yaml overrides {}", desired.overridden.join(", "));
            self.event(facts, true, "ValueOverridden", "Values", note)
                .await;
        }
        let kind = Kind::of(stored.release.info.status);
        let previous = match previous {
            Some(meta) if meta.revision != stored.meta.revision => {
                let meta = meta.clone();
                let release = self.store.load(&meta).await?;
                Some(Stored { meta, release })
            }
            _ => None,
        };
        let context = self.context(facts, kind);
        let deployment = Deployment {
            previous,
            pre: kind.pre(),
            post: kind.post(),
            wait: self.policy(kind).wait,
            description: kind.description(facts),
            stored: &mut stored,
        };
        match deploy(&context, &mut release.live, deployment).await {
            Ok(Progress::Done) => {
                let notes = stored.release.info.notes.trim();
                let message = if notes.is_empty() {
                    kind.success().to_owned()
                } else {
                    notes.to_owned()
                };
                status.deployed(kind.success_reason(), &message);
                status.release = Some(self.describe(&stored, release));
                Self::report(release, status);
                self.prune_history(facts).await;
                Ok(Done::Settled)
            }
            Ok(Progress::Waiting { why }) => {
                status.progressing(&why);
                Ok(Done::Again(LOOK_AGAIN))
            }
            Err(error) => {
                self.deployment_failed(kind, facts, &mut stored, error, status)
                    .await
            }
        }
    }

    /// Records a failure. What may succeed by itself stays pending and is tried again.
    async fn deployment_failed(
        &self,
        kind: Kind,
        facts: &Facts,
        stored: &mut Stored,
        error: ActionError,
        status: &mut Status,
    ) -> Result<Done, ReconcileError> {
        let message = chain(&error);
        status.failed(kind.error_reason(), &message);
        status.irreconcilable("ReconcileError", &error);
        if error.is_transient() {
            return Err(error.into());
        }
        stored.release.set_status(
            ReleaseStatus::Failed,
            format!("{}: {message}", kind.failure(facts)),
        );
        let tags = self.tags(facts, stored.meta.digest.clone());
        self.store
            .update(&stored.meta, &stored.release, &tags)
            .await?;
        Err(error.into())
    }

    /// Renders and writes the pending record of a new revision.
    async fn begin(
        &self,
        facts: &Facts,
        desired: &Desired,
        history: &[RecordMeta],
        upgrade: bool,
    ) -> Result<Stored, BeginError> {
        let revision = history
            .last()
            .map_or(Revision::FIRST, |latest| latest.revision.next());
        let rendered = self
            .render(facts, &desired.coalesced, revision, upgrade)
            .await?;
        // What is no object is found before anything is written.
        rendered.objects().map_err(|error| {
            super::desired::DesiredError::Render(helm_core::RenderError::Object(error))
        })?;
        if upgrade {
            self.give_up_pending(facts, history)
                .await
                .map_err(BeginError::Other)?;
        }
        let mut record = Record::new(facts.name.clone(), facts.namespace.as_str(), revision);
        record.chart = Some(record_chart(self.chart.chart()));
        record.config = config(desired);
        rendered.manifest().clone_into(&mut record.manifest);
        record.hooks = rendered.hooks().to_vec();
        rendered.notes().clone_into(&mut record.info.notes);
        record.apply_method = Some(ApplyMethod::ServerSide);
        let now = Time::utc(facts.now);
        record.info.first_deployed = Some(now);
        record.info.last_deployed = Some(now);
        let (status, text) = if upgrade {
            (ReleaseStatus::PendingUpgrade, "Preparing upgrade")
        } else {
            (ReleaseStatus::PendingInstall, "Initial install underway")
        };
        record.set_status(status, text);
        self.create(facts, record, Some(desired.digest.clone()))
            .await
            .map_err(BeginError::Other)
    }

    /// Writes the pending record that repeats an earlier revision.
    async fn begin_rollback(
        &self,
        facts: &Facts,
        history: &[RecordMeta],
        good: Stored,
    ) -> Result<Stored, ReconcileError> {
        let mut record = good.release;
        let target = record.revision;
        record.revision = history
            .last()
            .map_or(Revision::FIRST, |latest| latest.revision.next());
        record.info.last_deployed = Some(Time::utc(facts.now));
        record.info.rollback_revision = target;
        for hook in &mut record.hooks {
            hook.last_run = HookExecution::default();
        }
        record.set_status(
            ReleaseStatus::PendingRollback,
            format!("Rollback to {target}"),
        );
        self.create(facts, record, good.meta.digest).await
    }

    async fn create(
        &self,
        facts: &Facts,
        record: Record,
        digest: Option<InputsDigest>,
    ) -> Result<Stored, ReconcileError> {
        let meta = self
            .store
            .create(&record, &self.tags(facts, digest))
            .await?;
        Ok(Stored {
            meta,
            release: record,
        })
    }

    fn tags(&self, facts: &Facts, digest: Option<InputsDigest>) -> RecordTags {
        RecordTags {
            cr: facts.primary.identity(),
            operator: self.manager.operator.clone(),
            writer: self.manager.instance.clone(),
            digest,
        }
    }

    /// A pending record of other inputs is given up before the next revision begins.
    async fn give_up_pending(
        &self,
        facts: &Facts,
        history: &[RecordMeta],
    ) -> Result<(), ReconcileError> {
        for meta in history.iter().filter(|meta| meta.status.is_pending()) {
            let mut release = self.store.load(meta).await?;
            release.set_status(
                ReleaseStatus::Failed,
                "given up: the inputs changed before it was done",
            );
            self.store
                .update(meta, &release, &self.tags(facts, meta.digest.clone()))
                .await?;
        }
        Ok(())
    }

    async fn load(
        &self,
        history: &[RecordMeta],
        revision: Revision,
    ) -> Result<Option<Stored>, ReconcileError> {
        let Some(meta) = history.iter().find(|meta| meta.revision == revision) else {
            return Ok(None);
        };
        let release = self.store.load(meta).await?;
        Ok(Some(Stored {
            meta: meta.clone(),
            release,
        }))
    }

    /// Applies what drifted again, unless somebody keeps changing it back.
    async fn repair(
        &self,
        facts: &Facts,
        release: &mut Release,
        status: &mut Status,
        revision: Revision,
    ) -> Result<Done, ReconcileError> {
        let drifted = release.live.drifted();
        let window =
            |at: &jiff::Timestamp| facts.now.duration_since(*at).unsigned_abs() < REPAIR_WINDOW;
        release.repairs.retain(window);
        if release.repairs.len() >= REPAIRS {
            status.drifted(&format!("somebody keeps changing {}", names(&drifted)));
            return Ok(Done::Again(Duration::from_mins(1)));
        }
        if !drifted.is_empty() {
            release.repairs.push(facts.now);
        }
        let history = self.store.history(&facts.namespace, &facts.name);
        let Some(stored) = self.load(&history, revision).await? else {
            return Ok(Done::Again(Duration::ZERO));
        };
        let context = self.context(facts, Kind::Upgrade);
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
        if !status
            .conditions
            .iter()
            .any(|c| c.type_ == super::conditions::types::DEPLOYED)
        {
            let notes = stored.release.info.notes.trim();
            status.deployed(
                "InstallSuccessful",
                if notes.is_empty() {
                    Kind::Install.success()
                } else {
                    notes
                },
            );
        }
        status.reconciled();
        status.release = Some(self.describe(&stored, release));
        Self::report(release, status);
        Ok(Done::Settled)
    }

    /// Removes the release and then the finalizer.
    pub(super) async fn execute_uninstall(
        &self,
        facts: &Facts,
        release: &mut Release,
        status: &mut Status,
    ) -> Result<Done, ReconcileError> {
        if !facts.finalizer {
            return Ok(Done::Gone);
        }
        // A cache is no proof: only a fresh read starts an uninstall.
        let Some(fresh) = self.fresh(facts).await? else {
            return Ok(Done::Gone);
        };
        let same = fresh.uid().as_deref() == Some(facts.primary.uid.as_str());
        if !same
            || fresh.metadata.deletion_timestamp.is_none()
            || !super::finalizer::is_present(&fresh)
        {
            return Ok(Done::Gone);
        }
        let history = self.store.history(&facts.namespace, &facts.name);
        let identity = facts.primary.identity();
        let own: Vec<RecordMeta> = history
            .into_iter()
            .filter(|meta| meta.cr.as_ref() == Some(&identity))
            .collect();
        if let Some(latest) = own.last() {
            let mut stored = Stored {
                meta: latest.clone(),
                release: self.store.load(latest).await?,
            };
            let deployed = own
                .iter()
                .rev()
                .find(|m| m.status == ReleaseStatus::Deployed);
            let earlier = match deployed.filter(|meta| meta.revision != latest.revision) {
                Some(meta) => Some(Stored {
                    meta: meta.clone(),
                    release: self.store.load(meta).await?,
                }),
                None => None,
            };
            let context = self.context(facts, Kind::Uninstall);
            let wait = facts.annotations.uninstall_wait || self.watch.uninstall.wait;
            let description = facts.annotations.uninstall_description.as_deref();
            let description = description.unwrap_or("Deletion in progress (or silently failed)");
            let ended = uninstall(
                &context,
                &mut release.live,
                &mut stored,
                earlier.as_ref(),
                wait,
                description,
            )
            .await;
            match ended {
                Ok(Progress::Done) => {}
                Ok(Progress::Waiting { why }) => {
                    status.progressing(&why);
                    return Ok(Done::Again(LOOK_AGAIN));
                }
                Err(error) => {
                    status.failed("UninstallError", &chain(&error));
                    status.irreconcilable("UninstallError", &error);
                    return Err(error.into());
                }
            }
        }
        self.event(
            facts,
            false,
            "UninstallSuccessful",
            "Uninstall",
            "the release was uninstalled".to_owned(),
        )
        .await;
        self.remove_finalizer(facts, &fresh).await?;
        Ok(Done::Gone)
    }

    fn context<'a>(&'a self, facts: &'a Facts, kind: Kind) -> ActionContext<'a> {
        let policy = self.policy(kind);
        let by_annotation = match kind {
            Kind::Install => facts.annotations.install_disable_hooks,
            Kind::Upgrade | Kind::Rollback => facts.annotations.upgrade_disable_hooks,
            Kind::Uninstall => facts.annotations.uninstall_disable_hooks,
        };
        ActionContext {
            cluster: &self.manager.cluster,
            store: self.store.as_ref(),
            registry: &self.manager.registry,
            namespaces: &self.manager.namespaces,
            primary: &facts.primary,
            operator: &self.manager.operator,
            instance: &self.manager.instance,
            chart: self.chart.chart().name(),
            name: &facts.name,
            namespace: &facts.namespace,
            policy: ApplyPolicy {
                take_over: facts.annotations.adopt_release,
                replace: kind == Kind::Upgrade && facts.annotations.upgrade_force,
                ..ApplyPolicy::default()
            },
            timeout: timeout(policy.timeout),
            disable_hooks: by_annotation || policy.disable_hooks,
            now: facts.now,
        }
    }

    fn policy(&self, kind: Kind) -> &crate::watches::ActionPolicy {
        match kind {
            Kind::Install => &self.watch.install,
            Kind::Upgrade => &self.watch.upgrade,
            Kind::Rollback => &self.watch.rollback,
            Kind::Uninstall => &self.watch.uninstall,
        }
    }

    /// What the status says of a release.
    fn describe(&self, stored: &Stored, release: &Release) -> serde_json::Value {
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
    fn report(release: &Release, status: &mut Status) {
        status.ready(&release.live.unready());
        if let Some(described) = status
            .release
            .as_mut()
            .and_then(serde_json::Value::as_object_mut)
        {
            described.insert("baseline".to_owned(), json!(release.live.aggregate()));
        }
    }

    /// Deletes records beyond the limit; never the newest two.
    async fn prune_history(&self, facts: &Facts) {
        let limit = self.watch.max_history.map_or(10, usize::from).max(2);
        let history = self.store.history(&facts.namespace, &facts.name);
        let surplus = history.len().saturating_sub(limit);
        for meta in history
            .iter()
            .filter(|m| m.status != ReleaseStatus::Deployed)
            .take(surplus)
        {
            if let Err(error) = self.store.delete(meta).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "an old record could not be deleted"
                );
            }
        }
    }

    /// Writes the status if it changed, and tells of its transitions.
    pub(super) async fn write_status(
        &self,
        facts: &Facts,
        status: Status,
        _release: &Release,
        result: &Result<Done, ReconcileError>,
    ) -> Result<(), ReconcileError> {
        if matches!(result, Ok(Done::Gone)) {
            return Ok(());
        }
        if let Some(patch) = status.patch() {
            self.patch_status(facts, patch).await?;
        }
        for (warning, reason, message) in &status.transitions {
            self.event(facts, *warning, reason, "Reconcile", message.clone())
                .await;
        }
        Ok(())
    }
}

/// A decision that is not an error of anything.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

enum BeginError {
    Desired(super::desired::DesiredError),
    Other(ReconcileError),
}

impl From<super::desired::DesiredError> for BeginError {
    fn from(error: super::desired::DesiredError) -> Self {
        Self::Desired(error)
    }
}

fn names(keys: &[helm_core::manifest::ObjectKey]) -> String {
    keys.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Which of Helm's actions goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Install,
    Upgrade,
    Rollback,
    Uninstall,
}

impl Kind {
    fn of(status: ReleaseStatus) -> Self {
        match status {
            ReleaseStatus::PendingUpgrade => Self::Upgrade,
            ReleaseStatus::PendingRollback => Self::Rollback,
            _ => Self::Install,
        }
    }

    fn pre(self) -> HookEvent {
        match self {
            Self::Install => HookEvent::PreInstall,
            Self::Upgrade => HookEvent::PreUpgrade,
            Self::Rollback => HookEvent::PreRollback,
            Self::Uninstall => HookEvent::PreDelete,
        }
    }

    fn post(self) -> HookEvent {
        match self {
            Self::Install => HookEvent::PostInstall,
            Self::Upgrade => HookEvent::PostUpgrade,
            Self::Rollback => HookEvent::PostRollback,
            Self::Uninstall => HookEvent::PostDelete,
        }
    }

    fn success_reason(self) -> &'static str {
        match self {
            Self::Install => "InstallSuccessful",
            Self::Upgrade | Self::Rollback => "UpgradeSuccessful",
            Self::Uninstall => "UninstallSuccessful",
        }
    }

    fn success(self) -> &'static str {
        match self {
            Self::Install => "release was successfully installed",
            _ => "release was successfully upgraded",
        }
    }

    fn error_reason(self) -> &'static str {
        match self {
            Self::Install => "InstallError",
            Self::Upgrade | Self::Rollback => "UpgradeError",
            Self::Uninstall => "UninstallError",
        }
    }

    /// What the record says when all is done.
    fn description(self, facts: &Facts) -> String {
        match self {
            Self::Install => facts.annotations.install_description.clone(),
            Self::Upgrade => facts.annotations.upgrade_description.clone(),
            _ => None,
        }
        .unwrap_or_else(|| {
            match self {
                Self::Install => "Install complete",
                Self::Upgrade => "Upgrade complete",
                Self::Rollback => "Rollback complete",
                Self::Uninstall => "Uninstallation complete",
            }
            .to_owned()
        })
    }

    fn failure(self, facts: &Facts) -> String {
        match self {
            Self::Install => format!("Release {:?} failed", facts.name.as_str()),
            Self::Upgrade => format!("Upgrade {:?} failed", facts.name.as_str()),
            _ => format!("Rollback {:?} failed", facts.name.as_str()),
        }
    }
}

/// A chart as records hold it.
fn record_chart(chart: &helm_core::Chart) -> helm_core::release::ReleaseChart {
    let stored = |files: &[helm_core::chart::File]| {
        files
            .iter()
            .map(|file| helm_core::release::StoredFile {
                name: file.name().to_owned(),
                data: file.shared_data(),
                modified: file.modified(),
            })
            .collect()
    };
    helm_core::release::ReleaseChart {
        metadata: Some(chart.metadata().clone()),
        lock: chart.lock().cloned(),
        templates: Some(stored(chart.templates())),
        values: Some(chart.values().clone()),
        schema: chart.schema().map(helm_core::chart::File::shared_data),
        files: Some(stored(chart.files())),
        modified: chart.modified(),
        ..Default::default()
    }
}

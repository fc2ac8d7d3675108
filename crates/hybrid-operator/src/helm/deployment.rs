//! Begins an install, upgrade or rollback, or continues one, and says in the status how it went.

use std::time::Duration;

use helm_core::RenderError;
use helm_core::manifest::diff::same_meaning;
use helm_core::manifest::{HookExecution, parse_objects};
use helm_core::release::{ApplyMethod, Release as Record, Revision, Status as ReleaseStatus, Time};
use serde_json::Value;

use super::definitions::{Definitions, NotServed};
use super::desired::{Desired, DesiredError, config};
use super::execute::{Done, LOOK_AGAIN};
use super::kind::Kind;
use super::observe::Facts;
use super::plan::Step;
use super::status::{Status, chain};
use super::{HelmReconciler, Release};
use crate::action::deploy::{Deployment, Stored, deploy};
use crate::action::{ActionError, Progress};
use crate::controller::ReconcileError;
use crate::release::{InputsDigest, RecordMeta, RecordTags, StoreError};

/// How long until a custom resource that waits for another is looked at without being woken.
const DEPENDENCY: Duration = Duration::from_secs(30);
/// Bytes of a manifest that a status holds.
const MANIFEST_MAX: usize = 32 * 1024;

impl HelmReconciler {
    /// Begins or continues an install, upgrade or rollback.
    pub(super) async fn run_deployment(
        &self,
        step: Step,
        facts: &Facts,
        desired: &Desired,
        release: &mut Release,
        status: &mut Status,
    ) -> Result<Done, ReconcileError> {
        if let Some(missing) = self.missing_dependency(facts).await? {
            status.progressing(&missing);
            return Ok(Done::Again(DEPENDENCY));
        }
        let history = self.store.history(&facts.namespace, &facts.name);
        if history.is_empty()
            && let Some(revision) = self.bring_over(facts).await?
        {
            return self.adopt(facts, desired, status, revision).await;
        }
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
                .begin(
                    facts,
                    desired,
                    &history,
                    step == Step::Upgrade,
                    &mut release.definitions,
                )
                .await
            {
                Ok(Begun::Record(stored)) => *stored,
                Ok(Begun::NotServed(NotServed { why, delay })) => {
                    status.progressing(&why);
                    return Ok(Done::Again(delay));
                }
                Ok(Begun::Unchanged(meta)) => {
                    self.count_as_deployed(facts, desired, release, &meta)
                        .await?;
                    return Ok(Done::Again(Duration::ZERO));
                }
                Err(BeginError::Desired(error)) => {
                    return self.cannot_tell(facts, &error, status);
                }
                Err(BeginError::Other(error)) => return Err(error),
            },
        };
        release.equal = None;
        if !matches!(step, Step::Resume { .. }) {
            // Whatever was applied under this number before, it was not this.
            release.live.complete = false;
            self.tell_overridden(facts, desired).await;
        }
        status.handle(&facts.annotations, stored.meta.revision.0);
        let kind = Kind::of(stored.release.info.status);
        let (previous, leftovers) = self.predecessors(facts, &history, &stored).await?;
        let recreate = self.recreated(kind);
        let context = self.context(facts, kind, &recreate);
        let policy = self.policy(kind);
        let deployment = Deployment {
            previous,
            leftovers,
            pre: kind.pre(),
            post: kind.post(),
            wait: policy.wait,
            wait_for_jobs: policy.wait_for_jobs,
            description: kind.description(facts),
            stored: &mut stored,
        };
        match deploy(&context, &mut release.live, deployment).await {
            Ok(Progress::Done) if kind == Kind::Rollback => {
                let note = format!(
                    "the upgrade failed; revision {} is revision {} again",
                    stored.release.revision, stored.release.info.rollback_revision
                );
                self.event(facts, true, "RolledBack", "Rollback", note)
                    .await;
                status.release = Some(self.describe(&stored, release));
                status.manifest = redacted(&stored.release.manifest);
                self.prune_history(facts).await;
                // The inputs that failed are still wanted: the plan says what that means.
                Ok(Done::Again(Duration::ZERO))
            }
            Ok(Progress::Done) => {
                self.tell_deployed(kind, &stored, release, status);
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

    /// The revision that is deployed, and those since whose objects may be there, too. A record
    /// that cannot be read is told of and left out.
    async fn predecessors(
        &self,
        facts: &Facts,
        history: &[RecordMeta],
        stored: &Stored,
    ) -> Result<(Option<Stored>, Vec<Stored>), ReconcileError> {
        let mut leftovers = Vec::new();
        for meta in history.iter().rev() {
            if meta.revision == stored.meta.revision {
                continue;
            }
            let good = matches!(
                meta.status,
                ReleaseStatus::Deployed | ReleaseStatus::Superseded
            );
            let release = match self.store.load(meta).await {
                Ok(release) => release,
                Err(error) if error.is_corrupt() => {
                    self.corrupt(facts, &error).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let meta = meta.clone();
            if good {
                return Ok((Some(Stored { meta, release }), leftovers));
            }
            leftovers.push(Stored { meta, release });
        }
        Ok((None, leftovers))
    }

    /// Ends what a crash has cut off: only the newest deployed record is the deployed one.
    pub(super) async fn supersede(&self, facts: &Facts) -> Result<(), ReconcileError> {
        let history = self.store.history(&facts.namespace, &facts.name);
        let deployed = history
            .iter()
            .filter(|meta| meta.status == ReleaseStatus::Deployed);
        for meta in deployed.rev().skip(1) {
            let mut release = self.store.load(meta).await?;
            let text = release.info.description.clone();
            release.set_status(ReleaseStatus::Superseded, text);
            let tags = self.tags(facts, meta.digest.clone());
            self.store.update(meta, &release, &tags).await?;
        }
        Ok(())
    }

    /// Tells of a record that cannot be read.
    pub(super) async fn corrupt(&self, facts: &Facts, error: &StoreError) {
        self.event(facts, true, error.reason(), "Load", chain(error))
            .await;
    }

    /// Kinds that an upgrade may delete and create anew.
    fn recreated(&self, kind: Kind) -> Vec<String> {
        match (&self.watch.upgrade.recreate, kind) {
            (_, Kind::Install | Kind::Uninstall) => Vec::new(),
            (Some(kinds), _) => kinds.clone(),
            (None, _) => vec!["Job".to_owned()],
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
        status.irreconcilable("ReconcileError", &error);
        if error.is_transient() {
            return Err(error.into());
        }
        let message = chain(&error);
        status.failed(kind.error_reason(), &message);
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
        definitions: &mut Option<Definitions>,
    ) -> Result<Begun, BeginError> {
        let revision = history
            .last()
            .map_or(Revision::FIRST, |latest| latest.revision.next());
        let rendered = self
            .render(facts, &desired.coalesced, revision, upgrade)
            .await?
            .rendered;
        // What is no object is found before anything is written.
        let wanted = rendered
            .objects()
            .map_err(|error| DesiredError::Render(RenderError::Object(error)))?;
        super::desired::check(&wanted, facts)?;
        let deployed = history
            .iter()
            .rev()
            .find(|meta| meta.status == ReleaseStatus::Deployed);
        if let Some(meta) = deployed
            && (wanted.is_empty() || self.watch.lookup_is_input)
        {
            let before = self.store.load(meta).await.map_err(other)?;
            let objects = parse_objects(&before.manifest).unwrap_or_default();
            if wanted.is_empty() && !objects.is_empty() && !self.watch.allow_empty {
                return Err(DesiredError::Empty.into());
            }
            // Only what was looked up has changed, and it changed nothing.
            let same = same_values(&before.config.into(), &config(desired).into())
                && before.chart.as_ref().map(|chart| chart.metadata.as_ref())
                    == Some(Some(self.chart.chart().metadata()))
                && same_meaning(&objects, &wanted, &facts.namespace);
            if same && self.watch.lookup_is_input && !facts.is_forced() {
                return Ok(Begun::Unchanged(Box::new(meta.clone())));
            }
        }
        let not_served = self
            .install_definitions(facts, rendered.crds(), upgrade, definitions)
            .await
            .map_err(BeginError::Other)?;
        if let Some(not_served) = not_served {
            return Ok(Begun::NotServed(not_served));
        }
        if !history.is_empty() {
            self.give_up_pending(facts, history)
                .await
                .map_err(BeginError::Other)?;
        }
        let mut record = Record::new(facts.name.clone(), facts.namespace.as_str(), revision);
        record.chart = Some(self.chart.chart().to_record());
        record.config = config(desired);
        record.values_from.clone_from(&desired.kept);
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
        let stored = self
            .create(facts, record, Some(desired.digest.clone()))
            .await
            .map_err(BeginError::Other)?;
        Ok(Begun::Record(Box::new(stored)))
    }

    async fn tell_overridden(&self, facts: &Facts, desired: &Desired) {
        if !desired.overridden.is_empty() {
            let note = format!("watches.yaml overrides {}", desired.overridden.join(", "));
            self.event(facts, true, "ValueOverridden", "Values", note)
                .await;
        }
    }

    /// Takes the wanted inputs for those of a record that they would not change. Nothing is
    /// written: where releases look each other up, each write would be the others' next change.
    async fn count_as_deployed(
        &self,
        facts: &Facts,
        desired: &Desired,
        release: &mut Release,
        meta: &RecordMeta,
    ) -> Result<(), StoreError> {
        if let Some(deployed) = &meta.digest {
            release.equal = Some((desired.digest.clone(), deployed.clone()));
        } else {
            // Somebody else wrote the record.
            let tags = self.tags(facts, Some(desired.digest.clone()));
            self.store.adopt(meta, &tags).await?;
        }
        Ok(())
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

    pub(super) fn tags(&self, facts: &Facts, digest: Option<InputsDigest>) -> RecordTags {
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
            let mut release = match self.store.load(meta).await {
                Ok(release) => release,
                Err(error) if error.is_corrupt() => {
                    self.corrupt(facts, &error).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
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

    pub(super) async fn load(
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
}

/// Whether values are the same, of whatever kind their numbers are: a record writes 1.0 as 1.
fn same_values(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_values(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let same = |(key, a): (&String, &Value)| b.get(key).is_some_and(|b| same_values(a, b));
            a.len() == b.len() && a.iter().all(same)
        }
        _ => a == b,
    }
}

/// How an install or upgrade begins.
enum Begun {
    /// With this pending record.
    Record(Box<Stored>),
    /// Not at all: nothing would change in this deployed record.
    Unchanged(Box<RecordMeta>),
    /// Later: a definition of the chart is not served yet.
    NotServed(NotServed),
}

enum BeginError {
    Desired(DesiredError),
    Other(ReconcileError),
}

impl From<DesiredError> for BeginError {
    fn from(error: DesiredError) -> Self {
        Self::Desired(error)
    }
}

fn other(error: StoreError) -> BeginError {
    BeginError::Other(error.into())
}

/// The manifest without the content of Secrets; `None` when it is too large for a status.
pub(super) fn redacted(manifest: &str) -> Option<String> {
    if manifest.len() > MANIFEST_MAX {
        return None;
    }
    let mut text = String::with_capacity(manifest.len());
    for document in helm_core::manifest::split(manifest) {
        text.push_str("---\n");
        let object: serde_json::Value = go_yaml::from_str(document).ok()?;
        let secret = |object: &serde_json::Value| {
            object.get("kind").and_then(|kind| kind.as_str()) == Some("Secret")
        };
        let items = object.get("items").and_then(|items| items.as_array());
        if secret(&object) || items.is_some_and(|items| items.iter().any(secret)) {
            let source = document.lines().take_while(|line| line.starts_with('#'));
            for line in source {
                text.push_str(line);
                text.push('\n');
            }
            let name = object
                .pointer("/metadata/name")
                .and_then(|name| name.as_str());
            text.push_str("# Secret ");
            text.push_str(name.unwrap_or_default());
            text.push_str(": its content is not shown\n");
        } else {
            text.push_str(document);
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{redacted, same_values};

    #[test]
    fn secrets_do_not_appear_in_a_redacted_manifest() {
        let manifest = "---\n# Source: c/a.yaml\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: hidden}\n---\n# Source: c/b.yaml\nkind: ConfigMap\nmetadata: {name: c}\n";
        let text = redacted(manifest).unwrap();
        assert!(!text.contains("hidden"), "{text}");
        assert!(text.contains("# Secret s: its content is not shown\n---\n# Source: c/b.yaml\n"));
        assert_eq!(redacted(&"x".repeat(100_000)), None);
    }

    #[test]
    fn values_that_went_through_a_record_are_the_same() {
        let given = json!({"a": 1.0, "b": [{"c": 2}], "d": null});
        for (recorded, same) in [
            (json!({"a": 1, "b": [{"c": 2.0}], "d": null}), true),
            (json!({"a": 1, "b": [{"c": 2}]}), false),
            (json!({"a": 1, "b": [{"c": 3}], "d": null}), false),
            (json!({"a": 1, "b": [], "d": null}), false),
            (json!({"a": "1", "b": [{"c": 2}], "d": null}), false),
        ] {
            assert_eq!(same_values(&recorded, &given), same, "{recorded}");
        }
    }
}

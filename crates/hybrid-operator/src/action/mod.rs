//! Helm's actions on a release, written so that they can be interrupted anywhere and resumed.
//!
//! Every action works on a release record, which is written before anything else and records how
//! far the action got. An action never sleeps: where it would have to wait it returns
//! [`ActionProgress::Waiting`] and is called again when something has changed. Called again after a
//! crash, it does the remaining steps.
//!
//! * [`deploy`]: takes a pending record to deployed, for install, upgrade and rollback.
//! * [`repair`]: applies recorded objects again.
//! * [`recognise`]: checks after a restart whether any object has changed.
//! * [`uninstall`]: removes the objects of a release and its records.
//! * `hooks`, `prune`, [`live`]: shared by the actions.

pub(crate) mod bound;
pub(crate) mod deploy;
mod hook_logs;
mod hooks;
pub(crate) mod live;
mod location;
pub(crate) mod log;
mod names;
mod prune;
pub(crate) mod recognise;
pub(crate) mod repair;
mod scaling;
pub(crate) mod uninstall;

pub(crate) use hooks::{Interrupted, run as run_hooks};
use kube_objects::apply::{ApplyError, ApplyPolicy};
use kube_objects::read::ReadError;
use kube_objects::watch::Registry;
use kube_objects::{ApiError, Claimant, Cluster, InstanceId, Marks, OperatorId, Primary, Scopes};

use host::HashSet;
use std::time::Duration;

use helm_core::manifest::{ManifestError, ManifestObject, ObjectKey, replaced};
use helm_core::release::ReleaseName;
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use crate::release::{RecordMeta, RecordStore, RecordTags, StoreError};
use crate::watches::NEVER_RECREATED;
use operator_runtime::telemetry::traces::Reason;

/// Inputs that every action needs.
pub(crate) struct ActionContext<'a> {
    /// Client of the cluster.
    pub cluster: &'a Cluster,
    /// Store of the release records.
    pub store: &'a RecordStore,
    /// Watches of dependent objects.
    pub registry: &'a Registry,
    /// Namespaces that the operator watches; all when empty.
    pub namespaces: &'a [String],
    pub primary: &'a Primary,
    pub operator: &'a OperatorId,
    /// This operator process.
    pub instance: &'a InstanceId,
    /// Name of the chart.
    pub chart: &'a str,
    /// Name of the release.
    pub name: &'a ReleaseName,
    /// Namespace of the release.
    pub namespace: &'a str,
    /// Policy by which objects are applied.
    pub policy: ApplyPolicy,
    /// Time limit of each hook and of waiting for readiness.
    pub timeout: Duration,
    /// Kinds that are deleted and created again when an immutable field changes.
    pub recreate: &'a [String],
    /// Whether hooks are skipped.
    pub disable_hooks: bool,
    /// Whether the failure of a hook shows the last lines of its log.
    pub crash_logs: bool,
    /// Whether the custom resource is being deleted in the foreground: garbage collection deletes what it owns,
    /// also hooks that run.
    pub foreground: bool,
    /// The current time.
    pub now: Timestamp,
}

impl ActionContext<'_> {
    fn recreates(&self, kind: &str) -> bool {
        self.recreate.iter().any(|known| known == kind) && !NEVER_RECREATED.contains(&kind)
    }

    /// Returns the operator's labels for a record that is updated.
    fn tags(&self, meta: &RecordMeta, proven: bool) -> RecordTags {
        RecordTags {
            cr: self.primary.identity(),
            operator: self.operator.clone(),
            writer: self.instance.clone(),
            digest: meta.digest.clone(),
            account: meta.account.clone(),
            failures: meta.failures,
            baseline: None,
            proven,
        }
    }

    /// Writes a changed record to the store.
    async fn save(&self, stored: &mut deploy::StoredRelease) -> Result<(), StoreError> {
        self.save_with_baseline(stored, None).await
    }

    /// Writes the record of a revision that has just been deployed.
    async fn save_with_baseline(
        &self,
        stored: &mut deploy::StoredRelease,
        baseline: Option<String>,
    ) -> Result<(), StoreError> {
        let tags = RecordTags {
            baseline,
            ..self.tags(&stored.meta, stored.proven)
        };
        stored.meta = self
            .store
            .update(&stored.meta, &stored.release, &tags)
            .await?;
        Ok(())
    }

    /// Returns the claimant for judging the ownership of existing objects.
    fn claimant(&self) -> Claimant<'_> {
        Claimant {
            primary: self.primary,
            release_name: self.name.as_str(),
            release_namespace: self.namespace,
        }
    }

    /// Returns which of these objects' kinds are cluster-scoped.
    async fn scopes<'o>(
        &self,
        objects: impl IntoIterator<Item = &'o ManifestObject>,
    ) -> Result<Scopes, ActionError> {
        let objects = objects.into_iter();
        let objects: Vec<_> = objects
            .map(|object| (object.key(), object.object()))
            .collect();
        let scopes = self.cluster.scopes(&objects).await;
        Ok(scopes.map_err(ReadError::Unproven)?)
    }

    /// Returns the objects of a recorded manifest that are applied. Of several with one identity, that is
    /// the last; the others are described in the notes.
    async fn applied_objects(
        &self,
        manifest: &str,
        revision: u32,
    ) -> Result<(Vec<ManifestObject>, Vec<String>), ActionError> {
        let mut objects = objects(manifest, revision)?;
        let scopes = self.scopes(&objects).await?;
        let is_cluster_scoped = |key: &ObjectKey| scopes.is_cluster_scoped(key);
        let replaced = replaced(&objects, self.namespace, &is_cluster_scoped);
        let source = |index: usize| objects.get(index).and_then(ManifestObject::source);
        let notes = replaced.iter().filter_map(|(earlier, last)| {
            let key = objects.get(*last)?.key();
            let (earlier, last) = (
                source(*earlier).unwrap_or("?"),
                source(*last).unwrap_or("?"),
            );
            Some(format!(
                "{key} is rendered twice, by {earlier} and by {last}; the last one was applied"
            ))
        });
        let notes = notes.collect();
        let earlier: HashSet<usize> = replaced.into_iter().map(|(earlier, _)| earlier).collect();
        let mut index = 0..;
        objects.retain(|_| index.next().is_none_or(|index| !earlier.contains(&index)));
        Ok((objects, notes))
    }

    fn marks<'m>(&'m self, run: Option<&'m str>, hook: bool) -> Marks<'m> {
        Marks {
            primary: self.primary,
            operator: self.operator,
            chart: self.chart,
            release_name: self.name.as_str(),
            release_namespace: self.namespace,
            run,
            hook,
            unowned: self.foreground,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ActionProgress {
    /// The action is complete.
    Done,
    /// The action continues when something has changed.
    Waiting { why: String },
}

/// Reason why an action failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActionError {
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot parse the manifest of revision {revision}")]
    Manifest {
        revision: u32,
        #[source]
        source: Box<ManifestError>,
    },
    #[error("{event} hook {name} failed: {message}")]
    Hook {
        event: String,
        name: String,
        message: String,
    },
    #[error("{key} failed: {message}")]
    Job {
        key: Box<ObjectKey>,
        message: String,
    },
    #[error("not ready within {timeout:?}: {why}")]
    Timeout { timeout: Duration, why: String },
}

impl ActionError {
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Apply(error) => error.reason(),
            Self::Read(error) => error.reason(),
            Self::Store(error) => error.reason(),
            Self::Manifest { .. } => "InvalidManifest",
            Self::Hook { .. } => "HookFailed",
            Self::Job { .. } => "JobFailed",
            Self::Timeout { .. } => "Timeout",
        }
    }

    /// Returns whether an object cannot be applied, read or deleted as requested, for example
    /// because the API server refuses it.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Apply(_) | Self::Read(_)) && !self.is_transient()
    }

    /// Returns whether an object cannot be created because its namespace is being deleted.
    pub(crate) fn is_in_ending_namespace(&self) -> bool {
        matches!(self, Self::Apply(ApplyError::NamespaceTerminating { .. }))
    }

    /// Returns whether the API server forbids a request for an object (403).
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(
            self,
            Self::Apply(ApplyError::Api(ApiError::Forbidden { .. }))
                | Self::Read(ReadError::Api(ApiError::Forbidden { .. }))
        )
    }

    /// Returns whether the same attempt may succeed later without any change. Such an attempt
    /// counts as unfinished, not as failed.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Apply(error) => error.is_transient(),
            Self::Read(error) => error.is_transient(),
            Self::Store(error) => error.is_transient(),
            Self::Manifest { .. } | Self::Hook { .. } | Self::Job { .. } | Self::Timeout { .. } => {
                false
            }
        }
    }
}

impl ActionError {
    /// Returns whether it is not known if another attempt may succeed, see
    /// [`ApplyError::is_unexplained`].
    pub(crate) fn is_unexplained(&self) -> bool {
        matches!(self, Self::Apply(error) if error.is_unexplained())
    }
}

impl Reason for ActionError {
    fn reason(&self) -> &'static str {
        Self::reason(self)
    }
}

/// Parses the objects of a recorded manifest.
fn objects(manifest: &str, revision: u32) -> Result<Vec<ManifestObject>, ActionError> {
    helm_core::manifest::parse_objects(manifest).map_err(|source| ActionError::Manifest {
        revision,
        source: Box::new(source),
    })
}

/// Deletes the objects that only a failed revision has, and none of the revisions in `kept`.
/// Objects that are annotated to be kept or are not the release's stay.
///
/// # Errors
/// When an object cannot be read or deleted. Calling it again deletes the rest.
pub(crate) async fn prune_leftover(
    context: &ActionContext<'_>,
    live: &mut live::Live,
    leftover: &deploy::StoredRelease,
    kept: &[deploy::StoredRelease],
) -> Result<(), ActionError> {
    let mut wanted = Vec::new();
    for stored in kept {
        wanted.extend(objects(
            &stored.release.manifest,
            stored.release.revision.0,
        )?);
    }
    let revision = leftover.release.revision.0;
    let made = objects(&leftover.release.manifest, revision)?;
    prune::prune(context, live, revision, &made, &wanted).await?;
    hooks::remove_interrupted(context, leftover).await
}

/// Returns the run id of an object whose name the API server generates. It depends on the content: a
/// revision whose record others delete is followed by one of the same number.
fn generated_run(uid: &str, revision: u32, object: &ManifestObject) -> String {
    let [a, b, c, d, ..]: [u8; 32] = Sha256::digest(object.object().to_string()).into();
    let content = u32::from_be_bytes([a, b, c, d]);
    let step = format!("generate-{}-{content:08x}", object.position());
    run_id(uid, revision, &step)
}

/// Returns the id of one step of a revision, by which its objects are found again after a crash.
fn run_id(uid: &str, revision: u32, step: &str) -> String {
    format!("{}-{revision}-{step}", uid.get(..8).unwrap_or(uid))
}

#[cfg(test)]
mod tests;

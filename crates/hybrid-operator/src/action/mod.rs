//! What Helm does to a release, as steps that can be cut off at any point and begun again.
//!
//! Every action works on a release record that is written before anything else and says how far it
//! got. It never sleeps: where it would have to wait it returns [`Progress::Waiting`], and is
//! called again when something has changed. Called again after a crash it does what is left.
//!
//! * [`deploy`]: the way from a pending record to a deployed one, for install, upgrade, rollback.
//! * [`repair`]: applies recorded objects again.
//! * [`recognise`]: finds out after a restart whether anything has changed.
//! * [`uninstall`]: the way from a deployed record to none.
//! * `hooks`, `prune`, [`live`]: what these share.

pub mod deploy;
mod hook_logs;
mod hooks;
pub mod live;
mod names;
mod prune;
pub mod recognise;
pub mod repair;
pub mod uninstall;

pub use hooks::run as run_hooks;

use std::time::Duration;

use helm_core::manifest::{ManifestError, ManifestObject};
use helm_core::release::ReleaseName;
use jiff::Timestamp;

use crate::cluster::apply::{ApplyError, ApplyPolicy};
use crate::cluster::read::ReadError;
use crate::cluster::{Claimant, Cluster, InstanceId, Marks, OperatorId, Primary};
use crate::controller::Registry;
use crate::release::{RecordMeta, RecordTags, SecretStore, StoreError};

/// What every action works with.
pub struct ActionContext<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The records.
    pub store: &'a SecretStore,
    /// The watches of dependents.
    pub registry: &'a Registry,
    /// Namespaces that the operator watches; all when empty.
    pub namespaces: &'a [String],
    /// The custom resource.
    pub primary: &'a Primary,
    /// The operator.
    pub operator: &'a OperatorId,
    /// This process.
    pub instance: &'a InstanceId,
    /// Name of the chart.
    pub chart: &'a str,
    /// Name of the release.
    pub name: &'a ReleaseName,
    /// Namespace of the release.
    pub namespace: &'a str,
    /// How objects are applied.
    pub policy: ApplyPolicy,
    /// How long hooks and waits may take.
    pub timeout: Duration,
    /// Kinds that are deleted and created anew when a field of theirs cannot be changed.
    pub recreate: &'a [String],
    /// Whether hooks are left out.
    pub disable_hooks: bool,
    /// The time.
    pub now: Timestamp,
}

/// Kinds that hold people's data or everything else: never deleted to be created anew.
const NEVER_RECREATED: &[&str] = &[
    "PersistentVolumeClaim",
    "PersistentVolume",
    "Namespace",
    "CustomResourceDefinition",
];

impl ActionContext<'_> {
    fn recreates(&self, kind: &str) -> bool {
        self.recreate.iter().any(|known| known == kind) && !NEVER_RECREATED.contains(&kind)
    }

    /// Our labels of a record that is written again.
    fn tags(&self, meta: &RecordMeta) -> RecordTags {
        RecordTags {
            cr: self.primary.identity(),
            operator: self.operator.clone(),
            writer: self.instance.clone(),
            digest: meta.digest.clone(),
            failures: meta.failures,
        }
    }

    /// Writes what a record says now.
    async fn save(&self, stored: &mut deploy::Stored) -> Result<(), StoreError> {
        let tags = self.tags(&stored.meta);
        stored.meta = self
            .store
            .update(&stored.meta, &stored.release, &tags)
            .await?;
        Ok(())
    }

    /// Who asks when an existing object is judged.
    fn claimant(&self) -> Claimant<'_> {
        Claimant {
            primary: self.primary,
            release_name: self.name.as_str(),
            release_namespace: self.namespace,
        }
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
        }
    }
}

/// How far an action got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// It is done.
    Done,
    /// It goes on when something has changed.
    Waiting {
        /// What it waits for, for people.
        why: String,
    },
}

/// Why an action failed.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    /// An object was not applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// An object was not read or deleted.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A record was not read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A recorded manifest cannot be read.
    #[error("the manifest of revision {revision} cannot be read")]
    Manifest {
        /// The revision.
        revision: u32,
        /// Why.
        #[source]
        source: ManifestError,
    },
    /// A hook failed.
    #[error("{event} hook {name} failed: {message}")]
    Hook {
        /// The event.
        event: String,
        /// The hook.
        name: String,
        /// What happened.
        message: String,
    },
    /// The objects did not become ready in time.
    #[error("not ready within {timeout:?}: {why}")]
    Timeout {
        /// The time.
        timeout: Duration,
        /// What was missing.
        why: String,
    },
}

impl ActionError {
    /// Event reason and metric label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Apply(error) => error.reason(),
            Self::Read(error) => error.reason(),
            Self::Store(error) => error.reason(),
            Self::Manifest { .. } => "InvalidManifest",
            Self::Hook { .. } => "HookFailed",
            Self::Timeout { .. } => "Timeout",
        }
    }

    /// Whether the same attempt may succeed later without anybody changing anything, so that it
    /// counts as unfinished and not as failed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Apply(error) => error.is_transient(),
            Self::Read(error) => error.is_transient(),
            Self::Store(error) => error.is_transient(),
            Self::Manifest { .. } | Self::Hook { .. } | Self::Timeout { .. } => false,
        }
    }
}

/// The objects of a recorded manifest.
fn objects(manifest: &str, revision: u32) -> Result<Vec<ManifestObject>, ActionError> {
    helm_core::manifest::parse_objects(manifest)
        .map_err(|source| ActionError::Manifest { revision, source })
}

/// Deletes what only a failed revision has: nothing of it is in one of the revisions that are
/// `kept`. What is kept by annotation, and what is not ours, stays.
///
/// # Errors
/// When an object cannot be looked at or deleted; called again it does what is left.
pub async fn prune_leftover(
    context: &ActionContext<'_>,
    live: &mut live::Live,
    leftover: &deploy::Stored,
    kept: &[deploy::Stored],
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
    prune::prune(context, live, revision, &made, &wanted).await
}

/// Identifies an object of a revision that the API server names.
fn generated_run(uid: &str, revision: u32, object: &ManifestObject) -> String {
    run_id(uid, revision, &format!("generate-{}", object.position()))
}

/// Identifies what a revision does at one of its steps, so that it is found again after a crash.
fn run_id(uid: &str, revision: u32, step: &str) -> String {
    format!("{}-{revision}-{step}", uid.get(..8).unwrap_or(uid))
}

#[cfg(test)]
mod tests;

//! Inputs and result of an action.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use helm_core::manifest::api_versions::{Successor, successor};
use helm_core::manifest::{ManifestObject, ObjectKey, replaced};
use helm_core::release::{Release, ReleaseName, Status};
use host::HashSet;
use jiff::Timestamp;
use kube::core::GroupVersionKind;
use kube_objects::apply::ApplyPolicy;
use kube_objects::read::ReadError;
use kube_objects::watch::{Fields, Registry};
use kube_objects::{
    Claimant, Cluster, DiscoveryError, InstanceId, Marks, OperatorId, Primary, Scopes,
};
use sha2::{Digest, Sha256};

use super::error::ActionError;
use crate::policy::NEVER_RECREATED;
use crate::release::{RecordMeta, RecordStore, RecordTags, StoreError};

/// Inputs that every action needs.
#[expect(clippy::struct_excessive_bools, reason = "each is an option")]
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
    /// Fields of objects that their watches keep, by kind.
    pub kept_fields: &'a BTreeMap<String, Arc<Fields>>,
    /// Policy by which objects are applied.
    pub policy: ApplyPolicy,
    /// Time limit of each hook and of waiting for readiness.
    pub timeout: Duration,
    /// Kinds that are deleted and created again when an immutable field changes.
    pub recreate: &'a [String],
    /// Whether the volumes of a StatefulSet may grow, for which it is deleted without its Pods and created again.
    pub expand_volumes: bool,
    /// Whether hooks are skipped.
    pub disable_hooks: bool,
    /// Whether the failure of a hook shows the last lines of its log.
    pub crash_logs: bool,
    /// Whether objects get no owner reference: garbage collection must not delete them before the release
    /// does, if at all.
    pub unowned: bool,
    /// The current time.
    pub now: Timestamp,
}

impl ActionContext<'_> {
    pub(super) fn recreates(&self, kind: &str) -> bool {
        self.recreate.iter().any(|known| known == kind) && !NEVER_RECREATED.contains(&kind)
    }

    /// Returns the operator's labels for a record that is updated.
    pub(super) fn tags(&self, meta: &RecordMeta, proven: bool) -> RecordTags {
        RecordTags {
            cr: self.primary.identity(),
            operator: self.operator.clone(),
            writer: self.instance.clone(),
            digest: meta.digest.clone(),
            account: meta.account.clone(),
            failures: meta.failures,
            baseline: None,
            unowned: meta.unowned && self.unowned,
            proven,
        }
    }

    /// Writes a changed record to the store.
    pub(super) async fn save(&self, stored: &mut StoredRelease) -> Result<(), StoreError> {
        self.save_with_baseline(stored, None).await
    }

    /// Writes the record of a revision that has just been deployed.
    pub(super) async fn save_with_baseline(
        &self,
        stored: &mut StoredRelease,
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
    pub(super) fn claimant(&self) -> Claimant<'_> {
        Claimant {
            primary: self.primary,
            release_name: self.name.as_str(),
            release_namespace: self.namespace,
        }
    }

    /// Returns which of these objects' kinds are cluster-scoped.
    pub(super) async fn scopes<'o>(
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

    /// Returns the objects of a manifest or hook of a revision under API versions that the cluster serves: what
    /// Kubernetes has removed since the revision was rendered is replaced by what it serves instead, if anything.
    pub(super) async fn served_objects(
        &self,
        release: &Release,
        manifest: &str,
    ) -> Result<Vec<ManifestObject>, ActionError> {
        let recorded = objects(manifest, release.revision.0)?;
        // A chart has to render what the cluster serves.
        if matches!(
            release.info.status,
            Status::PendingInstall | Status::PendingUpgrade
        ) {
            return Ok(recorded);
        }
        let mut served = Vec::with_capacity(recorded.len());
        for object in recorded {
            let key = object.key();
            let Some(successor) = successor(&key.api_version(), &key.kind) else {
                served.push(object);
                continue;
            };
            let gvk = GroupVersionKind::gvk(&key.group, &key.version, &key.kind);
            match (self.cluster.resolve(&gvk).await, successor) {
                (Err(DiscoveryError::UnknownKind { .. }), Successor::None) => {}
                (Err(DiscoveryError::UnknownKind { .. }), Successor::ApiVersion(other)) => {
                    served.push(object.in_version(other));
                }
                _ => served.push(object),
            }
        }
        Ok(served)
    }

    /// Returns the objects of a revision that are applied. Of several with one identity, that is
    /// the last; the others are described in the notes.
    pub(super) async fn applied_objects(
        &self,
        release: &Release,
    ) -> Result<(Vec<ManifestObject>, Vec<String>), ActionError> {
        let mut objects = self.served_objects(release, &release.manifest).await?;
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

    pub(super) fn marks<'m>(&'m self, run: Option<&'m str>, hook: bool) -> Marks<'m> {
        Marks {
            primary: self.primary,
            operator: self.operator,
            chart: self.chart,
            release_name: self.name.as_str(),
            release_namespace: self.namespace,
            run,
            hook,
            unowned: self.unowned,
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

/// A release record and the release it holds.
pub(crate) struct StoredRelease {
    /// Name, uid and labels of the record.
    pub meta: RecordMeta,
    /// The decoded release.
    pub release: Release,
    /// Whether this operator wrote it. Nothing is applied from any other.
    pub proven: bool,
}

/// Parses the objects of a recorded manifest.
pub(super) fn objects(manifest: &str, revision: u32) -> Result<Vec<ManifestObject>, ActionError> {
    helm_core::manifest::parse_objects(manifest).map_err(|source| ActionError::Manifest {
        revision,
        source: Box::new(source),
    })
}

/// Returns the run id of an object whose name the API server generates. It depends on the content: a
/// revision whose record others delete is followed by one of the same number.
pub(super) fn generated_run(uid: &str, revision: u32, object: &ManifestObject) -> String {
    let [a, b, c, d, ..]: [u8; 32] = Sha256::digest(object.object().to_string()).into();
    let content = u32::from_be_bytes([a, b, c, d]);
    let step = format!("generate-{}-{content:08x}", object.position());
    run_id(uid, revision, &step)
}

/// Returns the id of one step of a revision, by which its objects are found again after a crash.
pub(super) fn run_id(uid: &str, revision: u32, step: &str) -> String {
    format!("{}-{revision}-{step}", uid.get(..8).unwrap_or(uid))
}

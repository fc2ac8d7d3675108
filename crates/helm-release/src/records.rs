//! Reads the release records of an owner, for programs that show them.

use std::error::Error;

use helm_core::release::{Release as Record, ReleaseName, Revision, Status};
use jiff::Timestamp;
use kube::core::GroupVersionKind;
use kube::{Client, Resource as _, api::DynamicObject};
use kube_objects::CrIdentity;

use crate::release::{ProofKeys, RecordMeta, RecordStore, ReleaseIndex, Storage};

/// Error reading records.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct RecordsError(Box<dyn Error + Send + Sync>);

/// A revision of a release, known without reading its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordInfo {
    meta: RecordMeta,
}

impl RecordInfo {
    /// Returns the name of the release.
    pub fn name(&self) -> &ReleaseName {
        &self.meta.name
    }

    /// Returns the namespace of the release.
    pub fn namespace(&self) -> &str {
        &self.meta.namespace
    }

    /// Returns the name of its Secret.
    pub fn secret(&self) -> &str {
        &self.meta.secret
    }

    /// Returns the number of the revision.
    pub fn revision(&self) -> Revision {
        self.meta.revision
    }

    /// Returns Helm's status of the revision.
    pub fn status(&self) -> Status {
        self.meta.status
    }

    /// Returns when the record was last written, if known.
    pub fn written_at(&self) -> Option<Timestamp> {
        self.meta.written_at()
    }

    /// Returns the digest of the inputs; `None` if another client created the revision.
    pub fn digest(&self) -> Option<String> {
        self.meta.digest.as_ref().map(ToString::to_string)
    }

    /// Returns the number of failed attempts of the revision that this operator has recorded.
    pub fn failed_attempts(&self) -> u32 {
        self.meta.failures.map_or(0, |failures| failures.attempts)
    }

    /// Returns whether an operator wrote it for a custom resource, this one or a Go operator.
    pub fn has_owner(&self) -> bool {
        self.meta.cr.is_some() || !self.meta.owners.is_empty()
    }

    /// Returns the uids of its owner references, which the Go operators set.
    pub fn owner_uids(&self) -> &[String] {
        &self.meta.owners
    }

    /// Returns the custom resource that this operator wrote it for.
    pub fn owner(&self) -> Option<&CrIdentity> {
        self.meta.cr.as_ref()
    }
}

/// Reads release records from a cluster.
///
/// Needs `get` and `list` on Secrets, or on `ConfigMap`s.
pub struct Records(RecordStore);

impl Records {
    /// Creates a reader. Sends no requests.
    pub fn new(client: Client, storage: Storage) -> Self {
        let keys = ProofKeys::of_process();
        Self(RecordStore::new(client, ReleaseIndex::of(storage), keys))
    }

    /// Lists the revisions of the release of an owner, oldest first. A `namespace` of `None`
    /// searches all namespaces; the namespace of the release is enough.
    ///
    /// Releases of the Go operators that this operator has not seen yet are found by their owner.
    ///
    /// # Errors
    /// When a request fails.
    pub async fn of(
        &self,
        gvk: &GroupVersionKind,
        resource: &DynamicObject,
        namespace: Option<&str>,
    ) -> Result<Vec<RecordInfo>, RecordsError> {
        let meta = resource.meta();
        let name = meta.name.as_deref().unwrap_or_default();
        let own = meta.namespace.as_deref();
        let identity = CrIdentity::of(&gvk.group, &gvk.kind, own, name);
        let mut found = self.0.list(namespace, Some(&identity)).await?;
        if found.is_empty()
            && let Some(uid) = &meta.uid
        {
            found = self.0.list(namespace, None).await?;
            found.retain(|record| record.owners.contains(uid));
        }
        found.sort_by_key(|record| record.revision);
        Ok(found.into_iter().map(|meta| RecordInfo { meta }).collect())
    }

    /// Lists the revisions of a release that helm-operator-plugins stored in chunks, oldest first. The other
    /// lists do not have them.
    ///
    /// # Errors
    /// When a request fails.
    pub async fn chunked(
        &self,
        namespace: &str,
        name: &ReleaseName,
    ) -> Result<Vec<RecordInfo>, RecordsError> {
        let found = self.0.chunked(namespace, name).await?;
        Ok(found.into_iter().map(|meta| RecordInfo { meta }).collect())
    }

    /// Lists the revisions of all releases of a namespace, or of all namespaces; those that nobody but Helm made
    /// are among them.
    ///
    /// # Errors
    /// When a request fails.
    pub async fn all(&self, namespace: Option<&str>) -> Result<Vec<RecordInfo>, RecordsError> {
        let found = self.0.list(namespace, None).await?;
        Ok(found.into_iter().map(|meta| RecordInfo { meta }).collect())
    }

    /// Reads the content of a revision.
    ///
    /// # Errors
    /// When a request fails, or the record is incomplete or corrupt.
    pub async fn load(&self, record: &RecordInfo) -> Result<Record, RecordsError> {
        Ok(self.0.load(&record.meta).await?)
    }
}

impl From<crate::release::StoreError> for RecordsError {
    fn from(error: crate::release::StoreError) -> Self {
        Self(Box::new(error))
    }
}

//! A release of a pass: whose it is, where it lives, and who manages it.

use std::fmt;
use std::sync::Arc;

use helm_core::release::{NameError, ReleaseName};
use jiff::Timestamp;
use kube_objects::{Cluster, Key, Primary};

use super::access::{Access, Account, Who};
use super::inputs::Read;
use super::interest::Interests;
use crate::release::RecordMeta;
use crate::release_memory::Share;

/// Name and namespace of a release.
#[derive(Debug, Clone)]
pub struct ReleaseLocation {
    /// Name of the release.
    pub name: ReleaseName,
    /// Namespace of the release.
    pub namespace: String,
}

impl ReleaseLocation {
    /// Returns the location of a release.
    ///
    /// # Errors
    /// When the name is not one of a release.
    pub fn new(namespace: &str, name: &str) -> Result<Self, NameError> {
        Ok(Self {
            name: ReleaseName::new(name)?,
            namespace: namespace.to_owned(),
        })
    }
}

impl fmt::Display for ReleaseLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Release of a reconcile: where it lives, whose it is, and who manages it.
pub struct Target {
    /// Owner that it belongs to.
    pub primary: Primary,
    /// Name of the release.
    pub name: ReleaseName,
    /// Namespace of the release.
    pub namespace: String,
    /// Account with whose permissions it is managed: the owner's, if `serviceAccountName` is set.
    pub who: Who,
    /// Cluster client of that account.
    pub cluster: Cluster,
    /// Watches of what the release refers to, by the same account.
    pub interests: Arc<Interests>,
    pub(super) now: Timestamp,
    /// The memory that the release takes in this reconcile.
    pub(super) share: Share,
}

impl Target {
    /// Creates the release of an owner, at the present time.
    pub fn new(
        primary: Primary,
        location: ReleaseLocation,
        account: Account,
        access: &Access,
    ) -> Self {
        Self {
            primary,
            name: location.name,
            namespace: location.namespace,
            who: account.who,
            cluster: account.cluster,
            interests: account.interests,
            now: host::timestamp(),
            share: access.share(),
        }
    }

    /// Returns the queue key of the owner.
    pub fn key(&self) -> Key {
        Key::from(&self.primary)
    }

    /// Returns whether none of the objects read has changed.
    pub(super) fn is_current(&self, read: &Read) -> bool {
        let mut read = read.iter();
        read.all(|(read, seen)| self.interests.is_current(read, *seen))
    }

    /// Returns the records of the release, oldest first.
    pub fn history(&self, access: &Access) -> Vec<RecordMeta> {
        access.store.history(&self.namespace, &self.name)
    }

    /// Returns whether a record belongs to the owner. The Go operators set it as the
    /// owner of its records.
    pub(super) fn owns(&self, meta: &RecordMeta) -> bool {
        meta.cr.as_ref() == Some(&self.primary.identity())
            || meta.owners.contains(&self.primary.uid)
    }

    /// Returns those of these records that are the release's.
    pub(super) fn own(&self, history: &[RecordMeta]) -> Vec<RecordMeta> {
        let own = history.iter().filter(|meta| self.owns(meta));
        own.cloned().collect()
    }
}

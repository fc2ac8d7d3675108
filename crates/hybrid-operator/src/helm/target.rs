//! A release of a pass: whose it is, where it lives, and who manages it.

use std::sync::Arc;

use helm_core::release::ReleaseName;
use jiff::Timestamp;
use kube_objects::{Cluster, Primary};
use operator_runtime::controller::Key;

use super::access::{Access, Account, Who};
use super::interest::Interests;
use crate::release::RecordMeta;
use crate::release_memory::Share;

/// Name and namespace of a release.
#[derive(Debug, Clone)]
pub(super) struct ReleaseLocation {
    pub(super) name: ReleaseName,
    pub(super) namespace: String,
}

/// Release of a reconcile: where it lives, whose it is, and who manages it.
pub(super) struct Target {
    /// Custom resource that it belongs to.
    pub(super) primary: Primary,
    pub(super) name: ReleaseName,
    pub(super) namespace: String,
    /// Account with whose permissions it is managed: the custom resource's, if `serviceAccountName` is set.
    pub(super) who: Who,
    /// Cluster client of that account.
    pub(super) cluster: Cluster,
    /// Watches of what the release refers to, by the same account.
    pub(super) interests: Arc<Interests>,
    pub(super) now: Timestamp,
    /// The memory that the release takes in this reconcile.
    pub(super) share: Share,
}

impl Target {
    pub(super) fn new(
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

    /// Returns the queue key of the custom resource.
    pub(super) fn key(&self) -> Key {
        Key::from(&self.primary)
    }

    /// Returns the records of the release, oldest first.
    pub(super) fn history(&self, access: &Access) -> Vec<RecordMeta> {
        access.store.history(&self.namespace, &self.name)
    }

    /// Returns whether a record belongs to the custom resource. The Go operators set it as the
    /// owner of its records.
    pub(super) fn owns(&self, meta: &RecordMeta) -> bool {
        meta.cr.as_ref() == Some(&self.primary.identity())
            || meta.owners.contains(&self.primary.uid)
    }
}

//! Release records: what is known of the history of releases, and how records are read and
//! written.
//!
//! A record is one revision of a release, stored as Helm stores it, so that Helm's command line
//! lists, shows and rolls back our releases, and we take over its own. The history of all
//! releases is known at any time from an [`index`]: metadata of records, kept up to date by a
//! watch. Only what a step needs is loaded.
//!
//! * [`ReleaseStore`]: the trait; [`secret`] keeps records in Secrets, [`memory`] in memory, and
//!   [`faulty`] fails or stops at a chosen call.
//! * [`side`]: what does not fit into one Secret.
//!
//! Writes are fenced: a revision is created only where there is none, and updated only where it
//! is still what it was. So two writers can never both believe that they have written it.

pub mod faulty;
pub mod index;
mod lru;
pub mod memory;
mod meta;
pub mod secret;
pub mod side;

use std::time::Duration;

use futures::future::BoxFuture;
use helm_core::release::{CodecError, Release, ReleaseName, Revision, Status};

use crate::cluster::{ApiError, CrIdentity, DiscoveryError};

pub use index::{IndexState, RecordChange, ReleaseIndex};
pub use memory::MemoryStore;
pub use meta::{Format, InputsDigest, RecordMeta, RecordTags};
pub use secret::SecretStore;

/// Why a record was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The revision to create exists already: somebody else has taken the number.
    #[error("revision {revision} of release {name} exists already")]
    Exists {
        /// The release.
        name: ReleaseName,
        /// The revision.
        revision: Revision,
    },
    /// The record to change is not what it was when last seen.
    #[error("the record {secret} has changed meanwhile")]
    Fenced {
        /// The record's Secret.
        secret: String,
    },
    /// The record to read or change is gone.
    #[error("the record {secret} is gone")]
    Gone {
        /// The record's Secret.
        secret: String,
    },
    /// The record cannot be understood.
    #[error("the record {secret} is corrupt")]
    Corrupt {
        /// The record's Secret.
        secret: String,
        /// What is wrong with it.
        #[source]
        source: CodecError,
    },
    /// A part of the record is missing.
    #[error("the record {secret} lacks its part {part}")]
    Incomplete {
        /// The record's Secret.
        secret: String,
        /// The missing Secret or key.
        part: String,
    },
    /// The record cannot be encoded.
    #[error("the record of release {name} cannot be encoded")]
    Encode {
        /// The release.
        name: ReleaseName,
        /// What is wrong with it.
        #[source]
        source: CodecError,
    },
    /// The namespace of the release is being deleted, so that nothing can be created in it.
    #[error("the namespace {namespace} is being deleted")]
    NamespaceTerminating {
        /// The namespace.
        namespace: String,
    },
    /// The kind of the Secrets cannot be resolved.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// A request failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A fault that a test has asked for.
    #[error("injected fault")]
    Injected,
}

impl StoreError {
    /// Event reason and metric label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Exists { .. } => "RevisionExists",
            Self::Fenced { .. } => "RecordChanged",
            Self::Gone { .. } => "RecordGone",
            Self::Corrupt { source, .. } => source.reason(),
            Self::Incomplete { .. } => "IncompleteRelease",
            Self::Encode { .. } => "EncodeRelease",
            Self::NamespaceTerminating { .. } => "NamespaceTerminating",
            Self::Discovery(error) => error.reason(),
            Self::Api(error) => error.reason(),
            Self::Injected => "InjectedFault",
        }
    }

    /// Whether the step should be planned anew from what is known by then.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Exists { .. } | Self::Fenced { .. } | Self::Gone { .. } | Self::Injected => true,
            Self::Discovery(error) => error.is_transient(),
            Self::Api(error) => error.is_transient(),
            Self::Corrupt { .. }
            | Self::Incomplete { .. }
            | Self::Encode { .. }
            | Self::NamespaceTerminating { .. } => false,
        }
    }

    /// How long the server asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Api(error) => error.retry_after(),
            _ => None,
        }
    }

    /// Whether the record itself is at fault, so that an earlier one is to be used.
    pub fn is_corrupt(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::Incomplete { .. })
    }
}

/// Where release records are kept.
///
/// The history is answered from memory and includes this process's own writes at once. All other
/// methods are one request each, plus one for every part that is stored beside a record.
pub trait ReleaseStore: Send + Sync {
    /// The records of a release, oldest first.
    fn history(&self, namespace: &str, name: &ReleaseName) -> Vec<RecordMeta>;

    /// The records that carry the label of a custom resource, by release and age.
    fn records_of(&self, cr: &CrIdentity) -> Vec<RecordMeta>;

    /// Records that helm-operator-plugins has stored in chunks, oldest first. `history` does not
    /// show them, and every call sends a request.
    fn chunked<'a>(
        &'a self,
        _namespace: &'a str,
        _name: &'a ReleaseName,
    ) -> BoxFuture<'a, Result<Vec<RecordMeta>, StoreError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Reads a record.
    fn load<'a>(&'a self, meta: &'a RecordMeta) -> BoxFuture<'a, Result<Release, StoreError>>;

    /// Writes a revision that must not exist yet.
    fn create<'a>(
        &'a self,
        release: &'a Release,
        tags: &'a RecordTags,
    ) -> BoxFuture<'a, Result<RecordMeta, StoreError>>;

    /// Writes a revision that must be what `meta` says.
    fn update<'a>(
        &'a self,
        meta: &'a RecordMeta,
        release: &'a Release,
        tags: &'a RecordTags,
    ) -> BoxFuture<'a, Result<RecordMeta, StoreError>>;

    /// Deletes a record; one that is gone is no error.
    fn delete<'a>(&'a self, meta: &'a RecordMeta) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Deletes all records of a release, the newest last: until the end the release is known to
    /// be uninstalled.
    fn delete_all<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a ReleaseName,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Makes a record ours: adds the labels, and removes owner references, by which garbage
    /// collection would delete the history before the uninstall. The record itself stays.
    fn adopt<'a>(
        &'a self,
        meta: &'a RecordMeta,
        tags: &'a RecordTags,
    ) -> BoxFuture<'a, Result<RecordMeta, StoreError>>;
}

/// The newest record of a history that can be read.
#[derive(Debug)]
pub struct Loaded {
    /// Where it is.
    pub meta: RecordMeta,
    /// What it holds.
    pub release: Release,
    /// Newer records that are corrupt, to be reported.
    pub corrupt: Vec<(RecordMeta, StoreError)>,
}

/// Loads the newest record that is not corrupt; `None` if there is none.
///
/// # Errors
/// An error that says nothing about a record: one that cannot be read now must not make an
/// earlier one count. If all are corrupt, the error of the oldest.
pub async fn load_newest(
    store: &dyn ReleaseStore,
    history: &[RecordMeta],
) -> Result<Option<Loaded>, StoreError> {
    let mut corrupt = Vec::new();
    for meta in history.iter().rev() {
        match store.load(meta).await {
            Ok(release) => {
                return Ok(Some(Loaded {
                    meta: meta.clone(),
                    release,
                    corrupt,
                }));
            }
            Err(error) if error.is_corrupt() => corrupt.push((meta.clone(), error)),
            Err(error) => return Err(error),
        }
    }
    match corrupt.into_iter().next_back() {
        Some((_, error)) => Err(error),
        None => Ok(None),
    }
}

/// The records whose manifests may describe objects that exist: the last one that was deployed
/// and every later one. What the union of their manifests holds and a new one does not is
/// pruned; none of them is removed when the history is shortened.
pub fn live_records(history: &[RecordMeta]) -> &[RecordMeta] {
    let deployed = history
        .iter()
        .rposition(|meta| meta.status == Status::Deployed);
    history.get(deployed.unwrap_or(0)..).unwrap_or_default()
}

/// The oldest records beyond `max` that can be removed; 0 keeps all.
pub fn removable(history: &[RecordMeta], max: usize) -> &[RecordMeta] {
    if max == 0 {
        return &[];
    }
    let beyond = history.len().saturating_sub(max);
    let old = history.len() - live_records(history).len();
    history.get(..beyond.min(old)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(statuses: &[Status]) -> Vec<RecordMeta> {
        let name: ReleaseName = "web".parse().unwrap();
        let numbered = statuses.iter().zip(1..);
        numbered
            .map(|(status, revision)| {
                RecordMeta::bare("prod", name.clone(), Revision(revision), *status)
            })
            .collect()
    }

    fn revisions(records: &[RecordMeta]) -> Vec<u32> {
        records.iter().map(|meta| meta.revision.0).collect()
    }

    #[test]
    fn rule_2_4_the_last_deployed_record_and_all_later_ones_are_live() {
        use Status::{Deployed, Failed, PendingUpgrade, Superseded};
        for (statuses, live) in [
            (vec![], vec![]),
            (vec![Deployed], vec![1]),
            (vec![Superseded, Deployed], vec![2]),
            (
                vec![Superseded, Deployed, Failed, PendingUpgrade],
                vec![2, 3, 4],
            ),
            (vec![Failed, Failed], vec![1, 2]),
        ] {
            assert_eq!(
                revisions(live_records(&history(&statuses))),
                live,
                "{statuses:?}"
            );
        }
    }

    #[test]
    fn rule_2_4_shortening_the_history_never_removes_a_live_record() {
        use Status::{Deployed, Failed, Superseded};
        for (statuses, max, removed) in [
            (
                vec![Superseded, Superseded, Superseded, Deployed],
                2,
                vec![1, 2],
            ),
            (
                vec![Superseded, Superseded, Superseded, Deployed],
                0,
                vec![],
            ),
            (
                vec![Superseded, Superseded, Superseded, Deployed],
                9,
                vec![],
            ),
            (
                vec![Superseded, Deployed, Failed, Failed, Failed],
                2,
                vec![1],
            ),
            (vec![Failed, Failed, Failed], 1, vec![]),
            (vec![Deployed], 1, vec![]),
        ] {
            let records = history(&statuses);
            assert_eq!(
                revisions(removable(&records, max)),
                removed,
                "{statuses:?} {max}"
            );
        }
    }
}

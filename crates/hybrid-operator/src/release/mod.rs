//! Release records: what is known of the history of releases, and how records are read and
//! written.
//!
//! A record is one revision of a release, stored as Helm stores it, so that Helm's command line
//! lists, shows and rolls back our releases, and we take over its own. The history of all
//! releases is known at any time from a [`ReleaseIndex`]: metadata of records, kept up to date by a
//! watch. Only what a step needs is loaded.
//!
//! * [`SecretStore`]: reads and writes records in Secrets.
//! * [`ReleaseIndex`]: the history of all releases, and who is told when somebody else changes it.
//! * [`removable`]: which records may be deleted.
//! * `side`: what does not fit into one Secret, and how it is split into parts.
//!
//! Writes are fenced: a revision is created only where there is none, and updated only where it
//! is still what it was. So two writers can never both believe that they have written it.

mod history;
mod index;
mod lru;
mod meta;
mod secret;
mod side;

use helm_core::release::{CodecError, ReleaseName, Revision};

use crate::cluster::ApiError;

pub use history::removable;
pub use index::{IndexState, RecordChange, ReleaseIndex};
pub use meta::{Failures, Format, InputsDigest, RecordMeta, RecordTags};
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
    /// A request failed.
    #[error(transparent)]
    Api(#[from] ApiError),
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
            Self::Api(error) => error.reason(),
        }
    }

    /// Whether the step should be planned anew from what is known by then.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Exists { .. } | Self::Fenced { .. } | Self::Gone { .. } => true,
            Self::Api(error) => error.is_transient(),
            Self::Corrupt { .. }
            | Self::Incomplete { .. }
            | Self::Encode { .. }
            | Self::NamespaceTerminating { .. } => false,
        }
    }

    /// Whether the record itself is at fault, so that an earlier one is to be used.
    pub fn is_corrupt(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::Incomplete { .. })
    }
}

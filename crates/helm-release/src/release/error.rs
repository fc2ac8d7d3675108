//! Errors of reading and writing records.

use helm_core::release::{CodecError, ReleaseName, Revision};
use kube_objects::ApiError;

/// Error reading or writing a record.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum StoreError {
    #[error("revision {revision} of release {name} already exists")]
    Exists {
        name: ReleaseName,
        revision: Revision,
    },
    #[error("release record {secret} was changed concurrently")]
    Fenced { secret: String },
    #[error("release record {secret} does not exist")]
    Gone { secret: String },
    #[error("release record {secret} is corrupt")]
    Corrupt {
        secret: String,
        #[source]
        source: CodecError,
    },
    /// A part of the record is missing, or it has too many.
    #[error("release record {secret} is incomplete: {problem}")]
    Incomplete {
        secret: String,
        /// The missing Secret or key, or the exceeded limit.
        problem: String,
    },
    #[error("cannot encode the record of release {name}")]
    Encode {
        name: ReleaseName,
        #[source]
        source: CodecError,
    },
    #[error("namespace {namespace} is being deleted")]
    NamespaceTerminating { namespace: String },
    #[error("the system has no random numbers for the key that proves release records")]
    NoRandomness,
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl StoreError {
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Exists { .. } => "RevisionExists",
            Self::Fenced { .. } => "RecordChanged",
            Self::Gone { .. } => "RecordGone",
            Self::Corrupt { source, .. } => source.reason(),
            Self::Incomplete { .. } => "IncompleteRelease",
            Self::Encode { .. } => "EncodeRelease",
            Self::NamespaceTerminating { .. } => "NamespaceTerminating",
            Self::NoRandomness => "NoRandomness",
            Self::Api(error) => error.reason(),
        }
    }

    /// Returns whether the step should be planned again with current data.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Exists { .. } | Self::Fenced { .. } | Self::Gone { .. } => true,
            Self::Api(error) => error.is_transient(),
            Self::Corrupt { .. }
            | Self::Incomplete { .. }
            | Self::Encode { .. }
            | Self::NoRandomness
            | Self::NamespaceTerminating { .. } => false,
        }
    }

    /// Returns whether the record itself is unreadable, so that an earlier one must be used.
    pub fn is_corrupt(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::Incomplete { .. })
    }
}

//! Errors of actions.

use std::time::Duration;

use helm_core::manifest::{ManifestError, ObjectKey};
use host::phases::Reason;
use kube_objects::ApiError;
use kube_objects::apply::ApplyError;
use kube_objects::read::ReadError;

use crate::release::StoreError;

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
    #[error("{key}: {message}")]
    Volumes {
        key: Box<ObjectKey>,
        message: String,
        is_transient: bool,
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
            Self::Volumes { .. } => "VolumeExpansion",
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
            Self::Volumes { is_transient, .. } => *is_transient,
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

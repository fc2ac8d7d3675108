//! Definitions of a chart's `crds/` that were installed, and errors installing them.

use std::fmt;
use std::time::Duration;

use helm_core::manifest::ManifestError;
use jiff::Timestamp;
use kube_objects::{ApiError, DiscoveryError};

use crate::release::InputsDigest;

/// Error installing a CRD.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CrdError {
    #[error("cannot read the objects in {path}")]
    Unreadable {
        path: String,
        /// The parse error; `None` if the file is not UTF-8.
        #[source]
        source: Option<Box<ManifestError>>,
    },
    #[error("the {kind} in {path} has no name")]
    Nameless { path: String, kind: String },
    /// The kinds that the cluster serves are not known.
    #[error("cannot install {path}")]
    Discovery {
        path: String,
        source: DiscoveryError,
    },
    #[error("cannot install {path}")]
    Api { path: String, source: ApiError },
    /// A CRD was not served before the timeout.
    #[error("{what} is not served after {timeout:?}")]
    Late {
        /// The CRD, and its name conflict if there is one.
        what: String,
        timeout: Duration,
    },
}

impl CrdError {
    /// Names the cause, for traces.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } | Self::Nameless { .. } => "UnreadableCrd",
            Self::Api { source, .. } => source.reason(),
            Self::Discovery { source, .. } => source.reason(),
            Self::Late { .. } => "Timeout",
        }
    }

    /// Returns whether a retry may succeed.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Api { source, .. } => source.is_transient(),
            Self::Discovery { source, .. } => source.is_transient(),
            Self::Unreadable { .. } | Self::Nameless { .. } | Self::Late { .. } => false,
        }
    }
}

/// CRDs that were installed and are not served yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingCrds {
    pub(super) since: Timestamp,
    pub(super) pending: Vec<PendingCrd>,
}

/// The definitions that were installed last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InstalledCrds {
    /// Generation of the owner at that time.
    pub(super) generation: Option<i64>,
    /// Digest of the inputs that need them; `None` if the inputs are to be computed anew.
    pub(super) digest: Option<InputsDigest>,
    /// Whether present ones were replaced, too.
    pub(super) replaced: bool,
}

/// A CRD that is not served yet, or an object whose kind is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingCrd {
    pub(super) path: String,
    /// Name of the CRD; `None` for an object of a kind that is not served.
    pub(super) name: Option<String>,
    pub(super) kind: String,
    /// Message of its `NamesAccepted` condition if that is false.
    pub(super) names_conflict: Option<String>,
}

impl fmt::Display for PendingCrd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "CRD {name} of {}", self.path)?,
            None => write!(f, "kind {} of {}", self.kind, self.path)?,
        }
        match &self.names_conflict {
            Some(names_conflict) => write!(f, " ({names_conflict})"),
            None => Ok(()),
        }
    }
}

//! Error executing a step.

use helm_core::manifest::ManifestError;
use host::phases;
use kube_objects::cut_off::CutOff;
use kube_objects::read::ReadError;
use kube_objects::with_causes;
use kube_objects::{ApiError, DiscoveryError};
use serde_json::Value;

use super::super::definitions::CrdError;
use super::super::desired_error::DesiredError;
use super::super::message::Message;
use super::super::owner::BoxError;
use crate::action::ActionError;
use crate::release::StoreError;

/// Error executing a step. The release is unchanged, or is resumed from its record.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActError {
    #[error(transparent)]
    Action(#[from] ActionError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    Crd(#[from] CrdError),
    #[error(transparent)]
    Desired(#[from] DesiredError),
    /// A listed object cannot be parsed.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Extension(#[from] BoxError),
    #[error("the attempt took too long, {}", phase(*step))]
    CutOff {
        step: Option<&'static str>,
        source: CutOff,
    },
}

impl ActError {
    /// Returns whether a retry may succeed, so that no condition is set.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Action(error) => error.is_transient(),
            Self::Store(error) => error.is_transient(),
            Self::Api(error) => error.is_transient(),
            Self::Read(error) => error.is_transient(),
            Self::Discovery(error) => error.is_transient(),
            Self::Crd(error) => error.is_transient(),
            Self::Desired(error) => error.is_transient(),
            Self::CutOff { .. } => true,
            Self::Manifest(_) | Self::Extension(_) => false,
        }
    }

    /// Returns whether the attempt was cut off. A retry may be cut off as well, so that its status says
    /// so from the first on.
    pub(crate) fn is_cut_off(&self) -> bool {
        matches!(self, Self::CutOff { .. })
    }

    /// Returns the error as a message. It may quote these values.
    pub(crate) fn message(&self, values: &[&Value]) -> Message {
        match self {
            Self::Desired(error) => error.message(values),
            Self::Action(_) | Self::Api(_) | Self::Read(_) | Self::Extension(_) => {
                Message::from(with_causes(self)).about(values)
            }
            // These name objects, files and accounts.
            Self::Store(_)
            | Self::Discovery(_)
            | Self::Crd(_)
            | Self::Manifest(_)
            | Self::CutOff { .. } => Message::from(with_causes(self)),
        }
    }

    /// Returns whether the API server forbids a request for an object (403).
    pub(super) fn is_forbidden(&self) -> bool {
        match self {
            Self::Action(error) => error.is_forbidden(),
            Self::Read(error) => matches!(error, ReadError::Api(ApiError::Forbidden { .. })),
            _ => false,
        }
    }
}

impl phases::Reason for ActError {
    fn reason(&self) -> &'static str {
        match self {
            Self::Action(error) => error.reason(),
            Self::Store(error) => error.reason(),
            Self::Api(error) => error.reason(),
            Self::Read(error) => error.reason(),
            Self::Discovery(error) => error.reason(),
            Self::Crd(error) => error.reason(),
            Self::Desired(error) => phases::Reason::reason(error),
            Self::Manifest(_) => "InvalidManifest",
            Self::Extension(_) => "ExtensionFailed",
            Self::CutOff { .. } => "CutOff",
        }
    }
}

/// Error of a pass. The release is unchanged, or is resumed from its record.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct EngineError(#[from] ActError);

impl EngineError {
    /// Returns whether another attempt may succeed without any change.
    pub fn is_transient(&self) -> bool {
        self.0.is_transient()
    }

    /// Returns whether the attempt was cut off. A retry may be cut off as well.
    pub fn is_cut_off(&self) -> bool {
        self.0.is_cut_off()
    }

    /// Returns the error as a message. It may quote these values.
    pub fn message(&self, values: &[&Value]) -> Message {
        self.0.message(values)
    }
}

impl phases::Reason for EngineError {
    fn reason(&self) -> &'static str {
        self.0.reason()
    }
}

/// Says what an attempt was doing whose step is this one.
fn phase(step: Option<&'static str>) -> String {
    match step {
        Some(step) => format!("in its step `{step}`"),
        None => "before it had a step".to_owned(),
    }
}

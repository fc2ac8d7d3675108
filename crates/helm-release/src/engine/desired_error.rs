//! Error computing the desired state of a release.

use helm_core::RenderError;
use helm_core::values::CoalesceError;
use host::phases;
use kube_objects::DiscoveryError;
use kube_objects::read::ReadError;
use kube_objects::with_causes;
use serde_json::Value;

use super::error_kind::ErrorKind;
use super::lookup::LOOKUP_ROUNDS;
use super::message::Message;
use super::own_patches::OwnPatchError;
use super::owner::BoxError;
use super::patches::PatchError;
use crate::policy::way_to_raise;
use crate::release::StoreError;
use crate::release_memory::{MemoryError, MemoryInUse, mebibytes};
use crate::render_pool::RenderPoolError;

/// Error computing the desired state.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum DesiredError {
    #[error("cannot compute the values")]
    Values {
        source: BoxError,
        /// The error without contents of what the values are made of, if it quotes any.
        hidden: Option<String>,
    },
    #[error("the operator's value translator failed")]
    Translate(#[source] BoxError),
    #[error(transparent)]
    Coalesce(#[from] CoalesceError),
    #[error(transparent)]
    Capabilities(#[from] DiscoveryError),
    #[error(transparent)]
    Render(Box<RenderError>),
    /// Rendering the chart exceeded a limit, which an option raises.
    #[error("{0}; {1}")]
    Limit(Box<RenderError>, &'static str),
    /// Rendering the chart takes more memory than the container has for it.
    #[error("{error}; {way}")]
    Container {
        error: Box<RenderError>,
        way: String,
    },
    /// The release takes more memory than other releases leave at the moment.
    #[error(transparent)]
    MemoryInUse(#[from] MemoryInUse),
    #[error("cannot render the chart")]
    Pool(#[from] RenderPoolError),
    #[error("the custom resource was deleted while its chart was rendered")]
    Deleted,
    #[error("cannot read a release record")]
    Record(#[source] StoreError),
    #[error("cannot read {key}, which a template looks up")]
    Lookup {
        /// The object or list.
        key: String,
        #[source]
        source: ReadError,
    },
    /// The last value of an optional reference cannot be read.
    #[error("cannot read the last values of valuesFrom")]
    Kept(#[from] StoreError),
    #[error("cannot read {key}, which valuesFrom refers to")]
    Reference {
        key: String,
        #[source]
        source: ReadError,
    },
    #[error(transparent)]
    Patch(#[from] PatchError),
    #[error(transparent)]
    OwnPatches(#[from] OwnPatchError),
    #[error("the templates look up new objects in each of {LOOKUP_ROUNDS} renders")]
    TooManyLookups,
}

impl From<RenderError> for DesiredError {
    fn from(error: RenderError) -> Self {
        match error.limit().and_then(way_to_raise) {
            Some(way) => Self::Limit(Box::new(error), way),
            None => Self::Render(Box::new(error)),
        }
    }
}

impl DesiredError {
    /// Returns the error of a render that gets no more memory.
    pub(super) fn memory(error: Box<RenderError>, why: MemoryError) -> Self {
        match why {
            MemoryError::InUse(error) => error.into(),
            MemoryError::TooLarge { container } => Self::Container {
                error,
                way: format!(
                    "the memory limit of the operator's container ({}) leaves no more for one release: raise \
                     `resources.limits.memory` of its Deployment",
                    mebibytes(container)
                ),
            },
        }
    }

    /// Returns what is missing.
    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            Self::Values { .. }
            | Self::Translate(_)
            | Self::Coalesce(_)
            | Self::Kept(_)
            | Self::Reference { .. } => ErrorKind::Values,
            Self::OwnPatches(_) => ErrorKind::Patches,
            Self::Capabilities(_) => ErrorKind::Capabilities,
            Self::Record(_) => ErrorKind::Records,
            Self::Render(_)
            | Self::Limit(..)
            | Self::Container { .. }
            | Self::MemoryInUse(_)
            | Self::Pool(_)
            | Self::Deleted
            | Self::Patch(_)
            | Self::Lookup { .. }
            | Self::TooManyLookups => ErrorKind::Chart,
        }
    }

    /// Returns whether another attempt may succeed without any change.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Capabilities(error) => error.is_transient(),
            Self::Record(error) | Self::Kept(error) => error.is_transient(),
            Self::Lookup { source, .. } | Self::Reference { source, .. } => source.is_transient(),
            Self::Pool(_) | Self::MemoryInUse(_) => true,
            Self::Values { .. }
            | Self::Translate(_)
            | Self::Coalesce(_)
            | Self::Render(_)
            | Self::Limit(..)
            | Self::Container { .. }
            | Self::Deleted
            | Self::Patch(_)
            | Self::OwnPatches(_)
            | Self::TooManyLookups => false,
        }
    }

    /// Returns the error as a message. It may quote these values.
    pub(super) fn message(&self, values: &[&Value]) -> Message {
        let text = with_causes(self);
        let render = match self {
            Self::Render(error) | Self::Limit(error, _) | Self::Container { error, .. } => {
                Some(&**error)
            }
            _ => None,
        };
        let with_contents = render
            .and_then(RenderError::quoting)
            .map(|quoting| match self {
                Self::Limit(_, way) => format!("{quoting}; {way}"),
                Self::Container { way, .. } => format!("{quoting}; {way}"),
                _ => quoting.to_owned(),
            });
        match self {
            _ if render.is_some_and(RenderError::is_by_author) => Message::from(text),
            Self::Values { hidden, .. } => match hidden {
                Some(hidden) => Message::from(hidden.as_str()).with_contents(Some(text)),
                None => Message::from(text),
            }
            .about(values),
            Self::Translate(_)
            | Self::Coalesce(_)
            | Self::Render(_)
            | Self::Limit(..)
            | Self::Container { .. }
            | Self::Patch(_)
            | Self::OwnPatches(_) => Message::from(text)
                .with_contents(with_contents)
                .about(values),
            // These name objects and accounts.
            Self::Capabilities(_)
            | Self::Pool(_)
            | Self::MemoryInUse(_)
            | Self::Deleted
            | Self::Record(_)
            | Self::Kept(_)
            | Self::Lookup { .. }
            | Self::Reference { .. }
            | Self::TooManyLookups => Message::from(text),
        }
    }

    /// Returns whether rendering failed, rather than computing its inputs.
    pub(super) fn is_render(&self) -> bool {
        self.kind() == ErrorKind::Chart
    }
}

impl phases::Reason for DesiredError {
    fn reason(&self) -> &'static str {
        match self.kind() {
            ErrorKind::Chart => "RenderError",
            other => other.as_str(),
        }
    }
}

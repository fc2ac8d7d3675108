//! The owner of a release.

use futures::future::BoxFuture;
use helm_core::release::{ReleaseName, Revision};
use helm_core::{Digest, Values};
use jiff::Timestamp;
use kube_objects::{ApiError, OperatorId};
use serde_json::Value;

use super::access::Access;
use super::desired_error::DesiredError;
use super::inputs::{LastValues, Read};
use super::message::Redactor;
use super::own_patches::OwnPatches;
use super::target::Target;
use crate::event::Notices;

/// Error of an owner's function.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Release passed to a post hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseRef {
    /// Name of the release.
    pub name: ReleaseName,
    /// Namespace of the release.
    pub namespace: String,
    /// Deployed revision.
    pub revision: Revision,
}

/// A way out of a state that the engine leaves as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy<'a> {
    /// Adopt a release that the owner has not installed.
    Adopt,
    /// Adopt a release that another operator manages, by this one.
    AdoptBy(&'a OperatorId),
    /// Try again what has failed.
    Retry,
    /// Name the account that manages the release.
    NameAccount,
    /// Let the owner go although its release is still there.
    LetGo,
    /// Allow the uninstall of a protected release.
    Unprotect,
}

/// State of an owner, read past all caches.
pub struct Present {
    /// Increases with each change of what the owner asks for.
    pub generation: Option<i64>,
    /// Start of its deletion, if it is being deleted.
    pub deleted: Option<Timestamp>,
    /// Finalizer of the release is present.
    pub is_held: bool,
    /// Finalizers that others have set.
    pub others: Vec<String>,
}

/// Values of a release and its patches, and what they were computed from.
pub struct OwnValues {
    /// The values.
    pub values: Values,
    /// Patches of the rendered objects, after those of the policy.
    pub patches: OwnPatches,
    /// Note for an event, if something beside the owner has changed them.
    pub note: Option<String>,
    /// Values of optional references, to be kept in the record; `None` if there are none.
    pub kept: Option<LastValues>,
    /// Objects that were read for them.
    pub read: Read,
}

/// An owner of a release.
pub trait Owner: Send + Sync {
    /// Reads the owner. Returns `None` if it is gone.
    fn read(&self) -> BoxFuture<'_, Result<Option<Present>, ApiError>>;

    /// Makes the owner stay until its release lets it go. Returns whether it still exists.
    fn hold(&self) -> BoxFuture<'_, Result<bool, ApiError>>;

    /// Lets the owner go.
    fn release<'a>(&'a self, present: &'a Present) -> BoxFuture<'a, Result<(), ApiError>>;

    /// Returns whether the owner is known to be neither gone nor being deleted. No I/O.
    fn is_wanted(&self) -> bool;

    /// Returns a digest of what the values depend on beside the generation and the objects that they refer to;
    /// `None` if that is not known.
    fn state(&self) -> Option<Digest>;

    /// Computes the values.
    fn values<'a>(
        &'a self,
        access: &'a Access,
        target: &'a Target,
        redactor: &'a mut Redactor,
        notices: &'a Notices,
    ) -> BoxFuture<'a, Result<OwnValues, DesiredError>>;

    /// Returns the first custom resource that is not ready and that the release waits for.
    fn dependency<'a>(
        &'a self,
        _target: &'a Target,
    ) -> BoxFuture<'a, Result<Option<String>, DesiredError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Returns what people can do, as a part of a sentence.
    fn remedy(&self, remedy: Remedy<'_>) -> String;

    /// Returns the manifest that was last reported as deployed.
    fn reported_manifest(&self) -> String {
        String::new()
    }

    /// Returns what the owner asks for, which errors may quote.
    fn quoted(&self) -> Option<&Value>;

    /// Runs before a step for these values.
    fn before<'a>(&'a self, _values: &'a Values) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Runs after a step that has left nothing to do.
    fn after(&self, _release: ReleaseRef) -> BoxFuture<'_, Result<(), BoxError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

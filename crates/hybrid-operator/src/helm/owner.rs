//! Whom a release belongs to: a custom resource, or a [component](super::component) of one, which a native
//! controller installs.

use futures::future::BoxFuture;
use helm_core::{Digest, Values};
use jiff::Timestamp;
use kube::runtime::events::Event;
use kube_objects::ApiError;
use serde_json::Value;

use super::access::Access;
use super::desired_error::DesiredError;
use super::events::Notices;
use super::extend::{ExtensionError, ReleaseRef};
use super::inputs::{LastValues, Read};
use super::message::{Reader, Redactor};
use super::target::Target;

/// State of an owner, read past all caches.
pub(super) struct Present {
    pub(super) generation: Option<i64>,
    /// Start of its deletion, if it is being deleted.
    pub(super) deleted: Option<Timestamp>,
    /// Finalizer of the release is present.
    pub(super) is_held: bool,
    /// Finalizers that others have set.
    pub(super) others: Vec<String>,
}

/// Values of a release, and what they were computed from.
pub(super) struct OwnValues {
    pub(super) values: Values,
    /// Paths set by `overrideValues`.
    pub(super) overridden: Vec<String>,
    /// Values of optional references, to be kept in the record; `None` if there are none.
    pub(super) kept: Option<LastValues>,
    pub(super) read: Read,
}

/// An owner of a release.
pub(super) trait Owner: Send + Sync {
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

    /// Returns what the owner asks for, which errors may quote.
    fn quoted(&self) -> Option<&Value>;

    /// Runs before a step for these values.
    fn before<'a>(&'a self, _values: &'a Values) -> BoxFuture<'a, Result<(), ExtensionError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Runs after a step that has left nothing to do.
    fn after(&self, _release: ReleaseRef) -> BoxFuture<'_, Result<(), ExtensionError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The place where the result of a pass is shown.
pub(super) trait Reporter: Send + Sync {
    /// Returns who reads the conditions.
    fn reader(&self) -> Reader;

    /// Merges a patch into the status. Returns the stored status, `None` if the owner no longer exists.
    fn patch_status<'a>(
        &'a self,
        patch: &'a Value,
    ) -> BoxFuture<'a, Result<Option<Value>, ApiError>>;

    /// Sends an event about the owner.
    fn send<'a>(&'a self, access: &'a Access, event: Event) -> BoxFuture<'a, ()>;
}

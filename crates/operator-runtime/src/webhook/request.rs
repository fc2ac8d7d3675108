//! The request that a function is given, and its denial.

use std::sync::Arc;

use k8s_openapi::api::authentication::v1::UserInfo;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, Operation};
use parking_lot::Mutex;

use kube_objects::with_causes;

/// A request to create, update or delete an object of type `K`.
#[derive(Debug)]
pub struct Request<K> {
    object: K,
    old: Option<K>,
    review: AdmissionRequest<DynamicObject>,
    warnings: Warnings,
}

/// Warnings of a function, shared with the code that called it.
#[derive(Debug, Clone, Default)]
pub(super) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl<K> Request<K> {
    pub(super) fn new(
        object: K,
        old: Option<K>,
        review: AdmissionRequest<DynamicObject>,
        warnings: Warnings,
    ) -> Self {
        Self {
            object,
            old,
            review,
            warnings,
        }
    }

    /// Returns the object as it would be stored, or the stored object that is to be deleted.
    pub fn object(&self) -> &K {
        &self.object
    }

    /// Returns the stored object before an update. `None` if the object is created or deleted, and
    /// if the stored object does not have the fields of `K`: an update can repair it.
    pub fn old(&self) -> Option<&K> {
        self.old.as_ref()
    }

    /// Returns what is requested.
    pub fn operation(&self) -> &Operation {
        &self.review.operation
    }

    /// Returns the name of the object; empty if the API server is going to generate one.
    pub fn name(&self) -> &str {
        &self.review.name
    }

    /// Returns the namespace of the object, if it has one.
    pub fn namespace(&self) -> Option<&str> {
        self.review.namespace.as_deref()
    }

    /// Returns who sent the request.
    pub fn user(&self) -> &UserInfo {
        &self.review.user_info
    }

    /// Whether nothing is going to be stored.
    pub fn is_dry_run(&self) -> bool {
        self.review.dry_run
    }

    /// Returns the rest of the request, without the objects.
    pub fn review(&self) -> &AdmissionRequest<DynamicObject> {
        &self.review
    }

    /// Shows a warning to whoever sent the request, whether it is denied or not. The API server may
    /// shorten warnings of more than 256 characters.
    pub fn warn(&self, warning: impl Into<String>) {
        self.warnings.0.lock().push(warning.into());
    }
}

/// Denial of a request; `kubectl` shows the message.
///
/// Any error becomes one with the code 500, so that a function can use `?`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Denied {
    /// Denies with a message; the code is 403.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            code: 403,
            reason: "Forbidden",
            message: message.into(),
        }
    }

    /// Denies because of the value of a field, such as `spec.size`; the code is 422.
    pub fn invalid(field: &str, message: impl AsRef<str>) -> Self {
        Self {
            code: 422,
            reason: "Invalid",
            message: format!("{field}: {}", message.as_ref()),
        }
    }

    /// Denies because the request cannot be judged; the code is 500.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self {
            code: 500,
            reason: "InternalError",
            message: message.into(),
        }
    }
}

impl<E: std::error::Error> From<E> for Denied {
    fn from(error: E) -> Self {
        Self::internal(with_causes(&error))
    }
}

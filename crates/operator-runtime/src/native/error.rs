//! Errors of a reconcile function.

use kube_objects::{ApiError, ForeignOwner, PathError};

/// A boxed error of any type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Error of a reconcile.
///
/// Every variant is retried with backoff, except [`Terminal`](Self::Terminal). Objects are named `namespace/name`, or
/// by their name if they are cluster-scoped.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum Error {
    /// A request to the API server failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// An object with this name exists and belongs to somebody else. It was not changed.
    #[error(
        "{kind} {name} already exists: {owner}; rename it, or delete it so that it can be created"
    )]
    Foreign {
        kind: String,
        name: String,
        /// The owner of the object.
        owner: ForeignOwner,
    },
    /// The object is being deleted, and can be created again when that is done.
    #[error("{kind} {name} is being deleted")]
    Terminating { kind: String, name: String },
    /// Others keep changing the object while it is applied.
    #[error("{kind} {name} was changed by others each time it was applied")]
    Contended { kind: String, name: String },
    /// The controller has no cache of this kind.
    #[error(
        "the controller neither owns nor watches {kind}; add .owns::<{kind}>() or .watches::<{kind}>(..)"
    )]
    NotCached { kind: String },
    /// The controller has no index of this name.
    #[error("there is no index {index} of {kind}; add .index::<{kind}>(\"{index}\", ..)")]
    NoIndex {
        kind: String,
        /// Name of the index.
        index: String,
    },
    /// An object was not as expected in time.
    #[error("{kind} {name} was not as expected within {within:?}")]
    Timeout {
        kind: String,
        name: String,
        /// The time limit.
        within: std::time::Duration,
    },
    /// An object needs a name to be applied.
    #[error("{kind} has no name")]
    NoName { kind: String },
    /// A name or namespace cannot be part of a URL.
    #[error(transparent)]
    Path(#[from] PathError),
    /// An object cannot be converted to or from JSON.
    #[error("cannot convert an object to or from JSON")]
    Json(#[from] serde_json::Error),
    /// Retrying cannot help: the reconcile is not repeated until the object or what it depends on
    /// changes.
    #[error(transparent)]
    Terminal(BoxError),
    /// Any other error.
    #[error(transparent)]
    Other(#[from] BoxError),
}

impl Error {
    /// Wraps an error that a retry cannot cure, for example an invalid spec that the schema admits.
    pub fn terminal(error: impl Into<BoxError>) -> Self {
        Self::Terminal(error.into())
    }

    /// Wraps any other error, to be retried.
    pub fn other(error: impl Into<BoxError>) -> Self {
        Self::Other(error.into())
    }

    /// Reports whether the API server refused a request for lack of a permission, because the
    /// namespace is being deleted, or by an admission rule (403).
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Api(ApiError::Forbidden { .. }))
    }
}

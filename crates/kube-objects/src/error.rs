//! Errors of a single request, classified by status code and reason, never by message.

use std::fmt;

use http::StatusCode;
use kube::core::{ApiResource, Status};

/// The target of a request, for conditions, events and logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The verb as in RBAC: `get`, `patch`, `delete`, `deletecollection`, …
    pub verb: &'static str,
    /// The resource as in RBAC: `deployments.apps`, `secrets`.
    pub resource: String,
    /// The namespace, if the resource has one.
    pub namespace: Option<String>,
    /// The name; `None` for lists and collections.
    pub name: Option<String>,
}

impl Target {
    /// Creates the target of a request for a resource.
    pub fn of(
        verb: &'static str,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Self {
        Self {
            verb,
            resource: if resource.group.is_empty() {
                resource.plural.clone()
            } else {
                format!("{}.{}", resource.plural, resource.group)
            },
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
        }
    }
}

/// `patch deployments.apps prod/web`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => write!(f, " {namespace}/{name}"),
            (Some(namespace), None) => write!(f, " in namespace {namespace}"),
            (None, Some(name)) => write!(f, " {name}"),
            (None, None) => Ok(()),
        }
    }
}

/// A failed request.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ApiError {
    /// The server forbids it (403): a permission is missing, or admission denies it.
    #[error("cannot {target}: {}", status.message)]
    Forbidden {
        /// The request: verb, resource and object.
        target: Box<Target>,
        status: Box<Status>,
    },
    /// The object does not exist, or the server does not know the resource (404).
    #[error("{target}: not found")]
    NotFound {
        target: Box<Target>,
        /// The server's status. Without details, the resource itself is unknown.
        status: Box<Status>,
    },
    /// The object has changed meanwhile, already exists, or has another uid (409).
    #[error("{target}: {}", status.message)]
    Conflict {
        target: Box<Target>,
        status: Box<Status>,
    },
    /// The server rejects it permanently (400 with a reason, and other 4xx that depend on the request alone).
    #[error("{target}: {}", status.message)]
    Rejected {
        target: Box<Target>,
        status: Box<Status>,
    },
    /// The server, or a proxy before it, cannot serve it now (429, 5xx, and everything else).
    #[error("{target}: {}", status.message)]
    Unavailable {
        target: Box<Target>,
        status: Box<Status>,
    },
    /// No response was received.
    #[error("{target}: no response from the API server")]
    Transport {
        target: Box<Target>,
        #[source]
        source: Box<kube::Error>,
    },
    /// The response does not have the expected format.
    #[error("{target}: cannot decode the response")]
    Decode {
        target: Box<Target>,
        #[source]
        source: serde_json::Error,
    },
    /// A name or namespace that cannot be part of a path.
    #[error(transparent)]
    Path(#[from] super::PathError),
}

impl ApiError {
    /// Describes the failure of a request.
    pub fn of(target: Target, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(target, *status),
            source => Self::Transport {
                target: Box::new(target),
                source: Box::new(source),
            },
        }
    }

    /// Describes a request that the API server has refused.
    pub(crate) fn of_status(target: Target, status: Status) -> Self {
        let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (target, status) = (Box::new(target), Box::new(status));
        match code {
            StatusCode::FORBIDDEN => Self::Forbidden { target, status },
            StatusCode::NOT_FOUND => Self::NotFound { target, status },
            StatusCode::CONFLICT => Self::Conflict { target, status },
            // The API server gives a reason; a proxy does not.
            StatusCode::BAD_REQUEST if !status.reason.is_empty() => {
                Self::Rejected { target, status }
            }
            StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_ACCEPTABLE
            | StatusCode::GONE
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::UNPROCESSABLE_ENTITY => Self::Rejected { target, status },
            // Among others 401: an expired token is renewed by the client.
            _ => Self::Unavailable { target, status },
        }
    }

    /// Returns the kind of the error, for metrics and traces.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Forbidden { .. } => "Forbidden",
            Self::NotFound { .. } => "NotFound",
            Self::Conflict { .. } => "Conflict",
            Self::Rejected { .. } | Self::Path(_) => "Rejected",
            Self::Unavailable { .. } => "Unavailable",
            Self::Transport { .. } => "Unreachable",
            Self::Decode { .. } => "UnreadableAnswer",
        }
    }

    /// Returns whether the same request may succeed later without any change.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Conflict { .. }
            | Self::Unavailable { .. }
            | Self::Transport { .. }
            // It may have been cut off.
            | Self::Decode { .. } => true,
            Self::Forbidden { .. }
            | Self::NotFound { .. }
            | Self::Rejected { .. }
            | Self::Path(_) => false,
        }
    }

    /// Returns whether the answer does not tell whether another attempt may succeed: a 500 or 400
    /// without reason and details, or no readable object. Server-side apply answers like this to an object
    /// that does not match its schema, and so does a server whose etcd changes its leader.
    pub fn is_unexplained(&self) -> bool {
        match self {
            Self::Unavailable { status, .. } => {
                matches!(status.code, 400 | 500)
                    && status.reason.is_empty()
                    && status.details.is_none()
            }
            Self::Decode { .. } => true,
            _ => false,
        }
    }

    /// Returns whether the object or the path does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Returns whether the server does not know the path at all: it does not serve the kind. An object
    /// that does not exist has a status with a reason.
    pub(crate) fn is_unserved(&self) -> bool {
        matches!(self, Self::NotFound { status, .. }
            if status.reason != "NotFound" && status.details.is_none())
    }

    /// Returns whether the server's status has this cause, such as `NamespaceTerminating`.
    pub fn has_cause(&self, reason: &str) -> bool {
        self.status()
            .is_some_and(|status| has_cause(status, reason))
    }

    /// Replaces the messages of the server's status.
    #[must_use]
    pub(crate) fn map_messages(mut self, replace: impl Fn(&str) -> String) -> Self {
        if let Self::Forbidden { status, .. }
        | Self::NotFound { status, .. }
        | Self::Conflict { status, .. }
        | Self::Rejected { status, .. }
        | Self::Unavailable { status, .. } = &mut self
        {
            status.message = replace(&status.message);
            for cause in status.details.iter_mut().flat_map(|it| &mut it.causes) {
                cause.message = replace(&cause.message);
            }
        }
        self
    }

    /// Returns the answer of the API server, if it has refused the request.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Forbidden { status, .. }
            | Self::NotFound { status, .. }
            | Self::Conflict { status, .. }
            | Self::Rejected { status, .. }
            | Self::Unavailable { status, .. } => Some(status),
            Self::Transport { .. } | Self::Decode { .. } | Self::Path(_) => None,
        }
    }
}

pub(super) fn has_cause(status: &Status, reason: &str) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(namespace: Option<&str>, name: Option<&str>) -> Target {
        Target {
            verb: "patch",
            resource: "deployments.apps".to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
        }
    }

    #[test]
    fn a_target_names_verb_resource_and_object() {
        for (namespace, name, expected) in [
            (Some("prod"), Some("web"), " prod/web"),
            (Some("prod"), None, " in namespace prod"),
            (None, Some("web"), " web"),
            (None, None, ""),
        ] {
            let text = target(namespace, name).to_string();
            assert_eq!(text, format!("patch deployments.apps{expected}"));
        }
    }

    #[test]
    fn only_errors_that_may_pass_without_a_change_are_transient() {
        for (code, reason, transient) in [
            (400, "Rejected", false),
            (405, "Rejected", false),
            (408, "Unavailable", true),
            (413, "Rejected", false),
            (401, "Unavailable", true),
            (403, "Forbidden", false),
            (404, "NotFound", false),
            (409, "Conflict", true),
            (415, "Rejected", false),
            (422, "Rejected", false),
            (429, "Unavailable", true),
            (500, "Unavailable", true),
            (502, "Unavailable", true),
            (504, "Unavailable", true),
            (503, "Unavailable", true),
            (0, "Unavailable", true),
        ] {
            let status = Status::failure("m", "R").with_code(code);
            let error = ApiError::of_status(target(None, None), status);
            assert_eq!(error.reason(), reason, "{code}");
            assert_eq!(error.is_transient(), transient, "{code}");
        }
    }

    #[test]
    fn only_bare_answers_are_unexplained() {
        for (code, reason, details, unexplained) in [
            (500, "", false, true),
            (500, "InternalError", false, false),
            (500, "", true, false),
            (400, "", false, true),
            (400, "BadRequest", false, false),
            (502, "", false, false),
            (422, "", false, false),
        ] {
            let mut status = Status::failure("m", reason).with_code(code);
            if details {
                status.details = serde_json::from_str("{}").unwrap();
            }
            let error = ApiError::of_status(target(None, None), status);
            let found = error.is_unexplained();
            assert_eq!(found, unexplained, "{code} {reason} {details}");
            assert!(!unexplained || error.is_transient());
        }
    }
}

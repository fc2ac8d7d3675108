//! Errors of apply: failures of the server, classified by how to handle them.

use kube::core::Status;
use kube::core::response::StatusCause;
use object_key::ObjectKey;
use serde_json::Value;

use super::error::has_cause;
use super::{ApiError, DiscoveryError, ForeignOwner};
use crate::withheld::{CUT, Withheld};

/// Maximum length of a server's message in an error, in characters.
const MESSAGE_MAX: usize = 600;

/// Error of applying an object.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ApplyError {
    /// The document lacks apiVersion or kind, or has no valid name.
    #[error("{document} lacks {missing}")]
    Incomplete {
        /// Kind, name or position of the document.
        document: String,
        missing: &'static str,
    },
    /// The object exists and does not belong to this release.
    #[error("{key} exists and cannot be taken over: {owner}")]
    Foreign {
        key: Box<ObjectKey>,
        /// Owner of the object.
        owner: ForeignOwner,
    },
    /// The object must not exist, and does.
    #[error("{key} already exists")]
    Exists { key: Box<ObjectKey> },
    /// The object is being deleted. It can be created again once it is gone.
    #[error("{key} is being deleted")]
    Terminating { key: Box<ObjectKey> },
    /// Fields that cannot be changed differ.
    #[error("{key}: {} cannot be changed: {message}", fields.join(", "))]
    Immutable {
        key: Box<ObjectKey>,
        fields: Vec<String>,
        /// Message of the API server.
        message: String,
    },
    /// Fields that cannot be changed differ, and the object may not be deleted.
    #[error(
        "{key}: {} cannot be changed, and the annotation helm.sh/resource-policy: keep prevents deleting and recreating the object; remove the annotation, or delete the object",
        fields.join(", ")
    )]
    Kept {
        key: Box<ObjectKey>,
        fields: Vec<String>,
    },
    /// The API server does not accept the object.
    #[error("{key}: {message}")]
    Invalid {
        key: Box<ObjectKey>,
        /// The invalid fields, as far as the server names them.
        fields: Vec<String>,
        /// Message of the API server.
        message: String,
    },
    /// The server's answer does not tell whether another attempt may succeed, see
    /// [`ApiError::is_unexplained`].
    #[error("{key}: {message}")]
    Unexplained {
        key: Box<ObjectKey>,
        /// Message of the API server.
        message: String,
    },
    /// The namespace of the object is being deleted.
    #[error("{key}: the namespace is being deleted")]
    NamespaceTerminating { key: Box<ObjectKey> },
    /// The namespace of the object does not exist.
    #[error("{key}: the namespace does not exist")]
    NamespaceMissing { key: Box<ObjectKey> },
    /// Other clients change the object again and again.
    #[error("{key} keeps changing while it is applied")]
    Contended { key: Box<ObjectKey> },
    /// The kind of the object cannot be found out.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// A request failed.
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl ApplyError {
    /// Returns the kind of the error, for metrics and traces.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Incomplete { .. } => "IncompleteObject",
            Self::Foreign { .. } => "ForeignObject",
            Self::Exists { .. } => "ObjectExists",
            Self::Terminating { .. } => "ObjectTerminating",
            Self::Immutable { .. } | Self::Kept { .. } => "ImmutableField",
            Self::Invalid { .. } => "InvalidObject",
            Self::Unexplained { .. } => "UnexplainedFailure",
            Self::NamespaceTerminating { .. } => "NamespaceTerminating",
            Self::NamespaceMissing { .. } => "NamespaceMissing",
            Self::Contended { .. } => "Contended",
            Self::Discovery(error) => error.reason(),
            Self::Api(error) => error.reason(),
        }
    }

    /// Returns whether the same apply may succeed later without any change.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Exists { .. }
            | Self::Terminating { .. }
            | Self::Contended { .. }
            | Self::Unexplained { .. } => true,
            Self::Discovery(error) => error.is_transient(),
            Self::Api(error) => error.is_transient(),
            Self::Incomplete { .. }
            | Self::Foreign { .. }
            | Self::Immutable { .. }
            | Self::Kept { .. }
            | Self::Invalid { .. }
            | Self::NamespaceTerminating { .. }
            | Self::NamespaceMissing { .. } => false,
        }
    }

    /// Returns whether it is not known if another attempt may succeed. What comes back the same several
    /// times is permanent.
    pub fn is_unexplained(&self) -> bool {
        match self {
            Self::Unexplained { .. } => true,
            Self::Api(error) => error.is_unexplained(),
            _ => false,
        }
    }
}

/// The cause of a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conflict {
    /// Others own fields and have set different values.
    Fields,
    /// No object has the uid or resource version that was sent.
    Object,
}

/// Returns the cause of a conflict with changes of others; `None` for other failures.
///
/// The server rejects an apply with 409 if no object of the name exists, and with 422 on
/// `metadata.uid` if one with another uid exists. A concurrent update of a quota is a 409 on the
/// quota.
pub(super) fn conflict(error: &ApiError) -> Option<Conflict> {
    match error {
        ApiError::Conflict { status, .. } if is_quota(status) => None,
        ApiError::Conflict { status, .. } if has_cause(status, "FieldManagerConflict") => {
            Some(Conflict::Fields)
        }
        ApiError::Conflict { .. } => Some(Conflict::Object),
        ApiError::Rejected { status, .. }
            if causes(status).any(|cause| cause.field == "metadata.uid") =>
        {
            Some(Conflict::Object)
        }
        _ => None,
    }
}

/// Classifies the failure of a write. The server's message quotes values of the object; those of a Secret
/// are removed.
pub(super) fn classify(key: &ObjectKey, object: &Value, error: ApiError) -> ApplyError {
    let boxed = || Box::new(key.clone());
    let mut withheld = Withheld::default();
    withheld.add_secret(object);
    let error = error.map_messages(|message| withheld.clean(message));
    if let Some(definition) = terminating_definition(&error) {
        return ApplyError::Terminating {
            key: Box::new(definition),
        };
    }
    let status = match &error {
        ApiError::Rejected { status, .. } => status,
        ApiError::Unavailable { status, .. } if error.is_unexplained() => {
            return ApplyError::Unexplained {
                key: boxed(),
                message: message_of(status),
            };
        }
        ApiError::Forbidden { status, .. } if has_cause(status, "NamespaceTerminating") => {
            return ApplyError::NamespaceTerminating { key: boxed() };
        }
        ApiError::NotFound { status, .. } if is_about(status, "namespaces") => {
            return ApplyError::NamespaceMissing { key: boxed() };
        }
        _ => return error.into(),
    };
    let immutable: Vec<&StatusCause> = causes(status).filter(|cause| is_immutable(cause)).collect();
    if let Some(first) = immutable.first() {
        let message = explanation(&first.message);
        let fields = distinct(immutable.iter().map(|cause| &cause.field));
        return ApplyError::Immutable {
            key: boxed(),
            fields,
            message,
        };
    }
    let fields = distinct(causes(status).map(|cause| &cause.field));
    let message = message_of(status);
    ApplyError::Invalid {
        key: boxed(),
        fields,
        message,
    }
}

/// Returns the definition of which a write was refused because it is being deleted. The API has no code for
/// this reason, only these words in the message.
fn terminating_definition(error: &ApiError) -> Option<ObjectKey> {
    let (ApiError::Forbidden { target, status } | ApiError::Rejected { target, status }) = error
    else {
        return None;
    };
    let words = "custom resource definition is terminating";
    status.message.contains(words).then(|| ObjectKey {
        group: "apiextensions.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: "CustomResourceDefinition".to_owned(),
        namespace: None,
        name: target.resource.clone(),
    })
}

fn message_of(status: &Status) -> String {
    shortened(&status.message)
}

/// Cuts a message of the server, with a mark by which a value is recognised of which the end is cut off.
fn shortened(message: &str) -> String {
    let mut short: String = message.chars().take(MESSAGE_MAX).collect();
    if short.len() < message.len() {
        short.push_str(CUT);
    }
    short
}

/// Returns whether a field was rejected because it is immutable. The API has no code for this
/// reason, only these words in the message.
fn is_immutable(cause: &StatusCause) -> bool {
    const WORDS: &[&str] = &[
        "immutable",
        "may not be changed",
        "may not change once set",
        "cannot change",
    ];
    WORDS.iter().any(|word| cause.message.contains(word))
        || (cause.reason == "FieldValueForbidden" && cause.message.contains("updates to "))
}

/// Returns the reason in a cause, without the quoted value.
fn explanation(message: &str) -> String {
    let reason = match message.strip_prefix("Invalid value: ") {
        Some(quoted) => quoted
            .rsplit_once(": ")
            .map_or(quoted, |(_, reason)| reason),
        None => message.strip_prefix("Forbidden: ").unwrap_or(message),
    };
    shortened(reason.lines().next().unwrap_or_default())
}

fn is_quota(status: &Status) -> bool {
    is_about(status, "resourcequotas")
}

fn is_about(status: &Status, resource: &str) -> bool {
    status
        .details
        .as_ref()
        .is_some_and(|details| details.kind == resource)
}

pub(super) fn causes(status: &Status) -> impl Iterator<Item = &StatusCause> {
    status.details.iter().flat_map(|details| &details.causes)
}

fn distinct<'a>(fields: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut distinct: Vec<String> = Vec::new();
    for field in fields {
        if !field.is_empty() && !distinct.contains(field) {
            distinct.push(field.clone());
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;
    use serde_json::{Value, json};

    fn key(kind: &str) -> ObjectKey {
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}});
        ObjectKey::of(&object).unwrap()
    }

    fn failed(code: u16, reason: &str, message: &str, details: &Value) -> ApiError {
        let status: Status = serde_json::from_value(json!({"status": "Failure", "code": code,
            "reason": reason, "message": message, "details": details}))
        .unwrap();
        let target = Target {
            verb: "patch",
            resource: "x".to_owned(),
            namespace: None,
            name: None,
        };
        ApiError::of_status(target, status)
    }

    fn cause(reason: &str, message: &str, field: &str) -> Value {
        json!({"kind": "X", "causes": [{"reason": reason, "message": message, "field": field}]})
    }

    #[test]
    fn immutable_fields_are_named_without_their_values() {
        for (reason, message, field, expected) in [
            (
                "FieldValueInvalid",
                r#"Invalid value: {"matchLabels":{"a":"b: c"}}: field is immutable"#,
                "spec.selector",
                "field is immutable",
            ),
            (
                "FieldValueForbidden",
                "Forbidden: updates to statefulset spec for fields other than 'replicas' are forbidden",
                "spec",
                "updates to statefulset spec for fields other than 'replicas' are forbidden",
            ),
            (
                "FieldValueForbidden",
                "Forbidden: spec is immutable after creation\n@@ -1,6 +1,6 @@\n {",
                "spec",
                "spec is immutable after creation",
            ),
            (
                "FieldValueInvalid",
                r#"Invalid value: ["None"]: may not change once set"#,
                "spec.clusterIPs[0]",
                "may not change once set",
            ),
            (
                "FieldValueInvalid",
                r#"Invalid value: {"Kind":"Role"}: cannot change roleRef"#,
                "roleRef",
                "cannot change roleRef",
            ),
        ] {
            let error = failed(422, "Invalid", "long", &cause(reason, message, field));
            match classify(&key("X"), &Value::Null, error) {
                ApplyError::Immutable {
                    fields, message, ..
                } => {
                    assert_eq!((fields, &*message), (vec![field.to_owned()], expected));
                }
                other => panic!("{field}: {other:?}"),
            }
        }
    }

    #[test]
    fn other_failures_are_classified() {
        let none = || Value::Null;
        let definition = "create not allowed while custom resource definition is terminating";
        let terminating = cause("NamespaceTerminating", "m", "metadata.namespace");
        let missing = json!({"kind": "namespaces", "name": "n"});
        let message = "Invalid value: \"X\": lower case";
        let bad = cause("FieldValueInvalid", message, "metadata.name");
        let (namespace, object) = ("NamespaceTerminating", "ObjectTerminating");
        let quota = "exceeded quota";
        let unserved = "404 page not found";
        let typed = "failed to create typed patch object";
        for (code, status, message, details, reason, transient) in [
            (422, "Invalid", "m", bad, "InvalidObject", false),
            (400, "BadRequest", "m", none(), "InvalidObject", false),
            (400, "", "m", none(), "UnexplainedFailure", true),
            (500, "", typed, none(), "UnexplainedFailure", true),
            (500, "InternalError", "m", json!({}), "Unavailable", true),
            (403, "Forbidden", "m", terminating, namespace, false),
            (403, "Forbidden", definition, json!({}), object, true),
            (405, "MethodNotAllowed", definition, json!({}), object, true),
            (403, "Forbidden", quota, json!({}), "Forbidden", false),
            (404, "NotFound", "m", missing, "NamespaceMissing", false),
            (404, "", unserved, none(), "NotFound", false),
            (429, "TooManyRequests", "m", none(), "Unavailable", true),
        ] {
            let error = failed(code, status, message, &details);
            let text = format!("{error:?}");
            let error = classify(&key("X"), &Value::Null, error);
            assert_eq!(error.reason(), reason, "{text}");
            assert_eq!(error.is_transient(), transient, "{text}");
        }
    }

    #[test]
    fn messages_about_secrets_say_why_and_quote_no_content() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
                            "stringData": {"password": "s3cret"}});
        let invalid = "Invalid value: s3cret";
        let details = cause("FieldValueInvalid", invalid, "data.password");
        let why = "data.password: expected string, got s3cret";
        let told = "data.password: expected string, got [redacted]";
        for (code, reason, details, who) in [
            (422, "Invalid", details, "Secret a"),
            (500, "", Value::Null, "Secret a"),
            (403, "Forbidden", Value::Null, "cannot patch x"),
        ] {
            let error = failed(code, reason, why, &details);
            let error = classify(&key("Secret"), &secret, error);
            assert_eq!(error.to_string(), format!("{who}: {told}"));
            assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
        }
    }

    #[test]
    fn conflicts_are_classified() {
        let fields = cause("FieldManagerConflict", "conflict with x", ".spec.replicas");
        let uid = cause("FieldValueInvalid", "field is immutable", "metadata.uid");
        let quota = json!({"kind": "resourcequotas"});
        let object = json!({"kind": "configmaps"});
        for (code, reason, details, expected) in [
            (409, "Conflict", fields, Some(Conflict::Fields)),
            (409, "Conflict", object, Some(Conflict::Object)),
            (422, "Invalid", uid, Some(Conflict::Object)),
            (409, "Conflict", quota, None),
            (422, "Invalid", Value::Null, None),
            (503, "", Value::Null, None),
        ] {
            let error = failed(code, reason, "m", &details);
            assert_eq!(conflict(&error), expected, "{error:?}");
        }
    }
}

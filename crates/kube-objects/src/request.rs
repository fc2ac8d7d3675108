//! Builds request paths and sends requests, so that no name can escape its path and no Secret is
//! logged.

use std::fmt::Write as _;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::{ApiError, ApiKind, Target, cut_off};

/// Media type of responses that are reduced to metadata.
pub const METADATA_ONLY: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// Media type of lists that are reduced to metadata.
pub const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
/// Media type of JSON.
pub const JSON: &str = "application/json";
/// Media type of server-side apply.
pub const APPLY: &str = "application/apply-patch+yaml";
/// Media type of JSON patches.
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
/// Media type of merge patches.
pub const MERGE_PATCH: &str = "application/merge-patch+json";

/// A name that the API server does not accept and that would change the meaning of a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid object {what} {text:?}")]
pub struct PathError {
    /// `name` or `namespace`.
    pub what: &'static str,
    /// The invalid text.
    pub text: String,
}

/// Returns the path of a resource, or of one object if a name is given. Without a namespace, the
/// path of a namespaced resource covers all namespaces.
pub fn path(
    kind: &ApiKind,
    namespace: Option<&str>,
    name: Option<&str>,
) -> Result<String, PathError> {
    let resource = &kind.resource;
    let mut path = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };
    if let Some(namespace) = namespace {
        path.push_str("/namespaces/");
        path.push_str(segment("namespace", namespace)?);
    }
    path.push('/');
    path.push_str(&resource.plural);
    if let Some(name) = name {
        path.push('/');
        path.push_str(segment("name", name)?);
    }
    Ok(path)
}

/// Names a request about objects of a kind, for errors.
pub fn target(
    verb: &'static str,
    kind: &ApiKind,
    namespace: Option<&str>,
    name: Option<&str>,
) -> Target {
    Target::of(verb, &kind.resource, namespace, name)
}

/// Percent-encodes the value of a query parameter.
pub fn query_value(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Deserializes a list that may be null, as the server writes some empty lists.
pub fn nullable<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A request.
pub struct Call {
    /// Method.
    pub method: Method,
    /// Path and query.
    pub uri: String,
    /// Media type of the answer.
    pub accept: &'static str,
    /// Media type of the body.
    pub content_type: Option<&'static str>,
    /// Body.
    pub body: Vec<u8>,
}

impl Call {
    /// Creates a GET request.
    pub fn get(uri: String, accept: &'static str) -> Self {
        Self {
            method: Method::GET,
            uri,
            accept,
            content_type: None,
            body: Vec::new(),
        }
    }

    /// Creates a request with a body.
    pub fn with_body(
        method: Method,
        uri: String,
        accept: &'static str,
        content_type: &'static str,
        body: Vec<u8>,
    ) -> Self {
        Self {
            method,
            uri,
            accept,
            content_type: Some(content_type),
            body,
        }
    }
}

/// A successful response of the server.
#[derive(Debug)]
pub struct Answer {
    /// The status code: 200, 201 or 202.
    pub status: StatusCode,
    body: Bytes,
    target: Box<Target>,
}

impl Answer {
    /// Decodes the body.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        serde_json::from_slice(&self.body).map_err(|source| ApiError::Decode {
            target: self.target.clone(),
            source,
        })
    }
}

/// Sends a request. Unlike the methods of the client, this distinguishes 200 from 201, and never
/// logs a body.
///
/// # Errors
/// Returns the variant of [`ApiError`] for the status code of a failure.
pub async fn send(
    client: &Client,
    target: Target,
    request: Request<Vec<u8>>,
) -> Result<Answer, ApiError> {
    cut_off::note(&target);
    let response = match client.send(request.map(Body::from)).await {
        Ok(response) => response,
        Err(error) => return Err(ApiError::of(target, error)),
    };
    let status = response.status();
    let body = match response.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return Err(ApiError::of(target, error)),
    };
    if status.is_success() {
        let target = Box::new(target);
        return Ok(Answer {
            status,
            body,
            target,
        });
    }
    Err(ApiError::of_status(target, failure(status, &body)))
}

/// Reason of an answer that is not the API server's: proxies and unknown paths answer with text, HTML or
/// other JSON, and a body may be empty or cut off.
const NO_STATUS: &str = "NoStatus";

fn failure(code: StatusCode, body: &[u8]) -> Status {
    let status = serde_json::from_slice(body).ok();
    let status = status.filter(|status: &Status| status.is_failure());
    let status = status.unwrap_or_else(|| {
        let text = String::from_utf8_lossy(body);
        let words: Vec<&str> = text.split_whitespace().collect();
        let excerpt: String = words.join(" ").chars().take(200).collect();
        let message = if excerpt.is_empty() {
            code.to_string()
        } else {
            format!("{code}: {excerpt}")
        };
        Status::failure(&message, NO_STATUS)
    });
    status.with_code(code.as_u16())
}

/// Sends a request. An answer that is not a success is an error.
pub async fn call(client: &Client, target: Target, call: Call) -> Result<Answer, ApiError> {
    let mut builder = Request::builder()
        .method(call.method)
        .uri(call.uri)
        .header(http::header::ACCEPT, call.accept);
    if let Some(content_type) = call.content_type {
        builder = builder.header(http::header::CONTENT_TYPE, content_type);
    }
    let request = builder
        .body(call.body)
        .map_err(|error| ApiError::of(target.clone(), kube::Error::HttpError(error)))?;
    send(client, target, request).await
}

/// Validates a text as one segment of a path.
fn segment<'a>(what: &'static str, text: &'a str) -> Result<&'a str, PathError> {
    let plain = |c: char| c.is_ascii_graphic() && !"/%?#\\\"<>`{}|^".contains(c);
    if text.is_empty() || text == "." || text == ".." || !text.chars().all(plain) {
        return Err(PathError {
            what,
            text: text.to_owned(),
        });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scope;

    #[test]
    fn paths_follow_group_scope_and_name() {
        let pods = ApiKind::fixture("", "v1", "Pod", "pods", Scope::Namespaced);
        let roles = ApiKind::fixture(
            "rbac.authorization.k8s.io",
            "v1",
            "ClusterRole",
            "clusterroles",
            Scope::Cluster,
        );
        let text = |result: Result<String, PathError>| result.unwrap();
        let expected = "/api/v1/namespaces/a/pods/b";
        assert_eq!(text(path(&pods, Some("a"), Some("b"))), expected);
        let expected = "/api/v1/namespaces/a/pods";
        assert_eq!(text(path(&pods, Some("a"), None)), expected);
        assert_eq!(text(path(&pods, None, None)), "/api/v1/pods");
        let expected = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:x";
        assert_eq!(text(path(&roles, None, Some("system:x"))), expected);
    }

    #[test]
    fn names_that_would_escape_their_path_are_rejected() {
        let pods = ApiKind::fixture("", "v1", "Pod", "pods", Scope::Namespaced);
        for name in [
            "", ".", "..", "a/b", "../x", "a%2f", "a?x=1", "a#b", "a b", "é", "a\n",
        ] {
            let error = path(&pods, Some("n"), Some(name)).unwrap_err();
            assert_eq!(error.what, "name");
            assert!(path(&pods, Some(name), None).is_err());
        }
    }

    #[test]
    fn query_values_are_encoded() {
        let expected = "owner%3Dhelm%2Cname%21%3Da%20b";
        assert_eq!(query_value("owner=helm,name!=a b"), expected);
    }

    #[test]
    fn answers_of_proxies_are_not_those_of_the_api_server() {
        let own = r#"{"kind": "Status", "status": "Failure", "message": "m", "code": 500}"#;
        let of = |code: u16, body: &str| {
            let code = StatusCode::from_u16(code).unwrap();
            let status = failure(code, body.as_bytes());
            assert_eq!(status.code, code.as_u16());
            (status.reason, status.message)
        };
        assert_eq!(of(500, own), (String::new(), "m".to_owned()));
        for (code, body, message) in [
            (500, "", "500 Internal Server Error"),
            (
                500,
                "etcdserver: leader changed\n",
                "500 Internal Server Error: etcdserver: leader changed",
            ),
            (
                502,
                "<html>\n <h1>Bad</h1>",
                "502 Bad Gateway: <html> <h1>Bad</h1>",
            ),
            (
                500,
                r#"{"error": "x"}"#,
                "500 Internal Server Error: {\"error\": \"x\"}",
            ),
            (
                500,
                &own[..40],
                "500 Internal Server Error: {\"kind\": \"Status\", \"status\": \"Failure\",",
            ),
        ] {
            let (reason, found) = of(code, body);
            assert_eq!((reason.as_str(), found.as_str()), (NO_STATUS, message));
        }
    }
}

//! Requests to kube-apiserver, with its answers as they are.

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

/// An answer of the server.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) body: Value,
}

impl Answer {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

pub(super) async fn send(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &str,
    body: Option<&Value>,
) -> Answer {
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(Body::from(body.into_bytes()))
        .unwrap();
    let response = client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    Answer {
        code,
        // A path that is not served is answered with a text.
        body: serde_json::from_slice(&bytes).unwrap_or_default(),
    }
}

/// Returns the first part of the paths of a version.
pub(super) fn root(api_version: &str) -> &'static str {
    if api_version.contains('/') {
        "apis"
    } else {
        "api"
    }
}

/// Returns the path of a kind's objects in a namespace.
pub(super) fn path(api_version: &str, namespace: &str, plural: &str) -> String {
    let root = root(api_version);
    format!("/{root}/{api_version}/namespaces/{namespace}/{plural}")
}

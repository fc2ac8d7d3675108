//! Parses verb, resource and name of a request to the API server from its method, path and query.

use std::collections::BTreeMap;

use futures::FutureExt;
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use kube::client::Body;
use serde_json::Value;

use crate::fault::Fault;

/// A request as the client sent it.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// HTTP method.
    pub method: Method,
    /// Path, without the query.
    pub path: String,
    /// Decoded parameters of the query.
    pub query: BTreeMap<String, String>,
    /// Kubernetes verb: get, list, watch, create, update, patch, apply, delete, deletecollection.
    /// `apply` is server-side apply; if the path is not a resource, the verb is the method in lower
    /// case.
    pub verb: String,
    /// Plural resource, with its subresource after a slash; the path if it is not a resource.
    pub resource: String,
    /// Namespace, of a namespaced resource.
    pub namespace: Option<String>,
    /// Name of the object, if the path has one.
    pub name: Option<String>,
    /// User whom the request impersonates.
    pub user: Option<String>,
    /// JSON of the body; `None` if there is no body or it is not JSON.
    pub body: Option<Value>,
    /// The fault that was injected, if any.
    pub fault: Option<Fault>,
}

impl Recorded {
    /// Parses a request. Streamed bodies are ignored; kube sends none.
    pub(crate) fn of(request: &Request<Body>) -> Self {
        let path = request.uri().path().to_owned();
        let query = decode_query(request.uri().query().unwrap_or_default());
        let target = Target::of(&path);
        let header = |name: &str| request.headers().get(name)?.to_str().ok();
        let content_type = header(CONTENT_TYPE.as_str()).unwrap_or_default();
        let apply = content_type.starts_with("application/apply-patch");
        let watch = query.get("watch").map(String::as_str);
        let watch = matches!(watch, Some("true" | "1"));
        let verb = match (request.method(), &target) {
            (&Method::GET, Some(_)) if watch => "watch".to_owned(),
            (&Method::GET, Some(Target { name: None, .. })) => "list".to_owned(),
            (&Method::DELETE, Some(Target { name: None, .. })) => "deletecollection".to_owned(),
            (&Method::PATCH, Some(_)) if apply => "apply".to_owned(),
            (&Method::POST, Some(_)) => "create".to_owned(),
            (&Method::PUT, Some(_)) => "update".to_owned(),
            (method, _) => method.as_str().to_ascii_lowercase(),
        };
        let copy = request.body().try_clone();
        let bytes = copy.and_then(|body| body.collect_bytes().now_or_never()?.ok());
        let body = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let (resource, namespace, name) = match target {
            Some(target) => (target.resource, target.namespace, target.name),
            None => (path.clone(), None, None),
        };
        Self {
            method: request.method().clone(),
            path,
            query,
            verb,
            resource,
            namespace,
            name,
            user: header("impersonate-user").map(ToOwned::to_owned),
            body,
            fault: None,
        }
    }

    /// Returns the JSON of the body; null if there is none.
    pub fn json(&self) -> &Value {
        self.body.as_ref().unwrap_or(&Value::Null)
    }

    /// Returns whether the request is a write.
    pub fn is_write(&self) -> bool {
        self.method != Method::GET && !self.query.contains_key("dryRun")
    }

    /// Returns `verb resource`, the key for counting requests.
    pub fn kind(&self) -> String {
        format!("{} {}", self.verb, self.resource)
    }
}

/// Returns the plural resource in a path.
pub(crate) fn resource_of(path: &str) -> String {
    Target::of(path).map_or(String::new(), |target| target.resource)
}

/// The resource or object that a path names.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    resource: String,
    namespace: Option<String>,
    name: Option<String>,
}

impl Target {
    /// Parses `/api/v1/…` and `/apis/group/version/…`. All other paths are not resources.
    fn of(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (["api", _, rest @ ..] | ["apis", _, _, rest @ ..]) = parts.as_slice() else {
            return None;
        };
        let owned = |text: &&str| Some((*text).to_owned());
        let (namespace, rest) = match rest {
            // Subresources of a namespace look like resources in it.
            ["namespaces", _, "status" | "finalize"] => (None, rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (owned(namespace), rest),
            rest => (None, rest),
        };
        let (resource, name) = match rest {
            [resource] => ((*resource).to_owned(), None),
            [resource, name] => ((*resource).to_owned(), owned(name)),
            [resource, name, sub] => (format!("{resource}/{sub}"), owned(name)),
            _ => return None,
        };
        Some(Self {
            resource,
            namespace,
            name,
        })
    }
}

pub(crate) fn decode_query(query: &str) -> BTreeMap<String, String> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        })
        .collect()
}

/// Decodes `%2F` and `+`; anything else stays as it is.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        bytes.push(match (first, tail) {
            (b'+', _) => b' ',
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    rest = after;
                    high * 16 + low
                }
                _ => b'%',
            },
            _ => *first,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(method: &str, uri: &str, content_type: &str, body: &str) -> Recorded {
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header(CONTENT_TYPE, content_type);
        Recorded::of(&request.body(Body::from(body.as_bytes().to_vec())).unwrap())
    }

    #[test]
    fn requests_are_parsed_to_verb_and_resource() {
        for case in "
            GET /version = get /version
            GET /apis/apps/v1 = get /apis/apps/v1
            GET /api/v1/namespaces/a/pods = list pods
            GET /api/v1/pods?watch=true = watch pods
            GET /api/v1/namespaces/a/pods/b = get pods
            GET /api/v1/namespaces/a = get namespaces
            PUT /api/v1/namespaces/a/finalize = update namespaces/finalize
            POST /apis/apps/v1/namespaces/a/deployments = create deployments
            PATCH /apis/g/v1/namespaces/a/things/b/status = patch things/status
            APPLY /apis/g/v1/things/b?force=true = apply things
            DELETE /api/v1/namespaces/a/secrets = deletecollection secrets
            DELETE /api/v1/namespaces/a/secrets/b = delete secrets"
            .lines()
            .skip(1)
        {
            let (request, expected) = case.trim().split_once(" = ").unwrap();
            let (method, uri) = request.split_once(' ').unwrap();
            let (method, content_type) = match method {
                "APPLY" => ("PATCH", "application/apply-patch+yaml"),
                _ => (method, "application/json"),
            };
            let found = recorded(method, uri, content_type, "").kind();
            assert_eq!(found, expected, "{request}");
        }
    }

    #[test]
    fn the_query_is_decoded_and_the_body_is_read() {
        let uri = "/api/v1/namespaces/a/secrets?labelSelector=owner%3Dhelm%2Cname%3Da+b&x&y=100%";
        let request = recorded("POST", uri, "application/json", r#"{"kind":"Secret"}"#);
        assert_eq!(request.query["labelSelector"], "owner=helm,name=a b");
        assert_eq!(request.query["x"], "");
        assert_eq!(request.query["y"], "100%");
        assert_eq!(request.body.as_ref().unwrap()["kind"], "Secret");
        assert_eq!(request.namespace.as_deref(), Some("a"));
    }

    #[test]
    fn a_dry_run_is_not_a_write() {
        for (method, query, is_write) in [
            ("DELETE", "", true),
            ("DELETE", "?dryRun=All", false),
            ("GET", "", false),
        ] {
            let uri = format!("/api/v1/namespaces/a/secrets/b{query}");
            let request = recorded(method, &uri, "application/json", "");
            assert_eq!(request.is_write(), is_write, "{method} {uri}");
        }
    }
}

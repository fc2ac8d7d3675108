//! Counts requests by verb, resource and status, for metrics and for tests of request budgets.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Method, Request, Response};
use parking_lot::Mutex;
use tower::Service;

use super::is_watch;

/// Verb, resource and status of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestKind {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: &'static str,
    /// Plural of the resource, with its subresource after a `/`; the path if it is not a resource.
    pub resource: String,
    /// HTTP status; 0 if there was no response.
    pub status: u16,
}

impl RequestKind {
    fn new<B>(request: &Request<B>) -> Self {
        let path = request.uri().path();
        let (resource, named) = resource_of(path);
        let watch = is_watch(request.uri());
        let verb = match (request.method(), named) {
            (&Method::GET, _) if watch => "watch",
            (&Method::GET, true) => "get",
            (&Method::GET, false) if resource.starts_with('/') => "get",
            (&Method::GET, false) => "list",
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, true) => "delete",
            (&Method::DELETE, false) => "deletecollection",
            _ => "other",
        };
        Self {
            verb,
            resource,
            status: 0,
        }
    }
}

impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> {}", self.verb, self.resource, self.status)
    }
}

/// Returns the resource of a path, and whether the path names a single object.
fn resource_of(path: &str) -> (String, bool) {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let known = match parts.next() {
        Some("api") => parts.next().is_some(),
        Some("apis") => parts.next().is_some() && parts.next().is_some(),
        _ => false,
    };
    let mut rest: Vec<&str> = parts.collect();
    if !known || rest.is_empty() {
        return (path.to_owned(), true);
    }
    if rest.first() == Some(&"namespaces") && rest.len() > 2 {
        rest.drain(..2);
    }
    match rest.as_slice() {
        [resource] => ((*resource).to_owned(), false),
        [resource, _name] => ((*resource).to_owned(), true),
        [resource, _name, sub @ ..] => (format!("{resource}/{}", sub.join("/")), true),
        [] => (path.to_owned(), true),
    }
}

/// Counts of requests since the start.
#[derive(Debug, Clone, Default)]
pub struct Counts(Arc<Mutex<BTreeMap<RequestKind, u64>>>);

impl Counts {
    /// Returns the number of requests of each kind so far.
    pub fn snapshot(&self) -> BTreeMap<RequestKind, u64> {
        self.0.lock().clone()
    }

    fn add(&self, kind: RequestKind) {
        *self.0.lock().entry(kind).or_default() += 1;
    }
}

/// Counts the requests to a service.
#[derive(Debug, Clone)]
pub(super) struct CountService<S> {
    inner: S,
    counts: Counts,
}

impl<S> CountService<S> {
    pub(super) fn new(inner: S, counts: &Counts) -> Self {
        let counts = counts.clone();
        Self { inner, counts }
    }
}

impl<S, B, R> Service<Request<B>> for CountService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut kind = RequestKind::new(&request);
        let counts = self.counts.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            kind.status = answer
                .as_ref()
                .map_or(0, |response| response.status().as_u16());
            counts.add(kind);
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::RequestKind;

    #[test]
    fn requests_are_named_by_verb_and_resource() {
        for (method, uri, verb, resource) in [
            ("GET", "/api/v1/namespaces/n/pods/p", "get", "pods"),
            ("GET", "/api/v1/pods?watch=true", "watch", "pods"),
            (
                "GET",
                "/apis/apps/v1/namespaces/n/deployments",
                "list",
                "deployments",
            ),
            (
                "PATCH",
                "/apis/a.b/v1/namespaces/n/things/t/status",
                "patch",
                "things/status",
            ),
            (
                "DELETE",
                "/api/v1/namespaces/n/secrets?labelSelector=a",
                "deletecollection",
                "secrets",
            ),
            ("GET", "/api/v1/namespaces/n", "get", "namespaces"),
            ("GET", "/version", "get", "/version"),
        ] {
            let request = Request::builder().method(method).uri(uri).body(()).unwrap();
            let kind = RequestKind::new(&request);
            assert_eq!(kind.verb, verb, "{method} {uri}");
            assert_eq!(kind.resource, resource, "{method} {uri}");
        }
    }
}

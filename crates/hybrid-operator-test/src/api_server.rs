//! An API server in memory: deterministic, in virtual time, without threads and sockets.
//!
//! The server behaves as kube-apiserver 1.36 and its controllers do, as far as it models them, and is compared
//! with them by generated requests. What it does not model it refuses with 501 and records in
//! [`ApiServer::unmodelled`].
//!
//! Everything that happens follows from the seed, the requests and the clock of tokio, which tests pause.
//!
//! ```
//! use hybrid_operator_test::api_server::{ApiServer, Options};
//! use k8s_openapi::api::core::v1::Namespace;
//! use kube::api::{Api, ListParams};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ApiServer::new(&Options::default());
//! let namespaces: Api<Namespace> = Api::all(server.client("default"));
//! assert_eq!(namespaces.list(&ListParams::default()).await?.items.len(), 4);
//! assert!(server.unmodelled().is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `request`, `status` | requests, and failures in the words of the server |
//! | `kinds`, `schema`, `list_types`, `names`, `metadata`, `typed` | kinds, and what is valid |
//! | `store` | objects, and the log of their changes |
//! | `server` | the way of a request |
//! | `reading`, `writing`, `deleting`, `scale`, `watching` | verbs |
//! | `decode`, `checks`, `patches`, `selectors` | what verbs share |
//! | `discovery` | what is served |
//! | `roles`, `reviews` | what users may do whom requests impersonate; all others may do everything |
//! | `controllers` | tasks of the controllers, and when they are due |
//! | `definitions`, `namespaces`, `garbage`, `workloads` | the controllers |
//! | `managed`, `fields` | owners of fields, and server-side apply |

mod checks;
mod clock;
mod controllers;
mod decode;
mod definitions;
mod deleting;
mod discovery;
mod fields;
mod garbage;
mod kinds;
mod list_types;
mod managed;
mod metadata;
mod names;
mod namespaces;
mod object;
mod patches;
mod reading;
mod request;
mod reviews;
mod roles;
mod scale;
mod schema;
mod selectors;
mod server;
mod status;
mod store;
mod typed;
mod watching;
mod workloads;
mod writing;

use std::convert::Infallible;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, HeaderValue, WARNING};
use http::{Request, Response};
use http_body_util::{BodyExt, Collected, Full};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;
use tower::{Service, ServiceBuilder};

use crate::fault::{AnswerBody, Faults};
use request::Call;
use server::{Reply, Server};
use status::Failure;

/// The behaviour of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Seed of names, uids and delays.
    pub seed: u64,
    /// The time that the server shows at its start.
    pub epoch: Timestamp,
    /// Delays of the controllers.
    pub delays: RangeInclusive<Duration>,
    /// Delay with which watches, and lists from version 0, show a change.
    pub lag: RangeInclusive<Duration>,
    /// Whether watches show some changes twice.
    pub repeats: bool,
    /// Pace of the controllers.
    pub pace: Pace,
    /// Whether workloads become ready.
    pub workloads: bool,
}

/// Pace of the controllers of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Controllers act when the clock reaches the time at which their tasks are due.
    Clock,
    /// Controllers act when a test calls [`ApiServer::step`].
    Steps,
}

impl Default for Options {
    /// Controllers are up to a second late, watches not at all. The server starts at 2026-01-01T00:00:00Z.
    fn default() -> Self {
        Self {
            seed: 0,
            epoch: Timestamp::from_second(1_767_225_600).unwrap_or_default(),
            delays: Duration::ZERO..=Duration::from_secs(1),
            lag: Duration::ZERO..=Duration::ZERO,
            repeats: false,
            pace: Pace::Clock,
            workloads: true,
        }
    }
}

/// An API server in memory. Clones share it.
#[derive(Clone)]
pub struct ApiServer {
    server: Arc<Mutex<Server>>,
    faults: Faults,
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").finish_non_exhaustive()
    }
}

impl ApiServer {
    /// Starts a server with the namespaces that every cluster has.
    pub fn new(options: &Options) -> Self {
        Self {
            server: Arc::new(Mutex::new(Server::new(options))),
            faults: Faults::new(),
        }
    }

    /// Returns a client of this server with the default namespace `namespace`, whose requests are recorded
    /// and get the planned [`faults`](Self::faults). Like every client, it belongs to the runtime in which
    /// it is created.
    pub fn client(&self, namespace: &str) -> Client {
        let layers = ServiceBuilder::new().layer(self.faults.layer());
        Client::new(layers.service(self.service()), namespace)
    }

    /// Returns the service without faults, to be the base of a client with layers of its own.
    pub fn service(&self) -> ApiService {
        ApiService {
            server: Arc::clone(&self.server),
        }
    }

    /// Returns the records and the planned faults of all [`client`](Self::client)s.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Returns the requests that the server does not model, with what is missing.
    pub fn unmodelled(&self) -> Vec<String> {
        self.server.lock().unmodelled().to_vec()
    }

    /// Executes the next task of the controllers, due or not. Returns `false` if there is none.
    pub fn step(&self) -> bool {
        let mut server = self.server.lock();
        server.catch_up();
        server.step()
    }

    /// Forgets all changes: watches and lists from an earlier version get 410.
    pub fn compact(&self) {
        self.server.lock().store.compact();
    }

    /// Closes the connections of all watches.
    pub fn cut_watches(&self) {
        self.server.lock().cut_watches();
    }

    /// Returns all objects, as they are stored.
    pub fn objects(&self) -> Vec<Value> {
        self.objects_that(|_| true)
    }

    /// Returns the objects of a kind.
    pub(crate) fn objects_of(&self, kind: &str) -> Vec<Value> {
        self.objects_that(|object| object.get("kind").is_some_and(|own| own == kind))
    }

    fn objects_that(&self, are_wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let server = self.server.lock();
        let resources = server.store.resources();
        let objects = resources.iter();
        let objects = objects.flat_map(|resource| server.objects(resource, None));
        let objects = objects.filter(|(_, object)| are_wanted(object));
        objects.map(|(_, object)| (*object).clone()).collect()
    }

    /// Returns the object at a path.
    pub(crate) fn at(&self, path: &str) -> Option<Value> {
        let request = Request::get(path).body(Body::empty()).ok()?;
        let answer = self.service().call(request).now_or_never()?.ok()?;
        let body = answer.into_body().collect().now_or_never()?.ok()?;
        serde_json::from_slice(&body.to_bytes()).ok()
    }

    /// Returns the version of the last change of an object that is neither a lease nor an event.
    pub(crate) fn last_change(&self) -> u64 {
        let mut server = self.server.lock();
        server.catch_up();
        server.last_change()
    }

    /// Returns the path of an object, or `None` if its kind is not served.
    pub(crate) fn path(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Option<String> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let server = self.server.lock();
        let kind = server.kinds.named(group, kind)?;
        let version = kind.version(version)?;
        let namespace = if kind.namespaced { namespace } else { "" };
        Some(kind.path_in(version, namespace, name))
    }
}

/// The service of an [`ApiServer`]. A request is executed when its future is polled first.
#[derive(Clone)]
pub struct ApiService {
    server: Arc<Mutex<Server>>,
}

impl fmt::Debug for ApiService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiService").finish_non_exhaustive()
    }
}

impl Service<Request<Body>> for ApiService {
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = Arc::clone(&self.server);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map(Collected::to_bytes);
            let call = Call::new(&parts, body.unwrap_or_default());
            let (reply, warnings) = server.lock().handle(&call);
            Ok(response(reply, warnings, &server))
        }
        .boxed()
    }
}

fn response(
    reply: Result<Reply, Failure>,
    warnings: Vec<String>,
    server: &Arc<Mutex<Server>>,
) -> Response<AnswerBody> {
    let mut media_type = "application/json";
    let (code, body) = match reply {
        Ok(Reply::Object { code, body }) => {
            if body.get("kind").and_then(Value::as_str) == Some("APIGroupDiscoveryList") {
                media_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            }
            (code, whole(body.to_string()))
        }
        Ok(Reply::Json { code, text }) => (code, whole(text)),
        Ok(Reply::Text(text)) => {
            media_type = "text/plain";
            (200, whole(text))
        }
        Ok(Reply::Watch(watch)) => (200, watch.body(Arc::clone(server))),
        Err(failure) if failure.is_text() => {
            media_type = "text/plain; charset=utf-8";
            (failure.code, whole(failure.message))
        }
        Err(failure) => (failure.code, whole(failure.status().to_string())),
    };
    let mut response = Response::new(body);
    if let Ok(status) = http::StatusCode::from_u16(code) {
        *response.status_mut() = status;
    }
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    for warning in warnings {
        let text = format!("299 - {warning:?}");
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.append(WARNING, value);
        }
    }
    response
}

fn whole(body: String) -> AnswerBody {
    Full::from(body).map_err(Into::into).boxed_unsync()
}

#[cfg(test)]
mod tests;

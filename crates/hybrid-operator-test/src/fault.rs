//! A client layer that records requests and injects faults.
//!
//! It works with the scripted API server and with a real one
//! ([`crate::ControlPlane::client_with`]), so the same test can run against both, for example to
//! let the process die after the third write.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use kube::client::Body;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tower::{BoxError, Layer, Service};

use crate::request::Recorded;

/// A fault to inject into a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Fault {
    /// The request does not reach the server; the client gets a connection error.
    Unreachable,
    /// The server executes the request, but the response is lost.
    AnswerLost,
    /// The server does not execute the request and responds with this HTTP status, as an API server
    /// does: a 500 has no reason.
    Status(u16),
    /// The request does not reach the server; a proxy responds with this HTTP status and page.
    Proxy(u16, Page),
    /// The server does not execute the request, and the client never gets a response.
    Hang,
    /// The server executes the request. After the first piece of the response nothing more arrives
    /// and the response does not end, as for a watch on a half-open connection.
    Silence,
    /// The server executes the request. After the first piece of the response the connection is closed.
    Cut,
    /// The request reaches a server that executes it when it is polled, such as
    /// [`ApiServer`](crate::api_server::ApiServer), after this time.
    Late(Duration),
}

/// The response of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Page {
    /// A line of text.
    Text,
    /// A page for people.
    Html,
    /// JSON that is not a `Status`.
    Json,
    /// Nothing.
    Empty,
    /// A `Status` whose second half is missing; the connection is closed.
    CutOff,
}

impl Page {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Text,
        Self::Html,
        Self::Json,
        Self::Empty,
        Self::CutOff,
    ];
}

/// The error of a request with an injected fault.
#[derive(Debug, thiserror::Error)]
#[error("fault injected into {request}: {fault:?}")]
pub struct Injected {
    /// Verb and resource.
    pub request: String,
    /// The fault.
    pub fault: Fault,
}

/// Records requests and injects planned faults. Clones share the records and the plan.
#[derive(Clone, Default)]
pub struct Faults {
    state: Arc<Mutex<State>>,
}

type Filter = Box<dyn Fn(&Recorded) -> bool + Send>;

#[derive(Default)]
struct State {
    requests: Vec<Recorded>,
    plan: Option<Plan>,
    select: Option<Selector>,
}

type Selector = Box<dyn FnMut(&Recorded) -> Option<Fault> + Send>;

struct Plan {
    counts: Filter,
    /// Number of matching requests so far.
    seen: usize,
    nth: usize,
    fault: Fault,
    /// Whether all later requests fail, including those that do not match.
    stops: bool,
    stopped: bool,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults")
            .field("requests", &self.state.lock().requests.len())
            .finish_non_exhaustive()
    }
}

impl Faults {
    /// Creates a plan without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Injects `fault` into only the `nth` (from 1) of the coming requests for which `counts`
    /// returns true.
    pub fn at(
        &self,
        nth: usize,
        fault: Fault,
        counts: impl Fn(&Recorded) -> bool + Send + 'static,
    ) {
        self.plan(nth, fault, false, Box::new(counts));
    }

    /// Injects `fault` into the `nth` (from 1) of the coming requests for which `counts` returns
    /// true. No later request reaches the server, as if the process had died.
    ///
    /// With [`Fault::AnswerLost`] the process dies just after the request was executed, with
    /// [`Fault::Unreachable`] just before.
    pub fn stop_at(
        &self,
        nth: usize,
        fault: Fault,
        counts: impl Fn(&Recorded) -> bool + Send + 'static,
    ) {
        self.plan(nth, fault, true, Box::new(counts));
    }

    /// Calls `select` for each of the coming requests and injects the fault that it returns.
    pub fn inject_with(&self, select: impl FnMut(&Recorded) -> Option<Fault> + Send + 'static) {
        self.state.lock().select = Some(Box::new(select));
    }

    /// Removes all planned faults. The records stay.
    pub fn clear_faults(&self) {
        let mut state = self.state.lock();
        state.plan = None;
        state.select = None;
    }

    /// Returns whether the planned fault was injected.
    pub fn was_injected(&self) -> bool {
        let state = self.state.lock();
        let plan = state.plan.as_ref();
        plan.is_some_and(|plan| plan.seen >= plan.nth)
    }

    /// Returns the requests so far, oldest first, including those with faults.
    pub fn requests(&self) -> Vec<Recorded> {
        self.state.lock().requests.clone()
    }

    /// Counts the requests so far by `verb resource`.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for request in &self.state.lock().requests {
            *counts.entry(request.kind()).or_default() += 1;
        }
        counts
    }

    /// Clears the records. The plan stays.
    pub fn forget(&self) {
        self.state.lock().requests.clear();
    }

    /// Returns the layer, for [`kube::client::ClientBuilder::with_layer`].
    pub fn layer(&self) -> FaultLayer {
        FaultLayer {
            faults: self.clone(),
        }
    }

    fn plan(&self, nth: usize, fault: Fault, stops: bool, counts: Filter) {
        self.state.lock().plan = Some(Plan {
            counts,
            seen: 0,
            nth,
            fault,
            stops,
            stopped: false,
        });
    }

    /// Records a request and returns the fault to inject.
    fn next_fault(&self, mut request: Recorded) -> Option<Fault> {
        let mut state = self.state.lock();
        let plan = state.plan.as_mut();
        let planned = plan.and_then(|plan| plan.next_fault(&request));
        let fault = planned.or_else(|| {
            let select = state.select.as_mut()?;
            select(&request)
        });
        request.fault = fault;
        state.requests.push(request);
        fault
    }
}

impl Plan {
    fn next_fault(&mut self, request: &Recorded) -> Option<Fault> {
        if self.stopped {
            return Some(Fault::Unreachable);
        }
        if !(self.counts)(request) {
            return None;
        }
        self.seen += 1;
        let matches = self.seen == self.nth;
        self.stopped = matches && self.stops;
        matches.then_some(self.fault)
    }
}

/// A layer that creates a [`FaultService`].
#[derive(Debug, Clone)]
pub struct FaultLayer {
    faults: Faults,
}

impl<S> Layer<S> for FaultLayer {
    type Service = FaultService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        FaultService {
            inner,
            faults: self.faults.clone(),
        }
    }
}

/// A client service that records requests and injects faults.
#[derive(Debug, Clone)]
pub struct FaultService<S> {
    inner: S,
    faults: Faults,
}

/// Body of a response.
pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

impl<S, B> Service<Request<Body>> for FaultService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, sent: Request<Body>) -> Self::Future {
        let recorded = Recorded::of(&sent);
        let kind = recorded.kind();
        let injected = move |fault| {
            let request = kind.clone();
            BoxError::from(Injected { request, fault })
        };
        let fault = self.faults.next_fault(recorded);
        let answered = match fault {
            Some(Fault::Hang) => return std::future::pending().boxed(),
            Some(Fault::Unreachable) => Some(Err(injected(Fault::Unreachable))),
            Some(Fault::Status(code)) => Some(status(code)),
            Some(Fault::Proxy(code, page)) => Some(proxy(code, page)),
            _ => None,
        };
        if let Some(answer) = answered {
            return std::future::ready(answer).boxed();
        }
        let answer = self.inner.call(sent);
        async move {
            if let Some(Fault::Late(delay)) = fault {
                tokio::time::sleep(delay).await;
            }
            let answer: Response<B> = answer.await.map_err(Into::<BoxError>::into)?;
            match fault {
                Some(Fault::AnswerLost) => Err(injected(Fault::AnswerLost)),
                Some(Fault::Silence) => Ok(answer.map(silenced)),
                Some(Fault::Cut) => Ok(answer.map(cut)),
                _ => Ok(answer.map(whole)),
            }
        }
        .boxed()
    }
}

fn whole<B>(body: B) -> AnswerBody
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

/// Returns the first piece of a body and then an error.
fn cut<B>(body: B) -> AnswerBody
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let first = BodyStream::new(body).take(1).map_err(Into::into);
    let closed = BoxError::from("connection closed before message completed");
    StreamBody::new(first.chain(stream::iter([Err(closed)]))).boxed_unsync()
}

/// Returns the first piece of a body and then nothing, without an end.
fn silenced<B>(body: B) -> AnswerBody
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let first = BodyStream::new(body).take(1).map_err(Into::into);
    StreamBody::new(first.chain(stream::pending())).boxed_unsync()
}

/// Returns the `Status` of an API server that rejects a request. That of an internal error has neither
/// reason nor details, such as those of etcd.
fn status_of(code: u16) -> serde_json::Value {
    let reason = match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        409 => "Conflict",
        410 => "Expired",
        413 => "RequestEntityTooLarge",
        415 => "UnsupportedMediaType",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    };
    let message = if reason.is_empty() {
        "etcdserver: leader changed"
    } else {
        "fault injected"
    };
    let mut status = serde_json::json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "metadata": {},
        "message": message, "code": code,
    });
    if let Some(status) = status.as_object_mut().filter(|_| !reason.is_empty()) {
        status.insert("reason".to_owned(), reason.into());
    }
    status
}

/// Builds the response of an API server that rejects a request.
fn status(code: u16) -> Result<Response<AnswerBody>, BoxError> {
    let body = serde_json::to_vec(&status_of(code))?;
    let body = Full::from(body).map_err(Into::into).boxed_unsync();
    response(code, "application/json", body)
}

/// Builds the response of a proxy.
fn proxy(code: u16, page: Page) -> Result<Response<AnswerBody>, BoxError> {
    let full = |text: &str| {
        let body = Full::from(text.to_owned());
        body.map_err(Into::into).boxed_unsync()
    };
    match page {
        Page::Text => response(code, "text/plain", full("upstream connect error\n")),
        Page::Html => {
            let text = "<html>\n<head><title>Error</title></head>\n<body>nginx</body>\n</html>\n";
            response(code, "text/html", full(text))
        }
        Page::Json => response(code, "application/json", full(r#"{"error":"upstream"}"#)),
        Page::Empty => response(code, "text/plain", full("")),
        Page::CutOff => {
            let text = status_of(code).to_string();
            let half = Bytes::from(text).slice(..40);
            let closed = BoxError::from("connection closed before message completed");
            let pieces = stream::iter([Ok(http_body::Frame::data(half)), Err(closed)]);
            let body = StreamBody::new(pieces).boxed_unsync();
            response(code, "application/json", body)
        }
    }
}

fn response(
    code: u16,
    content_type: &str,
    body: AnswerBody,
) -> Result<Response<AnswerBody>, BoxError> {
    let response = Response::builder().status(code);
    let response = response.header(http::header::CONTENT_TYPE, content_type);
    Ok(response.body(body)?)
}

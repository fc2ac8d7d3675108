//! A client layer that records requests and makes chosen ones fail.
//!
//! It works with the scripted API and with a real one ([`crate::ControlPlane::client_with`]), so the
//! same test can show with both what happens if the process dies after the third write.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use kube::client::Body;
use tower::{BoxError, Layer, Service};

use crate::request::Recorded;

/// A fault to inject into a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request does not reach the server; the client gets a connection error.
    Unreachable,
    /// The server executes the request, and the answer is lost.
    AnswerLost,
    /// The server does not execute the request and answers with this HTTP status.
    Status(u16),
    /// The server does not execute the request, and the client never gets an answer.
    Hang,
    /// The server executes the request; after the first piece of its answer nothing more arrives, and
    /// the answer does not end, as for a watch on a half-open connection.
    Silence,
}

/// The error of a client whose request failed on purpose.
#[derive(Debug, thiserror::Error)]
#[error("fault injected into {request}: {fault:?}")]
pub struct Injected {
    /// Verb and resource.
    pub request: String,
    /// The fault.
    pub fault: Fault,
}

/// Records requests and plans faults; clones share the record and the plan.
#[derive(Clone, Default)]
pub struct Faults {
    state: Arc<Mutex<State>>,
}

type Filter = Box<dyn Fn(&Recorded) -> bool + Send>;

#[derive(Default)]
struct State {
    requests: Vec<Recorded>,
    plan: Option<Plan>,
    trouble: Option<Trouble>,
}

type Trouble = Box<dyn FnMut(&Recorded) -> Option<Fault> + Send>;

struct Plan {
    counts: Filter,
    /// Requests that counted so far.
    seen: usize,
    nth: usize,
    fault: Fault,
    /// Whether all later requests fail, including those that do not count.
    stops: bool,
    stopped: bool,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults")
            .field("requests", &self.lock().requests.len())
            .finish_non_exhaustive()
    }
}

impl Faults {
    /// Creates a plan without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Injects `fault` into the `nth` (from 1) of the coming requests that count, and into no other.
    pub fn at(
        &self,
        nth: usize,
        fault: Fault,
        counts: impl Fn(&Recorded) -> bool + Send + 'static,
    ) {
        self.plan(nth, fault, false, Box::new(counts));
    }

    /// Injects `fault` into the `nth` (from 1) of the coming requests that count; no later request
    /// reaches the server, as if the process had died.
    ///
    /// With [`Fault::AnswerLost`] it dies just after the request was executed, with
    /// [`Fault::Unreachable`] just before.
    pub fn stop_at(
        &self,
        nth: usize,
        fault: Fault,
        counts: impl Fn(&Recorded) -> bool + Send + 'static,
    ) {
        self.plan(nth, fault, true, Box::new(counts));
    }

    /// Calls `trouble` for each of the coming requests and injects the fault that it returns.
    pub fn disturb(&self, trouble: impl FnMut(&Recorded) -> Option<Fault> + Send + 'static) {
        self.lock().trouble = Some(Box::new(trouble));
    }

    /// Removes all planned faults; the record stays.
    pub fn heal(&self) {
        let mut state = self.lock();
        state.plan = None;
        state.trouble = None;
    }

    /// Whether the planned fault was injected.
    pub fn struck(&self) -> bool {
        self.lock()
            .plan
            .as_ref()
            .is_some_and(|plan| plan.seen >= plan.nth)
    }

    /// Returns the requests so far, oldest first, including those with faults.
    pub fn requests(&self) -> Vec<Recorded> {
        self.lock().requests.clone()
    }

    /// Counts the requests so far by `verb resource`.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for request in &self.lock().requests {
            *counts.entry(request.kind()).or_default() += 1;
        }
        counts
    }

    /// Forgets the requests so far; the plan stays.
    pub fn forget(&self) {
        self.lock().requests.clear();
    }

    /// Returns the layer, for [`kube::client::ClientBuilder::with_layer`].
    pub fn layer(&self) -> FaultLayer {
        FaultLayer {
            faults: self.clone(),
        }
    }

    fn plan(&self, nth: usize, fault: Fault, stops: bool, counts: Filter) {
        self.lock().plan = Some(Plan {
            counts,
            seen: 0,
            nth,
            fault,
            stops,
            stopped: false,
        });
    }

    /// Records a request and returns the fault to inject.
    fn meet(&self, mut request: Recorded) -> Option<Fault> {
        let mut state = self.lock();
        let planned = state.plan.as_mut().and_then(|plan| plan.meet(&request));
        let fault = planned.or_else(|| state.trouble.as_mut().and_then(|meet| meet(&request)));
        request.fault = fault;
        state.requests.push(request);
        fault
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plan {
    fn meet(&mut self, request: &Recorded) -> Option<Fault> {
        if self.stopped {
            return Some(Fault::Unreachable);
        }
        if !(self.counts)(request) {
            return None;
        }
        self.seen += 1;
        let strikes = self.seen == self.nth;
        self.stopped = strikes && self.stops;
        strikes.then_some(self.fault)
    }
}

/// Makes a [`Disturbed`] client service.
#[derive(Debug, Clone)]
pub struct FaultLayer {
    faults: Faults,
}

impl<S> Layer<S> for FaultLayer {
    type Service = Disturbed<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Disturbed {
            inner,
            faults: self.faults.clone(),
        }
    }
}

/// A client service that records requests and injects faults.
#[derive(Debug, Clone)]
pub struct Disturbed<S> {
    inner: S,
    faults: Faults,
}

/// Body of an answer.
pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

impl<S, B> Service<Request<Body>> for Disturbed<S>
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

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let recorded = Recorded::of(&request);
        let kind = recorded.kind();
        let injected = move |fault| {
            BoxError::from(Injected {
                request: kind,
                fault,
            })
        };
        match self.faults.meet(recorded) {
            None => {
                let answer = self.inner.call(request);
                async move {
                    Ok(answer
                        .await
                        .map_err(Into::into)?
                        .map(|body| body.map_err(Into::into).boxed_unsync()))
                }
                .boxed()
            }
            Some(Fault::Silence) => {
                let answer = self.inner.call(request);
                async move { Ok(answer.await.map_err(Into::into)?.map(silenced)) }.boxed()
            }
            Some(Fault::AnswerLost) => {
                let answer = self.inner.call(request);
                async move {
                    let answer: Result<_, BoxError> = answer.await.map_err(Into::into);
                    answer.and(Err(injected(Fault::AnswerLost)))
                }
                .boxed()
            }
            Some(Fault::Unreachable) => {
                std::future::ready(Err(injected(Fault::Unreachable))).boxed()
            }
            Some(Fault::Status(code)) => std::future::ready(status(code)).boxed(),
            Some(Fault::Hang) => std::future::pending().boxed(),
        }
    }
}

/// The first piece of a body that never ends.
fn silenced<B>(body: B) -> AnswerBody
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let first = BodyStream::new(body).take(1).map_err(Into::into);
    StreamBody::new(first.chain(stream::pending())).boxed_unsync()
}

/// Builds the answer of an API server that refuses a request.
fn status(code: u16) -> Result<Response<AnswerBody>, BoxError> {
    let status = serde_json::json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure",
        "reason": "InjectedFault", "message": "fault injected", "code": code,
    });
    let body = Full::from(serde_json::to_vec(&status)?)
        .map_err(Into::into)
        .boxed_unsync();
    Ok(Response::builder()
        .status(code)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)?)
}

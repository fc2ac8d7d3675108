//! Blocks writes of a process that may no longer be the leader.
//!
//! A paused process resumes without knowing that its lease has expired. Between its last check and
//! its write it can only trust the local monotonic clock, so the gate is part of the client. A
//! write that passes the gate ends before the lease expires, both here and at the API server, which
//! gets a timeout with the request.
//!
//! That timeout begins when the server has the request. It is therefore computed each time a request is
//! sent, also again after a rejection, and is shorter than the rest of the lease by [`MARGIN`]. A
//! request that a connection takes later than that ([`SendBy`]) is not sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Method, Request, Uri};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use tower::{BoxError, Service};

/// The part of the rest of a lease that is left for a write to reach the API server: connecting, waiting
/// for a free stream, and half of it for the way.
const MARGIN: Duration = Duration::from_secs(2);

/// Lets writes pass until a deadline, or always in a process without leader election.
#[derive(Debug, Clone, Default)]
pub struct LeaderGate(Arc<Mutex<GateState>>);

#[derive(Debug, Clone, Copy, Default)]
enum GateState {
    #[default]
    Always,
    Until {
        deadline: Instant,
        expiry: Instant,
    },
    Closed,
}

/// The write was not sent, because this process is not the leader or may no longer be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not sent: the leader election lease has expired")]
pub(super) struct GateClosed;

/// The write was not sent, because it would reach the API server too late for its timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not sent: too little is left of the leader election lease")]
pub(super) struct TooLate;

/// The lease expired before the API server responded. The result of the write is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no response before the leader election lease expired")]
pub(super) struct LeaseExpired;

impl LeaderGate {
    /// Lets writes start until `deadline`, and last until `expiry`, when the lease expires.
    pub fn open_until(&self, deadline: Instant, expiry: Instant) {
        self.set(GateState::Until { deadline, expiry });
    }

    /// Lets all writes pass.
    pub fn open(&self) {
        self.set(GateState::Always);
    }

    /// Blocks all writes.
    pub fn close(&self) {
        self.set(GateState::Closed);
    }

    fn set(&self, state: GateState) {
        *self.0.lock() = state;
    }

    /// Returns when a write that starts at `now` must end, if there is a limit.
    fn admit(&self, now: Instant) -> Result<Option<Instant>, GateClosed> {
        match *self.0.lock() {
            GateState::Always => Ok(None),
            GateState::Until { deadline, expiry } if now < deadline => Ok(Some(expiry)),
            GateState::Until { .. } | GateState::Closed => Err(GateClosed),
        }
    }
}

/// Puts a [`LeaderGate`] in front of a service.
#[derive(Debug, Clone)]
pub(super) struct LeaderGateService<S> {
    inner: S,
    gate: LeaderGate,
}

impl<S> LeaderGateService<S> {
    pub(super) fn new(inner: S, gate: &LeaderGate) -> Self {
        let gate = gate.clone();
        Self { inner, gate }
    }
}

/// Returns whether a request needs no leadership: reads, leases, and access reviews.
fn passes_always<B>(request: &Request<B>) -> bool {
    request.method() == Method::GET
        || request
            .uri()
            .path()
            .starts_with("/apis/coordination.k8s.io/")
        || request
            .uri()
            .path()
            .starts_with("/apis/authorization.k8s.io/")
}

/// Returns the URI with a timeout for the API server.
fn with_timeout(uri: &Uri, seconds: u64) -> Option<Uri> {
    let path = uri.path_and_query()?.as_str();
    let separator = if uri.query().is_some() { '&' } else { '?' };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = format!("{path}{separator}timeout={seconds}s").parse().ok();
    Uri::from_parts(parts).ok()
}

impl<S, B> Service<Request<B>> for LeaderGateService<S>
where
    S: Service<Request<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let now = Instant::now();
        let expiry = if passes_always(&request) {
            None
        } else {
            match self.gate.admit(now) {
                Ok(expiry) => expiry,
                Err(closed) => return Box::pin(async move { Err(closed.into()) }),
            }
        };
        let Some(expiry) = expiry else {
            let answer = self.inner.call(request);
            return Box::pin(async move { answer.await.map_err(Into::into) });
        };
        let left = expiry.saturating_duration_since(now);
        let seconds = left.saturating_sub(MARGIN).as_secs();
        let uri = with_timeout(request.uri(), seconds).filter(|_| seconds > 0);
        let latest = expiry.checked_sub(Duration::from_secs(seconds) + MARGIN / 2);
        let (Some(uri), Some(latest)) = (uri, latest) else {
            return Box::pin(async { Err(TooLate.into()) });
        };
        *request.uri_mut() = uri;
        request.extensions_mut().insert(SendBy(latest));
        let answer = timeout_at(expiry, self.inner.call(request));
        Box::pin(async move { answer.await.map_err(|_| LeaseExpired)?.map_err(Into::into) })
    }
}

/// Latest time for a connection to take a request, as an extension of the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendBy(Instant);

/// The body of a request that fails with [`TooLate`] if a connection takes it after its [`SendBy`]. The
/// API server then gets a request without its end, which it does not execute.
///
/// A connection takes the body of a request after its head, once it is established and has a free
/// stream. That the client sends a request again by itself, because a connection was closed before it
/// took the request, is covered by this as well.
#[derive(Debug)]
pub(super) struct TimelyBody<B> {
    inner: B,
    latest: Option<Instant>,
}

impl<B> TimelyBody<B> {
    /// Wraps the body of a request that may have a [`SendBy`].
    pub(super) fn of(request: Request<B>) -> Request<Self> {
        let latest = request.extensions().get().map(|SendBy(latest)| *latest);
        request.map(|inner| Self { inner, latest })
    }
}

impl<B> Body for TimelyBody<B>
where
    B: Body + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        if self
            .latest
            .take()
            .is_some_and(|latest| Instant::now() > latest)
        {
            return Poll::Ready(Some(Err(TooLate.into())));
        }
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        frame.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        // An empty body ends the request only after it was asked for, too.
        self.latest.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{Request, Response};
    use http_body_util::BodyExt;
    use kube::client::Body;
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::time::Instant;
    use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};

    use super::{GateClosed, LeaderGate, LeaderGateService, LeaseExpired, TimelyBody, TooLate};
    use crate::client::RetryLayer;

    /// Sends a request to a server that responds after `takes` seconds. Returns the query that the
    /// server gets.
    async fn send(
        gate: &LeaderGate,
        method: &str,
        path: &str,
        takes: u64,
    ) -> Result<Option<String>, BoxError> {
        let service = ServiceBuilder::new()
            .layer_fn(|inner| LeaderGateService::new(inner, gate))
            .service(service_fn(move |request: Request<()>| async move {
                tokio::time::sleep(Duration::from_secs(takes)).await;
                Ok::<_, BoxError>(request.uri().query().map(ToOwned::to_owned))
            }));
        service
            .oneshot(Request::builder().method(method).uri(path).body(())?)
            .await
    }

    #[tokio::test(start_paused = true)]
    async fn no_write_starts_after_the_deadline_or_outlasts_the_lease() {
        const POD: &str = "/api/v1/namespaces/n/pods/p";
        let seconds = Duration::from_secs;
        let gate = LeaderGate::default();
        // Without leader election, writes have no limit.
        assert_eq!(send(&gate, "POST", POD, 100).await.unwrap(), None);

        let renewed = Instant::now();
        gate.open_until(renewed + seconds(10), renewed + seconds(15));
        let answer = send(&gate, "PATCH", &format!("{POD}?force=true"), 9).await;
        assert_eq!(answer.unwrap().as_deref(), Some("force=true&timeout=13s"));
        let error = send(&gate, "PATCH", POD, 7).await.unwrap_err();
        assert!(error.is::<LeaseExpired>());
        assert_eq!(renewed.elapsed(), seconds(15));
        let error = send(&gate, "PATCH", POD, 0).await.unwrap_err();
        assert!(error.is::<GateClosed>());

        gate.close();
        assert_eq!(send(&gate, "GET", POD, 100).await.unwrap(), None);
        let lease = "/apis/coordination.k8s.io/v1/namespaces/n/leases/l";
        assert_eq!(send(&gate, "PUT", lease, 0).await.unwrap(), None);
        let error = send(&gate, "DELETE", POD, 0).await.unwrap_err();
        assert!(error.is::<GateClosed>());
    }

    /// Returns the timeout that a request tells the API server.
    fn timeout_of<B>(request: &Request<B>) -> Duration {
        let query = request.uri().query().unwrap_or_default();
        let timeouts: Vec<&str> = query
            .split('&')
            .filter_map(|pair| pair.strip_prefix("timeout="))
            .collect();
        assert_eq!(timeouts.len(), 1, "{query}");
        let seconds = timeouts[0].strip_suffix('s').unwrap().parse().unwrap();
        Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn every_retry_of_a_write_ends_before_the_lease_expires() {
        let seconds = Duration::from_secs;
        for status in [429, 503] {
            for wait in 0..10 {
                let renewed = Instant::now();
                let gate = LeaderGate::default();
                gate.open_until(renewed + seconds(10), renewed + seconds(15));
                let (sent, mut seen) = unbounded_channel();
                let service = ServiceBuilder::new()
                    .layer(RetryLayer::default())
                    .layer_fn(|inner| LeaderGateService::new(inner, &gate))
                    .service(service_fn(move |request: Request<Body>| {
                        sent.send((renewed.elapsed(), timeout_of(&request)))
                            .unwrap();
                        async move {
                            // Some of the time goes by before the server rejects the request.
                            tokio::time::sleep(Duration::from_millis(900)).await;
                            let response = Response::builder().status(status);
                            let response = response.header("Retry-After", wait.to_string());
                            Ok::<_, BoxError>(response.body(())?)
                        }
                    }));
                let request = Request::patch("/api/v1/namespaces/n/pods/p?force=true")
                    .body(Body::from(b"{}".to_vec()))
                    .unwrap();
                let answer = service.oneshot(request).await;
                // The time for retries ends with the right to write, unless their number does before.
                match answer {
                    Ok(response) => {
                        assert_eq!(response.status().as_u16(), status);
                        assert!(wait < 2, "all attempts were made with {wait}");
                    }
                    Err(error) => assert!(error.is::<GateClosed>(), "{error}"),
                }
                let mut sends = 0;
                while let Ok((at, timeout)) = seen.try_recv() {
                    sends += 1;
                    assert!(at < seconds(10), "sent {at:?} after the renewal");
                    assert!(at + timeout < seconds(15), "{at:?} + {timeout:?}");
                }
                // A retry waits up to a quarter longer than it is asked to.
                assert!(sends > 1 || wait > 7, "{sends} sends with {wait}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn write_with_too_little_time_for_its_way_is_refused() {
        let seconds = Duration::from_secs;
        let renewed = Instant::now();
        let gate = LeaderGate::default();
        gate.open_until(renewed + seconds(15), renewed + seconds(15));
        tokio::time::advance(Duration::from_millis(12_100)).await;
        let error = send(&gate, "PATCH", "/api/v1/pods", 0).await.unwrap_err();
        assert!(error.is::<TooLate>(), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn body_that_a_connection_takes_late_ends_the_request() {
        for (connects, bytes, arrives) in [
            (0, "{}", true),
            (900, "", true),
            (3_000, "{}", false),
            (3_000, "", false),
        ] {
            let renewed = Instant::now();
            let gate = LeaderGate::default();
            let expiry = renewed + Duration::from_secs(15);
            gate.open_until(expiry, expiry);
            let service = ServiceBuilder::new()
                .layer_fn(|inner| LeaderGateService::new(inner, &gate))
                .service(service_fn(move |request: Request<Body>| async move {
                    let timeout = timeout_of(&request);
                    let request = TimelyBody::of(request);
                    assert!(!http_body::Body::is_end_stream(request.body()));
                    tokio::time::sleep(Duration::from_millis(connects)).await;
                    let body = request.into_body().collect().await?.to_bytes();
                    assert!(Instant::now() + timeout < expiry);
                    Ok::<_, BoxError>(body)
                }));
            let request = Request::delete("/api/v1/namespaces/n/pods/p")
                .body(Body::from(bytes.as_bytes().to_vec()))
                .unwrap();
            match service.oneshot(request).await {
                Ok(body) => assert!(arrives && body == bytes, "{connects}"),
                Err(error) => assert!(!arrives && error.is::<TooLate>(), "{connects}: {error}"),
            }
        }
    }
}

//! Blocks writes of a process that may no longer be the leader.
//!
//! A paused process resumes without knowing that its lease has expired. Between its last check and
//! its write it can only trust the local monotonic clock, so the gate is part of the client. A
//! write that passes the gate ends before the lease expires, both here and at the API server, which
//! gets a timeout with the request.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Method, Request, Uri};
use tokio::time::{Instant, timeout_at};
use tower::{BoxError, Layer, Service};

/// Lets writes pass until a deadline, or always in a process without leader election.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeaderGate(Arc<Mutex<GateState>>);

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
pub(crate) struct GateClosed;

/// The lease expired before the API server responded. The result of the write is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no response before the leader election lease expired")]
pub(crate) struct LeaseExpired;

impl LeaderGate {
    /// Lets writes start until `deadline`, and last until `expiry`, when the lease expires.
    pub(crate) fn open_until(&self, deadline: Instant, expiry: Instant) {
        self.set(GateState::Until { deadline, expiry });
    }

    /// Lets all writes pass.
    pub(crate) fn open(&self) {
        self.set(GateState::Always);
    }

    /// Blocks all writes.
    pub(crate) fn close(&self) {
        self.set(GateState::Closed);
    }

    fn set(&self, state: GateState) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Returns when a write that starts at `now` must end, if there is a limit.
    fn admit(&self, now: Instant) -> Result<Option<Instant>, GateClosed> {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            GateState::Always => Ok(None),
            GateState::Until { deadline, expiry } if now < deadline => Ok(Some(expiry)),
            GateState::Until { .. } | GateState::Closed => Err(GateClosed),
        }
    }
}

/// A layer that puts a [`LeaderGate`] in front of a service.
#[derive(Debug, Clone)]
pub(crate) struct LeaderGateLayer(LeaderGate);

impl LeaderGateLayer {
    /// Creates the layer of `gate`.
    pub(crate) fn new(gate: LeaderGate) -> Self {
        Self(gate)
    }
}

impl<S> Layer<S> for LeaderGateLayer {
    type Service = LeaderGateService<S>;

    fn layer(&self, inner: S) -> LeaderGateService<S> {
        LeaderGateService {
            inner,
            gate: self.0.clone(),
        }
    }
}

/// See [`LeaderGateLayer`].
#[derive(Debug, Clone)]
pub(crate) struct LeaderGateService<S> {
    inner: S,
    gate: LeaderGate,
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
        let seconds = expiry.saturating_duration_since(now).as_secs().max(1);
        if let Some(uri) = with_timeout(request.uri(), seconds) {
            *request.uri_mut() = uri;
        }
        let answer = timeout_at(expiry, self.inner.call(request));
        Box::pin(async move { answer.await.map_err(|_| LeaseExpired)?.map_err(Into::into) })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Request;
    use tokio::time::Instant;
    use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};

    use super::{GateClosed, LeaderGate, LeaderGateLayer, LeaseExpired};

    /// Sends a request to a server that responds after `takes` seconds. Returns the query that the
    /// server gets.
    async fn send(
        gate: &LeaderGate,
        method: &str,
        path: &str,
        takes: u64,
    ) -> Result<Option<String>, BoxError> {
        let service = ServiceBuilder::new()
            .layer(LeaderGateLayer::new(gate.clone()))
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
        assert_eq!(answer.unwrap().as_deref(), Some("force=true&timeout=15s"));
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
}

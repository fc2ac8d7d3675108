//! Refuses writes of a process that may no longer be the leader.
//!
//! A paused process wakes up without knowing that its lease ran out. Between its last check and
//! its write only the local monotonic clock is to be trusted, so the gate stands in the client.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::future::{Either, Ready, ready};
use http::{Method, Request};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

/// Open until a deadline, or without end for a process that elects no leader.
#[derive(Debug, Clone, Default)]
pub struct LeaderGate(Arc<Mutex<State>>);

#[derive(Debug, Clone, Copy, Default)]
enum State {
    #[default]
    Always,
    Until(Instant),
    Closed,
}

/// The write was not sent: this process is not the leader, or may no longer be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not sent: the leader's lease has run out")]
pub struct GateClosed;

impl LeaderGate {
    /// A gate that lets writes pass until `deadline`.
    pub fn open_until(&self, deadline: Instant) {
        self.set(State::Until(deadline));
    }

    /// Lets no write pass.
    pub fn close(&self) {
        self.set(State::Closed);
    }

    fn set(&self, state: State) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Whether a write that begins at `now` passes.
    pub fn is_open(&self, now: Instant) -> bool {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Always => true,
            State::Until(deadline) => now < deadline,
            State::Closed => false,
        }
    }
}

/// Puts a gate before a service.
#[derive(Debug, Clone)]
pub struct LeaderGateLayer(LeaderGate);

impl LeaderGateLayer {
    /// The layer of `gate`.
    pub fn new(gate: LeaderGate) -> Self {
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
pub struct LeaderGateService<S> {
    inner: S,
    gate: LeaderGate,
}

/// Leases are how leadership is won back, and reading never harms.
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

impl<S, B> Service<Request<B>> for LeaderGateService<S>
where
    S: Service<Request<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future =
        Either<Ready<Result<S::Response, BoxError>>, futures::future::ErrInto<S::Future, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if passes_always(&request) || self.gate.is_open(Instant::now()) {
            Either::Right(futures::TryFutureExt::err_into(self.inner.call(request)))
        } else {
            Either::Left(ready(Err(GateClosed.into())))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Request;
    use tokio::time::Instant;
    use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};

    use super::{GateClosed, LeaderGate, LeaderGateLayer};

    async fn send(gate: &LeaderGate, method: &str, path: &str) -> Result<(), BoxError> {
        let service = ServiceBuilder::new()
            .layer(LeaderGateLayer::new(gate.clone()))
            .service(service_fn(|_: Request<()>| async { Ok::<_, BoxError>(()) }));
        service
            .oneshot(Request::builder().method(method).uri(path).body(())?)
            .await
    }

    #[tokio::test(start_paused = true)]
    async fn writes_stop_at_the_deadline_and_leases_and_reads_pass() {
        let gate = LeaderGate::default();
        assert!(
            send(&gate, "POST", "/api/v1/namespaces/n/pods")
                .await
                .is_ok()
        );

        gate.open_until(Instant::now() + Duration::from_secs(10));
        assert!(
            send(&gate, "PATCH", "/api/v1/namespaces/n/pods/p")
                .await
                .is_ok()
        );
        tokio::time::advance(Duration::from_secs(10)).await;
        let error = send(&gate, "PATCH", "/api/v1/namespaces/n/pods/p")
            .await
            .unwrap_err();
        assert!(error.is::<GateClosed>());
        assert!(
            send(&gate, "GET", "/api/v1/namespaces/n/pods/p")
                .await
                .is_ok()
        );
        let lease = "/apis/coordination.k8s.io/v1/namespaces/n/leases/l";
        assert!(send(&gate, "PUT", lease).await.is_ok());
    }
}

//! Refuses writes of a process that may no longer be the leader.
//!
//! A paused process wakes up without knowing that its lease ran out. Between its last check and
//! its write only the local monotonic clock is to be trusted, so the gate stands in the client.
//! A write that it lets pass ends with the lease, here and at the API server, which is told how
//! long it may take.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Method, Request, Uri};
use tokio::time::{Instant, timeout_at};
use tower::{BoxError, Layer, Service};

/// Open until a deadline, or without end for a process that elects no leader.
#[derive(Debug, Clone, Default)]
pub struct LeaderGate(Arc<Mutex<State>>);

#[derive(Debug, Clone, Copy, Default)]
enum State {
    #[default]
    Always,
    Until {
        deadline: Instant,
        over: Instant,
    },
    Closed,
}

/// The write was not sent: this process is not the leader, or may no longer be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not sent: the leader's lease has run out")]
pub struct GateClosed;

/// The leader's lease ran out before the API server answered. Whether it did what it was asked is
/// not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no answer before the leader's lease ran out")]
pub struct LeaseOver;

impl LeaderGate {
    /// Lets writes begin until `deadline`, and last until the lease is `over`.
    pub fn open_until(&self, deadline: Instant, over: Instant) {
        self.set(State::Until { deadline, over });
    }

    /// Lets no write pass.
    pub fn close(&self) {
        self.set(State::Closed);
    }

    fn set(&self, state: State) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// When a write that begins at `now` must end, if ever.
    fn admit(&self, now: Instant) -> Result<Option<Instant>, GateClosed> {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Always => Ok(None),
            State::Until { deadline, over } if now < deadline => Ok(Some(over)),
            State::Until { .. } | State::Closed => Err(GateClosed),
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

/// The address with the time that the API server may take for the request.
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
        let over = if passes_always(&request) {
            None
        } else {
            match self.gate.admit(now) {
                Ok(over) => over,
                Err(closed) => return Box::pin(async move { Err(closed.into()) }),
            }
        };
        let Some(over) = over else {
            let answer = self.inner.call(request);
            return Box::pin(async move { answer.await.map_err(Into::into) });
        };
        let seconds = over.saturating_duration_since(now).as_secs().max(1);
        if let Some(uri) = with_timeout(request.uri(), seconds) {
            *request.uri_mut() = uri;
        }
        let answer = timeout_at(over, self.inner.call(request));
        Box::pin(async move { answer.await.map_err(|_| LeaseOver)?.map_err(Into::into) })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Request;
    use tokio::time::Instant;
    use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};

    use super::{GateClosed, LeaderGate, LeaderGateLayer, LeaseOver};

    /// Sends a request to a server that answers after `takes` seconds; the query that it sees.
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
    async fn no_write_begins_after_the_deadline_or_outlasts_the_lease() {
        const POD: &str = "/api/v1/namespaces/n/pods/p";
        let seconds = Duration::from_secs;
        let gate = LeaderGate::default();
        // Without an election nothing is bounded.
        assert_eq!(send(&gate, "POST", POD, 100).await.unwrap(), None);

        let renewed = Instant::now();
        gate.open_until(renewed + seconds(10), renewed + seconds(15));
        let answer = send(&gate, "PATCH", &format!("{POD}?force=true"), 9).await;
        assert_eq!(answer.unwrap().as_deref(), Some("force=true&timeout=15s"));
        let error = send(&gate, "PATCH", POD, 7).await.unwrap_err();
        assert!(error.is::<LeaseOver>());
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

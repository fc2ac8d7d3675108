//! Serves the webhooks over TLS.
//!
//! What a request may take is limited before it is taken: the memory of its body, and its time.
//! Functions run on threads of their own, so that one that blocks its thread delays neither leases
//! nor watches; the number of those threads is limited too.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tokio::sync::Semaphore;
use tracing::warn;

use super::admission::{Answer, Unreadable, panic_message};
use super::tls::{self, Served, Server};
use crate::telemetry::webhooks::WebhookMetrics;

/// The largest body: two objects of the largest size that the API server accepts, and some more.
const LARGEST_BODY: usize = 8 * MIB;
const MIB: usize = 1024 * 1024;
/// Requests in progress, counted in MiB of their bodies.
const BUDGET: u32 = 128;
/// Time limit of a request, from its first byte. The API server waits for 10 s.
const WITHIN: Duration = Duration::from_secs(9);
/// The webhooks cannot listen on their address.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address} for webhooks; choose another address with --webhook-bind-address"
)]
pub struct BindError {
    address: String,
    #[source]
    source: std::io::Error,
}

/// A path and what answers its requests.
pub(super) struct Endpoint {
    pub(super) path: String,
    pub(super) answer: Answer,
}

/// A listener that does not accept connections yet.
pub(super) struct Listener {
    socket: std::net::TcpListener,
    /// The address, with the port that was chosen if it was 0.
    pub(super) address: SocketAddr,
}

impl Listener {
    /// Binds an address; `:9443` means port 9443 of every address, as in Go.
    pub(super) fn bind(wanted: &str) -> Result<Self, BindError> {
        let failed = |source| BindError {
            address: wanted.to_owned(),
            source,
        };
        let socket = tls::bind(wanted).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        Ok(Self { socket, address })
    }

    /// Serves endpoints with whatever certificate there is at the time of a handshake.
    pub(super) fn serve(
        self,
        endpoints: Vec<Endpoint>,
        certificate: Arc<Served>,
        metrics: &WebhookMetrics,
        http2: bool,
    ) -> Result<Server, BindError> {
        let router = router(endpoints, metrics);
        tls::serve(self.socket, certificate, router, http2).map_err(|source| BindError {
            address: self.address.to_string(),
            source,
        })
    }
}

fn router(endpoints: Vec<Endpoint>, metrics: &WebhookMetrics) -> Router {
    let budget = Arc::new(Semaphore::new(BUDGET as usize));
    endpoints
        .into_iter()
        .fold(Router::new(), |router, endpoint| {
            let path = endpoint.path.clone();
            let metrics = metrics.clone();
            let (endpoint, budget) = (Arc::new(endpoint), Arc::clone(&budget));
            let serve = move |request: Request| async move {
                let timer = metrics.begin(&endpoint.path);
                let answered = respond(&endpoint, budget, request);
                let response = match tokio::time::timeout(WITHIN, answered).await {
                    Ok(Ok(body)) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
                    Ok(Err(refused)) => refused.into_response(&endpoint.path),
                    Err(_) => Refused::Late.into_response(&endpoint.path),
                };
                timer.end(response.status().as_u16());
                response
            };
            router.route(&path, post(serve))
        })
}

/// Error of a request that gets no review as its answer. The API server then does what the failure
/// policy of the webhook says.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the body is larger than {LARGEST_BODY} bytes")]
    TooLarge,
    #[error("the body cannot be read")]
    Body(#[source] axum::Error),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("the webhook did not answer within {WITHIN:?}")]
    Late,
    #[error("the webhook failed: {0}")]
    Failed(String),
}

impl Refused {
    fn into_response(self, path: &str) -> Response {
        let status = match &self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(_) | Self::Unreadable(_) => StatusCode::BAD_REQUEST,
            Self::Late => StatusCode::GATEWAY_TIMEOUT,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        warn!(
            path,
            error = &self as &dyn std::error::Error,
            "cannot answer a request to a webhook"
        );
        (status, self.to_string()).into_response()
    }
}

/// Reads the body and calls the function on a thread of its own.
async fn respond(
    endpoint: &Endpoint,
    budget: Arc<Semaphore>,
    request: Request,
) -> Result<Vec<u8>, Refused> {
    let length = request.headers().get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    // Without a length the body may become as large as any.
    let length: usize = length.unwrap_or(LARGEST_BODY);
    if length > LARGEST_BODY {
        return Err(Refused::TooLarge);
    }
    let mebibytes = u32::try_from(length.div_ceil(MIB).max(1)).unwrap_or(BUDGET);
    let share = budget.acquire_many_owned(mebibytes).await;
    let share = share.map_err(|error| Refused::Failed(error.to_string()))?;
    let body = axum::body::to_bytes(request.into_body(), LARGEST_BODY).await;
    let body = Vec::from(body.map_err(|error| {
        let source: Option<&dyn std::error::Error> = std::error::Error::source(&error);
        if source.is_some_and(<dyn std::error::Error>::is::<http_body_util::LengthLimitError>) {
            Refused::TooLarge
        } else {
            Refused::Body(error)
        }
    })?);
    let answer = (endpoint.answer)(body);
    let runtime = tokio::runtime::Handle::current();
    let task = host::blocking(move || {
        // A function that blocks its thread beyond its deadline keeps its share.
        let _share = share;
        runtime.block_on(answer)
    });
    match task.await {
        Ok(answer) => Ok(answer?),
        Err(error) => {
            let message = match error.try_into_panic() {
                Ok(panic) => panic_message(panic.as_ref()).to_owned(),
                Err(error) => error.to_string(),
            };
            Err(Refused::Failed(message))
        }
    }
}

#[cfg(test)]
mod tests;

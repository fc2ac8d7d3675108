//! Retries requests that the API server rejected because it is overloaded.
//!
//! 429 and 503 have no side effects, so any request may be sent again. The server's `Retry-After`
//! is respected.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::RETRY_AFTER;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use tower::{BoxError, Layer, Service};

/// A layer that retries requests, with its limits.
#[derive(Debug, Clone, Copy)]
pub struct RetryLayer {
    /// Maximum number of retries of a request.
    pub attempts: u32,
    /// First delay if the server names none; it doubles with each retry.
    pub first_wait: Duration,
    /// Maximum delay.
    pub longest_wait: Duration,
}

impl Default for RetryLayer {
    fn default() -> Self {
        Self {
            attempts: 5,
            first_wait: Duration::from_millis(200),
            longest_wait: Duration::from_secs(10),
        }
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = RetryService<S>;

    fn layer(&self, inner: S) -> RetryService<S> {
        RetryService {
            inner,
            bounds: *self,
        }
    }
}

#[derive(Debug, Clone)]
pub struct RetryService<S> {
    inner: S,
    bounds: RetryLayer,
}

/// Returns the delay before the next attempt.
fn wait_after<R>(response: &Response<R>, bounds: &RetryLayer, attempt: u32) -> Duration {
    let named = response.headers().get(RETRY_AFTER);
    let named = named
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse().ok());
    let wait = named.map_or_else(
        || bounds.first_wait * 2_u32.saturating_pow(attempt.min(8)),
        Duration::from_secs,
    );
    // Jitter, so that clients that were rejected together do not retry together.
    let mut noise = [0_u8];
    let _ = host::fill(&mut noise);
    let jitter = wait / 4 * u32::from(noise[0]) / 256;
    wait.min(bounds.longest_wait) + jitter
}

impl<S, R> Service<Request<Body>> for RetryService<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Error: Into<BoxError> + Send,
    S::Future: Send,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<R>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let bounds = self.bounds;
        let clone = self.inner.clone();
        // The service that was polled ready must be called, not its clone.
        let mut service = std::mem::replace(&mut self.inner, clone);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let mut bodies = body.try_clone();
            let mut body = Some(body);
            let mut attempt = 0;
            loop {
                let mut again = Request::new(body.take().unwrap_or_else(Body::empty));
                *again.method_mut() = parts.method.clone();
                *again.uri_mut() = parts.uri.clone();
                *again.headers_mut() = parts.headers.clone();
                *again.extensions_mut() = parts.extensions.clone();
                let response = service.call(again).await.map_err(Into::into)?;
                let busy = matches!(
                    response.status(),
                    StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
                );
                let Some(next) = bodies.take().filter(|_| busy && attempt < bounds.attempts) else {
                    return Ok(response);
                };
                tokio::time::sleep(wait_after(&response, &bounds, attempt)).await;
                attempt += 1;
                bodies = next.try_clone();
                body = Some(next);
                futures::future::poll_fn(|cx| service.poll_ready(cx))
                    .await
                    .map_err(Into::into)?;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use http::{Request, Response};
    use kube::client::Body;
    use tokio::time::Instant;
    use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn};

    use super::RetryLayer;

    async fn statuses_after(rejections: u32) -> (u16, u32, Duration) {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let service = ServiceBuilder::new()
            .layer(RetryLayer::default())
            .service(service_fn(move |_: Request<Body>| {
                let call = counted.fetch_add(1, Ordering::SeqCst);
                async move {
                    let status = if call < rejections { 429 } else { 200 };
                    let response = Response::builder()
                        .status(status)
                        .header("Retry-After", "1");
                    Ok::<_, BoxError>(response.body(())?)
                }
            }));
        let start = Instant::now();
        let response = service
            .oneshot(Request::new(Body::from(b"{}".to_vec())))
            .await
            .unwrap();
        (
            response.status().as_u16(),
            calls.load(Ordering::SeqCst),
            start.elapsed(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_retried_after_the_time_that_the_server_names() {
        let (status, calls, waited) = statuses_after(2).await;
        assert_eq!((status, calls), (200, 3));
        assert!(
            waited >= Duration::from_secs(2) && waited < Duration::from_secs(3),
            "{waited:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_retries_is_limited() {
        let (status, calls, _) = statuses_after(u32::MAX).await;
        assert_eq!((status, calls), (429, 6));
    }
}

//! Ends requests without a response. A dead connection would otherwise look like a slow server, or
//! like a watch without events.
//!
//! The server ends every watch after the timeout in its request (290 seconds in kube's watcher), so
//! a watch that is silent for longer is dead.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use tokio::time::{Sleep, sleep, timeout};
use tower::{BoxError, Service, service_fn};

use super::is_watch;

/// Time limits for responses of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Limit for the head of a response, and for each following piece of its body.
    pub answer: Duration,
    /// Limit for the next event of a watch. It is longer than watches last, because there may be no
    /// events.
    pub silence: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(30),
            silence: Duration::from_mins(5),
        }
    }
}

impl Deadlines {
    /// Returns a client with these deadlines.
    pub fn apply_to(self, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let service = service_fn(move |request: Request<Body>| {
            let client = client.clone();
            async move { client.send(request).await }
        });
        ClientBuilder::new(DeadlineService::new(service, self), namespace).build()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("no response from the API server for {0:?}")]
pub(super) struct TimedOut(Duration);

/// Applies [`Deadlines`] to a service.
#[derive(Debug, Clone)]
pub(super) struct DeadlineService<S> {
    inner: S,
    deadlines: Deadlines,
}

impl<S> DeadlineService<S> {
    pub(super) fn new(inner: S, deadlines: Deadlines) -> Self {
        Self { inner, deadlines }
    }
}

impl<S, B> Service<Request<Body>> for DeadlineService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<TimedBody<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Deadlines { answer, silence } = self.deadlines;
        let bound = if is_watch(request.uri()) {
            silence
        } else {
            answer
        };
        let response = timeout(answer, self.inner.call(request));
        Box::pin(async move {
            let response = response.await.map_err(|_| TimedOut(answer))?;
            Ok(response
                .map_err(Into::into)?
                .map(|body| TimedBody::new(body, bound)))
        })
    }
}

/// A body that fails with [`TimedOut`] if its next piece is late.
#[derive(Debug)]
pub(super) struct TimedBody<B> {
    inner: Pin<Box<B>>,
    bound: Duration,
    /// Set while waiting for a piece.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<B> TimedBody<B> {
    fn new(inner: B, bound: Duration) -> Self {
        Self {
            inner: Box::pin(inner),
            bound,
            timer: None,
        }
    }
}

impl<B> http_body::Body for TimedBody<B>
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        if let Poll::Ready(frame) = self.inner.as_mut().poll_frame(cx) {
            self.timer = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let bound = self.bound;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(bound)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Some(Err(TimedOut(bound).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use bytes::Bytes;
    use futures::StreamExt;
    use futures::stream;
    use http::{Request, Response};
    use http_body::Frame;
    use http_body_util::{BodyExt, StreamBody};
    use kube::client::Body;
    use tokio::time::{Instant, sleep};
    use tower::{BoxError, ServiceExt, service_fn};

    use super::{DeadlineService, Deadlines, TimedOut};

    const SECOND: Duration = Duration::from_secs(1);

    /// Sends a request to a server that sends the head after the first of these pauses, a piece of
    /// the body after each further pause, and then nothing. Returns the number of received pieces
    /// and the time until the error.
    async fn ask(uri: &str, pauses: &'static [u64]) -> (usize, Duration) {
        let deadlines = Deadlines {
            answer: 10 * SECOND,
            silence: 100 * SECOND,
        };
        let (head, pieces) = pauses.split_first().unwrap();
        let server = service_fn(move |_: Request<Body>| async move {
            sleep(SECOND * u32::try_from(*head).unwrap()).await;
            let pieces = stream::iter(pieces).then(|pause| async move {
                sleep(Duration::from_secs(*pause)).await;
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x")))
            });
            let body = StreamBody::new(Box::pin(pieces.chain(stream::pending())));
            Ok::<_, BoxError>(Response::new(body))
        });
        let service = DeadlineService::new(server, deadlines);
        let began = Instant::now();
        let request = Request::get(uri).body(Body::empty()).unwrap();
        let mut received = 0;
        let error = match service.oneshot(request).await {
            Err(error) => error,
            Ok(response) => {
                let mut body = response.into_body();
                loop {
                    match body.frame().await.unwrap() {
                        Ok(_) => received += 1,
                        Err(error) => break error,
                    }
                }
            }
        };
        assert!(error.is::<TimedOut>(), "{error}");
        (received, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn every_piece_of_a_response_has_a_deadline() {
        let (get, watch) = ("/api/v1/pods?limit=5", "/api/v1/pods?watch=true");
        for (uri, pauses, pieces, ended) in [
            (get, &[11][..], 0, 10),
            (get, &[9], 0, 19),
            (get, &[9, 9, 9], 2, 37),
            (get, &[0, 11], 0, 10),
            (watch, &[11], 0, 10),
            (watch, &[9, 99, 99], 2, 9 + 99 + 99 + 100),
            (watch, &[0, 101], 0, 100),
        ] {
            let (received, after) = ask(uri, pauses).await;
            assert_eq!(received, pieces, "{uri} {pauses:?}");
            // Timers tick in milliseconds.
            assert_eq!(after.as_secs(), ended, "{uri} {pauses:?}");
        }
    }
}

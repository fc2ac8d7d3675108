//! Answers requests of the page: streams from the caches, and what reads records.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt, stream};
use kube_objects::with_causes;
use operator_runtime::controller::Key;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::Receiver;
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError};
use tokio::task::JoinError;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use super::{LOOK_EVERY, Shared};
use crate::helm::view::{Details, RevisionError, View};

/// Time between two signs of life of a stream in which nothing changes.
const ALIVE_EVERY: Duration = Duration::from_secs(15);
/// Longest time that a request waits for others that read records.
const WAIT_TO_READ: Duration = Duration::from_secs(10);
/// Number of revisions whose charts are shown.
const MAX_CHARTS: usize = 10;

/// A custom resource in the query of a request. An empty namespace is that of a cluster-scoped one.
#[derive(Debug, Deserialize)]
pub(super) struct Named {
    #[serde(default)]
    group: String,
    kind: String,
    #[serde(default)]
    namespace: String,
    name: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Number {
    revision: u32,
}

#[derive(Debug, Deserialize)]
pub(super) struct Numbers {
    from: u32,
    to: u32,
}

/// A refusal, as text.
pub(super) struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

impl From<RevisionError> for Refusal {
    fn from(error: RevisionError) -> Self {
        let status = match error {
            RevisionError::Missing(_) => StatusCode::NOT_FOUND,
            RevisionError::Read { .. } | RevisionError::Manifest { .. } => StatusCode::BAD_GATEWAY,
        };
        Self(status, with_causes(&error))
    }
}

impl From<JoinError> for Refusal {
    fn from(_: JoinError) -> Self {
        let why = "the list cannot be shown; the log of the operator says why";
        Self(StatusCode::INTERNAL_SERVER_ERROR, why.to_owned())
    }
}

impl Named {
    fn key(&self) -> Key {
        let namespace = Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        Key::new(namespace, &self.name)
    }

    fn find(&self, shared: &Shared) -> Option<Arc<View>> {
        shared.views.of(&self.group, &self.kind, &self.key())
    }

    fn details(&self, shared: &Shared) -> Option<Details> {
        self.find(shared)?.details(&self.key(), &shared.events)
    }
}

/// Streams the rows of all custom resources.
pub(super) async fn list(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    let viewer = shared.viewer()?;
    let about = Event::default().event("about").data(json(&shared.about));
    let (all, changes) = shared.live.follow().await?;
    let all = Event::default().event("rows").data(all);
    let begin = stream::iter([about, all]);
    Ok(shared.stream(begin.chain(stream::unfold(changes, next_change)), viewer))
}

/// Returns the next change; `None` if the viewer is too slow, and begins anew.
async fn next_change(mut changes: Receiver<Arc<str>>) -> Option<(Event, Receiver<Arc<str>>)> {
    let change = changes.recv().await.ok()?;
    Some((Event::default().event("changes").data(change), changes))
}

/// Streams one custom resource.
pub(super) async fn resource(
    State(shared): State<Arc<Shared>>,
    Query(named): Query<Named>,
) -> Result<Response, Refusal> {
    let viewer = shared.viewer()?;
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let watched = Watched {
        shared: Arc::clone(&shared),
        named,
        looks,
        is_shown: false,
        shown: None,
    };
    let about = Event::default().event("about").data(json(&shared.about));
    let begin = stream::iter([about]);
    let changes = stream::unfold(watched, |mut watched| async {
        Some((watched.next().await, watched))
    });
    Ok(shared.stream(begin.chain(changes), viewer))
}

/// A custom resource that a viewer looks at.
struct Watched {
    shared: Arc<Shared>,
    named: Named,
    looks: Interval,
    /// Whether anything was sent.
    is_shown: bool,
    /// As last sent; `None` if it is gone.
    shown: Option<Details>,
}

impl Watched {
    /// Returns the custom resource as soon as it has changed, or `null` if it is gone.
    async fn next(&mut self) -> Event {
        loop {
            self.looks.tick().await;
            let mut details = self.named.details(&self.shared);
            if let Some(details) = &mut details {
                details.keep_objects(self.shown.as_ref());
            }
            if !self.is_shown || self.shown != details {
                let event = Event::default().event("resource").data(json(&details));
                (self.is_shown, self.shown) = (true, details);
                return event;
            }
        }
    }
}

/// Returns the charts of the newest revisions.
pub(super) async fn charts(
    State(shared): State<Arc<Shared>>,
    Query(named): Query<Named>,
) -> Result<Response, Refusal> {
    let read = |view: Arc<View>, key| async move { view.charts(&key, MAX_CHARTS).await };
    shared.read(&named, read).await
}

/// Returns the objects of a revision.
pub(super) async fn manifest(
    State(shared): State<Arc<Shared>>,
    Query(named): Query<Named>,
    Query(Number { revision }): Query<Number>,
) -> Result<Response, Refusal> {
    let read = |view: Arc<View>, key| async move { view.manifest(&key, revision).await };
    shared.read(&named, read).await
}

/// Returns how two revisions differ.
pub(super) async fn difference(
    State(shared): State<Arc<Shared>>,
    Query(named): Query<Named>,
    Query(Numbers { from, to }): Query<Numbers>,
) -> Result<Response, Refusal> {
    let read = |view: Arc<View>, key| async move { view.difference(&key, from, to).await };
    shared.read(&named, read).await
}

impl Shared {
    /// Lets one more viewer follow, unless there are too many.
    fn viewer(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let viewer = Arc::clone(&self.viewers).try_acquire_owned();
        viewer.map_err(|error| {
            let why = match error {
                TryAcquireError::NoPermits => "too many pages are open; close one",
                TryAcquireError::Closed => "the operator stops",
            };
            Refusal(StatusCode::SERVICE_UNAVAILABLE, why.to_owned())
        })
    }

    /// Answers with a stream that ends when the operator stops.
    fn stream(
        &self,
        events: impl Stream<Item = Event> + Send + 'static,
        viewer: OwnedSemaphorePermit,
    ) -> Response {
        let stop = self.stop.clone();
        let events = events.map(move |event| {
            let _ = &viewer;
            Ok::<_, Infallible>(event)
        });
        let events = events.take_until(async move { stop.cancelled().await });
        let alive = KeepAlive::new().interval(ALIVE_EVERY);
        Sse::new(events).keep_alive(alive).into_response()
    }

    /// Reads records of a custom resource, one request at a time.
    async fn read<T, F>(
        &self,
        named: &Named,
        read: impl FnOnce(Arc<View>, Key) -> F,
    ) -> Result<Response, Refusal>
    where
        T: Serialize,
        F: Future<Output = Result<T, RevisionError>>,
    {
        let Some(view) = named.find(self) else {
            let why = "the operator does not know this custom resource (any more)";
            return Err(Refusal(StatusCode::NOT_FOUND, why.to_owned()));
        };
        let Ok(_turn) = timeout(WAIT_TO_READ, self.reading.acquire()).await else {
            let why = "others are reading records; try again";
            return Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, why.to_owned()));
        };
        let answer = json(&read(view, named.key()).await?);
        Ok(([(CONTENT_TYPE, "application/json")], answer).into_response())
    }
}

fn json(value: &impl Serialize) -> String {
    // Their keys are texts.
    serde_json::to_string(value).unwrap_or_default()
}

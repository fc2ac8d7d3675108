//! Serves profiles of the heap of this process under the paths of Go's `net/http/pprof`, to this machine only.

use std::sync::Arc;

use axum::Router;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::telemetry::profiles::heap::{self, HeapProfileError};
use kube_objects::with_causes;

/// Reason why there is no profile.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Heap(#[from] HeapProfileError),
    #[error("a profile of the heap is being taken; try again when it has ended")]
    Running,
    #[error(
        "seconds: a profile of the heap shows one moment; take two, and compare them with `go tool pprof -base`"
    )]
    Seconds,
    #[error("the profile cannot be made: {0}")]
    Panicked(#[from] tokio::task::JoinError),
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Running => StatusCode::CONFLICT,
            Self::Seconds => StatusCode::BAD_REQUEST,
            Self::Heap(HeapProfileError::OtherAllocator | HeapProfileError::Off) => {
                StatusCode::NOT_IMPLEMENTED
            }
            Self::Heap(_) | Self::Panicked(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status(), with_causes(&self) + "\n").into_response()
    }
}

/// Returns what answers requests for profiles, one at a time.
pub(super) fn router() -> Router {
    let one = Arc::new(Semaphore::new(1));
    let heap = move |uri: Uri| heap_profile(uri, Arc::clone(&one));
    Router::new()
        .route("/debug/pprof", get(Redirect::permanent("/debug/pprof/")))
        .route("/debug/pprof/", get(index))
        .route("/debug/pprof/heap", get(heap))
}

async fn index() -> String {
    let heap = match heap::available() {
        Ok(()) => "memory that is allocated and not freed".to_owned(),
        Err(reason) => format!("not available: {reason}"),
    };
    format!("Profiles for `go tool pprof`:\n\n/debug/pprof/heap  {heap}\n")
}

async fn heap_profile(uri: Uri, one: Arc<Semaphore>) -> Result<Response, Refusal> {
    let mut parameters = uri.query().unwrap_or_default().split('&');
    if parameters.any(|parameter| parameter.starts_with("seconds=")) {
        return Err(Refusal::Seconds);
    }
    let Ok(permit) = one.try_acquire_owned() else {
        return Err(Refusal::Running);
    };
    let taken = move || {
        let profile = heap::take();
        drop(permit);
        profile
    };
    let headers = [
        (CONTENT_TYPE, "application/octet-stream"),
        (CONTENT_DISPOSITION, "attachment; filename=\"heap.pb.gz\""),
    ];
    Ok((headers, spawn_blocking(taken).await??).into_response())
}

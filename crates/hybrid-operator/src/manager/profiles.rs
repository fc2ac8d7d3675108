//! Serves profiles of this process under the paths of Go's `net/http/pprof`, to this machine only.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::telemetry::causes::with_causes;
use crate::telemetry::profiles::cpu::{CpuProfile, CpuProfileError};
use crate::telemetry::profiles::heap::{self, HeapProfileError};

/// How long a CPU profile takes, unless the request says so; as in Go.
const USUAL_SECONDS: u64 = 30;
const MOST_SECONDS: u64 = 300;

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Cpu(#[from] CpuProfileError),
    #[error(transparent)]
    Heap(#[from] HeapProfileError),
    #[error("a profile of the heap is being taken; try again when it has ended")]
    HeapRunning,
    #[error(
        "seconds: {0:?} is not a whole number from 1 to {MOST_SECONDS}, such as /debug/pprof/profile?seconds=30"
    )]
    Seconds(String),
    #[error(
        "seconds: a profile of the heap shows one moment; take two, and compare them with `go tool pprof -base`"
    )]
    HeapSeconds,
    #[error("the process is ending")]
    Ending,
    #[error("the profile cannot be made: {0}")]
    Panicked(#[from] tokio::task::JoinError),
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Cpu(CpuProfileError::Running) | Self::HeapRunning => StatusCode::CONFLICT,
            Self::Seconds(_) | Self::HeapSeconds => StatusCode::BAD_REQUEST,
            Self::Heap(HeapProfileError::OtherAllocator | HeapProfileError::Off) => {
                StatusCode::NOT_IMPLEMENTED
            }
            Self::Ending => StatusCode::SERVICE_UNAVAILABLE,
            Self::Cpu(_) | Self::Heap(_) | Self::Panicked(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status(), with_causes(&self) + "\n").into_response()
    }
}

/// Returns what answers requests for profiles, one of each kind at a time. `stop` ends those in progress.
pub(super) fn router(stop: &CancellationToken) -> Router {
    let stop = stop.clone();
    let (cpu, heap) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(1)));
    let cpu = move |uri: Uri| cpu_profile(uri, Arc::clone(&cpu), stop.clone());
    let heap = move |uri: Uri| heap_profile(uri, Arc::clone(&heap));
    Router::new()
        .route("/debug/pprof", get(Redirect::permanent("/debug/pprof/")))
        .route("/debug/pprof/", get(index))
        .route("/debug/pprof/profile", get(cpu))
        .route("/debug/pprof/heap", get(heap))
}

async fn index() -> String {
    let heap = match heap::available() {
        Ok(()) => "memory that is allocated and not freed".to_owned(),
        Err(reason) => format!("not available: {reason}"),
    };
    format!(
        "Profiles for `go tool pprof`:\n\n\
         /debug/pprof/profile?seconds={USUAL_SECONDS}  processor time, up to {MOST_SECONDS} seconds\n\
         /debug/pprof/heap                {heap}\n"
    )
}

async fn cpu_profile(
    uri: Uri,
    one: Arc<Semaphore>,
    stop: CancellationToken,
) -> Result<Response, Refusal> {
    let seconds = seconds(uri.query()).map_or(Ok(USUAL_SECONDS), |text| {
        let number = text.parse().ok();
        let number = number.filter(|number| (1..=MOST_SECONDS).contains(number));
        number.ok_or_else(|| Refusal::Seconds(text.to_owned()))
    })?;
    let Ok(permit) = one.try_acquire_owned() else {
        return Err(CpuProfileError::Running.into());
    };
    let profile = spawn_blocking(CpuProfile::start).await??;
    let end = tokio::time::sleep(Duration::from_secs(seconds));
    // The profile ends, too, if the client closes the connection: the future is dropped.
    if stop.run_until_cancelled(end).await.is_none() {
        return Err(Refusal::Ending);
    }
    let finished = move || {
        let profile = profile.finish();
        drop(permit);
        profile
    };
    Ok(file("profile", spawn_blocking(finished).await??))
}

async fn heap_profile(uri: Uri, one: Arc<Semaphore>) -> Result<Response, Refusal> {
    if seconds(uri.query()).is_some() {
        return Err(Refusal::HeapSeconds);
    }
    let Ok(permit) = one.try_acquire_owned() else {
        return Err(Refusal::HeapRunning);
    };
    let taken = move || {
        let profile = heap::take();
        drop(permit);
        profile
    };
    Ok(file("heap", spawn_blocking(taken).await??))
}

/// Returns the parameter `seconds` of a query.
fn seconds(query: Option<&str>) -> Option<&str> {
    let mut parameters = query.unwrap_or_default().split('&');
    parameters.find_map(|parameter| parameter.strip_prefix("seconds="))
}

fn file(name: &'static str, profile: Vec<u8>) -> Response {
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (
            CONTENT_DISPOSITION,
            format!("attachment; filename=\"{name}.pb.gz\""),
        ),
    ];
    (headers, profile).into_response()
}

//! The status page: kinds, custom resources and releases in a browser, read-only.
//!
//! ```text
//! caches of the controllers (helm::view) -> live: twice a second, while somebody looks -> server-sent events
//!                                        -> api: a manifest, charts, or a difference, on request
//! ```
//!
//! | module | does |
//! |---|---|
//! | `guard` | refuses what does not come from this machine, and everything but GET |
//! | `assets` | the files of the page, which are parts of the program |
//! | `live` | rows of all custom resources, as they change |
//! | `api` | answers requests |
//!
//! A controller does nothing for the page. While nobody looks, the page does nothing either, and viewers share what is
//! computed for the list, so that neither load nor requests grow with their number.

mod api;
mod assets;
mod guard;
mod live;
#[cfg(test)]
mod tests;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::{from_fn, map_response};
use axum::routing::get;
use operator_runtime::manager::{Controller, ControllerContext, ControllerError, runnable};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::helm::view::{RecentEvents, Views};
use live::Live;

/// Time between two looks at the caches while somebody looks at the page.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Number of streams that may be open; a browser tab has one.
const MAX_VIEWERS: usize = 32;

/// The page cannot be served.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address} for the status page; choose another address with --ui-bind-address"
)]
pub(crate) struct ListenError {
    address: SocketAddr,
    #[source]
    source: std::io::Error,
}

/// The page at an address.
pub(crate) struct Page {
    listener: TcpListener,
    views: Views,
    events: RecentEvents,
}

/// State of the server.
struct Shared {
    views: Views,
    events: RecentEvents,
    live: Arc<Live>,
    viewers: Arc<Semaphore>,
    /// Lets one request at a time read records.
    reading: Semaphore,
    about: About,
    stop: CancellationToken,
}

/// The operator, as the page names it.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct About {
    operator: String,
    version: &'static str,
    /// The Pod that serves the page.
    pod: Option<String>,
    /// Whether only one of several replicas runs the controllers.
    elected: bool,
}

impl Page {
    /// Listens on an address. Controllers show what they know in `views`, and `events` has what they publish.
    pub(crate) fn listen(
        address: SocketAddr,
        views: Views,
        events: RecentEvents,
    ) -> Result<Self, ListenError> {
        let failed = |source| ListenError { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        info!(url = format!("http://{address}"), "serving the status page");
        Ok(Self {
            listener,
            views,
            events,
        })
    }

    /// Returns what serves the page, on every replica: one that is not the leader says so.
    pub(crate) fn server(self) -> impl Controller {
        runnable("page", |context| self.serve(context)).on_every_replica()
    }

    async fn serve(self, context: ControllerContext) -> Result<(), ControllerError> {
        let identity = &context.identity;
        let about = About {
            operator: identity.operator.to_string(),
            version: env!("CARGO_PKG_VERSION"),
            pod: identity.pod.as_ref().map(|(name, _)| name.clone()),
            elected: identity.elected,
        };
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let stop = context.stop.clone();
        let shared = Shared::new(self.views, self.events, about, stop.clone());
        let server = axum::serve(listener, router(shared));
        server
            .with_graceful_shutdown(stop.cancelled_owned())
            .await?;
        Ok(())
    }
}

impl Shared {
    fn new(views: Views, events: RecentEvents, about: About, stop: CancellationToken) -> Self {
        Self {
            live: Arc::new(Live::new(views.clone())),
            views,
            events,
            viewers: Arc::new(Semaphore::new(MAX_VIEWERS)),
            reading: Semaphore::new(1),
            about,
            stop,
        }
    }
}

fn router(shared: Shared) -> Router {
    let api = Router::new()
        .route("/api/list", get(api::list))
        .route("/api/resource", get(api::resource))
        .route("/api/charts", get(api::charts))
        .route("/api/manifest", get(api::manifest))
        .route("/api/difference", get(api::difference))
        .with_state(Arc::new(shared));
    assets::router()
        .merge(api)
        .layer(from_fn(guard::check))
        .layer(map_response(guard::protect))
}

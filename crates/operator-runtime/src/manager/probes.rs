//! `/healthz`, `/readyz`, `/metrics` and, with the feature `profiling`, profiles.

use axum::Router;
use axum::routing::get;
use kube::Client;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::checks::Checks;
use super::metrics_access::MetricsAccess;
use super::metrics_server;
use crate::options::{Options, OptionsError};
use crate::telemetry::metrics::Metrics;
use crate::webhook::tls;

/// The probes of a process.
#[derive(Clone, Default)]
pub(super) struct Probes {
    /// Checks of `/healthz`.
    pub(super) health: Checks,
    /// Checks of `/readyz`.
    pub(super) readiness: Checks,
}

/// A server for probes, metrics or profiles cannot start.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ProbeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address} for {what}; choose another address with {flag}")]
    Listen {
        address: String,
        /// Content that would be served: probes, metrics or profiles.
        what: &'static str,
        /// The flag with the address.
        flag: &'static str,
        #[source]
        source: std::io::Error,
    },
    /// The address is refused.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The server has no certificate.
    #[error("cannot serve metrics over TLS; check --metrics-cert-path")]
    Certificate(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Starts the servers for probes, metrics and profiles; the address `0` disables a server. `client` asks who
/// may read the metrics.
pub(super) async fn serve(
    options: &Options,
    metrics: &Metrics,
    client: &Client,
    probes: Probes,
    stop: &CancellationToken,
) -> Result<JoinSet<()>, ProbeError> {
    let mut servers = JoinSet::new();
    let health = Router::new()
        .route("/healthz", get(Checks::all))
        .route("/healthz/{name}", get(Checks::one))
        .with_state(probes.health);
    let readiness = Router::new()
        .route("/readyz", get(Checks::all))
        .route("/readyz/{name}", get(Checks::one))
        .with_state(probes.readiness);
    let probe_address = &options.health_probe_bind_address;
    if is_enabled(probe_address) {
        let socket = listen(probe_address, "probes", "--health-probe-bind-address")?;
        spawn(&mut servers, socket, health.merge(readiness), stop).map_err(|source| {
            ProbeError::Listen {
                address: probe_address.clone(),
                what: "probes",
                flag: "--health-probe-bind-address",
                source,
            }
        })?;
    }
    let metrics_address = &options.metrics_bind_address;
    if is_enabled(metrics_address) {
        let access = options
            .metrics_require_rbac
            .then(|| MetricsAccess::new(client));
        let router = metrics_server::router(metrics, access);
        let socket = listen(metrics_address, "metrics", "--metrics-bind-address")?;
        let failed = |source| ProbeError::Listen {
            address: metrics_address.clone(),
            what: "metrics",
            flag: "--metrics-bind-address",
            source,
        };
        if options.metrics_secure {
            let files = options.metrics_certificate.as_ref();
            let certificate = metrics_server::certificate(files, stop).await;
            let certificate = certificate.map_err(|e| ProbeError::Certificate(e.into()))?;
            let server = tls::serve(socket, certificate, router, options.enable_http2);
            let server = server.map_err(failed)?;
            let stop = stop.clone();
            servers.spawn(async move {
                stop.cancelled().await;
                server.stop().await;
            });
        } else {
            spawn(&mut servers, socket, router, stop).map_err(failed)?;
        }
    }
    #[cfg(feature = "profiling")]
    serve_profiles(options, &mut servers, stop).await?;
    Ok(servers)
}

#[cfg(feature = "profiling")]
async fn serve_profiles(
    options: &Options,
    servers: &mut JoinSet<()>,
    stop: &CancellationToken,
) -> Result<(), ProbeError> {
    const FLAG: &str = "--profiling-bind-address";
    let Some(address) = options.profiling_address()? else {
        return Ok(());
    };
    crate::telemetry::profiles::heap::activate().await;
    let socket = listen(&address.to_string(), "profiles", FLAG)?;
    let router = super::profiles::router();
    spawn(servers, socket, router, stop).map_err(|source| ProbeError::Listen {
        address: address.to_string(),
        what: "profiles",
        flag: FLAG,
        source,
    })
}

fn is_enabled(address: &str) -> bool {
    address != "0" && !address.is_empty()
}

fn listen(
    address: &str,
    what: &'static str,
    flag: &'static str,
) -> Result<std::net::TcpListener, ProbeError> {
    let socket = tls::bind(address).map_err(|source| ProbeError::Listen {
        address: address.to_owned(),
        what,
        flag,
        source,
    })?;
    let local = socket.local_addr().map(|local| local.to_string());
    info!(address = local.unwrap_or_default(), what, "serving");
    Ok(socket)
}

/// Serves over plain HTTP until `stop`.
fn spawn(
    servers: &mut JoinSet<()>,
    socket: std::net::TcpListener,
    router: Router,
    stop: &CancellationToken,
) -> std::io::Result<()> {
    let listener = TcpListener::from_std(socket)?;
    let stop = stop.clone();
    servers.spawn(async move {
        let server = axum::serve(listener, router);
        let _ = server
            .with_graceful_shutdown(async move { stop.cancelled().await })
            .await;
    });
    Ok(())
}

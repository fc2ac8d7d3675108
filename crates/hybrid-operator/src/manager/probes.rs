//! `/healthz`, `/readyz` and `/metrics`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::options::Options;
use crate::telemetry::metrics::Metrics;

/// The state of `/readyz`: whether the process is ready.
#[derive(Debug, Clone, Default)]
pub struct ReadinessProbe(Arc<AtomicBool>);

impl ReadinessProbe {
    /// Sets whether `/readyz` responds with 200.
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::SeqCst);
    }

    fn status(&self) -> (StatusCode, &'static str) {
        if self.0.load(Ordering::SeqCst) {
            (StatusCode::OK, "ok")
        } else {
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "waiting for the API server, or for the certificate of the webhooks",
            )
        }
    }
}

/// A server for probes or metrics cannot listen on its address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for {what}; choose another address with {flag}")]
pub struct ProbeError {
    address: String,
    what: &'static str,
    flag: &'static str,
    #[source]
    source: std::io::Error,
}

/// Starts the servers for probes and metrics; the address `0` disables a server.
pub(super) async fn serve(
    options: &Options,
    metrics: &Metrics,
    readiness: &ReadinessProbe,
    stop: &CancellationToken,
) -> Result<JoinSet<()>, ProbeError> {
    let mut servers = JoinSet::new();
    let ready = readiness.clone();
    let probes = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(move || async move { ready.status() }));
    let metrics = metrics.clone();
    let metrics = Router::new().route(
        "/metrics",
        get(move || async move {
            let text = metrics
                .encode()
                .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            Ok::<_, StatusCode>(([(CONTENT_TYPE, kind)], text))
        }),
    );
    for (address, what, flag, router) in [
        (
            &options.health_probe_bind_address,
            "probes",
            "--health-probe-bind-address",
            probes,
        ),
        (
            &options.metrics_bind_address,
            "metrics",
            "--metrics-bind-address",
            metrics,
        ),
    ] {
        if address == "0" || address.is_empty() {
            continue;
        }
        let listening = bind(address).await;
        let listener = listening.map_err(|source| ProbeError {
            address: address.clone(),
            what,
            flag,
            source,
        })?;
        info!(address = %local(&listener), what, "serving");
        let stop = stop.clone();
        servers.spawn(async move {
            let server = axum::serve(listener, router);
            let _ = server
                .with_graceful_shutdown(async move { stop.cancelled().await })
                .await;
        });
    }
    Ok(servers)
}

/// Binds an address; `:8080` means port 8080 of every address, as in Go.
async fn bind(address: &str) -> std::io::Result<TcpListener> {
    match address.strip_prefix(':') {
        Some(port) => TcpListener::bind(format!("0.0.0.0:{port}")).await,
        None => TcpListener::bind(address).await,
    }
}

fn local(listener: &TcpListener) -> String {
    listener
        .local_addr()
        .as_ref()
        .map_or_else(|_| "?".to_owned(), SocketAddr::to_string)
}

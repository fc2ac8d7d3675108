//! TLS and HTTP/2 to the API server.

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::ConfigExt;
use std::time::Duration;

/// The largest flow-control windows that lists of thousands of objects make use of.
const WINDOW: u32 = 1 << 20;

/// Makes ring the process's crypto provider, once.
pub(super) fn install_crypto() {
    // An error means that one is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A client that speaks HTTP/2 where the server does, so that all watches share a connection:
/// kube's own connector opens one for each.
pub(super) fn http_client<B>(
    config: &Config,
) -> Result<HttpClient<HttpsConnector<HttpConnector>, B>, kube::Error>
where
    B: hyper::body::Body + Send + 'static,
    B::Data: Send,
{
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(config.connect_timeout);
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(tcp);
    Ok(HttpClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        // A connection that was cut without a word is noticed within these times.
        .http2_keep_alive_interval(Duration::from_secs(15))
        .http2_keep_alive_timeout(Duration::from_secs(15))
        .http2_keep_alive_while_idle(true)
        .http2_initial_stream_window_size(WINDOW)
        .http2_initial_connection_window_size(2 * WINDOW)
        .build(https))
}

//! TLS and HTTP/2 to the API server.

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::{Body, ConfigExt};
use std::time::Duration;

use super::leader_gate::TimelyBody;

/// Flow-control window of a stream, large enough for lists of thousands of objects.
const WINDOW: u32 = 1 << 20;

/// Installs ring as the crypto provider of the process.
pub(super) fn install_crypto() {
    // An error means that a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A client that sends requests over one HTTP/2 connection, which is opened lazily.
pub(super) type Http = HttpClient<HttpsConnector<HttpConnector>, TimelyBody<Body>>;

/// Method by which the client knows whether the server supports HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// Negotiated by TLS. A server without HTTP/2 gets a connection per request.
    Negotiated,
    /// Assumed without negotiation.
    #[cfg(test)]
    Http2,
}

/// Creates clients for an API server, each with its own connection.
pub(super) struct Connector {
    https: HttpsConnector<HttpConnector>,
    protocol: Protocol,
}

impl Connector {
    /// Creates a connector with the certificates and keys of `config`.
    pub(super) fn new(config: &Config, protocol: Protocol) -> Result<Self, kube::Error> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(config.connect_timeout);
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(config.rustls_client_config()?)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(tcp);
        Ok(Self { https, protocol })
    }

    /// Creates a client whose connection is closed after it was idle for `idle`. Pings detect a
    /// dead connection within twice the time `ping`.
    pub(super) fn client(&self, idle: Duration, ping: Duration) -> Http {
        HttpClient::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(idle)
            .http2_only(self.protocol != Protocol::Negotiated)
            .http2_keep_alive_interval(ping)
            .http2_keep_alive_timeout(ping)
            .http2_keep_alive_while_idle(true)
            .http2_initial_stream_window_size(WINDOW)
            .http2_initial_connection_window_size(2 * WINDOW)
            .build(self.https.clone())
    }
}

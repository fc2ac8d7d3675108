//! TLS and HTTP/2 to the API server.

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::{Body, ConfigExt};
use std::time::Duration;

/// The largest flow-control windows that lists of thousands of objects make use of.
const WINDOW: u32 = 1 << 20;

/// Makes ring the process's crypto provider, once.
pub(super) fn install_crypto() {
    // An error means that one is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Sends requests over one HTTP/2 connection, which is opened when the first one comes.
pub(super) type Http = HttpClient<HttpsConnector<HttpConnector>, Body>;

/// How it is known that the server speaks HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// It says so when TLS is set up. One that does not gets a connection for each request.
    Negotiated,
    /// It is known beforehand.
    #[cfg(test)]
    Http2,
}

/// Makes clients for one API server, each of which has a connection of its own.
pub(super) struct Connector {
    https: HttpsConnector<HttpConnector>,
    protocol: Protocol,
}

impl Connector {
    /// Reads certificates and keys.
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

    /// A client whose connection is closed when nothing was sent over it for the time `idle`. One
    /// that was cut without a word is noticed by pings within twice the time `ping`.
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

//! Connections, directly or through the proxy that the environment names for a host: `HTTPS_PROXY`,
//! `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`. Loopback addresses are always reached directly, as in
//! Go's programs.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::{Service, ServiceExt as _};

use crate::error::{Cause, PullError};

/// Opens connections.
#[derive(Clone)]
pub(crate) struct Connector {
    tcp: HttpConnector,
    proxies: Proxies,
}

impl Connector {
    pub(crate) fn new(proxies: Proxies, timeout: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(timeout));
        Self { tcp, proxies }
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = Cause;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, Cause>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let tcp = self.tcp.clone();
        let proxy = self.proxies.of(&target);
        Box::pin(async move {
            let Some(proxy) = proxy else {
                return Ok(Stream::direct(tcp.oneshot(target).await?));
            };
            if target.scheme_str() != Some("https") {
                let tcp = tcp.oneshot(proxy.uri().clone()).await?;
                return Ok(Stream { tcp, proxied: true });
            }
            let mut tunnel = Tunnel::new(proxy.uri().clone(), tcp);
            if let Some(credentials) = proxy.basic_auth() {
                tunnel = tunnel.with_auth(credentials.clone());
            }
            Ok(Stream::direct(tunnel.oneshot(target).await?))
        })
    }
}

/// The proxies of the environment.
#[derive(Clone)]
pub(crate) struct Proxies(Arc<Matcher>);

impl Proxies {
    pub(crate) fn from_env() -> Self {
        Self(Arc::new(Matcher::from_env()))
    }

    fn of(&self, target: &Uri) -> Option<Intercept> {
        let host = target.host()?;
        let bare = host.trim_matches(['[', ']']);
        let is_loopback = bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if is_loopback || host == "localhost" {
            return None;
        }
        self.0.intercept(target)
    }

    /// Refuses a proxy that is reached in another way than by HTTP.
    pub(crate) fn check(&self, target: &Uri) -> Result<(), PullError> {
        match self.of(target) {
            Some(proxy) if proxy.uri().scheme_str() != Some("http") => {
                let uri = proxy.uri();
                let scheme = uri.scheme_str().unwrap_or_default();
                Err(PullError::Proxy {
                    proxy: format!("{scheme}://{}", uri.host().unwrap_or_default()),
                })
            }
            _ => Ok(()),
        }
    }

    /// Returns the header that a request without TLS needs for its proxy.
    pub(crate) fn authorization(&self, target: &Uri) -> Option<HeaderValue> {
        let proxy = (target.scheme_str() == Some("http"))
            .then(|| self.of(target))
            .flatten()?;
        proxy.basic_auth().cloned()
    }
}

/// A connection to a server or to a proxy.
pub(crate) struct Stream {
    tcp: TokioIo<TcpStream>,
    /// Whether the proxy reads the requests, which then have whole URLs.
    proxied: bool,
}

impl Stream {
    fn direct(tcp: TokioIo<TcpStream>) -> Self {
        Self {
            tcp,
            proxied: false,
        }
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        self.tcp.connected().proxy(self.proxied)
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buffer)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_excluded_hosts_are_reached_directly_and_other_proxies_are_refused() {
        let of = |all: &str| {
            let matcher = Matcher::builder().all(all.to_owned()).no("example.org");
            Proxies(Arc::new(matcher.build()))
        };
        let proxies = of("http://me:pw@proxy:3128");
        for (target, proxied) in [
            ("https://charts.example.com/", true),
            ("http://charts.example.com/", true),
            ("https://example.org/", false),
            ("http://127.0.0.1:80/", false),
            ("http://[::1]:80/", false),
            ("http://localhost/", false),
        ] {
            let target: Uri = target.parse().unwrap();
            assert_eq!(proxies.of(&target).is_some(), proxied, "{target}");
            assert!(proxies.check(&target).is_ok());
            let plain = proxied && target.scheme_str() == Some("http");
            assert_eq!(proxies.authorization(&target).is_some(), plain);
        }
        let target: Uri = "https://charts.example.com/".parse().unwrap();
        let error = of("socks5://me:pw@proxy:1").check(&target).unwrap_err();
        assert!(!error.to_string().contains("pw"), "{error}");
        assert!(error.to_string().contains("socks5://proxy"), "{error}");
    }
}

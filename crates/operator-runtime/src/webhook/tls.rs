//! Listens and serves HTTP over TLS, for webhooks and metrics.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use hyper_util::rt::TokioTimer;
use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use socket2::{Domain, Socket, Type};
use tokio::task::JoinHandle;
use tracing::error;

/// Time that an idle connection stays open: longer than the API server keeps it, so that it never
/// sends a request on a connection that is being closed.
const IDLE: Duration = Duration::from_mins(2);
/// Longest wait for requests in progress when the process stops.
const DRAIN: Duration = Duration::from_secs(10);
/// Number of connections that wait to be accepted, as in the standard library.
const BACKLOG: i32 = 128;

/// Binds an address, for use with tokio. `:8080` means port 8080 of every address of both families,
/// as in Go, and of IPv4 alone where the system has no IPv6.
pub(crate) fn bind(address: &str) -> io::Result<TcpListener> {
    let Some(port) = address.strip_prefix(':') else {
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no address has this name");
        for address in address.to_socket_addrs()? {
            match listen(address) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = error,
            }
        }
        return Err(last);
    };
    let port: u16 = port
        .parse()
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    match listen((Ipv6Addr::UNSPECIFIED, port).into()) {
        // The system has no IPv6, or it is switched off.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::Unsupported | io::ErrorKind::AddrNotAvailable
            ) || error.raw_os_error() == Some(EAFNOSUPPORT) =>
        {
            listen((Ipv4Addr::UNSPECIFIED, port).into())
        }
        bound => bound,
    }
}

/// Linux: the address family is not supported.
const EAFNOSUPPORT: i32 = 97;

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// The certificate that is served; it can change at any time.
#[derive(Debug, Default)]
pub(crate) struct Served(RwLock<Option<Arc<CertifiedKey>>>);

impl Served {
    pub(crate) fn set(&self, certificate: Arc<CertifiedKey>) {
        *self.0.write() = Some(certificate);
    }

    pub(crate) fn get(&self) -> Option<Arc<CertifiedKey>> {
        self.0.read().clone()
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.get()
    }
}

/// Serves with whatever certificate there is at the time of a handshake.
pub(crate) fn serve(
    socket: TcpListener,
    certificate: Arc<Served>,
    router: Router,
    http2: bool,
) -> io::Result<Server> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    if http2 {
        config.alpn_protocols.push(b"h2".to_vec());
    }
    config.alpn_protocols.push(b"http/1.1".to_vec());
    let config = RustlsConfig::from_config(Arc::new(config));
    let mut server = axum_server::from_tcp_rustls(socket, config)?;
    if !http2 {
        server = server.http1_only();
    }
    let http = server.http_builder();
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE);
    let handle = Handle::new();
    let serving = server
        .handle(handle.clone())
        .serve(router.into_make_service());
    let task = tokio::spawn(async move {
        if let Err(error) = serving.await {
            error!(
                error = &error as &dyn std::error::Error,
                "a server for TLS has failed"
            );
        }
    });
    Ok(Server { handle, task })
}

pub(crate) struct Server {
    handle: Handle<SocketAddr>,
    task: JoinHandle<()>,
}

impl Server {
    /// Accepts no more connections and waits for the requests in progress.
    pub(crate) async fn stop(self) {
        self.handle.graceful_shutdown(Some(DRAIN));
        let _ = self.task.await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::bind;

    #[test]
    fn a_port_without_an_address_is_bound_in_both_families() {
        let listener = bind(":0").unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect(("127.0.0.1", port)).unwrap();
        if listener.local_addr().unwrap().is_ipv6() {
            TcpStream::connect(("::1", port)).unwrap();
        }
        let local = bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(local.ip().is_loopback() && local.is_ipv4());
        for invalid in [":http", "8080", ":70000"] {
            assert!(bind(invalid).is_err(), "{invalid}");
        }
    }
}

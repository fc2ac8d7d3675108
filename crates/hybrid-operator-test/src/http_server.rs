//! A small HTTP server on the loopback interface that answers as a test says, also wrongly, with TLS or without.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Largest body of a request.
const BODY: usize = 1 << 20;

/// A request that the server got.
#[derive(Debug, Clone, Default)]
pub struct Received {
    /// The method.
    pub method: String,
    /// Path and query, or the whole URL if the server is asked as a proxy.
    pub target: String,
    /// Headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Vec<u8>,
}

/// Reaction of the server to a request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Sends an answer.
    Answer {
        /// The status.
        status: u16,
        /// Headers besides the length.
        headers: Vec<(String, String)>,
        /// The body.
        body: Vec<u8>,
    },
    /// Sends data until the client closes the connection.
    Endless,
    /// Says that the body is longer than it is, and closes the connection.
    Short {
        /// The length that is promised.
        promised: usize,
        /// The body.
        body: Vec<u8>,
    },
    /// Sends nothing until the client closes the connection.
    Silence,
}

impl Reply {
    /// A status without a body.
    pub fn status(status: u16) -> Self {
        Self::Answer {
            status,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// A body with status 200.
    pub fn body(body: impl Into<Vec<u8>>) -> Self {
        Self::Answer {
            status: 200,
            headers: Vec::new(),
            body: body.into(),
        }
    }

    /// The answer with another header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        if let Self::Answer { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.into()));
        }
        self
    }
}

/// A running server. It stops when it is dropped.
pub struct HttpServer {
    address: SocketAddr,
    scheme: &'static str,
    received: Arc<Mutex<Vec<Received>>>,
    stopping: Arc<AtomicBool>,
}

impl HttpServer {
    /// Starts a server on a free port. Each request is given to `reply`, and its connection closed
    /// after the answer.
    ///
    /// # Errors
    ///
    /// If there is no free port.
    pub fn start(
        reply: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Result<Self, io::Error> {
        Self::start_with(None, reply)
    }

    /// Starts a server with TLS. Certificate and key are in PEM format; the certificate should be for `127.0.0.1`.
    ///
    /// # Errors
    ///
    /// If there is no free port, or certificate and key cannot be used.
    pub fn start_tls(
        certificate: &[u8],
        key: &[u8],
        reply: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Result<Self, io::Error> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
        let chain = chain.map_err(io::Error::other)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(io::Error::other)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(io::Error::other)?;
        Self::start_with(Some(Arc::new(config)), reply)
    }

    fn start_with(
        config: Option<Arc<ServerConfig>>,
        reply: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Result<Self, io::Error> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let server = Self {
            address: listener.local_addr()?,
            scheme: if config.is_some() { "https" } else { "http" },
            received: Arc::default(),
            stopping: Arc::default(),
        };
        let (received, stopping) = (server.received.clone(), server.stopping.clone());
        let reply = Arc::new(reply);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if stopping.load(Ordering::Relaxed) {
                    return;
                }
                let (received, reply, config) = (received.clone(), reply.clone(), config.clone());
                thread::spawn(move || {
                    // A client that closes the connection early is what some tests are about.
                    let _ = stream.and_then(|stream| match config {
                        None => serve(stream, &received, &*reply),
                        Some(config) => {
                            let tls = ServerConnection::new(config).map_err(io::Error::other)?;
                            serve(StreamOwned::new(tls, stream), &received, &*reply)
                        }
                    });
                });
            }
        });
        Ok(server)
    }

    /// Returns host and port.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Returns a URL of the server.
    pub fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    /// Returns all requests so far.
    pub fn received(&self) -> Vec<Received> {
        let received = self.received.lock();
        received.clone()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(
    connection: impl Read + Write,
    received: &Mutex<Vec<Received>>,
    reply: &dyn Fn(&Received) -> Reply,
) -> io::Result<()> {
    let mut reader = BufReader::new(connection);
    let request = read(&mut reader)?;
    let reply = reply(&request);
    received.lock().push(request);
    let stream = reader.get_mut();
    match reply {
        Reply::Answer {
            status,
            headers,
            body,
        } => {
            let mut head = format!(
                "HTTP/1.1 {status} Status\r\nContent-Length: {}\r\nConnection: close\r\n",
                body.len()
            );
            for (name, value) in headers {
                head = format!("{head}{name}: {value}\r\n");
            }
            stream.write_all(format!("{head}\r\n").as_bytes())?;
            stream.write_all(&body)?;
        }
        Reply::Endless => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000)).into_bytes();
            loop {
                stream.write_all(&chunk)?;
            }
        }
        Reply::Short { promised, body } => {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {promised}\r\n\r\n");
            stream.write_all(head.as_bytes())?;
            stream.write_all(&body)?;
        }
        Reply::Silence => return reader.read_to_end(&mut Vec::new()).map(drop),
    }
    stream.flush()
}

fn read(reader: &mut impl BufRead) -> io::Result<Received> {
    let mut start = String::new();
    reader.read_line(&mut start)?;
    let mut words = start.split_whitespace().map(str::to_owned);
    let mut request = Received {
        method: words.next().unwrap_or_default(),
        target: words.next().unwrap_or_default(),
        ..Received::default()
    };
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            let name = name.trim().to_ascii_lowercase();
            request.headers.insert(name, value.trim().to_owned());
        }
    }
    let length = request.headers.get("content-length");
    let length = length.and_then(|text| text.parse().ok()).unwrap_or(0);
    request.body = vec![0; BODY.min(length)];
    reader.read_exact(&mut request.body)?;
    Ok(request)
}

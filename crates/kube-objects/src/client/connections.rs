//! Assigns requests to connections.
//!
//! A server limits the streams of an HTTP/2 connection (kube-apiserver to 100), and a watch holds a
//! stream for minutes. Watches therefore use separate connections, as many as they need, and so do
//! the leader election leases, which must not wait for slow writes either. Connections are opened
//! lazily.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::client::legacy::Error;
use kube::client::Body;
use parking_lot::Mutex;
use tower::Service;

use super::connector::{Connector, Http};
use super::is_watch;
use super::leader_gate::TimelyBody;

/// Maximum number of watches per connection.
///
/// kube-apiserver allows 100 streams unless `--http2-max-streams-per-connection` is set, and the
/// usual load balancers allow at least as many. The number is below that because a stream that the
/// client has closed stays open on the server a little longer. hyper knows the limit of a
/// connection from its SETTINGS (`SendRequest::current_max_send_streams`), but the pooling client
/// of hyper-util does not expose it. With a lower limit, requests beyond it wait for a free stream
/// and are reported as watches without an answer.
const WATCHES_PER_CONNECTION: usize = 80;

/// Idle time after which a connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Idle time of connections for watches, which are reopened every five minutes.
const WATCH_IDLE_TIMEOUT: Duration = Duration::from_mins(10);

/// Interval of HTTP/2 pings.
const PING_INTERVAL: Duration = Duration::from_secs(15);

/// Interval of HTTP/2 pings on the connection of the leases. A dead connection must be replaced
/// before the renew deadline of ten seconds.
const LEASE_PING_INTERVAL: Duration = Duration::from_secs(3);

/// All connections to one API server.
#[derive(Clone)]
pub(super) struct Connections {
    requests: Http,
    leases: Http,
    watches: Arc<Watches>,
}

/// The connections of watches.
struct Watches {
    connector: Connector,
    connections: Mutex<Vec<WatchConnection>>,
}

/// One connection and the number of watches that it carries.
struct WatchConnection {
    http: Http,
    used: Arc<AtomicUsize>,
}

/// The slot of a watch on its connection; dropping it frees the slot.
#[derive(Debug)]
struct WatchSlot(Arc<AtomicUsize>);

impl Drop for WatchSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Connections {
    /// Creates the clients without opening a connection.
    pub(super) fn new(connector: Connector) -> Self {
        Self {
            requests: connector.client(IDLE_TIMEOUT, PING_INTERVAL),
            leases: connector.client(IDLE_TIMEOUT, LEASE_PING_INTERVAL),
            watches: Arc::new(Watches {
                connector,
                connections: Mutex::default(),
            }),
        }
    }

    fn of(&self, uri: &Uri) -> (Http, Option<WatchSlot>) {
        if is_watch(uri) {
            let (http, take_slot) = self.watches.take_slot();
            (http, Some(take_slot))
        } else if uri.path().contains("/apis/coordination.k8s.io/") {
            (self.leases.clone(), None)
        } else {
            (self.requests.clone(), None)
        }
    }
}

impl Watches {
    /// Takes a slot on the first connection with a free one.
    fn take_slot(&self) -> (Http, WatchSlot) {
        let mut connections = self.connections.lock();
        for connection in connections.iter() {
            // Slots are only taken under the lock.
            if connection.used.load(Ordering::SeqCst) < WATCHES_PER_CONNECTION {
                connection.used.fetch_add(1, Ordering::SeqCst);
                return (
                    connection.http.clone(),
                    WatchSlot(Arc::clone(&connection.used)),
                );
            }
        }
        let http = self.connector.client(WATCH_IDLE_TIMEOUT, PING_INTERVAL);
        let used = Arc::new(AtomicUsize::new(1));
        connections.push(WatchConnection {
            http: http.clone(),
            used: Arc::clone(&used),
        });
        (http, WatchSlot(used))
    }
}

impl Service<Request<Body>> for Connections {
    type Response = Response<WithSlot<Incoming>>;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Self::Response, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (http, take_slot) = self.of(request.uri());
        let answer = http.request(TimelyBody::of(request));
        Box::pin(async move {
            let response = answer.await?;
            Ok(response.map(|inner| WithSlot {
                inner,
                _slot: take_slot,
            }))
        })
    }
}

/// A body that holds the slot of its watch while it is read.
#[derive(Debug)]
pub(super) struct WithSlot<B> {
    inner: B,
    _slot: Option<WatchSlot>,
}

impl<B> http_body::Body for WithSlot<B>
where
    B: http_body::Body + Unpin,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::net::SocketAddr;

    use bytes::Bytes;
    use futures::future::join_all;
    use futures::{StreamExt, stream};
    use http_body_util::combinators::BoxBody;
    use http_body_util::{BodyExt, Full, StreamBody};
    use hyper::server::conn::http2;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, PostParams};
    use kube::core::ApiResource;
    use kube::{Client, Config};
    use serde_json::{Value, json};
    use tokio::net::TcpListener;

    use super::*;
    use crate::client::{Counts, Deadlines, LeaderGate, Protocol, connect_by};
    use crate::shards::By;
    use crate::watch::{Registry, Restarts, WatchGuard, WatchKey, WatchState};

    /// An API server that allows 100 streams per connection, as kube-apiserver does, and whose
    /// watches never end.
    struct Http2Server {
        address: SocketAddr,
        connections: Arc<AtomicUsize>,
        /// Queries of the writes to Pods.
        writes: Arc<Mutex<Vec<String>>>,
    }

    impl Http2Server {
        async fn start() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let connections = Arc::new(AtomicUsize::new(0));
            let writes = Arc::<Mutex<Vec<String>>>::default();
            let (counted, written) = (Arc::clone(&connections), Arc::clone(&writes));
            tokio::spawn(async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    counted.fetch_add(1, Ordering::SeqCst);
                    let written = Arc::clone(&written);
                    let answer = move |request| {
                        let answer = answer(&request, &written);
                        std::future::ready(Ok::<_, Infallible>(answer))
                    };
                    let serving = http2::Builder::new(TokioExecutor::new())
                        .timer(TokioTimer::new())
                        .max_concurrent_streams(100)
                        .serve_connection(TokioIo::new(stream), service_fn(answer));
                    tokio::spawn(serving);
                }
            });
            Self {
                address,
                connections,
                writes,
            }
        }

        fn client(&self) -> Client {
            self.client_behind(&LeaderGate::default())
        }

        fn client_behind(&self, gate: &LeaderGate) -> Client {
            let mut config = Config::new(format!("http://{}", self.address).parse().unwrap());
            config.default_namespace = "default".to_owned();
            let deadlines = Deadlines {
                answer: Duration::from_secs(5),
                ..Deadlines::default()
            };
            let counts = Counts::default();
            connect_by(&config, &counts, gate, deadlines, Protocol::Http2).unwrap()
        }

        fn connections(&self) -> usize {
            self.connections.load(Ordering::SeqCst)
        }
    }

    fn answer(
        request: &Request<Incoming>,
        writes: &Mutex<Vec<String>>,
    ) -> Response<BoxBody<Bytes, Infallible>> {
        if request.uri().path().contains("/pods/") {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let mut writes = writes.lock();
            writes.push(query);
            let mut response = Response::new(BodyExt::boxed(Full::default()));
            if writes.len() == 1 {
                *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
                let second = http::HeaderValue::from_static("1");
                response.headers_mut().insert("Retry-After", second);
            }
            return response;
        }
        let body = if is_watch(request.uri()) {
            let end = json!({"type": "BOOKMARK", "object": {
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {"resourceVersion": "1",
                             "annotations": {"k8s.io/initial-events-end": "true"}}}});
            let first = Ok(Frame::data(Bytes::from(format!("{end}\n"))));
            let pieces = stream::iter([first]).chain(stream::pending());
            BodyExt::boxed(StreamBody::new(pieces))
        } else {
            let object = json!({"metadata": {"name": "one", "resourceVersion": "2"}});
            BodyExt::boxed(Full::new(Bytes::from(object.to_string())))
        };
        Response::new(body)
    }

    fn watches(registry: &Registry, count: usize) -> Vec<WatchGuard> {
        let guards = (0..count).map(|number| {
            registry.acquire(WatchKey {
                resource: ApiResource::erase::<ConfigMap>(&()),
                namespace: Some(format!("n{number}")),
                selector: "a=b".to_owned(),
                fields: None,
                by: By::Namespace,
            })
        });
        guards.collect()
    }

    fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    #[tokio::test]
    async fn three_hundred_watches_leave_room_for_writes_and_the_lease() {
        let server = Http2Server::start().await;
        let client = server.client();
        let registry = Registry::new(client.clone(), Restarts::default());
        assert_eq!(server.connections(), 0, "no request was sent yet");

        let guards = watches(&registry, 300);
        let states = join_all(guards.iter().map(WatchGuard::settled)).await;
        let synced = states.iter().filter(|s| **s == WatchState::Synced).count();
        assert_eq!(synced, 300, "every watch is synced");
        assert_eq!(server.connections(), 4, "80 watches share a connection");

        // Both would time out if the watches left no stream free.
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let map = object(json!({"metadata": {"name": "one"}}));
        maps.create(&PostParams::default(), &map).await.unwrap();
        let leases: Api<Lease> = Api::default_namespaced(client);
        let lease = object(json!({"metadata": {"name": "one"}}));
        let replaced = leases.replace("one", &PostParams::default(), &lease).await;
        replaced.unwrap();
        assert_eq!(server.connections(), 6);
    }

    #[tokio::test]
    async fn retried_write_tells_the_server_the_time_that_is_left() {
        let server = Http2Server::start().await;
        let gate = LeaderGate::default();
        let now = tokio::time::Instant::now();
        let seconds = Duration::from_secs;
        gate.open_until(now + seconds(10), now + seconds(15));
        let request = Request::delete("/api/v1/namespaces/n/pods/p")
            .body(Body::empty())
            .unwrap();
        let client = server.client_behind(&gate);
        let response = client.send(request).await.unwrap();
        assert_eq!(response.status(), http::StatusCode::OK);
        let elapsed = now.elapsed();
        let writes = server.writes.lock().clone();
        let left = |query: &String| -> u64 {
            let timeout = query.strip_prefix("timeout=").unwrap();
            timeout.strip_suffix('s').unwrap().parse().unwrap()
        };
        let left: Vec<u64> = writes.iter().map(left).collect();
        let shrinks = left.len() == 2 && left[1] < left[0];
        assert!(shrinks, "{left:?} in {elapsed:?}");
        assert!(left[1] + elapsed.as_secs() < 15, "{left:?} in {elapsed:?}");
    }

    #[tokio::test]
    async fn closed_watches_free_their_slots() {
        let server = Http2Server::start().await;
        for _ in 0..3 {
            let client = server.client();
            let before = server.connections();
            for _ in 0..3 {
                let registry = Registry::new(client.clone(), Restarts::default());
                let guards = watches(&registry, 60);
                let states = join_all(guards.iter().map(WatchGuard::settled)).await;
                assert!(states.iter().all(|state| *state == WatchState::Synced));
            }
            let opened = server.connections() - before;
            assert!(opened <= 2, "{opened} connections for 60 watches at a time");
        }
    }
}

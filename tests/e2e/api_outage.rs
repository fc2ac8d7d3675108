//! An API server that is unreachable at startup and later.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::world::{api, apply, delete, eventually, is_true, new_namespace, operator, until};

/// A TCP proxy to the API server that can be switched off and on.
pub(crate) struct SwitchableProxy {
    address: SocketAddr,
    open: Arc<AtomicBool>,
    /// Closes the open connections.
    cut: watch::Sender<u32>,
    /// Whether what clients send waits here.
    held: watch::Sender<bool>,
}

/// Passes on what a client sends, when it is not held.
async fn send(
    mut near: OwnedReadHalf,
    mut far: OwnedWriteHalf,
    mut held: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut piece = vec![0; 1 << 16];
    loop {
        let length = near.read(&mut piece).await?;
        if length == 0 {
            return far.shutdown().await;
        }
        drop(held.wait_for(|held| !held).await);
        far.write_all(&piece[..length]).await?;
    }
}

impl SwitchableProxy {
    /// Starts a switched-off proxy to the server of a kubeconfig file, and writes a kubeconfig for
    /// the proxy to `dir`.
    pub(crate) async fn before(kubeconfig: &Path, dir: &Path) -> (Self, PathBuf) {
        let text = std::fs::read_to_string(kubeconfig).unwrap();
        let mut config: Value = go_yaml::from_str(&text).unwrap();
        let cluster = &mut config["clusters"][0]["cluster"];
        let server = cluster["server"].as_str().unwrap();
        let server = server.trim_start_matches("https://").trim_end_matches('/');
        let proxy = Self::closed(server.to_owned()).await;
        cluster["server"] = json!(format!("https://{}", proxy.address));
        let file = dir.join("kubeconfig");
        std::fs::write(&file, config.to_string()).unwrap();
        (proxy, file)
    }

    /// Starts a switched-off proxy to `server`, which accepts connections and drops them.
    async fn closed(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new(AtomicBool::new(false));
        let (cut, held) = (watch::Sender::new(0), watch::Sender::new(false));
        let (is_open, cuts, holds) = (Arc::clone(&open), cut.clone(), held.clone());
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                if !is_open.load(Ordering::SeqCst) {
                    continue;
                }
                let (server, mut cut) = (server.clone(), cuts.subscribe());
                let held = holds.subscribe();
                tokio::spawn(async move {
                    let (near_reads, mut near_writes) = near.into_split();
                    let (mut far_reads, far_writes) =
                        TcpStream::connect(server).await?.into_split();
                    let answers = async {
                        tokio::io::copy(&mut far_reads, &mut near_writes).await?;
                        near_writes.shutdown().await
                    };
                    tokio::select! {
                        both = async { tokio::try_join!(send(near_reads, far_writes, held), answers) } => {
                            both.map(drop)
                        }
                        _ = cut.changed() => Ok(()),
                    }
                });
            }
        });
        Self {
            address,
            open,
            cut,
            held,
        }
    }

    /// Holds what clients send, or passes it on, in order. Answers and events pass in any case.
    pub(crate) fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// Opens or closes it, and ends the connections that are open.
    pub(crate) fn set(&self, open: bool) {
        self.open.store(open, Ordering::SeqCst);
        self.cut.send_modify(|cuts| *cuts += 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_waits_for_the_api_server_and_resumes_when_it_returns() {
    let (plane, namespace) = or_skip!(new_namespace("away").await);
    let dir = tempfile::tempdir().unwrap();
    let (proxy, kubeconfig) = SwitchableProxy::before(plane.kubeconfig_path(), dir.path()).await;

    let running = operator(plane, namespace.name(), &[])
        .kubeconfig(&kubeconfig)
        .spawn()
        .unwrap();
    let reported = async || running.log().contains("cannot reach the API server");
    eventually("a log line about the API server", reported).await;
    assert_eq!(running.exit_status(), None, "it waits");

    proxy.set(true);
    running.ready().await.unwrap();
    let memcacheds = api(&namespace, "Memcached");
    let ready = |cr: &Value| {
        is_true(cr, "Ready") && cr["status"]["observedGeneration"] == cr["metadata"]["generation"]
    };
    apply(&memcacheds, "cache", &json!({"spec": {"replicaCount": 1}})).await;
    until(&memcacheds, "cache", "Ready", ready).await;

    // While the API server is unreachable, a spec and an object change.
    proxy.set(false);
    apply(&memcacheds, "cache", &json!({"spec": {"replicaCount": 2}})).await;
    let services = api(&namespace, "Service");
    delete(&services, "cache-memcached").await;
    proxy.set(true);
    until(&memcacheds, "cache", "Ready again", ready).await;
    until(&services, "cache-memcached", "recreated", |_| true).await;
}

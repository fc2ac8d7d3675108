//! An API server that is unreachable at startup and later.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hybrid_operator_test::{TestNamespace, wait};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::world::{LIMIT, api, apply, condition, control_plane, operator, until};

/// A TCP proxy to the API server that can be switched off and on.
struct SwitchableProxy {
    address: SocketAddr,
    open: Arc<AtomicBool>,
    /// Closes the open connections.
    cut: watch::Sender<u32>,
}

impl SwitchableProxy {
    /// Starts a switched-off proxy to `server`, which accepts connections and drops them.
    async fn closed(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new(AtomicBool::new(false));
        let cut = watch::Sender::new(0);
        let (is_open, cuts) = (Arc::clone(&open), cut.clone());
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                if !is_open.load(Ordering::SeqCst) {
                    continue;
                }
                let (server, mut cut) = (server.clone(), cuts.subscribe());
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(server).await?;
                    tokio::select! {
                        copied = tokio::io::copy_bidirectional(&mut near, &mut far) => {
                            copied.map(drop)
                        }
                        _ = cut.changed() => Ok(()),
                    }
                });
            }
        });
        Self { address, open, cut }
    }

    fn set(&self, open: bool) {
        self.open.store(open, Ordering::SeqCst);
        self.cut.send_modify(|cuts| *cuts += 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_waits_for_the_api_server_and_resumes_when_it_returns() {
    let Some(plane) = control_plane().await else {
        return;
    };
    let namespace = TestNamespace::create(plane, "away").await.unwrap();
    let text = std::fs::read_to_string(plane.kubeconfig_path()).unwrap();
    let mut config: Value = go_yaml::from_str(&text).unwrap();
    let cluster = &mut config["clusters"][0]["cluster"];
    let server = cluster["server"].as_str().unwrap();
    let server = server.trim_start_matches("https://").trim_end_matches('/');
    let proxy = SwitchableProxy::closed(server.to_owned()).await;
    cluster["server"] = json!(format!("https://{}", proxy.address));
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    std::fs::write(&kubeconfig, config.to_string()).unwrap();

    let running = operator(plane, namespace.name(), &[])
        .kubeconfig(&kubeconfig)
        .spawn()
        .unwrap();
    let reported = async || running.log().contains("cannot reach the API server");
    wait::until(LIMIT, "a log line about the API server", reported)
        .await
        .unwrap();
    assert_eq!(running.exit_status(), None, "it waits");

    proxy.set(true);
    running.ready().await.unwrap();
    let memcacheds = api(&namespace, "Memcached");
    let ready = |cr: &Value| {
        condition(cr, "Ready").is_some_and(|c| c["status"] == "True")
            && cr["status"]["observedGeneration"] == cr["metadata"]["generation"]
    };
    apply(&memcacheds, "cache", &json!({"spec": {"replicaCount": 1}})).await;
    until(&memcacheds, "cache", "Ready", ready)
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", running.log()));

    // While the API server is unreachable, a spec and an object change.
    proxy.set(false);
    apply(&memcacheds, "cache", &json!({"spec": {"replicaCount": 2}})).await;
    let services = api(&namespace, "Service");
    services
        .delete("cache-memcached", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    proxy.set(true);
    until(&memcacheds, "cache", "Ready again", ready)
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", running.log()));
    until(&services, "cache-memcached", "recreated", |service| {
        !service.is_null()
    })
    .await
    .unwrap();
}

//! What an operator does when it starts, and nothing else: reads the kubeconfig, connects with TLS, serves
//! `/readyz`, asks for the server's version, finds one kind by discovery and watches it. `benches/start` compares
//! the operators with it.
//!
//! Usage: `bare-client ADDRESS GROUP VERSION KIND`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use futures::TryStreamExt;
use kube::api::{Api, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use kube::{Client, discovery};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next = |name| args.next().with_context(|| format!("{name} is missing"));
    let address = next("ADDRESS")?;
    let kind = GroupVersionKind::gvk(&next("GROUP")?, &next("VERSION")?, &next("KIND")?);

    let client = Client::try_default().await?;
    let ready = Arc::<AtomicBool>::default();
    tokio::spawn(serve(TcpListener::bind(address).await?, Arc::clone(&ready)));
    client.apiserver_version().await?;
    ready.store(true, Ordering::SeqCst);

    let (resource, _) = discovery::pinned_kind(&client, &kind).await?;
    let objects = Api::<DynamicObject>::all_with(client, &resource);
    let events = watcher(objects, watcher::Config::default());
    events.try_for_each(|_| async { Ok(()) }).await?;
    Ok(())
}

/// Answers every request, with 200 once the process is ready.
async fn serve(listener: TcpListener, ready: Arc<AtomicBool>) -> Result<()> {
    loop {
        let (mut connection, _) = listener.accept().await?;
        let mut request = [0; 1024];
        if connection.read(&mut request).await.is_err() {
            continue;
        }
        let status = if ready.load(Ordering::SeqCst) {
            "200 OK"
        } else {
            "500 Internal Server Error"
        };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        // The client may have gone.
        let _ = connection.write_all(answer.as_bytes()).await;
    }
}

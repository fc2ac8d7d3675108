//! The API server client that the whole process shares.
//!
//! The layers, outermost first: counting → authentication → retry → leader gate → deadlines → base
//! address → `connections`. What is sent again passes the gate again. Requests, watches and leader election use separate HTTP/2 connections,
//! so that none of them waits for the others.

mod connections;
mod connector;
mod count;
mod deadline;
mod impersonate;
mod leader_gate;
mod retry;

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use http::{HeaderValue, Request, Uri};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::{ServiceBuilder, service_fn};

use connections::Connections;
use connector::{Connector, Protocol};
use count::CountService;
use deadline::DeadlineService;
use leader_gate::LeaderGateService;

pub use count::Counts;
pub use deadline::Deadlines;
pub use impersonate::{ImpersonateError, impersonate, refusing};
pub use leader_gate::LeaderGate;
pub use retry::RetryLayer;

/// Error of creating the client.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ConnectError {
    /// The kubeconfig cannot be read or is invalid.
    #[error("cannot use the kubeconfig{}", path.as_deref().map(|p| format!(" {p}")).unwrap_or_default())]
    Kubeconfig {
        /// The file, if it was given explicitly.
        path: Option<String>,
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// There is neither a kubeconfig nor a service account.
    #[error("no cluster: give --kubeconfig or $KUBECONFIG, or run in a Pod with a service account")]
    NoConfig(#[source] kube::config::InferConfigError),
    /// TLS or authentication cannot be set up.
    #[error("cannot set up the connection to {server}")]
    Setup {
        /// The server's address.
        server: String,
        #[source]
        source: kube::Error,
    },
}

/// Reads the configuration from the given kubeconfig, or else from `$KUBECONFIG`, `~/.kube/config`
/// or the Pod's service account.
///
/// # Errors
/// When there is none or it cannot be used.
pub async fn config(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let shown = || Some(path.display().to_string());
            let file = Kubeconfig::read_from(path).map_err(|source| ConnectError::Kubeconfig {
                path: shown(),
                source,
            })?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(|source| ConnectError::Kubeconfig {
                    path: shown(),
                    source,
                })?
        }
        None => Config::infer().await.map_err(ConnectError::NoConfig)?,
    };
    // `DeadlineService` sets the deadlines, which differ between watches and other requests.
    config.read_timeout = None;
    config.write_timeout = None;
    config.connect_timeout = Some(Duration::from_secs(10));
    let agent = concat!("hybrid-operator/", env!("CARGO_PKG_VERSION"));
    config
        .headers
        .push((http::header::USER_AGENT, HeaderValue::from_static(agent)));
    Ok(config)
}

/// Returns whether a server is on this machine: its address is one of the loopback interface.
pub fn is_local(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback() || address.is_unspecified())
}

/// Creates the client of a process without sending a request.
///
/// # Errors
/// When TLS or authentication cannot be set up.
pub fn connect(
    config: &Config,
    counts: &Counts,
    gate: &LeaderGate,
    deadlines: Deadlines,
) -> Result<Client, ConnectError> {
    connect_by(config, counts, gate, deadlines, Protocol::Negotiated)
}

fn connect_by(
    config: &Config,
    counts: &Counts,
    gate: &LeaderGate,
    deadlines: Deadlines,
    protocol: Protocol,
) -> Result<Client, ConnectError> {
    let setup = |source| ConnectError::Setup {
        server: config.cluster_url.to_string(),
        source,
    };
    connector::install_crypto();
    let auth = config.auth_layer().map_err(setup)?;
    let connector = Connector::new(config, protocol).map_err(setup)?;
    let service = ServiceBuilder::new()
        .layer_fn(|inner| CountService::new(inner, counts))
        .option_layer(auth)
        .layer(RetryLayer::default())
        .layer_fn(|inner| LeaderGateService::new(inner, gate))
        .layer_fn(|inner| DeadlineService::new(inner, deadlines))
        .layer(config.base_uri_layer())
        .layer(config.extra_headers_layer().map_err(setup)?)
        .service(Connections::new(connector));
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

/// Creates the client of a process over one that stands for the network.
pub fn over(network: Client, counts: &Counts, gate: &LeaderGate, deadlines: Deadlines) -> Client {
    let namespace = network.default_namespace().to_owned();
    let base = service_fn(move |request: Request<Body>| {
        let network = network.clone();
        async move { network.send(request).await }
    });
    let service = ServiceBuilder::new()
        .layer_fn(|inner| CountService::new(inner, counts))
        .layer(RetryLayer::default())
        .layer_fn(|inner| LeaderGateService::new(inner, gate))
        .layer_fn(|inner| DeadlineService::new(inner, deadlines))
        .service(base);
    ClientBuilder::new(service, namespace).build()
}

fn is_watch(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    query
        .split('&')
        .any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch"))
}

#[cfg(test)]
mod tests {
    use super::is_local;

    #[test]
    fn a_loopback_address_is_of_this_machine() {
        for (server, expected) in [
            ("https://127.0.0.1:6443/", true),
            ("https://127.9.8.7", true),
            ("https://[::1]:6443", true),
            ("https://localhost:6443", true),
            // The address that k3d writes.
            ("https://0.0.0.0:6550", true),
            ("https://localhost.example.com", false),
            ("https://10.0.0.1:6443", false),
            ("https://[2001:db8::1]", false),
            ("https://prod.example.com/k8s", false),
        ] {
            assert_eq!(is_local(&server.parse().unwrap()), expected, "{server}");
        }
    }
}

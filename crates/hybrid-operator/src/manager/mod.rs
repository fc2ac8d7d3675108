//! The manager: runs controllers in one process, with leader election, probes and metrics.
//!
//! ```text
//! connect -> serve probes and metrics -> wait for the API server -> lead -> run controllers
//! ```
//!
//! On SIGTERM or SIGINT reconciles in progress end, the lease is released, and the process exits
//! with 0; a second signal ends it at once. A lost lease ends the process with an error, and its
//! replacement starts from the cluster's state. Releases stay as they are in every case.

mod probes;
mod shutdown;

use std::time::Duration;

use futures::future::BoxFuture;
use kube::Client;
use kube::runtime::events::Reporter;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::client::{self, Counts, LeaderGate};
use crate::cluster::Cluster;
use crate::cluster::ownership::{InstanceId, OperatorId};
use crate::controller::definitions::follow_definitions;
use crate::controller::{ObjectCaches, Registry};
use crate::leader::{Elector, Term};
use crate::options::Options;
use crate::release::ReleaseIndex;
use crate::render_pool::RenderPool;
use crate::telemetry::metrics::Metrics;
use crate::webhook::{self, WebhookError, Webhooks};

pub use crate::client::ConnectError;
pub use probes::{ProbeError, ReadinessProbe};

/// Everything that the manager provides to a controller.
#[derive(Clone)]
pub struct ControllerContext {
    /// Talks to the API server.
    pub(crate) connection: Connection,
    /// Caches that all controllers share.
    pub(crate) caches: Caches,
    /// Names under which this process writes.
    pub(crate) identity: Identity,
    /// Concurrency and reconcile period.
    pub(crate) limits: Limits,
    /// Namespaces to watch; empty means all.
    pub namespaces: Vec<String>,
    /// Metrics of the process.
    pub(crate) metrics: Metrics,
    /// Cancelled when the controllers must stop.
    pub stop: CancellationToken,
}

/// The connections that all controllers share.
#[derive(Clone)]
pub(crate) struct Connection {
    /// The client.
    pub(crate) client: Client,
    /// Discovery and object access over that client.
    pub(crate) cluster: Cluster,
    /// Names this process in events.
    pub(crate) reporter: Reporter,
}

/// The caches that all controllers share.
#[derive(Clone)]
pub(crate) struct Caches {
    /// The watches of dependents.
    pub(crate) registry: Registry,
    /// The history of all releases.
    pub(crate) records: ReleaseIndex,
    /// Typed objects that native controllers read.
    pub(crate) objects: ObjectCaches,
}

/// The names under which this process writes.
#[derive(Clone)]
pub(crate) struct Identity {
    /// Identifies this operator on its objects and records.
    pub(crate) operator: OperatorId,
    /// Identifies this process on the records that it writes.
    pub(crate) instance: InstanceId,
    /// Whether leader election ensures that no other replica writes.
    pub(crate) elected: bool,
    /// The namespace that the operator runs in, if known.
    pub(crate) namespace: Option<String>,
}

/// Concurrency and reconcile period of controllers.
#[derive(Clone)]
pub(crate) struct Limits {
    /// Number of keys that a controller reconciles concurrently, unless it has its own setting.
    pub(crate) max_concurrent_reconciles: usize,
    /// Time between two reconciles of an unchanged object, unless a controller has its own setting.
    pub(crate) reconcile_period: Duration,
    /// Renders the charts of all controllers.
    pub(crate) pool: RenderPool,
}

/// The error of a controller that cannot run.
pub type ControllerError = Box<dyn std::error::Error + Send + Sync>;

/// A controller that the manager runs while this process is the leader.
pub trait Controller: Send {
    /// Returns its name, for logs and metrics.
    fn name(&self) -> &str;

    /// Runs until [`ControllerContext::stop`] is cancelled and reconciles in progress have ended.
    fn run(
        self: Box<Self>,
        context: ControllerContext,
    ) -> BoxFuture<'static, Result<(), ControllerError>>;
}

/// Why the manager stopped.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// The connection to the API server cannot be set up.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A server for probes or metrics cannot start.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// Webhooks cannot be served.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// A controller failed.
    #[error("controller {name} failed")]
    Controller {
        /// Its name.
        name: String,
        /// The cause.
        #[source]
        source: ControllerError,
    },
    /// Leader election needs a namespace for its lease.
    #[error(
        "leader election needs a namespace for its lease; set --leader-election-namespace or $POD_NAMESPACE"
    )]
    NoLeaseNamespace,
    /// Another process may be the leader now.
    #[error(
        "lost the leader election lease; the process exits so that its replacement starts from the cluster's state"
    )]
    LeaseLost,
}

/// Runs controllers in one process.
pub struct Manager {
    options: Options,
    controllers: Vec<Box<dyn Controller>>,
    webhooks: Webhooks,
    client: Option<Client>,
}

impl Manager {
    /// Creates a manager without controllers.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            controllers: Vec::new(),
            webhooks: Webhooks::default(),
            client: None,
        }
    }

    /// Uses this client instead of one created from the options, for tests that count or fail
    /// requests. Its requests have the deadlines of the options; a lost lease does not stop its
    /// writes.
    #[must_use]
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// Adds a controller.
    #[must_use]
    pub fn with(self, controller: impl Controller + 'static) -> Self {
        self.with_boxed(Box::new(controller))
    }

    /// Adds a boxed controller.
    #[must_use]
    pub fn with_boxed(mut self, controller: Box<dyn Controller>) -> Self {
        self.controllers.push(controller);
        self
    }

    /// Serves webhooks, instead of those that were set before.
    #[must_use]
    pub fn with_webhooks(mut self, webhooks: Webhooks) -> Self {
        self.webhooks = webhooks;
        self
    }

    /// Runs until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// When the connection cannot be set up, a port is taken, a controller fails or the lease is
    /// lost.
    pub async fn run(self) -> Result<(), ManagerError> {
        let stop = shutdown::on_signal();
        self.run_until(stop).await
    }

    /// Runs until `stop` is cancelled.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_until(self, stop: CancellationToken) -> Result<(), ManagerError> {
        let options = self.options;
        let counts = Counts::default();
        let gate = LeaderGate::default();
        let (client, ungated, server) = if let Some(client) = self.client {
            let client = options.deadlines.apply_to(client);
            (client.clone(), client, "the given client".to_owned())
        } else {
            let config = client::config(options.kubeconfig.as_deref()).await?;
            let client = client::connect(&config, &counts, &gate, options.deadlines)?;
            // Webhooks are set up by every replica, not only by the leader.
            let always = LeaderGate::default();
            let ungated = client::connect(&config, &counts, &always, options.deadlines)?;
            (client, ungated, config.cluster_url.to_string())
        };
        let metrics = Metrics::new(counts);
        let readiness = ReadinessProbe::default();
        let servers = probes::serve(&options, &metrics, &readiness, &stop).await?;

        info!(version = env!("CARGO_PKG_VERSION"), server, "starting");
        let cluster = Cluster::new(client.clone());
        let reachable = wait_until_reachable(&cluster, &server);
        if stop.run_until_cancelled(reachable).await.is_none() {
            return Ok(());
        }
        let webhooks =
            serve_webhooks(self.webhooks, ungated, &options, &metrics, &readiness).await?;

        let definitions = follow_definitions(cluster.clone(), metrics.watches());
        let stopped = stop.clone();
        tokio::spawn(async move { stopped.run_until_cancelled(definitions).await });

        let lease = options.lease()?;
        let elector = lease.map(|lease| Elector::new(client.clone(), lease, gate));
        let context = ControllerContext {
            caches: Caches {
                registry: Registry::counted(client.clone(), metrics.watches()),
                records: follow_records(&client, &options.watch_namespaces, &metrics, &stop),
                objects: ObjectCaches::new(
                    client.clone(),
                    options.watch_namespaces.clone(),
                    metrics.watches(),
                    stop.child_token(),
                ),
            },
            connection: Connection {
                reporter: reporter(&options),
                client,
                cluster,
            },
            identity: Identity {
                operator: OperatorId::new(&options.operator_name),
                instance: InstanceId::new(&options.instance),
                elected: elector.is_some(),
                namespace: options.operator_namespace.clone(),
            },
            limits: Limits {
                max_concurrent_reconciles: options.max_concurrent_reconciles.max(1),
                reconcile_period: options.reconcile_period,
                pool: RenderPool::default(),
            },
            namespaces: options.watch_namespaces.clone(),
            metrics: metrics.clone(),
            stop: stop.child_token(),
        };
        let ended = lead(
            self.controllers,
            context,
            elector,
            &options,
            &metrics,
            &stop,
        )
        .await;
        stop.cancel();
        if let Some(webhooks) = webhooks {
            webhooks.stop().await;
        }
        servers.join_all().await;
        info!("stopped");
        ended
    }
}

/// Waits until the API server responds, and logs each failed attempt.
async fn wait_until_reachable(cluster: &Cluster, server: &str) {
    let mut delay = Duration::from_millis(250);
    while let Err(error) = cluster.ping().await {
        warn!(server, error = &error as &dyn std::error::Error, retry_in = ?delay, "cannot reach the API server; retrying");
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(Duration::from_secs(15));
    }
}

/// Serves the webhooks, if there are any. The process becomes ready once they have a certificate.
async fn serve_webhooks(
    webhooks: Webhooks,
    client: Client,
    options: &Options,
    metrics: &Metrics,
    readiness: &ReadinessProbe,
) -> Result<Option<webhook::Running>, WebhookError> {
    if webhooks.is_empty() {
        readiness.set(true);
        return Ok(None);
    }
    let environment = webhook::Environment {
        client,
        options: &options.webhooks,
        operator: &options.operator_name,
        namespace: options.operator_namespace.as_deref(),
        namespaces: &options.watch_namespaces,
        metrics: metrics.webhooks(),
    };
    let running = webhooks.start(environment).await?;
    let (certificate, readiness) = (running.ready(), readiness.clone());
    tokio::spawn(async move {
        certificate.await;
        readiness.set(true);
    });
    Ok(Some(running))
}

/// Watches the release records in `namespaces` (empty means all) until `stop` is cancelled.
fn follow_records(
    client: &Client,
    namespaces: &[String],
    metrics: &Metrics,
    stop: &CancellationToken,
) -> ReleaseIndex {
    let records = ReleaseIndex::new();
    let scopes: Vec<Option<String>> = if namespaces.is_empty() {
        vec![None]
    } else {
        namespaces.iter().cloned().map(Some).collect()
    };
    for scope in &scopes {
        records.expect(scope.as_deref());
    }
    for scope in scopes {
        let watch = records
            .clone()
            .watch(client.clone(), scope, metrics.watches());
        let stop = stop.clone();
        tokio::spawn(async move { stop.run_until_cancelled(watch).await });
    }
    records
}

fn reporter(options: &Options) -> Reporter {
    Reporter {
        controller: options.operator_name.clone(),
        instance: Some(options.instance.clone()),
    }
}

/// Runs the controllers while this process is the leader.
async fn lead(
    controllers: Vec<Box<dyn Controller>>,
    context: ControllerContext,
    mut elector: Option<Elector>,
    options: &Options,
    metrics: &Metrics,
    stop: &CancellationToken,
) -> Result<(), ManagerError> {
    if let Some(elector) = &mut elector
        && !elector.acquire(stop).await
    {
        return Ok(());
    }
    metrics.set_leader(&options.operator_name, true);
    let mut running = tokio::task::JoinSet::new();
    for controller in controllers {
        let name = controller.name().to_owned();
        info!(controller = name, "starting controller");
        let run = controller.run(context.clone());
        running.spawn(async move {
            run.await
                .map_err(|source| ManagerError::Controller { name, source })
        });
    }
    let term = async {
        if let Some(elector) = &mut elector {
            elector.hold(stop).await
        } else {
            stop.cancelled().await;
            Term::Stopped
        }
    };
    let mut outcome = tokio::select! {
        term = term => match term {
            Term::Stopped => Ok(()),
            Term::Lost => Err(ManagerError::LeaseLost),
        },
        failed = first_failure(&mut running) => failed,
    };
    context.stop.cancel();
    while let Some(ended) = running.join_next().await {
        if let (Ok(()), Ok(Err(error))) = (&outcome, ended) {
            outcome = Err(error);
        }
    }
    if let Some(elector) = &mut elector {
        elector.release().await;
    }
    metrics.set_leader(&options.operator_name, false);
    outcome
}

/// Waits until a controller fails; controllers that end without an error are ignored.
async fn first_failure(
    running: &mut tokio::task::JoinSet<Result<(), ManagerError>>,
) -> Result<(), ManagerError> {
    while let Some(ended) = running.join_next().await {
        if let Ok(Err(error)) = ended {
            return Err(error);
        }
    }
    std::future::pending().await
}

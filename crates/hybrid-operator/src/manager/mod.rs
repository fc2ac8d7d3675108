//! The manager: one process, one client, one leader, many controllers.
//!
//! ```text
//! connect -> serve probes and metrics -> wait for the API server -> lead -> run controllers
//! ```
//!
//! On SIGTERM or SIGINT what is under way ends, the lease is released, and the process exits with
//! 0; a second signal ends it at once. A lost lease ends the process with an error: its
//! replacement starts afresh. Whatever happens, what the operator deployed stays as it is.

mod probes;
mod shutdown;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube::Client;
use kube::runtime::events::{Recorder, Reporter};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::client::{self, ConnectError, Counts, LeaderGate};
use crate::cluster::Cluster;
use crate::cluster::ownership::{InstanceId, OperatorId};
use crate::controller::Registry;
use crate::controller::definitions::follow_definitions;
use crate::leader::{Elector, Term};
use crate::options::Options;
use crate::release::ReleaseIndex;
use crate::telemetry::metrics::Metrics;

pub use probes::{ProbeError, Readiness};

/// What a controller gets from the manager.
#[derive(Clone)]
pub struct ControllerContext {
    /// The client that all controllers share.
    pub client: Client,
    /// Discovery and object access over that client.
    pub cluster: Cluster,
    /// The watches of dependents.
    pub registry: Registry,
    /// The history of all releases.
    pub records: ReleaseIndex,
    /// Metrics of the process.
    pub metrics: Metrics,
    /// Sends events about objects.
    pub recorder: Recorder,
    /// Namespaces that are watched; all when empty.
    pub namespaces: Vec<String>,
    /// The namespace that the operator runs in, when it is known.
    pub operator_namespace: Option<String>,
    /// Marks the objects of this operator.
    pub operator: OperatorId,
    /// Marks the records that this process writes.
    pub instance: InstanceId,
    /// Whether a lease makes sure that no other replica writes.
    pub elected: bool,
    /// How many keys a controller works on at once, unless it says otherwise.
    pub max_concurrent_reconciles: usize,
    /// Time between two looks at an unchanged object, unless a controller says otherwise.
    pub reconcile_period: Duration,
    /// Bounds the workers of all controllers together.
    pub process: Arc<Semaphore>,
    /// Ends the controllers.
    pub stop: CancellationToken,
}

/// Why a controller cannot run.
pub type ControllerError = Box<dyn std::error::Error + Send + Sync>;

/// Something that the manager runs while this process leads.
pub trait Controller: Send {
    /// Its name, for logs and metrics.
    fn name(&self) -> &str;

    /// Runs until [`ControllerContext::stop`] and ends what is under way.
    fn run(
        self: Box<Self>,
        context: ControllerContext,
    ) -> BoxFuture<'static, Result<(), ControllerError>>;
}

/// Why the manager ended.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// There is no way to the API server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A server for probes or metrics cannot start.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// A controller cannot run.
    #[error("controller {name} failed")]
    Controller {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: ControllerError,
    },
    /// Leader election needs a namespace for its lease.
    #[error("leader election needs a namespace: set --leader-election-namespace or $POD_NAMESPACE")]
    NoLeaseNamespace,
    /// Another process leads now.
    #[error("the leader's lease was lost")]
    LeaseLost,
}

/// Runs controllers.
pub struct Manager {
    options: Options,
    controllers: Vec<Box<dyn Controller>>,
    client: Option<Client>,
}

impl Manager {
    /// A manager without controllers.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            controllers: Vec::new(),
            client: None,
        }
    }

    /// Talks to the API server through this client, not through one of the options: tests give
    /// one that counts or fails requests. Its requests have the deadlines of the options; a lost
    /// lease does not stop its writes.
    #[must_use]
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// Adds a controller.
    #[must_use]
    pub fn with(mut self, controller: impl Controller + 'static) -> Self {
        self.controllers.push(Box::new(controller));
        self
    }

    /// Runs until a signal.
    ///
    /// # Errors
    /// When the way to the API server is wrong, a port is taken, a controller fails or the lease
    /// is lost.
    pub async fn run(self) -> Result<(), ManagerError> {
        let stop = shutdown::on_signal();
        self.run_until(stop).await
    }

    /// Runs until `stop`.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_until(self, stop: CancellationToken) -> Result<(), ManagerError> {
        let options = self.options;
        let counts = Counts::default();
        let gate = LeaderGate::default();
        let (client, server) = if let Some(client) = self.client {
            let client = options.deadlines.keep(client);
            (client, "the given client".to_owned())
        } else {
            let config = client::config(options.kubeconfig.as_deref()).await?;
            let client = client::connect(&config, &counts, &gate, options.deadlines)?;
            (client, config.cluster_url.to_string())
        };
        let metrics = Metrics::new(counts);
        let readiness = Readiness::default();
        let servers = probes::serve(&options, &metrics, &readiness, &stop).await?;

        info!(version = env!("CARGO_PKG_VERSION"), server, "starting");
        let cluster = Cluster::new(client.clone());
        let reachable = wait_until_reachable(&cluster, &server);
        if stop.run_until_cancelled(reachable).await.is_none() {
            return Ok(());
        }
        readiness.set(true);

        let definitions = follow_definitions(cluster.clone(), metrics.watches());
        let stopped = stop.clone();
        tokio::spawn(async move { stopped.run_until_cancelled(definitions).await });

        let lease = options.lease()?;
        let elector = lease.map(|lease| Elector::new(client.clone(), lease, gate));
        let context = ControllerContext {
            cluster,
            registry: Registry::counted(client.clone(), metrics.watches()),
            records: follow_records(&client, &options.watch_namespaces, &metrics, &stop),
            recorder: Recorder::new(client.clone(), reporter(&options)),
            client,
            metrics: metrics.clone(),
            namespaces: options.watch_namespaces.clone(),
            operator_namespace: options.operator_namespace.clone(),
            operator: OperatorId::new(&options.operator_name),
            instance: InstanceId::new(&options.instance),
            elected: elector.is_some(),
            max_concurrent_reconciles: options.max_concurrent_reconciles.max(1),
            reconcile_period: options.reconcile_period,
            process: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
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
        servers.join_all().await;
        info!("stopped");
        ended
    }
}

/// Waits until the API server answers, and says so while it does not.
async fn wait_until_reachable(cluster: &Cluster, server: &str) {
    let mut delay = Duration::from_millis(250);
    while let Err(error) = cluster.ping().await {
        warn!(server, error = &error as &dyn std::error::Error, retry_in = ?delay, "the API server does not answer");
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(Duration::from_secs(15));
    }
}

/// Watches the release records in `namespaces`, all when empty, until `stop`.
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

/// Runs the controllers for as long as this process leads.
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
    metrics.leads(&options.operator_name, true);
    let mut running = tokio::task::JoinSet::new();
    for controller in controllers {
        let name = controller.name().to_owned();
        info!(controller = name, "starting a controller");
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
    metrics.leads(&options.operator_name, false);
    outcome
}

/// Waits for a controller that fails; those that end well are not waited for.
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

//! The manager: runs controllers in one process, with leader election, probes and metrics.
//!
//! ```text
//! connect -> serve probes and metrics -> wait for the API server, and load charts meanwhile
//!         -> run what needs no leadership -> lead -> run controllers
//! ```
//!
//! On SIGTERM or SIGINT reconciles in progress end, at the latest after
//! `--graceful-shutdown-timeout`, the lease is released, and the process exits with 0; a second
//! signal ends it at once. A lost lease ends the process with an error, and its
//! replacement starts from the cluster's state. Releases stay as they are in every case.

mod checks;
mod metrics_access;
mod metrics_server;
mod probes;
mod process;
#[cfg(feature = "profiling")]
mod profiles;
mod runnable;
mod shutdown;
mod webhooks;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::core::GroupVersionKind;
use kube::runtime::events::Reporter;
use kube_objects::Cluster;
use kube_objects::client::{self, Counts, LeaderGate};
use kube_objects::diagnosis::Rounds;
use kube_objects::events::EventSender;
use kube_objects::ownership::{InstanceId, OperatorId};
use kube_objects::shards::Shards;
use kube_objects::watch::Registry;
use kube_objects::watch::definitions::follow_definitions;
use parking_lot::Mutex;
use prometheus_client::registry::Registry as MetricsRegistry;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::controller::namespaces::NamespaceFilter;
use crate::controller::{Backoff, ObjectCaches, QueueHandle};
use crate::leader::{Election, Elector, LifeElector, ShardElector};
use crate::options::{Options, OptionsError};
use crate::ring::Ring;
use crate::telemetry::metrics::{Metrics, RegisterMetrics};
use crate::telemetry::traces::{self, TraceError, Tracer};
use crate::webhook::{ObjectWebhooks, WebhookError, Webhooks};

pub use kube_objects::client::ConnectError;
pub use probes::ProbeError;
pub use runnable::{Runnable, runnable};

use probes::Probes;
use process::Process;

/// Longest time that traces may hold up the exit.
const FLUSH_WITHIN: Duration = Duration::from_secs(3);

/// Everything that the manager provides to a controller.
#[derive(Clone)]
pub struct ControllerContext {
    /// Talks to the API server.
    pub connection: Connection,
    /// Caches that all controllers share.
    pub caches: Caches,
    /// Names under which this process writes.
    pub identity: Identity,
    /// Concurrency and resync period.
    pub limits: Limits,
    /// Namespaces to watch; empty means all.
    pub namespaces: Vec<String>,
    /// Limits the controllers to selected namespaces.
    pub(crate) namespace_filter: NamespaceFilter,
    /// The objects that this process handles.
    pub shards: Shards,
    /// Ring whose sharder assigns custom resources to this process.
    pub ring: Option<Ring>,
    /// Metrics of the process.
    pub metrics: Metrics,
    /// Sends traces of releases.
    pub tracer: Tracer,
    /// Examines releases that are not ready.
    pub rounds: Rounds,
    /// Settings of controllers of other crates, from the options.
    settings: http::Extensions,
    /// State that controllers share.
    shared: Arc<Mutex<http::Extensions>>,
    /// Cancelled when the controllers must stop.
    pub stop: CancellationToken,
}

impl ControllerContext {
    /// Returns the client of the process. Only the leader's writes pass, except with a
    /// [`Runnable`] on every replica.
    pub fn client(&self) -> &Client {
        &self.connection.client
    }

    /// Returns the settings of this type, see [`Options::extensions`].
    pub fn settings<T: Clone + Send + Sync + 'static>(&self) -> Option<&T> {
        self.settings.get()
    }

    /// Returns the state of this type that the controllers of the process share. The first that asks opens it,
    /// with state of other types if it needs that. Controllers that need no leadership share their own.
    pub fn shared<T>(&self, open: impl FnOnce(&Self) -> T) -> T
    where
        T: Clone + Send + Sync + 'static,
    {
        let cell = Arc::clone(
            self.shared
                .lock()
                .get_or_insert_default::<Arc<OnceLock<T>>>(),
        );
        cell.get_or_init(|| open(self)).clone()
    }

    /// Creates the queue of a controller, with these pauses after failures.
    pub fn queue(&self, controller: &str, backoff: Backoff) -> QueueHandle {
        let metrics = self.metrics.controller(controller);
        QueueHandle::filtered(metrics, backoff, &self.namespace_filter, &self.shards)
    }
}

/// The connections that all controllers share.
#[derive(Clone)]
pub struct Connection {
    /// Client of the process, see [`ControllerContext::client`].
    pub client: Client,
    /// Discovery and object access over that client.
    pub cluster: Cluster,
    /// Sends events in the name of this process.
    pub events: EventSender,
}

/// The caches that all controllers share.
#[derive(Clone)]
pub struct Caches {
    /// The watches of dependents.
    pub registry: Registry,
    /// Typed objects that native controllers read.
    pub objects: ObjectCaches,
}

/// The names under which this process writes.
#[derive(Clone)]
pub struct Identity {
    /// Identifies this operator on its objects and records.
    pub operator: OperatorId,
    /// Identifies this process on the records that it writes.
    pub instance: InstanceId,
    /// Whether leader election ensures that no other replica writes.
    pub elected: bool,
    /// The namespace that the operator runs in, if known.
    pub namespace: Option<String>,
    /// The namespace of the operator's own objects.
    pub home: String,
    /// Name and, if known, UID of its Pod.
    pub pod: Option<(String, Option<String>)>,
}

/// Concurrency and resync period of controllers.
#[derive(Clone)]
pub struct Limits {
    /// Number of keys that a controller reconciles concurrently, unless it has its own setting.
    pub max_concurrent_reconciles: usize,
    /// Largest part of these, in percent, that one namespace has while others wait.
    pub max_share: u8,
    /// Time between two reconciles of an unchanged object of a native controller, unless it has its
    /// own setting; `None` means never.
    pub(crate) sync_period: Option<Duration>,
}

impl Limits {
    fn of(options: &Options) -> Self {
        Self {
            max_concurrent_reconciles: options.max_concurrent_reconciles.max(1),
            max_share: options.max_share,
            sync_period: options.sync_period,
        }
    }
}

/// The error of a controller that cannot run, or of a check.
pub type ControllerError = Box<dyn std::error::Error + Send + Sync>;

/// A controller that the manager runs.
pub trait Controller: Send {
    /// Returns its name, for logs and metrics.
    fn name(&self) -> &str;

    /// Returns whether it runs only while this process is the leader.
    fn needs_leadership(&self) -> bool {
        true
    }

    /// Returns whether only one replica may run it, also if the replicas share the namespaces.
    fn runs_alone(&self) -> bool {
        false
    }

    /// Returns the kind of custom resource that it reconciles, if it reconciles one.
    fn kind(&self) -> Option<GroupVersionKind> {
        None
    }

    /// Returns the definition of that kind, if this program defines it.
    fn definition(&self) -> Option<CustomResourceDefinition> {
        None
    }

    /// Returns the kinds of objects that it creates for custom resources of that kind, without those of charts.
    fn owned_kinds(&self) -> Vec<GroupVersionKind> {
        Vec::new()
    }

    /// Returns what it needs to be permitted in the cluster, in addition to what every operator
    /// needs.
    fn permissions(&self) -> Vec<PolicyRule> {
        Vec::new()
    }

    /// Runs until [`ControllerContext::stop`] is cancelled and reconciles in progress have ended.
    fn run(
        self: Box<Self>,
        context: ControllerContext,
    ) -> BoxFuture<'static, Result<(), ControllerError>>;
}

/// Reason why the manager stopped.
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
        /// Name of the controller.
        name: String,
        /// The cause.
        #[source]
        source: ControllerError,
    },
    /// Replicas that share the namespaces have no leader.
    #[error(
        "{0} runs on the leader alone, and with --shards or --shard-ring there is none; run it on every replica (`on_every_replica`), or in an operator of its own"
    )]
    RunsAlone(String),
    /// The controllers cannot be loaded.
    #[error(transparent)]
    Load(ControllerError),
    /// The options contradict each other or lack something.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// Traces cannot be sent.
    #[error(transparent)]
    Traces(#[from] TraceError),
    /// Another process may be the leader now.
    #[error(
        "lost the leader election lease; the process exits so that its replacement starts from the cluster's state"
    )]
    LeaseLost,
}

type Load = Box<dyn FnOnce() -> Result<Vec<Box<dyn Controller>>, ControllerError> + Send>;

/// A client that is used instead of one created from the options.
enum Given {
    /// For all requests, as it is.
    Client(Client),
    /// In place of connections, below what the client of a process does.
    Network(Client),
}

/// Runs controllers in one process.
pub struct Manager {
    options: Options,
    loads: Vec<Load>,
    controllers: Vec<Box<dyn Controller>>,
    webhooks: Webhooks,
    objects: Option<ObjectWebhooks>,
    given: Option<Given>,
    probes: Probes,
    /// Whether the API server has answered and everything is loaded.
    reached: Arc<AtomicBool>,
    /// Whether the webhooks have a certificate.
    certified: Arc<AtomicBool>,
    metrics: Vec<RegisterMetrics>,
}

impl Manager {
    /// Creates a manager without controllers.
    pub fn new(options: Options) -> Self {
        let reached = Arc::default();
        Self {
            options,
            loads: Vec::new(),
            controllers: Vec::new(),
            webhooks: Webhooks::default(),
            objects: None,
            given: None,
            probes: own_checks(&reached),
            reached,
            certified: Arc::default(),
            metrics: Vec::new(),
        }
    }

    /// Uses this client instead of one created from the options, for tests that count or fail
    /// requests. Its requests have the deadlines of the options; a lost lease does not stop its
    /// writes.
    #[must_use]
    pub fn client(mut self, client: Client) -> Self {
        self.given = Some(Given::Client(client));
        self
    }

    /// Sends all requests through this client instead of connections made from the options. What the
    /// client of a process does is done as with real connections: requests are counted and repeated,
    /// they have deadlines, and a lost lease stops writes.
    #[must_use]
    pub fn network(mut self, client: Client) -> Self {
        self.given = Some(Given::Network(client));
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

    /// Adds controllers that are read from files. They are loaded on a thread of their own while the
    /// manager connects; the process is ready when both have succeeded, and an error ends it.
    #[must_use]
    pub fn load<E: Into<ControllerError>>(
        mut self,
        load: impl FnOnce() -> Result<Vec<Box<dyn Controller>>, E> + Send + 'static,
    ) -> Self {
        self.loads.push(Box::new(|| load().map_err(Into::into)));
        self
    }

    /// Adds a check to `/healthz`: while it fails, Kubernetes restarts the container. It is also
    /// served as `/healthz/NAME`.
    #[must_use]
    pub fn health_check<F, Fut>(mut self, name: &str, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), ControllerError>> + Send + 'static,
    {
        self.probes.health.add(name, check);
        self
    }

    /// Adds a check to `/readyz`: while it fails, the Pod gets no requests through Services. It is
    /// also served as `/readyz/NAME`.
    #[must_use]
    pub fn readiness_check<F, Fut>(mut self, name: &str, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), ControllerError>> + Send + 'static,
    {
        self.probes.readiness.add(name, check);
        self
    }

    /// Adds metrics to `/metrics`. With a name that another metric has, `/metrics` answers with an
    /// error that names it.
    #[must_use]
    pub fn metrics(mut self, register: impl FnOnce(&mut MetricsRegistry) + Send + 'static) -> Self {
        self.metrics.push(Box::new(register));
        self
    }

    /// Serves webhooks, instead of those that were set before.
    #[must_use]
    pub fn with_webhooks(mut self, webhooks: Webhooks) -> Self {
        if !webhooks.is_empty() {
            self = self.await_certificate("webhook-certificate", || true);
        }
        self.webhooks = webhooks;
        self
    }

    /// Serves validations of kinds that may change, as soon as there are any, beside the webhooks of
    /// [`with_webhooks`](Self::with_webhooks).
    #[must_use]
    pub fn with_object_webhooks(mut self, objects: ObjectWebhooks) -> Self {
        let served = objects.clone();
        self = self.await_certificate("admission-certificate", move || served.are_expected());
        self.objects = Some(objects);
        self
    }

    /// The process is not ready while it has no certificate for webhooks that it serves.
    fn await_certificate(
        self,
        name: &str,
        serves: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        let certified = Arc::clone(&self.certified);
        self.readiness_check(name, move || {
            let ready = certified.load(Ordering::SeqCst) || !serves();
            let waiting = || Err("waiting for the certificate of the webhooks".into());
            std::future::ready(if ready { Ok(()) } else { waiting() })
        })
    }

    /// Runs until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// When the connection cannot be set up, a port is taken, a controller fails or the lease is
    /// lost.
    pub async fn run(self) -> Result<(), ManagerError> {
        let stop = shutdown::on_signal();
        Box::pin(self.run_until(stop)).await
    }

    /// Runs until `stop` is cancelled.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_until(self, stop: CancellationToken) -> Result<(), ManagerError> {
        let Self {
            options,
            loads,
            controllers,
            given,
            webhooks,
            objects,
            probes,
            reached,
            certified,
            mut metrics,
        } = self;
        options.validate()?;
        let (tracer, sending) = traces::start(options.traces(), &mut metrics).await?;
        let loading = load_all(loads);
        let counts = Counts::default();
        let gate = LeaderGate::default();
        let clients = match Clients::connect(given, &options, &counts, &gate).await {
            Ok(clients) => clients,
            Err(error) => {
                // Mistakes in the files are found without a cluster, too.
                loading.await?;
                return Err(error.into());
            }
        };
        let metrics = Metrics::new(counts, metrics);
        let servers = probes::serve(&options, &metrics, &clients.always, probes, &stop).await?;

        info!(
            version = env!("CARGO_PKG_VERSION"),
            server = clients.server,
            "starting"
        );
        let cluster = Cluster::new(clients.leading.clone());
        let loaded = load_and_reach(loading, &cluster, &clients.server, &stop).await?;
        let Some(mut loaded) = loaded else {
            servers.join_all().await;
            return Ok(());
        };
        loaded.extend(controllers);
        reached.store(true, Ordering::SeqCst);
        let always = clients.always.clone();
        let webhooks = webhooks.with_objects(objects);
        let webhooks = webhooks::serve(webhooks, always, &options, &metrics, certified)?;

        let definitions = follow_definitions(cluster.clone(), metrics.restarts());
        let stopped = stop.clone();
        tokio::spawn(async move { stopped.run_until_cancelled(definitions).await });

        let shards =
            (options.shards).map_or_else(Shards::default, |shards| Shards::of(shards.count));
        refuse_alone(&loaded, &options)?;
        let election = election(&options, &clients, gate, &shards, &metrics)?;
        let client = clients.leading.clone();
        let objects = ObjectCaches::new(
            client.clone(),
            options.watch_namespaces.clone(),
            metrics.restarts(),
            shards.clone(),
            stop.child_token(),
        );
        let namespace_filter = match &options.namespace_selector {
            None => NamespaceFilter::default(),
            Some(selector) => NamespaceFilter::of(&objects.metadata::<Namespace>(Some(selector))),
        };
        let context = ControllerContext {
            caches: Caches {
                registry: Registry::sharing(client.clone(), metrics.restarts(), shards.clone()),
                objects,
            },
            connection: Connection {
                events: EventSender::new(client.clone(), reporter(&options)),
                client,
                cluster,
            },
            identity: identity(&options, election.is_some(), &clients.leading),
            limits: Limits::of(&options),
            namespaces: options.watch_namespaces.clone(),
            namespace_filter,
            shards,
            ring: options.ring.clone(),
            metrics,
            tracer,
            rounds: Rounds::new(stop.child_token()),
            settings: options.extensions.clone(),
            shared: Arc::default(),
            stop: stop.child_token(),
        };
        let flush_within = options.graceful_shutdown_timeout.min(FLUSH_WITHIN);
        let process = Process {
            always: context.with_client(clients.always),
            leading: context,
            options,
            stop: stop.clone(),
        };
        let ended = Box::pin(process.run(loaded, election)).await;
        stop.cancel();
        webhooks.stop().await;
        servers.join_all().await;
        sending.finish(flush_within).await;
        info!("stopped");
        ended
    }
}

/// The clients of a process.
struct Clients {
    /// Writes only while this process is the leader.
    leading: Client,
    /// Writes always.
    always: Client,
    /// Address of the API server, for logs.
    server: String,
}

impl Clients {
    async fn connect(
        given: Option<Given>,
        options: &Options,
        counts: &Counts,
        gate: &LeaderGate,
    ) -> Result<Self, ConnectError> {
        let deadlines = options.deadlines;
        match given {
            None => {}
            Some(Given::Client(client)) => {
                let client = deadlines.apply_to(client);
                return Ok(Self {
                    leading: client.clone(),
                    always: client,
                    server: "the given client".to_owned(),
                });
            }
            Some(Given::Network(network)) => {
                return Ok(Self {
                    leading: client::over(network.clone(), counts, gate, deadlines),
                    always: client::over(network, counts, &LeaderGate::default(), deadlines),
                    server: "the given network".to_owned(),
                });
            }
        }
        let config = client::config(options.kubeconfig.as_deref()).await?;
        Ok(Self {
            leading: client::connect(&config, counts, gate, deadlines)?,
            always: client::connect(&config, counts, &LeaderGate::default(), deadlines)?,
            server: config.cluster_url.to_string(),
        })
    }
}

/// Returns the checks that every operator has.
fn own_checks(reached: &Arc<AtomicBool>) -> Probes {
    let mut probes = Probes::default();
    probes.health.add("ping", || std::future::ready(Ok(())));
    let reached = Arc::clone(reached);
    probes.readiness.add("api-server", move || {
        let reached = reached.load(Ordering::SeqCst);
        let waiting = || Err("waiting for the API server".into());
        std::future::ready(if reached { Ok(()) } else { waiting() })
    });
    probes
}

/// Returns how the leader is elected; `None` without leader election.
fn election(
    options: &Options,
    clients: &Clients,
    gate: LeaderGate,
    shards: &Shards,
    metrics: &Metrics,
) -> Result<Option<Election>, OptionsError> {
    if let Some(of) = options.shards()? {
        let client = clients.leading.clone();
        let elector = ShardElector::new(client, of, shards.clone(), gate, metrics.clone());
        return Ok(Some(Election::Shards(elector)));
    }
    if let Some(lease) = options.member()? {
        let elector = Elector::new(clients.leading.clone(), lease, gate);
        return Ok(Some(Election::Lease(elector)));
    }
    if let Some(lock) = options.lock() {
        let elector = LifeElector::new(&clients.always, lock, gate);
        return Ok(Some(Election::Life(elector)));
    }
    let lease = options.lease()?;
    Ok(lease.map(|lease| Election::Lease(Elector::new(clients.leading.clone(), lease, gate))))
}

/// Refuses shards with controllers that only one replica may run.
fn refuse_alone(
    controllers: &[Box<dyn Controller>],
    options: &Options,
) -> Result<(), ManagerError> {
    let alone = controllers
        .iter()
        .find(|controller| controller.runs_alone());
    let has_shards = options.shards.is_some() || options.ring.is_some();
    match alone.filter(|_| has_shards) {
        Some(controller) => Err(ManagerError::RunsAlone(controller.name().to_owned())),
        None => Ok(()),
    }
}

/// Starts to load controllers, and returns those of all loads in their order.
fn load_all(
    loads: Vec<Load>,
) -> impl Future<Output = Result<Vec<Box<dyn Controller>>, ManagerError>> {
    let loading: Vec<_> = loads.into_iter().map(host::blocking).collect();
    async {
        let mut controllers = Vec::new();
        for loaded in loading {
            let loaded = loaded
                .await
                .map_err(|panic| ManagerError::Load(panic.into()))?;
            controllers.extend(loaded.map_err(ManagerError::Load)?);
        }
        Ok(controllers)
    }
}

/// Waits until everything is loaded and the API server responds; `None` if `stop` comes first.
async fn load_and_reach(
    loading: impl Future<Output = Result<Vec<Box<dyn Controller>>, ManagerError>>,
    cluster: &Cluster,
    server: &str,
    stop: &CancellationToken,
) -> Result<Option<Vec<Box<dyn Controller>>>, ManagerError> {
    let reachable = async {
        wait_until_reachable(cluster, server).await;
        Ok(())
    };
    let both = async { tokio::try_join!(loading, reachable) };
    match stop.run_until_cancelled(both).await {
        Some(started) => Ok(Some(started?.0)),
        None => Ok(None),
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

fn identity(options: &Options, elected: bool, client: &Client) -> Identity {
    let pod = options.pod.clone();
    let home = options.operator_namespace.as_deref();
    let home = home.or(options.leader_election_namespace.as_deref());
    Identity {
        operator: OperatorId::new(&options.operator_name),
        instance: InstanceId::new(&options.instance),
        elected,
        namespace: options.operator_namespace.clone(),
        home: home
            .unwrap_or_else(|| client.default_namespace())
            .to_owned(),
        pod: pod.map(|pod| (pod, options.pod_uid.clone())),
    }
}

fn reporter(options: &Options) -> Reporter {
    Reporter {
        controller: options.operator_name.clone(),
        instance: Some(options.instance.clone()),
    }
}

impl ControllerContext {
    fn with_client(&self, client: Client) -> Self {
        let mut context = self.clone();
        context.connection.events = context.connection.events.with_client(client.clone());
        context.connection.cluster = context.connection.cluster.with_client(client.clone());
        context.connection.client = client;
        context.shared = Arc::default();
        context
    }
}

#[cfg(test)]
mod tests;

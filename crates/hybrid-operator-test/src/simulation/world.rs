//! A cluster, and the program that runs in it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use futures::future::BoxFuture;
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service};

use super::history::{Action, After, Named, Step};
use super::invariants;
use super::network::{Network, Transport};
use super::project::{Project, Setup};
use super::snapshot::{RECORDS, Snapshot, title, title_of};
use crate::api_server::{ApiServer, Options};

/// A process of the program, as it sees itself.
#[derive(Debug, Clone)]
pub struct Process {
    /// The base of its client.
    pub transport: Transport,
    /// The directory with its files.
    pub directory: PathBuf,
    /// Name of its Pod. A process that is killed is followed by one in the same Pod.
    pub name: String,
    /// Number of the process in its history, from one.
    pub number: usize,
    /// Whether other processes of the program run at the same time, of which one is elected.
    pub is_elected: bool,
    /// Is cancelled when it is asked to end.
    pub stop: CancellationToken,
}

/// A program: a function that ends when it is asked to.
pub(super) type Program =
    Arc<dyn Fn(Process) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// Time within which a program that is asked to end has ended.
const END_WITHIN: Duration = Duration::from_mins(1);

/// Time without a change after which a history is at rest between two steps.
const REST: Duration = Duration::from_secs(20);

/// Longest time with which watches show a change in half of the histories.
const LAG: Duration = Duration::from_secs(2);

pub(super) struct World {
    pub(super) server: ApiServer,
    pub(super) network: Network,
    program: Program,
    pub(super) project: Arc<Project>,
    setup: Setup,
    /// Number of processes of the program.
    replicas: usize,
    running: Vec<Running>,
    started: usize,
    /// Number of steps so far.
    steps: u64,
    /// Version of the last change at which the invariants held.
    checked: Option<u64>,
    /// Objects that people have changed or deleted, by title.
    pub(super) touched: BTreeSet<String>,
    /// Fields that people have set, each with the title of its object.
    pub(super) written: BTreeSet<(String, String)>,
    /// Objects that people have created beside custom resources, and when, by title.
    pub(super) others: BTreeMap<String, (Value, Instant)>,
    /// Objects beside custom resources that people have created and deleted.
    pub(super) former_others: Vec<Named>,
    /// Releases of which people have deleted a record, by namespace and name, and whether a revision was being
    /// replaced then, or could not be.
    pub(super) lost: BTreeMap<(String, String), bool>,
    /// Labels of the custom resources of releases of which a record is gone.
    pub(super) lost_hooks: BTreeSet<String>,
    /// Namespaces in which people have deleted a custom resource in the foreground that was being deleted already, or
    /// whose revision a process had left unfinished.
    pub(super) hurried: BTreeSet<String>,
    /// Whether the present step has come when nothing changed any more.
    pub(super) is_at_rest: bool,
    /// Whether a step has come before nothing changed any more, which interrupts what is under way.
    pub(super) has_interrupted: bool,
    /// Objects of which autoscalers have set the number of replicas.
    pub(super) scaled: BTreeMap<Named, Scaled>,
    /// Objects to which people have added a finalizer.
    pub(super) held: BTreeSet<Named>,
    /// Custom resources whose releases were to outlive them at some time, as people wanted them last.
    pub(super) orphaned: BTreeMap<Named, Value>,
    /// Objects that stay without their custom resource, with its title, and with their uids.
    pub(super) staying: BTreeMap<Named, (String, String)>,
    /// Specifications that each custom resource has had since its creation, by title.
    pub(super) past: BTreeMap<String, Vec<(Setup, Value)>>,
}

/// A number of replicas that an autoscaler has set.
pub(super) struct Scaled {
    /// Uids of the object and of its autoscaler.
    pub(super) uids: [String; 2],
    pub(super) replicas: u32,
    /// Whether the chart had set a number, if the autoscaler does not own it: nobody had set one, or it was the same.
    pub(super) charted: Option<bool>,
    /// States of custom resources since then, with what they depend on.
    pub(super) later: Vec<(Setup, Value)>,
}

struct Running {
    name: String,
    transport: Transport,
    stop: CancellationToken,
    task: JoinHandle<Result<(), BoxError>>,
}

impl World {
    /// Creates a cluster with the objects of a project, before the program is started.
    pub(super) async fn new(
        program: Program,
        project: Arc<Project>,
        setup: Setup,
        replicas: usize,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let is_late = seed.is_multiple_of(2);
        let lag = if is_late { LAG } else { Duration::ZERO };
        let server = ApiServer::new(&Options {
            seed,
            lag: Duration::ZERO..=lag,
            repeats: seed.is_multiple_of(3),
            ..Options::default()
        });
        let world = Self {
            network: Network::new(seed),
            server,
            program,
            project,
            setup,
            replicas,
            running: Vec::new(),
            started: 0,
            steps: 0,
            checked: None,
            touched: BTreeSet::new(),
            written: BTreeSet::new(),
            lost: BTreeMap::new(),
            lost_hooks: BTreeSet::new(),
            hurried: BTreeSet::new(),
            is_at_rest: false,
            has_interrupted: false,
            scaled: BTreeMap::new(),
            held: BTreeSet::new(),
            orphaned: BTreeMap::new(),
            staying: BTreeMap::new(),
            others: BTreeMap::new(),
            former_others: Vec::new(),
            past: BTreeMap::new(),
        };
        let objects = world.project.objects.iter().chain(&world.project.replaced);
        for object in objects.chain(world.settings()) {
            world.create(object).await?;
            if object.get("kind") == Some(&json!("CustomResourceDefinition")) {
                // Until its kind is served.
                tokio::time::sleep(Duration::from_secs(5)).await;
                world.server.last_change();
            }
        }
        for custom in &world.project.resources {
            let named = Named::of(&custom.object);
            if world.path(&named).is_none() {
                bail!("{named:?} is not served");
            }
        }
        Ok(world)
    }

    pub(super) fn setup(&self) -> Setup {
        self.setup
    }

    /// Returns the object that values refer to as people want it.
    pub(super) fn settings(&self) -> Option<&Value> {
        self.project.settings.get(self.setup.settings)
    }

    /// Changes the version of the program, or the settings.
    pub(super) fn set_up(&mut self, setup: Setup) {
        self.setup = setup;
        for past in self.past.values_mut() {
            // The change may be seen before the last one of the custom resource.
            let last = past.len().saturating_sub(2);
            let specs: Vec<Value> = past
                .iter()
                .skip(last)
                .map(|(_, spec)| spec.clone())
                .collect();
            for spec in specs {
                past.push((setup, spec));
            }
        }
        let present = self.present();
        for scaled in self.scaled.values_mut() {
            scaled.later.extend(present.iter().cloned());
        }
    }

    /// Returns whether a process of the program has been followed by another one.
    pub(super) fn has_restarted(&self) -> bool {
        self.started > self.replicas
    }

    pub(super) fn runs(&self) -> bool {
        !self.running.is_empty()
    }

    /// Starts the processes of the program that do not run.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        while self.running.len() < self.replicas {
            let number = self.started + 1;
            self.start_in(format!("process-{number}"))?;
        }
        Ok(())
    }

    /// Starts a process of the program in a Pod of this name.
    fn start_in(&mut self, name: String) -> anyhow::Result<()> {
        let directory = self.project.versions.get(self.setup.version).cloned();
        let directory = directory.context("the project has no such version")?;
        self.started += 1;
        let transport = self.network.connect(&self.server, &name, self.replicas > 1);
        let stop = CancellationToken::new();
        let process = Process {
            transport: transport.clone(),
            directory,
            name: name.clone(),
            number: self.started,
            is_elected: self.replicas > 1,
            stop: stop.clone(),
        };
        let task = tokio::spawn((self.program)(process));
        self.network.note(&format!("-- {name} starts"));
        self.running.push(Running {
            name,
            transport,
            stop,
            task,
        });
        Ok(())
    }

    /// Returns the process that leads: the one that holds a lease, or else the first one.
    fn leader(&self) -> usize {
        let leads = |running: &Running| invariants::leads(&self.server, &running.name);
        self.running.iter().position(leads).unwrap_or_default()
    }

    /// Removes the process that leads.
    fn take_leader(&mut self) -> Option<Running> {
        let leader = self.leader();
        (leader < self.running.len()).then(|| self.running.remove(leader))
    }

    /// Kills the process that leads; returns the name of its Pod.
    fn kill(&mut self) -> Option<String> {
        let running = self.take_leader()?;
        running.transport.sever();
        running.stop.cancel();
        running.task.abort();
        self.network.note(&format!("-- {} is killed", running.name));
        Some(running.name)
    }

    /// Asks all processes to end, and waits until they have ended.
    pub(super) async fn end(&mut self) -> anyhow::Result<()> {
        for running in std::mem::take(&mut self.running) {
            self.end_one(running).await?;
        }
        Ok(())
    }

    async fn end_one(&mut self, mut running: Running) -> anyhow::Result<()> {
        let name = running.name;
        self.network.note(&format!("-- {name} is asked to end"));
        running.stop.cancel();
        let ended = tokio::time::timeout(END_WITHIN, &mut running.task).await;
        running.transport.sever();
        match ended {
            Ok(Ok(Ok(()))) => Ok(()),
            // A leader may have lost its lease.
            Ok(Ok(Err(_))) if self.replicas > 1 => Ok(()),
            Ok(Ok(Err(error))) => bail!("{name} ended with an error: {error}"),
            Ok(Err(panic)) => bail!("{name} panicked: {panic}"),
            Err(_) => bail!("{name} did not end within {END_WITHIN:?}"),
        }
    }

    /// Fails if a process has panicked, something is not modelled, or there are too many requests.
    pub(super) async fn check(&mut self) -> anyhow::Result<()> {
        if let Some(request) = self.server.unmodelled().first() {
            bail!("the simulated API server does not model a request: {request}");
        }
        let limit = self.project.requests * (self.steps + 1);
        let calls = self.network.calls();
        if calls > limit {
            bail!("{calls} requests, of which {limit} are permitted");
        }
        if let Some(request) = self.network.forbidden().first() {
            bail!("{request}");
        }
        let last_change = self.server.last_change();
        if self.checked != Some(last_change) {
            invariants::check(self)?;
            self.checked = Some(last_change);
        }
        let is_finished = |running: &Running| running.task.is_finished();
        while let Some(index) = self.running.iter().position(is_finished) {
            let running = self.running.remove(index);
            running.transport.sever();
            if let Err(panic) = running.task.await {
                bail!("{} panicked: {panic}", running.name);
            }
            // A pod restarts a program that ends.
            self.start()?;
        }
        Ok(())
    }

    /// Returns whether people have deleted the namespace or a record of a release, or have used `helm` on it.
    pub(super) fn is_disturbed(&self, namespace: &str, name: &str) -> bool {
        let record = format!("Secret {namespace}/{RECORDS}{name}.v");
        let whole = [
            format!("Namespace /{namespace}"),
            format!("Release {namespace}/{name}"),
        ];
        let mut touched = self.touched.iter();
        touched.any(|touched| whole.contains(touched) || touched.starts_with(&record))
    }

    /// Returns what others have, or had, in namespaces and of kinds that outlive their release because of it.
    pub(super) fn used_by_others(&self) -> impl Iterator<Item = Named> {
        let others = self.others.values().map(|(object, _)| Named::of(object));
        others.chain(self.former_others.iter().cloned())
    }

    /// Does what a step says.
    pub(super) async fn step(&mut self, step: &Step) -> anyhow::Result<()> {
        self.steps += 1;
        self.wait(step.after).await?;
        self.network
            .note(&format!("-- {}", serde_json::to_string(&step.action)?));
        self.touched.extend(match &step.action {
            Action::Delete(named, _) | Action::Spoil(named, _) => Some(title_of(named)),
            Action::Recreate(object) => Some(title(object)),
            Action::Helm(custom, _) => {
                Some(format!("Release {}/{}", custom.namespace, custom.name))
            }
            _ => None,
        });
        match &step.action {
            Action::Deploy(version) => {
                self.end().await?;
                self.set_up(Setup {
                    version: *version,
                    ..self.setup
                });
                self.start()?;
            }
            Action::Kill => {
                if let Some(name) = self.kill() {
                    self.start_in(name)?;
                }
                self.start()?;
            }
            Action::Restart => {
                if let Some(leader) = self.take_leader() {
                    self.end_one(leader).await?;
                }
                self.start()?;
            }
            Action::Crash => drop(self.kill()),
            Action::Pause(time) => {
                if let Some(leader) = self.running.get(self.leader()) {
                    leader.transport.pause(Duration::from_millis(*time));
                }
            }
            Action::Partition(time) => self.network.partition(Duration::from_millis(*time)),
            Action::Fault(of, after, fault) => self.network.plan(*of, *after, *fault),
            Action::Forbid(named, time) => {
                if let Some(path) = self.path(named) {
                    self.network.forbid(&path, Duration::from_millis(*time));
                }
            }
            Action::Deny(named, time) => {
                if let Some(path) = self.path(named) {
                    self.network.deny(&path, Duration::from_millis(*time));
                }
            }
            Action::CutWatches => self.server.cut_watches(),
            Action::Compact => self.server.compact(),
            Action::Wait => {}
            people => self.act(people).await?,
        }
        self.check().await
    }

    async fn wait(&mut self, after: After) -> anyhow::Result<()> {
        match after {
            After::Time(_) => tokio::time::sleep(after.limit()).await,
            After::Requests(count) => {
                let mut requests = self.network.requests();
                let until = *requests.borrow() + u64::from(count);
                let reached = requests.wait_for(|requests| *requests >= until);
                drop(tokio::time::timeout(after.limit(), reached).await);
            }
            After::Fault => {
                let mut requests = self.network.requests();
                let reached = requests.wait_for(|_| !self.network.plans_faults());
                drop(tokio::time::timeout(after.limit(), reached).await);
            }
            After::Rest => {
                self.is_at_rest = self.rest(REST, after.limit()).await?;
                return Ok(());
            }
        }
        self.is_at_rest = false;
        self.has_interrupted = true;
        Ok(())
    }

    /// Waits until nothing has changed for some time; returns `false` if that is not reached in time.
    pub(super) async fn rest(&mut self, quiet: Duration, limit: Duration) -> anyhow::Result<bool> {
        let mut last = self.server.last_change();
        let mut since = Duration::ZERO;
        let mut waited = Duration::ZERO;
        let pause = quiet / 4;
        while since < quiet {
            if waited >= limit {
                return Ok(false);
            }
            tokio::time::sleep(pause).await;
            waited += pause;
            self.check().await?;
            let now = self.server.last_change();
            since += pause;
            if now != last {
                since = Duration::ZERO;
            }
            last = now;
        }
        Ok(true)
    }

    /// Sends a request about an object, with a body of JSON.
    pub(super) async fn send(
        &self,
        method: Method,
        named: &Named,
        body: &str,
    ) -> anyhow::Result<(u16, Value)> {
        match self.path(named) {
            Some(path) => self.call(method, &path, "application/json", body).await,
            None => Ok((404, Value::Null)),
        }
    }

    pub(super) fn path(&self, named: &Named) -> Option<String> {
        let (api_version, kind) = (&named.api_version, &named.kind);
        let (namespace, name) = (&named.namespace, &named.name);
        self.server.path(api_version, kind, namespace, name)
    }

    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        content: &str,
    ) -> anyhow::Result<(u16, Value)> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .header(http::header::ACCEPT, "application/json")
            .body(Body::from(content.as_bytes().to_vec()))?;
        self.network.trace_request("people", &request);
        let answer = self.server.service().call(request).await;
        self.network.trace_answer("people", &answer);
        let answer = answer?;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await;
        let body = body.map_err(|error| anyhow!(error))?;
        let body = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        if code == 501 {
            bail!("the simulated API server does not model {path}: {body}");
        }
        Ok((code, body))
    }

    /// Returns what is in the cluster.
    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.server.objects(), &self.customs())
    }

    pub(super) fn customs(&self) -> BTreeSet<String> {
        let customs = self.project.resources.iter();
        customs
            .map(|custom| Named::of(&custom.object).kind)
            .collect()
    }
}

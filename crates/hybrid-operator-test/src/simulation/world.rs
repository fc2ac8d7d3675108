//! A cluster, and the program that runs in it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use futures::future::BoxFuture;
use host::watch;
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower::{BoxError, Service};

use super::history::{Action, After, Named, Propagation, Step};
use super::network::{Network, Transport};
use super::project::Project;
use super::snapshot::{RECORD, Snapshot, title, title_of};
use crate::api_server::{ApiServer, Options};

/// A process of the program, as it sees itself.
#[derive(Debug, Clone)]
pub struct Process {
    /// The base of its client.
    pub transport: Transport,
    /// The directory with its files.
    pub directory: PathBuf,
    /// Its name, which no other process has.
    pub name: String,
    /// Becomes `true` when it is asked to end.
    pub stop: watch::Receiver<bool>,
}

/// A program: a function that ends when it is asked to.
pub(super) type Program =
    Arc<dyn Fn(Process) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// Time within which a program that is asked to end has ended.
const END_WITHIN: Duration = Duration::from_mins(1);

/// Time within which the finalizers of a custom resource that was replaced are back.
const FINALIZED_WITHIN: Duration = Duration::from_mins(5);

/// Time without a change after which a history is at rest between two steps.
const REST: Duration = Duration::from_secs(20);

/// Maximum number of requests of a history.
const MAX_REQUESTS: u64 = 100_000;

pub(super) struct World {
    pub(super) server: ApiServer,
    pub(super) network: Network,
    program: Program,
    project: Arc<Project>,
    version: usize,
    running: Option<Running>,
    started: usize,
    /// Objects that people have changed or deleted, by title.
    pub(super) touched: BTreeSet<String>,
    /// Objects that people have created beside custom resources, by title.
    pub(super) others: BTreeMap<String, Value>,
    /// Specifications that each custom resource has had since its creation, by title.
    pub(super) past: BTreeMap<String, Vec<(usize, Value)>>,
}

struct Running {
    transport: Transport,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), BoxError>>,
}

impl World {
    /// Creates a cluster with the objects of a project, before the program is started.
    pub(super) async fn new(
        program: Program,
        project: Arc<Project>,
        version: usize,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let server = ApiServer::new(&Options {
            seed,
            ..Options::default()
        });
        let world = Self {
            network: Network::new(seed),
            server,
            program,
            project,
            version,
            running: None,
            started: 0,
            touched: BTreeSet::new(),
            others: BTreeMap::new(),
            past: BTreeMap::new(),
        };
        for object in &world.project.objects {
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

    pub(super) fn version(&self) -> usize {
        self.version
    }

    /// Starts the program, unless it runs.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        if self.running.is_some() {
            return Ok(());
        }
        let directory = self.project.versions.get(self.version);
        let directory = directory
            .context("the project has no such version")?
            .clone();
        self.started += 1;
        let name = format!("process-{}", self.started);
        let transport = self.network.connect(&self.server, &name);
        let (stop, stopped) = watch::channel(false);
        let process = Process {
            transport: transport.clone(),
            directory,
            name,
            stop: stopped,
        };
        let task = tokio::spawn((self.program)(process));
        self.running = Some(Running {
            transport,
            stop,
            task,
        });
        self.network.note("-- the program starts");
        Ok(())
    }

    /// Kills the program.
    pub(super) fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            running.transport.sever();
            running.stop.send_replace(true);
            running.task.abort();
            self.network.note("-- the program is killed");
        }
    }

    /// Asks the program to end, and waits until it has ended.
    pub(super) async fn end(&mut self) -> anyhow::Result<()> {
        let Some(mut running) = self.running.take() else {
            return Ok(());
        };
        self.network.note("-- the program is asked to end");
        running.stop.send_replace(true);
        let ended = tokio::time::timeout(END_WITHIN, &mut running.task).await;
        running.transport.sever();
        match ended {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => bail!("the program ended with an error: {error}"),
            Ok(Err(panic)) => bail!("the program panicked: {panic}"),
            Err(_) => bail!("the program did not end within {END_WITHIN:?}"),
        }
    }

    /// Fails if the program has ended by itself, something is not modelled, or there are too many requests.
    pub(super) async fn check(&mut self) -> anyhow::Result<()> {
        if let Some(request) = self.server.unmodelled().first() {
            bail!("the simulated API server does not model a request: {request}");
        }
        if *self.network.requests().borrow() > MAX_REQUESTS {
            bail!("more than {MAX_REQUESTS} requests");
        }
        if self
            .running
            .as_ref()
            .is_some_and(|running| running.task.is_finished())
            && let Some(running) = self.running.take()
        {
            match running.task.await {
                // A pod restarts a program that ends.
                Ok(_) => {
                    running.transport.sever();
                    self.start()?;
                }
                Err(panic) => bail!("the program panicked: {panic}"),
            }
        }
        Ok(())
    }

    /// Does what a step says.
    pub(super) async fn step(&mut self, step: &Step) -> anyhow::Result<()> {
        self.wait(step.after).await?;
        self.network
            .note(&format!("-- {}", serde_json::to_string(&step.action)?));
        if let Action::Delete(named, _) | Action::Spoil(named, _) = &step.action {
            self.touched.insert(title_of(named));
        }
        match &step.action {
            Action::Apply(object) => self.apply(object).await?,
            Action::Put(object) => {
                self.put(object).await?;
            }
            Action::Recreate(object) => {
                let propagation = json!({"propagationPolicy": "Background"}).to_string();
                self.send(
                    Method::DELETE,
                    &Named::of(object),
                    "application/json",
                    &propagation,
                )
                .await?;
                for _ in 0..600 {
                    if self.create(object).await? != 409 {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                self.past.remove(&title(object));
                self.remember(object);
            }
            Action::Create(object) => {
                if self.create(object).await? == 201 {
                    self.others.insert(title(object), object.clone());
                }
            }
            Action::Delete(named, propagation) => self.delete(named, *propagation).await?,
            Action::Spoil(named, which) => self.spoil(named, *which).await?,
            Action::Deploy(version) => {
                self.end().await?;
                self.version = *version;
                for past in self.past.values_mut() {
                    if let Some((_, spec)) = past.last().cloned() {
                        past.push((*version, spec));
                    }
                }
                self.start()?;
            }
            Action::Kill => {
                self.kill();
                self.start()?;
            }
            Action::Restart => {
                self.end().await?;
                self.start()?;
            }
            Action::Crash => self.kill(),
            Action::Partition(time) => self.network.partition(Duration::from_millis(*time)),
            Action::Fault(of, after, fault) => self.network.plan(*of, *after, *fault),
            Action::CutWatches => self.server.cut_watches(),
            Action::Compact => self.server.compact(),
            Action::Wait => {}
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
            After::Rest => drop(self.rest(REST, after.limit()).await?),
        }
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
            since = if now == last {
                since + pause
            } else {
                Duration::ZERO
            };
            last = now;
        }
        Ok(true)
    }

    /// Creates an object; returns the code of the answer.
    pub(super) async fn create(&self, object: &Value) -> anyhow::Result<u16> {
        let mut named = Named::of(object);
        named.name.clear();
        let Some(path) = self.path(&named) else {
            return Ok(404);
        };
        let (code, answer) = self
            .call(Method::POST, &path, "application/json", &object.to_string())
            .await?;
        if code == 422 || code == 400 {
            bail!("cannot create {}: {answer}", title(object));
        }
        Ok(code)
    }

    async fn apply(&mut self, object: &Value) -> anyhow::Result<()> {
        let code = self.create(object).await?;
        if code == 409 {
            self.replace(&Named::of(object), |live| {
                let mut changed = live.clone();
                let spec = object.get("spec").cloned().unwrap_or_default();
                changed.as_object_mut()?.insert("spec".to_owned(), spec);
                let annotations = object.pointer("/metadata/annotations").cloned();
                let metadata = changed.get_mut("metadata")?.as_object_mut()?;
                match annotations {
                    Some(annotations) => metadata.insert("annotations".to_owned(), annotations),
                    None => metadata.remove("annotations"),
                };
                Some(changed)
            })
            .await?;
        } else if code == 201 {
            self.past.remove(&title(object));
        } else {
            bail!("cannot create {}: {code}", title(object));
        }
        self.remember(object);
        Ok(())
    }

    /// Replaces a custom resource by a PUT without its finalizers, and waits until they are back: what is deleted
    /// before is lost to any program. Neither is anything replaced that is being deleted, or while the program is
    /// down.
    async fn put(&mut self, object: &Value) -> anyhow::Result<()> {
        let named = Named::of(object);
        let is_deleted = |live: &Value| live.pointer("/metadata/deletionTimestamp").is_some();
        if self.running.is_none() {
            return Ok(());
        }
        self.replace(&named, |live| (!is_deleted(live)).then(|| object.clone()))
            .await?;
        self.remember(object);
        for _ in 0..FINALIZED_WITHIN.as_secs() {
            let (code, live) = self
                .send(Method::GET, &named, "application/json", "")
                .await?;
            if code == 404 || live.pointer("/metadata/finalizers").is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    }

    /// Replaces an object that exists, as `kubectl replace` does: with its resource version, and again if
    /// it changes in between.
    async fn replace(
        &self,
        named: &Named,
        changed: impl Fn(&Value) -> Option<Value>,
    ) -> anyhow::Result<()> {
        for _ in 0..100 {
            let (code, live) = self
                .send(Method::GET, named, "application/json", "")
                .await?;
            let Some(mut object) = (code == 200).then(|| changed(&live)).flatten() else {
                return Ok(());
            };
            let version = live.pointer("/metadata/resourceVersion").cloned();
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.insert("resourceVersion".to_owned(), version.unwrap_or_default());
            }
            let (code, answer) = self
                .send(Method::PUT, named, "application/json", &object.to_string())
                .await?;
            match code {
                409 => {}
                200 | 404 => return Ok(()),
                _ => bail!("cannot replace {named:?}: {code} {answer}"),
            }
        }
        bail!("{named:?} keeps changing")
    }

    /// Remembers a specification that a custom resource has had.
    fn remember(&mut self, object: &Value) {
        if !self.customs().contains(&Named::of(object).kind) {
            return;
        }
        let spec = object.get("spec").cloned().unwrap_or_default();
        self.past
            .entry(title(object))
            .or_default()
            .push((self.version, spec));
    }

    async fn delete(&mut self, named: &Named, propagation: Propagation) -> anyhow::Result<()> {
        let is_namespace = named.kind == "Namespace";
        self.others.retain(|_, object| {
            let other = Named::of(object);
            other != *named && !(is_namespace && other.namespace == named.name)
        });
        let options = json!({"propagationPolicy": propagation}).to_string();
        self.send(Method::DELETE, named, "application/json", &options)
            .await?;
        Ok(())
    }

    /// Changes one text or number below `data`, `spec`, or the labels of an object.
    async fn spoil(&self, named: &Named, which: u64) -> anyhow::Result<()> {
        let (code, object) = self
            .send(Method::GET, named, "application/json", "")
            .await?;
        // Nothing restores the content of a record that somebody overwrites, and the server models few changes
        // of definitions.
        let is_record = object.get("type") == Some(&json!(RECORD));
        if code != 200 || is_record || named.kind == "CustomResourceDefinition" {
            return Ok(());
        }
        let mut leaves = Vec::new();
        for place in ["/data", "/spec", "/rules", "/metadata/labels"] {
            if let Some(value) = object.pointer(place) {
                collect_leaves(place, value, &mut leaves);
            }
        }
        let count = u64::try_from(leaves.len()).unwrap_or(1).max(1);
        let index = usize::try_from(which % count).unwrap_or_default();
        let Some((path, value)) = leaves.get(index) else {
            return Ok(());
        };
        let changed = match value {
            Value::Number(number) => json!(number.as_i64().unwrap_or_default() + 1),
            Value::Bool(yes) => json!(!yes),
            _ if path.starts_with("/data") && named.kind == "Secret" => json!("c3BvaWxlZA=="),
            _ => json!("spoiled"),
        };
        let operations = json!([{"op": "replace", "path": path, "value": changed}]).to_string();
        self.send(
            Method::PATCH,
            named,
            "application/json-patch+json",
            &operations,
        )
        .await?;
        Ok(())
    }

    pub(super) async fn send(
        &self,
        method: Method,
        named: &Named,
        content_type: &str,
        body: &str,
    ) -> anyhow::Result<(u16, Value)> {
        match self.path(named) {
            Some(path) => self.call(method, &path, content_type, body).await,
            None => Ok((404, Value::Null)),
        }
    }

    fn path(&self, named: &Named) -> Option<String> {
        let Named {
            api_version,
            kind,
            namespace,
            name,
        } = named;
        self.server.path(api_version, kind, namespace, name)
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &str,
    ) -> anyhow::Result<(u16, Value)> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .header(http::header::ACCEPT, "application/json")
            .body(Body::from(body.as_bytes().to_vec()))?;
        self.network.trace_request("people", &request);
        let answer = self.server.service().call(request).await;
        self.network.trace_answer("people", &answer);
        let answer = answer?;
        let code = answer.status().as_u16();
        let body = answer
            .into_body()
            .collect()
            .await
            .map_err(|error| anyhow!(error))?;
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

    fn customs(&self) -> BTreeSet<String> {
        let kinds = self.project.resources.iter();
        kinds
            .filter_map(|custom| Some(custom.object.get("kind")?.as_str()?.to_owned()))
            .collect()
    }
}

fn collect_leaves(path: &str, value: &Value, leaves: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                collect_leaves(&format!("{path}/{name}"), value, leaves);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                collect_leaves(&format!("{path}/{index}"), value, leaves);
            }
        }
        // A label with a domain says whose the object is.
        _ if path.starts_with("/metadata/labels/") && path.contains("~1") => {}
        // Another key in a list is an item of somebody else beside the one that comes back.
        _ if ["/name", "/port", "/protocol"]
            .iter()
            .any(|key| path.ends_with(key)) => {}
        value => leaves.push((path.to_owned(), value.clone())),
    }
}

//! The network between the programs of a history and the API server: delays, faults, and a log.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt::Display;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use host::watch;
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use super::history::{Named, Requests};
use super::invariants;
use super::people::holds;
use crate::api_server::{ApiServer, ApiService};
use crate::fault::{AnswerBody, Fault, FaultService, Faults};
use crate::request::{Recorded, resource_of};

/// Longest time that a request or an answer is under way.
const LATENCY: Duration = Duration::from_millis(20);

/// Longest time between a list of what is in a namespace and the deletion that follows from it.
const RACE: Duration = Duration::from_secs(2);

/// A network. Clones share it.
#[derive(Clone)]
pub(super) struct Network {
    random: Arc<Mutex<fastrand::Rng>>,
    state: Arc<Mutex<State>>,
    /// Number of requests so far.
    requests: watch::Sender<u64>,
    started: Instant,
}

#[derive(Default)]
struct State {
    planned: Vec<Planned>,
    /// Until when nothing gets through, for all connections or for one.
    partitions: BTreeMap<Option<Arc<str>>, Instant>,
    /// Until when objects of a resource may not be listed and watched.
    unreadable: BTreeMap<String, Instant>,
    /// Until when accounts may not write objects of a resource.
    denied: BTreeMap<String, Instant>,
    /// Whether there were objects that might not be listed.
    has_forbidden: bool,
    /// Whether there were objects that accounts might not write.
    has_denied: bool,
    log: VecDeque<String>,
    /// All requests and the codes of their answers, if they are wanted.
    trace: Option<Vec<String>>,
    calls: u64,
    /// Jobs of hooks that programs have created, by name and metadata.
    hooks: HashSet<String>,
    repeated_hooks: Vec<Named>,
    /// Requests that a program must not send, each with the reason.
    forbidden: Vec<String>,
    /// Namespaces and definitions that a program has deleted, and when.
    emptied: Vec<(Named, Instant)>,
}

/// A fault of a request that is still to come.
struct Planned {
    of: Requests,
    after: u32,
    fault: Fault,
}

/// Number of lines that the log keeps.
const LOGGED: usize = 400;

impl Network {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
            state: Arc::default(),
            requests: watch::Sender::new(0),
            started: Instant::now(),
        }
    }

    pub(super) fn connect(&self, server: &ApiServer, name: &str, is_elected: bool) -> Transport {
        let faults = Faults::new();
        let network = self.clone();
        faults.inject_with(move |request| network.fault(request));
        Transport {
            inner: faults.layer().layer(server.service()),
            faults,
            server: server.clone(),
            name: name.into(),
            is_elected,
            network: self.clone(),
            alive: watch::Sender::new(true),
        }
    }

    pub(super) fn plan(&self, of: Requests, after: u32, fault: Fault) {
        self.state.lock().planned.push(Planned { of, after, fault });
    }

    /// Returns whether a planned fault has not happened yet.
    pub(super) fn plans_faults(&self) -> bool {
        !self.state.lock().planned.is_empty()
    }

    /// Lets nothing through for some time.
    pub(super) fn partition(&self, time: Duration) {
        let until = Instant::now() + time;
        self.state.lock().partitions.insert(None, until);
    }

    /// Forbids for some time to list and watch objects of the resource in a path.
    pub(super) fn forbid(&self, path: &str, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        state.has_forbidden = true;
        state.unreadable.insert(resource_of(path), until);
    }

    /// Forbids for some time that accounts write objects of the resource in a path.
    pub(super) fn deny(&self, path: &str, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        state.has_denied = true;
        state.denied.insert(resource_of(path), until);
    }

    /// Returns whether there were objects that might not be listed.
    pub(super) fn has_forbidden(&self) -> bool {
        self.state.lock().has_forbidden
    }

    /// Returns whether there were objects that accounts might not write.
    pub(super) fn has_denied(&self) -> bool {
        self.state.lock().has_denied
    }

    /// Ends all faults.
    pub(super) fn heal(&self) {
        let mut state = self.state.lock();
        state.planned.clear();
        state.partitions.clear();
        state.unreadable.clear();
        state.denied.clear();
    }

    /// Returns the number of requests so far, which changes.
    pub(super) fn requests(&self) -> watch::Receiver<u64> {
        self.requests.subscribe()
    }

    /// Returns the number of requests so far, without watches and those of leases and events.
    pub(super) fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// Returns the Jobs of hooks that a program has created twice with the same metadata.
    pub(super) fn repeated_hooks(&self) -> Vec<Named> {
        self.state.lock().repeated_hooks.clone()
    }

    /// Returns the requests that a program must not send, each with the reason.
    pub(super) fn forbidden(&self) -> Vec<String> {
        self.state.lock().forbidden.clone()
    }

    /// Returns whether a program deleted what holds an object soon after the object was created: no request deletes
    /// a namespace only if it is empty.
    pub(super) fn has_raced(&self, named: &Named, created: Instant) -> bool {
        let state = self.state.lock();
        let mut emptied = state.emptied.iter();
        emptied.any(|(container, at)| {
            holds(container, named) && (created..created + RACE).contains(at)
        })
    }

    /// Remembers a namespace or a definition that a request deletes.
    fn deleting(&self, request: &Recorded) {
        let kind = match (request.verb.as_str(), request.resource.as_str()) {
            ("delete", "namespaces") => "Namespace",
            ("delete", "customresourcedefinitions") => "CustomResourceDefinition",
            _ => return,
        };
        let named = Named {
            kind: kind.to_owned(),
            name: request.name.clone().unwrap_or_default(),
            ..Named::default()
        };
        self.state.lock().emptied.push((named, Instant::now()));
    }

    /// Remembers the Job of a hook that a request has created.
    fn created(&self, job: &Value) {
        let metadata = job.get("metadata").unwrap_or(&Value::Null);
        let annotations = metadata.get("annotations");
        let is_hook = annotations.is_some_and(|all| all.get("helm.sh/hook").is_some());
        let mut state = self.state.lock();
        if is_hook && !state.hooks.insert(metadata.to_string()) {
            state.repeated_hooks.push(Named::of(job));
        }
    }

    /// Adds a line to the log.
    pub(super) fn note(&self, text: &str) {
        let at = self.started.elapsed();
        let mut state = self.state.lock();
        if state.log.len() == LOGGED {
            state.log.pop_front();
        }
        let line = format!("{:>9.3} {text}", at.as_secs_f64());
        state.log.push_back(line);
    }

    /// Returns the end of the log.
    pub(super) fn log(&self) -> Vec<String> {
        self.state.lock().log.iter().cloned().collect()
    }

    /// Keeps all requests from now on.
    pub(super) fn keep_trace(&self) {
        self.state.lock().trace = Some(Vec::new());
    }

    /// Returns the requests that were kept, with the codes of their answers.
    pub(super) fn take_trace(&self) -> Vec<String> {
        self.state.lock().trace.take().unwrap_or_default()
    }

    fn trace(&self, line: impl FnOnce() -> String) {
        let at = self.started.elapsed();
        if let Some(trace) = &mut self.state.lock().trace {
            trace.push(format!("{} {}", at.as_nanos(), line()));
        }
    }

    /// Adds a request to the trace, as it is sent; without the name and the times of an event, which kube's
    /// recorder takes from the clock of the machine.
    pub(super) fn trace_request(&self, by: &str, request: &Request<Body>) {
        self.trace(|| {
            let sent = Recorded::of(request);
            if sent.resource == "events" {
                let text = |field| sent.json().get(field).and_then(Value::as_str);
                let (reason, note) = (text("reason"), text("note"));
                return format!("{by} {} event {reason:?} {note:?}", request.method());
            }
            let body = request.body().try_clone();
            let body = body.and_then(|body| body.collect_bytes().now_or_never());
            let body = body.and_then(Result::ok).unwrap_or_default();
            let body = String::from_utf8_lossy(&body).replace('\n', "\\n");
            format!("{by} {} {} {body}", request.method(), request.uri())
        });
    }

    pub(super) fn trace_answer<T, E: Display>(&self, by: &str, answer: &Result<Response<T>, E>) {
        self.trace(|| match answer {
            Ok(answer) => format!("{by} is answered {}", answer.status().as_u16()),
            Err(error) => format!("{by} is not answered: {error}"),
        });
    }

    fn fault(&self, request: &Recorded) -> Option<Fault> {
        let is_lease = matches!(request.resource.as_str(), "leases" | "events");
        let mut state = self.state.lock();
        if request.verb != "watch" && !is_lease {
            state.calls += 1;
        }
        let class = match request.verb.as_str() {
            "watch" => Requests::Watches,
            _ if request.is_write() => Requests::Writes,
            _ => Requests::Reads,
        };
        let mut fault = None;
        for planned in &mut state.planned {
            if planned.of != class || is_lease {
                continue;
            }
            match planned.after.checked_sub(1) {
                Some(left) => planned.after = left,
                None if fault.is_none() => {
                    fault = Some(planned.fault);
                    planned.after = u32::MAX;
                }
                None => {}
            }
        }
        state.planned.retain(|planned| planned.after != u32::MAX);
        let forbidden = match request.verb.as_str() {
            "list" | "watch" => state.unreadable.get(&request.resource),
            _ if request.is_write() && request.user.is_some() => {
                state.denied.get(&request.resource)
            }
            _ => None,
        };
        if forbidden.is_some_and(|until| Instant::now() < *until) {
            fault = Some(Fault::Status(403));
        }
        drop(state);
        if !is_lease {
            let name = request.name.as_deref().unwrap_or_default();
            let namespace = request.namespace.as_deref().unwrap_or_default();
            let fault = fault.map(|fault| format!("  {fault:?}"));
            let fault = fault.unwrap_or_default();
            self.note(&format!("{} {namespace}/{name}{fault}", request.kind()));
        }
        self.requests.send_modify(|count| *count += 1);
        fault
    }

    /// Draws how long a request or an answer is under way.
    fn latency(&self, process: &Arc<str>) -> Duration {
        let drawn = self.random.lock().f64();
        let keys = [None, Some(Arc::clone(process))];
        let state = self.state.lock();
        let partitions = keys.map(|key| state.partitions.get(&key).copied());
        drop(state);
        let until = partitions.into_iter().flatten().max();
        let held = until.map(|until| until.saturating_duration_since(Instant::now()));
        LATENCY.mul_f64(drawn) + held.unwrap_or_default()
    }
}

/// The connection of a process to the API server, to be the base of its client. Clones share it.
#[derive(Clone)]
pub struct Transport {
    inner: FaultService<ApiService>,
    faults: Faults,
    server: ApiServer,
    /// Name of the process.
    name: Arc<str>,
    /// Whether the process is one of several, of which one is elected.
    is_elected: bool,
    network: Network,
    alive: watch::Sender<bool>,
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport").finish_non_exhaustive()
    }
}

impl Transport {
    /// Lets nothing through for some time, as if the process was paused.
    pub(super) fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.network.state.lock();
        state.partitions.insert(Some(Arc::clone(&self.name)), until);
    }

    /// Lets nothing through any more, as if the process was gone.
    pub(super) fn sever(&self) {
        self.alive.send_replace(false);
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let transport = self.clone();
        let mut alive = self.alive.subscribe();
        if *alive.borrow() {
            self.network.trace_request(&self.name, &request);
            if request.method() != Method::GET {
                let sent = Recorded::of(&request);
                let leader = self.is_elected.then_some(&*self.name);
                let broken = invariants::broken_by(&self.server, leader, &sent);
                self.network.deleting(&sent);
                self.network.state.lock().forbidden.extend(broken);
            }
        }
        let exchange = async move {
            tokio::time::sleep(transport.network.latency(&transport.name)).await;
            if !*transport.alive.borrow() {
                return std::future::pending().await;
            }
            let is_of_jobs = request.uri().path().contains("/jobs");
            let job = is_of_jobs.then(|| Recorded::of(&request));
            let answer = transport.inner.clone().call(request).await;
            if let (Some(job), Ok(answer)) = (job.and_then(|job| job.body), &answer)
                && answer.status() == StatusCode::CREATED
            {
                transport.network.created(&job);
            }
            transport.faults.forget();
            tokio::time::sleep(transport.network.latency(&transport.name)).await;
            transport.network.trace_answer(&transport.name, &answer);
            answer
        };
        let severed = async move {
            // The value changes only when the process is gone.
            drop(alive.wait_for(|alive| !*alive).await);
        };
        async move {
            tokio::select! {
                biased;
                () = severed => std::future::pending().await,
                answer = exchange => answer,
            }
        }
        .boxed()
    }
}

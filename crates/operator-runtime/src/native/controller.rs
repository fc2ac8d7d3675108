//! Runs the functions of a native controller.

use host::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube_objects::request::{self, Call};
use kube_objects::{ApiError, cut_off};
use parking_lot::Mutex;
use tokio::time::Instant;

use futures::StreamExt;
use futures::future::BoxFuture;
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::core::GroupVersionKind;
use serde_json::json;
use tracing::{Instrument, Span, error};

use super::action::Action;
use super::apply::{Applier, kind_of};
use super::builder::{Builder, Function, SourceContext, group_version_kind};
use super::context::{Context, Process, Shared, primary_of};
use super::error::Error;
use super::part::Part;
use super::permissions;
use super::reader::Readers;
use super::shown;
use crate::controller::{
    Backoff, Cached, Key, ObjectCache, Outcome, Priority, QueueHandle, Reconcile, ReconcileError,
    Request, Terminal, TypedObject, WorkerOptions, Workers, resync_in,
};
use crate::manager::{Controller, ControllerContext, ControllerError};
use crate::ring::Ring;

/// Pauses of a function that returns [`Action::Now`] again and again.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Time that a function may compute without an `.await` before that is reported.
const BLOCKED: Duration = Duration::from_secs(5);
/// Time beyond the deadline after which a function that blocks its thread counts as failed.
const GRACE: Duration = Duration::from_secs(5);

/// Cleanup before a custom resource is deleted.
pub(super) struct Cleanup<K> {
    pub(super) finalizer: String,
    pub(super) function: Function<K>,
}

/// A controller built from a function.
pub struct NativeController<K> {
    builder: Builder<K>,
    function: Function<K>,
}

impl<K: TypedObject> NativeController<K> {
    pub(super) fn new(builder: Builder<K>, function: Function<K>) -> Self {
        Self { builder, function }
    }
}

impl<K: TypedObject> Controller for NativeController<K> {
    fn name(&self) -> &str {
        &self.builder.name
    }

    fn kind(&self) -> Option<GroupVersionKind> {
        Some(group_version_kind::<K>())
    }

    fn definition(&self) -> Option<CustomResourceDefinition> {
        self.builder.definition.clone()
    }

    fn owned_kinds(&self) -> Vec<GroupVersionKind> {
        self.builder.owned_kinds.clone()
    }

    fn permissions(&self) -> Vec<PolicyRule> {
        let part = self.builder.part.as_deref();
        let finalizer = self.builder.cleanup.is_some() || part.is_some();
        let mut rules = permissions::of_primary::<K>(finalizer);
        rules.extend(part.into_iter().flat_map(Part::permissions));
        rules.extend(self.builder.permissions.iter().cloned());
        permissions::combined(rules)
    }

    fn run(
        self: Box<Self>,
        context: ControllerContext,
    ) -> BoxFuture<'static, Result<(), ControllerError>> {
        Box::pin(async move {
            let Self {
                mut builder,
                function,
            } = *self;
            let queue = context.queue(&builder.name, builder.backoff_of_failures());
            let caches = &context.caches.objects;
            let primaries = primaries::<K>(&context, builder.selector.as_deref());
            let mut readers = Readers::default();
            let sources = std::mem::take(&mut builder.sources);
            sources.open(&mut SourceContext {
                caches,
                readers: &mut readers,
                queue: &queue,
                operator: &context.identity.operator,
                primaries: &primaries,
            });
            let stop = context.stop.clone();
            for mut keys in builder.triggers.drain(..) {
                let (queue, stop) = (queue.clone(), stop.clone());
                let forward = async move {
                    while let Some(key) = keys.next().await {
                        queue.add(key, Priority::Event);
                    }
                };
                tokio::spawn(async move { stop.run_until_cancelled(forward).await });
            }
            // With incomplete lists, a function would take existing objects for missing.
            let synced = async {
                for cache in readers.synced() {
                    cache.await;
                }
                primaries.synced().await;
            };
            if stop.run_until_cancelled(synced).await.is_none() {
                return Ok(());
            }
            let mut part = None;
            if let Some(added) = &builder.part {
                part = stop
                    .run_until_cancelled(added.start(&context, &queue))
                    .await;
                if part.is_none() {
                    return Ok(());
                }
            }
            let finalizer = match (&builder.cleanup, &builder.part) {
                (Some(cleanup), _) => Some(cleanup.finalizer.clone()),
                (None, part) => part.as_ref().map(|part| part.finalizer().to_owned()),
            };
            follow_primaries(
                &primaries,
                &queue,
                &builder,
                finalizer.clone(),
                context.ring.clone(),
            );
            let _shown = shown::show(&context, &primaries, &queue);
            let options = WorkerOptions {
                concurrency: builder
                    .concurrency
                    .unwrap_or(context.limits.max_concurrent_reconciles),
                max_share: context.limits.max_share,
                deadline: builder.deadline + GRACE,
            };
            let connection = &context.connection;
            let shared = Shared {
                applier: Applier {
                    client: connection.client.clone(),
                    operator: context.identity.operator.clone(),
                    manager: builder.name.clone(),
                },
                recorder: connection.events.recorder(),
                readers,
                statuses: Mutex::default(),
                part,
                process: Process::Running(Box::new(context.clone())),
            };
            let cleanup = builder.cleanup.map(|cleanup| cleanup.function);
            let reconciler = NativeReconciler {
                name: builder.name,
                function,
                finalizer,
                cleanup,
                resync: builder.resync.or(context.limits.sync_period),
                deadline: builder.deadline,
                primaries,
                ring: context.ring.clone(),
                shared: Arc::new(shared),
                running: Arc::default(),
                uids: Mutex::default(),
                pauses: Mutex::new(Backoff::new(FIRST_PAUSE, LONGEST_PAUSE)),
                metrics: context.metrics.clone(),
            };
            Workers::new(&queue, Arc::new(reconciler), options)
                .run(stop)
                .await;
            Ok(())
        })
    }
}

/// Returns the custom resources of a selector that this process handles.
fn primaries<K: TypedObject>(
    context: &ControllerContext,
    selector: Option<&str>,
) -> ObjectCache<K> {
    let caches = &context.caches.objects;
    let Some(ring) = &context.ring else {
        return caches.shared(selector);
    };
    let (client, targets) = (context.client(), caches.targets::<K>());
    ring.follow_unassigned(client, targets, &context.metrics, &context.stop);
    caches.shared(Some(&ring.selector(selector)))
}

/// Puts custom resources into the queue when they change.
fn follow_primaries<K: TypedObject>(
    primaries: &ObjectCache<K>,
    queue: &QueueHandle,
    builder: &Builder<K>,
    finalizer: Option<String>,
    ring: Option<Ring>,
) {
    let (queue, predicate) = (queue.clone(), builder.predicate.clone());
    primaries.subscribe(Box::new(move |key, before, after| {
        let before = before.and_then(Cached::object);
        let worth = match after {
            // An object that is gone or cannot be decoded is reported.
            None | Some(Cached::Undecodable(_)) => true,
            Some(Cached::Object(after)) => {
                let replaced = before.is_some_and(|before| before.uid() != after.uid());
                let deleting = after.meta().deletion_timestamp.is_some();
                let before = before.filter(|_| !replaced);
                // A PUT without finalizers changes nothing else.
                let held = |object: &K| {
                    let mut names = finalizer.iter();
                    names.all(|name| object.finalizers().contains(name))
                };
                let released = before.is_some_and(|before| held(before)) && !held(after);
                let drained = (ring.as_ref()).is_some_and(|ring| ring.is_drained(after.meta()));
                deleting
                    || drained
                    || released
                    || predicate.accepts(before.map(|object| &**object), after)
            }
        };
        if worth {
            // After a change, earlier failures no longer delay the reconcile.
            queue.reset_backoff(key);
            queue.add(key.clone(), Priority::Event);
        }
    }));
}

struct NativeReconciler<K> {
    name: String,
    function: Function<K>,
    /// Holds a custom resource that is being deleted.
    finalizer: Option<String>,
    cleanup: Option<Function<K>>,
    resync: Option<Duration>,
    deadline: Duration,
    primaries: ObjectCache<K>,
    ring: Option<Ring>,
    shared: Arc<Shared>,
    /// Keys whose function runs, including those that block a thread beyond their deadline.
    running: Arc<Mutex<HashSet<Key>>>,
    /// The objects that everything else that is known under their keys belongs to.
    uids: Mutex<HashMap<Key, String>>,
    pauses: Mutex<Backoff>,
    metrics: crate::telemetry::metrics::Metrics,
}

impl<K: TypedObject> Reconcile for NativeReconciler<K> {
    fn reconcile(&self, request: Request) -> BoxFuture<'_, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let key = &request.key;
            let outcome = match self.primaries.entry(key) {
                None => {
                    self.forget(key);
                    return Ok(Outcome::Done);
                }
                Some(Cached::Undecodable(message)) => {
                    let kind = K::kind(&());
                    let error = format!(
                        "{kind} {key} does not have the fields that this operator expects ({message}); change it, or delete it and create it again"
                    );
                    return Err(Terminal::new(error).into());
                }
                Some(Cached::Object(object)) => {
                    if let Some(ring) = self
                        .ring
                        .as_ref()
                        .filter(|ring| ring.is_drained(object.meta()))
                    {
                        self.forget(key);
                        let client = &self.shared.applier.client;
                        ring.give_up(client, &kind_of::<K>(), object.meta()).await?;
                        return Ok(Outcome::Done);
                    }
                    self.forget_former(key, object.meta().uid.as_deref().unwrap_or_default());
                    self.run(key, object).await
                }
            };
            match outcome {
                Ok(action) => Ok(self.next(key, action)),
                Err(Error::Terminal(error)) => Err(Terminal::new(error).into()),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn forget(&self, key: &Key) {
        self.uids.lock().remove(key);
        self.forget_state(key);
    }
}

impl<K: TypedObject> NativeReconciler<K> {
    /// Calls the right function for the state of a custom resource.
    async fn run(&self, key: &Key, object: Arc<K>) -> Result<Action, Error> {
        let deleting = object.meta().deletion_timestamp.is_some();
        let Some(finalizer) = &self.finalizer else {
            if deleting {
                // What it owns is removed by the garbage collector.
                return Ok(Action::Done);
            }
            return self.call(key, &self.function, object).await;
        };
        let is_held = object.finalizers().contains(finalizer);
        match (deleting, is_held) {
            (true, false) => Ok(Action::Done),
            (true, true) => {
                let action = self.clean_up(key, &object).await?;
                if action == Action::Done {
                    self.set_finalizers(&object, finalizer, false).await?;
                }
                Ok(action)
            }
            (false, true) => self.call(key, &self.function, object).await,
            (false, false) => match self.set_finalizers(&object, finalizer, true).await? {
                Some(object) => self.call(key, &self.function, object).await,
                None => Ok(Action::Done),
            },
        }
    }

    /// Calls the clean-up function, and lets the part clean up when it is done.
    async fn clean_up(&self, key: &Key, object: &Arc<K>) -> Result<Action, Error> {
        if let Some(cleanup) = &self.cleanup {
            let action = self.call(key, cleanup, Arc::clone(object)).await?;
            if action != Action::Done {
                return Ok(action);
            }
        }
        let Some(part) = &self.shared.part else {
            return Ok(Action::Done);
        };
        let until = Instant::now() + self.deadline;
        let left = part.clean_up(&primary_of(&**object), until).await?;
        Ok(left.map_or(Action::Done, Action::After))
    }

    /// Calls a function on a thread of its own, so that one that blocks its thread holds up neither
    /// watches nor leases nor other controllers.
    async fn call(
        &self,
        key: &Key,
        function: &Function<K>,
        object: Arc<K>,
    ) -> Result<Action, Error> {
        let busy = Busy::begin(&self.running, key).ok_or_else(|| {
            Error::other("the previous call for this object still blocks its thread")
        })?;
        let context = Context::new(Arc::clone(&object), Arc::clone(&self.shared), self.deadline);
        let call = function(object, context.clone());
        let polls = Arc::new(Polls::new());
        let watched = Watched {
            future: call,
            polls: Arc::clone(&polls),
        };
        let deadline = self.deadline;
        let bounded = cut_off::within(deadline, watched);
        let bounded = bounded.instrument(Span::current());
        let cancel = CancelOnDrop::default();
        let cancelled = cancel.0.clone();
        let mut task = host::blocking_future(async move {
            let _busy = busy;
            cancelled.run_until_cancelled_owned(bounded).await
        });
        let mut reported = false;
        let result = loop {
            tokio::select! {
                biased;
                result = &mut task => break result,
                () = tokio::time::sleep(Duration::from_secs(1)) => {
                    if !reported && polls.blocked_for() > BLOCKED {
                        reported = true;
                        self.metrics.blocked(&self.name);
                        error!("the function blocks its thread; use .await, or tokio::task::spawn_blocking for long computations");
                    }
                }
            }
        };
        match result {
            Ok(Some(Ok(result))) => Ok(no_later_than(context.due(), result?)),
            Ok(Some(Err(cut_off))) => Err(Error::other(cut_off)),
            Ok(None) => Err(Error::other("the operator is shutting down")),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Error::other("the operator is shutting down")),
            },
        }
    }

    /// Adds or removes the finalizer; returns the object as it is then, or `None` if it is gone.
    async fn set_finalizers(
        &self,
        object: &K,
        finalizer: &str,
        present: bool,
    ) -> Result<Option<Arc<K>>, Error> {
        let kind = kind_of::<K>();
        let mut finalizers = object.finalizers().to_vec();
        finalizers.retain(|name| name != finalizer);
        if present {
            finalizers.push(finalizer.to_owned());
        }
        let meta = object.meta();
        // The version makes sure that no other finalizer is lost that was added meanwhile.
        let body = json!({"metadata": {
            "uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": finalizers,
        }});
        let key = Key::of(object);
        let (namespace, name) = (key.namespace.as_deref(), Some(&*key.name));
        let path = request::path(&kind, namespace, name)?;
        let manager = request::query_value(&self.shared.applier.manager);
        let call = Call::with_body(
            http::Method::PATCH,
            format!("{path}?fieldManager={manager}"),
            request::JSON,
            request::MERGE_PATCH,
            body.to_string().into_bytes(),
        );
        let target = request::target("patch", &kind, namespace, name);
        match request::call(&self.shared.applier.client, target, call).await {
            Ok(answer) => Ok(Some(Arc::new(answer.decode()?))),
            Err(ApiError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Says when the object is reconciled again.
    fn next(&self, key: &Key, action: Action) -> Outcome {
        let mut pauses = self.pauses.lock();
        match action {
            Action::Now => Outcome::After(pauses.failed(key, 0)),
            Action::After(delay) if delay < FIRST_PAUSE => Outcome::After(pauses.failed(key, 0)),
            Action::After(delay) => {
                pauses.reset(key);
                Outcome::After(delay)
            }
            Action::Done => {
                pauses.reset(key);
                self.resync.map_or(Outcome::Done, |period| {
                    Outcome::After(resync_in(key, period))
                })
            }
        }
    }

    /// Forgets a former object of this name.
    fn forget_former(&self, key: &Key, uid: &str) {
        let before = self.uids.lock().insert(key.clone(), uid.to_owned());
        if before.is_some_and(|before| before != uid) {
            self.forget_state(key);
        }
    }

    fn forget_state(&self, key: &Key) {
        self.pauses.lock().reset(key);
        self.shared.statuses.lock().remove(key);
        if let Some(part) = &self.shared.part {
            part.forget(key);
        }
    }
}

/// Shortens the time until the next reconcile to `due`.
fn no_later_than(due: Option<Duration>, action: Action) -> Action {
    match (action, due) {
        (Action::Done, Some(due)) => Action::After(due),
        (Action::After(delay), Some(due)) => Action::After(delay.min(due)),
        (action, _) => action,
    }
}

/// Cancels a function when nobody awaits it any more.
#[derive(Default)]
struct CancelOnDrop(tokio_util::sync::CancellationToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Marks a key while its function runs.
struct Busy {
    keys: Arc<Mutex<HashSet<Key>>>,
    key: Key,
}

impl Busy {
    /// Returns `None` if a function of the key runs already.
    fn begin(keys: &Arc<Mutex<HashSet<Key>>>, key: &Key) -> Option<Self> {
        let inserted = keys.lock().insert(key.clone());
        inserted.then(|| Self {
            keys: Arc::clone(keys),
            key: key.clone(),
        })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.keys.lock().remove(&self.key);
    }
}

/// Start of the poll of a future that is in progress.
struct Polls {
    start: Instant,
    /// Milliseconds from `start`, plus one; 0 between polls.
    began: AtomicU64,
}

impl Polls {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            began: AtomicU64::new(0),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    /// Returns how long the poll in progress has taken so far.
    fn blocked_for(&self) -> Duration {
        match self.began.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            began => Duration::from_millis(self.now().saturating_sub(began)),
        }
    }
}

/// A future whose polls are timed.
struct Watched {
    future: BoxFuture<'static, Result<Action, Error>>,
    polls: Arc<Polls>,
}

impl Future for Watched {
    type Output = Result<Action, Error>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        self.polls.began.store(self.polls.now(), Ordering::Relaxed);
        let poll = self.future.as_mut().poll(context);
        self.polls.began.store(0, Ordering::Relaxed);
        poll
    }
}

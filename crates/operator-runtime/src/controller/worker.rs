//! Takes keys from a queue and reconciles them with bounded concurrency.
//!
//! A reconcile that panics or takes too long is an error of its key alone. Workers do not sleep: a
//! delay is a delayed key in the queue.

use host::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use kube_objects::cut_off::CutOff;
use kube_objects::shards::{Permit, Shards};
use kube_objects::watch::{Restarts, panic_text};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info_span, warn};

use super::namespaces::NamespaceFilter;
use super::queue::{Share, Turn};
use super::{Backoff, Key, Outcome, Priority, Queue, Reconcile, ReconcileError, Request, Terminal};
use crate::telemetry::metrics::{ControllerMetrics, ReconcileResult};
use crate::telemetry::queues::QueueState;
use crate::telemetry::resources::{ResourceAges, ResourceOutputs};

/// Concurrency and time limit of workers.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Number of keys that are reconciled concurrently.
    pub concurrency: usize,
    /// Largest part of these, in percent, that one namespace has while others wait; at least one.
    pub max_share: u8,
    /// Time limit of a reconcile. One that can tell of it in time cuts itself off earlier.
    pub deadline: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        // No less than two: one key whose reconcile takes long must not hold up all others.
        let concurrency = host::cpus().max(2);
        Self {
            concurrency,
            max_share: 50,
            deadline: Duration::from_mins(5),
        }
    }
}

/// A handle for adding keys to a controller's queue.
#[derive(Clone)]
pub struct QueueHandle(Arc<QueueInner>);

/// A queue that may have been dropped with its controller.
pub struct WeakQueueHandle(Weak<QueueInner>);

impl WeakQueueHandle {
    pub fn upgrade(&self) -> Option<QueueHandle> {
        self.0.upgrade().map(QueueHandle)
    }
}

struct QueueInner {
    queue: Mutex<Queue>,
    backoff: Mutex<Backoff>,
    filter: NamespaceFilter,
    shards: Shards,
    /// Keys whose namespace is not selected, or handled by another process.
    set_aside: Mutex<HashSet<Key>>,
    wake: Notify,
    metrics: ControllerMetrics,
}

impl QueueInner {
    /// Takes a ready key of this process whose namespace is selected, and sets others aside. `forget` is called for keys of
    /// other processes.
    fn take(&self, forget: impl Fn(&Key)) -> Option<(Key, Permit)> {
        loop {
            let (key, waited, added) = {
                let mut queue = self.queue.lock();
                let key = queue.take(Instant::now())?;
                let waited = queue.waited(&key);
                (key, waited, queue.take_added())
            };
            self.metrics.added(added);
            let permit = self.shards.begin(key.namespace.as_deref());
            if permit.is_none() {
                forget(&key);
            }
            if let Some(permit) = permit
                && self.filter.accepts(&key)
            {
                self.metrics.taken(waited);
                return Some((key, permit));
            }
            self.set_aside.lock().insert(key.clone());
            self.queue.lock().done(&key);
            // That may have changed in between.
            if self.accepts(&key) && self.set_aside.lock().remove(&key) {
                let now = Instant::now();
                self.queue.lock().add(key, Priority::Event, now);
            }
        }
    }

    fn accepts(&self, key: &Key) -> bool {
        self.filter.accepts(key) && self.shards.begin(key.namespace.as_deref()).is_some()
    }

    /// Returns the state of the queue, for metrics.
    fn state(&self) -> QueueState {
        let queue = self.queue.lock();
        let mut state = QueueState {
            depth: queue.len(),
            ..QueueState::default()
        };
        for running in queue.running(Instant::now()) {
            state.unfinished += running;
            state.longest = state.longest.max(running);
        }
        state
    }
}

impl QueueHandle {
    /// Creates an empty queue outside of a manager, for tests. Its metrics are not served.
    pub fn detached(name: &str) -> Self {
        let metrics = ControllerMetrics::detached(name);
        Self::filtered(
            metrics,
            Backoff::default(),
            &NamespaceFilter::default(),
            &Shards::default(),
        )
    }

    /// Creates an empty queue with these pauses after failures. Keys of namespaces that are not
    /// selected, or handled by another process, wait until they are.
    pub(crate) fn filtered(
        metrics: ControllerMetrics,
        backoff: Backoff,
        filter: &NamespaceFilter,
        shards: &Shards,
    ) -> Self {
        let queue = Self(Arc::new(QueueInner {
            queue: Mutex::default(),
            backoff: Mutex::new(backoff),
            filter: filter.clone(),
            shards: shards.clone(),
            set_aside: Mutex::default(),
            wake: Notify::new(),
            metrics,
        }));
        let waiting = Arc::downgrade(&queue.0);
        let observed = Weak::clone(&waiting);
        let state = move || observed.upgrade().map(|queue| queue.state());
        queue.0.metrics.watch_queue(state);
        let joined = Weak::clone(&waiting);
        filter.on_selected(move |namespace| {
            if let Some(queue) = waiting.upgrade() {
                Self(queue).resume(|key| key.namespace.as_deref() == Some(namespace));
            }
        });
        shards.on_held(move || {
            if let Some(queue) = joined.upgrade() {
                let shards = queue.shards.clone();
                Self(queue).resume(|key| shards.begin(key.namespace.as_deref()).is_some());
            }
        });
        queue
    }

    /// Returns when a key is reconciled next.
    pub fn turn(&self, key: &Key) -> Turn {
        self.0.queue.lock().turn(key)
    }

    /// Returns a handle that does not keep the queue.
    pub fn downgrade(&self) -> WeakQueueHandle {
        WeakQueueHandle(Arc::downgrade(&self.0))
    }

    /// Makes keys ready that were set aside.
    fn resume(&self, is_resumed: impl Fn(&Key) -> bool) {
        let mut set_aside = self.0.set_aside.lock();
        let keys: Vec<Key> = set_aside.extract_if(is_resumed).collect();
        drop(set_aside);
        for key in keys {
            self.add(key, Priority::Event);
        }
    }

    /// Makes a key ready.
    pub fn add(&self, key: Key, priority: Priority) {
        let mut queue = self.0.queue.lock();
        queue.add(key, priority, Instant::now());
        let added = queue.take_added();
        drop(queue);
        self.0.metrics.added(added);
        self.0.wake.notify_one();
    }

    /// Takes all keys that are ready, for tests.
    pub fn ready(&self) -> std::collections::BTreeSet<Key> {
        let taken: Vec<_> = std::iter::from_fn(|| self.0.take(|_| {})).collect();
        for (key, _) in &taken {
            self.0.queue.lock().done(key);
        }
        taken.into_iter().map(|(key, _)| key).collect()
    }

    /// Counts the restarts of the watches that fill the queue.
    pub fn watch_restarts(&self) -> Restarts {
        self.0.metrics.restarts()
    }

    /// Returns the ages of custom resources, for metrics.
    pub fn resource_ages(&self) -> ResourceAges {
        self.0.metrics.ages()
    }

    /// Returns the numbers in the outputs of releases, for metrics.
    pub fn resource_outputs(&self) -> ResourceOutputs {
        self.0.metrics.outputs()
    }

    /// Resets the backoff of a key because its owner has changed it.
    pub fn reset_backoff(&self, key: &Key) {
        self.0.backoff.lock().reset(key);
    }
}

/// Workers that reconcile the keys of a queue.
pub struct Workers {
    shared: Arc<QueueInner>,
    reconcile: Arc<dyn Reconcile>,
    options: WorkerOptions,
}

impl Workers {
    /// Creates workers that take keys from `queue`.
    pub fn new(queue: &QueueHandle, reconcile: Arc<dyn Reconcile>, options: WorkerOptions) -> Self {
        queue.0.metrics.started(options.concurrency);
        queue.0.queue.lock().set_share(Share {
            workers: options.concurrency,
            of_namespace: (options.concurrency * usize::from(options.max_share) / 100).max(1),
        });
        Self {
            shared: Arc::clone(&queue.0),
            reconcile,
            options,
        }
    }

    /// Runs until `stop` is cancelled, then waits for the reconciles in progress.
    pub async fn run(self, stop: CancellationToken) {
        let mut running: JoinSet<Key> = JoinSet::new();
        while !stop.is_cancelled() {
            self.start_ready(&mut running).await;
            let next_due = self.shared.queue.lock().next_due(Instant::now());
            let due = async {
                match next_due {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(finished) = running.join_next() => self.finished(finished),
                () = self.shared.wake.notified() => {}
                () = due => {}
            }
        }
        while let Some(finished) = running.join_next().await {
            self.finished(finished);
        }
    }

    async fn start_ready(&self, running: &mut JoinSet<Key>) {
        while let Some((key, permit)) = self.shared.take(|key| self.reconcile.forget(key)) {
            let is_delayed = self.shared.queue.lock().is_delayed(&key);
            let resync = is_delayed.then(|| self.reconcile.at_rest(&key)).flatten();
            let Some(resync) = resync else {
                running.spawn(self.work(key, permit));
                continue;
            };
            let timer = self.shared.metrics.begin();
            self.shared.finish(&key, Ok(Outcome::After(resync)), timer);
            self.shared.queue.lock().done(&key);
            tokio::task::coop::consume_budget().await;
        }
    }

    fn finished(&self, finished: Result<Key, tokio::task::JoinError>) {
        match finished {
            Ok(key) => self.shared.queue.lock().done(&key),
            // Panics are caught in the task, so this only happens when the runtime is shut down.
            Err(error) => debug!(%error, "a worker was aborted"),
        }
    }

    fn work(&self, key: Key, permit: Permit) -> impl Future<Output = Key> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        let reconcile = Arc::clone(&self.reconcile);
        let deadline = self.options.deadline;
        let span = info_span!("reconcile", controller = %shared.metrics.name(), object = %key);
        async move {
            let timer = shared.metrics.begin();
            let request = Request {
                key: key.clone(),
                pause: shared.backoff.lock().next(&key),
            };
            let work = AssertUnwindSafe(reconcile.reconcile(request)).catch_unwind();
            let result: Result<Outcome, ReconcileError> =
                match tokio::time::timeout(deadline, work).await {
                    Ok(Ok(result)) => {
                        if result
                            .as_ref()
                            .is_err_and(|error| is_cut_off(error.as_ref()))
                        {
                            shared.metrics.timed_out();
                        }
                        result
                    }
                    Ok(Err(panic)) => {
                        shared.metrics.panicked();
                        Err(Panicked(panic_text(panic.as_ref()).to_owned()).into())
                    }
                    Err(_) => {
                        shared.metrics.timed_out();
                        Err(format!("took longer than {deadline:?}").into())
                    }
                };
            shared.finish(&key, result, timer);
            drop(permit);
            key
        }
        .instrument(span)
    }
}

/// The error of a reconcile that panicked, with the message of the panic.
#[derive(Debug, thiserror::Error)]
#[error("panicked: {0}")]
struct Panicked(String);

impl QueueInner {
    /// Records the result and schedules the next reconcile.
    fn finish(
        &self,
        key: &Key,
        result: Result<Outcome, ReconcileError>,
        timer: crate::telemetry::metrics::ReconcileTimer,
    ) {
        let (label, delay) = match result {
            Ok(outcome) => {
                self.backoff.lock().reset(key);
                match outcome {
                    Outcome::Done => (ReconcileResult::Success, None),
                    Outcome::After(delay) => (ReconcileResult::RequeueAfter, Some(delay)),
                }
            }
            Err(error) if error.is::<Terminal>() => {
                self.backoff.lock().reset(key);
                self.metrics.terminal_error();
                let error: &dyn std::error::Error = error.as_ref();
                error!(
                    error,
                    "reconcile failed; not retried until something changes"
                );
                (ReconcileResult::Error, None)
            }
            Err(error) => {
                let mut noise = [0_u8];
                let _ = host::fill(&mut noise);
                let delay = self.backoff.lock().failed(key, noise[0]);
                let error: &dyn std::error::Error = error.as_ref();
                if error.is::<Panicked>() {
                    error!(error, retry_in = ?delay, "reconcile failed");
                } else {
                    warn!(error, retry_in = ?delay, "reconcile failed");
                }
                (ReconcileResult::Error, Some(delay))
            }
        };
        timer.end(label);
        if let Some(delay) = delay {
            if !delay.is_zero() {
                self.metrics.retried();
            }
            self.queue
                .lock()
                .add_at(key.clone(), Instant::now() + delay);
        }
    }
}

/// Returns whether a reconcile has failed because it was cut off.
fn is_cut_off(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(<dyn std::error::Error>::is::<CutOff>)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use futures::future::BoxFuture;
    use tokio::sync::Notify;
    use tokio_util::sync::CancellationToken;

    use super::{QueueHandle, WorkerOptions, Workers};
    use crate::controller::{Key, Outcome, Priority, Reconcile, ReconcileError, Request};

    /// A reconciler that panics, hangs, fails and then succeeds, and notifies on success.
    #[derive(Default)]
    struct FlakyReconciler {
        calls: AtomicU32,
        succeeded: Notify,
    }

    impl Reconcile for Arc<FlakyReconciler> {
        fn forget(&self, _: &Key) {}

        fn reconcile(&self, _: Request) -> BoxFuture<'_, Result<Outcome, ReconcileError>> {
            Box::pin(async move {
                match self.calls.fetch_add(1, Ordering::SeqCst) {
                    0 => panic!("on purpose"),
                    1 => std::future::pending().await,
                    2 => Err("no".into()),
                    _ => {
                        self.succeeded.notify_one();
                        Ok(Outcome::Done)
                    }
                }
            })
        }
    }

    /// A reconciler whose keys are at rest after the first reconcile.
    #[derive(Default)]
    struct SettledReconciler {
        reconciles: AtomicU32,
        resyncs: AtomicU32,
        resynced: Notify,
    }

    impl Reconcile for SettledReconciler {
        fn reconcile(&self, _: Request) -> BoxFuture<'_, Result<Outcome, ReconcileError>> {
            self.reconciles.fetch_add(1, Ordering::SeqCst);
            Box::pin(async { Ok(Outcome::After(Duration::from_mins(1))) })
        }

        fn at_rest(&self, _: &Key) -> Option<Duration> {
            if self.resyncs.fetch_add(1, Ordering::SeqCst) == 2 {
                self.resynced.notify_one();
            }
            Some(Duration::from_mins(1))
        }

        fn forget(&self, _: &Key) {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_at_rest_is_not_reconciled_at_its_resyncs_but_after_an_event() {
        let settled = Arc::new(SettledReconciler::default());
        let queue = QueueHandle::detached("settled");
        let reconcile = Arc::clone(&settled) as Arc<dyn Reconcile>;
        let workers = Workers::new(&queue, reconcile, WorkerOptions::default());
        let stop = CancellationToken::new();
        let running = tokio::spawn(workers.run(stop.clone()));
        let key = Key::new(None, "x");
        queue.add(key.clone(), Priority::Event);
        settled.resynced.notified().await;
        assert_eq!(settled.reconciles.load(Ordering::SeqCst), 1);
        queue.add(key, Priority::Event);
        while settled.reconciles.load(Ordering::SeqCst) == 1 {
            tokio::task::yield_now().await;
        }
        stop.cancel();
        running.await.unwrap();
        assert_eq!(settled.resyncs.load(Ordering::SeqCst), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn panics_timeouts_and_errors_are_retried_until_success() {
        let flaky = Arc::new(FlakyReconciler::default());
        let queue = QueueHandle::detached("moody");
        let options = WorkerOptions {
            concurrency: 2,
            deadline: Duration::from_secs(10),
            ..WorkerOptions::default()
        };
        let workers = Workers::new(&queue, Arc::new(Arc::clone(&flaky)), options);
        let stop = CancellationToken::new();
        let running = tokio::spawn(workers.run(stop.clone()));
        queue.add(Key::new(None, "x"), Priority::Event);
        flaky.succeeded.notified().await;
        stop.cancel();
        running.await.unwrap();
        assert_eq!(flaky.calls.load(Ordering::SeqCst), 4);
    }
}

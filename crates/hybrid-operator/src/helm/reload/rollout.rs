//! Applies a changed chart or changed options to the releases of a controller, at a limited pace.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube::api::DynamicObject;
use kube_objects::ApiKind;
use operator_runtime::controller::{
    Key, Outcome, Priority, QueueHandle, Reconcile, ReconcileError, Request, resync_in,
};
use operator_runtime::native::Readers;
use operator_runtime::ring::Ring;
use operator_runtime::telemetry::reloads::ReloadMetrics;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;
use tracing::{info, warn};

use super::super::access::Access;
use super::super::events::{OperatorEvents, event};
use super::super::memory::Memory;
use super::super::reconciler::HelmReconciler;
use super::super::resources::Resources;
use super::super::setup::Setup;
use super::progress::{Edition, LIMIT, Progress, Verdict};
use crate::helm::source::{Source, edition};
use helm_release::engine::Memories;
use helm_release::event::{EventReason, Notice};

/// Time after which it is logged what holds up a roll-out.
const HELD_UP: Duration = Duration::from_mins(1);

/// Number of custom resources that are named of those that wait.
const SHOWN: usize = 10;

/// State of a roll-out, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(in crate::helm) struct ShownRollout {
    /// Number of releases that wait for their turn.
    pub(in crate::helm) waiting: usize,
    /// The first of these.
    next: Vec<String>,
    /// Releases whose upgrade is in progress.
    pub(in crate::helm) started: Vec<String>,
    /// Whether it halted after failures.
    halted: bool,
}

/// Chart and options that the releases of one controller are reconciled with.
pub(in crate::helm) struct Rollout {
    /// Name of the controller.
    name: String,
    /// Time between two releases.
    pace: Duration,
    progress: Mutex<Progress<Setup>>,
    /// The custom resources, while the controller runs.
    source: Mutex<Option<Source>>,
    /// Notified when another release may have its turn.
    changed: Notify,
    metrics: ReloadMetrics,
}

impl Rollout {
    pub(in crate::helm) fn new(
        name: &str,
        setup: Setup,
        pace: Duration,
        metrics: ReloadMetrics,
    ) -> Self {
        Self {
            name: name.to_owned(),
            pace,
            progress: Mutex::new(Progress::new(Arc::new(setup))),
            source: Mutex::default(),
            changed: Notify::new(),
            metrics,
        }
    }

    /// Sets the custom resources, which are all known.
    pub(in crate::helm) fn serves(&self, source: &Source) {
        *self.source.lock() = Some(source.clone());
    }

    /// Begins a roll-out of the setup that `new` makes with its version. Returns the number of
    /// releases that wait for it.
    pub(super) fn replace(&self, new: impl FnOnce(u64) -> Setup) -> usize {
        let source = self.source.lock().clone();
        let known = source.iter().flat_map(Source::editions);
        let known = known.map(|(key, edition)| (key, Edition(edition)));
        let known: Vec<_> = known.collect();
        let mut progress = self.progress.lock();
        let version = progress.current().version + 1;
        progress.replace(Arc::new(new(version)), known);
        let waiting = self.show(&progress);
        drop(progress);
        self.changed.notify_one();
        waiting
    }

    /// Ends the roll-out of an entry that is gone. Returns the number of its custom resources.
    pub(super) fn end(&self) -> usize {
        self.metrics.waiting(&self.name, 0);
        let source = self.source.lock();
        source.as_ref().map_or(0, |source| source.keys().len())
    }

    /// Gives the releases their turns until the future is dropped. At rest, it does nothing.
    pub(in crate::helm) async fn run(&self, queue: &QueueHandle) {
        loop {
            let (key, waiting) = self.next().await;
            info!(controller = self.name, object = %key, waiting, "reconciling with the changed chart or options");
            queue.add(key, Priority::Background);
            tokio::time::sleep(self.pace).await;
        }
    }

    /// Returns the state of the roll-out, for people.
    pub(in crate::helm) fn shown(&self) -> ShownRollout {
        let progress = self.progress.lock();
        let names = |keys: &mut dyn Iterator<Item = &Key>| {
            let names = keys.take(SHOWN).map(ToString::to_string);
            names.collect::<Vec<_>>()
        };
        ShownRollout {
            waiting: progress.waiting(),
            next: names(&mut progress.waiting_keys()),
            started: names(&mut progress.started()),
            halted: progress.is_halted(),
        }
    }

    async fn next(&self) -> (Key, usize) {
        let mut is_told = false;
        loop {
            let changed = self.changed.notified();
            {
                let mut progress = self.progress.lock();
                if let Some(key) = progress.next() {
                    return (key, self.show(&progress));
                }
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep(HELD_UP), if !is_told => {
                    is_told = true;
                    self.tell_what_holds_it_up();
                }
            }
        }
    }

    /// Logs which upgrades hold up the others.
    fn tell_what_holds_it_up(&self) {
        let progress = self.progress.lock();
        let held: Vec<String> = progress.started().map(ToString::to_string).collect();
        if !held.is_empty() && progress.waiting() > 0 {
            warn!(
                controller = self.name,
                upgrades = held.join(", "),
                waiting = progress.waiting(),
                "the roll-out of a changed chart or options waits for upgrades in progress; their conditions say what they wait for"
            );
        }
    }

    /// Returns what a custom resource is reconciled with.
    fn of(&self, key: &Key, resource: &DynamicObject) -> Arc<Setup> {
        let mut progress = self.progress.lock();
        let setup = progress.of(key, Edition(edition(&resource.metadata)));
        self.show(&progress);
        setup
    }

    /// Forgets a custom resource.
    fn forget(&self, key: &Key) {
        let mut progress = self.progress.lock();
        progress.forget(key);
        self.show(&progress);
        self.changed.notify_one();
    }

    /// Records the result of a reconcile. Returns the number of releases that the roll-out leaves
    /// unchanged if it is halted by this.
    fn ended(&self, key: &Key, verdict: Verdict) -> Option<usize> {
        let mut progress = self.progress.lock();
        if !progress.is_started(key) {
            return None;
        }
        let halted = progress.ended(key, verdict);
        self.changed.notify_one();
        halted.then(|| progress.waiting())
    }

    /// Shows the number of waiting releases in the metrics, and returns it.
    fn show(&self, progress: &Progress<Setup>) -> usize {
        let waiting = progress.waiting();
        self.metrics.waiting(&self.name, waiting);
        waiting
    }
}

/// Reconciles each custom resource with what the roll-out gives it.
pub(in crate::helm) struct RolloutReconciler {
    pub(in crate::helm) rollout: Arc<Rollout>,
    pub(in crate::helm) access: Arc<Access>,
    pub(in crate::helm) resources: Resources,
    pub(in crate::helm) readers: Readers,
    pub(in crate::helm) memories: Memories<Memory>,
    pub(in crate::helm) events: OperatorEvents,
    /// Ring whose sharder assigns the custom resources, and their kind.
    pub(in crate::helm) ring: Option<(Ring, Arc<ApiKind>)>,
}

impl Reconcile for RolloutReconciler {
    fn reconcile(&self, request: Request) -> BoxFuture<'_, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let key = request.key.clone();
            let Some(resource) = self.resources.get(&key) else {
                self.forget(&key);
                return Ok(Outcome::Done);
            };
            if let Some((ring, kind)) = &self.ring
                && ring.is_drained(&resource.metadata)
            {
                self.forget(&key);
                ring.give_up(self.resources.client(), kind, &resource.metadata)
                    .await?;
                return Ok(Outcome::Done);
            }
            let setup = self.rollout.of(&key, &resource);
            let reconciler = HelmReconciler {
                setup,
                access: Arc::clone(&self.access),
                resources: self.resources.clone(),
                readers: self.readers.clone(),
                memories: self.memories.clone(),
            };
            let result = reconciler.reconcile(request, resource).await;
            let verdict = self.memories.of(&key, |memory| memory.verdict);
            let verdict = verdict.unwrap_or(Verdict::Skipped);
            if let Some(waiting) = self.rollout.ended(&key, verdict) {
                self.report_halt(waiting).await;
            }
            result
        })
    }

    /// A release is at rest if the last reconcile has settled it, and it still is.
    fn at_rest(&self, key: &Key) -> Option<Duration> {
        let settled = self.memories.of(key, |memory| {
            let settled = memory.settled.as_ref()?;
            let is_same = self.resources.has_version(key, &settled.version)
                && memory.release.is_at_rest(&self.access.releases);
            is_same.then_some(settled.period)
        });
        Some(resync_in(key, settled.flatten()?))
    }

    fn forget(&self, key: &Key) {
        self.rollout.forget(key);
        self.memories.forget(key);
        self.access.releases.forget(key);
    }
}

impl RolloutReconciler {
    async fn report_halt(&self, waiting: usize) {
        let kind = &self.rollout.name;
        warn!(
            controller = kind,
            failures = LIMIT,
            waiting,
            "the roll-out of a changed chart or options is halted; releases that wait stay as they are until the chart or the watches file changes again"
        );
        let note = format!(
            "{LIMIT} releases of {kind} in a row cannot be upgraded with the changed chart or options; {waiting} others stay as they are until the chart or the watches file changes again"
        );
        let notice = Notice::new(EventReason::RolloutHalted, "Rollout", note);
        self.events.publish(event(&notice)).await;
    }
}

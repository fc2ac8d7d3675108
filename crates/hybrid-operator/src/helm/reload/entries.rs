//! Runs the controllers of all entries while this process is the leader, and applies reloads to
//! them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use operator_runtime::manager::{Controller, ControllerContext, ControllerError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::info;

use super::super::builder::HelmController;
use super::fetch::MissingCharts;
use super::files::{EntryVersion, Mailbox};
use super::rollout::Rollout;
use super::waiting::Waiting;
use crate::watches::Watch;

/// Identifies an entry: group, version and kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryKey(String, String, String);

impl EntryKey {
    pub(super) fn of(watch: &Watch) -> Self {
        let gvk = &watch.gvk;
        Self(gvk.group.clone(), gvk.version.clone(), gvk.kind.clone())
    }
}

/// Runs a controller for each entry.
pub(super) struct Entries {
    pub(super) mailbox: Arc<Mailbox>,
    /// The entries without a chart.
    pub(super) missing: MissingCharts,
    pub(super) pace: Duration,
}

/// The running controller of an entry.
struct Running {
    version: EntryVersion,
    rollout: Arc<Rollout>,
    stop: CancellationToken,
    /// Aborted when the process does not wait for it any longer.
    task: AbortOnDropHandle<()>,
}

impl Controller for Entries {
    fn name(&self) -> &'static str {
        "charts"
    }

    fn run(
        self: Box<Self>,
        context: ControllerContext,
    ) -> BoxFuture<'static, Result<(), ControllerError>> {
        Box::pin(async move {
            let mut running = BTreeMap::new();
            let (mut missing, mut waiting) = (self.missing.subscribe(), Waiting::default());
            let stop = context.stop.clone();
            loop {
                let loaded = tokio::select! {
                    biased;
                    () = stop.cancelled() => break,
                    loaded = self.mailbox.take() => Some(loaded),
                    _ = missing.changed() => None,
                };
                // Before the controller of an entry starts, nobody else writes to its custom resources.
                waiting.follow(&missing, &context).await;
                if let Some(loaded) = loaded {
                    self.apply(loaded, &mut running, &context).await;
                }
            }
            waiting.end().await;
            for (_, entry) in running {
                // A panic concerns its own controller only.
                let _ = entry.task.await;
            }
            Ok(())
        })
    }
}

impl Entries {
    /// Makes the running controllers those of `loaded`.
    async fn apply(
        &self,
        loaded: Vec<HelmController>,
        running: &mut BTreeMap<EntryKey, Running>,
        context: &ControllerContext,
    ) {
        let mut loaded: BTreeMap<EntryKey, HelmController> = loaded
            .into_iter()
            .map(|controller| (EntryKey::of(controller.watch()), controller))
            .collect();
        let mut stopped = Vec::new();
        let mut restarts = BTreeMap::new();
        for (key, mut entry) in std::mem::take(running) {
            let Some(controller) = loaded.remove(&key) else {
                let releases = entry.rollout.end();
                info!(
                    controller = key.2,
                    releases,
                    "the entry is removed from the watches file; its releases stay as they are"
                );
                stopped.push(entry);
                continue;
            };
            let version = EntryVersion::of(&controller);
            if version == entry.version {
                running.insert(key, entry);
                continue;
            }
            let waiting = entry
                .rollout
                .replace(|version| controller.setup(context, version));
            let restart = entry.version.needs_restart(&version);
            info!(
                controller = key.2,
                releases = waiting,
                restart,
                "the chart or the options of the entry have changed; its releases are reconciled one after the other"
            );
            if restart {
                restarts.insert(key, (controller, Arc::clone(&entry.rollout)));
                stopped.push(entry);
            } else {
                entry.version = version;
                running.insert(key, entry);
            }
        }
        // There are never two controllers of a kind.
        for entry in &stopped {
            entry.stop.cancel();
        }
        for entry in stopped {
            let _ = entry.task.await;
        }
        for (key, (controller, rollout)) in restarts {
            running.insert(key, start(controller, rollout, context));
        }
        for (key, controller) in loaded {
            let rollout = Arc::new(Rollout::new(
                &key.2.to_lowercase(),
                controller.setup(context, 0),
                self.pace,
                context.metrics.reloads(),
            ));
            running.insert(key, start(controller, rollout, context));
        }
    }
}

fn start(
    controller: HelmController,
    rollout: Arc<Rollout>,
    context: &ControllerContext,
) -> Running {
    info!(controller = controller.name(), "starting controller");
    let stop = context.stop.child_token();
    let mut own = context.clone();
    own.stop = stop.clone();
    let version = EntryVersion::of(&controller);
    let run = controller.serve(own, Arc::clone(&rollout));
    Running {
        version,
        rollout,
        stop,
        task: AbortOnDropHandle::new(tokio::spawn(run)),
    }
}

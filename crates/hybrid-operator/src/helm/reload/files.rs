//! Loads the watches file and its charts, and loads them again when they change.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use helm_core::Digest;
use tokio::sync::Notify;
use tracing::{debug, error, info};

use super::super::builder::{self, HelmController};
use super::super::events::{Notice, OperatorEvents};
use super::scan::{Meaning, Scan, Settle, pause, scan};
use crate::manager::{Controller, ControllerContext, ControllerError};
use crate::reasons::EventReason;
use crate::telemetry::reloads::ReloadMetrics;
use crate::watches::{self, Watch, WatchesError};

/// Adds code to the controller of a chart.
pub(super) type Extend = Arc<dyn Fn(HelmController) -> HelmController + Send + Sync>;

/// The files of an operator's charts.
#[derive(Clone)]
pub(super) struct Files {
    pub(super) watches: PathBuf,
    pub(super) extend: Extend,
}

/// Files that were read.
pub(super) struct Loaded {
    /// The controllers of all entries, or everything that is wrong with the files.
    pub(super) controllers: Result<Vec<HelmController>, WatchesError>,
    /// The charts that the watches file names.
    charts: BTreeSet<PathBuf>,
    /// The files before they were read.
    scan: Scan,
    /// Whether they were the same afterwards.
    stable: bool,
}

impl Files {
    /// Loads and compiles everything. `known` are the charts to watch if the watches file cannot be
    /// read.
    pub(super) fn load(&self, known: &BTreeSet<PathBuf>) -> Loaded {
        let mut charts = self.charts();
        if charts.is_empty() {
            charts.clone_from(known);
        }
        let before = scan(&self.watches, &charts);
        let controllers = builder::load(&self.watches).map(|controllers| {
            controllers
                .into_iter()
                .map(|one| (self.extend)(one))
                .collect()
        });
        Loaded {
            stable: scan(&self.watches, &charts) == before,
            controllers,
            charts,
            scan: before,
        }
    }

    /// Returns the charts of those entries that can be parsed.
    fn charts(&self) -> BTreeSet<PathBuf> {
        let text = std::fs::read(&self.watches).unwrap_or_default();
        let base = self.watches.parent().unwrap_or(Path::new(""));
        let (entries, _) = watches::parse(&text, base);
        entries.into_iter().map(|entry| entry.watch.chart).collect()
    }
}

/// The newest controllers that were loaded and not taken yet.
#[derive(Default)]
pub(super) struct Mailbox {
    newest: Mutex<Option<Vec<HelmController>>>,
    changed: Notify,
}

impl Mailbox {
    pub(super) fn put(&self, controllers: Vec<HelmController>) {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(controllers);
        self.changed.notify_one();
    }

    /// Waits for controllers.
    pub(super) async fn take(&self) -> Vec<HelmController> {
        loop {
            let changed = self.changed.notified();
            let newest = self
                .newest
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(newest) = newest {
                return newest;
            }
            changed.await;
        }
    }
}

/// What tells one version of an entry from another one.
#[derive(PartialEq)]
pub(super) struct EntryVersion {
    watch: Watch,
    chart: Digest,
}

impl EntryVersion {
    pub(super) fn of(controller: &HelmController) -> Self {
        let mut watch = controller.watch().clone();
        // The same chart in another place is the same chart.
        watch.chart = PathBuf::new();
        Self {
            watch,
            chart: controller.chart_digest(),
        }
    }

    /// Returns whether the controller of the entry must be restarted to become `new`.
    pub(super) fn needs_restart(&self, new: &Self) -> bool {
        let (old, new) = (&self.watch, &new.watch);
        old.selector != new.selector
            || old.watch_dependent_resources != new.watch_dependent_resources
            || old.max_concurrent_reconciles != new.max_concurrent_reconciles
    }
}

/// Reads the files again when they change. Runs on every replica, so that the next leader has the
/// newest.
pub(super) struct FileWatcher {
    files: Files,
    mailbox: Arc<Mailbox>,
    charts: BTreeSet<PathBuf>,
    settle: Settle,
    /// The entries that were loaded last.
    entries: Vec<EntryVersion>,
    /// Whether the files have been refused since.
    refused: bool,
}

impl FileWatcher {
    /// Watches the files since they were loaded; `entries` are those of `loaded`.
    pub(super) fn new(
        files: Files,
        mailbox: Arc<Mailbox>,
        (charts, scan): (BTreeSet<PathBuf>, Scan),
        entries: Vec<EntryVersion>,
    ) -> Self {
        Self {
            files,
            mailbox,
            charts,
            settle: Settle::new(scan.fingerprint),
            entries,
            refused: false,
        }
    }

    async fn watch(mut self, context: ControllerContext) {
        let metrics = context.metrics.reloads();
        let events = OperatorEvents::new(&context);
        metrics.started();
        let mut wait = pause(Meaning::AtRest, 0);
        loop {
            tokio::time::sleep(wait).await;
            let (files, charts) = (self.files.clone(), self.charts.clone());
            // Metadata of a slow mount must not hold up a thread of the runtime.
            let scanned = move || scan(&files.watches, &charts);
            let Ok(scanned) = tokio::task::spawn_blocking(scanned).await else {
                continue;
            };
            let meaning = self.settle.see(scanned.fingerprint);
            wait = pause(meaning, scanned.entries);
            if meaning == Meaning::Settled {
                self.reload(&metrics, &events).await;
            }
        }
    }

    async fn reload(&mut self, metrics: &ReloadMetrics, events: &OperatorEvents) {
        let (files, charts) = (self.files.clone(), self.charts.clone());
        let loaded = tokio::task::spawn_blocking(move || {
            let loaded = files.load(&charts);
            let entries = loaded.controllers.iter().flatten().map(EntryVersion::of);
            let entries: Vec<_> = entries.collect();
            (loaded, entries)
        });
        let (loaded, entries) = match loaded.await {
            Ok(loaded) => loaded,
            Err(panic) => {
                error!(error = %panic, "loading the changed files failed");
                return;
            }
        };
        if !loaded.stable {
            debug!("the files changed while they were read; they are read again");
            return;
        }
        self.charts = loaded.charts;
        self.settle.was_read(loaded.scan.fingerprint);
        match loaded.controllers {
            Ok(controllers) => {
                if entries == self.entries && !self.refused {
                    debug!("files were written without a change");
                    return;
                }
                info!(
                    entries = controllers.len(),
                    "loaded the changed watches file and charts"
                );
                metrics.succeeded();
                self.entries = entries;
                self.refused = false;
                self.mailbox.put(controllers);
            }
            Err(refused) => {
                self.refused = true;
                metrics.refused();
                error!(
                    error = &refused as &dyn std::error::Error,
                    "the changed watches file or a chart is broken; the operator continues with what it loaded before"
                );
                let note = format!(
                    "continuing with what was loaded before: {}",
                    super::super::status::chain(&refused)
                );
                let notice = Notice::new(EventReason::ReloadRefused, "Reload", note);
                events.publish(notice.into()).await;
            }
        }
    }
}

impl Loaded {
    /// Returns what a watcher starts with.
    pub(super) fn scanned(&self) -> (BTreeSet<PathBuf>, Scan) {
        (self.charts.clone(), self.scan)
    }
}

impl Controller for FileWatcher {
    fn name(&self) -> &'static str {
        "reload"
    }

    fn needs_leadership(&self) -> bool {
        false
    }

    fn run(
        self: Box<Self>,
        context: ControllerContext,
    ) -> BoxFuture<'static, Result<(), ControllerError>> {
        Box::pin(async move {
            let stop = context.stop.clone();
            stop.run_until_cancelled(self.watch(context)).await;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::path::PathBuf;

    use kube::core::{GroupVersionKind, Selector};

    use super::EntryVersion;
    use crate::watches::Watch;

    fn entry(change: impl FnOnce(&mut Watch)) -> EntryVersion {
        let gvk = GroupVersionKind::gvk("example.com", "v1", "Widget");
        let mut watch = Watch::new(gvk, PathBuf::new());
        change(&mut watch);
        EntryVersion {
            watch,
            chart: helm_core::Digest::of("chart"),
        }
    }

    #[test]
    fn only_what_a_running_controller_cannot_change_restarts_it() {
        let before = entry(|_| {});
        let restarting: [fn(&mut Watch); 3] = [
            |watch| watch.selector = Some(Selector::default()),
            |watch| watch.watch_dependent_resources = false,
            |watch| watch.max_concurrent_reconciles = NonZeroUsize::new(7),
        ];
        for change in restarting {
            let after = entry(change);
            assert!(before != after && before.needs_restart(&after));
        }
        let other: [fn(&mut Watch); 2] = [
            |watch| watch.upgrade.wait = true,
            |watch| watch.max_history = NonZeroUsize::new(7),
        ];
        for change in other {
            let after = entry(change);
            assert!(before != after && !before.needs_restart(&after));
        }
        assert!(before == entry(|_| {}));
    }
}

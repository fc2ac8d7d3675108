//! Loads the watches file and its charts, and loads them again when they change.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use helm_core::Digest;
use operator_runtime::manager::{Controller, ControllerContext, ControllerError};
use operator_runtime::telemetry::reloads::ReloadMetrics;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, error, info};

use super::super::admission::{self, Admission};
use super::super::builder::{self, HelmController};
use super::super::events::{OperatorEvents, event};
use super::super::remote::ChartReader;
use super::fetch::{Fetched, Fetches, MissingCharts};
use super::scan::{Meaning, Scan, Settle, pause, scan};
use crate::watches::{self, ChartSource, Lock, RemoteChart, Watch, WatchesError};
use helm_release::event::{EventReason, Notice};

/// Adds code to the controller of a chart.
pub(super) type Extend = Arc<dyn Fn(HelmController) -> HelmController + Send + Sync>;

/// The files of an operator's charts.
#[derive(Clone)]
pub(super) struct Files {
    pub(super) watches: PathBuf,
    pub(super) extend: Extend,
    /// Has the charts that were fetched.
    pub(super) reader: ChartReader,
}

/// Files that were read.
pub(super) struct Loaded {
    /// The controllers of all entries whose charts are there, or everything that is wrong with the files.
    pub(super) controllers: Result<Vec<HelmController>, WatchesError>,
    /// The entries whose charts must be fetched first.
    pub(super) missing: Vec<Watch>,
    /// The charts on this machine that the watches file names, its lock, and the keys of signatures.
    charts: BTreeSet<PathBuf>,
    /// The files before they were read.
    scan: Scan,
    /// Whether they were the same afterwards.
    stable: bool,
}

impl Files {
    /// Loads and compiles everything, without a request. `known` are the charts to watch if the watches
    /// file cannot be read.
    pub(super) fn load(&self, known: &BTreeSet<PathBuf>) -> Loaded {
        let (mut charts, remote) = self.charts();
        if charts.is_empty() && remote.is_empty() {
            charts.clone_from(known);
        }
        if !remote.is_empty() {
            charts.insert(Lock::path(&self.watches));
            let keys = remote.iter().filter_map(|chart| chart.verify.as_ref());
            charts.extend(keys.map(|verify| verify.file().to_owned()));
        }
        let before = scan(&self.watches, &charts);
        let (controllers, missing) = match builder::load_known(&self.watches, &self.reader) {
            Ok((controllers, missing)) => {
                let controllers = controllers.into_iter();
                let extended = controllers.map(|one| (self.extend)(one)).collect();
                (admission::checked(&self.watches, extended), missing)
            }
            Err(error) => (Err(error), Vec::new()),
        };
        Loaded {
            stable: scan(&self.watches, &charts) == before,
            controllers,
            missing,
            charts,
            scan: before,
        }
    }

    /// Returns the charts of those entries that can be parsed: on this machine, and elsewhere.
    fn charts(&self) -> (BTreeSet<PathBuf>, Vec<RemoteChart>) {
        let text = std::fs::read(&self.watches).unwrap_or_default();
        let base = self.watches.parent().unwrap_or(Path::new(""));
        let (entries, _) = watches::parse(&text, base);
        let (mut local, mut remote) = (BTreeSet::new(), Vec::new());
        for entry in entries {
            match entry.watch.chart {
                ChartSource::Local(path) => {
                    local.insert(path);
                }
                ChartSource::Remote(chart) => remote.push(*chart),
            }
        }
        (local, remote)
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
        *self.newest.lock() = Some(controllers);
        self.changed.notify_one();
    }

    /// Waits for controllers.
    pub(super) async fn take(&self) -> Vec<HelmController> {
        loop {
            let changed = self.changed.notified();
            let newest = self.newest.lock().take();
            if let Some(newest) = newest {
                return newest;
            }
            changed.await;
        }
    }
}

/// Properties that tell one version of an entry from another one.
#[derive(PartialEq)]
pub(super) struct EntryVersion {
    watch: Watch,
    chart: Digest,
}

impl EntryVersion {
    pub(super) fn of(controller: &HelmController) -> Self {
        let mut watch = controller.watch().clone();
        // The same chart in another place is the same chart.
        watch.chart = ChartSource::Local(PathBuf::new());
        Self {
            watch,
            chart: controller.chart_digest(),
        }
    }

    /// Returns whether this is a version of the same entry.
    fn is_of(&self, watch: &Watch) -> bool {
        self.watch.gvk == watch.gvk
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
    admission: Admission,
    charts: BTreeSet<PathBuf>,
    settle: Settle,
    /// The entries that were loaded last.
    entries: Vec<EntryVersion>,
    /// Whether the files have been refused since.
    refused: bool,
    /// Whether changed files are looked for.
    scans: bool,
    /// The charts that are missing.
    fetches: Fetches,
    /// Whether a change of the files waits for a chart, while an entry runs with a former one.
    waits: bool,
}

impl FileWatcher {
    /// Watches the files since they were loaded; `entries` are those of `loaded`, and `missing` those whose
    /// charts must be fetched.
    pub(super) fn new(
        files: Files,
        mailbox: Arc<Mailbox>,
        loaded: Loaded,
        entries: Vec<EntryVersion>,
        shown: MissingCharts,
        admission: Admission,
    ) -> Self {
        let mut fetches = Fetches::new(files.reader.clone(), shown);
        fetches.want(loaded.missing, |_| false);
        Self {
            files,
            mailbox,
            admission,
            charts: loaded.charts,
            settle: Settle::new(loaded.scan.fingerprint),
            entries,
            refused: false,
            scans: true,
            fetches,
            waits: false,
        }
    }

    /// Sets whether changed files are looked for. Missing charts are fetched in any case.
    pub(super) fn set_scans(&mut self, scans: bool) {
        self.scans = scans;
    }

    /// Returns whether there is something to do.
    pub(super) fn is_needed(&self) -> bool {
        self.scans || self.fetches.is_incomplete()
    }

    async fn watch(mut self, context: ControllerContext) {
        let metrics = context.metrics.reloads();
        let events = OperatorEvents::new(&context);
        metrics.started();
        let mut next_scan = Instant::now() + pause(Meaning::AtRest, 0);
        loop {
            metrics.charts_missing(self.fetches.stopped());
            let scans = self.scans;
            let scan_is_due = async {
                if scans {
                    tokio::time::sleep_until(next_scan).await;
                } else {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                biased;
                () = scan_is_due => {
                    let wait = self.scan(&metrics, &events).await;
                    next_scan = Instant::now() + wait;
                }
                fetched = self.fetches.next(&context) => match fetched {
                    Fetched::Arrived => self.reload(&metrics, &events).await,
                    Fetched::Failed(why) if self.waits && !self.refused => {
                        self.refuse(&why, &metrics, &events).await;
                    }
                    Fetched::Failed(_) => {}
                },
            }
        }
    }

    /// Looks for a change, and reads files that have settled. Returns the time until the next scan.
    async fn scan(&mut self, metrics: &ReloadMetrics, events: &OperatorEvents) -> Duration {
        let (files, charts) = (self.files.clone(), self.charts.clone());
        // Metadata of a slow mount must not hold up a thread of the runtime.
        let scanned = move || scan(&files.watches, &charts);
        let Ok(scanned) = host::blocking(scanned).await else {
            return pause(Meaning::AtRest, 0);
        };
        let meaning = self.settle.see(scanned.fingerprint);
        if meaning == Meaning::Settled {
            self.reload(metrics, events).await;
        }
        pause(meaning, scanned.entries)
    }

    async fn reload(&mut self, metrics: &ReloadMetrics, events: &OperatorEvents) {
        let (files, charts) = (self.files.clone(), self.charts.clone());
        let loaded = host::blocking(move || {
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
        let controllers = match loaded.controllers {
            Ok(controllers) => controllers,
            Err(refused) => {
                let why = kube_objects::with_causes(&refused);
                self.refuse(&why, metrics, events).await;
                return;
            }
        };
        let running = &self.entries;
        let runs = |watch: &Watch| running.iter().any(|entry| entry.is_of(watch));
        self.waits = loaded.missing.iter().any(runs);
        self.fetches.want(loaded.missing, runs);
        if self.waits {
            info!(
                "the changed files name charts that are fetched first; the operator continues with what it loaded before"
            );
            return;
        }
        let sources = controllers.iter().map(|one| &one.watch().chart);
        let used: Vec<RemoteChart> = sources.filter_map(ChartSource::remote).cloned().collect();
        self.files.reader.keep_only(&used);
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
        self.admission.follow(&controllers);
        self.mailbox.put(controllers);
    }

    /// Reports that changed files are not used.
    async fn refuse(&mut self, why: &str, metrics: &ReloadMetrics, events: &OperatorEvents) {
        self.refused = true;
        metrics.refused();
        error!(
            error = why,
            "the changed watches file or a chart is broken or missing; the operator continues with what it loaded before"
        );
        let note = format!("continuing with what was loaded before: {why}");
        let notice = Notice::new(EventReason::ReloadRefused, "Reload", note);
        events.publish(event(&notice)).await;
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
            |watch| watch.policy.upgrade.wait = true,
            |watch| watch.policy.max_history = NonZeroUsize::new(7),
        ];
        for change in other {
            let after = entry(change);
            assert!(before != after && !before.needs_restart(&after));
        }
        assert!(before == entry(|_| {}));
    }
}

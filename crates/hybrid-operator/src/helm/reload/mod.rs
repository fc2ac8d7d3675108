//! The charts of a watches file, reloaded when the file or a chart changes.
//!
//! ```text
//! files ── FileWatcher (every replica): scan, load and compile everything
//!             │ broken: an event, a metric; nothing changes
//!             │ a chart must be fetched: Fetches does so, and the files are loaded again
//!             ▼ newest
//!          Entries (leader): start, stop or change the controller of each entry; Waiting: say in
//!             │             the conditions that a chart cannot be fetched
//!             ▼
//!          Rollout (one for each entry): which release is reconciled with what, and when
//! ```
//!
//! Nothing about a reload is stored. A process that starts reconciles all releases with the files as
//! they are.

mod entries;
mod fetch;
mod files;
pub(super) mod progress;
pub(super) mod rollout;
mod scan;
pub(super) mod verdict;
mod waiting;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::admission::Admission;
use super::builder::HelmController;
use super::remote::ChartReader;
use crate::watches::WatchesError;
use entries::{Entries, EntryKey};
pub(crate) use fetch::MissingCharts;
use files::{EntryVersion, FileWatcher, Files, Mailbox};
use operator_runtime::manager::{Controller, Manager};

/// Time between two releases that are reconciled with a changed chart or changed options.
const PACE: Duration = Duration::from_secs(2);

/// Name of the check of `/readyz`.
pub(crate) const READINESS: &str = "charts";

/// The controllers of a watches file.
///
/// ```no_run
/// use std::path::Path;
///
/// use hybrid_operator::helm::Charts;
/// use hybrid_operator::manager::Manager;
/// # use hybrid_operator::options::Options;
/// # async fn run(options: Options) -> Result<(), Box<dyn std::error::Error>> {
/// let charts = Charts::load(Path::new("watches.yaml"), |chart| chart)?;
/// charts.add_to(Manager::new(options)).run().await?;
/// # Ok(())
/// # }
/// ```
pub struct Charts {
    watcher: FileWatcher,
    mailbox: Arc<Mailbox>,
    missing: MissingCharts,
    admission: Admission,
    pace: Duration,
}

impl Charts {
    /// Loads and compiles everything without contacting a cluster. `extend` adds code to the controller
    /// of each entry, now and when its chart or options change.
    ///
    /// Charts that must be fetched are taken from the default cache if they are there; else their entries
    /// start when the chart has been fetched, while the controllers run.
    ///
    /// # Errors
    /// Lists all errors in the file and in its charts.
    pub fn load(
        watches_file: &Path,
        extend: impl Fn(HelmController) -> HelmController + Send + Sync + 'static,
    ) -> Result<Self, WatchesError> {
        let reader = ChartReader::open_default();
        let admission = Admission::default();
        Self::load_with(
            watches_file,
            extend,
            reader,
            MissingCharts::default(),
            admission,
        )
    }

    /// Does what [`load`](Self::load) does, with a cache, and shows in `missing` which entries do not run
    /// yet. `admission` follows the entries that have one.
    pub(crate) fn load_with(
        watches_file: &Path,
        extend: impl Fn(HelmController) -> HelmController + Send + Sync + 'static,
        reader: ChartReader,
        missing: MissingCharts,
        admission: Admission,
    ) -> Result<Self, WatchesError> {
        let files = Files {
            watches: watches_file.to_owned(),
            extend: Arc::new(extend),
            reader,
        };
        let mut loaded = files.load(&BTreeSet::new());
        let controllers = std::mem::replace(&mut loaded.controllers, Ok(Vec::new()))?;
        let entries = controllers.iter().map(EntryVersion::of).collect();
        admission.follow(&controllers);
        let mailbox = Arc::<Mailbox>::default();
        mailbox.put(controllers);
        let shown = missing.clone();
        Ok(Self {
            watcher: FileWatcher::new(
                files,
                Arc::clone(&mailbox),
                loaded,
                entries,
                shown,
                admission.clone(),
            ),
            mailbox,
            missing,
            admission,
            pace: PACE,
        })
    }

    /// Sets whether changed files are reloaded. Default: true.
    #[must_use]
    pub fn watch_files(mut self, watch: bool) -> Self {
        self.watcher.set_scans(watch);
        self
    }

    /// Sets the time between two releases of a kind that are reconciled with a changed chart or changed
    /// options. Default: 2 s.
    #[must_use]
    pub fn pace(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }

    /// Adds the controllers to a manager, and a check to `/readyz` that names the entries whose charts
    /// are missing.
    #[must_use]
    pub fn add_to(self, manager: Manager) -> Manager {
        let missing = self.missing.clone();
        let manager =
            manager.readiness_check(READINESS, move || std::future::ready(missing.check()));
        let manager = manager.with_object_webhooks(self.admission.webhooks());
        let controllers = self.controllers().into_iter();
        controllers.fold(manager, Manager::with_boxed)
    }

    /// Returns the controllers, for [`Manager::load`].
    pub fn controllers(self) -> Vec<Box<dyn Controller>> {
        let entries = Entries {
            mailbox: self.mailbox,
            missing: self.missing,
            pace: self.pace,
        };
        let mut controllers: Vec<Box<dyn Controller>> =
            vec![Box::new(entries), Box::new(self.admission)];
        if self.watcher.is_needed() {
            controllers.push(Box::new(self.watcher));
        }
        controllers
    }
}

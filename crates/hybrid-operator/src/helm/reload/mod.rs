//! The charts of a watches file, reloaded when the file or a chart changes.
//!
//! ```text
//! files ── FileWatcher (every replica): scan, load and compile everything
//!             │ broken: an event, a metric; nothing changes
//!             ▼ newest
//!          Entries (leader): start, stop or change the controller of each entry
//!             ▼
//!          Rollout (one for each entry): which release is reconciled with what, and when
//! ```
//!
//! Nothing about a reload is stored. A process that starts reconciles all releases with the files as
//! they are.

mod entries;
mod files;
mod progress;
mod rollout;
mod scan;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::builder::HelmController;
use crate::manager::{Controller, Manager};
use crate::watches::WatchesError;
use entries::Entries;
use files::{EntryVersion, FileWatcher, Files, Mailbox};
pub(super) use rollout::{Rollout, RolloutReconciler};

/// Time between two releases that are reconciled with a changed chart or changed options.
const PACE: Duration = Duration::from_secs(2);

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
    watch_files: bool,
    pace: Duration,
}

impl Charts {
    /// Loads and compiles everything without contacting a cluster. `extend` adds code to the controller
    /// of each entry, now and when its chart or options change.
    ///
    /// # Errors
    /// Lists all errors in the file and in its charts.
    pub fn load(
        watches_file: &Path,
        extend: impl Fn(HelmController) -> HelmController + Send + Sync + 'static,
    ) -> Result<Self, WatchesError> {
        let files = Files {
            watches: watches_file.to_owned(),
            extend: Arc::new(extend),
        };
        let loaded = files.load(&BTreeSet::new());
        let scanned = loaded.scanned();
        let controllers = loaded.controllers?;
        let entries = controllers.iter().map(EntryVersion::of).collect();
        let mailbox = Arc::<Mailbox>::default();
        mailbox.put(controllers);
        Ok(Self {
            watcher: FileWatcher::new(files, Arc::clone(&mailbox), scanned, entries),
            mailbox,
            watch_files: true,
            pace: PACE,
        })
    }

    /// Sets whether changed files are reloaded. Default: true.
    #[must_use]
    pub fn watch_files(mut self, watch: bool) -> Self {
        self.watch_files = watch;
        self
    }

    /// Sets the time between two releases of a kind that are reconciled with a changed chart or changed
    /// options. Default: 2 s.
    #[must_use]
    pub fn pace(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }

    /// Adds the controllers to a manager.
    #[must_use]
    pub fn add_to(self, manager: Manager) -> Manager {
        let controllers = self.controllers().into_iter();
        controllers.fold(manager, Manager::with_boxed)
    }

    /// Returns the controllers, for [`Manager::load`].
    pub fn controllers(self) -> Vec<Box<dyn Controller>> {
        let entries = Entries {
            mailbox: self.mailbox,
            pace: self.pace,
        };
        let mut controllers: Vec<Box<dyn Controller>> = vec![Box::new(entries)];
        if self.watch_files {
            controllers.push(Box::new(self.watcher));
        }
        controllers
    }
}

//! Events about a release.

use kube_objects::with_causes;
use parking_lot::Mutex;

use crate::engine::message::Redactor;
use crate::release::StoreError;

kube_objects::reasons! {
    /// Reasons of events, beside those of conditions.
    EventReason {
        /// Objects were changed or deleted by somebody, and were repaired.
        DriftRepaired,
        /// A release that somebody else had installed was taken over.
        ReleaseAdopted,
        /// The release was uninstalled.
        UninstallSuccessful,
        /// The custom resource was deleted, and its release stays, as `deletionPolicy: Orphan` says.
        ReleaseOrphaned,
        /// A failed upgrade was rolled back.
        RolledBack,
        /// A failed upgrade was followed by an uninstall, as `upgrade.remediation.strategy` says.
        UninstalledAfterFailure,
        /// `overrideValues` changed values of the custom resource; the paths are named.
        ValueOverridden,
        /// An object of `valuesFrom` with `optional: true` is gone; its last value is used.
        LastValueUsed,
        /// An object has list entries with the same key; the last one was applied.
        ListEntriesMerged,
        /// Volumes of a StatefulSet stay larger than the chart asks for, since they cannot shrink.
        VolumeSizeKept,
        /// An object stays after an upgrade or an uninstall, with the cause: `helm.sh/resource-policy: keep`,
        /// another owner, created anew by somebody, or it holds objects of others.
        ObjectLeft,
        /// The chart renders an object twice; the last one was applied, and the message names both templates.
        RenderedTwice,
        /// `Chart.yaml` lists a dependency that the chart does not contain; the rest was deployed.
        DependencyMissing,
        /// A record was not written by this operator, so that nothing is applied from it.
        UnprovenRecord,
        /// A record cannot be read.
        CorruptRelease,
        /// Parts of a large record are missing.
        IncompleteRelease,
        /// An annotation has a value that cannot be read, or does not exist.
        InvalidAnnotation,
        /// The definition lacks fields of the status, so that the API server drops them.
        StatusPruned,
        /// The record of a revision does not fit into one Secret.
        LargeRecord,
        /// Objects cannot be watched; the condition of the same name says so while it lasts.
        WatchRefused,
        /// A changed watches file or chart was refused, and the former one is still used.
        ReloadRefused,
        /// After three failures, a changed chart is not rolled out any further.
        RolloutHalted,
    }
}

impl EventReason {
    /// Returns whether the event tells of a problem.
    pub const fn is_warning(self) -> bool {
        !matches!(
            self,
            Self::DriftRepaired
                | Self::ReleaseAdopted
                | Self::UninstallSuccessful
                | Self::ReleaseOrphaned
        )
    }
}

/// Event to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Whether the event tells of a problem.
    pub warning: bool,
    /// Reason of the event.
    pub reason: &'static str,
    /// Name of what was done.
    pub action: &'static str,
    /// Text of the event.
    pub note: String,
    /// Namespace that the event is about instead of the owner: nothing can be created in a
    /// namespace that is being deleted, and events about a namespace are in `default`.
    pub namespace: Option<String>,
}

impl Notice {
    /// Creates an event about the owner.
    pub fn new(reason: EventReason, action: &'static str, note: impl Into<String>) -> Self {
        Self {
            warning: reason.is_warning(),
            reason: reason.as_str(),
            action,
            note: note.into(),
            namespace: None,
        }
    }

    /// Makes the event one about a namespace.
    #[must_use]
    pub fn about_namespace(self, namespace: &str) -> Self {
        Self {
            namespace: Some(namespace.to_owned()),
            ..self
        }
    }
}

/// Events collected during a reconcile.
#[derive(Debug, Default)]
pub struct Notices(Mutex<Vec<Notice>>);

impl Notices {
    /// Adds an event.
    pub fn add(&self, notice: Notice) {
        self.0.lock().push(notice);
    }

    /// Adds an event about the owner.
    pub fn tell(&self, reason: EventReason, action: &'static str, note: impl Into<String>) {
        self.add(Notice::new(reason, action, note));
    }

    /// Returns the events without what nobody may see of the inputs.
    pub(crate) fn cleaned(self, redactor: &Redactor) -> Self {
        for notice in self.0.lock().iter_mut() {
            notice.note = redactor.clean(&notice.note);
        }
        self
    }

    /// Takes all events.
    pub fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut self.0.lock())
    }
}

/// Returns the event for a record that cannot be read.
pub fn corrupt_record_event(error: &StoreError) -> Notice {
    let reason = match error {
        StoreError::Incomplete { .. } => EventReason::IncompleteRelease,
        _ => EventReason::CorruptRelease,
    };
    Notice::new(reason, "Load", with_causes(error))
}

//! Logs what was done to a release: one line at level info for each action that changed something.

use std::time::Duration;

use helm_core::release::{ReleaseName, Revision};
use jiff::Timestamp;
use tracing::{info, warn};

use kube_objects::Primary;

/// The name of the logger.
const LOGGER: &str = "release";

/// Action that was carried out, and its release.
pub(crate) struct Done<'a> {
    pub(crate) primary: &'a Primary,
    pub(crate) release: &'a ReleaseName,
    pub(crate) revision: Option<Revision>,
    /// Time when the action began; `None` if it is unknown.
    pub(crate) began: Option<Timestamp>,
    /// The objects, the hook or the event that the action was about.
    pub(crate) details: Details<'a>,
}

#[derive(Default)]
pub(crate) struct Details<'a> {
    /// The objects that were changed, if they are not all.
    pub(crate) objects: Option<&'a str>,
    pub(crate) hook: Option<&'a str>,
    pub(crate) event: Option<&'a str>,
}

impl Done<'_> {
    /// Logs that it succeeded. `what` is the same text for each action of its kind.
    pub(crate) fn log(&self, what: &'static str) {
        let (primary, details) = (self.primary, &self.details);
        info!(
            target: LOGGER,
            kind = primary.gvk.kind,
            namespace = primary.namespace,
            name = primary.name,
            release = %self.release,
            revision = self.revision.map(|revision| revision.0),
            objects = details.objects,
            hook = details.hook,
            event = details.event,
            duration = self.duration(),
            "{what}"
        );
    }

    /// Logs that it failed, for failures that do not fail the reconcile.
    pub(crate) fn log_failure(&self, error: &str, what: &'static str) {
        let primary = self.primary;
        warn!(
            target: LOGGER,
            kind = primary.gvk.kind,
            namespace = primary.namespace,
            name = primary.name,
            release = %self.release,
            revision = self.revision.map(|revision| revision.0),
            duration = self.duration(),
            error,
            "{what}"
        );
    }

    /// Returns the time since the beginning, in milliseconds.
    fn duration(&self) -> Option<String> {
        let elapsed = host::timestamp().duration_since(self.began?).unsigned_abs();
        let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        Some(format!("{:?}", Duration::from_millis(millis)))
    }
}

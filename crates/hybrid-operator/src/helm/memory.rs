//! Knowledge of a controller about a custom resource. All of it can be rebuilt after a restart.

use std::collections::BTreeSet;
use std::time::Duration;

use helm_release::engine::{Diagnosis, KnownRelease};
use operator_runtime::telemetry::traces::History;

use super::reload::progress::Verdict;
use super::status::WrittenStatus;

/// Fields of the status that the API server drops, as far as they are known.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) enum Pruned {
    /// Unknown: this process has not written a status yet.
    #[default]
    Unknown,
    /// No fields.
    None,
    /// Some fields, as this text says.
    Some(String),
}

/// A reconcile that found nothing to do.
#[derive(Clone)]
pub(super) struct Settled {
    /// Version of the custom resource.
    pub(super) version: String,
    /// Time until the next reconcile.
    pub(super) period: Duration,
}

/// State remembered between reconciles of one custom resource.
#[derive(Clone, Default)]
pub(super) struct Memory {
    /// Version of the setup at the last reconcile.
    pub(super) setup: u64,
    /// Verdict of the last reconcile for a roll-out.
    pub(super) verdict: Verdict,
    pub(super) release: KnownRelease,
    /// The last reconcile, if it found nothing to do, and watches show all that it depends on.
    pub(super) settled: Option<Settled>,
    pub(super) told: Told,
    /// Attempts as last traced.
    pub(super) traced: History,
}

/// Contents of the status and the events of a custom resource, as last reported.
#[derive(Clone, Default)]
pub(super) struct Told {
    pub(super) written: WrittenStatus,
    /// Reason why the newest record does not fit into one Secret.
    pub(super) large_record: Option<String>,
    pub(super) pruned: Pruned,
    /// Invalid annotations.
    pub(super) problems: Vec<String>,
    /// Refused watches.
    pub(super) unwatched: BTreeSet<String>,
    /// Reason why the release is not ready.
    pub(super) diagnosis: Diagnosis,
}

impl Memory {
    /// Forgets what depends on the chart and its options if they have changed.
    pub(super) fn for_setup(&mut self, version: u64) {
        if self.setup != version {
            self.setup = version;
            self.release.forget_chart();
        }
    }
}

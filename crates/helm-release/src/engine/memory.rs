//! Knowledge of a process about a release. All of it can be rebuilt after a restart.

use std::collections::BTreeSet;
use std::sync::Arc;

use helm_core::Coalesced;
use helm_core::manifest::{ObjectKey, parse_objects};
use helm_core::release::{Release as Record, Revision};
use jiff::Timestamp;
use kube_objects::OperatorId;
use serde_json::Value;

use super::access::Access;
use super::definitions::{InstalledCrds, PendingCrds};
use super::inputs::{CachedInputs, Inputs};
use super::interest::{ObservedState, ResourceRef};
use super::message::Redactor;
use super::repairs::RepairBudget;
use super::repetition::Repetition;
use crate::action::live::Live;
use crate::release::InputsDigest;

/// Obstacles that blocked an attempt.
#[derive(Clone, Default)]
pub(super) struct Obstacles {
    /// Objects whose change triggers a retry.
    pub(super) objects: Vec<(ResourceRef, ObservedState)>,
    /// Capabilities epoch at that time if a kind was missing.
    pub(super) epoch: Option<u64>,
}

/// Knowledge about the release of an owner, by which steps are decided and executed.
#[derive(Clone, Default)]
pub struct KnownRelease {
    /// Objects as last applied.
    pub live: Live,
    pub(super) cached_inputs: Option<CachedInputs>,
    /// Digest of the desired inputs, and the digest of the deployed revision that they are
    /// equivalent to.
    pub(super) equal: Option<(InputsDigest, InputsDigest)>,
    pub(super) repairs: RepairBudget,
    /// Time of the last read of objects that cannot be watched.
    pub(super) read_at: Option<Timestamp>,
    /// Installed CRDs of the chart that are not served yet.
    pub(super) pending_crds: Option<PendingCrds>,
    /// The CRDs of the chart that were installed last.
    pub(super) installed_crds: Option<InstalledCrds>,
    /// Chart and values that were rendered last.
    pub(super) rendered: Option<Arc<Coalesced>>,
    /// Revision whose failure this process has reported.
    pub reported: Option<Revision>,
    /// Obstacles that blocked the last attempt.
    pub(super) obstacles: Obstacles,
    /// Decides what readers see of messages.
    pub redactor: Redactor,
    /// The last failure of which is not known whether it is permanent.
    pub(super) repetition: Repetition,
    /// Operator that managed the release.
    pub managing_operator: Option<OperatorId>,
    /// The revision that waits, what for, and since when.
    pub(super) waiting: Option<((Revision, String), Timestamp)>,
    /// Objects of revisions that were not completed, which may exist when no record names them any more.
    pub(super) leftovers: BTreeSet<ObjectKey>,
}

impl KnownRelease {
    /// Forgets what depends on the chart and its options.
    pub fn forget_chart(&mut self) {
        self.cached_inputs = None;
        self.equal = None;
        self.pending_crds = None;
        self.installed_crds = None;
        self.rendered = None;
    }

    /// Returns whether a release that was settled still is: watches show all objects as applied and ready, and nothing
    /// else was read for its inputs.
    pub fn is_at_rest(&self, access: &Access) -> bool {
        let epoch = access.cluster.capabilities_epoch();
        let is_current = |inputs: &CachedInputs| {
            inputs.read.is_empty() && inputs.epoch.is_none_or(|known| known == epoch)
        };
        self.cached_inputs.as_ref().is_some_and(is_current) && self.live.is_at_rest()
    }

    /// Returns the values that errors of the release may quote; `asked` is what its owner asks for.
    pub fn values<'a>(&'a self, asked: Option<&'a Value>) -> Vec<&'a Value> {
        let rendered = self.rendered.iter();
        asked
            .into_iter()
            .chain(rendered.flat_map(|rendered| rendered.user().values()))
            .collect()
    }

    /// Adds the objects of a revision that was not completed.
    pub(super) fn add_leftovers(&mut self, record: &Record) {
        let objects = parse_objects(&record.manifest).unwrap_or_default();
        self.leftovers
            .extend(objects.iter().map(|object| object.key().clone()));
    }

    /// Withholds what is secret in a record from the messages about this step.
    pub(super) fn withhold_record(&mut self, record: &Record, asked: Option<&Value>) {
        let mut redactor = std::mem::take(&mut self.redactor);
        redactor.withhold_record(record, &self.values(asked));
        self.redactor = redactor;
    }

    /// Returns the inputs, with the digest of the deployed revision if they are known to be
    /// equivalent.
    pub(super) fn with_known_equal(&self, mut inputs: Inputs) -> Inputs {
        if let Some((wanted, deployed)) = &self.equal
            && *wanted == inputs.digest
        {
            inputs.digest = deployed.clone();
        }
        inputs
    }
}

//! What this process remembers of one custom resource. All of it can be lost.

use std::collections::BTreeSet;

use helm_core::Digest;
use jiff::Timestamp;

use super::act::Definitions;
use super::desired::DesiredInputs;
use super::interest::{Named, Seen};
use super::references::Read;
use super::repairs::RepairBudget;
use super::status::Written;
use crate::action::live::Live;
use crate::cluster::OperatorId;
use crate::release::InputsDigest;

/// What was computed for one state of the custom resource and of what it refers to.
#[derive(Clone)]
pub(super) struct Computed {
    pub(super) generation: Option<i64>,
    /// Of labels and annotations.
    pub(super) metadata: Digest,
    pub(super) read: Read,
    /// How often what the cluster serves had changed, where the templates read of that.
    pub(super) epoch: Option<u64>,
    pub(super) inputs: DesiredInputs,
}

/// What stood in the way of an attempt.
#[derive(Clone, Default)]
pub(super) struct Obstacles {
    /// Objects whose change is worth another attempt.
    pub(super) objects: Vec<(Named, Seen)>,
    /// How often what the cluster serves had changed, where a kind was missing.
    pub(super) epoch: Option<u64>,
}

/// What is remembered.
#[derive(Clone, Default)]
pub(super) struct Memory {
    /// The objects as they were last applied.
    pub(super) live: Live,
    pub(super) computed: Option<Computed>,
    /// Wanted inputs, and those of the deployed revision that they would change nothing of.
    pub(super) equal: Option<(InputsDigest, InputsDigest)>,
    pub(super) repairs: RepairBudget,
    /// When what cannot be watched was read.
    pub(super) read_at: Option<Timestamp>,
    /// The operator that looked after the release when it was last looked at.
    pub(super) keeper: Option<OperatorId>,
    pub(super) written: Written,
    /// Annotations that were not understood, as they were last reported.
    pub(super) problems: Vec<String>,
    /// Definitions of the chart that are installed and not served yet.
    pub(super) definitions: Option<Definitions>,
    /// The inputs whose definitions are served.
    pub(super) definitions_served: Option<InputsDigest>,
    /// What stood in the way of the last attempt.
    pub(super) obstacles: Obstacles,
    /// Watches that were refused, as they were last reported.
    pub(super) unwatched: BTreeSet<String>,
}

impl Memory {
    /// The inputs, with the digest of the deployed revision where they are known to mean the same.
    pub(super) fn or_equal(&self, mut inputs: DesiredInputs) -> DesiredInputs {
        if let Some((wanted, deployed)) = &self.equal
            && *wanted == inputs.digest
        {
            inputs.digest = deployed.clone();
        }
        inputs
    }
}

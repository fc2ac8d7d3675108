//! Inputs of a release, and what they were computed from.

use std::collections::BTreeMap;
use std::sync::Arc;

use helm_core::{Coalesced, Digest};

use super::interest::{ObservedState, ResourceRef};
use super::own_patches::OwnPatches;
use crate::release::InputsDigest;

/// Values of optional references by reference and key, as stored in a record.
pub type LastValues = BTreeMap<String, BTreeMap<String, String>>;

/// Objects that a computation has read, and their state.
pub type Read = Vec<(ResourceRef, ObservedState)>;

/// Inputs of a render beside the chart and the cluster.
#[derive(Clone)]
pub(super) struct Sources {
    pub(super) coalesced: Arc<Coalesced>,
    pub(super) patches: Arc<OwnPatches>,
}

/// Inputs of a release.
#[derive(Clone)]
pub(super) struct Inputs {
    pub(super) digest: InputsDigest,
    pub(super) sources: Sources,
    /// Note for an event, if something beside the owner has changed the values.
    pub(super) note: Option<String>,
    /// Values of optional references, kept in case the objects are deleted; `None` if there are no
    /// optional references.
    pub(super) kept: Option<LastValues>,
}

/// Inputs computed for one state of the owner and the objects that it refers to.
#[derive(Clone)]
pub(super) struct CachedInputs {
    pub(super) generation: Option<i64>,
    /// State of the owner.
    pub(super) state: Option<Digest>,
    pub(super) read: Read,
    /// Capabilities epoch at that time if the templates depend on it.
    pub(super) epoch: Option<u64>,
    pub(super) inputs: Inputs,
}

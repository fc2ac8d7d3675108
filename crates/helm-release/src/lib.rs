#![doc = include_str!("../README.md")]

mod action;
mod capabilities;
mod engine;
mod event;
mod helm;
mod memories;
mod policy;
mod records;
mod release;
mod release_memory;
mod releases;
mod render_pool;
#[cfg(test)]
mod tests;

/// The versions that fit.
pub use {helm_core, k8s_openapi, kube, kube_objects};

pub use action::live::{Live, Remark};
pub use capabilities::capabilities;
pub use engine::access::{Access, Account, Shared, Waking, Who};
pub use engine::act::error::EngineError;
pub use engine::advance::{Engine, Outcome, Taken};
pub use engine::bounded::{bounded, remembered};
pub use engine::desired_error::DesiredError;
pub use engine::diagnose::Diagnosis;
pub use engine::digest::{DigestInputs, canonical};
pub use engine::error_kind::ErrorKind;
pub use engine::inputs::{LastValues, Read};
pub use engine::instructions::{AdoptionPolicy, Instructions, ReleaseOptions};
pub use engine::interest::{Interests, ObservedState, ResourceRef};
pub use engine::kind::ActionKind;
pub use engine::lookup::{LOOKUP_ROUNDS, VisibleObjects};
pub use engine::memory::KnownRelease;
pub use engine::message::{Message, Reader, Redactor};
pub use engine::observe::Observation;
pub use engine::owner::{BoxError, OwnValues, Owner, Present, ReleaseRef, Remedy};
pub use engine::patches::PatchError;
pub use engine::plan::{Refusal, StallReason, Step, Until};
pub use engine::render::{kind_of, read_key, render_once};
pub use engine::repetition::is_same;
pub use engine::report::{Deployed, Failure, Next, ObjectsState, Report, StepOutcome};
pub use engine::reported::{Handled, ReleaseStatus, Reported};
pub use engine::setup::{Identity, Setup};
pub use engine::subject::Subject;
pub use engine::target::{ReleaseLocation, Target};
pub use engine::wake::Wake;
pub use event::{EventReason, Notice, Notices, corrupt_record_event};
pub use helm::{Helm, HelmError};
pub use memories::{Memories, Remembered};
pub use policy::{
    ActionPolicy, ChartLimits, CrdPolicy, DriftDetection, DriftIgnore, DriftMode, NEVER_RECREATED,
    Patch, PatchBody, ReleasePolicy, Remediation, RemediationStrategy, way_to_raise,
};
pub use records::{ObjectHealth, RecordInfo, Records, RecordsError, health};
pub use release::{
    AllRecords, IndexState, InputsDigest, ProofKeys, RecordChange, RecordMeta, RecordStore,
    ReleaseIndex, Storage, StoreError, StoredContent, record_key_secret,
};
pub use release_memory::{MemoryInUse, ReleaseMemory};
pub use releases::{Advanced, ReleaseState, Releases, Wanted};
pub use render_pool::{RenderPool, RenderPoolError};

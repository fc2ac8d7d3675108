//! Brings a release one step closer to what is asked of it, whoever its owner is.
//!
//! * [`Engine::advance`]: one pass, which takes one step.
//! * [`Owner`] and [`Subject`]: what is asked of a release.
//! * [`Outcome`] and [`Report`]: what has become of it.
//! * [`Access`], [`KnownRelease`] and [`Memories`]: connections, and what a process knows of releases.
//! * [`Message`] and [`Redactor`]: texts for people, who may not all read the same.

pub(crate) mod access;
pub(crate) mod act;
pub(crate) mod action_context;
pub(crate) mod advance;
pub(crate) mod bounded;
pub(crate) mod definitions;
pub(crate) mod desired;
pub(crate) mod desired_error;
pub(crate) mod diagnose;
pub(crate) mod digest;
pub(crate) mod error_kind;
pub(crate) mod inputs;
pub(crate) mod instructions;
pub(crate) mod interest;
pub(crate) mod kind;
pub(crate) mod lookup;
pub(crate) mod memory;
pub(crate) mod message;
pub(crate) mod observe;
pub(crate) mod own_patches;
pub(crate) mod owner;
pub(crate) mod patches;
pub(crate) mod plan;
pub(crate) mod render;
pub(crate) mod repairs;
pub(crate) mod repetition;
pub(crate) mod report;
pub(crate) mod reported;
pub(crate) mod served;
pub(crate) mod setup;
pub(crate) mod subject;
pub(crate) mod target;
pub(crate) mod traced;

pub use crate::action::live::{Live, Remark};
pub use crate::memories::{Memories, Remembered};
pub use crate::release_memory::{MemoryInUse, ReleaseMemory, Trial};
pub use crate::render_pool::{RenderPool, RenderPoolError};
pub use access::{Access, Account, Shared, Wake, Waking, Who};
pub use act::error::EngineError;
pub use advance::{Engine, Outcome, Taken};
pub use bounded::{bounded, remembered};
pub use desired_error::DesiredError;
pub use diagnose::Diagnosis;
pub use digest::canonical;
pub use error_kind::ErrorKind;
pub use inputs::{LastValues, Read};
pub use instructions::{AdoptionPolicy, Instructions, ReleaseOptions};
pub use interest::{Interests, ObservedState, ResourceRef};
pub use kind::ActionKind;
pub use memory::KnownRelease;
pub use message::{Message, Reader, Redactor};
pub use observe::Observation;
pub use own_patches::{KindField, MAX_NESTING, OwnPatchError, OwnPatches, depth, is_reserved};
pub use owner::{BoxError, OwnValues, Owner, Present, ReleaseRef, Remedy};
pub use patches::PatchError;
pub use plan::{Refusal, StallReason, Step, Until};
pub use repetition::is_same;
pub use report::{Deployed, Failure, Next, ObjectsState, Report, StepOutcome};
pub use reported::{Handled, ReleaseStatus, Reported};
pub use setup::{Identity, Setup};
pub use subject::Subject;
pub use target::{ReleaseLocation, Target};

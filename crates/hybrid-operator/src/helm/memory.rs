//! In-memory state of one custom resource. All of it can be rebuilt after a restart.
//!
//! The state belongs to a uid: a custom resource that replaces another one of its name starts with
//! none.

use host::HashMap;
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use helm_core::Coalesced;
use helm_core::manifest::{ObjectKey, parse_objects};
use helm_core::release::{Release as Record, Revision};
use jiff::Timestamp;
use kube_objects::OperatorId;
use operator_runtime::controller::Key;
use operator_runtime::telemetry::traces::History;
use parking_lot::Mutex;
use serde_json::Value;

use super::definitions::{InstalledCrds, PendingCrds};
use super::diagnose::Diagnosis;
use super::inputs::{CachedInputs, Inputs};
use super::interest::{ObservedState, ResourceRef};
use super::message::Redactor;
use super::reload::progress::Verdict;
use super::repairs::RepairBudget;
use super::repetition::Repetition;
use super::status::WrittenStatus;
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

/// The memories of all custom resources of a controller. Cheap to clone; clones share them.
#[derive(Clone, Default)]
pub(super) struct Memories(Arc<Mutex<HashMap<Key, Memory>>>);

/// The memory of a custom resource during its reconcile. Dropping it, also because the reconcile is
/// cancelled, remembers what is known then. After a panic nothing is remembered.
pub(super) struct Remembered<'a> {
    memories: &'a Memories,
    key: Key,
    memory: Memory,
}

impl Memories {
    /// Takes the memory of the custom resource with this uid: a new one if there is none, or only one
    /// of a former object of its name. `forget` is called for the latter.
    pub(super) fn take(&self, key: &Key, uid: &str, forget: impl FnOnce()) -> Remembered<'_> {
        let known = self.0.lock().remove(key);
        let is_former = known.as_ref().is_some_and(|known| known.uid != uid);
        if is_former {
            forget();
        }
        let memory = known
            .filter(|_| !is_former)
            .unwrap_or_else(|| Memory::new(uid));
        Remembered {
            memories: self,
            key: key.clone(),
            memory,
        }
    }

    /// Forgets a custom resource that is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }

    /// Returns the verdict of the last reconcile for a roll-out.
    pub(super) fn verdict(&self, key: &Key) -> Verdict {
        let memories = self.0.lock();
        memories
            .get(key)
            .map_or(Verdict::Skipped, |memory| memory.verdict)
    }
}

impl Deref for Remembered<'_> {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        &self.memory
    }
}

impl DerefMut for Remembered<'_> {
    fn deref_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }
}

impl Drop for Remembered<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let memory = std::mem::take(&mut self.memory);
            self.memories.0.lock().insert(self.key.clone(), memory);
        }
    }
}

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

/// State remembered between reconciles of one custom resource.
#[derive(Clone, Default)]
pub(super) struct Memory {
    /// Uid of the custom resource.
    pub(super) uid: String,
    /// Version of the setup at the last reconcile.
    pub(super) setup: u64,
    /// Verdict of the last reconcile for a roll-out.
    pub(super) verdict: Verdict,
    pub(super) release: KnownRelease,
    pub(super) told: Told,
    /// Attempts as last traced.
    pub(super) traced: History,
}

/// Knowledge about the release of a custom resource, by which steps are decided and executed.
#[derive(Clone, Default)]
pub(super) struct KnownRelease {
    /// Objects as last applied.
    pub(super) live: Live,
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
    pub(super) reported: Option<Revision>,
    /// Obstacles that blocked the last attempt.
    pub(super) obstacles: Obstacles,
    /// Decides what readers see of messages.
    pub(super) redactor: Redactor,
    /// The last failure of which is not known whether it is permanent.
    pub(super) repetition: Repetition,
    /// The revision that waits, what for, and since when.
    pub(super) waiting: Option<((Revision, String), Timestamp)>,
    /// Objects of revisions that were not completed, which may exist when no record names them any more.
    pub(super) leftovers: BTreeSet<ObjectKey>,
}

/// Contents of the status and the events of a custom resource, as last reported.
#[derive(Clone, Default)]
pub(super) struct Told {
    /// Operator that managed the release.
    pub(super) managing_operator: Option<OperatorId>,
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
    /// Returns a memory without any knowledge of the custom resource with this uid.
    pub(super) fn new(uid: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            ..Self::default()
        }
    }

    /// Forgets what depends on the chart and its options if they have changed.
    pub(super) fn for_setup(&mut self, version: u64) {
        if self.setup != version {
            self.setup = version;
            let release = &mut self.release;
            release.cached_inputs = None;
            release.equal = None;
            release.pending_crds = None;
            release.installed_crds = None;
            release.rendered = None;
        }
    }
}

impl KnownRelease {
    /// Returns the values that errors of the release may quote; `asked` is what its owner asks for.
    pub(super) fn values<'a>(&'a self, asked: Option<&'a Value>) -> Vec<&'a Value> {
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn memory_belongs_to_a_uid_and_outlives_a_cancelled_reconcile_but_no_panic() {
        let (memories, key) = (Memories::default(), Key::new(Some("ns"), "one"));
        let forgotten = Cell::new(0);
        let take = |uid: &str| memories.take(&key, uid, || forgotten.set(forgotten.get() + 1));
        take("a").setup = 7;
        assert_eq!((take("a").setup, forgotten.get()), (7, 0));
        assert_eq!((take("b").setup, forgotten.get()), (0, 1));
        assert_eq!((take("b").uid.as_str(), forgotten.get()), ("b", 1));

        take("b").setup = 8;
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _memory = take("b");
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(panicked.is_err());
        assert_eq!(take("b").setup, 0);
        memories.forget(&key);
        assert!(!memories.0.lock().contains_key(&key));
    }
}

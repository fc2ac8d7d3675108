//! Memory of the hooks of a release: knowledge of this process beyond the record. Losing it is safe.
//!
//! It holds the watches of running hooks, so that their events wake the release, and returns the
//! outcome of hooks whose objects are gone.

use std::collections::{BTreeMap, VecDeque};

use helm_core::manifest::ObjectKey;

use kube_objects::readiness::HookOutcome;
use kube_objects::watch::{WatchGuard, WatchState};

/// Number of completed runs that are remembered; more than one revision has.
const MAX_COMPLETED: usize = 8;

/// The hooks of one release that this process has created or seen.
#[derive(Clone, Default)]
pub(in crate::action) struct HookMemory {
    tracked: BTreeMap<ObjectKey, TrackedObject>,
    completed: VecDeque<String>,
}

/// A Job or Pod of a hook.
#[derive(Clone)]
struct TrackedObject {
    run: String,
    uid: String,
    /// A resource version that the object has had.
    version: u64,
    guard: WatchGuard,
}

impl HookMemory {
    /// Records that an object of this run exists.
    pub(super) fn track(
        &mut self,
        key: &ObjectKey,
        run: &str,
        uid: &str,
        version: &str,
        guard: &WatchGuard,
    ) {
        let tracked = TrackedObject {
            run: run.to_owned(),
            uid: uid.to_owned(),
            version: version.parse().unwrap_or(0),
            guard: guard.clone(),
        };
        self.tracked.insert(key.clone(), tracked);
    }

    /// Returns the outcome of an object of this run that is gone; `None` if this process has never
    /// seen one.
    pub(super) fn outcome_of_missing(&self, key: &ObjectKey, run: &str) -> Option<HookOutcome> {
        let known = self.tracked.get(key).filter(|known| known.run == run)?;
        let guard = &known.guard;
        let shown = guard
            .get(key.namespace.as_deref(), &key.name)
            .is_some_and(|seen| *seen.uid == *known.uid);
        let caught_up = !shown && guard.version() >= known.version;
        Some(outcome_of_missing(
            key,
            guard.outcome(&known.uid),
            &guard.state(),
            caught_up,
        ))
    }

    pub(super) fn uid(&self, key: &ObjectKey) -> Option<&str> {
        self.tracked.get(key).map(|known| known.uid.as_str())
    }

    /// Iterates over the keys of the Jobs and Pods of running hooks.
    pub(in crate::action) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.tracked.keys()
    }

    /// Drops an object whose result is recorded, and releases its watch.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.tracked.remove(key);
    }

    /// Drops all objects: those of a revision that another one has replaced are no longer awaited.
    pub(in crate::action) fn forget_running(&mut self) {
        self.tracked.clear();
    }

    /// Records that a run has succeeded and its delete policies are applied.
    pub(super) fn complete(&mut self, run: &str) {
        if self.completed.len() >= MAX_COMPLETED {
            self.completed.pop_front();
        }
        self.completed.push_back(run.to_owned());
    }

    /// Returns whether a run has succeeded and its delete policies are applied.
    pub(super) fn is_complete(&self, run: &str) -> bool {
        self.completed.iter().any(|known| known == run)
    }
}

/// Returns the outcome of an object that is gone: its result, if the watch has seen it. `caught_up`
/// says that the watch has seen the deletion, so that no further event of the object will follow.
fn outcome_of_missing(
    key: &ObjectKey,
    seen: Option<HookOutcome>,
    watch: &WatchState,
    caught_up: bool,
) -> HookOutcome {
    match (seen, watch) {
        (Some(outcome), _) => outcome,
        (None, WatchState::Synced) if !caught_up => HookOutcome::Running,
        (None, WatchState::Starting | WatchState::Failing(_)) => HookOutcome::Running,
        (None, WatchState::Synced | WatchState::Forbidden(_) | WatchState::Missing) => {
            HookOutcome::Failed(format!("{key} was deleted before it completed"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_hook_has_the_outcome_that_the_watch_saw() {
        let key = ObjectKey {
            group: "batch".to_owned(),
            version: "v1".to_owned(),
            kind: "Job".to_owned(),
            namespace: Some("prod".to_owned()),
            name: "migrate".to_owned(),
        };
        let forbidden = || WatchState::Forbidden("watch jobs".to_owned());
        let broken = || WatchState::Failing("no answer".to_owned());
        let failed = || HookOutcome::Failed("Job failed".to_owned());
        let deleted = || {
            HookOutcome::Failed("Job.batch prod/migrate was deleted before it completed".to_owned())
        };
        for (seen, watch, caught_up, expected) in [
            (
                Some(HookOutcome::Succeeded),
                WatchState::Synced,
                true,
                HookOutcome::Succeeded,
            ),
            (Some(failed()), WatchState::Synced, true, failed()),
            (
                Some(HookOutcome::Succeeded),
                broken(),
                false,
                HookOutcome::Succeeded,
            ),
            // The event with its result may still arrive.
            (None, WatchState::Synced, false, HookOutcome::Running),
            (None, WatchState::Starting, true, HookOutcome::Running),
            (None, broken(), true, HookOutcome::Running),
            // Its result will never be known.
            (None, WatchState::Synced, true, deleted()),
            (None, forbidden(), false, deleted()),
            (None, WatchState::Missing, false, deleted()),
        ] {
            let found = outcome_of_missing(&key, seen.clone(), &watch, caught_up);
            assert_eq!(found, expected, "{seen:?} {watch:?} {caught_up}");
        }
    }
}

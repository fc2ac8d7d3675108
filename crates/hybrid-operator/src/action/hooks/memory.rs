//! What this process knows of the hooks of a release beside the record. All of it can be lost.
//!
//! It holds the watches of the hooks that are awaited, so that they wake the release, and tells
//! what became of a hook that is gone.

use std::collections::{BTreeMap, VecDeque};

use helm_core::manifest::ObjectKey;

use crate::controller::{WatchGuard, WatchState};
use crate::readiness::HookOutcome;

/// How many ended events are remembered: more than one revision has.
const EVENTS: usize = 8;

/// The hooks of one release, as far as this process has made or seen them.
#[derive(Clone, Default)]
pub(in crate::action) struct HookMemory {
    awaited: BTreeMap<ObjectKey, Awaited>,
    ended: VecDeque<String>,
}

/// A Job or Pod of a hook.
#[derive(Clone)]
struct Awaited {
    run: String,
    uid: String,
    /// A resource version that it has had.
    version: u64,
    guard: WatchGuard,
}

impl HookMemory {
    /// Remembers an object of this run that is there.
    pub(super) fn saw(
        &mut self,
        key: &ObjectKey,
        run: &str,
        uid: &str,
        version: &str,
        guard: &WatchGuard,
    ) {
        let awaited = Awaited {
            run: run.to_owned(),
            uid: uid.to_owned(),
            version: version.parse().unwrap_or(0),
            guard: guard.clone(),
        };
        self.awaited.insert(key.clone(), awaited);
    }

    /// What became of an object of this run that is gone; `None` if this process has never known
    /// of one.
    pub(super) fn fate(&self, key: &ObjectKey, run: &str) -> Option<HookOutcome> {
        let known = self.awaited.get(key).filter(|known| known.run == run)?;
        let guard = &known.guard;
        let shown = guard
            .get(key.namespace.as_deref(), &key.name)
            .is_some_and(|seen| *seen.uid == *known.uid);
        let caught_up = !shown && guard.version() >= known.version;
        Some(fate(
            key,
            guard.outcome(&known.uid),
            &guard.state(),
            caught_up,
        ))
    }

    /// The uid of an object.
    pub(super) fn uid(&self, key: &ObjectKey) -> Option<&str> {
        self.awaited.get(key).map(|known| known.uid.as_str())
    }

    /// Forgets an object whose end is recorded, and closes its watch.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.awaited.remove(key);
    }

    /// Remembers that a run of an event has ended well and is cleaned up after.
    pub(super) fn end(&mut self, run: &str) {
        if self.ended.len() >= EVENTS {
            self.ended.pop_front();
        }
        self.ended.push_back(run.to_owned());
    }

    /// Whether a run of an event has ended well and is cleaned up after.
    pub(super) fn has_ended(&self, run: &str) -> bool {
        self.ended.iter().any(|known| known == run)
    }
}

/// What became of an object that is gone: its end, if the watch has seen it. `caught_up` tells
/// that the watch knows that the object is gone, so that nothing it has not told is left to come.
fn fate(
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
            HookOutcome::Failed(format!("{key} was deleted before it had ended"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_that_is_gone_has_ended_as_the_watch_saw_it() {
        let key = ObjectKey {
            group: "batch".to_owned(),
            version: "v1".to_owned(),
            kind: "Job".to_owned(),
            namespace: Some("prod".to_owned()),
            name: "migrate".to_owned(),
        };
        let refused = || WatchState::Forbidden("watch jobs".to_owned());
        let broken = || WatchState::Failing("no answer".to_owned());
        let failed = || HookOutcome::Failed("Job failed".to_owned());
        let deleted = || {
            HookOutcome::Failed("Job.batch prod/migrate was deleted before it had ended".to_owned())
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
            // Its end may be on the way still.
            (None, WatchState::Synced, false, HookOutcome::Running),
            (None, WatchState::Starting, true, HookOutcome::Running),
            (None, broken(), true, HookOutcome::Running),
            // Nobody will tell of its end.
            (None, WatchState::Synced, true, deleted()),
            (None, refused(), false, deleted()),
            (None, WatchState::Missing, false, deleted()),
        ] {
            let found = fate(&key, seen.clone(), &watch, caught_up);
            assert_eq!(found, expected, "{seen:?} {watch:?} {caught_up}");
        }
    }
}

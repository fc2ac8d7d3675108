//! Objects that interrupted runs of hooks have left behind.
//!
//! A process that dies in a run applies neither `hook-succeeded` nor `hook-failed`. The object that
//! it leaves is recognised by the label of its run, and by the record of that run: without the
//! interruption it would have been deleted, or the hook that created it has not ended.

use helm_core::manifest::hook::DeletePolicy;
use helm_core::manifest::{Hook, HookPhase};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::progress::{HookAttempt, recorded};
use super::{Run, StoredRelease};
use crate::cluster::ownership::run_of;

/// Runs whose objects may be left. An object is identified by the label of its run, and the kind and
/// the name of its hook.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupted(Vec<(String, String, String)>);

impl Interrupted {
    /// Returns the runs of these records that did not end, or whose policies may not have been
    /// applied.
    pub(crate) fn of<'r>(records: impl IntoIterator<Item = &'r StoredRelease>) -> Self {
        let mut runs = Vec::new();
        for stored in records {
            for hook in &stored.release.hooks {
                for run in recorded(&stored.release, hook) {
                    let left = match run.execution.phase {
                        HookPhase::Running => true,
                        HookPhase::Succeeded => {
                            hook.has_delete_policy(&DeletePolicy::HookSucceeded)
                        }
                        HookPhase::Failed => hook.has_delete_policy(&DeletePolicy::HookFailed),
                        HookPhase::None | HookPhase::Unknown | HookPhase::Other(_) => false,
                    };
                    if left {
                        let attempt = HookAttempt {
                            event: run.event,
                            number: run.attempt,
                        };
                        runs.push(named(Run::at(stored, attempt), hook));
                    }
                }
            }
        }
        Self(runs)
    }

    /// Returns the earlier attempts of an event. The record has the result of the latest alone: what
    /// may be left of the others is what one of the policies would have deleted.
    pub(super) fn attempts_before(stored: &StoredRelease, attempt: &HookAttempt) -> Self {
        let deleted = |hook: &&Hook| {
            hook.events.contains(&attempt.event)
                && (hook.has_delete_policy(&DeletePolicy::HookSucceeded)
                    || hook.has_delete_policy(&DeletePolicy::HookFailed))
        };
        let hooks = stored.release.hooks.iter().filter(deleted);
        let runs = hooks.flat_map(|hook| {
            (1..attempt.number).map(move |number| {
                let attempt = HookAttempt {
                    number,
                    ..attempt.clone()
                };
                named(Run::at(stored, attempt), hook)
            })
        });
        Self(runs.collect())
    }

    /// Adds other runs.
    pub(super) fn extend(&mut self, others: &Self) {
        self.0.extend(others.0.iter().cloned());
    }

    /// Returns whether one of these runs has left this object of a hook.
    pub(super) fn left(&self, hook: &Hook, object: &ObjectMeta) -> bool {
        run_of(object).is_some_and(|label| {
            self.0
                .iter()
                .any(|(run, kind, name)| run == label && *kind == hook.kind && *name == hook.name)
        })
    }
}

fn named(run: Run, hook: &Hook) -> (String, String, String) {
    (run.label, hook.kind.clone(), hook.name.clone())
}

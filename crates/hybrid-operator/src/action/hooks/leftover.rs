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

    /// Iterates over these runs of hooks of a release: each hook with the label of a run.
    pub(super) fn of_hooks<'i>(
        &'i self,
        hooks: &'i [Hook],
    ) -> impl Iterator<Item = (&'i Hook, &'i str)> {
        self.0.iter().filter_map(|(run, kind, name)| {
            let mut hooks = hooks.iter();
            let hook = hooks.find(|hook| hook.kind == *kind && hook.name == *name)?;
            Some((hook, run.as_str()))
        })
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use helm_core::manifest::HookEvent;
    use helm_core::release::{Release, Revision};
    use jiff::Timestamp;

    use super::*;
    use crate::cluster::ownership::RUN_LABEL;
    use crate::release::{Format, RecordMeta};

    /// The record of revision 2, with a hook in each phase and with each policy.
    fn record() -> StoredRelease {
        let mut release = Release::new("one".parse().unwrap(), "prod", Revision(2));
        let phases = [HookPhase::Running, HookPhase::Succeeded, HookPhase::Failed];
        let policies = [
            DeletePolicy::HookSucceeded,
            DeletePolicy::HookFailed,
            DeletePolicy::BeforeHookCreation,
        ];
        for phase in &phases {
            for policy in &policies {
                release.hooks.push(Hook {
                    name: format!("{}-{}", phase.as_str(), policy.as_str()),
                    kind: "Job".to_owned(),
                    events: vec![HookEvent::PreUpgrade],
                    delete_policies: vec![policy.clone()],
                    ..Hook::default()
                });
            }
        }
        let attempt = first();
        for (index, phase) in phases.iter().flat_map(|phase| [phase; 3]).enumerate() {
            attempt.set(&mut release, index, phase.clone(), Timestamp::UNIX_EPOCH);
        }
        let metadata = serde_json::json!({
            "name": "sh.helm.release.v1.one.v2", "namespace": "prod", "uid": "record-2",
            "resourceVersion": "5", "labels": {"owner": "helm"},
        });
        let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
        StoredRelease {
            meta: RecordMeta::of(&metadata, Format::Helm).unwrap(),
            release,
            proven: true,
        }
    }

    fn first() -> HookAttempt {
        HookAttempt {
            event: HookEvent::PreUpgrade,
            number: 1,
        }
    }

    fn object(run: &str) -> ObjectMeta {
        ObjectMeta {
            labels: Some(BTreeMap::from([(RUN_LABEL.to_owned(), run.to_owned())])),
            ..ObjectMeta::default()
        }
    }

    fn left(interrupted: &Interrupted, stored: &StoredRelease, run: &str) -> Vec<String> {
        let hooks = stored.release.hooks.iter();
        let left = hooks.filter(|hook| interrupted.left(hook, &object(run)));
        left.map(|hook| hook.name.clone()).collect()
    }

    #[test]
    fn hooks_that_did_not_end_or_whose_policy_was_not_applied_are_left() {
        let stored = record();
        let interrupted = Interrupted::of([&stored]);
        let run = Run::at(&stored, first()).label;
        let expected = [
            "Running-hook-succeeded",
            "Running-hook-failed",
            "Running-before-hook-creation",
            "Succeeded-hook-succeeded",
            "Failed-hook-failed",
        ];
        assert_eq!(left(&interrupted, &stored, &run), expected);
        // Another run, and an object without one.
        assert!(left(&interrupted, &stored, "other").is_empty());
        let hook = &stored.release.hooks[0];
        assert!(!interrupted.left(hook, &ObjectMeta::default()));
    }

    #[test]
    fn earlier_attempts_leave_what_a_policy_deletes() {
        let stored = record();
        let second = HookAttempt {
            number: 2,
            ..first()
        };
        let before = Interrupted::attempts_before(&stored, &second);
        let run = Run::at(&stored, first()).label;
        let found = left(&before, &stored, &run);
        assert_eq!(found.len(), 6, "{found:?}");
        assert!(found.iter().all(|name| !name.ends_with("creation")));
        let present = Run::at(&stored, second).label;
        assert!(left(&before, &stored, &present).is_empty());
        let none = Interrupted::attempts_before(&stored, &first());
        assert!(left(&none, &stored, &run).is_empty());
    }
}

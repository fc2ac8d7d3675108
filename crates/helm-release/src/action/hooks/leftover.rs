//! Objects that interrupted runs of hooks have left behind.
//!
//! A process that dies in a run applies neither `hook-succeeded` nor `hook-failed`. The object that
//! it leaves is recognised by the label of its run, and by the record of that run: without the
//! interruption it would have been deleted, or the hook that created it has not ended. An object of a
//! run of no record is left, too: somebody has deleted the record.

use std::collections::BTreeSet;

use helm_core::manifest::hook::DeletePolicy;
use helm_core::manifest::{Hook, HookPhase, ObjectKey, parse_objects};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_objects::ownership::run_of;

use super::progress::{HookAttempt, Run, recorded};
use crate::action::context::StoredRelease;

/// Runs whose objects may be left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupted {
    runs: Vec<HookRun>,
    /// All runs since some time; `None` if they are not known.
    recorded: Option<RecordedRuns>,
}

/// The runs of the records since some time, whether they were interrupted or not.
#[derive(Clone, Debug, Default)]
struct RecordedRuns {
    /// Time when the first of the records was stored; `None` if there is none.
    since: Option<Timestamp>,
    labels: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct HookRun {
    /// The label of its objects.
    label: String,
    /// The objects of the hook, as its document names them.
    objects: Vec<ObjectKey>,
}

impl Interrupted {
    /// Returns the runs of these records that did not end, or whose policies may not have been
    /// applied. These are all records since the first of them.
    pub(crate) fn of<'r>(records: impl IntoIterator<Item = &'r StoredRelease>) -> Self {
        let mut runs = Vec::new();
        let mut all = RecordedRuns::default();
        for stored in records {
            let since = [all.since, stored.meta.stored_at];
            all.since = since.into_iter().flatten().min();
            all.labels.extend(labels(stored));
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
                        runs.push(HookRun::of(Run::at(stored, attempt), hook));
                    }
                }
            }
        }
        Self {
            runs,
            recorded: Some(all),
        }
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
                HookRun::of(Run::at(stored, attempt), hook)
            })
        });
        Self {
            runs: runs.collect(),
            recorded: None,
        }
    }

    /// Iterates over these runs of hooks of a release: each hook with the label of a run.
    pub(super) fn of_hooks<'i>(
        &'i self,
        hooks: &'i [Hook],
    ) -> impl Iterator<Item = (&'i Hook, &'i str)> {
        self.runs.iter().filter_map(|run| {
            let mut hooks = hooks.iter();
            let hook = hooks.find(|hook| keys(hook) == run.objects)?;
            Some((hook, run.label.as_str()))
        })
    }

    /// Adds those of earlier records to those of a record.
    pub(super) fn extend(&mut self, earlier: &Self, stored: &StoredRelease) {
        self.runs.extend(earlier.runs.iter().cloned());
        self.recorded.clone_from(&earlier.recorded);
        if let Some(recorded) = &mut self.recorded {
            recorded.labels.extend(labels(stored));
        }
    }

    /// Returns whether one of these runs has left this object of a hook.
    pub(super) fn left(&self, key: &ObjectKey, object: &ObjectMeta) -> bool {
        let is_same = |other: &ObjectKey| {
            (&other.group, &other.kind, &other.name) == (&key.group, &key.kind, &key.name)
        };
        run_of(object).is_some_and(|label| {
            let mut runs = self.runs.iter();
            runs.any(|run| run.label == label && run.objects.iter().any(is_same))
                || (self.recorded.as_ref()).is_some_and(|recorded| recorded.lack(label, object))
        })
    }
}

impl RecordedRuns {
    /// Returns whether an object was created in a run of none of these records, and later than the first of them.
    fn lack(&self, label: &str, object: &ObjectMeta) -> bool {
        let made = object.creation_timestamp.as_ref().map(|made| made.0);
        let is_later = self
            .since
            .is_none_or(|since| made.is_some_and(|made| made > since));
        is_later && !self.labels.contains(label)
    }
}

/// Returns the labels of all runs of a record.
fn labels(stored: &StoredRelease) -> impl Iterator<Item = String> {
    let hooks = stored.release.hooks.iter();
    let runs = hooks.flat_map(|hook| recorded(&stored.release, hook));
    runs.flat_map(move |run| {
        (1..=run.attempt).map(move |number| {
            let event = run.event.clone();
            Run::at(stored, HookAttempt { event, number }).label
        })
    })
}

impl HookRun {
    fn of(run: Run, hook: &Hook) -> Self {
        Self {
            label: run.label,
            objects: keys(hook),
        }
    }
}

/// Returns the objects of a hook. One that cannot be read has never been created.
fn keys(hook: &Hook) -> Vec<ObjectKey> {
    let objects = parse_objects(&hook.manifest).unwrap_or_default();
    let keys = objects.iter().map(|object| object.key().clone());
    keys.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use helm_core::manifest::HookEvent;
    use helm_core::release::{Release, Revision};
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::release::{Format, RecordMeta};
    use kube_objects::ownership::RUN_LABEL;

    /// The record of revision 2, with a hook in each phase and with each policy. Each is a list without a name.
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
                    kind: "List".to_owned(),
                    manifest: format!(
                        "apiVersion: v1\nkind: List\nitems:\n\
                         - {{apiVersion: v1, kind: ConfigMap, metadata: {{name: of-{0}-{1}}}}}\n\
                         - {{apiVersion: batch/v1, kind: Job, metadata: {{name: {0}-{1}}}}}\n",
                        phase.as_str(),
                        policy.as_str()
                    ),
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
            "creationTimestamp": "1970-01-01T00:00:10Z",
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

    /// Returns the Jobs that a run has left.
    fn left(interrupted: &Interrupted, stored: &StoredRelease, run: &str) -> Vec<String> {
        let jobs = stored
            .release
            .hooks
            .iter()
            .flat_map(keys)
            .filter(|key| key.kind == "Job");
        let left = jobs.filter(|key| interrupted.left(key, &object(run)));
        left.map(|key| key.name).collect()
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
        let key = &keys(&stored.release.hooks[0])[0];
        assert!(interrupted.left(key, &object(&run)));
        assert!(!interrupted.left(key, &ObjectMeta::default()));
        // Each list with its own run: no hook is taken for another one without a name.
        let found: Vec<_> = interrupted
            .of_hooks(&stored.release.hooks)
            .map(|(hook, _)| keys(hook)[1].name.clone())
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_a_run_of_no_record_made_is_left() {
        let stored = record();
        let key = &keys(&stored.release.hooks[0])[0];
        let made = |second: i64, run: &str| ObjectMeta {
            creation_timestamp: Some(Time(Timestamp::from_second(second).unwrap())),
            ..object(run)
        };
        let known = Run::at(&stored, first()).label;
        // The record was stored in the second 10.
        let earlier = Interrupted::of([&stored]);
        for (second, run, expected) in [
            (9, "lost", false),
            (10, "lost", false),
            (11, "lost", true),
            (11, known.as_str(), false),
        ] {
            let of_succeeded = &keys(&stored.release.hooks[4])[0];
            let left = earlier.left(of_succeeded, &made(second, run));
            assert_eq!(left, expected, "{second} {run}");
        }
        // A run of the record that is deployed now is known, too.
        let mut present = Interrupted::attempts_before(&stored, &first());
        // Not all records are known.
        assert!(!present.left(key, &made(11, "lost")));
        present.extend(&Interrupted::of([]), &stored);
        assert!(present.left(key, &made(1, "lost")));
        assert!(!present.left(key, &made(1, &known)));
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

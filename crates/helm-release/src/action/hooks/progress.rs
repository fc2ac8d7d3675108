//! The progress of an event's hooks, as the record holds it.
//!
//! Helm's record has a single last run for each hook, whatever its events. The operator
//! additionally records a run for each event ([`EventRun`]), so that a hook of two events runs at
//! both, and the number of the attempt, so that all hooks of a failed event run again when it is
//! retried, as in Helm.
//!
//! The `helm` command drops these runs when it writes a record (`helm test`). The last run of a
//! hook then counts for the earliest [`stage`] in the life of a release at which the hook runs: a
//! hook that succeeded after the install still runs before the deletion.

use crate::action::context::{StoredRelease, run_id};
use helm_core::manifest::{EventRun, Hook, HookEvent, HookExecution, HookPhase};
use helm_core::release::{Release, Time};
use jiff::Timestamp;
use kube_objects::ownership::label_value;

/// One attempt to run the hooks of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HookAttempt {
    pub(super) event: HookEvent,
    /// Counted from 1.
    pub(super) number: u32,
}

impl HookAttempt {
    /// Returns the attempt in progress, or the next one after a failure.
    pub(super) fn of(release: &Release, event: &HookEvent) -> Self {
        let runs = || {
            let hooks = release.hooks.iter();
            hooks.flat_map(|hook| {
                recorded(release, hook)
                    .into_iter()
                    .filter(move |r| r.event == *event)
            })
        };
        let latest = runs().map(|run| run.attempt).max().unwrap_or(1);
        let failed =
            |run: EventRun| run.attempt == latest && run.execution.phase == HookPhase::Failed;
        Self {
            event: event.clone(),
            number: latest + u32::from(runs().any(failed)),
        }
    }

    /// Returns the execution of a hook in this attempt.
    pub(super) fn execution(&self, release: &Release, hook: &Hook) -> HookExecution {
        recorded(release, hook)
            .into_iter()
            .find(|run| run.event == self.event && run.attempt == self.number)
            .map(|run| run.execution)
            .unwrap_or_default()
    }

    /// Sets the phase of a hook in the record.
    pub(super) fn set(
        &self,
        release: &mut Release,
        index: usize,
        phase: HookPhase,
        now: Timestamp,
    ) {
        let Some(hook) = release.hooks.get(index) else {
            return;
        };
        let now = Some(Time::utc(now));
        let mut execution = self.execution(release, hook);
        if phase == HookPhase::Running {
            execution.started_at = now;
            execution.completed_at = None;
        } else {
            execution.completed_at = now;
        }
        execution.phase = phase;
        // The record has runs by event from now on; the last runs are converted to them.
        let all: Vec<Vec<EventRun>> = release.hooks.iter().map(|h| recorded(release, h)).collect();
        for (hook, runs) in release.hooks.iter_mut().zip(all) {
            hook.event_runs = runs;
        }
        let revision = release.revision;
        if let Some(hook) = release.hooks.get_mut(index) {
            hook.last_run = execution.clone();
            hook.event_runs.retain(|run| run.event != self.event);
            hook.event_runs.push(EventRun {
                event: self.event.clone(),
                revision,
                attempt: self.number,
                execution,
            });
        }
    }
}

/// Returns the runs of a hook by event, in this revision.
pub(super) fn recorded(release: &Release, hook: &Hook) -> Vec<EventRun> {
    let present = |run: &&EventRun| run.revision == release.revision;
    let has_runs = |hook: &Hook| hook.event_runs.iter().any(|run| present(&run));
    if release.hooks.iter().any(has_runs) {
        return hook.event_runs.iter().filter(present).cloned().collect();
    }
    let Some(first) = hook.events.iter().map(stage).min() else {
        return Vec::new();
    };
    if hook.last_run.phase == HookPhase::None {
        return Vec::new();
    }
    let of_last_run = hook.events.iter().filter(|event| stage(event) == first);
    of_last_run
        .map(|event| EventRun {
            event: event.clone(),
            revision: release.revision,
            attempt: 1,
            execution: hook.last_run.clone(),
        })
        .collect()
}

/// Returns the position of an event in the life of a revision.
fn stage(event: &HookEvent) -> u8 {
    match event {
        HookEvent::PreInstall | HookEvent::PreUpgrade | HookEvent::PreRollback => 0,
        HookEvent::PostInstall | HookEvent::PostUpgrade | HookEvent::PostRollback => 1,
        HookEvent::Test => 2,
        HookEvent::PreDelete => 3,
        HookEvent::PostDelete => 4,
        HookEvent::Other(_) => u8::MAX,
    }
}

/// An attempt to run the hooks of an event, and the label of its objects.
pub(super) struct Run {
    pub(super) attempt: HookAttempt,
    pub(super) label: String,
}

impl Run {
    pub(super) fn of(stored: &StoredRelease, event: &HookEvent) -> Self {
        Self::at(stored, HookAttempt::of(&stored.release, event))
    }

    pub(super) fn at(stored: &StoredRelease, attempt: HookAttempt) -> Self {
        // A release that was uninstalled by hand starts again at revision 1, but its record has
        // another uid.
        let step = format!("{}-{}", attempt.event, attempt.number);
        let run = run_id(&stored.meta.uid, stored.release.revision.0, &step);
        Self {
            attempt,
            label: label_value(&run),
        }
    }
}

#[cfg(test)]
mod tests {
    use helm_core::release::Revision;

    use super::*;

    fn release(hooks: &[&[HookEvent]]) -> Release {
        let mut release = Release::new("one".parse().unwrap(), "prod", Revision(3));
        let hook = |events: &&[HookEvent]| Hook {
            events: events.to_vec(),
            ..Hook::default()
        };
        release.hooks = hooks.iter().map(hook).collect();
        release
    }

    fn phases(release: &Release, event: &HookEvent) -> (u32, Vec<HookPhase>) {
        let attempt = HookAttempt::of(release, event);
        let phase = |hook| attempt.execution(release, hook).phase;
        let phases = release.hooks.iter().map(phase).collect();
        (attempt.number, phases)
    }

    fn set(release: &mut Release, event: &HookEvent, index: usize, phase: HookPhase) {
        let attempt = HookAttempt::of(release, event);
        attempt.set(release, index, phase, Timestamp::UNIX_EPOCH);
    }

    use HookEvent::{PostInstall, PreDelete, PreInstall, PreUpgrade};
    use HookPhase::{Failed, None, Running, Succeeded};

    #[test]
    fn a_hook_of_two_events_runs_at_both() {
        let mut release = release(&[&[PreInstall, PostInstall]]);
        set(&mut release, &PreInstall, 0, Running);
        assert_eq!(phases(&release, &PreInstall), (1, vec![Running]));
        assert_eq!(phases(&release, &PostInstall), (1, vec![None]));
        set(&mut release, &PreInstall, 0, Succeeded);
        set(&mut release, &PostInstall, 0, Running);
        // A later event does not change the result of an earlier one.
        assert_eq!(phases(&release, &PreInstall), (1, vec![Succeeded]));
        assert_eq!(phases(&release, &PostInstall), (1, vec![Running]));
        assert_eq!(release.hooks[0].last_run.phase, Running);
    }

    #[test]
    fn all_hooks_of_a_failed_event_run_again() {
        let events: &[HookEvent] = &[PreDelete];
        let mut release = release(&[events, events]);
        set(&mut release, &PreDelete, 0, Running);
        set(&mut release, &PreDelete, 0, Succeeded);
        set(&mut release, &PreDelete, 1, Running);
        assert_eq!(phases(&release, &PreDelete), (1, vec![Succeeded, Running]));
        set(&mut release, &PreDelete, 1, Failed);
        assert_eq!(phases(&release, &PreDelete), (2, vec![None, None]));
        set(&mut release, &PreDelete, 0, Running);
        assert_eq!(phases(&release, &PreDelete), (2, vec![Running, None]));
        set(&mut release, &PreDelete, 0, Succeeded);
        set(&mut release, &PreDelete, 1, Running);
        set(&mut release, &PreDelete, 1, Succeeded);
        let both = vec![Succeeded, Succeeded];
        assert_eq!(phases(&release, &PreDelete), (2, both));
    }

    #[test]
    fn each_run_has_its_own_times() {
        let mut release = release(&[&[PreInstall, PostInstall]]);
        let at = |second| Timestamp::from_second(second).unwrap();
        let pre = HookAttempt::of(&release, &PreInstall);
        pre.set(&mut release, 0, Running, at(1));
        pre.set(&mut release, 0, Succeeded, at(2));
        let post = HookAttempt::of(&release, &PostInstall);
        post.set(&mut release, 0, Running, at(500));
        let started = |attempt: &HookAttempt| {
            let execution = attempt.execution(&release, &release.hooks[0]);
            execution.started_at.unwrap().instant()
        };
        assert_eq!((started(&pre), started(&post)), (at(1), at(500)));
        assert_eq!(release.hooks[0].last_run.completed_at, Option::None);
    }

    #[test]
    fn runs_of_the_copied_revision_do_not_count_for_the_copy() {
        let mut release = release(&[&[PreInstall]]);
        set(&mut release, &PreInstall, 0, Succeeded);
        // A rollback copies the hooks of an earlier record.
        release.revision = release.revision.next();
        release.hooks[0].last_run = HookExecution::default();
        assert_eq!(phases(&release, &PreInstall), (1, vec![None]));
        set(&mut release, &PreInstall, 0, Running);
        assert_eq!(release.hooks[0].event_runs.len(), 1);
    }

    #[test]
    fn without_runs_by_event_the_last_run_counts_for_the_earliest_event() {
        // Records written by the `helm` command: events, phase of the last run, event asked for,
        // expected attempt and phase.
        let upgrades = &[PreInstall, PreUpgrade][..];
        let installs = &[PreInstall, PostInstall][..];
        for (events, last, asked, found) in [
            (&[PreInstall][..], Succeeded, PreInstall, (1, Succeeded)),
            (upgrades, Succeeded, PreUpgrade, (1, Succeeded)),
            (installs, Running, PreInstall, (1, Running)),
            (installs, Succeeded, PostInstall, (1, None)),
            (&[PostInstall, PreDelete], Succeeded, PreDelete, (1, None)),
            (&[PreDelete], Failed, PreDelete, (2, None)),
            (&[PreDelete], None, PreDelete, (1, None)),
        ] {
            let mut release = release(&[events]);
            release.hooks[0].last_run.phase = last.clone();
            let ended = phases(&release, &asked);
            assert_eq!(ended, (found.0, vec![found.1]), "{events:?} {last}");
        }
    }

    #[test]
    fn last_runs_are_converted_to_runs_by_event() {
        let mut release = release(&[&[PreInstall], &[PreInstall], &[PreInstall]]);
        release.hooks[0].last_run.phase = Succeeded;
        release.hooks[1].last_run.phase = Running;
        set(&mut release, &PreInstall, 1, Succeeded);
        let expected = (1, vec![Succeeded, Succeeded, None]);
        assert_eq!(phases(&release, &PreInstall), expected);
    }
}

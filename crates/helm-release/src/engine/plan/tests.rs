//! Tests of the plan: a table of states and steps, which `docs/contributing/reconciler.md` has in prose; rules that hold in
//! every state ([`exhaustive`]); and that every state leads to rest ([`progress`]).

use std::time::Duration;

use helm_core::release::{Revision, Status};

use super::{
    Adoption, Content, DesiredFacts, Drift, MAX_CLEAN_INSTALLS, MAX_FAILED_REVISIONS,
    MAX_HOOK_ATTEMPTS, MAX_RETRY_DELAY, ObservedFacts, RecordFacts, Refusal, StallReason, Step,
    Until, next_step, retry_delay,
};

mod exhaustive;
mod failures;
mod progress;

const TIMEOUT: Duration = Duration::from_mins(5);
/// Longer than any delay between attempts.
const LONG_AGO: Duration = Duration::from_hours(1);

fn record(revision: u32, status: Status, digest: Option<&str>) -> RecordFacts {
    let failed = matches!(status, Status::Failed | Status::Uninstalled);
    RecordFacts {
        revision: Revision(revision),
        status,
        digest: digest.map(ToOwned::to_owned),
        ours: digest.is_some(),
        attempts: u32::from(failed),
        proven: true,
        hook_failed: false,
        unchanged_for: Duration::from_mins(1),
        written: LONG_AGO,
    }
}

fn failed(revision: u32, attempts: u32) -> RecordFacts {
    RecordFacts {
        attempts,
        ..record(revision, Status::Failed, Some("new"))
    }
}

pub(super) fn observed(history: Vec<RecordFacts>) -> ObservedFacts {
    ObservedFacts {
        contested: false,
        deleting: false,
        finalizer: true,
        protected: false,
        orphans: false,
        unheld: false,
        paused: false,
        impossible: false,
        foreign: false,
        chunked: false,
        history,
        adoption: Adoption::None,
        drift: Drift::None,
        awaits_dependency: false,
        awaits_crds: false,
        unreported: false,
        bound: false,
        obstacle_changed: false,
        forgiven: Revision(0),
        forced: false,
        tested: false,
    }
}

pub(super) fn desired() -> DesiredFacts {
    DesiredFacts {
        digest: Some("new".to_owned()),
        content: Some(Content::Due(())),
        repair: true,
        rollback: true,
        timeout: TIMEOUT,
        ..DesiredFacts::default()
    }
}

/// Reads records, each its revision, its status and its inputs (`none` if another client wrote it), then
/// `forged` if its proof is missing, or the number of its attempts as in `x40`.
fn history(text: &str) -> Vec<RecordFacts> {
    let records = text.split_terminator(", ").map(|text| {
        let words: Vec<&str> = text.split(' ').collect();
        let [revision, word, digest, marks @ ..] = words.as_slice() else {
            panic!("{text}");
        };
        let status = Status::from(*word);
        assert_eq!(status.as_str(), *word);
        let digest = Some(*digest).filter(|digest| *digest != "none");
        let mut facts = record(revision.parse().unwrap(), status, digest);
        for mark in marks {
            if let Some(attempts) = mark.strip_prefix('x') {
                facts.attempts = attempts.parse().unwrap();
            } else {
                assert_eq!(*mark, "forged");
                facts.proven = false;
            }
        }
        facts
    });
    records.collect()
}

fn stalled(revision: u32, reason: StallReason) -> Step {
    let revision = Revision(revision);
    Step::Refuse(Refusal::Stalled { revision, reason })
}

fn resume(revision: u32) -> Step {
    let revision = Revision(revision);
    Step::Resume { revision }
}

fn retry(revision: u32) -> Step {
    let revision = Revision(revision);
    Step::Retry { revision }
}

fn adopt(revision: u32) -> Step {
    let revision = Revision(revision);
    Step::Adopt { revision }
}

fn rollback(to: u32) -> Step {
    Step::Rollback { to: Revision(to) }
}

/// Inputs that cannot be computed.
fn unknown() -> DesiredFacts {
    DesiredFacts {
        digest: None,
        ..desired()
    }
}

/// Changes a state and what is desired.
type Change = fn(&mut ObservedFacts, &mut DesiredFacts);

#[test]
#[expect(clippy::too_many_lines, reason = "one table of all states")]
fn every_state_of_the_records_has_its_step() {
    let cases = [
        ("no record", "", Step::Install(())),
        ("deployed, same inputs", "1 deployed new", Step::Settle),
        (
            "deployed, other inputs",
            "1 deployed old",
            Step::Upgrade(()),
        ),
        (
            "deployed by the Helm CLI",
            "2 deployed none",
            Step::Upgrade(()),
        ),
        (
            "our install was interrupted",
            "1 pending-install new",
            resume(1),
        ),
        (
            "our install was interrupted, inputs changed",
            "1 pending-install old",
            Step::Install(()),
        ),
        (
            "our upgrade was interrupted",
            "1 deployed old, 2 pending-upgrade new",
            resume(2),
        ),
        (
            "our upgrade was interrupted, and the inputs were reverted to those of the deployed revision",
            "1 deployed new, 2 pending-upgrade old",
            Step::Upgrade(()),
        ),
        (
            "a rollback was interrupted, the failed inputs are still desired",
            "1 superseded old, 2 failed new, 3 pending-rollback old",
            resume(3),
        ),
        (
            "a rollback was interrupted, other inputs are desired now",
            "1 superseded old, 2 failed bad, 3 pending-rollback old",
            Step::Upgrade(()),
        ),
        (
            "another client upgrades",
            "1 deployed old, 2 pending-upgrade none",
            Step::Wait {
                delay: Duration::from_secs(30),
                until: Until::OthersOperation,
            },
        ),
        ("the first install failed", "1 failed new", retry(1)),
        ("the install failed often", "1 failed new x40", retry(1)),
        (
            "the install failed, inputs changed",
            "1 failed old",
            Step::Install(()),
        ),
        (
            "the upgrade failed",
            "1 deployed old, 2 failed new",
            rollback(1),
        ),
        (
            "the upgrade failed and was rolled back",
            "1 superseded old, 2 failed new, 3 deployed old",
            stalled(2, StallReason::ReplacesRollback),
        ),
        (
            "the rollback failed as well",
            "1 superseded old, 2 failed new, 3 failed old",
            retry(3),
        ),
        (
            "the rollback failed, the inputs it restores are desired again",
            "1 deployed new, 2 failed bad, 3 failed new",
            retry(3),
        ),
        (
            "a forced upgrade with unchanged inputs failed",
            "1 deployed new, 2 failed new",
            rollback(1),
        ),
        (
            "the rollback of a forced upgrade failed as well",
            "1 deployed new, 2 failed new, 3 failed new",
            retry(3),
        ),
        (
            "the rollback failed, other inputs are desired now",
            "1 superseded old, 2 failed bad, 3 failed old",
            Step::Upgrade(()),
        ),
        (
            "rolled back, inputs changed",
            "1 superseded old, 2 failed bad, 3 deployed old",
            Step::Upgrade(()),
        ),
        (
            "failed with other inputs",
            "1 deployed first, 2 failed old",
            Step::Upgrade(()),
        ),
        (
            "uninstalling by hand",
            "1 uninstalling new",
            Step::Install(()),
        ),
        (
            "uninstalled, history kept",
            "1 superseded old, 2 uninstalled new",
            Step::Install(()),
        ),
        (
            "only a superseded record",
            "1 superseded new",
            Step::Upgrade(()),
        ),
        ("unknown", "1 unknown new", Step::Install(())),
    ];
    for (name, records, expected) in cases {
        let step = next_step(&observed(history(records)), Some(&desired()));
        assert_eq!(step, expected, "{name}");
    }
}

/// Returns the step for changed wishes.
fn step(state: &ObservedFacts, change: impl FnOnce(&mut DesiredFacts)) -> Step {
    let mut desired = desired();
    change(&mut desired);
    next_step(state, Some(&desired))
}

#[test]
fn new_revision_waits_for_dependencies_and_crds_and_is_rendered() {
    let mut state = observed(history("1 deployed old"));
    (state.awaits_dependency, state.awaits_crds) = (true, true);
    let empty = step(&state, |d| d.content = Some(Content::Empty));
    assert_eq!(empty, Step::Refuse(Refusal::Empty));
    let revision = Revision(1);
    let keep = step(&state, |d| d.content = Some(Content::Unchanged(())));
    assert_eq!(keep, Step::Keep { revision, next: () });
    assert!(matches!(
        step(&state, |_| {}),
        Step::Wait {
            until: Until::Dependency,
            ..
        }
    ));
    state.awaits_dependency = false;
    assert_eq!(step(&state, |_| {}), Step::Crds { upgrade: true });
    state.history.clear();
    assert_eq!(step(&state, |_| {}), Step::Crds { upgrade: false });
    state.awaits_crds = false;
    let unknown = step(&state, |d| d.content = None);
    assert_eq!(unknown, Step::Render { upgrade: false });
    assert_eq!(step(&state, |_| {}), Step::Install(()));
    // An action in progress is resumed regardless of its dependencies.
    state.awaits_dependency = true;
    state.history = history("1 pending-install new");
    assert_eq!(step(&state, |_| {}), resume(1));
}

#[test]
fn drift_is_repaired_inspected_or_ignored_depending_on_the_mode() {
    let revision = Revision(4);
    let mut state = observed(history("4 deployed new"));
    for (drift, repair, expected) in [
        (Drift::None, true, Step::Settle),
        (Drift::Some, true, Step::Repair { revision }),
        (Drift::Some, false, Step::Settle),
        (Drift::Unknown, true, Step::Repair { revision }),
        (Drift::Unknown, false, Step::Inspect { revision }),
        (
            Drift::Exhausted,
            true,
            Step::Refuse(Refusal::Contended { revision }),
        ),
        (Drift::Exhausted, false, Step::Settle),
    ] {
        state.drift = drift;
        assert_eq!(
            step(&state, |d| d.repair = repair),
            expected,
            "{drift:?} {repair}"
        );
    }
}

#[test]
fn what_is_to_be_kept_is_released_when_nothing_else_is_to_be_done() {
    let revision = Revision(4);
    let mut state = observed(history("4 deployed new"));
    state.bound = true;
    for (drift, repair, expected) in [
        (Drift::None, true, Step::Unbind),
        (Drift::Some, true, Step::Repair { revision }),
        (Drift::Some, false, Step::Unbind),
        (Drift::Exhausted, true, Step::Unbind),
        (Drift::Exhausted, false, Step::Unbind),
    ] {
        state.drift = drift;
        assert_eq!(
            step(&state, |d| d.repair = repair),
            expected,
            "{drift:?} {repair}"
        );
    }
    state.drift = Drift::None;
    for (digest, expected) in [(None, Step::Unbind), (Some("other"), Step::Upgrade(()))] {
        let planned = step(&state, |d| d.digest = digest.map(ToOwned::to_owned));
        assert_eq!(planned, expected, "{digest:?}");
    }
    state.paused = true;
    assert_eq!(next_step(&state, Some(&desired())), Step::Unbind);
}

#[test]
fn drift_is_repaired_while_the_desired_inputs_are_stalled_or_unknown() {
    let history = history("1 superseded old, 2 failed new, 3 deployed old");
    let revision = Revision(3);
    let repair = Step::Repair { revision };
    for drift in [Drift::Some, Drift::Unknown] {
        let state = ObservedFacts {
            drift,
            ..observed(history.clone())
        };
        assert_eq!(next_step(&state, Some(&desired())), repair);
        assert_eq!(next_step(&state, Some(&unknown())), repair);
    }
    let refused = Step::Refuse(Refusal::NoInputs);
    assert_eq!(next_step(&observed(history), Some(&unknown())), refused);
    assert_eq!(next_step(&observed(vec![]), Some(&unknown())), refused);
}

#[test]
fn what_has_begun_is_completed_while_the_inputs_are_unknown() {
    let refused = Step::Refuse(Refusal::NoInputs);
    let cases = [
        ("1 pending-install bad", resume(1)),
        ("1 deployed good, 2 pending-upgrade bad", resume(2)),
        ("1 deployed good, 2 failed bad", rollback(1)),
        (
            "1 deployed good, 2 failed bad, 3 pending-rollback good",
            resume(3),
        ),
        ("1 deployed good, 2 failed bad, 3 failed good", retry(3)),
        // `helm rollback`, which removes the operator's labels and owner references.
        (
            "1 superseded first, 2 superseded good, 3 deployed first forged",
            rollback(2),
        ),
        // There is nothing to restore, and the values that failed are not desired any more.
        ("1 failed bad", refused.clone()),
        ("", refused),
    ];
    for (records, step) in cases {
        let state = observed(history(records));
        assert_eq!(next_step(&state, Some(&unknown())), step, "{records}");
    }
    // Another client has not gone on for the timeout.
    let mut state = observed(history("1 deployed good, 2 pending-upgrade none forged"));
    state.history[1].unchanged_for = TIMEOUT;
    assert_eq!(next_step(&state, Some(&unknown())), rollback(1));
}

#[test]
fn reset_retries_and_force_creates_a_new_revision() {
    let records = "1 superseded old, 2 failed new, 3 deployed old";
    let mut state = observed(history(records));
    state.forgiven = Revision(3);
    assert_eq!(next_step(&state, Some(&desired())), Step::Upgrade(()));
    for status in [Status::Deployed, Status::Failed] {
        let mut state = observed(vec![record(1, status, Some("new"))]);
        state.forced = true;
        let expected = if status == Status::Deployed {
            Step::Upgrade(())
        } else {
            Step::Install(())
        };
        assert_eq!(next_step(&state, Some(&desired())), expected);
    }
}

#[test]
fn nothing_is_applied_from_a_record_without_a_proof() {
    let (none, applied): (Change, &str) = (|_, _| {}, "1 deployed new forged");
    let cases: [(&str, &str, Change, Step); 17] = [
        ("as applied", applied, none, Step::Settle),
        ("drifted", applied, |o, _| o.drift = Drift::Some, adopt(1)),
        (
            "drift unknown",
            applied,
            |o, _| o.drift = Drift::Unknown,
            adopt(1),
        ),
        (
            "drift unknown, and only reported",
            applied,
            |o, d| (o.drift, d.repair) = (Drift::Unknown, false),
            adopt(1),
        ),
        (
            "drifted, inputs unknown",
            applied,
            |o, d| (o.drift, d.digest) = (Drift::Some, None),
            Step::Refuse(Refusal::NoInputs),
        ),
        (
            "drifted, the chart renders nothing",
            "1 deployed old forged",
            |o, d| (o.drift, d.content) = (Drift::Some, Some(Content::Empty)),
            Step::Refuse(Refusal::Empty),
        ),
        ("tests are due", applied, |_, d| d.test = true, adopt(1)),
        (
            "pending",
            "1 deployed old, 2 pending-upgrade new forged",
            none,
            Step::Upgrade(()),
        ),
        (
            "pending install",
            "1 pending-install new forged",
            none,
            Step::Install(()),
        ),
        (
            "pending rollback",
            "1 superseded old, 2 failed new, 3 pending-rollback old forged",
            none,
            Step::Upgrade(()),
        ),
        (
            "failed install",
            "1 failed new forged",
            none,
            Step::Install(()),
        ),
        (
            "failed install that was cleaned up",
            "1 uninstalled new forged",
            |_, d| d.clean_up = true,
            Step::Install(()),
        ),
        (
            "failed upgrade over a proven revision",
            "1 deployed old, 2 failed new forged",
            none,
            rollback(1),
        ),
        (
            "failed upgrade over a forged revision",
            "1 superseded old, 2 deployed old forged, 3 failed new",
            none,
            rollback(1),
        ),
        (
            "rolled back with Helm while the desired inputs fail",
            "1 superseded old, 2 failed new, 3 superseded old, 4 deployed old forged",
            none,
            rollback(3),
        ),
        (
            "rolled back with Helm, and nothing is proven",
            "1 superseded old forged, 2 failed new, 3 deployed old forged",
            none,
            stalled(2, StallReason::ReplacesRollback),
        ),
        (
            "failed upgrade over forged revisions only",
            "1 deployed old forged, 2 failed new",
            none,
            stalled(2, StallReason::NothingToRestore),
        ),
    ];
    for (what, records, change, step) in cases {
        let (mut state, mut wanted) = (observed(history(records)), desired());
        change(&mut state, &mut wanted);
        assert_eq!(next_step(&state, Some(&wanted)), step, "{what}");
    }
}

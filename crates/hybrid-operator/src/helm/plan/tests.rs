//! Tests of the plan: a table of states and steps, which `docs/reconciler.md` has in prose; rules that hold in
//! every state ([`exhaustive`]); and that every state leads to rest ([`progress`]).

use std::time::Duration;

use helm_core::release::{Revision, Status};

use super::{
    Adoption, Content, DesiredFacts, Drift, MAX_CLEAN_INSTALLS, MAX_FAILED_REVISIONS,
    MAX_HOOK_ATTEMPTS, MAX_RETRY_DELAY, ObservedFacts, RecordFacts, Refusal, StallReason, Step,
    Until, before_inputs, next_step, retry_delay,
};

mod exhaustive;
mod failures;
mod progress;
mod simulation;

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
        content: Some(Content::Due),
        repair: true,
        rollback: true,
        timeout: TIMEOUT,
        ..DesiredFacts::default()
    }
}

fn revision(number: u32) -> Revision {
    Revision(number)
}

fn stalled(number: u32, reason: StallReason) -> Step {
    Step::Refuse(Refusal::Stalled {
        revision: revision(number),
        reason,
    })
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of all states")]
fn every_state_of_the_records_has_its_step() {
    use Status::{
        Deployed, Failed, PendingInstall, PendingRollback, PendingUpgrade, Superseded, Uninstalled,
        Uninstalling, Unknown,
    };
    let (new, old) = (Some("new"), Some("old"));
    let resume = |n| Step::Resume {
        revision: revision(n),
    };
    let retry = |n| Step::Retry {
        revision: revision(n),
    };
    let cases: Vec<(&str, Vec<RecordFacts>, Step)> = vec![
        ("no record", vec![], Step::Install),
        (
            "deployed, same inputs",
            vec![record(1, Deployed, new)],
            Step::Settle,
        ),
        (
            "deployed, other inputs",
            vec![record(1, Deployed, old)],
            Step::Upgrade,
        ),
        (
            "deployed by the Helm CLI",
            vec![record(2, Deployed, None)],
            Step::Upgrade,
        ),
        (
            "our install was interrupted",
            vec![record(1, PendingInstall, new)],
            resume(1),
        ),
        (
            "our install was interrupted, inputs changed",
            vec![record(1, PendingInstall, old)],
            Step::Install,
        ),
        (
            "our upgrade was interrupted",
            vec![record(1, Deployed, old), record(2, PendingUpgrade, new)],
            resume(2),
        ),
        (
            "our upgrade was interrupted, and the inputs were reverted to those of the deployed revision",
            vec![record(1, Deployed, new), record(2, PendingUpgrade, old)],
            Step::Upgrade,
        ),
        (
            "a rollback was interrupted, the failed inputs are still desired",
            vec![
                record(1, Superseded, old),
                record(2, Failed, new),
                record(3, PendingRollback, old),
            ],
            resume(3),
        ),
        (
            "a rollback was interrupted, other inputs are desired now",
            vec![
                record(1, Superseded, old),
                record(2, Failed, Some("bad")),
                record(3, PendingRollback, old),
            ],
            Step::Upgrade,
        ),
        (
            "another client upgrades",
            vec![record(1, Deployed, old), record(2, PendingUpgrade, None)],
            Step::Wait {
                delay: Duration::from_secs(30),
                until: Until::OthersOperation,
            },
        ),
        (
            "the first install failed",
            vec![record(1, Failed, new)],
            retry(1),
        ),
        ("the install failed often", vec![failed(1, 40)], retry(1)),
        (
            "the install failed, inputs changed",
            vec![record(1, Failed, old)],
            Step::Install,
        ),
        (
            "the upgrade failed",
            vec![record(1, Deployed, old), record(2, Failed, new)],
            Step::Rollback { to: revision(1) },
        ),
        (
            "the upgrade failed and was rolled back",
            vec![
                record(1, Superseded, old),
                record(2, Failed, new),
                record(3, Deployed, old),
            ],
            stalled(2, StallReason::ReplacesRollback),
        ),
        (
            "the rollback failed as well",
            vec![
                record(1, Superseded, old),
                record(2, Failed, new),
                record(3, Failed, old),
            ],
            retry(3),
        ),
        (
            "the rollback failed, the inputs it restores are desired again",
            vec![
                record(1, Deployed, new),
                record(2, Failed, Some("bad")),
                record(3, Failed, new),
            ],
            retry(3),
        ),
        (
            "a forced upgrade with unchanged inputs failed",
            vec![record(1, Deployed, new), record(2, Failed, new)],
            Step::Rollback { to: revision(1) },
        ),
        (
            "the rollback of a forced upgrade failed as well",
            vec![
                record(1, Deployed, new),
                record(2, Failed, new),
                record(3, Failed, new),
            ],
            retry(3),
        ),
        (
            "the rollback failed, other inputs are desired now",
            vec![
                record(1, Superseded, old),
                record(2, Failed, Some("bad")),
                record(3, Failed, old),
            ],
            Step::Upgrade,
        ),
        (
            "rolled back, inputs changed",
            vec![
                record(1, Superseded, old),
                record(2, Failed, Some("bad")),
                record(3, Deployed, old),
            ],
            Step::Upgrade,
        ),
        (
            "failed with other inputs",
            vec![record(1, Deployed, Some("first")), record(2, Failed, old)],
            Step::Upgrade,
        ),
        (
            "uninstalling by hand",
            vec![record(1, Uninstalling, new)],
            Step::Install,
        ),
        (
            "uninstalled, history kept",
            vec![record(1, Superseded, old), record(2, Uninstalled, new)],
            Step::Install,
        ),
        (
            "only a superseded record",
            vec![record(1, Superseded, new)],
            Step::Upgrade,
        ),
        ("unknown", vec![record(1, Unknown, new)], Step::Install),
    ];
    for (name, history, expected) in cases {
        let step = next_step(&observed(history), &desired());
        assert_eq!(step, expected, "{name}");
    }
}

#[test]
fn new_revision_waits_for_dependencies_and_crds_and_is_rendered() {
    let mut state = observed(vec![record(1, Status::Deployed, Some("old"))]);
    (state.awaits_dependency, state.awaits_crds) = (true, true);
    let step = |state: &ObservedFacts, change: fn(&mut DesiredFacts)| {
        let mut desired = desired();
        change(&mut desired);
        next_step(state, &desired)
    };
    let empty = step(&state, |d| d.content = Some(Content::Empty));
    assert_eq!(empty, Step::Refuse(Refusal::Empty));
    let keep = Step::Keep {
        revision: revision(1),
    };
    assert_eq!(step(&state, |d| d.content = Some(Content::Unchanged)), keep);
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
    assert_eq!(step(&state, |_| {}), Step::Install);
    // An action in progress is resumed regardless of its dependencies.
    state.awaits_dependency = true;
    state.history = vec![record(1, Status::PendingInstall, Some("new"))];
    assert_eq!(
        step(&state, |_| {}),
        Step::Resume {
            revision: revision(1)
        }
    );
}

#[test]
fn drift_is_repaired_inspected_or_ignored_depending_on_the_mode() {
    let number = revision(4);
    let mut state = observed(vec![record(4, Status::Deployed, Some("new"))]);
    for (drift, repair, expected) in [
        (Drift::None, true, Step::Settle),
        (Drift::Some, true, Step::Repair { revision: number }),
        (Drift::Some, false, Step::Settle),
        (Drift::Unknown, true, Step::Repair { revision: number }),
        (Drift::Unknown, false, Step::Inspect { revision: number }),
        (
            Drift::Exhausted,
            true,
            Step::Refuse(Refusal::Contended { revision: number }),
        ),
        (Drift::Exhausted, false, Step::Settle),
    ] {
        state.drift = drift;
        let wanted = DesiredFacts {
            repair,
            ..desired()
        };
        assert_eq!(next_step(&state, &wanted), expected, "{drift:?} {repair}");
    }
}

#[test]
fn what_is_to_be_kept_is_released_when_nothing_else_is_to_be_done() {
    let number = revision(4);
    let mut state = observed(vec![record(4, Status::Deployed, Some("new"))]);
    state.bound = true;
    for (drift, repair, expected) in [
        (Drift::None, true, Step::Unbind),
        (Drift::Some, true, Step::Repair { revision: number }),
        (Drift::Some, false, Step::Unbind),
        (Drift::Exhausted, true, Step::Unbind),
        (Drift::Exhausted, false, Step::Unbind),
    ] {
        state.drift = drift;
        let wanted = DesiredFacts {
            repair,
            ..desired()
        };
        assert_eq!(next_step(&state, &wanted), expected, "{drift:?} {repair}");
    }
    state.drift = Drift::None;
    for (digest, expected) in [(None, Step::Unbind), (Some("other"), Step::Upgrade)] {
        let wanted = DesiredFacts {
            digest: digest.map(ToOwned::to_owned),
            ..desired()
        };
        assert_eq!(next_step(&state, &wanted), expected, "{digest:?}");
    }
    state.paused = true;
    assert_eq!(next_step(&state, &desired()), Step::Unbind);
}

#[test]
fn drift_is_repaired_while_the_desired_inputs_are_stalled_or_unknown() {
    let history = vec![
        record(1, Status::Superseded, Some("old")),
        record(2, Status::Failed, Some("new")),
        record(3, Status::Deployed, Some("old")),
    ];
    let repair = Step::Repair {
        revision: revision(3),
    };
    let unknown = DesiredFacts {
        digest: None,
        ..desired()
    };
    for drift in [Drift::Some, Drift::Unknown] {
        let state = ObservedFacts {
            drift,
            ..observed(history.clone())
        };
        assert_eq!(next_step(&state, &desired()), repair);
        assert_eq!(next_step(&state, &unknown), repair);
    }
    let refused = Step::Refuse(Refusal::NoInputs);
    assert_eq!(next_step(&observed(history), &unknown), refused);
    assert_eq!(next_step(&observed(vec![]), &unknown), refused);
}

#[test]
fn what_has_begun_is_completed_while_the_inputs_are_unknown() {
    use Status::{Deployed, Failed, PendingInstall, PendingRollback, PendingUpgrade, Superseded};
    let (good, bad) = (Some("good"), Some("bad"));
    let unknown = DesiredFacts {
        digest: None,
        ..desired()
    };
    let resume = |n| Step::Resume {
        revision: revision(n),
    };
    let deployed = || record(1, Deployed, good);
    let refused = Step::Refuse(Refusal::NoInputs);
    let cases = [
        (vec![record(1, PendingInstall, bad)], resume(1)),
        (vec![deployed(), record(2, PendingUpgrade, bad)], resume(2)),
        (
            vec![deployed(), record(2, Failed, bad)],
            Step::Rollback { to: revision(1) },
        ),
        (
            vec![
                deployed(),
                record(2, Failed, bad),
                record(3, PendingRollback, good),
            ],
            resume(3),
        ),
        (
            vec![deployed(), record(2, Failed, bad), record(3, Failed, good)],
            Step::Retry {
                revision: revision(3),
            },
        ),
        (
            vec![
                deployed(),
                RecordFacts {
                    proven: false,
                    unchanged_for: TIMEOUT,
                    ..record(2, PendingUpgrade, None)
                },
            ],
            Step::Rollback { to: revision(1) },
        ),
        // `helm rollback`, which removes the operator's labels and owner references.
        (
            vec![
                record(1, Superseded, Some("first")),
                record(2, Superseded, good),
                RecordFacts {
                    proven: false,
                    ..record(3, Deployed, Some("first"))
                },
            ],
            Step::Rollback { to: revision(2) },
        ),
        // There is nothing to restore, and the values that failed are not desired any more.
        (vec![record(1, Failed, bad)], refused.clone()),
        (vec![], refused),
    ];
    for (history, step) in cases {
        let state = observed(history);
        assert_eq!(next_step(&state, &unknown), step, "{:?}", state.history);
    }
}

#[test]
fn reset_retries_and_force_creates_a_new_revision() {
    let mut state = observed(vec![
        record(1, Status::Superseded, Some("old")),
        record(2, Status::Failed, Some("new")),
        record(3, Status::Deployed, Some("old")),
    ]);
    state.forgiven = revision(3);
    assert_eq!(next_step(&state, &desired()), Step::Upgrade);
    for status in [Status::Deployed, Status::Failed] {
        let mut state = observed(vec![record(1, status, Some("new"))]);
        state.forced = true;
        let expected = if status == Status::Deployed {
            Step::Upgrade
        } else {
            Step::Install
        };
        assert_eq!(next_step(&state, &desired()), expected);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn nothing_is_applied_from_a_record_without_a_proof() {
    use Status::{Deployed, Failed, PendingRollback, PendingUpgrade, Superseded, Uninstalled};
    let forged = |number, status, digest| RecordFacts {
        proven: false,
        ..record(number, status, digest)
    };
    let (new, old) = (Some("new"), Some("old"));
    let adopt = |n| Step::Adopt {
        revision: revision(n),
    };
    let rollback = |n| Step::Rollback { to: revision(n) };
    let none: fn(&mut ObservedFacts, &mut DesiredFacts) = |_, _| {};
    #[expect(clippy::type_complexity, reason = "one table")]
    let cases: Vec<(
        &str,
        Vec<RecordFacts>,
        fn(&mut ObservedFacts, &mut DesiredFacts),
        Step,
    )> = vec![
        (
            "as applied",
            vec![forged(1, Deployed, new)],
            none,
            Step::Settle,
        ),
        (
            "drifted",
            vec![forged(1, Deployed, new)],
            |o, _| o.drift = Drift::Some,
            adopt(1),
        ),
        (
            "drift unknown",
            vec![forged(1, Deployed, new)],
            |o, _| o.drift = Drift::Unknown,
            adopt(1),
        ),
        (
            "drift unknown, and only reported",
            vec![forged(1, Deployed, new)],
            |o, d| (o.drift, d.repair) = (Drift::Unknown, false),
            adopt(1),
        ),
        (
            "drifted, inputs unknown",
            vec![forged(1, Deployed, new)],
            |o, d| (o.drift, d.digest) = (Drift::Some, None),
            Step::Refuse(Refusal::NoInputs),
        ),
        (
            "drifted, the chart renders nothing",
            vec![forged(1, Deployed, old)],
            |o, d| (o.drift, d.content) = (Drift::Some, Some(Content::Empty)),
            Step::Refuse(Refusal::Empty),
        ),
        (
            "tests are due",
            vec![forged(1, Deployed, new)],
            |_, d| d.test = true,
            adopt(1),
        ),
        (
            "pending",
            vec![record(1, Deployed, old), forged(2, PendingUpgrade, new)],
            none,
            Step::Upgrade,
        ),
        (
            "pending install",
            vec![forged(1, Status::PendingInstall, new)],
            none,
            Step::Install,
        ),
        (
            "pending rollback",
            vec![
                record(1, Superseded, old),
                failed(2, 1),
                forged(3, PendingRollback, old),
            ],
            none,
            Step::Upgrade,
        ),
        (
            "failed install",
            vec![forged(1, Failed, new)],
            none,
            Step::Install,
        ),
        (
            "failed install that was cleaned up",
            vec![forged(1, Uninstalled, new)],
            |_, d| d.clean_up = true,
            Step::Install,
        ),
        (
            "failed upgrade over a proven revision",
            vec![record(1, Deployed, old), forged(2, Failed, new)],
            none,
            rollback(1),
        ),
        (
            "failed upgrade over a forged revision",
            vec![
                record(1, Superseded, old),
                forged(2, Deployed, old),
                failed(3, 1),
            ],
            none,
            rollback(1),
        ),
        (
            "rolled back with Helm while the desired inputs fail",
            vec![
                record(1, Superseded, old),
                failed(2, 1),
                record(3, Superseded, old),
                forged(4, Deployed, old),
            ],
            none,
            rollback(3),
        ),
        (
            "rolled back with Helm, and nothing is proven",
            vec![
                forged(1, Superseded, old),
                failed(2, 1),
                forged(3, Deployed, old),
            ],
            none,
            stalled(2, StallReason::ReplacesRollback),
        ),
        (
            "failed upgrade over forged revisions only",
            vec![forged(1, Deployed, old), failed(2, 1)],
            none,
            stalled(2, StallReason::NothingToRestore),
        ),
    ];
    for (what, history, change, step) in cases {
        let (mut state, mut wanted) = (observed(history), desired());
        change(&mut state, &mut wanted);
        assert_eq!(next_step(&state, &wanted), step, "{what}");
    }
}

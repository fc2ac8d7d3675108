//! What to do next. Pure and total: every state of a release has an answer, and no error text is
//! read to find it.

use std::time::Duration;

use helm_core::release::{Revision, Status};

/// How often a digest of inputs is tried before the release stalls.
pub const ATTEMPTS: usize = 3;

/// One record of the release, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its revision.
    pub revision: Revision,
    /// Its status.
    pub status: Status,
    /// The digest of the inputs that it was made from; `None` for one that somebody else made.
    pub digest: Option<String>,
    /// Whether this operator wrote it.
    pub ours: bool,
    /// How long ago it was written.
    pub age: Duration,
}

/// How the objects of the deployed revision are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drift {
    /// As they were applied.
    None,
    /// Some are changed or gone.
    Some,
    /// Not known: nothing was applied by this process, and no stored baseline agrees.
    Unknown,
}

/// What is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact")]
pub struct Observed {
    /// Whether the custom resource is being deleted.
    pub deleting: bool,
    /// Whether it has our finalizer.
    pub finalizer: bool,
    /// Whether it is paused.
    pub paused: bool,
    /// Whether the release's name belongs to somebody else, who did not agree to its adoption.
    pub foreign: bool,
    /// The records, oldest first.
    pub history: Vec<Record>,
    /// How the objects are.
    pub drift: Drift,
    /// The newest revision whose failure no longer counts: somebody has asked for a new start.
    pub forgiven: Revision,
    /// Whether somebody has asked for a new revision whatever the inputs are.
    pub forced: bool,
    /// Whether the hooks of the event `test` ran on the newest revision.
    pub tested: bool,
    /// Whether the newest record is one that somebody else wrote, deployed, and to be taken over.
    pub adoptable: bool,
}

/// What should be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option")]
pub struct Desired {
    /// The digest of the inputs.
    pub digest: String,
    /// Whether drift is repaired.
    pub repair: bool,
    /// How often a failed install is tried again.
    pub install_retries: usize,
    /// Whether what a failed install made is removed before it is tried again.
    pub clean_up: bool,
    /// How often a failed upgrade is tried again.
    pub upgrade_retries: usize,
    /// Whether a failed upgrade is rolled back.
    pub rollback: bool,
    /// How long a stranger's pending revision is left alone.
    pub timeout: Duration,
    /// Whether the chart's tests run after each change.
    pub test: bool,
}

/// The one thing that is done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Everything is as it should be.
    Nothing,
    /// The first revision, or one after the release was uninstalled.
    Install,
    /// A further revision.
    Upgrade,
    /// A further revision with the content of an earlier one.
    Rollback {
        /// The earlier one.
        to: Revision,
    },
    /// The recorded objects are applied again.
    Repair {
        /// The record.
        revision: Revision,
    },
    /// What was begun is continued from its record.
    Resume {
        /// The record.
        revision: Revision,
    },
    /// A record that somebody else wrote is made ours; its objects stay as they are.
    Adopt {
        /// The record.
        revision: Revision,
    },
    /// The chart's tests run.
    Test {
        /// The record.
        revision: Revision,
    },
    /// What a failed install made is removed; its record stays.
    CleanUp {
        /// The record.
        revision: Revision,
    },
    /// The release is removed.
    Uninstall,
    /// Somebody else is at work; look again later.
    Wait {
        /// When.
        delay: Duration,
    },
    /// Nothing can be done before somebody changes something.
    Refuse(Refusal),
}

/// Why nothing is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The custom resource is paused.
    Paused,
    /// The release's name belongs to somebody else.
    Foreign,
    /// These inputs failed too often.
    Stalled,
}

/// Decides what is done next.
pub fn next_step(observed: &Observed, desired: &Desired) -> Step {
    if observed.deleting {
        return if observed.finalizer {
            Step::Uninstall
        } else {
            Step::Nothing
        };
    }
    if observed.paused {
        return Step::Refuse(Refusal::Paused);
    }
    if observed.foreign {
        return Step::Refuse(Refusal::Foreign);
    }
    let Some(latest) = observed.history.last() else {
        return Step::Install;
    };
    let same = latest.digest.as_deref() == Some(desired.digest.as_str());
    match latest.status {
        Status::PendingInstall | Status::PendingUpgrade | Status::PendingRollback => {
            if !latest.ours {
                return match desired.timeout.checked_sub(latest.age) {
                    Some(delay) if !delay.is_zero() => Step::Wait { delay },
                    _ => fresh(observed),
                };
            }
            // A rollback goes on whatever the inputs are: it has the digest of what it restores.
            if same || latest.status == Status::PendingRollback {
                Step::Resume {
                    revision: latest.revision,
                }
            } else {
                fresh(observed)
            }
        }
        Status::Deployed if observed.adoptable => Step::Adopt {
            revision: latest.revision,
        },
        Status::Deployed if same && !observed.forced => match observed.drift {
            Drift::None if desired.test && !observed.tested => Step::Test {
                revision: latest.revision,
            },
            Drift::None => Step::Nothing,
            Drift::Some if !desired.repair => Step::Nothing,
            Drift::Some | Drift::Unknown => Step::Repair {
                revision: latest.revision,
            },
        },
        Status::Deployed => {
            if failures(observed, desired) > desired.upgrade_retries && !observed.forced {
                // What was rolled back to is looked after like any other.
                match observed.drift {
                    Drift::Unknown => Step::Repair {
                        revision: latest.revision,
                    },
                    Drift::Some if desired.repair => Step::Repair {
                        revision: latest.revision,
                    },
                    _ => Step::Refuse(Refusal::Stalled),
                }
            } else {
                Step::Upgrade
            }
        }
        Status::Failed if same && !observed.forced => after_failure(observed, desired),
        Status::Uninstalled if same && desired.clean_up => again(observed, desired),
        Status::Uninstalling | Status::Uninstalled => Step::Install,
        Status::Failed | Status::Superseded | Status::Unknown => fresh(observed),
    }
}

/// What follows a failure of the wanted inputs.
fn after_failure(observed: &Observed, desired: &Desired) -> Step {
    let failures = failures(observed, desired);
    let Some(good) = last_deployed(observed) else {
        let latest = observed.history.last().map(|record| record.revision);
        return match latest {
            Some(revision) if desired.clean_up => Step::CleanUp { revision },
            _ => again(observed, desired),
        };
    };
    if failures <= desired.upgrade_retries {
        Step::Upgrade
    } else if desired.rollback {
        Step::Rollback { to: good }
    } else {
        Step::Refuse(Refusal::Stalled)
    }
}

/// An install that failed is tried again, with nothing to go back to.
fn again(observed: &Observed, desired: &Desired) -> Step {
    if failures(observed, desired) > desired.install_retries {
        Step::Refuse(Refusal::Stalled)
    } else {
        Step::Install
    }
}

/// How many revisions of the wanted inputs failed since the last that was deployed otherwise.
fn failures(observed: &Observed, desired: &Desired) -> usize {
    let wanted = |record: &&Record| record.digest.as_deref() == Some(desired.digest.as_str());
    observed
        .history
        .iter()
        .filter(wanted)
        .filter(|record| matches!(record.status, Status::Failed | Status::Uninstalled))
        .filter(|record| record.revision > observed.forgiven)
        .count()
}

/// The newest revision that was deployed.
fn last_deployed(observed: &Observed) -> Option<Revision> {
    let good = |record: &&Record| matches!(record.status, Status::Deployed | Status::Superseded);
    observed
        .history
        .iter()
        .rev()
        .find(good)
        .map(|record| record.revision)
}

/// A new revision on top of whatever is there.
fn fresh(observed: &Observed) -> Step {
    if last_deployed(observed).is_some() {
        Step::Upgrade
    } else {
        Step::Install
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use helm_core::release::{Revision, Status};
    use proptest::prelude::*;

    use super::{ATTEMPTS, Desired, Drift, Observed, Record, Refusal, Step, next_step};

    const TIMEOUT: Duration = Duration::from_mins(5);

    fn record(revision: u32, status: Status, digest: Option<&str>, ours: bool) -> Record {
        Record {
            revision: Revision(revision),
            status,
            digest: digest.map(ToOwned::to_owned),
            ours,
            age: Duration::from_mins(1),
        }
    }

    fn observed(history: Vec<Record>) -> Observed {
        Observed {
            deleting: false,
            finalizer: true,
            paused: false,
            foreign: false,
            history,
            drift: Drift::None,
            forgiven: Revision(0),
            forced: false,
            tested: false,
            adoptable: false,
        }
    }

    fn desired() -> Desired {
        Desired {
            digest: "new".to_owned(),
            repair: true,
            install_retries: ATTEMPTS - 1,
            clean_up: false,
            upgrade_retries: 0,
            rollback: true,
            timeout: TIMEOUT,
            test: false,
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one table of all states")]
    fn rule_3_4_every_state_has_its_step() {
        use Status::{
            Deployed, Failed, PendingInstall, PendingRollback, PendingUpgrade, Superseded,
            Uninstalled, Uninstalling, Unknown,
        };
        let (new, old) = (Some("new"), Some("old"));
        let resume = |n| Step::Resume {
            revision: Revision(n),
        };
        let cases: Vec<(&str, Vec<Record>, Step)> = vec![
            ("no record", vec![], Step::Install),
            (
                "deployed, same inputs",
                vec![record(1, Deployed, new, true)],
                Step::Nothing,
            ),
            (
                "deployed, other inputs",
                vec![record(1, Deployed, old, true)],
                Step::Upgrade,
            ),
            (
                "deployed by somebody's helm",
                vec![record(2, Deployed, None, false)],
                Step::Upgrade,
            ),
            (
                "our install was cut off",
                vec![record(1, PendingInstall, new, true)],
                resume(1),
            ),
            (
                "our install was cut off, inputs changed",
                vec![record(1, PendingInstall, old, true)],
                Step::Install,
            ),
            (
                "our upgrade was cut off",
                vec![
                    record(1, Deployed, old, true),
                    record(2, PendingUpgrade, new, true),
                ],
                resume(2),
            ),
            (
                "our upgrade was cut off, inputs changed",
                vec![
                    record(1, Deployed, old, true),
                    record(2, PendingUpgrade, Some("other"), true),
                ],
                Step::Upgrade,
            ),
            (
                "our rollback was cut off",
                vec![
                    record(1, Superseded, old, true),
                    record(3, PendingRollback, old, true),
                ],
                resume(3),
            ),
            (
                "somebody upgrades",
                vec![
                    record(1, Deployed, old, true),
                    record(2, PendingUpgrade, None, false),
                ],
                Step::Wait {
                    delay: TIMEOUT.checked_sub(Duration::from_mins(1)).unwrap(),
                },
            ),
            (
                "first install failed",
                vec![record(1, Failed, new, true)],
                Step::Install,
            ),
            (
                "install failed three times",
                vec![
                    record(1, Failed, new, true),
                    record(2, Failed, new, true),
                    record(3, Failed, new, true),
                ],
                Step::Refuse(Refusal::Stalled),
            ),
            (
                "install failed three times, inputs changed",
                vec![
                    record(1, Failed, old, true),
                    record(2, Failed, old, true),
                    record(3, Failed, old, true),
                ],
                Step::Install,
            ),
            (
                "upgrade failed",
                vec![record(1, Deployed, old, true), record(2, Failed, new, true)],
                Step::Rollback { to: Revision(1) },
            ),
            (
                "upgrade failed and was rolled back",
                vec![
                    record(1, Superseded, old, true),
                    record(2, Failed, new, true),
                    record(3, Deployed, old, true),
                ],
                Step::Refuse(Refusal::Stalled),
            ),
            (
                "rolled back, inputs changed",
                vec![
                    record(1, Superseded, old, true),
                    record(2, Failed, Some("bad"), true),
                    record(3, Deployed, old, true),
                ],
                Step::Upgrade,
            ),
            (
                "failed with other inputs",
                vec![
                    record(1, Deployed, Some("first"), true),
                    record(2, Failed, old, true),
                ],
                Step::Upgrade,
            ),
            (
                "uninstalling by hand",
                vec![record(1, Uninstalling, new, true)],
                Step::Install,
            ),
            (
                "uninstalled, history kept",
                vec![record(1, Uninstalled, new, true)],
                Step::Install,
            ),
            (
                "superseded alone",
                vec![record(1, Superseded, new, true)],
                Step::Upgrade,
            ),
            (
                "unknown",
                vec![record(1, Unknown, new, true)],
                Step::Install,
            ),
        ];
        for (name, history, expected) in cases {
            assert_eq!(
                next_step(&observed(history), &desired()),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn deletion_pause_and_foreign_names_come_before_the_history() {
        let history = vec![record(1, Status::Deployed, Some("old"), true)];
        let with = |change: fn(&mut Observed)| {
            let mut observed = observed(history.clone());
            change(&mut observed);
            next_step(&observed, &desired())
        };
        assert_eq!(with(|o| o.deleting = true), Step::Uninstall);
        assert_eq!(
            with(|o| (o.deleting, o.paused) = (true, true)),
            Step::Uninstall
        );
        assert_eq!(
            with(|o| (o.deleting, o.finalizer) = (true, false)),
            Step::Nothing
        );
        assert_eq!(with(|o| o.paused = true), Step::Refuse(Refusal::Paused));
        assert_eq!(with(|o| o.foreign = true), Step::Refuse(Refusal::Foreign));
    }

    #[test]
    fn drift_is_repaired_from_the_record_unless_it_is_to_be_left() {
        let mut observed = observed(vec![record(4, Status::Deployed, Some("new"), true)]);
        for (drift, repair, expected) in [
            (Drift::None, true, Step::Nothing),
            (
                Drift::Some,
                true,
                Step::Repair {
                    revision: Revision(4),
                },
            ),
            (Drift::Some, false, Step::Nothing),
            (
                Drift::Unknown,
                false,
                Step::Repair {
                    revision: Revision(4),
                },
            ),
        ] {
            observed.drift = drift;
            assert_eq!(
                next_step(
                    &observed,
                    &Desired {
                        repair,
                        ..desired()
                    }
                ),
                expected
            );
        }
    }

    #[test]
    fn drift_is_repaired_while_the_wanted_inputs_are_stalled() {
        let mut state = observed(vec![
            record(1, Status::Superseded, Some("old"), true),
            record(2, Status::Failed, Some("new"), true),
            record(3, Status::Deployed, Some("old"), true),
        ]);
        let revision = Revision(3);
        for drift in [Drift::Some, Drift::Unknown] {
            state.drift = drift;
            assert_eq!(next_step(&state, &desired()), Step::Repair { revision });
        }
    }

    #[test]
    fn people_can_ask_for_another_attempt_and_for_another_revision() {
        let failed = vec![
            record(1, Status::Failed, Some("new"), true),
            record(2, Status::Failed, Some("new"), true),
            record(3, Status::Failed, Some("new"), true),
        ];
        let mut state = observed(failed);
        assert_eq!(
            next_step(&state, &desired()),
            Step::Refuse(Refusal::Stalled)
        );
        state.forgiven = Revision(3);
        assert_eq!(next_step(&state, &desired()), Step::Install);
        let mut state = observed(vec![record(1, Status::Deployed, Some("new"), true)]);
        state.forced = true;
        assert_eq!(next_step(&state, &desired()), Step::Upgrade);
    }

    #[test]
    fn a_failed_install_is_cleaned_up_before_the_next_attempt_if_asked() {
        let desired = Desired {
            clean_up: true,
            ..desired()
        };
        let revision = Revision(1);
        let failed = observed(vec![record(1, Status::Failed, Some("new"), true)]);
        assert_eq!(next_step(&failed, &desired), Step::CleanUp { revision });
        let gone = |number| record(number, Status::Uninstalled, Some("new"), true);
        assert_eq!(next_step(&observed(vec![gone(1)]), &desired), Step::Install);
        assert_eq!(
            next_step(&observed(vec![gone(1), gone(2), gone(3)]), &desired),
            Step::Refuse(Refusal::Stalled)
        );
    }

    #[test]
    fn a_release_of_somebody_else_is_adopted_and_tests_run_once_a_revision() {
        let revision = Revision(1);
        let mut state = observed(vec![record(1, Status::Deployed, None, false)]);
        state.adoptable = true;
        assert_eq!(next_step(&state, &desired()), Step::Adopt { revision });
        let desired = Desired {
            test: true,
            ..desired()
        };
        let mut state = observed(vec![record(1, Status::Deployed, Some("new"), true)]);
        assert_eq!(next_step(&state, &desired), Step::Test { revision });
        state.tested = true;
        assert_eq!(next_step(&state, &desired), Step::Nothing);
    }

    #[test]
    fn a_failed_upgrade_is_tried_again_as_often_as_asked() {
        let history = vec![
            record(1, Status::Deployed, Some("old"), true),
            record(2, Status::Failed, Some("new"), true),
        ];
        let step = |retries, rollback| {
            let desired = Desired {
                upgrade_retries: retries,
                rollback,
                ..desired()
            };
            next_step(&observed(history.clone()), &desired)
        };
        assert_eq!(step(1, true), Step::Upgrade);
        assert_eq!(step(0, true), Step::Rollback { to: Revision(1) });
        assert_eq!(step(0, false), Step::Refuse(Refusal::Stalled));
    }

    prop_compose! {
        fn any_record()(
            status in prop::sample::select(Status::ALL.to_vec()),
            digest in prop::sample::select(vec![None, Some("new"), Some("old")]),
            ours: bool,
        ) -> Record {
            record(1, status, digest, ours)
        }
    }

    proptest! {
        /// Whatever the state: nothing is removed without a deletion and our finalizer, and inputs
        /// that failed are not tried without end.
        #[test]
        fn nothing_is_uninstalled_without_being_asked(
            records in prop::collection::vec(any_record(), 0..6),
            deleting: bool,
            finalizer: bool,
            paused: bool,
        ) {
            let mut state = observed(records);
            for (i, record) in state.history.iter_mut().enumerate() {
                record.revision = Revision(u32::try_from(i + 1).unwrap());
            }
            (state.deleting, state.finalizer, state.paused) = (deleting, finalizer, paused);
            let step = next_step(&state, &desired());
            prop_assert_eq!(step == Step::Uninstall, deleting && finalizer);
            if state.history.iter().filter(|r| r.status == Status::Failed && r.digest.as_deref() == Some("new")).count() >= 3 {
                let latest_ours = state.history.last().is_some_and(|r| r.status == Status::Failed);
                if latest_ours && !deleting && !paused && state.history.last().unwrap().digest.as_deref() == Some("new") {
                    prop_assert!(!matches!(step, Step::Install | Step::Upgrade), "{step:?}");
                }
            }
        }
    }
}

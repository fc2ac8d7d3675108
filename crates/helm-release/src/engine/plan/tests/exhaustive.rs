//! Rules that hold in every state: each combination of what the plan tells apart is tried.
//!
//! | fact | values |
//! |---|---|
//! | digest of a record | that of the desired inputs, another one, none |
//! | attempts | 0, 1, [`MAX_HOOK_ATTEMPTS`], also with a failed hook |
//! | times | over, or not |
//! | newest record | all statuses, and everything that is known of it |
//! | earlier records | none, one or two, and more failed ones than are kept |
//!
//! Facts that no branch reads together with the status of the newest record keep one value.

use super::*;

/// A state and its step.
struct Case<'a> {
    observed: &'a ObservedFacts,
    desired: &'a DesiredFacts,
    step: Step,
}

type Rule = (&'static str, fn(&Case) -> bool);

fn is_good(record: &RecordFacts) -> bool {
    matches!(record.status, Status::Deployed | Status::Superseded)
}

impl Case<'_> {
    fn latest(&self) -> Option<&RecordFacts> {
        self.observed.history.last()
    }

    fn latest_is(&self, statuses: &[Status]) -> bool {
        self.latest()
            .is_some_and(|latest| statuses.contains(&latest.status))
    }

    fn is_pending(&self) -> bool {
        self.latest()
            .is_some_and(|latest| latest.status.is_pending())
    }

    /// Whether the newest record has the desired inputs.
    fn same(&self) -> bool {
        let known = self.desired.digest.is_some();
        known && (self.latest()).is_some_and(|latest| latest.digest == self.desired.digest)
    }

    fn was_deployed(&self) -> bool {
        self.observed.history.iter().any(is_good)
    }

    fn has_proof(&self) -> bool {
        self.latest().is_some_and(|latest| latest.proven)
    }

    /// Whether a revision begins, or is rendered for that.
    fn begins(&self) -> bool {
        matches!(
            self.step,
            Step::Render { .. } | Step::Install(()) | Step::Upgrade(())
        )
    }

    fn record(&self, revision: Revision) -> Option<&RecordFacts> {
        let mut history = self.observed.history.iter();
        history.find(|record| record.revision == revision)
    }

    /// Number of failed attempts of the desired inputs that `reset-at` has not cleared.
    fn attempts(&self) -> u32 {
        let ended = [Status::Failed, Status::Uninstalling, Status::Uninstalled];
        let history = self.observed.history.iter();
        let failed = history.filter(|record| {
            record.digest == self.desired.digest
                && ended.contains(&record.status)
                && record.revision > self.observed.forgiven
        });
        failed.map(|record| record.attempts).sum()
    }
}

const RULES: &[Rule] = &[
    (
        "nothing is applied from a record without a proof",
        |case| match case.step {
            Step::Resume { revision: of }
            | Step::Retry { revision: of }
            | Step::Repair { revision: of }
            | Step::Inspect { revision: of }
            | Step::Test { revision: of }
            | Step::Rollback { to: of } => case.record(of).is_some_and(|record| record.proven),
            _ => true,
        },
    ),
    ("a step is about the newest record", |case| {
        match case.step {
            Step::Resume { revision: of }
            | Step::Report { revision: of }
            | Step::Retry { revision: of }
            | Step::Repair { revision: of }
            | Step::Inspect { revision: of }
            | Step::Adopt { revision: of }
            | Step::Keep { revision: of, .. }
            | Step::Test { revision: of }
            | Step::CleanUp { revision: of }
            | Step::Remove { revision: of } => {
                case.latest().is_some_and(|latest| latest.revision == of)
            }
            _ => true,
        }
    }),
    (
        "only a deleted custom resource is uninstalled, orphaned, forgotten or left",
        |case| {
            !matches!(
                case.step,
                Step::Uninstall | Step::Orphan | Step::Forget | Step::Leave
            )
        },
    ),
    (
        "objects of a failed install are removed only on request, and only if nothing was deployed",
        |case| {
            !matches!(case.step, Step::CleanUp { .. })
                || case.desired.clean_up
                    && case.latest_is(&[Status::Failed])
                    && case.same()
                    && !case.was_deployed()
        },
    ),
    (
        "a release is removed only on request, and only after its desired inputs have failed",
        |case| {
            !matches!(case.step, Step::Remove { .. })
                || case.desired.reinstall
                    && case.latest_is(&[Status::Failed, Status::Uninstalling])
                    && case.same()
                    && case.attempts() > case.desired.upgrade_retries.unwrap_or(0)
        },
    ),
    (
        "only the oldest revision that failed since the last deployed one is discarded, and only if there are too many",
        |case| {
            let Step::Discard { revision } = case.step else {
                return true;
            };
            let mut since = case.observed.history.rsplit(is_good).next().unwrap().iter();
            let excess = since.len() > MAX_FAILED_REVISIONS + 1;
            excess && since.next().map(|oldest| oldest.revision) == Some(revision)
        },
    ),
    (
        "a revision is rendered only with inputs, dependencies and definitions, and without too many failed ones",
        |case| {
            let since = case.observed.history.rsplit(is_good).next().unwrap().len();
            !case.begins()
                || case.desired.digest.is_some()
                    && !case.observed.awaits_dependency
                    && !case.observed.awaits_crds
                    && since <= MAX_FAILED_REVISIONS + 1
        },
    ),
    (
        "what is rendered is not rendered again, and only that begins, with objects",
        |case| match (&case.step, case.desired.content) {
            (Step::Render { .. }, content) => content.is_none(),
            (Step::Install(()) | Step::Upgrade(()), content) => {
                content.is_some_and(|content| content != Content::Empty)
            }
            _ => true,
        },
    ),
    (
        "a deployed revision with the desired inputs or objects is followed by none, unless one is asked for",
        |case| {
            let settled = case.latest_is(&[Status::Deployed])
                && (case.same() || case.desired.content == Some(Content::Unchanged(())))
                && !case.observed.forced;
            !(case.begins() && settled)
        },
    ),
    (
        "inputs whose revision has just failed begin no other one, unless one is asked for",
        |case| {
            let failed = case.latest_is(&[Status::Failed]) && case.same() && case.has_proof();
            !(case.begins() && failed) || case.observed.forced
        },
    ),
    (
        "inputs that were rolled back are not tried again, unless that is asked for",
        |case| {
            let rolled_back = case.latest_is(&[Status::Deployed])
                && !case.same()
                && (case.desired.rollback || case.desired.upgrade_retries.is_some())
                && case.attempts() > case.desired.upgrade_retries.unwrap_or(0);
            !(case.begins() && rolled_back) || case.observed.forced
        },
    ),
    (
        "a revision is an upgrade if one was deployed and the release is not being uninstalled",
        |case| {
            let ended = case.latest_is(&[Status::Uninstalling, Status::Uninstalled]);
            let upgrade = case.was_deployed() && !ended;
            match case.step {
                Step::Install(()) => !upgrade,
                Step::Upgrade(()) => upgrade,
                Step::Crds { upgrade: announced } | Step::Render { upgrade: announced } => {
                    upgrade == announced
                }
                _ => true,
            }
        },
    ),
    (
        "the pending revision of another client is awaited until it is unchanged for the timeout",
        |case| {
            let theirs = case.is_pending()
                && case.latest().is_some_and(|latest| {
                    !latest.ours && latest.unchanged_for < case.desired.timeout
                });
            let waits = Until::OthersOperation;
            let step = &case.step;
            if !theirs {
                true
            } else if case.desired.digest.is_some() {
                matches!(step, Step::Wait { until, .. } if *until == waits)
            } else {
                matches!(
                    step,
                    Step::Crds { .. } | Step::Wait { .. } | Step::Refuse(_)
                )
            }
        },
    ),
    (
        "the pending revision of the desired inputs is continued, and no other but a rollback of them, unless the inputs are unknown",
        |case| {
            let pending = case.is_pending()
                && (case.latest()).is_some_and(|latest| {
                    latest.ours || latest.unchanged_for >= case.desired.timeout
                });
            let resumes = matches!(case.step, Step::Resume { .. });
            if case.same() && case.has_proof() && pending {
                return resumes;
            }
            let is_rollback = case.latest_is(&[Status::PendingRollback]);
            !resumes || pending && (is_rollback || case.desired.digest.is_none())
        },
    ),
    (
        "a failed revision is retried after its delay, or at once if its obstacle is gone",
        |case| {
            let Step::Retry { revision } = case.step else {
                return true;
            };
            let record = case.record(revision).unwrap();
            let failed = [Status::Failed, Status::Uninstalled].contains(&record.status);
            let early = record.attempts > 0
                && record.written < retry_delay(record.attempts)
                && revision > case.observed.forgiven;
            failed && (!early || case.observed.obstacle_changed)
        },
    ),
    (
        "a rollback follows a reported failure of the desired or the last known inputs, or a revision of another writer while they fail, to the newest proven revision that was deployed",
        |case| {
            let Step::Rollback { to } = case.step else {
                return true;
            };
            let mut history = case.observed.history.iter().rev();
            let newest = history.find(|record| is_good(record) && record.proven);
            let failed = case.latest_is(&[Status::Failed])
                && !case.observed.unreported
                && (case.same() || case.desired.digest.is_none());
            let is_others = (case.latest_is(&[Status::Deployed])
                || case.is_pending() && case.desired.digest.is_none())
                && !case.has_proof();
            newest.map(|record| record.revision) == Some(to)
                && case.desired.rollback
                && (failed || is_others)
        },
    ),
    (
        "drift is repaired, compared or left as configured",
        |case| {
            let drift = case.observed.drift;
            let as_configured = match case.step {
                Step::Repair { .. } => {
                    case.desired.repair && matches!(drift, Drift::Some | Drift::Unknown)
                }
                Step::Inspect { .. } => !case.desired.repair && drift == Drift::Unknown,
                Step::Refuse(Refusal::Contended { .. }) => {
                    case.desired.repair && drift == Drift::Exhausted
                }
                _ => return true,
            };
            as_configured && case.latest_is(&[Status::Deployed])
        },
    ),
    (
        "a deployed revision is adopted if that is asked for, or if its proof is missing; no other is",
        |case| {
            let adopts = matches!(case.step, Step::Adopt { .. });
            let deployed = case.latest_is(&[Status::Deployed]);
            let asked = case.observed.adoption == Adoption::Wanted;
            if deployed && asked && case.desired.digest.is_some() {
                return adopts;
            }
            !adopts || deployed && case.same() && !case.has_proof()
        },
    ),
    ("only a deployed revision counts as unchanged", |case| {
        !matches!(case.step, Step::Keep { .. })
            || case.latest_is(&[Status::Deployed])
                && case.desired.content == Some(Content::Unchanged(()))
                && !case.observed.forced
    }),
    (
        "the tests run once, on the deployed revision of the desired inputs",
        |case| {
            !matches!(case.step, Step::Test { .. })
                || case.latest_is(&[Status::Deployed])
                    && case.same()
                    && case.desired.test
                    && !case.observed.tested
        },
    ),
    (
        "a chunked release is converted before anything else",
        |case| {
            let first = case.observed.chunked
                && case.observed.history.is_empty()
                && case.desired.digest.is_some();
            first == matches!(case.step, Step::Convert)
        },
    ),
    (
        "a release is at rest only if the desired inputs are deployed and as applied",
        |case| {
            !matches!(case.step, Step::Settle)
                || case.latest_is(&[Status::Deployed])
                    && case.same()
                    && !case.observed.forced
                    && (case.observed.drift == Drift::None || !case.desired.repair)
                    && (case.observed.tested || !case.desired.test)
        },
    ),
    (
        "a release stalls only if its desired inputs have failed, and says which revision",
        |case| {
            let Step::Refuse(Refusal::Stalled { revision, .. }) = case.step else {
                return true;
            };
            let record = case.record(revision);
            record.is_some_and(|record| record.digest == case.desired.digest)
        },
    ),
    (
        "without inputs that come soon, drift is handled; nothing else",
        |case| {
            !case.desired.awaits_inputs
                || matches!(
                    case.step,
                    Step::Repair { .. }
                        | Step::Inspect { .. }
                        | Step::Refuse(Refusal::NoInputs | Refusal::Contended { .. })
                )
        },
    ),
    (
        "without inputs, no revision begins, nothing is removed, and no test runs",
        |case| {
            let step = &case.step;
            case.desired.digest.is_some()
                || matches!(
                    step,
                    Step::Crds { .. }
                        | Step::Resume { .. }
                        | Step::Report { .. }
                        | Step::Rollback { .. }
                        | Step::Retry { .. }
                        | Step::Wait { .. }
                        | Step::Repair { .. }
                        | Step::Inspect { .. }
                        | Step::Refuse(Refusal::NoInputs | Refusal::Contended { .. })
                )
        },
    ),
];

/// All values of a fact. Each sets the same fields.
type Fact = &'static [Change];

const REMEDIATION: Fact = &[
    |_, d| (d.rollback, d.reinstall) = (true, false),
    |_, d| (d.rollback, d.reinstall) = (false, true),
    |_, d| (d.rollback, d.reinstall) = (false, false),
];
const UPGRADE_RETRIES: Fact = &[
    |_, d| d.upgrade_retries = None,
    |_, d| d.upgrade_retries = Some(1),
];
const FORCED: Fact = &[|o, _| o.forced = false, |o, _| o.forced = true];
const FORGIVEN: Fact = &[
    |o, _| o.forgiven = Revision(0),
    |o, _| o.forgiven = Revision(u32::MAX),
];
/// Conditions for a revision to begin, and those that are not met.
const GATES: Fact = &[
    |o, d| gate(o, d, Some(Content::Due(())), [false, false]),
    |o, d| gate(o, d, Some(Content::Empty), [false, false]),
    |o, d| gate(o, d, Some(Content::Unchanged(())), [false, false]),
    |o, d| gate(o, d, None, [false, false]),
    |o, d| gate(o, d, None, [true, false]),
    |o, d| gate(o, d, None, [false, true]),
    |o, d| {
        gate(o, d, None, [false, false]);
        d.digest = None;
    },
    |o, d| {
        gate(o, d, None, [false, false]);
        (d.digest, d.awaits_inputs) = (None, true);
    },
    |o, d| {
        gate(o, d, None, [false, true]);
        d.digest = None;
    },
];

fn gate(
    observed: &mut ObservedFacts,
    desired: &mut DesiredFacts,
    content: Option<Content>,
    [awaits_dependency, awaits_crds]: [bool; 2],
) {
    desired.digest = Some("new".to_owned());
    desired.awaits_inputs = false;
    desired.content = content;
    (observed.awaits_dependency, observed.awaits_crds) = (awaits_dependency, awaits_crds);
}

const ADOPTION: Fact = &[
    |o, _| o.adoption = Adoption::None,
    |o, _| o.adoption = Adoption::Wanted,
];
const DRIFT: Fact = &[
    |o, _| o.drift = Drift::None,
    |o, _| o.drift = Drift::Some,
    |o, _| o.drift = Drift::Exhausted,
    |o, _| o.drift = Drift::Unknown,
];
const REPAIR: Fact = &[|_, d| d.repair = true, |_, d| d.repair = false];
const TESTS: Fact = &[
    |_, d| d.test = false,
    |o, d| (o.tested, d.test) = (false, true),
    |o, d| (o.tested, d.test) = (true, true),
];
const REPORTED: Fact = &[|o, _| o.unreported = false, |o, _| o.unreported = true];
const OBSTACLE: Fact = &[
    |o, _| o.obstacle_changed = false,
    |o, _| o.obstacle_changed = true,
];
const CLEAN_UP: Fact = &[|_, d| d.clean_up = false, |_, d| d.clean_up = true];
const INSTALL_RETRIES: Fact = &[
    |_, d| d.install_retries = None,
    |_, d| d.install_retries = Some(1),
];
const CHUNKED: Fact = &[|o, _| o.chunked = false, |o, _| o.chunked = true];

/// Facts that decide in any state.
const COMMON: &[Fact] = &[REMEDIATION, UPGRADE_RETRIES, FORCED, FORGIVEN, GATES];

/// Returns the further facts that decide with this newest record.
fn facts_with(status: Option<Status>) -> &'static [Fact] {
    match status {
        None => &[CHUNKED],
        Some(Status::Deployed) => &[ADOPTION, DRIFT, REPAIR, TESTS],
        Some(Status::Failed) => &[REPORTED, OBSTACLE, CLEAN_UP, INSTALL_RETRIES],
        Some(Status::Uninstalled) => &[OBSTACLE, CLEAN_UP, INSTALL_RETRIES],
        Some(_) => &[],
    }
}

/// Calls `check` with each combination of these facts.
fn combine(
    facts: &[Fact],
    observed: &mut ObservedFacts,
    desired: &mut DesiredFacts,
    check: &mut dyn FnMut(&ObservedFacts, &DesiredFacts),
) {
    let Some((first, others)) = facts.split_first() else {
        return check(observed, desired);
    };
    for value in *first {
        value(observed, desired);
        combine(others, observed, desired, check);
    }
}

/// Returns each newest record with this status.
fn newest(status: Status) -> Vec<RecordFacts> {
    let failed = matches!(
        status,
        Status::Failed | Status::Uninstalling | Status::Uninstalled
    );
    let digests = [Some("new"), Some("old"), None];
    let flags = [false, true];
    let attempts: &[(u32, bool)] = if failed {
        &[
            (0, false),
            (1, false),
            (MAX_HOOK_ATTEMPTS, false),
            (MAX_HOOK_ATTEMPTS, true),
        ]
    } else {
        &[(0, false)]
    };
    let mut records = Vec::new();
    for digest in digests {
        for proven in flags {
            for (attempts, hook_failed) in attempts {
                for over in flags {
                    for ours in flags {
                        let time = if over { LONG_AGO } else { Duration::ZERO };
                        records.push(RecordFacts {
                            proven,
                            ours,
                            attempts: *attempts,
                            hook_failed: *hook_failed,
                            written: time,
                            unchanged_for: time,
                            ..record(0, status, digest)
                        });
                    }
                }
            }
        }
    }
    // Whose record it is, and when it was written, is asked of some only.
    records.retain(|record| status.is_pending() || record.ours);
    records.retain(|record| status.is_pending() || failed || record.written.is_zero());
    records
}

/// Returns each sequence of records before the newest one.
fn earlier() -> Vec<Vec<RecordFacts>> {
    let mut one = Vec::new();
    for digest in [Some("new"), Some("old"), None] {
        for proven in [true, false] {
            one.push(RecordFacts {
                proven,
                ..record(0, Status::Superseded, digest)
            });
        }
        one.push(record(0, Status::Failed, digest));
    }
    one.push(RecordFacts {
        hook_failed: true,
        ..failed(0, MAX_HOOK_ATTEMPTS)
    });
    one.push(record(0, Status::PendingUpgrade, Some("new")));
    let mut all = vec![Vec::new()];
    for first in &one {
        all.push(vec![first.clone()]);
        all.extend(one.iter().map(|second| vec![first.clone(), second.clone()]));
    }
    for digest in ["bad", "new"] {
        let failures = vec![record(0, Status::Failed, Some(digest)); MAX_FAILED_REVISIONS + 1];
        all.push(failures.clone());
        all.push([vec![record(0, Status::Deployed, Some("old"))], failures].concat());
    }
    all
}

/// Calls `check` with all states whose newest record has this status.
fn all(status: Option<Status>, check: &mut dyn FnMut(&ObservedFacts, &DesiredFacts)) {
    let latest = status.map_or_else(
        || vec![None],
        |status| newest(status).into_iter().map(Some).collect(),
    );
    for before in earlier() {
        if latest == [None] && !before.is_empty() {
            continue;
        }
        for latest in &latest {
            let mut history = before.clone();
            history.extend(latest.clone());
            for (revision, record) in (1..).zip(&mut history) {
                record.revision = Revision(revision);
            }
            // Two earlier records decide about attempts and rollbacks; the other facts do not depend on them.
            let few = if before.len() == 2 {
                &[REMEDIATION, UPGRADE_RETRIES, FORCED, FORGIVEN, REPORTED]
            } else {
                COMMON
            };
            let more = if before.len() == 2 {
                &[]
            } else {
                facts_with(status)
            };
            let facts = [few, more].concat();
            combine(&facts, &mut observed(history), &mut desired(), check);
        }
    }
}

#[test]
fn rules_hold_in_every_state() {
    let statuses = Status::ALL.into_iter().map(Some);
    let (mut count, mut steps) = (0, std::collections::BTreeSet::new());
    for status in statuses.chain([None]) {
        all(status, &mut |observed, desired| {
            let step = next_step(observed, Some(desired));
            steps.insert(step.name());
            let case = Case {
                observed,
                desired,
                step,
            };
            for (rule, holds) in RULES {
                assert!(
                    holds(&case),
                    "{rule}: {:?}\n{observed:#?}\n{desired:#?}",
                    case.step
                );
            }
            count += 1;
        });
    }
    assert!(count > 500_000, "{count} states");
    // All but those that are decided before the inputs are known.
    assert_eq!(steps.len(), 20, "{steps:?}");
}

type Holds = fn(&ObservedFacts) -> bool;

/// Facts that decide without the inputs, and their steps. The first that holds counts.
const BEFORE_INPUTS: &[(Holds, Step)] = &[
    (|o| o.contested, Step::Leave),
    (|o| o.deleting && !o.finalizer, Step::Forget),
    (
        |o| o.deleting && o.protected,
        Step::Refuse(Refusal::Protected),
    ),
    (|o| o.deleting && o.orphans, Step::Orphan),
    (|o| o.deleting, Step::Uninstall),
    (|o| o.unheld, Step::Hold),
    (|o| o.paused && o.bound, Step::Unbind),
    (|o| o.paused, Step::Refuse(Refusal::Paused)),
    (|o| o.impossible, Step::Refuse(Refusal::Impossible)),
    (|o| o.foreign, Step::Refuse(Refusal::Foreign)),
    (
        |o| o.adoption == Adoption::OtherChart,
        Step::Refuse(Refusal::OtherChart),
    ),
];

#[test]
fn steps_without_inputs_are_decided_first_in_this_order() {
    let facts: &[Fact] = &[
        &[|o, _| o.contested = false, |o, _| o.contested = true],
        &[|o, _| o.deleting = false, |o, _| o.deleting = true],
        &[|o, _| o.finalizer = true, |o, _| o.finalizer = false],
        &[|o, _| o.protected = false, |o, _| o.protected = true],
        &[|o, _| o.orphans = false, |o, _| o.orphans = true],
        &[|o, _| o.unheld = false, |o, _| o.unheld = true],
        &[|o, _| o.paused = false, |o, _| o.paused = true],
        &[|o, _| o.bound = false, |o, _| o.bound = true],
        &[|o, _| o.impossible = false, |o, _| o.impossible = true],
        &[|o, _| o.foreign = false, |o, _| o.foreign = true],
        &[
            |o, _| o.adoption = Adoption::None,
            |o, _| o.adoption = Adoption::OtherChart,
        ],
        // These have no say.
        GATES,
        FORCED,
    ];
    let history = vec![record(1, Status::PendingUpgrade, Some("new"))];
    let check = &mut |observed: &ObservedFacts, desired: &DesiredFacts| {
        let first = BEFORE_INPUTS.iter().find(|(holds, _)| holds(observed));
        let expected = first.map_or(Step::Compute, |(_, step)| step.clone());
        assert_eq!(next_step(observed, None), expected, "{observed:#?}");
        if first.is_some() {
            assert_eq!(next_step(observed, Some(desired)), expected);
        }
    };
    combine(facts, &mut observed(history), &mut desired(), check);
}

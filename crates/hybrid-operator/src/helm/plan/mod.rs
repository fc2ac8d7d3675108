//! Decides what is done next. Pure and total: every state of a release has an answer, and no error
//! text is read to find it. All decisions of the reconciler are made here; `docs/reconciler.md`
//! has the same table in words.

use std::time::Duration;

use helm_core::release::{Revision, Status};

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

/// How often a hook that fails is run for one set of inputs before a person has to look at it.
pub(crate) const HOOK_ATTEMPTS: u32 = 3;
/// How often an install is tried whose failures are cleaned up by deleting what it made.
pub(crate) const CLEAN_INSTALLS: u32 = 3;
/// How many failed revisions since the last deployed one are kept before the oldest is discarded.
pub(crate) const LEFTOVERS: usize = 4;
/// The wait before the second attempt; it doubles with each further one.
const FIRST_RETRY: Duration = Duration::from_secs(2);
/// The longest wait between two attempts.
const LONGEST_RETRY: Duration = Duration::from_mins(5);

/// One record of the release, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Its revision.
    pub(crate) revision: Revision,
    /// Its status.
    pub(crate) status: Status,
    /// The digest of the inputs that it was made from; `None` for one that somebody else made.
    pub(crate) digest: Option<String>,
    /// Whether this operator wrote it and may go on with it.
    pub(crate) ours: bool,
    /// How often it failed.
    pub(crate) attempts: u32,
    /// Whether the last failure was one of a hook, which runs again with each attempt.
    pub(crate) hook_failed: bool,
    /// How long it has been as it is, as far as this process knows for certain.
    pub(crate) unchanged_for: Duration,
    /// How long ago it was last written, by the clock of whoever wrote it.
    pub(crate) written: Duration,
}

/// How the objects of the newest revision are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drift {
    /// As they were applied.
    None,
    /// Some were changed or deleted, and may be repaired.
    Some,
    /// Some were changed or deleted, and each of them was repaired too often.
    Exhausted,
    /// Not known: nothing was applied by this process, and no stored baseline agrees.
    Unknown,
}

/// Whether a release that somebody else deployed is to be taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Adoption {
    /// There is nothing to adopt.
    None,
    /// The newest record is to be adopted.
    Wanted,
    /// The newest record was to be adopted and is one of another chart.
    OtherChart,
}

/// What is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact")]
pub(crate) struct Observed {
    /// Whether another operator looks after the release.
    pub(crate) contested: bool,
    /// Whether the custom resource is being deleted.
    pub(crate) deleting: bool,
    /// Whether it has our finalizer.
    pub(crate) finalizer: bool,
    /// Whether it is paused.
    pub(crate) paused: bool,
    /// Whether it can have no release: a name or a template of `watches.yaml` is invalid.
    pub(crate) impossible: bool,
    /// Whether the release's name belongs to somebody else, who did not agree to its adoption.
    pub(crate) foreign: bool,
    /// Whether helm-operator-plugins left a release in chunks, which Helm cannot read.
    pub(crate) chunked: bool,
    /// The records, oldest first.
    pub(crate) history: Vec<Record>,
    /// Whether the newest record is to be adopted.
    pub(crate) adoption: Adoption,
    /// How the objects are.
    pub(crate) drift: Drift,
    /// Whether a custom resource that `dependsOn` names is not ready.
    pub(crate) awaits_dependency: bool,
    /// Whether definitions of the chart's `crds/` have to be installed or awaited before a new
    /// revision of the wanted inputs begins.
    pub(crate) awaits_definitions: bool,
    /// Whether what stood in the way of the last attempt has changed since.
    pub(crate) obstacle_changed: bool,
    /// The newest revision whose failures no longer count: somebody has asked for a new start.
    pub(crate) forgiven: Revision,
    /// Whether somebody has asked for a new revision whatever the inputs are.
    pub(crate) forced: bool,
    /// Whether the hooks of the event `test` ran on the newest revision.
    pub(crate) tested: bool,
}

/// What should be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option or a fact")]
pub(crate) struct Desired {
    /// The digest of the inputs; `None` where they cannot be computed.
    pub(crate) digest: Option<String>,
    /// Whether nothing is rendered where there was something, and that is not allowed.
    pub(crate) empty: bool,
    /// Whether the deployed revision has the same values, chart and objects: only what templates
    /// look up is different.
    pub(crate) unchanged: bool,
    /// Whether drift is repaired.
    pub(crate) repair: bool,
    /// How often a failed install is tried again; without a limit by default.
    pub(crate) install_retries: Option<u32>,
    /// Whether what a failed install made is removed before it is tried again.
    pub(crate) clean_up: bool,
    /// How often a failed upgrade is tried again; by default not at all before a rollback, and
    /// without a limit where there is none.
    pub(crate) upgrade_retries: Option<u32>,
    /// Whether a failed upgrade is rolled back.
    pub(crate) rollback: bool,
    /// How long a pending revision that somebody else wrote is left alone.
    pub(crate) timeout: Duration,
    /// Whether the chart's tests run after each change.
    pub(crate) test: bool,
}

/// The one thing that is done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Everything is as it should be.
    Nothing,
    /// The custom resource is being deleted and nothing of it is ours any more.
    Forget,
    /// Another operator looks after the release.
    Leave,
    /// The first revision, or one after the release was uninstalled.
    Install,
    /// A further revision.
    Upgrade,
    /// A further revision with the content of an earlier one.
    Rollback {
        /// The earlier one.
        to: Revision,
    },
    /// What was begun is continued from its record.
    Resume {
        /// The record.
        revision: Revision,
    },
    /// What failed is tried again from its record.
    Retry {
        /// The record.
        revision: Revision,
    },
    /// The recorded objects are applied again.
    Repair {
        /// The record.
        revision: Revision,
    },
    /// The recorded objects are compared with the cluster's, and nothing is changed.
    Inspect {
        /// The record.
        revision: Revision,
    },
    /// A record that somebody else wrote is made ours; its objects stay as they are.
    Adopt {
        /// The record.
        revision: Revision,
    },
    /// A release in chunks is stored as Helm stores it.
    Convert,
    /// The wanted inputs count as those of a record that they would change nothing of.
    KeepUnchanged {
        /// The record.
        revision: Revision,
    },
    /// The chart's definitions are installed, or looked at again.
    InstallDefinitions {
        /// Whether the next revision is an upgrade.
        upgrade: bool,
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
    /// What only this failed revision made is removed, and its record with it.
    Discard {
        /// The record.
        revision: Revision,
    },
    /// The release is removed.
    Uninstall,
    /// It is looked at again later, or when what is waited for changes.
    Wait {
        /// When at the latest.
        delay: Duration,
        /// For what.
        until: Until,
    },
    /// Nothing can be done before somebody changes something.
    Refuse(Refusal),
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Somebody's Helm operation ends.
    OthersOperation,
    /// A custom resource of `dependsOn` is ready.
    Dependency,
    /// The time of the next attempt has come.
    NextAttempt {
        /// The revision that failed.
        revision: Revision,
    },
}

/// Why nothing is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The custom resource is paused.
    Paused,
    /// It can have no release.
    Impossible,
    /// The release's name belongs to somebody else.
    Foreign,
    /// The release that is to be adopted is one of another chart.
    OtherChart,
    /// The inputs cannot be computed.
    NoInputs,
    /// The chart renders no object, and the release has some.
    Empty,
    /// Another attempt would do harm.
    Stalled {
        /// The revision that failed.
        revision: Revision,
        /// Which harm.
        harm: Harm,
    },
    /// Drifted objects were repaired too often.
    Contended {
        /// The deployed revision.
        revision: Revision,
    },
}

/// What another attempt would do to a running system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Harm {
    /// It would replace what was rolled back to by what failed.
    ReplacesRollback,
    /// It would run a hook that has failed several times.
    RunsHook,
    /// It would delete and create anew what the failed install made.
    DeletesObjects,
    /// `remediation.retries` says that it is enough.
    ExceedsRetries,
}

/// Decides what is done next.
pub(crate) fn next_step(observed: &Observed, desired: &Desired) -> Step {
    before_inputs(observed).unwrap_or_else(|| with_inputs(observed, desired))
}

/// What is done without knowing the inputs: values and templates are not even looked at.
pub(crate) fn before_inputs(observed: &Observed) -> Option<Step> {
    if observed.contested {
        Some(Step::Leave)
    } else if observed.deleting {
        Some(if observed.finalizer {
            Step::Uninstall
        } else {
            Step::Forget
        })
    } else if observed.paused {
        Some(Step::Refuse(Refusal::Paused))
    } else if observed.impossible {
        Some(Step::Refuse(Refusal::Impossible))
    } else if observed.foreign {
        Some(Step::Refuse(Refusal::Foreign))
    } else if observed.adoption == Adoption::OtherChart {
        Some(Step::Refuse(Refusal::OtherChart))
    } else {
        None
    }
}

fn with_inputs(observed: &Observed, desired: &Desired) -> Step {
    let latest = observed.history.last();
    let Some(digest) = &desired.digest else {
        let deployed = latest.filter(|latest| latest.status == Status::Deployed);
        return deployed
            .and_then(|deployed| look_after(observed, desired, deployed))
            .unwrap_or(Step::Refuse(Refusal::NoInputs));
    };
    let Some(latest) = latest else {
        return if observed.chunked {
            Step::Convert
        } else {
            begin(observed, desired)
        };
    };
    let same = latest.digest.as_ref() == Some(digest);
    let revision = latest.revision;
    match latest.status {
        Status::PendingInstall | Status::PendingUpgrade | Status::PendingRollback => {
            let left = desired.timeout.saturating_sub(latest.unchanged_for);
            if !latest.ours && !left.is_zero() {
                return Step::Wait {
                    delay: left.min(Duration::from_secs(30)),
                    until: Until::OthersOperation,
                };
            }
            // A rollback has the digest of what it restores, and goes on while what failed is
            // still wanted.
            let rolls_back =
                latest.status == Status::PendingRollback && is_exhausted(observed, desired);
            if same || rolls_back {
                Step::Resume { revision }
            } else {
                begin(observed, desired)
            }
        }
        Status::Deployed if observed.adoption == Adoption::Wanted => Step::Adopt { revision },
        Status::Deployed if same && !observed.forced => look_after(observed, desired, latest)
            .unwrap_or(if desired.test && !observed.tested {
                Step::Test { revision }
            } else {
                Step::Nothing
            }),
        Status::Deployed => match stalled_upgrade(observed, desired) {
            // What was rolled back to is looked after like any other revision.
            Some(stalled) => look_after(observed, desired, latest).unwrap_or(stalled),
            None => begin(observed, desired),
        },
        Status::Failed if observed.forced => begin(observed, desired),
        Status::Failed if same => after_failure(observed, desired, latest),
        Status::Failed if is_failed_rollback(observed, desired, latest) => {
            retry(observed, latest, latest.attempts)
        }
        Status::Uninstalled if same && desired.clean_up => again(observed, desired, latest),
        Status::Failed
        | Status::Superseded
        | Status::Unknown
        | Status::Uninstalling
        | Status::Uninstalled => begin(observed, desired),
    }
}

/// Begins a new revision, as soon as nothing has to come before it.
fn begin(observed: &Observed, desired: &Desired) -> Step {
    let latest = observed.history.last();
    let deployed = latest.filter(|latest| latest.status == Status::Deployed);
    if desired.empty {
        return deployed
            .and_then(|deployed| look_after(observed, desired, deployed))
            .unwrap_or(Step::Refuse(Refusal::Empty));
    }
    if let Some(deployed) = deployed
        && desired.unchanged
        && !observed.forced
    {
        return Step::KeepUnchanged {
            revision: deployed.revision,
        };
    }
    if observed.awaits_dependency {
        return Step::Wait {
            delay: Duration::from_secs(30),
            until: Until::Dependency,
        };
    }
    let leftovers = leftovers(observed);
    if leftovers.len() > LEFTOVERS
        && let Some(oldest) = leftovers.first()
    {
        return Step::Discard {
            revision: oldest.revision,
        };
    }
    let ended =
        |latest: &Record| matches!(latest.status, Status::Uninstalling | Status::Uninstalled);
    let upgrade = last_deployed(observed).is_some() && !latest.is_some_and(ended);
    if observed.awaits_definitions {
        Step::InstallDefinitions { upgrade }
    } else if upgrade {
        Step::Upgrade
    } else {
        Step::Install
    }
}

/// What the objects of a deployed revision need.
fn look_after(observed: &Observed, desired: &Desired, deployed: &Record) -> Option<Step> {
    let revision = deployed.revision;
    match observed.drift {
        Drift::None => None,
        Drift::Unknown if desired.repair => Some(Step::Repair { revision }),
        Drift::Unknown => Some(Step::Inspect { revision }),
        // It is only reported.
        Drift::Some | Drift::Exhausted if !desired.repair => None,
        Drift::Some => Some(Step::Repair { revision }),
        Drift::Exhausted => Some(Step::Refuse(Refusal::Contended { revision })),
    }
}

/// What follows a failure of the wanted inputs.
fn after_failure(observed: &Observed, desired: &Desired, latest: &Record) -> Step {
    let Some(good) = last_deployed(observed) else {
        return if desired.clean_up {
            Step::CleanUp {
                revision: latest.revision,
            }
        } else {
            again(observed, desired, latest)
        };
    };
    if !is_exhausted(observed, desired) {
        retry(observed, latest, attempts(observed, desired))
    } else if desired.rollback && restores(observed, latest) && !leftovers(observed).is_empty() {
        // It has the inputs of what would be rolled back to, and follows another failure: a further
        // rollback would be the same once more, with a record of its own.
        retry(observed, latest, latest.attempts)
    } else if desired.rollback {
        Step::Rollback { to: good }
    } else {
        stalled(latest, Harm::ExceedsRetries)
    }
}

/// An install that failed is tried again, with nothing to go back to.
fn again(observed: &Observed, desired: &Desired, latest: &Record) -> Step {
    let attempts = attempts(observed, desired);
    match desired.install_retries {
        Some(retries) if attempts > retries => stalled(latest, Harm::ExceedsRetries),
        None if desired.clean_up && attempts >= CLEAN_INSTALLS => {
            stalled(latest, Harm::DeletesObjects)
        }
        None if latest.hook_failed && attempts >= HOOK_ATTEMPTS => stalled(latest, Harm::RunsHook),
        _ => retry(observed, latest, attempts),
    }
}

/// Tries a failed revision again, when its time has come or what was in its way has changed.
fn retry(observed: &Observed, latest: &Record, attempts: u32) -> Step {
    let revision = latest.revision;
    let left = pause(attempts).saturating_sub(latest.written);
    if left.is_zero() || observed.obstacle_changed {
        Step::Retry { revision }
    } else {
        Step::Wait {
            delay: left,
            until: Until::NextAttempt { revision },
        }
    }
}

/// The time between an attempt that failed and the next.
pub(crate) fn pause(attempts: u32) -> Duration {
    match attempts.checked_sub(1) {
        None => Duration::ZERO,
        Some(doublings) => FIRST_RETRY
            .saturating_mul(2_u32.saturating_pow(doublings.min(16)))
            .min(LONGEST_RETRY),
    }
}

fn stalled(record: &Record, harm: Harm) -> Step {
    Step::Refuse(Refusal::Stalled {
        revision: record.revision,
        harm,
    })
}

/// Why an upgrade to the wanted inputs does not begin: they failed, and something else is deployed
/// since.
fn stalled_upgrade(observed: &Observed, desired: &Desired) -> Option<Step> {
    if observed.forced || !is_exhausted(observed, desired) {
        return None;
    }
    let mut failed = observed.history.iter().rev();
    let failed = failed.find(|record| has_failed(record, desired))?;
    Some(stalled(failed, Harm::ReplacesRollback))
}

/// Whether the wanted inputs failed so often that an upgrade to them is not tried again.
fn is_exhausted(observed: &Observed, desired: &Desired) -> bool {
    let attempts = attempts(observed, desired);
    match desired.upgrade_retries {
        Some(retries) => attempts > retries,
        None if desired.rollback => attempts > 0,
        None => {
            let hook_failed = observed
                .history
                .iter()
                .any(|record| has_failed(record, desired) && record.hook_failed);
            hook_failed && attempts >= HOOK_ATTEMPTS
        }
    }
}

/// Whether the newest record is a rollback that failed: it has the digest of the revision that it
/// restores, while inputs that are given up on are still wanted.
fn is_failed_rollback(observed: &Observed, desired: &Desired, latest: &Record) -> bool {
    desired.rollback && restores(observed, latest) && is_exhausted(observed, desired)
}

/// Whether a record has the inputs of the newest revision that was deployed.
fn restores(observed: &Observed, record: &Record) -> bool {
    last_deployed(observed).is_some_and(|good| {
        let good = observed.history.iter().find(|r| r.revision == good);
        good.is_some_and(|good| good.digest == record.digest)
    })
}

fn has_failed(record: &Record, desired: &Desired) -> bool {
    desired.digest.is_some()
        && record.digest == desired.digest
        && matches!(record.status, Status::Failed | Status::Uninstalled)
}

/// How often the wanted inputs failed.
fn attempts(observed: &Observed, desired: &Desired) -> u32 {
    observed
        .history
        .iter()
        .filter(|record| has_failed(record, desired) && record.revision > observed.forgiven)
        .map(|record| record.attempts)
        .fold(0, u32::saturating_add)
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

/// The revisions since the last deployed one, but for the newest: each may have left objects.
fn leftovers(observed: &Observed) -> &[Record] {
    let history = observed.history.as_slice();
    let good = |record: &Record| matches!(record.status, Status::Deployed | Status::Superseded);
    let begin = history.iter().rposition(good).map_or(0, |at| at + 1);
    let end = history.len().saturating_sub(1).max(begin);
    history.get(begin..end).unwrap_or_default()
}

//! Decides the next step. A pure, total function: each state of a release has a step, and no error
//! text is parsed to find it. All decisions of the reconciler are made here; `docs/contributing/reconciler.md`
//! describes them in prose.

use std::time::Duration;

use helm_core::release::{Revision, Status};

#[cfg(test)]
mod tests;

/// Maximum number of attempts per set of inputs if a hook fails; then the release is stalled.
pub(crate) const MAX_HOOK_ATTEMPTS: u32 = 3;
/// Maximum number of install attempts if each failure is cleaned up by deleting its objects.
pub(crate) const MAX_CLEAN_INSTALLS: u32 = 3;
/// Maximum number of failed revisions kept since the last deployed one; then the oldest is
/// discarded.
pub(crate) const MAX_FAILED_REVISIONS: usize = 4;
/// Delay before the second attempt; doubles with each further one.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(2);
/// Maximum delay between two attempts.
const MAX_RETRY_DELAY: Duration = Duration::from_mins(5);

/// Facts about one record of the release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordFacts {
    pub(crate) revision: Revision,
    pub(crate) status: Status,
    /// Digest of the inputs; `None` if the record was written by another client.
    pub(crate) digest: Option<String>,
    /// Whether this operator wrote it and may resume it at once.
    pub(crate) ours: bool,
    /// Whether objects may be applied from it: its proof says that this operator wrote it.
    pub(crate) proven: bool,
    /// Number of failed attempts.
    pub(crate) attempts: u32,
    /// Whether a hook failed in the last attempt; it runs again in each attempt.
    pub(crate) hook_failed: bool,
    /// Time since this process saw the record change.
    pub(crate) unchanged_for: Duration,
    /// Time since it was last written, by the writer's clock.
    pub(crate) written: Duration,
}

impl RecordFacts {
    /// Returns whether it is or was the deployed revision.
    fn was_deployed(&self) -> bool {
        matches!(self.status, Status::Deployed | Status::Superseded)
    }
}

/// Drift of the objects of the newest revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drift {
    /// All are as applied.
    None,
    /// Some were changed or deleted, and may be repaired.
    Some,
    /// Some were changed or deleted, and all of these were repaired too often.
    Exhausted,
    /// Unknown: this process has not applied the objects, and they do not match a stored baseline.
    Unknown,
}

/// Whether a release deployed by someone else is adopted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Adoption {
    /// There is nothing to adopt.
    None,
    /// The newest record should be adopted.
    Wanted,
    /// The newest record should be adopted, but is from another chart.
    OtherChart,
}

/// Observed facts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact")]
pub(crate) struct ObservedFacts {
    /// Whether another operator manages the release.
    pub contested: bool,
    /// Whether the owner is being deleted.
    pub(crate) deleting: bool,
    /// Whether it has the operator's finalizer.
    pub(crate) finalizer: bool,
    /// Whether the release stays while the owner is being deleted, in a namespace that is not.
    pub(crate) protected: bool,
    /// Whether the release stays when the owner is gone.
    pub(crate) orphans: bool,
    /// Whether it has a release and lacks the finalizer: somebody has replaced it without.
    pub(crate) unheld: bool,
    pub paused: bool,
    /// Whether it cannot have a release: a name or a template of `watches.yaml` is invalid.
    pub(crate) impossible: bool,
    /// Whether the release belongs to someone else and adoption is not allowed.
    pub(crate) foreign: bool,
    /// Whether helm-operator-plugins stored the release in chunks, which Helm cannot read.
    pub(crate) chunked: bool,
    /// Records, oldest first.
    pub(crate) history: Vec<RecordFacts>,
    pub(crate) adoption: Adoption,
    pub(crate) drift: Drift,
    /// Whether an object that is to outlive the owner still has an owner reference to it, or the newest record does not
    /// say whether all have one.
    pub(crate) bound: bool,
    /// Whether a custom resource of `dependsOn` is not ready.
    pub(crate) awaits_dependency: bool,
    /// Whether CRDs of the chart must be installed or served before a new revision.
    pub(crate) awaits_crds: bool,
    /// Whether the status does not say yet that the newest revision has failed: the process may have
    /// stopped between writing the record and the status.
    pub(crate) unreported: bool,
    /// Whether what blocked the last attempt has changed.
    pub(crate) obstacle_changed: bool,
    /// Newest revision whose failures no longer count after `reset-at`.
    pub(crate) forgiven: Revision,
    /// Whether `force-at` requests a new revision even if the inputs are unchanged.
    pub(crate) forced: bool,
    /// Whether the `test` hooks ran on the newest revision.
    pub(crate) tested: bool,
}

/// Facts about the desired state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option or a fact")]
pub(crate) struct DesiredFacts<N = ()> {
    /// Digest of the inputs; `None` if they cannot be computed.
    pub(crate) digest: Option<String>,
    /// Whether they cannot be computed now, but another attempt may succeed.
    pub(crate) awaits_inputs: bool,
    /// Content of the next revision; `None` if it was not rendered.
    pub(crate) content: Option<Content<N>>,
    /// Whether drift is repaired.
    pub(crate) repair: bool,
    /// Maximum number of retries of a failed install; unlimited if `None`.
    pub(crate) install_retries: Option<u32>,
    /// Whether the objects of a failed install are removed before a retry.
    pub(crate) clean_up: bool,
    /// Maximum number of retries of a failed upgrade. If `None`, no retries with rollback or
    /// uninstall, and unlimited retries without.
    pub(crate) upgrade_retries: Option<u32>,
    /// Whether a failed upgrade is rolled back.
    pub(crate) rollback: bool,
    /// Whether the release is uninstalled and installed again after a failed upgrade.
    pub(crate) reinstall: bool,
    /// Time that a pending revision of another writer is left unchanged.
    pub(crate) timeout: Duration,
    /// Whether the chart's tests run after each new revision.
    pub(crate) test: bool,
}

/// Content of the next revision, compared with that of the deployed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content<N = ()> {
    /// Deployable content.
    Due(N),
    /// No objects, although the release has some and `allowEmpty` is not set.
    Empty,
    /// Values, chart and objects are those of the deployed revision, and only lookups differ.
    Unchanged(N),
}

impl Content {
    /// Adds the content itself.
    pub(crate) fn with<N>(self, next: impl FnOnce() -> N) -> Content<N> {
        match self {
            Self::Due(()) => Content::Due(next()),
            Self::Empty => Content::Empty,
            Self::Unchanged(()) => Content::Unchanged(next()),
        }
    }
}

/// Next step of a release. `revision` is the one whose record a step is about; `upgrade` tells whether the
/// next revision is an upgrade; `N` is what a new revision is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named for what they are")]
pub enum Step<N = ()> {
    /// Nothing to do.
    Settle,
    /// Compute the inputs. They are facts for another plan.
    Compute,
    /// Render the next revision. Its content is a fact for another plan.
    Render { upgrade: bool },
    /// The owner is being deleted and has no finalizer of the operator.
    Forget,
    /// Do nothing because another operator manages the release.
    Leave,
    /// Add the finalizer to an owner that has a release.
    Hold,
    /// Deploy the first revision, or one after the release was uninstalled.
    Install(N),
    /// Deploy a new revision.
    Upgrade(N),
    /// Deploy a new revision with the content of an earlier one.
    Rollback { to: Revision },
    /// Continue an interrupted action from its record.
    Resume { revision: Revision },
    /// Report the failure of a revision.
    Report { revision: Revision },
    /// Retry a failed action from its record.
    Retry { revision: Revision },
    /// Apply the recorded objects again.
    Repair { revision: Revision },
    /// Compare the recorded objects with those of the cluster, without changes.
    Inspect { revision: Revision },
    /// Remove the owner references of objects that are to be kept, so that they outlive the
    /// owner also if it is deleted in the foreground.
    Unbind,
    /// Adopt a record of another writer, or one whose proof is missing. Its objects stay unchanged.
    Adopt { revision: Revision },
    /// Convert a chunked release of helm-operator-plugins to Helm's format.
    Convert,
    /// Treat the desired inputs as those of a record whose objects they would not change.
    Keep { revision: Revision, next: N },
    /// Install the chart's CRDs, or check whether they are served.
    Crds { upgrade: bool },
    /// Run the chart's tests.
    Test { revision: Revision },
    /// Remove the objects of a failed install. Its record stays.
    CleanUp { revision: Revision },
    /// Remove the objects that only this failed revision has, and its record.
    Discard { revision: Revision },
    /// Uninstall the release whose upgrade failed, so that it is installed again. Only on request:
    /// `upgrade.remediation.strategy: uninstall`.
    Remove { revision: Revision },
    /// Uninstall the release.
    Uninstall,
    /// Let the owner go, and leave the objects and the records of the release.
    Orphan,
    /// Wait for a change or a time, for no longer than `delay`.
    Wait { delay: Duration, until: Until },
    /// Do nothing until a user changes something.
    Refuse(Refusal),
}

impl<N> Step<N> {
    /// Names the step, for traces.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Settle => "settle",
            Self::Compute => "compute",
            Self::Render { .. } => "render",
            Self::Forget => "forget",
            Self::Leave => "leave",
            Self::Hold => "hold",
            Self::Install(_) => "install",
            Self::Upgrade(_) => "upgrade",
            Self::Rollback { .. } => "rollback",
            Self::Resume { .. } => "resume",
            Self::Report { .. } => "report",
            Self::Retry { .. } => "retry",
            Self::Repair { .. } => "repair",
            Self::Inspect { .. } => "inspect",
            Self::Unbind => "unbind",
            Self::Adopt { .. } => "adopt",
            Self::Convert => "convert",
            Self::Keep { .. } => "keep",
            Self::Crds { .. } => "crds",
            Self::Test { .. } => "test",
            Self::CleanUp { .. } => "clean-up",
            Self::Discard { .. } => "discard",
            Self::Remove { .. } => "remove",
            Self::Uninstall => "uninstall",
            Self::Orphan => "orphan",
            Self::Wait { .. } => "wait",
            Self::Refuse(_) => "refuse",
        }
    }
}

/// End of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named for what they are")]
pub enum Until {
    /// A Helm operation of another client ends.
    OthersOperation,
    /// A custom resource of `dependsOn` is ready.
    Dependency,
    /// The backoff before the next attempt of a failed revision ends.
    NextAttempt { revision: Revision },
}

/// Reason for doing nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named for what they are")]
pub enum Refusal {
    /// The owner is being deleted, and its release is protected.
    Protected,
    /// The owner is paused.
    Paused,
    /// The owner cannot have a release.
    Impossible,
    /// The release belongs to someone else.
    Foreign,
    /// The release to adopt is from another chart.
    OtherChart,
    /// The inputs cannot be computed.
    NoInputs,
    /// The chart renders no objects, but the release has some.
    Empty,
    /// Another attempt of a failed revision could cause damage.
    Stalled {
        revision: Revision,
        reason: StallReason,
    },
    /// Drifted objects of the deployed revision were repaired too often.
    Contended { revision: Revision },
}

/// Reason why a failed revision is not retried automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StallReason {
    /// A retry would replace the revision that was rolled back to with the failed one.
    ReplacesRollback,
    /// A retry would run a hook that has failed several times.
    RunsHook,
    /// A retry would delete and recreate the objects of the failed install.
    DeletesObjects,
    /// `remediation.retries` is exhausted.
    ExceedsRetries,
    /// No revision that was deployed has a proof that this operator wrote it.
    NothingToRestore,
}

/// Returns the next step. `desired` is `None` before the inputs are computed.
pub(crate) fn next_step<N: Clone>(
    observed: &ObservedFacts,
    desired: Option<&DesiredFacts<N>>,
) -> Step<N> {
    observed.before_inputs().unwrap_or_else(|| match desired {
        Some(desired) => Plan { observed, desired }.with_inputs(),
        None => Step::Compute,
    })
}

/// Returns the delay between a failed attempt and the next.
pub(crate) fn retry_delay(attempts: u32) -> Duration {
    match attempts.checked_sub(1) {
        None => Duration::ZERO,
        Some(doublings) => FIRST_RETRY_DELAY
            .saturating_mul(2_u32.saturating_pow(doublings.min(16)))
            .min(MAX_RETRY_DELAY),
    }
}

fn stalled<N>(record: &RecordFacts, reason: StallReason) -> Step<N> {
    Step::Refuse(Refusal::Stalled {
        revision: record.revision,
        reason,
    })
}

impl ObservedFacts {
    /// Returns the step that can be decided without computing the inputs, if there is one. Templates that fail must not
    /// prevent an uninstall.
    fn before_inputs<N>(&self) -> Option<Step<N>> {
        if self.contested {
            Some(Step::Leave)
        } else if self.deleting {
            Some(if !self.finalizer {
                Step::Forget
            } else if self.protected {
                Step::Refuse(Refusal::Protected)
            } else if self.orphans {
                Step::Orphan
            } else {
                Step::Uninstall
            })
        } else if self.unheld {
            Some(Step::Hold)
        } else if self.paused && self.bound {
            // The garbage collector does not know of the pause.
            Some(Step::Unbind)
        } else if self.paused {
            Some(Step::Refuse(Refusal::Paused))
        } else if self.impossible {
            Some(Step::Refuse(Refusal::Impossible))
        } else if self.foreign {
            Some(Step::Refuse(Refusal::Foreign))
        } else if self.adoption == Adoption::OtherChart {
            Some(Step::Refuse(Refusal::OtherChart))
        } else {
            None
        }
    }

    /// Returns whether the next revision upgrades a release, rather than installing it.
    fn is_upgrade(&self) -> bool {
        let latest = self.history.last();
        let ended = |latest: &RecordFacts| {
            matches!(latest.status, Status::Uninstalling | Status::Uninstalled)
        };
        self.has_deployed() && !latest.is_some_and(ended)
    }

    /// Returns whether a record has the inputs of the revision that a rollback restores.
    fn restores(&self, record: &RecordFacts) -> bool {
        self.restorable()
            .is_some_and(|good| good.digest == record.digest)
    }

    /// Returns the revision that a rollback restores: the newest that was deployed and is proven.
    fn restorable(&self) -> Option<&RecordFacts> {
        let mut history = self.history.iter().rev();
        history.find(|record| record.proven && record.was_deployed())
    }

    /// Returns whether a revision was deployed.
    fn has_deployed(&self) -> bool {
        self.history.iter().any(RecordFacts::was_deployed)
    }

    /// Returns the revisions since the last deployed one, except the newest. Each may have left
    /// objects.
    fn leftovers(&self) -> &[RecordFacts] {
        let history = self.history.as_slice();
        let deployed = history.iter().rposition(RecordFacts::was_deployed);
        let begin = deployed.map_or(0, |at| at + 1);
        let end = history.len().saturating_sub(1).max(begin);
        history.get(begin..end).unwrap_or_default()
    }
}

/// A plan of the next step.
struct Plan<'f, N> {
    observed: &'f ObservedFacts,
    desired: &'f DesiredFacts<N>,
}

impl<N: Clone> Plan<'_, N> {
    fn with_inputs(&self) -> Step<N> {
        match self.for_release() {
            // Applies remove the references of the objects that they change.
            Step::Settle | Step::Refuse(_) | Step::Wait { .. } | Step::Test { .. }
                if self.observed.bound =>
            {
                Step::Unbind
            }
            step => step,
        }
    }

    /// Returns the step for the release as a whole.
    fn for_release(&self) -> Step<N> {
        let latest = self.observed.history.last();
        let Some(digest) = &self.desired.digest else {
            if self.observed.awaits_crds && !self.observed.chunked {
                // The chart may render with its definitions.
                let upgrade = self.observed.is_upgrade();
                return Step::Crds { upgrade };
            }
            return self
                .without_inputs()
                .unwrap_or(Step::Refuse(Refusal::NoInputs));
        };
        let Some(latest) = latest else {
            return if self.observed.chunked {
                Step::Convert
            } else {
                self.start_revision()
            };
        };
        let same = latest.digest.as_ref() == Some(digest);
        let revision = latest.revision;
        match latest.status {
            Status::PendingInstall | Status::PendingUpgrade | Status::PendingRollback => {
                let left = self.desired.timeout.saturating_sub(latest.unchanged_for);
                if !latest.ours && !left.is_zero() {
                    return Step::Wait {
                        delay: left.min(Duration::from_secs(30)),
                        until: Until::OthersOperation,
                    };
                }
                // A rollback has the digest of the revision that it restores. It is resumed while the
                // failed inputs are still desired.
                let rolls_back = latest.status == Status::PendingRollback && self.is_exhausted();
                if (same || rolls_back) && latest.proven {
                    Step::Resume { revision }
                } else {
                    self.start_revision()
                }
            }
            Status::Deployed if self.observed.adoption == Adoption::Wanted => {
                Step::Adopt { revision }
            }
            Status::Deployed if same && !self.observed.forced => self
                .handle_drift(latest)
                .unwrap_or(if !self.desired.test || self.observed.tested {
                    Step::Settle
                } else if latest.proven {
                    Step::Test { revision }
                } else {
                    Step::Adopt { revision }
                }),
            Status::Deployed => match self.stalled_upgrade() {
                // People ran `helm rollback`, which removes the operator's labels and owner references.
                Some(_) if let Some(good) = self.overruled(latest) => {
                    Step::Rollback { to: good.revision }
                }
                // Drift of the revision that was rolled back to is handled as for any other.
                Some(stalled) => self.handle_drift(latest).unwrap_or(stalled),
                None => self.start_revision(),
            },
            Status::Failed if self.observed.forced => self.start_revision(),
            Status::Failed if same => self.after_failure(latest),
            Status::Failed if self.is_failed_rollback(latest) => {
                self.retry(latest, latest.attempts)
            }
            // An uninstall after a failed upgrade was interrupted.
            Status::Uninstalling if same && self.desired.reinstall && self.is_exhausted() => {
                Step::Remove { revision }
            }
            Status::Uninstalled if same && self.desired.clean_up => self.retry_install(latest),
            Status::Failed
            | Status::Superseded
            | Status::Unknown
            | Status::Uninstalling
            | Status::Uninstalled => self.start_revision(),
        }
    }

    /// Returns the step while the inputs cannot be computed. What has begun is completed, and what has failed is rolled
    /// back, as if its inputs were desired still.
    fn without_inputs(&self) -> Option<Step<N>> {
        let latest = self.observed.history.last()?;
        if latest.status == Status::Deployed {
            let good = self
                .overruled(latest)
                .filter(|_| !self.desired.awaits_inputs);
            return match good {
                Some(good) => Some(Step::Rollback { to: good.revision }),
                None => self.handle_drift(latest),
            };
        }
        if self.desired.awaits_inputs {
            return None;
        }
        let former = DesiredFacts {
            digest: Some(latest.digest.clone().unwrap_or_default()),
            ..self.desired.clone()
        };
        let former = Plan {
            desired: &former,
            ..*self
        };
        match former.for_release() {
            step @ (Step::Resume { .. }
            | Step::Report { .. }
            | Step::Rollback { .. }
            | Step::Wait {
                until: Until::OthersOperation,
                ..
            }) => Some(step),
            step if latest.status == Status::Failed => {
                let good = self
                    .observed
                    .restorable()
                    .filter(|_| self.desired.rollback)?;
                let is_rollback = good.digest == latest.digest && latest.attempts > 0;
                let until = Until::NextAttempt {
                    revision: latest.revision,
                };
                Some(match step {
                    Step::Retry { .. } if is_rollback => step,
                    Step::Wait { until: it, .. } if is_rollback && it == until => step,
                    _ if self.observed.unreported => Step::Report {
                        revision: latest.revision,
                    },
                    _ => Step::Rollback { to: good.revision },
                })
            }
            _ if latest.status.is_pending() => {
                let good = self.overruled(latest)?;
                Some(Step::Rollback { to: good.revision })
            }
            _ => None,
        }
    }

    /// Starts a new revision, or returns the step that must precede it.
    fn start_revision(&self) -> Step<N> {
        let latest = self.observed.history.last();
        let deployed = latest.filter(|latest| latest.status == Status::Deployed);
        let next = match (self.desired.content.clone(), deployed) {
            (Some(Content::Empty), deployed) => {
                return deployed
                    .and_then(|deployed| self.handle_drift(deployed))
                    .unwrap_or(Step::Refuse(Refusal::Empty));
            }
            (Some(Content::Unchanged(next)), Some(deployed)) if !self.observed.forced => {
                let revision = deployed.revision;
                return Step::Keep { revision, next };
            }
            (Some(Content::Due(next) | Content::Unchanged(next)), _) => Some(next),
            (None, _) => None,
        };
        if self.observed.awaits_dependency {
            return Step::Wait {
                delay: Duration::from_secs(30),
                until: Until::Dependency,
            };
        }
        let leftovers = self.observed.leftovers();
        if leftovers.len() > MAX_FAILED_REVISIONS
            && let Some(oldest) = leftovers.first()
        {
            return Step::Discard {
                revision: oldest.revision,
            };
        }
        let upgrade = self.observed.is_upgrade();
        if self.observed.awaits_crds {
            return Step::Crds { upgrade };
        }
        match next {
            None => Step::Render { upgrade },
            Some(next) if upgrade => Step::Upgrade(next),
            Some(next) => Step::Install(next),
        }
    }

    /// Returns the step for drifted objects of a deployed revision.
    fn handle_drift(&self, deployed: &RecordFacts) -> Option<Step<N>> {
        let revision = deployed.revision;
        let restores = match self.observed.drift {
            Drift::None | Drift::Exhausted => false,
            Drift::Unknown => true,
            Drift::Some => self.desired.repair,
        };
        if restores && !deployed.proven {
            // Nothing is applied from it unless the desired inputs render the same.
            let same = self.desired.digest.is_some() && deployed.digest == self.desired.digest;
            return same.then_some(Step::Adopt { revision });
        }
        match self.observed.drift {
            Drift::None => None,
            Drift::Unknown if self.desired.repair => Some(Step::Repair { revision }),
            Drift::Unknown => Some(Step::Inspect { revision }),
            // Drift is only reported.
            Drift::Some | Drift::Exhausted if !self.desired.repair => None,
            Drift::Some => Some(Step::Repair { revision }),
            Drift::Exhausted => Some(Step::Refuse(Refusal::Contended { revision })),
        }
    }

    /// Returns the step after a failure of the desired inputs.
    fn after_failure(&self, latest: &RecordFacts) -> Step<N> {
        let revision = latest.revision;
        if !self.observed.has_deployed() {
            return if self.desired.clean_up {
                Step::CleanUp { revision }
            } else {
                self.retry_install(latest)
            };
        }
        if !self.is_exhausted() {
            self.retry(latest, self.attempts())
        } else if self.desired.rollback
            && self.observed.restores(latest)
            && !self.observed.leftovers().is_empty()
        {
            // The failed record is itself a rollback: it has the inputs of the revision to restore and
            // follows another failure. Retry it instead of adding an equal one.
            self.retry(latest, latest.attempts)
        } else if self.desired.rollback {
            match self.observed.restorable() {
                Some(_) if self.observed.unreported => Step::Report { revision },
                Some(good) => Step::Rollback { to: good.revision },
                None => stalled(latest, StallReason::NothingToRestore),
            }
        } else if self.desired.reinstall {
            Step::Remove { revision }
        } else {
            stalled(latest, StallReason::ExceedsRetries)
        }
    }

    /// Retries a failed install, which has no revision to roll back to.
    fn retry_install(&self, latest: &RecordFacts) -> Step<N> {
        let attempts = self.attempts();
        match self.desired.install_retries {
            Some(retries) if attempts > retries => stalled(latest, StallReason::ExceedsRetries),
            None if self.desired.clean_up && attempts >= MAX_CLEAN_INSTALLS => {
                stalled(latest, StallReason::DeletesObjects)
            }
            None if latest.hook_failed && attempts >= MAX_HOOK_ATTEMPTS => {
                stalled(latest, StallReason::RunsHook)
            }
            _ => self.retry(latest, attempts),
        }
    }

    /// Retries a failed revision after its backoff, or at once if what blocked it has changed. A record
    /// without a proof is not retried: a new revision replaces it.
    fn retry(&self, latest: &RecordFacts, attempts: u32) -> Step<N> {
        if !latest.proven {
            return self.start_revision();
        }
        let revision = latest.revision;
        let left = retry_delay(attempts).saturating_sub(latest.written);
        if left.is_zero() || self.observed.obstacle_changed {
            Step::Retry { revision }
        } else {
            Step::Wait {
                delay: left,
                until: Until::NextAttempt { revision },
            }
        }
    }

    /// Returns the refusal to upgrade to the desired inputs if they failed and were rolled back.
    fn stalled_upgrade(&self) -> Option<Step<N>> {
        if self.observed.forced || !self.is_exhausted() {
            return None;
        }
        let mut history = self.observed.history.iter().rev();
        let failed = history.find(|record| self.has_failed(record))?;
        Some(stalled(failed, StallReason::ReplacesRollback))
    }

    /// Returns whether the desired inputs failed too often for another upgrade attempt.
    fn is_exhausted(&self) -> bool {
        let attempts = self.attempts();
        match self.desired.upgrade_retries {
            Some(retries) => attempts > retries,
            None if self.desired.rollback || self.desired.reinstall => attempts > 0,
            None => {
                let mut history = self.observed.history.iter();
                let hook_failed =
                    history.any(|record| self.has_failed(record) && record.hook_failed);
                hook_failed && attempts >= MAX_HOOK_ATTEMPTS
            }
        }
    }

    /// Returns whether the newest record is a failed rollback: it has the digest of the revision to
    /// restore while the exhausted inputs are still desired.
    fn is_failed_rollback(&self, latest: &RecordFacts) -> bool {
        self.desired.rollback && self.observed.restores(latest) && self.is_exhausted()
    }

    /// Returns the revision that replaces one of another writer while the desired inputs fail, or are unknown.
    fn overruled(&self, latest: &RecordFacts) -> Option<&RecordFacts> {
        (self.desired.rollback && !latest.proven)
            .then(|| self.observed.restorable())
            .flatten()
    }

    fn has_failed(&self, record: &RecordFacts) -> bool {
        let ended = matches!(
            record.status,
            Status::Failed | Status::Uninstalling | Status::Uninstalled
        );
        ended && self.desired.digest.is_some() && record.digest == self.desired.digest
    }

    /// Returns the number of failed attempts of the desired inputs.
    fn attempts(&self) -> u32 {
        let Self { observed, .. } = self;
        let history = observed.history.iter();
        history
            .filter(|record| self.has_failed(record) && record.revision > observed.forgiven)
            .map(|record| record.attempts)
            .fold(0, u32::saturating_add)
    }
}

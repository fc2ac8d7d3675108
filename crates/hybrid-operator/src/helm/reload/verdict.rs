//! Verdict of a reconcile on the roll-out of a changed chart or changed options. Pure.
//!
//! That a reconcile ends well, and that a revision is deployed, says nothing: it may be the one
//! before, while the new one waits for its definitions or for another custom resource.

use helm_core::release::Status;

use super::progress::Verdict;
use helm_release::engine::{Refusal, Step};

/// The end of a reconcile.
#[derive(Debug, Clone, Copy)]
pub(in crate::helm) struct Ended<'a, N = ()> {
    /// The step that was carried out.
    pub(in crate::helm) step: &'a Step<N>,
    /// Status of the newest revision after the step, and whether it has the desired inputs.
    pub(in crate::helm) latest: Option<(Status, bool)>,
    /// Reason why the inputs are not known.
    pub(in crate::helm) inputs: Option<Trouble>,
    /// Reason why the step was not carried out.
    pub(in crate::helm) error: Option<Trouble>,
}

/// The nature of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::helm) enum Trouble {
    /// Another attempt may succeed without any change.
    Passing,
    /// Something has to change.
    Lasting,
}

impl Trouble {
    /// Returns the nature of an error that may be transient.
    pub(in crate::helm) fn of(is_transient: bool) -> Self {
        if is_transient {
            Self::Passing
        } else {
            Self::Lasting
        }
    }
}

/// Returns the verdict on a reconcile.
pub(in crate::helm) fn verdict<N>(ended: &Ended<'_, N>) -> Verdict {
    match ended.step {
        Step::Uninstall
        | Step::Orphan
        | Step::Forget
        | Step::Leave
        | Step::Refuse(
            Refusal::Protected
            | Refusal::Paused
            | Refusal::Impossible
            | Refusal::Foreign
            | Refusal::OtherChart
            | Refusal::Stalled { .. },
        ) => return Verdict::Skipped,
        Step::Refuse(Refusal::Empty) => return Verdict::Failed,
        _ => {}
    }
    let is_failed = matches!(ended.latest, Some((Status::Failed, _)));
    let waits = matches!(ended.step, Step::Crds { .. });
    let trouble = [ended.error, ended.inputs.filter(|_| !waits)];
    if is_failed || trouble.contains(&Some(Trouble::Lasting)) {
        Verdict::Failed
    } else if trouble.contains(&Some(Trouble::Passing)) {
        Verdict::Unknown
    } else if ended.latest == Some((Status::Deployed, true)) {
        Verdict::Succeeded
    } else {
        Verdict::Unknown
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use helm_core::release::{Revision, Status};

    use super::super::progress::Verdict;
    use super::{Ended, Trouble, verdict};
    use helm_release::engine::{Refusal, StallReason, Step, Until};

    #[test]
    fn only_what_is_deployed_with_the_desired_inputs_has_succeeded() {
        let (revision, delay) = (Revision(2), Duration::ZERO);
        let (before, after) = (
            Some((Status::Deployed, false)),
            Some((Status::Deployed, true)),
        );
        let failed = Some((Status::Failed, true));
        let dependency = Step::Wait {
            delay,
            until: Until::Dependency,
        };
        let definitions = Step::Crds { upgrade: true };
        let stalled = Step::Refuse(Refusal::Stalled {
            revision,
            reason: StallReason::ReplacesRollback,
        });
        for (step, latest, expected) in [
            (Step::Upgrade(()), after, Verdict::Succeeded),
            (Step::Settle, after, Verdict::Succeeded),
            (Step::Repair { revision }, after, Verdict::Succeeded),
            (Step::Keep { revision, next: () }, before, Verdict::Unknown),
            (dependency.clone(), before, Verdict::Unknown),
            (dependency, None, Verdict::Unknown),
            (definitions, before, Verdict::Unknown),
            (
                Step::Upgrade(()),
                Some((Status::PendingUpgrade, true)),
                Verdict::Unknown,
            ),
            (Step::Upgrade(()), failed, Verdict::Failed),
            (Step::Refuse(Refusal::Empty), before, Verdict::Failed),
            (stalled, before, Verdict::Skipped),
            (Step::Refuse(Refusal::Paused), before, Verdict::Skipped),
            (Step::Uninstall, after, Verdict::Skipped),
            (Step::Uninstall, failed, Verdict::Skipped),
        ] {
            let ended = Ended {
                step: &step,
                latest,
                inputs: None,
                error: None,
            };
            assert_eq!(verdict(&ended), expected, "{ended:?}");
        }
    }

    #[test]
    fn errors_that_pass_leave_the_result_open() {
        use Trouble::{Lasting, Passing};
        let crds = Step::Crds { upgrade: true };
        let refused = Step::Refuse(Refusal::NoInputs);
        let latest = Some((Status::Deployed, false));
        for (step, inputs, error, expected) in [
            (&refused, Some(Lasting), None, Verdict::Failed),
            (&refused, Some(Passing), None, Verdict::Unknown),
            (&crds, Some(Lasting), None, Verdict::Unknown),
            (&crds, None, Some(Lasting), Verdict::Failed),
            (&Step::Upgrade(()), None, Some(Passing), Verdict::Unknown),
            (&Step::Upgrade(()), None, Some(Lasting), Verdict::Failed),
        ] {
            let ended = Ended {
                step,
                latest,
                inputs,
                error,
            };
            assert_eq!(verdict(&ended), expected, "{ended:?}");
        }
    }
}

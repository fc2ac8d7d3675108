//! Conditions from the result of a step. No I/O.

use helm_release::engine::{Deployed, Failure, ObjectsState, ReleaseStatus, StepOutcome};

use super::status::{DeployedManifest, Status};
use crate::reasons::Reason;

/// Applies the outcome of a step to the conditions. No I/O.
pub(super) fn apply(outcome: &StepOutcome, objects: &ObjectsState, status: &mut Status) {
    match outcome {
        StepOutcome::Deployed(deployed) => {
            deploy(deployed, objects, status);
            reconciled(objects, status);
        }
        StepOutcome::Unchanged => reconciled(objects, status),
        StepOutcome::RolledBack(deployed) => {
            status.restored(Reason::of_success(deployed.kind), deployed.message());
            drifted(objects, status);
            set_release(&deployed.release, objects, status);
            status.manifest = DeployedManifest::Of(deployed.manifest.clone());
        }
        StepOutcome::Progressing { why, release } => {
            if let Some(release) = release {
                status.release = Some(ReleaseStatus::clone(release));
            }
            status.progressing(why, objects.cause.as_ref());
        }
        StepOutcome::Failed(failure) => fail(failure, status),
        StepOutcome::Stalled { message, failure } => {
            if let Some(failure) = failure {
                let known = status.release.take();
                fail(failure, status);
                // The revision that failed may be older than the one that runs.
                let failed = failure.release.revision;
                status.release = known
                    .filter(|known| known.revision > failed)
                    .or(status.release.take());
            }
            status.stalled(message);
        }
        StepOutcome::Contended { message } => {
            status.drifted(message);
            ready(objects, status);
        }
        StepOutcome::Irreconcilable {
            reason,
            message,
            kind,
        } => {
            let reason = Reason::from(*reason);
            match kind {
                Some(kind) => status.failed(Reason::of_failure(*kind), message.clone()),
                None => status.unknown(reason),
            }
            status.no_longer_stalled();
            status.irreconcilable(reason, message.clone());
        }
        StepOutcome::Paused => {
            status.no_longer_retrying();
            status.paused();
        }
        StepOutcome::Contested { message } => status.contested(message),
        StepOutcome::Tested { revision, failure } => {
            status.tested(failure.as_ref());
            if let Some(release) = &mut status.release {
                release.tested = Some(revision.0);
            }
            reconciled(objects, status);
        }
        StepOutcome::Silent => {}
    }
}

fn deploy(deployed: &Deployed, objects: &ObjectsState, status: &mut Status) {
    status.deployed(Reason::of_success(deployed.kind), deployed.message());
    set_release(&deployed.release, objects, status);
    status.manifest = DeployedManifest::Of(deployed.manifest.clone());
}

/// Sets the release. Drops the test result of another revision.
fn set_release(release: &ReleaseStatus, objects: &ObjectsState, status: &mut Status) {
    let known = status.release.take().unwrap_or_default();
    let is_same = known.revision == release.revision && known.digest == release.digest;
    let tested = known.tested.filter(|_| is_same);
    if tested.is_none() {
        status.clear_test_result();
    }
    status.release = Some(ReleaseStatus {
        tested,
        baseline: objects.baseline.clone(),
        ..release.clone()
    });
}

/// Sets the conditions of a reconciled custom resource, which may have unrepaired drift.
fn reconciled(objects: &ObjectsState, status: &mut Status) {
    status.reconciled();
    drifted(objects, status);
    ready(objects, status);
}

fn drifted(objects: &ObjectsState, status: &mut Status) {
    if objects.drifted.is_empty() {
        status.clear_drifted();
    } else {
        status.drifted(&objects.drifted.join(", "));
    }
}

fn ready(objects: &ObjectsState, status: &mut Status) {
    status.ready(
        &objects.unready,
        objects.cause.as_ref(),
        objects.awaited.as_deref(),
    );
    if let Some(release) = &mut status.release {
        release.baseline.clone_from(&objects.baseline);
    }
}

fn fail(failure: &Failure, status: &mut Status) {
    status.release = Some(failure.release.clone());
    status.failed(Reason::of_failure(failure.kind), failure.message.clone());
    let message = match failure.next {
        Some(at) => {
            // Not behind the last line of a log.
            let separator = if failure.message.is_long() {
                "\n"
            } else {
                "; "
            };
            let more = format!("{separator}the next attempt is at {at}");
            failure.message.followed_by(&more)
        }
        None => failure.message.clone(),
    };
    status.irreconcilable(Reason::ReconcileError, message);
}

#[cfg(test)]
mod states;
#[cfg(test)]
mod tests;

//! Trace of a release: its names, the step, and how the step ended.

use host::phases::{self, End, Reason as _};

use super::act::error::ActError;
use super::desired::Prepared;
use super::plan::{Step, Until};
use super::report::{Next, Report, StepOutcome};
use super::setup::Setup;
use super::target::Target;
use crate::release::RecordMeta;

/// Adds the names of the release to the present attempt.
pub(super) fn release(setup: &Setup, target: &Target) {
    let gvk = &target.primary.gvk;
    phases::about(&[
        ("k8s.object.group", &gvk.group),
        ("k8s.object.version", &gvk.version),
        ("k8s.object.kind", &gvk.kind),
        ("helm.release.name", target.name.as_str()),
        ("helm.release.namespace", &target.namespace),
        ("helm.chart.name", setup.chart.chart().name()),
    ]);
}

/// Adds the step, and how it ended.
pub(super) fn ended(
    step: &Step<Prepared>,
    latest: Option<&RecordMeta>,
    result: &Result<Report, ActError>,
) {
    let end = match result {
        Ok(report) => end_of(step, report),
        Err(error) => End::Failed(error.reason()),
    };
    let revision = latest.map(|record| record.revision.0);
    phases::ended(step.name(), revision, end);
}

fn end_of(step: &Step<Prepared>, report: &Report) -> End {
    let until = match step {
        Step::Wait { until, .. } => Some(until),
        _ => None,
    };
    if matches!(until, Some(Until::NextAttempt { .. })) {
        return End::Idle;
    }
    match &report.outcome {
        StepOutcome::Progressing { .. } => End::Waiting,
        // Its tests run.
        StepOutcome::Unchanged
            if matches!((step, report.next), (Step::Test { .. }, Next::After(_))) =>
        {
            End::Waiting
        }
        StepOutcome::Failed(failure) => End::Failed(failure.kind.failure()),
        StepOutcome::Irreconcilable { reason, .. } => End::Failed(reason.as_str()),
        StepOutcome::Stalled { .. } => End::Failed("Stalled"),
        StepOutcome::Contended { .. } => End::Failed("Contended"),
        StepOutcome::Contested { .. } => End::Failed("Contested"),
        StepOutcome::Tested {
            failure: Some(_), ..
        } => End::Failed("TestFailed"),
        _ if report.hook_error.is_some() => End::Failed("ExtensionFailed"),
        StepOutcome::Deployed(_)
        | StepOutcome::Unchanged
        | StepOutcome::RolledBack(_)
        | StepOutcome::Paused
        | StepOutcome::Tested { .. }
        | StepOutcome::Silent => End::Done,
    }
}

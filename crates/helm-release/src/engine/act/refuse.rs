//! Reports why nothing can be done.

use std::time::Duration;

use helm_core::manifest::ObjectKey;
use helm_core::release::Revision;
use kube_objects::{FIELD_MANAGER, read};
use serde_json::Value;

use super::super::desired_error::DesiredError;
use super::super::error_kind::ErrorKind;
use super::super::kind::ActionKind;
use super::super::memory::KnownRelease;
use super::super::message::Message;
use super::super::owner::Remedy;
use super::super::plan::{Refusal, StallReason};
use super::super::report::{Failure, Next, Report, StepOutcome};
use super::context::ActContext;
use super::error::ActError;
use super::report::failure_of;
use super::settle;
use super::uninstall::held_back;

/// Delay before objects that were repaired too often are checked again.
const CONTENDED_DELAY: Duration = Duration::from_mins(1);

pub(super) async fn run(
    context: &ActContext<'_>,
    memory: &KnownRelease,
    refusal: Refusal,
) -> Result<Report, ActError> {
    let former = match refusal {
        Refusal::Protected
        | Refusal::Paused
        | Refusal::Impossible
        | Refusal::Foreign
        | Refusal::OtherChart => None,
        Refusal::NoInputs
        | Refusal::Empty
        | Refusal::Stalled { .. }
        | Refusal::Contended { .. } => settle::unreported(context).await?,
    };
    let report = refuse(context, memory, refusal).await?;
    Ok(Report { former, ..report })
}

async fn refuse(
    context: &ActContext<'_>,
    memory: &KnownRelease,
    refusal: Refusal,
) -> Result<Report, ActError> {
    let subject = context.subject;
    let outcome = match refusal {
        Refusal::Protected => {
            let message = format!(
                "the deletion waits: the release is protected; to uninstall it, {}",
                subject.owner.remedy(Remedy::Unprotect)
            );
            return Ok(held_back(message));
        }
        Refusal::Paused => StepOutcome::Paused,
        Refusal::Impossible => {
            let error = subject.error.as_ref();
            let values = memory.values(subject.owner.quoted());
            irreconcilable(error.cloned().unwrap_or_default().about(&values))
        }
        Refusal::Foreign => irreconcilable(format!(
            "release {}/{} exists and does not belong to this custom resource; to adopt it, {}",
            context.target.namespace, context.target.name, subject.owner.remedy(Remedy::Adopt),
        ).into()),
        Refusal::OtherChart => irreconcilable(format!(
            "release {}/{} was not installed from chart {} and is left unchanged; rename this custom resource or uninstall that release",
            context.target.namespace,
            context.target.name,
            context.setup.chart.chart().name(),
        ).into()),
        Refusal::NoInputs => return Ok(no_inputs(context, memory)),
        Refusal::Empty => StepOutcome::Irreconcilable {
            reason: ErrorKind::Chart,
            message: "the chart renders no objects, but the release has some; if this is intended, set allowEmpty in watches.yaml".into(),
            kind: Some(ActionKind::Upgrade),
        },
        Refusal::Stalled { revision, reason } => StepOutcome::Stalled {
            message: format!(
                "{}; to try again, change the values or {}",
                stalled(reason),
                subject.owner.remedy(Remedy::Retry)
            ),
            failure: failure_if_unreported(context, revision).await?,
        },
        Refusal::Contended { .. } => {
            let drifted = memory.live.drifted();
            let names: Vec<String> = drifted.iter().map(ToString::to_string).collect();
            let who = who_changed(context, &drifted).await;
            let message = format!("{who} keeps changing {}", names.join(", "));
            return Ok(Report::new(
                StepOutcome::Contended { message },
                Next::After(CONTENDED_DELAY),
            ));
        }
    };
    Ok(Report::settle(outcome))
}

fn irreconcilable(message: Message) -> StepOutcome {
    StepOutcome::Irreconcilable {
        reason: ErrorKind::Records,
        message,
        kind: None,
    }
}

/// Returns why the release is not retried automatically.
fn stalled(reason: StallReason) -> &'static str {
    match reason {
        StallReason::ReplacesRollback => {
            "the upgrade failed and was rolled back; another attempt would replace the running revision with the failed one"
        }
        StallReason::RunsHook => {
            "a hook failed several times; another attempt would run it again on the results of the earlier ones"
        }
        StallReason::DeletesObjects => {
            "the install failed several times; another attempt would delete and create everything again"
        }
        StallReason::NothingToRestore => {
            "the upgrade failed, and no revision that was deployed before has a proof that this operator wrote it, so that none can be restored"
        }
        StallReason::ExceedsRetries => {
            "the retries set by remediation.retries in watches.yaml are exhausted"
        }
    }
}

/// Reports that the inputs cannot be computed. The release is left unchanged.
fn no_inputs(context: &ActContext<'_>, memory: &KnownRelease) -> Report {
    let error = context.desired.and_then(|desired| desired.as_ref().err());
    let installed = context
        .observation
        .facts
        .history
        .iter()
        .any(|record| record.status == helm_core::release::Status::Deployed);
    let is_of_action =
        |error: &DesiredError| error.is_render() || error.kind() == ErrorKind::Patches;
    let kind = match (error.is_some_and(is_of_action), installed) {
        (false, _) => None,
        (true, true) => Some(ActionKind::Upgrade),
        (true, false) => Some(ActionKind::Install),
    };
    let values = memory.values(context.subject.owner.quoted());
    let message = error
        .map(|error| error.message(&values))
        .unwrap_or_default();
    Report {
        error: Some(message.clone()),
        retried: error.is_some_and(DesiredError::is_transient),
        ..Report::settle(StepOutcome::Irreconcilable {
            reason: error.map_or(ErrorKind::Chart, DesiredError::kind),
            message,
            kind,
        })
    }
}

/// Returns why a revision failed if the status does not report it yet: the process may have stopped
/// between writing the record and the status, or the values that failed once are wanted again after others.
async fn failure_if_unreported(
    context: &ActContext<'_>,
    revision: Revision,
) -> Result<Option<Box<Failure>>, ActError> {
    let latest = context.observation.history.last();
    let latest = latest.filter(|latest| latest.revision == revision);
    let reported = &context.subject.reported;
    let is_reported = match latest {
        Some(latest) => reported.is_failure_of(latest),
        None => reported.is_failed_now,
    };
    if is_reported {
        return Ok(None);
    }
    let mut failure = failure_of(context, revision).await?;
    if latest.is_none() {
        failure.kind = ActionKind::Upgrade;
    }
    Ok(Some(Box::new(failure)))
}

/// Returns the field manager, other than this operator, that last wrote to the first of these
/// objects.
async fn who_changed(context: &ActContext<'_>, drifted: &[ObjectKey]) -> String {
    let mut live = None;
    if let Some(key) = drifted.first() {
        live = read::get(&context.target.cluster, key).await.ok().flatten();
    }
    let entries = live
        .as_ref()
        .and_then(|live| live.pointer("/metadata/managedFields")?.as_array());
    let text = |entry: &Value, name: &str| entry.get(name)?.as_str().map(ToOwned::to_owned);
    entries
        .into_iter()
        .flatten()
        .filter_map(|entry| Some((text(entry, "time")?, text(entry, "manager")?)))
        .filter(|(_, manager)| manager != FIELD_MANAGER)
        .max()
        .map_or_else(|| "another client".to_owned(), |(_, manager)| manager)
}

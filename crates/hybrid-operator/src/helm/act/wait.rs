//! Nothing is done now: what is waited for, or why nothing can be done, is reported.

use std::time::Duration;

use helm_core::manifest::ObjectKey;
use helm_core::release::Revision;
use serde_json::Value;

use super::super::annotations::PREFIX;
use super::super::desired::DesiredError;
use super::super::kind::Kind;
use super::super::memory::Memory;
use super::super::plan::{Harm, Refusal, Until};
use super::super::report::{Failure, Next, Outcome, Report, describe};
use super::super::status::chain;
use super::{ActContext, ActError, deployment};
use crate::cluster::{FIELD_MANAGER, read};

/// When objects that were repaired too often are looked at again.
const CONTENDED: Duration = Duration::from_mins(1);

pub(super) async fn run(
    context: &ActContext<'_>,
    delay: Duration,
    until: Until,
) -> Result<Report, ActError> {
    Ok(match until {
        Until::OthersOperation => Report::wait("somebody else's helm operation to end", delay),
        Until::Dependency => {
            let desired = context.desired();
            let name = desired.and_then(|desired| desired.dependency.clone());
            Report::wait(name.unwrap_or_default(), delay)
        }
        Until::NextAttempt { revision } => {
            let failure = Failure {
                next: Some(deployment::next_attempt(context, delay)),
                ..failure_of(context, revision).await?
            };
            Report::new(Outcome::Failed(Box::new(failure)), Next::After(delay))
        }
    })
}

pub(super) async fn refuse(
    context: &ActContext<'_>,
    memory: &Memory,
    refusal: Refusal,
) -> Result<Report, ActError> {
    let subject = context.subject;
    let outcome = match refusal {
        Refusal::Paused => Outcome::Paused,
        Refusal::Impossible => {
            let error = subject.error.as_ref();
            irreconcilable(error.map(|error| chain(error)).unwrap_or_default())
        }
        Refusal::Foreign => irreconcilable(format!(
            "a release {}/{} exists and is not this custom resource's; to take it over, annotate the custom resource with {PREFIX}adopt-release=true",
            subject.namespace, subject.name,
        )),
        Refusal::OtherChart => irreconcilable(format!(
            "the release {}/{} was made from another chart than {}; it is left alone: use another name for this custom resource, or uninstall that release",
            subject.namespace,
            subject.name,
            context.setup.chart.chart().name(),
        )),
        Refusal::NoInputs => return Ok(no_inputs(context)),
        Refusal::Empty => Outcome::Irreconcilable {
            reason: "ReconcileError",
            message: "the chart renders no object, and the release has some; if that is meant, set allowEmpty in watches.yaml".to_owned(),
            kind: Some(Kind::Upgrade),
        },
        Refusal::Stalled { revision, harm } => {
            context.supersede().await?;
            Outcome::Stalled {
                message: stalled(harm),
                failure: failure_if_untold(context, revision).await?,
            }
        }
        Refusal::Contended { .. } => {
            let drifted = memory.live.drifted();
            let names: Vec<String> = drifted.iter().map(ToString::to_string).collect();
            let who = who_changed(context, &drifted).await;
            let message = format!("{who} keeps changing {}", names.join(", "));
            return Ok(Report::new(
                Outcome::Contended { message },
                Next::After(CONTENDED),
            ));
        }
    };
    Ok(Report::settle(outcome))
}

fn irreconcilable(message: String) -> Outcome {
    Outcome::Irreconcilable {
        reason: "ErrorGettingReleaseState",
        message,
        kind: None,
    }
}

/// Why another attempt is not made by itself, and what helps.
fn stalled(harm: Harm) -> String {
    let why = match harm {
        Harm::ReplacesRollback => {
            "the upgrade failed and was rolled back; another attempt would replace what runs by what failed"
        }
        Harm::RunsHook => {
            "a hook failed several times; another attempt would run it again on what the earlier ones left"
        }
        Harm::DeletesObjects => {
            "the install failed several times; another attempt would delete and create everything again"
        }
        Harm::ExceedsRetries => {
            "it was tried as often as remediation.retries in watches.yaml allows"
        }
    };
    format!(
        "{why}: change the values, or annotate the custom resource with {PREFIX}reset-at=NOW to try again"
    )
}

/// The inputs cannot be computed: the release stays as it is.
fn no_inputs(context: &ActContext<'_>) -> Report {
    let Some(Err(error)) = context.desired else {
        return Report::go_on();
    };
    let installed = context
        .observation
        .facts
        .history
        .iter()
        .any(|record| record.status == helm_core::release::Status::Deployed);
    let kind = match (error.is_render(), installed) {
        (false, _) => None,
        (true, true) => Some(Kind::Upgrade),
        (true, false) => Some(Kind::Install),
    };
    let message = chain(error as &DesiredError);
    Report {
        error: Some(message.clone()),
        ..Report::settle(Outcome::Irreconcilable {
            reason: error.reason(),
            message,
            kind,
        })
    }
}

/// Why a revision failed, where the status does not say so yet: the process may have ended between
/// the record and the status.
async fn failure_if_untold(
    context: &ActContext<'_>,
    revision: Revision,
) -> Result<Option<Box<Failure>>, ActError> {
    let latest = context.observation.history.last();
    let untold = latest.is_some_and(|latest| latest.revision == revision)
        && !context.subject.status().tells_failure_of(revision);
    Ok(if untold {
        Some(Box::new(failure_of(context, revision).await?))
    } else {
        None
    })
}

/// What the record says of its failure.
async fn failure_of(context: &ActContext<'_>, revision: Revision) -> Result<Failure, ActError> {
    let stored = context.load(revision).await?;
    let kind = context.kind_of(&stored);
    let description = &stored.release.info.description;
    let prefix = format!("{}: ", kind.failure(context.subject));
    let message = description.strip_prefix(&prefix).unwrap_or(description);
    Ok(Failure {
        kind,
        message: message.to_owned(),
        release: describe(&stored),
        next: None,
    })
}

/// The manager that wrote last to the first of these objects, besides us.
async fn who_changed(context: &ActContext<'_>, drifted: &[ObjectKey]) -> String {
    let mut live = None;
    if let Some(key) = drifted.first() {
        live = read::get(&context.subject.cluster, key)
            .await
            .ok()
            .flatten();
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
        .map_or_else(|| "somebody".to_owned(), |(_, manager)| manager)
}

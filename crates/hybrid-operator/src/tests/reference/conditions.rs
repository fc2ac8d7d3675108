//! The pages about conditions and events, and the headings of the page about troubleshooting.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{assert_generated, page, table};
use crate::reasons::{ConditionType, EventReason, Reason};

type Places = &'static [(ConditionType, &'static str)];

/// Returns the conditions that have a reason, each with its status.
fn places(reason: Reason) -> Places {
    use ConditionType as T;
    match reason {
        Reason::Initialized => &[(T::Initialized, "True")],
        Reason::InstallSuccessful | Reason::UpgradeSuccessful => {
            &[(T::Deployed, "True"), (T::ReleaseFailed, "False")]
        }
        Reason::InstallError | Reason::UpgradeError | Reason::UninstallError => &[
            (T::ReleaseFailed, "True"),
            (T::Deployed, "False"),
            (T::Ready, "False"),
        ],
        Reason::Reconciled => &[(T::Irreconcilable, "False")],
        Reason::ReconcileError => &[(T::Irreconcilable, "True"), (T::Ready, "False")],
        Reason::ErrorGettingValues
        | Reason::ErrorGettingClient
        | Reason::ErrorGettingReleaseState => &[
            (T::Irreconcilable, "True"),
            (T::ReleaseFailed, "Unknown"),
            (T::Ready, "False"),
        ],
        Reason::PauseReconcileAnnotationTrue => &[(T::Paused, "True")],
        Reason::NotPaused => &[(T::Paused, "False")],
        Reason::AllObjectsReady => &[(T::Ready, "True")],
        Reason::RetriesExhausted => &[(T::Stalled, "True")],
        Reason::TestsSucceeded => &[(T::TestSuccess, "True")],
        Reason::TestsFailed => &[(T::TestSuccess, "False")],
        Reason::OtherOperator => &[(T::Contested, "True")],
        Reason::ObjectsChanged => &[(T::Drifted, "True")],
        Reason::CannotWatch => &[(T::WatchRefused, "True")],
        Reason::ListEntriesMerged
        | Reason::ObjectLeft
        | Reason::RenderedTwice
        | Reason::DependencyMissing
        | Reason::SeveralReasons => &[(T::NotAsRendered, "True")],
        Reason::StoredInParts => &[(T::LargeRecord, "True")],
        Reason::NotInSchema => &[(T::StatusPruned, "True")],
        Reason::ObjectsNotReady
        | Reason::Progressing
        | Reason::Retrying
        | Reason::Stalled
        | Reason::ImagePullFailed
        | Reason::SecretMissing
        | Reason::ConfigMapMissing
        | Reason::ContainerNotStarted
        | Reason::CrashLoop
        | Reason::OOMKilled
        | Reason::ProbeFailed
        | Reason::ContainerNotReady
        | Reason::ContainerCreating
        | Reason::Unschedulable
        | Reason::SchedulingGated
        | Reason::VolumePending
        | Reason::SandboxFailed
        | Reason::PodFailed
        | Reason::QuotaExceeded
        | Reason::PodSecurityViolation
        | Reason::ServiceAccountMissing
        | Reason::AdmissionDenied
        | Reason::PodsNotCreated => &[(T::Ready, "False")],
    }
}

/// Fails if a condition is set with a status and a reason that the reference does not have.
pub(crate) fn assert_documented(type_: ConditionType, status: &str, reason: Reason) {
    assert!(
        places(reason).contains(&(type_, status)),
        "docs/reference/conditions.md has no {type_:?}={status} with the reason {reason:?}"
    );
}

/// Returns whether nothing is wrong if a condition has this reason.
fn is_fine(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Initialized
            | Reason::InstallSuccessful
            | Reason::UpgradeSuccessful
            | Reason::Reconciled
            | Reason::NotPaused
            | Reason::AllObjectsReady
            | Reason::TestsSucceeded
    )
}

/// Returns a reason, with a link if something can be done about it.
fn linked(reason: Reason) -> String {
    let name = reason.as_str();
    if is_fine(reason) {
        return format!("`{name}`");
    }
    format!("[`{name}`](../troubleshooting.md#{})", name.to_lowercase())
}

#[test]
fn the_page_about_conditions_has_every_type_and_reason() {
    let mut text =
        "A custom resource of a chart has these conditions. Types and reasons are stable: scripts \
                    and alerts may compare them. Messages are for people and may change. \
                    [Troubleshooting](../troubleshooting.md) says what to do.\n\n"
            .to_owned();
    let types = ConditionType::ALL.iter().map(|type_| {
        let name = type_.as_str();
        let link = format!("[`{name}`](#{})", name.to_lowercase());
        vec![link, type_.text().to_owned()]
    });
    text += &table(&["type", "true when"], types);
    for type_ in ConditionType::ALL {
        let reasons = Reason::ALL.iter().flat_map(|reason| {
            let places = places(*reason).iter().filter(|(of, _)| of == type_);
            places.map(|(_, status)| {
                let status = format!("`{status}`");
                vec![status, linked(*reason), reason.text().to_owned()]
            })
        });
        let reasons = table(&["status", "reason", "meaning"], reasons);
        let _ = write!(text, "\n## {}\n{reasons}", type_.as_str());
    }
    assert_generated("conditions.md", "Conditions and reasons", &text);
}

#[test]
fn the_page_about_events_has_every_reason() {
    let events = EventReason::ALL.iter().map(|reason| {
        let type_ = if reason.is_warning() {
            "Warning"
        } else {
            "Normal"
        };
        let name = format!("`{}`", reason.as_str());
        vec![name, type_.to_owned(), reason.text().to_owned()]
    });
    let text = format!(
        "Events are sent about the custom resource; `ReloadRefused` and `RolloutHalted` about the Pod of the \
         operator. [Running an operator](../operations.md#events) says through which API.\n\n\
         When a condition becomes true, or is true for another reason, its reason and message are sent as an \
         event, too: as Normal for `Deployed` and `Paused`, as Warning for `ReleaseFailed`, \
         `Irreconcilable`, `Stalled` and `Contested`. See [conditions and reasons](conditions.md). \
         The others:\n\n{}",
        table(&["reason", "type", "when"], events)
    );
    assert_generated("events.md", "Events", &text);
}

#[test]
fn troubleshooting_has_a_heading_for_every_reason_that_needs_something_to_be_done() {
    let text = page("troubleshooting.md");
    let headings = text.lines().filter_map(|line| line.strip_prefix("### "));
    let names = headings.flat_map(|heading| heading.split('`').skip(1).step_by(2));
    let names: Vec<&str> = names.collect();
    let found: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(names.len(), found.len(), "a reason has two headings");
    let events = EventReason::ALL.iter().filter(|event| event.is_warning());
    let reasons = Reason::ALL.iter().filter(|reason| !is_fine(**reason));
    let wanted: BTreeSet<&str> = reasons
        .map(|reason| reason.as_str())
        .chain(events.map(|event| event.as_str()))
        .collect();
    assert_eq!(found, wanted);
}

//! The page about conditions and events, and the headings of the page about troubleshooting.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use kube_objects::diagnosis;

use super::{assert_generated, page, table};
use helm_release::event::EventReason;

use crate::reasons::{ConditionType, Reason};

type Places = &'static [(ConditionType, &'static str)];

/// The condition of what is not ready.
const UNREADY: Places = &[(ConditionType::Ready, "False")];

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
        | Reason::PatchesRefused
        | Reason::ErrorGettingClient
        | Reason::ErrorGettingReleaseState => &[
            (T::Irreconcilable, "True"),
            (T::ReleaseFailed, "Unknown"),
            (T::Ready, "False"),
        ],
        Reason::PauseReconcileAnnotationTrue => &[(T::Paused, "True")],
        Reason::NotPaused => &[(T::Paused, "False")],
        Reason::AllObjectsReady => &[(T::Ready, "True")],
        Reason::Unassigned => &[(T::Ready, "Unknown")],
        Reason::RetriesExhausted => &[(T::Stalled, "True")],
        Reason::TestsSucceeded => &[(T::TestSuccess, "True")],
        Reason::TestsFailed => &[(T::TestSuccess, "False")],
        Reason::OtherOperator => &[(T::Contested, "True")],
        Reason::ObjectsChanged => &[(T::Drifted, "True")],
        Reason::CannotWatch => &[(T::WatchRefused, "True")],
        Reason::ListEntriesMerged
        | Reason::VolumeSizeKept
        | Reason::ObjectLeft
        | Reason::RenderedTwice
        | Reason::DependencyMissing
        | Reason::SeveralReasons => &[(T::NotAsRendered, "True")],
        Reason::StoredInParts => &[(T::LargeRecord, "True")],
        Reason::NotInSchema => &[(T::StatusPruned, "True")],
        Reason::OutputsEvaluated => &[(T::OutputsComplete, "True")],
        Reason::OutputsMissing | Reason::OutputsFailed => &[(T::OutputsComplete, "False")],
        Reason::Progressing | Reason::Retrying | Reason::Stalled | Reason::AwaitsCondition => {
            UNREADY
        }
    }
}

/// A reason of conditions.
struct Documented {
    name: &'static str,
    meaning: &'static str,
    places: Places,
    /// Nothing is wrong.
    is_fine: bool,
}

/// Returns all reasons of conditions.
fn documented() -> Vec<Documented> {
    let own = Reason::ALL.iter().map(|reason| Documented {
        name: reason.as_str(),
        meaning: reason.meaning(),
        places: places(*reason),
        is_fine: is_fine(*reason),
    });
    let causes = diagnosis::Reason::ALL.iter().map(|reason| Documented {
        name: reason.as_str(),
        meaning: reason.meaning(),
        places: UNREADY,
        is_fine: false,
    });
    own.chain(causes).collect()
}

/// Fails if a condition is set with a status and a reason that the reference does not have.
pub(crate) fn assert_documented(type_: ConditionType, status: &str, reason: &str) {
    let mut documented = documented().into_iter();
    let is_documented =
        documented.any(|known| known.name == reason && known.places.contains(&(type_, status)));
    assert!(
        is_documented,
        "docs/reference/conditions.md has no {type_:?}={status} with the reason {reason}"
    );
}

/// Returns all reasons of a type of conditions.
pub(crate) fn reasons_of(type_: ConditionType) -> BTreeSet<String> {
    let all = documented().into_iter();
    let of_type = all.filter(|reason| reason.places.iter().any(|(of, _)| *of == type_));
    of_type.map(|reason| reason.name.to_owned()).collect()
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
            | Reason::OutputsEvaluated
    )
}

/// Returns a reason, with a link if something can be done about it.
fn linked(reason: &Documented) -> String {
    let name = reason.name;
    if reason.is_fine {
        return format!("`{name}`");
    }
    format!(
        "[`{name}`](../guides/troubleshooting.md#{})",
        name.to_lowercase()
    )
}

#[test]
fn the_page_about_conditions_has_every_type_and_reason() {
    let mut text =
        "A custom resource of a chart has these conditions. Types and reasons are stable: scripts \
                    and alerts may compare them. Messages are for people and may change. \
                    [Troubleshooting](../guides/troubleshooting.md) says what to do.\n\n"
            .to_owned();
    let types = ConditionType::ALL.iter().map(|type_| {
        let name = type_.as_str();
        let link = format!("[`{name}`](#{})", name.to_lowercase());
        vec![link, type_.meaning().to_owned()]
    });
    text += &table(&["type", "true when"], types);
    let all = documented();
    for type_ in ConditionType::ALL {
        let reasons = all.iter().flat_map(|reason| {
            let places = reason.places.iter().filter(|(of, _)| of == type_);
            places.map(|(_, status)| {
                let status = format!("`{status}`");
                vec![status, linked(reason), reason.meaning.to_owned()]
            })
        });
        let reasons = table(&["status", "reason", "meaning"], reasons);
        let _ = write!(text, "\n### {}\n{reasons}", type_.as_str());
    }
    assert_generated("conditions.md", "Conditions", &text);
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
        vec![name, type_.to_owned(), reason.meaning().to_owned()]
    });
    let text = format!(
        "Events are sent about the custom resource; `ReloadRefused` and `RolloutHalted` about the Pod of the \
         operator. [Logs and events](run.md#logs-and-events) says through which API.\n\n\
         When a condition becomes true, or is true for another reason, its reason and message are sent as an \
         event, too: as Normal for `Deployed` and `Paused`, as Warning for `ReleaseFailed`, \
         `Irreconcilable`, `Stalled` and `Contested`. See [conditions](#conditions). \
         The others:\n\n{}",
        table(&["reason", "type", "when"], events)
    );
    assert_generated("conditions.md", "Events", &text);
}

#[test]
fn troubleshooting_has_a_heading_for_every_reason_that_needs_something_to_be_done() {
    let text = page("guides/troubleshooting.md");
    let headings = text.lines().filter_map(|line| line.strip_prefix("### "));
    let names = headings.flat_map(|heading| heading.split('`').skip(1).step_by(2));
    let names: Vec<&str> = names.collect();
    let found: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(names.len(), found.len(), "a reason has two headings");
    let events = EventReason::ALL.iter().filter(|event| event.is_warning());
    let reasons = documented().into_iter().filter(|reason| !reason.is_fine);
    let wanted: BTreeSet<&str> = reasons
        .map(|reason| reason.name)
        .chain(events.map(|event| event.as_str()))
        .collect();
    assert_eq!(found, wanted);
}

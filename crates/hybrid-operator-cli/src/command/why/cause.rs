//! The cause that the conditions of a custom resource name, and what the operator does next. Pure.

use std::fmt;

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::Value;

use crate::command::tree::ConditionLine;

/// Words of the operator before the time of the next attempt.
const NEXT: &str = "the next attempt is ";

/// Why a custom resource is as it is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cause {
    /// Whether something is to be done, or to be waited for.
    pub(super) is_problem: bool,
    /// State in a few words.
    pub(super) headline: String,
    /// Reason of the condition.
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) since: Option<Timestamp>,
    #[serde(skip)]
    pub(super) next: Next,
    /// Further facts that matter.
    #[serde(skip)]
    pub(super) hints: Vec<String>,
}

/// Next step of the operator.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// Nothing has to be done.
    Nothing,
    /// Nobody reconciles the custom resource.
    NoOperator,
    /// It leaves the release alone while it is paused.
    Paused,
    /// Another operator manages the release.
    Contested,
    /// It does not try again by itself.
    Stalled,
    /// It tries again at this time, in its own words.
    Again(String),
    /// It tries again after pauses.
    AgainSoon,
    /// It waits until what it watches changes.
    Watches,
}

impl Next {
    /// Returns the command that brings it forward.
    pub(super) fn command(&self) -> Option<&'static str> {
        match self {
            Self::Paused => Some("hybrid-operator resume {target}"),
            Self::Stalled => Some("hybrid-operator retry {target} --wait"),
            Self::Again(_) | Self::AgainSoon => Some("hybrid-operator reconcile {target}"),
            Self::Nothing | Self::NoOperator | Self::Contested | Self::Watches => None,
        }
    }
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("the operator watches the objects, and repairs them if they change"),
            Self::NoOperator => f.write_str("nothing: no operator reconciles this custom resource"),
            Self::Paused => f.write_str("nothing, until it is resumed"),
            Self::Contested => f.write_str("nothing by this operator: the one that wrote the newest revision manages it"),
            Self::Stalled => f.write_str("nothing, until the spec or the chart changes, or you say 'retry'"),
            Self::Again(when) => write!(f, "the operator tries again {when}"),
            Self::AgainSoon => f.write_str(
                "the operator tries again with growing pauses, and at once when the spec or what it refers to changes",
            ),
            Self::Watches => f.write_str("the operator watches the objects; Ready follows when they change"),
        }
    }
}

/// Returns the cause. The conditions that say most come first.
pub(super) fn of(resource: &DynamicObject, conditions: &[ConditionLine]) -> Cause {
    let mut cause = first(resource, conditions);
    cause.hints = hints(resource);
    if cause.is_problem
        && !matches!(cause.next, Next::Paused | Next::Stalled | Next::Contested)
        && let Some(when) = next_attempt(conditions)
    {
        cause.next = Next::Again(when);
    }
    cause
}

fn first(resource: &DynamicObject, conditions: &[ConditionLine]) -> Cause {
    let is = |type_: &str, status: &str| {
        let mut all = conditions.iter();
        all.find(|condition| condition.type_ == type_ && condition.status == status)
    };
    if conditions.is_empty() {
        let created = resource.metadata.creation_timestamp.as_ref();
        return Cause {
            is_problem: true,
            headline: "no operator has seen it".to_owned(),
            reason: "NoConditions".to_owned(),
            message: "it has no conditions".to_owned(),
            since: created.map(|time| time.0),
            next: Next::NoOperator,
            hints: Vec::new(),
        };
    }
    if let Some(paused) = is("Paused", "True") {
        return problem(paused, "paused", Next::Paused);
    }
    if let Some(contested) = is("Contested", "True") {
        return problem(contested, "managed by another operator", Next::Contested);
    }
    let failed = is("ReleaseFailed", "True");
    if let Some(stalled) = is("Stalled", "True") {
        let headline = "failed, and not tried again";
        let mut cause = problem(failed.unwrap_or(stalled), headline, Next::Stalled);
        cause.since = stalled.last_transition_time;
        return cause;
    }
    if let Some(failed) = failed.or_else(|| is("Irreconcilable", "True")) {
        let headline = format!("failed: {}", failed.reason);
        return problem(failed, &headline, Next::AgainSoon);
    }
    let ready = conditions
        .iter()
        .find(|condition| condition.type_ == "Ready");
    match ready {
        Some(ready) if ready.status != "True" => {
            let headline = format!("not ready: {}", ready.reason);
            let next = if ready.reason == "Retrying" {
                Next::AgainSoon
            } else {
                Next::Watches
            };
            return problem(ready, &headline, next);
        }
        _ => {}
    }
    let lesser = [
        "Drifted",
        "WatchRefused",
        "NotAsRendered",
        "StatusPruned",
        "LargeRecord",
    ];
    let lesser = lesser.iter().find_map(|type_| is(type_, "True"));
    let lesser = lesser.or_else(|| is("OutputsComplete", "False"));
    if let Some(found) = lesser.or_else(|| is("TestSuccess", "False")) {
        let headline = format!("ready, but {}", found.reason);
        return problem(found, &headline, Next::Watches);
    }
    let since = ready.and_then(|ready| ready.last_transition_time);
    let headline = if ready.is_some() {
        "ready"
    } else {
        "no condition says that something is wrong"
    };
    Cause {
        is_problem: false,
        headline: headline.to_owned(),
        reason: ready.map_or_else(String::new, |ready| ready.reason.clone()),
        message: String::new(),
        since,
        next: Next::Nothing,
        hints: Vec::new(),
    }
}

fn problem(condition: &ConditionLine, headline: &str, next: Next) -> Cause {
    Cause {
        is_problem: true,
        headline: headline.to_owned(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        since: condition.last_transition_time,
        next,
        hints: Vec::new(),
    }
}

/// Returns what matters beside the conditions.
fn hints(resource: &DynamicObject) -> Vec<String> {
    let mut hints = Vec::new();
    if let Some(time) = &resource.metadata.deletion_timestamp {
        let finalizers = resource.metadata.finalizers.clone().unwrap_or_default();
        hints.push(format!(
            "It is being deleted since {}, and stays until these finalizers are gone: {}.",
            time.0.strftime("%F %T UTC"),
            finalizers.join(", ")
        ));
    }
    let observed = resource.data.pointer("/status/observedGeneration");
    let observed = observed.and_then(Value::as_i64);
    if let (Some(observed), Some(generation)) = (observed, resource.metadata.generation)
        && observed < generation
    {
        hints.push(format!(
            "The status is of generation {observed}, and the spec of generation {generation}: the operator has not \
             finished with the newest change, or does not run."
        ));
    }
    hints
}

/// Returns when the next attempt is, in the words of a message: `at TIME` or `within N s`.
fn next_attempt(conditions: &[ConditionLine]) -> Option<String> {
    conditions.iter().find_map(|condition| {
        let (_, when) = condition.message.rsplit_once(NEXT)?;
        Some(when.trim().to_owned()).filter(|when| !when.contains('\n'))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn condition(type_: &str, status: &str, reason: &str, message: &str) -> ConditionLine {
        ConditionLine {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: Some("2026-01-01T00:00:00Z".parse().unwrap()),
        }
    }

    fn cause_of(conditions: &[ConditionLine]) -> Cause {
        let resource = json!({"apiVersion": "g/v1", "kind": "Shop", "metadata": {"name": "main"}});
        of(&serde_json::from_value(resource).unwrap(), conditions)
    }

    #[test]
    fn the_condition_that_says_most_is_the_cause() {
        let failed = condition("ReleaseFailed", "True", "UpgradeError", "no");
        let stalled = condition("Stalled", "True", "RetriesExhausted", "harm");
        let irreconcilable = condition(
            "Irreconcilable",
            "True",
            "ReconcileError",
            "no; the next attempt is at T",
        );
        let ready = condition("Ready", "True", "AllObjectsReady", "");
        let unready = condition("Ready", "False", "CrashLoop", "exit 1");
        let drifted = condition("Drifted", "True", "ObjectsChanged", "x");
        let paused = condition("Paused", "True", "PauseReconcileAnnotationTrue", "");
        for (conditions, reason, next) in [
            (vec![], "NoConditions", Next::NoOperator),
            (
                vec![unready.clone(), paused],
                "PauseReconcileAnnotationTrue",
                Next::Paused,
            ),
            (
                vec![irreconcilable.clone(), failed.clone(), stalled],
                "UpgradeError",
                Next::Stalled,
            ),
            (
                vec![irreconcilable.clone(), failed],
                "UpgradeError",
                Next::Again("at T".to_owned()),
            ),
            (
                vec![irreconcilable, unready.clone()],
                "ReconcileError",
                Next::Again("at T".to_owned()),
            ),
            (vec![unready], "CrashLoop", Next::Watches),
            (
                vec![ready.clone(), drifted],
                "ObjectsChanged",
                Next::Watches,
            ),
            (vec![ready], "AllObjectsReady", Next::Nothing),
        ] {
            let cause = cause_of(&conditions);
            assert_eq!((cause.reason.as_str(), cause.next), (reason, next));
        }
    }

    #[test]
    fn deletion_and_an_older_status_are_named() {
        let resource = json!({"apiVersion": "g/v1", "kind": "Shop", "metadata": {"name": "main", "generation": 4,
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]},
            "status": {"observedGeneration": 3}});
        let cause = of(
            &serde_json::from_value(resource).unwrap(),
            &[condition("Ready", "True", "A", "")],
        );
        let [deleted, older] = cause.hints.as_slice() else {
            panic!("{:?}", cause.hints)
        };
        assert!(
            deleted.contains("2026-01-01 00:00:00 UTC") && deleted.contains("a/b"),
            "{deleted}"
        );
        assert!(
            older.contains("generation 3") && older.contains("generation 4"),
            "{older}"
        );
    }
}

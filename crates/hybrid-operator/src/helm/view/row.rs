//! A custom resource in a list. Pure.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::reasons::ConditionType;

/// Maximum length of a message in a list, in characters.
const MAX_MESSAGE: usize = 300;

/// What is read of a custom resource. Everything else is skipped without being decoded.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Resource {
    pub(super) metadata: Meta,
    pub(super) status: ShownStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Meta {
    pub(super) uid: String,
    pub(super) generation: Option<i64>,
    pub(super) creation_timestamp: Option<Timestamp>,
    pub(super) deletion_timestamp: Option<Timestamp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ShownStatus {
    pub(super) observed_generation: Option<i64>,
    pub(super) conditions: Vec<ShownCondition>,
    pub(super) release: Option<ShownRelease>,
}

/// A condition, as somebody else may also have written it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ShownCondition {
    #[serde(rename = "type")]
    pub(super) type_: String,
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) last_transition_time: String,
    pub(super) observed_generation: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ShownRelease {
    pub(super) name: String,
    pub(super) revision: u32,
    pub(super) status: String,
    pub(super) chart_version: Option<String>,
    pub(super) app_version: Option<String>,
}

/// States of a custom resource, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// Nothing goes on by itself, or the last action failed.
    Failed,
    /// Objects differ from what was applied, and are not repaired.
    Drifted,
    /// Something is waited for, or tried again.
    Progressing,
    Deleting,
    Paused,
    Ready,
    /// The operator has not reported anything yet.
    New,
}

/// A custom resource in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) state: State,
    /// Reason and message of what makes the state.
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) release: Option<ShownRelease>,
    /// Last write of a record, or else of a condition.
    pub(super) changed: Option<Timestamp>,
    pub(super) created: Option<Timestamp>,
}

impl Resource {
    /// Reads a custom resource from its JSON. One whose status has other types than ours counts as new.
    pub(super) fn read(json: &[u8]) -> Self {
        serde_json::from_slice(json).unwrap_or_default()
    }

    fn find(&self, type_: ConditionType, status: &str) -> Option<&ShownCondition> {
        let mut conditions = self.status.conditions.iter();
        conditions.find(|condition| condition.type_ == type_.as_str() && condition.status == status)
    }

    /// Returns the state, and the condition that tells of it.
    pub(super) fn state(&self) -> (State, Option<&ShownCondition>) {
        let holds = |type_| self.find(type_, "True");
        let unready = self.find(ConditionType::Ready, "False");
        if self.metadata.deletion_timestamp.is_some() {
            let failed =
                holds(ConditionType::ReleaseFailed).or(holds(ConditionType::Irreconcilable));
            return (State::Deleting, failed);
        }
        if let Some(paused) = holds(ConditionType::Paused) {
            return (State::Paused, Some(paused));
        }
        let failed = [
            ConditionType::Contested,
            ConditionType::Irreconcilable,
            ConditionType::ReleaseFailed,
            ConditionType::Stalled,
        ];
        if let Some(failed) = failed.into_iter().find_map(holds) {
            return (State::Failed, Some(failed));
        }
        if unready.is_some() {
            return (State::Progressing, unready);
        }
        let Some(ready) = holds(ConditionType::Ready) else {
            return (State::New, None);
        };
        if ready.observed_generation != self.metadata.generation
            && ready.observed_generation.is_some()
        {
            return (State::Progressing, None);
        }
        match holds(ConditionType::Drifted) {
            Some(drifted) => (State::Drifted, Some(drifted)),
            None => (State::Ready, None),
        }
    }

    /// Returns the row of the custom resource; `written` is the last write of a record of its release.
    pub(super) fn row(
        self,
        namespace: Option<&str>,
        name: &str,
        written: Option<Timestamp>,
    ) -> Row {
        let (state, told) = self.state();
        let told = told.cloned().unwrap_or_default();
        let transitions = self.status.conditions.iter();
        let transitions = transitions.filter_map(|one| one.last_transition_time.parse().ok());
        Row {
            namespace: namespace.map(ToOwned::to_owned),
            name: name.to_owned(),
            state,
            reason: told.reason,
            message: told.message.chars().take(MAX_MESSAGE).collect(),
            changed: written.or(transitions.max()),
            created: self.metadata.creation_timestamp,
            release: self.status.release,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Resource, State};

    #[test]
    fn a_state_follows_from_the_conditions() {
        use State::*;
        let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": type_, "observedGeneration": 2});
        let (ready, unready) = (condition("Ready", "True"), condition("Ready", "False"));
        let of_before = json!({"type": "Ready", "status": "True", "observedGeneration": 1});
        let holds = |type_: &str| condition(type_, "True");
        for (conditions, deleted, expected, reason) in [
            (json!([]), false, New, ""),
            (json!([ready]), false, Ready, ""),
            (json!([unready]), false, Progressing, "Ready"),
            (json!([of_before]), false, Progressing, ""),
            (json!([ready, holds("Drifted")]), false, Drifted, "Drifted"),
            (json!([ready, holds("Paused")]), false, Paused, "Paused"),
            (
                json!([unready, holds("ReleaseFailed")]),
                false,
                Failed,
                "ReleaseFailed",
            ),
            (
                json!([unready, holds("Stalled"), holds("Irreconcilable")]),
                false,
                Failed,
                "Irreconcilable",
            ),
            (json!([unready]), true, Deleting, ""),
            (json!("no list"), false, New, ""),
        ] {
            let deleted = deleted.then_some("2026-01-01T00:00:00Z");
            let object = json!({
                "metadata": {"generation": 2, "deletionTimestamp": deleted},
                "status": {"conditions": conditions},
            });
            let resource = Resource::read(object.to_string().as_bytes());
            let (state, told) = resource.state();
            let told = told.map(|told| told.reason.as_str()).unwrap_or_default();
            assert_eq!((state, told), (expected, reason), "{object}");
        }
    }

    #[test]
    fn a_row_has_the_release_and_the_last_change() {
        let object = json!({
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"large": ["skipped"]},
            "status": {
                "conditions": [
                    {"type": "Ready", "status": "False", "reason": "Crashed", "message": "x".repeat(1000),
                        "lastTransitionTime": "2026-01-01T00:00:02Z"},
                    {"type": "Deployed", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"},
                ],
                "release": {"name": "web", "revision": 3, "status": "deployed", "chartVersion": "web-1.2.3"},
            },
        });
        let resource = Resource::read(object.to_string().as_bytes());
        let row = serde_json::to_value(resource.row(Some("team"), "web", None)).unwrap();
        let expected = json!({
            "namespace": "team", "name": "web", "state": "progressing", "reason": "Crashed",
            "message": "x".repeat(300),
            "release": {"name": "web", "revision": 3, "status": "deployed", "chartVersion": "web-1.2.3", "appVersion": null},
            "changed": "2026-01-01T00:00:02Z", "created": "2026-01-01T00:00:00Z",
        });
        assert_eq!(row, expected);
    }
}

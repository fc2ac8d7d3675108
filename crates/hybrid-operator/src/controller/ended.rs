//! How the Jobs and Pods of hooks have ended, remembered when they are gone: what a watch saw
//! complete is complete, whoever deletes it before anybody has asked.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::GroupVersionKind;
use serde_json::Value;

use crate::cluster::ownership::RUN_LABEL;
use crate::readiness::{HookOutcome, hook_outcome_of};

/// How many are remembered, the latest.
const REMEMBERED: usize = 1_024;

/// The ends that one watch has seen, by uid.
#[derive(Debug, Default)]
pub(super) struct Ended(Mutex<VecDeque<(String, HookOutcome)>>);

impl Ended {
    /// Takes in an object of a kind that is watched; only those of runs matter.
    pub(super) fn note(&self, gvk: &GroupVersionKind, metadata: &ObjectMeta, object: &Value) {
        let awaited = matches!(
            (gvk.group.as_str(), gvk.kind.as_str()),
            ("batch", "Job") | ("", "Pod")
        );
        let labels = metadata.labels.as_ref();
        let (Some(uid), true) = (
            &metadata.uid,
            awaited && labels.is_some_and(|labels| labels.contains_key(RUN_LABEL)),
        ) else {
            return;
        };
        let outcome = hook_outcome_of(gvk, object);
        if outcome == HookOutcome::Running {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.iter().any(|(of, _)| of == uid) {
            return;
        }
        if known.len() >= REMEMBERED {
            known.pop_front();
        }
        known.push_back((uid.clone(), outcome));
    }

    /// How the object of this uid has ended, if it was seen.
    pub(super) fn get(&self, uid: &str) -> Option<HookOutcome> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().find(|(of, _)| of == uid);
        found.map(|(_, outcome)| outcome.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn note(ended: &Ended, group: &str, kind: &str, uid: &str, object: &Value) {
        let mut object = object.clone();
        object["metadata"]["uid"] = json!(uid);
        let metadata = serde_json::from_value(object["metadata"].clone()).unwrap();
        ended.note(
            &GroupVersionKind::gvk(group, "v1", kind),
            &metadata,
            &object,
        );
    }

    #[test]
    fn the_end_of_a_hook_is_remembered_whatever_becomes_of_it() {
        let ended = Ended::default();
        let job = |labels: Value, status: &str, more: Value| {
            let mut object = json!({"metadata": {"labels": labels},
                "status": {"conditions": [{"type": status, "status": "True", "message": "why"}]}});
            object["metadata"]["deletionTimestamp"] = more;
            object
        };
        let run = json!({RUN_LABEL: "r"});
        let deleted = json!("2026-01-02T03:04:05Z");
        note(
            &ended,
            "batch",
            "Job",
            "running",
            &job(run.clone(), "Suspended", Value::Null),
        );
        note(
            &ended,
            "batch",
            "Job",
            "done",
            &job(run.clone(), "Complete", deleted.clone()),
        );
        note(
            &ended,
            "batch",
            "Job",
            "failed",
            &job(run.clone(), "Failed", Value::Null),
        );
        note(
            &ended,
            "batch",
            "Job",
            "no hook",
            &job(json!({}), "Complete", Value::Null),
        );
        note(
            &ended,
            "x.example.com",
            "Job",
            "no job",
            &job(run.clone(), "Complete", Value::Null),
        );
        let pod = json!({"metadata": {"labels": run}, "status": {"phase": "Succeeded"}});
        note(&ended, "", "Pod", "pod", &pod);
        assert_eq!(ended.get("running"), None);
        assert_eq!(ended.get("done"), Some(HookOutcome::Succeeded));
        assert!(
            matches!(ended.get("failed"), Some(HookOutcome::Failed(why)) if why.contains("why"))
        );
        assert_eq!(ended.get("no hook"), None);
        assert_eq!(ended.get("no job"), None);
        assert_eq!(ended.get("pod"), Some(HookOutcome::Succeeded));
    }

    #[test]
    fn only_the_latest_ends_are_remembered() {
        let ended = Ended::default();
        let pod = json!({"metadata": {"labels": {RUN_LABEL: "r"}}, "status": {"phase": "Failed"}});
        for number in 0..=REMEMBERED {
            note(&ended, "", "Pod", &number.to_string(), &pod);
        }
        assert_eq!(ended.get("0"), None);
        assert!(ended.get("1").is_some() && ended.get(&REMEMBERED.to_string()).is_some());
        assert_eq!(ended.0.lock().unwrap().len(), REMEMBERED);
    }
}

//! Outcomes of Jobs and Pods, kept after these are gone: what a watch saw complete is complete, even
//! if the object is deleted before anybody asks for the outcome.

use std::collections::VecDeque;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::GroupVersionKind;
use parking_lot::Mutex;
use serde_json::Value;

use crate::ownership::RUN_LABEL;
use crate::readiness::{HookOutcome, hook_outcome_of};

/// Number of outcomes that are kept; older ones are dropped.
const MAX_OUTCOMES: usize = 1_024;

/// The outcomes that one watch has seen, by uid.
#[derive(Debug, Default)]
pub(super) struct HookOutcomes(Mutex<VecDeque<(String, HookOutcome)>>);

impl HookOutcomes {
    /// Records the outcome of an object, if it is a completed Job or Pod of a hook, or a completed
    /// Job with `ttlSecondsAfterFinished`.
    pub(super) fn record(&self, gvk: &GroupVersionKind, metadata: &ObjectMeta, object: &Value) {
        let awaited = matches!(
            (gvk.group.as_str(), gvk.kind.as_str()),
            ("batch", "Job") | ("", "Pod")
        );
        let labels = metadata.labels.as_ref();
        let of_hook = labels.is_some_and(|labels| labels.contains_key(RUN_LABEL));
        let expires = || {
            let ttl = object.pointer("/spec/ttlSecondsAfterFinished");
            ttl.is_some_and(Value::is_number)
        };
        let (Some(uid), true) = (&metadata.uid, awaited && (of_hook || expires())) else {
            return;
        };
        let outcome = hook_outcome_of(gvk, object);
        if outcome == HookOutcome::Running {
            return;
        }
        let mut known = self.0.lock();
        if known.iter().any(|(of, _)| of == uid) {
            return;
        }
        if known.len() >= MAX_OUTCOMES {
            known.pop_front();
        }
        known.push_back((uid.clone(), outcome));
    }

    /// Returns the outcome of the object with this uid, if the watch saw it.
    pub(super) fn get(&self, uid: &str) -> Option<HookOutcome> {
        let known = self.0.lock();
        let found = known.iter().find(|(of, _)| of == uid);
        found.map(|(_, outcome)| outcome.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(outcomes: &HookOutcomes, group: &str, kind: &str, uid: &str, object: &Value) {
        let mut object = object.clone();
        object["metadata"]["uid"] = json!(uid);
        let metadata = serde_json::from_value(object["metadata"].clone()).unwrap();
        outcomes.record(
            &GroupVersionKind::gvk(group, "v1", kind),
            &metadata,
            &object,
        );
    }

    #[test]
    fn outcomes_of_hooks_and_expiring_jobs_are_recorded() {
        let outcomes = HookOutcomes::default();
        let job = |labels: Value, status: &str, more: Value| {
            let mut object = json!({"metadata": {"labels": labels},
                "status": {"conditions": [{"type": status, "status": "True", "message": "why"}]}});
            object["metadata"]["deletionTimestamp"] = more;
            object
        };
        let run = json!({RUN_LABEL: "r"});
        let deleted = json!("2026-01-02T03:04:05Z");
        record(
            &outcomes,
            "batch",
            "Job",
            "running",
            &job(run.clone(), "Suspended", Value::Null),
        );
        record(
            &outcomes,
            "batch",
            "Job",
            "done",
            &job(run.clone(), "Complete", deleted.clone()),
        );
        record(
            &outcomes,
            "batch",
            "Job",
            "failed",
            &job(run.clone(), "Failed", Value::Null),
        );
        record(
            &outcomes,
            "batch",
            "Job",
            "no hook",
            &job(json!({}), "Complete", Value::Null),
        );
        let mut expiring = job(json!({}), "Complete", Value::Null);
        expiring["spec"] = json!({"ttlSecondsAfterFinished": 0});
        record(&outcomes, "batch", "Job", "expiring", &expiring);
        record(
            &outcomes,
            "x.example.com",
            "Job",
            "no job",
            &job(run.clone(), "Complete", Value::Null),
        );
        let pod = json!({"metadata": {"labels": run}, "status": {"phase": "Succeeded"}});
        record(&outcomes, "", "Pod", "pod", &pod);
        assert_eq!(outcomes.get("running"), None);
        assert_eq!(outcomes.get("done"), Some(HookOutcome::Succeeded));
        assert!(
            matches!(outcomes.get("failed"), Some(HookOutcome::Failed(why)) if why.contains("why"))
        );
        assert_eq!(outcomes.get("no hook"), None);
        assert_eq!(outcomes.get("expiring"), Some(HookOutcome::Succeeded));
        assert_eq!(outcomes.get("no job"), None);
        assert_eq!(outcomes.get("pod"), Some(HookOutcome::Succeeded));
    }

    #[test]
    fn only_the_latest_outcomes_are_kept() {
        let outcomes = HookOutcomes::default();
        let pod = json!({"metadata": {"labels": {RUN_LABEL: "r"}}, "status": {"phase": "Failed"}});
        for number in 0..=MAX_OUTCOMES {
            record(&outcomes, "", "Pod", &number.to_string(), &pod);
        }
        assert_eq!(outcomes.get("0"), None);
        assert!(outcomes.get("1").is_some() && outcomes.get(&MAX_OUTCOMES.to_string()).is_some());
        assert_eq!(outcomes.0.lock().len(), MAX_OUTCOMES);
    }
}

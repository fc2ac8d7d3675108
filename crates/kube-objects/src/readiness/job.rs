//! Readiness of Jobs, as in kstatus, and completion of hooks.

use kube::core::GroupVersionKind;
use serde_json::Value;

use super::projection::{SpecView, StatusView};
use super::{Readiness, View};

/// Progress of a hook. Helm waits for Jobs and Pods; any other kind succeeds as soon as it exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HookOutcome {
    /// Unfinished.
    Running,
    /// Finished successfully, or of a kind that is not waited for.
    Succeeded,
    /// Failed; contains the message.
    Failed(String),
}

/// Returns the readiness of a Job that is not a hook.
pub(super) fn job(spec: &SpecView, status: &StatusView) -> Readiness {
    match completion(spec, status) {
        HookOutcome::Succeeded => Readiness::Ready,
        HookOutcome::Failed(message) => Readiness::Failed(message),
        HookOutcome::Running if status.start_time.is_some() => Readiness::Started,
        HookOutcome::Running => Readiness::in_progress("Job not started"),
    }
}

/// Returns whether a Job or Pod of a hook has succeeded or failed.
pub fn hook_outcome(gvk: &GroupVersionKind, view: &View) -> HookOutcome {
    let (spec, status) = (&view.spec, &view.status);
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("batch", "Job") => completion(spec, status),
        ("", "Pod") => match status.phase.as_deref() {
            Some("Succeeded") => HookOutcome::Succeeded,
            Some("Failed") => HookOutcome::Failed("Pod failed".to_owned()),
            _ => HookOutcome::Running,
        },
        _ => HookOutcome::Succeeded,
    }
}

/// Returns the progress of a hook given as a whole object.
pub(crate) fn hook_outcome_of(gvk: &GroupVersionKind, object: &Value) -> HookOutcome {
    hook_outcome(gvk, &View::of(object))
}

fn completion(spec: &SpecView, status: &StatusView) -> HookOutcome {
    if status.has("Complete", "True") {
        return HookOutcome::Succeeded;
    }
    match status.condition("Failed") {
        Some(condition) if condition.is("True") => {
            let completions = spec.completions.or(spec.parallelism).unwrap_or(1);
            let failed = status.failed.unwrap_or(0);
            HookOutcome::Failed(format!(
                "Job failed ({failed} of {completions}): {}",
                condition.explained()
            ))
        }
        _ => HookOutcome::Running,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readiness::readiness_of;
    use serde_json::json;

    #[test]
    fn job_is_started_before_it_is_ready_and_succeeds_when_complete() {
        let failed = "Job failed (3 of 2): Limit: too many restarts".to_owned();
        for (status, readiness, outcome) in [
            (
                json!({}),
                Readiness::in_progress("Job not started"),
                HookOutcome::Running,
            ),
            (
                json!({"startTime": "t", "active": 1}),
                Readiness::Started,
                HookOutcome::Running,
            ),
            (
                json!({"startTime": "t", "conditions": [{"type": "Complete", "status": "True"}]}),
                Readiness::Ready,
                HookOutcome::Succeeded,
            ),
            (
                json!({"startTime": "t", "failed": 3, "conditions": [{"type": "Failed",
                    "status": "True", "reason": "Limit", "message": "too many restarts"}]}),
                Readiness::Failed(failed.clone()),
                HookOutcome::Failed(failed.clone()),
            ),
            (
                json!({"startTime": "t", "conditions": [{"type": "Failed", "status": "False"}]}),
                Readiness::Started,
                HookOutcome::Running,
            ),
        ] {
            let gvk = GroupVersionKind::gvk("batch", "v1", "Job");
            let object = json!({"spec": {"completions": 2}, "status": status});
            assert_eq!(readiness_of(&gvk, &object), readiness, "{status}");
            assert_eq!(hook_outcome_of(&gvk, &object), outcome, "{status}");
        }
    }

    #[test]
    fn pod_hook_must_succeed() {
        let gvk = GroupVersionKind::gvk("", "v1", "Pod");
        for (phase, outcome) in [
            ("Pending", HookOutcome::Running),
            ("Running", HookOutcome::Running),
            ("Succeeded", HookOutcome::Succeeded),
            ("Failed", HookOutcome::Failed("Pod failed".to_owned())),
        ] {
            let object = json!({"status": {"phase": phase}});
            assert_eq!(hook_outcome_of(&gvk, &object), outcome, "{phase}");
        }
    }

    #[test]
    fn hooks_of_other_kinds_succeed_when_they_exist() {
        for (group, kind) in [
            ("", "ConfigMap"),
            ("apps", "Deployment"),
            ("example.com", "Job"),
        ] {
            let gvk = GroupVersionKind::gvk(group, "v1", kind);
            let outcome = hook_outcome_of(&gvk, &json!({}));
            assert_eq!(outcome, HookOutcome::Succeeded, "{kind}");
        }
    }
}

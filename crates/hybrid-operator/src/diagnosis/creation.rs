//! Why a controller does not create the Pods of a workload.

use k8s_openapi::api::core::v1::Event;
use serde_json::Value;

use super::evidence::count_of;
use super::{Finding, Severity, shortened, times};
use crate::reasons::Reason;

/// Returns why Pods are not created: from the condition `ReplicaFailure` of the workload, else from
/// its events.
pub(super) fn finding(workload: &Value, events: &[Event]) -> Option<Finding> {
    let (text, count) = replica_failure(workload).or_else(|| failed_create(events))?;
    Some(Finding {
        severity: Severity::CannotRun,
        reason: reason(&text),
        message: format!(
            "its Pods are not created: {}{}",
            shortened(&text),
            times(count)
        ),
    })
}

fn replica_failure(workload: &Value) -> Option<(String, i32)> {
    let conditions = workload.pointer("/status/conditions")?.as_array()?;
    let is = |condition: &&Value, field: &str, value: &str| {
        condition.get(field).and_then(Value::as_str) == Some(value)
    };
    let condition = conditions.iter().find(|condition| {
        is(condition, "type", "ReplicaFailure") && is(condition, "status", "True")
    })?;
    let message = condition.get("message")?.as_str()?;
    Some((message.to_owned(), 1))
}

fn failed_create(events: &[Event]) -> Option<(String, i32)> {
    let event = events
        .iter()
        .find(|event| event.reason.as_deref() == Some("FailedCreate"))?;
    Some((event.message.clone()?, count_of(event)))
}

/// Names the kind of the refusal.
fn reason(text: &str) -> Reason {
    const KNOWN: &[(&str, Reason)] = &[
        ("exceeded quota", Reason::QuotaExceeded),
        ("failed quota", Reason::QuotaExceeded),
        ("violates PodSecurity", Reason::PodSecurityViolation),
        ("serviceaccount", Reason::ServiceAccountMissing),
        ("admission webhook", Reason::AdmissionDenied),
    ];
    let known = KNOWN.iter().find(|(part, _)| text.contains(part));
    known.map_or(Reason::PodsNotCreated, |(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_refusal_of_the_api_server_is_the_cause() {
        for (text, reason) in [
            (
                r#"pods "db-1" is forbidden: exceeded quota: small, requested: cpu=2, used: cpu=0, limited: cpu=1"#,
                "QuotaExceeded",
            ),
            (
                r#"pods "db-1" is forbidden: violates PodSecurity "restricted:latest": privileged"#,
                "PodSecurityViolation",
            ),
            (
                r#"pods "db-1" is forbidden: error looking up service account a/b: serviceaccount "b" not found"#,
                "ServiceAccountMissing",
            ),
            (
                r#"admission webhook "policy.example.com" denied the request: no"#,
                "AdmissionDenied",
            ),
            ("the server is on fire", "PodsNotCreated"),
        ] {
            let deployment = json!({"status": {"conditions": [
                {"type": "Available", "status": "False", "message": "Deployment does not have minimum availability."},
                {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": text},
            ]}});
            let found = finding(&deployment, &[]).unwrap();
            assert_eq!(found.reason.as_str(), reason);
            assert_eq!(found.message, format!("its Pods are not created: {text}"));

            let event: Event = serde_json::from_value(json!({
                "metadata": {}, "involvedObject": {}, "reason": "FailedCreate", "message": text, "count": 4,
            }))
            .unwrap();
            let found = finding(&json!({}), &[event]).unwrap();
            assert_eq!(
                (found.reason.as_str(), found.severity),
                (reason, Severity::CannotRun)
            );
            assert!(found.message.ends_with("(4 times)"), "{}", found.message);
        }
        assert_eq!(finding(&json!({}), &[]), None);
    }
}

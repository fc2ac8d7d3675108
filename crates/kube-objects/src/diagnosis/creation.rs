//! Reason why a controller does not create the Pods of a workload.

use k8s_openapi::api::core::v1::Event;

use super::event::count_of;
use super::{Finding, Repeats, Severity, shortened};
use crate::diagnosis::Reason;

/// Returns why Pods are not created, from the newest event `FailedCreate` of their controller.
pub(super) fn finding(event: &Event) -> Finding {
    let text = event.message.as_deref().unwrap_or_default();
    Finding {
        repeats: Repeats::Times(count_of(event)),
        ..Finding::new(
            Severity::CannotRun,
            reason(text),
            format!("its Pods are not created: {}", shortened(text)),
        )
    }
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
            let event: Event = serde_json::from_value(json!({
                "metadata": {}, "involvedObject": {}, "reason": "FailedCreate", "message": text, "count": 4,
            }))
            .unwrap();
            let found = finding(&event);
            assert_eq!(found.reason.as_str(), reason);
            assert_eq!(found.severity, Severity::CannotRun);
            let message = format!("its Pods are not created: {text} (4 times)");
            assert_eq!(found.text(), message);
        }
    }
}

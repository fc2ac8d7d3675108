//! Readiness from conditions: rules common to all kinds, custom resources, CRDs and `APIService`s.

use kube::core::GroupVersionKind;

use super::Readiness;
use super::projection::StatusView;

/// Applies the rules common to all kinds: a generation that is not observed yet, and the conditions
/// `Reconciling` and `Stalled`. `None` if the rules of the kind decide.
pub(super) fn generic(
    gvk: &GroupVersionKind,
    generation: Option<i64>,
    status: &StatusView,
) -> Option<Readiness> {
    if let (Some(generation), Some(observed)) = (generation, status.observed_generation)
        && generation != observed
    {
        return Some(Readiness::InProgress(format!(
            "{} generation is {generation}, but latest observed generation is {observed}",
            gvk.kind
        )));
    }
    status.conditions.iter().find_map(|condition| {
        match condition.kind.as_deref().filter(|_| condition.is("True"))? {
            "Reconciling" => Some(Readiness::InProgress(condition.text())),
            "Stalled" => Some(Readiness::Failed(condition.text())),
            _ => None,
        }
    })
}

/// Returns the readiness of any other kind from its `Ready` condition. Ready without one.
pub(super) fn resource(status: &StatusView) -> Readiness {
    match status.condition("Ready") {
        Some(condition) if condition.is("False") || condition.is("Unknown") => {
            Readiness::InProgress(condition.text())
        }
        _ => Readiness::Ready,
    }
}

/// Returns the readiness of a `CustomResourceDefinition`: ready if its names are accepted and it is
/// established.
pub(super) fn crd(status: &StatusView) -> Readiness {
    if let Some(names) = status
        .condition("NamesAccepted")
        .filter(|names| names.is("False"))
    {
        return Readiness::Failed(names.text());
    }
    match status.condition("Established") {
        Some(condition) if condition.is("True") => Readiness::Ready,
        Some(condition)
            if condition.is("False") && condition.reason.as_deref() != Some("Installing") =>
        {
            Readiness::Failed(condition.text())
        }
        _ => Readiness::in_progress("Install in progress"),
    }
}

/// Returns the readiness of an `APIService`: ready if available. kstatus has no rule for it and
/// considers it ready.
pub(super) fn api_service(status: &StatusView) -> Readiness {
    match status.condition("Available") {
        Some(condition) if condition.is("True") => Readiness::Ready,
        Some(condition) => Readiness::InProgress(condition.text()),
        None => Readiness::in_progress("Availability not known yet"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readiness::assert_readiness;
    use serde_json::{Value, json};

    fn assert_with_status(group: &str, kind: &str, status: &Value, expected: &Readiness) {
        let object = json!({"metadata": {"generation": 2}, "status": status});
        assert_readiness(group, kind, &object, expected);
    }

    fn condition(kind: &str, status: &str) -> Value {
        json!({"conditions": [{"type": kind, "status": status, "reason": "R", "message": "m"}]})
    }

    #[test]
    fn custom_resource_readiness_depends_on_generation_and_conditions() {
        let observed = "Thing generation is 2, but latest observed generation is 1";
        for (status, expected) in [
            (json!({}), Readiness::Ready),
            (json!(null), Readiness::Ready),
            (json!({"observedGeneration": 2}), Readiness::Ready),
            (
                json!({"observedGeneration": 1}),
                Readiness::in_progress(observed),
            ),
            (
                condition("Reconciling", "True"),
                Readiness::in_progress("m"),
            ),
            (condition("Reconciling", "False"), Readiness::Ready),
            (condition("Stalled", "True"), Readiness::failed("m")),
            (condition("Ready", "True"), Readiness::Ready),
            (condition("Ready", "False"), Readiness::in_progress("m")),
            (condition("Ready", "Unknown"), Readiness::in_progress("m")),
            (condition("Other", "False"), Readiness::Ready),
        ] {
            assert_with_status("example.com", "Thing", &status, &expected);
        }
    }

    #[test]
    fn crd_is_ready_when_established() {
        let kind = "CustomResourceDefinition";
        let installing = json!({"conditions": [
            {"type": "Established", "status": "False", "reason": "Installing"}]});
        for (status, expected) in [
            (json!({}), Readiness::in_progress("Install in progress")),
            (condition("Established", "True"), Readiness::Ready),
            (condition("Established", "False"), Readiness::failed("m")),
            (installing, Readiness::in_progress("Install in progress")),
            (condition("NamesAccepted", "False"), Readiness::failed("m")),
        ] {
            assert_with_status("apiextensions.k8s.io", kind, &status, &expected);
        }
    }

    #[test]
    fn api_service_is_ready_when_available() {
        for (status, expected) in [
            (
                json!({}),
                Readiness::in_progress("Availability not known yet"),
            ),
            (condition("Available", "True"), Readiness::Ready),
            (condition("Available", "False"), Readiness::in_progress("m")),
        ] {
            assert_with_status("apiregistration.k8s.io", "APIService", &status, &expected);
        }
    }
}

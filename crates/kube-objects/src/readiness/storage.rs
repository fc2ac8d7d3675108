//! Readiness of a `PersistentVolumeClaim`.

use super::Readiness;
use super::projection::StatusView;

/// Returns the readiness of a claim: ready if bound. As in Helm, a claim whose storage class waits
/// for the first consumer stays in progress until a Pod uses it.
pub(super) fn claim(status: &StatusView) -> Readiness {
    match status.phase.as_deref() {
        Some("Bound") => Readiness::Ready,
        phase => Readiness::InProgress(format!(
            "PVC is not Bound. phase: {}",
            phase.unwrap_or("unknown")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readiness::readiness_of;
    use kube::core::GroupVersionKind;
    use serde_json::json;

    #[test]
    fn claim_is_ready_when_bound() {
        let gvk = GroupVersionKind::gvk("", "v1", "PersistentVolumeClaim");
        for (phase, expected) in [
            (json!("Bound"), Readiness::Ready),
            (
                json!("Pending"),
                Readiness::in_progress("PVC is not Bound. phase: Pending"),
            ),
            (
                json!("Lost"),
                Readiness::in_progress("PVC is not Bound. phase: Lost"),
            ),
            (
                json!(null),
                Readiness::in_progress("PVC is not Bound. phase: unknown"),
            ),
        ] {
            let object = json!({"status": {"phase": phase}});
            assert_eq!(readiness_of(&gvk, &object), expected);
        }
    }
}

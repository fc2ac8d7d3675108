//! The status of a `{{kind}}` from its Deployment. Pure.

use hybrid_operator::native::Conditions;
use k8s_openapi::api::apps::v1::Deployment;

use crate::api::{{version}}::{{types_with_status}};

/// Returns the status to be written.
pub(super) fn observed(
    object: &{{kind}},
    deployment: &Deployment,
    conditions: Conditions,
) -> {{kind}}Status {
    let wanted = object.spec.size;
    let status = deployment.status.as_ref();
    let ready = status.and_then(|status| status.ready_replicas).unwrap_or(0);
    let is_ready = ready == wanted;
    let reason = if is_ready {
        "AllPodsReady"
    } else {
        "PodsNotReady"
    };
    let message = format!("{ready} of {wanted} Pods are ready");
    {{kind}}Status {
        ready_pods: ready,
        observed_generation: object.metadata.generation,
        conditions: conditions
            .set("Ready", is_ready, reason, message)
            .into_vec(),
    }
}

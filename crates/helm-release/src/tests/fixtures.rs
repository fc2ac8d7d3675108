//! Values that tests of several modules use.

use hybrid_operator_test::scripted::Script;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_objects::{Cluster, Primary};

/// Returns a cluster that `script` answers, beside discovery.
pub(crate) fn scripted_cluster(script: &Script) -> Cluster {
    script.serve_discovery();
    Cluster::new(script.client())
}

/// Returns the reference of an object to the custom resource that controls it.
pub(crate) fn owner_reference(primary: &Primary) -> OwnerReference {
    OwnerReference {
        api_version: primary.gvk.api_version(),
        kind: primary.gvk.kind.clone(),
        name: primary.name.clone(),
        uid: primary.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

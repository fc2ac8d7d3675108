//! Custom resources that no replica of a ring has.

use std::convert::Infallible;

use kube::api::{Api, DynamicObject, Patch};
use kube_objects::{AnyObject, ApiError, ApiKind, Cluster, Target};
use operator_runtime::controller::Key;
use operator_runtime::ring::{Ring, Unassigned};
use serde_json::json;

use super::resources::params;
use super::status::Status;

/// Says in the status of custom resources that no replica has them, until it is dropped.
pub(super) async fn report_unassigned(
    cluster: Cluster,
    kind: ApiKind,
    ring: Ring,
    unassigned: Unassigned,
) -> Infallible {
    loop {
        let key = unassigned.late().await;
        match report(&cluster, &kind, &ring, &key).await {
            Ok(()) | Err(ApiError::Conflict { .. } | ApiError::NotFound { .. }) => {}
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, object = %key, "cannot say in the status of a custom resource that it has no shard");
            }
        }
    }
}

async fn report(cluster: &Cluster, kind: &ApiKind, ring: &Ring, key: &Key) -> Result<(), ApiError> {
    let (client, resource) = (cluster.client().clone(), &kind.resource);
    let (namespace, name) = (key.namespace.as_deref(), &*key.name);
    let api: Api<AnyObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, resource),
        None => Api::all_with(client, resource),
    };
    let failed = |verb| {
        move |error| {
            let target = Target::of(verb, resource, namespace, Some(name));
            ApiError::of(target, error)
        }
    };
    let AnyObject(object) = api.get(name).await.map_err(failed("get"))?;
    if ring.is_assigned(&object.metadata) {
        return Ok(());
    }
    let Some(conditions) = conditions(&object, kind, ring) else {
        return Ok(());
    };
    // A replica that has got it meanwhile knows better.
    let patch = Patch::Merge(json!({
        "metadata": {"uid": object.metadata.uid, "resourceVersion": object.metadata.resource_version},
        "status": {"conditions": conditions},
    }));
    let patched = api.patch_status(name, &params(), &patch).await;
    patched.map_err(failed("patch")).map(drop)
}

/// Returns the conditions of a custom resource that no replica has, `None` if they say so already.
fn conditions(object: &DynamicObject, kind: &ApiKind, ring: &Ring) -> Option<serde_json::Value> {
    let (before, generation) = (object.data.get("status"), object.metadata.generation);
    let mut status = Status::read(before, host::timestamp(), generation);
    let known = status.conditions.clone();
    status.unassigned(&format!(
        "no replica has the custom resource: a sharder must run, and the ControllerRing {} must list {}.{}",
        ring.name, kind.resource.plural, kind.resource.group
    ));
    (status.conditions != known).then(|| json!(status.conditions))
}

//! Adds and removes the finalizer of a custom resource, and patches its status.

use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::access::Access;
use super::subject::Subject;
use crate::cluster::{ApiError, Primary, Target};

/// Finalizer that holds the custom resource until its release is uninstalled.
pub(super) const FINALIZER: &str = "helm.sdk.operatorframework.io/uninstall-release";
/// Equivalent finalizers of the Go operators.
pub(super) const LEGACY: &[&str] = &["uninstall-helm-release"];

/// Returns whether a custom resource has the finalizer or an equivalent one.
pub(super) fn is_present(resource: &DynamicObject) -> bool {
    let mut names = resource.finalizers().iter();
    names.any(|name| is_uninstall_finalizer(name))
}

/// Returns whether a custom resource has the finalizer of a Go operator.
pub(super) fn is_legacy(resource: &DynamicObject) -> bool {
    let mut names = resource.finalizers().iter();
    names.any(|name| LEGACY.contains(&name.as_str()))
}

fn is_uninstall_finalizer(name: &str) -> bool {
    name == FINALIZER || LEGACY.contains(&name)
}

fn api(access: &Access, primary: &Primary) -> Api<DynamicObject> {
    let client = access.client.clone();
    match &primary.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, access.source.resource()),
        None => Api::all_with(client, access.source.resource()),
    }
}

/// Reads the custom resource from the API server.
pub(super) async fn read(
    access: &Access,
    subject: &Subject,
) -> Result<Option<DynamicObject>, ApiError> {
    let answer = api(access, &subject.primary)
        .get_opt(&subject.primary.name)
        .await;
    answer.map_err(|error| failed(access, "get", &subject.primary, error))
}

/// Adds the finalizer. Returns whether the custom resource still exists.
pub(super) async fn add(access: &Access, subject: &Subject) -> Result<bool, ApiError> {
    let present = subject.object.pointer("/metadata/finalizers");
    let mut names: Vec<Value> = present
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    names.push(json!(FINALIZER));
    set(access, subject, &names).await
}

/// Removes the finalizer and equivalent ones.
pub(super) async fn remove(
    access: &Access,
    subject: &Subject,
    fresh: &DynamicObject,
) -> Result<(), ApiError> {
    let keep: Vec<Value> = fresh
        .finalizers()
        .iter()
        .filter(|name| !is_uninstall_finalizer(name))
        .map(|name| json!(name))
        .collect();
    set(access, subject, &keep).await.map(drop)
}

/// Sets the finalizers. Returns whether the custom resource still exists. The uid prevents patching
/// a later object of the same name, the resource version losing a concurrently added finalizer.
async fn set(access: &Access, subject: &Subject, names: &[Value]) -> Result<bool, ApiError> {
    let version = subject.object.pointer("/metadata/resourceVersion");
    let metadata = match version.filter(|_| !subject.deleting) {
        Some(version) => {
            json!({"uid": subject.primary.uid, "finalizers": names, "resourceVersion": version})
        }
        None => json!({"uid": subject.primary.uid, "finalizers": names}),
    };
    let patch = Patch::Merge(json!({"metadata": metadata}));
    let api = api(access, &subject.primary);
    match api.patch(&subject.primary.name, &params(), &patch).await {
        Ok(object) => {
            access.source.put(object);
            Ok(true)
        }
        Err(error) => match failed(access, "patch", &subject.primary, error) {
            error if error.is_not_found() => Ok(false),
            error => Err(error),
        },
    }
}

/// Patches the status of the newest known version of the custom resource, so that the API server
/// rejects the write of a former leader with a stale cache. Returns the stored status, `None` if
/// the object no longer exists.
pub(super) async fn patch_status(
    access: &Access,
    subject: &Subject,
    status: &Value,
) -> Result<Option<Value>, ApiError> {
    let primary = &subject.primary;
    let known = access.source.get(&subject.key());
    let version = known
        .filter(|known| known.uid().as_deref() == Some(primary.uid.as_str()))
        .and_then(|known| known.resource_version())
        .or_else(|| subject.resource.resource_version());
    let patch = Patch::Merge(json!({
        "metadata": {"uid": primary.uid, "resourceVersion": version},
        "status": status,
    }));
    let api = api(access, primary);
    match api.patch_status(&primary.name, &params(), &patch).await {
        Ok(object) => {
            let kept = object.data.get("status").cloned();
            access.source.put(object);
            Ok(Some(kept.unwrap_or_default()))
        }
        Err(error) => match failed(access, "patch", primary, error) {
            error if error.is_not_found() => Ok(None),
            // A conflict may be a new object of the same name, which has its own reconcile.
            error => Err(error),
        },
    }
}

/// Returns the error of a request for the custom resource.
fn failed(access: &Access, verb: &'static str, primary: &Primary, error: kube::Error) -> ApiError {
    let namespace = primary.namespace.as_deref();
    let resource = access.source.resource();
    let target = Target::of(verb, resource, namespace, Some(&primary.name));
    ApiError::of(target, error)
}

/// Sets the field manager for custom resources.
fn params() -> PatchParams {
    PatchParams {
        field_manager: Some("hybrid-operator".to_owned()),
        ..PatchParams::default()
    }
}

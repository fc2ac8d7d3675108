//! The finalizer, which holds a custom resource until its release is uninstalled, and the write of
//! its status.

use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::access::Access;
use super::subject::Subject;
use crate::cluster::{ApiError, Primary, Target};

/// Finalizer that holds the custom resource until its release is uninstalled.
pub(super) const FINALIZER: &str = "helm.sdk.operatorframework.io/uninstall-release";
/// Finalizers of the Go operators with the same meaning.
pub(super) const LEGACY: &[&str] = &["uninstall-helm-release"];

/// Whether a custom resource has the finalizer, or one with the same meaning.
pub(super) fn is_present(resource: &DynamicObject) -> bool {
    let mut names = resource.finalizers().iter();
    names.any(|name| is_ours(name))
}

/// Whether a Go operator has added its finalizer.
pub(super) fn is_legacy(resource: &DynamicObject) -> bool {
    let mut names = resource.finalizers().iter();
    names.any(|name| LEGACY.contains(&name.as_str()))
}

fn is_ours(name: &str) -> bool {
    name == FINALIZER || LEGACY.contains(&name)
}

fn api(access: &Access, primary: &Primary) -> Api<DynamicObject> {
    let client = access.client.clone();
    match &primary.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, access.source.resource()),
        None => Api::all_with(client, access.source.resource()),
    }
}

/// The custom resource as the API server has it now.
pub(super) async fn fresh(
    access: &Access,
    subject: &Subject,
) -> Result<Option<DynamicObject>, ApiError> {
    let answer = api(access, &subject.primary)
        .get_opt(&subject.primary.name)
        .await;
    answer.map_err(|error| failed(access, "get", &subject.primary, error))
}

/// Adds the finalizer. Answers whether the custom resource is still there.
pub(super) async fn add(access: &Access, subject: &Subject) -> Result<bool, ApiError> {
    let present = subject.object.pointer("/metadata/finalizers");
    let mut names: Vec<Value> = present
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    names.push(json!(FINALIZER));
    set(access, subject, &names).await
}

/// Removes the finalizer and those with the same meaning.
pub(super) async fn remove(
    access: &Access,
    subject: &Subject,
    fresh: &DynamicObject,
) -> Result<(), ApiError> {
    let keep: Vec<Value> = fresh
        .finalizers()
        .iter()
        .filter(|name| !is_ours(name))
        .map(|name| json!(name))
        .collect();
    set(access, subject, &keep).await.map(drop)
}

/// The uid makes sure that it is this object and not a later one of its name, the resource version
/// that nobody's finalizer is lost. Answers whether the custom resource is still there.
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

/// Writes the status over the newest state of the custom resource that is known: a write of a
/// process that no longer leads, which knows an older one, is refused. Answers the status that was
/// kept, `None` if the object is gone.
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
            // Another one of its name is the affair of another reconcile.
            error => Err(error),
        },
    }
}

/// Why a request about the custom resource failed.
fn failed(access: &Access, verb: &'static str, primary: &Primary, error: kube::Error) -> ApiError {
    let namespace = primary.namespace.as_deref();
    let resource = access.source.resource();
    let target = Target::of(verb, resource, namespace, Some(&primary.name));
    ApiError::of(target, error)
}

/// Names this operator in the managed fields of custom resources.
fn params() -> PatchParams {
    PatchParams {
        field_manager: Some("hybrid-operator".to_owned()),
        ..PatchParams::default()
    }
}

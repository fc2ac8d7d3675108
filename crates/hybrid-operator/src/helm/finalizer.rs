//! Adds and removes the finalizer of a custom resource, and patches its status.

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::access::Access;
use super::resources::Change;
use super::subject::{Subject, Target};
use crate::cluster::ApiError;

/// Finalizer that holds the custom resource until its release is uninstalled.
pub(crate) const FINALIZER: &str = "helm.sdk.operatorframework.io/uninstall-release";
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

/// Reads the custom resource from the API server.
pub(super) async fn read(
    access: &Access,
    target: &Target,
) -> Result<Option<DynamicObject>, ApiError> {
    access.resources.read(&target.primary).await
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

/// Sets the finalizers. Returns whether the custom resource still exists. The resource version
/// prevents losing a concurrently added finalizer.
async fn set(access: &Access, subject: &Subject, names: &[Value]) -> Result<bool, ApiError> {
    let version = subject.object.pointer("/metadata/resourceVersion");
    let version = version.filter(|_| !subject.deleting);
    let change = Change::Finalizers { names, version };
    let changed = access
        .resources
        .change(&subject.target.primary, change)
        .await?;
    Ok(changed.is_some())
}

/// Patches the status of the newest known version of the custom resource. Returns the stored
/// status, `None` if the object no longer exists.
pub(super) async fn patch_status(
    access: &Access,
    subject: &Subject,
    status: &Value,
) -> Result<Option<Value>, ApiError> {
    let primary = &subject.target.primary;
    let known = access.resources.get(&subject.target.key());
    let version = known
        .filter(|known| known.uid().as_deref() == Some(primary.uid.as_str()))
        .and_then(|known| known.resource_version())
        .or_else(|| subject.resource.resource_version());
    let change = Change::Status {
        patch: status,
        version: json!(version),
    };
    let changed = access.resources.change(primary, change).await?;
    Ok(changed.map(|object| object.data.get("status").cloned().unwrap_or_default()))
}

//! The finalizer, which holds a custom resource until its release is uninstalled.

use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::json;

use super::HelmReconciler;
use super::observe::Facts;
use crate::cluster::{ApiError, Primary, Target};

/// Ours.
pub(super) const FINALIZER: &str = "helm.sdk.operatorframework.io/uninstall-release";
/// Those of the Go operators, which mean the same.
pub(super) const LEGACY: &[&str] = &["uninstall-helm-release"];

/// Whether a custom resource has ours or one that means the same.
pub(super) fn is_present(resource: &DynamicObject) -> bool {
    resource
        .finalizers()
        .iter()
        .any(|name| name == FINALIZER || LEGACY.contains(&name.as_str()))
}

/// Whether a Go operator has had it.
pub(super) fn is_legacy(resource: &DynamicObject) -> bool {
    let mut names = resource.finalizers().iter();
    names.any(|name| LEGACY.contains(&name.as_str()))
}

impl HelmReconciler {
    fn api(&self, facts: &Facts) -> Api<DynamicObject> {
        self.api_in(facts.primary.namespace.as_deref())
    }

    fn api_in(&self, namespace: Option<&str>) -> Api<DynamicObject> {
        let client = self.manager.client.clone();
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, self.source.resource()),
            None => Api::all_with(client, self.source.resource()),
        }
    }

    /// The custom resource as the API server has it now.
    pub(super) async fn fresh(&self, facts: &Facts) -> Result<Option<DynamicObject>, ApiError> {
        let answer = self.api(facts).get_opt(&facts.primary.name).await;
        answer.map_err(|error| self.failed("get", &facts.primary, error))
    }

    /// Adds our finalizer.
    pub(super) async fn add_finalizer(&self, facts: &Facts) -> Result<(), ApiError> {
        let present = facts
            .object
            .pointer("/metadata/finalizers")
            .cloned()
            .unwrap_or(json!([]));
        let mut names: Vec<serde_json::Value> = present.as_array().cloned().unwrap_or_default();
        names.push(json!(FINALIZER));
        self.set_finalizers(facts, &names).await
    }

    /// Removes our finalizer and those that mean the same.
    pub(super) async fn remove_finalizer(
        &self,
        facts: &Facts,
        fresh: &DynamicObject,
    ) -> Result<(), ApiError> {
        let keep: Vec<serde_json::Value> = fresh
            .finalizers()
            .iter()
            .filter(|name| *name != FINALIZER && !LEGACY.contains(&name.as_str()))
            .map(|name| json!(name))
            .collect();
        self.set_finalizers(facts, &keep).await
    }

    /// The uid makes sure that it is this object and not a later one of its name, the resource
    /// version that nobody's finalizer is lost.
    async fn set_finalizers(
        &self,
        facts: &Facts,
        names: &[serde_json::Value],
    ) -> Result<(), ApiError> {
        let version = facts.object.pointer("/metadata/resourceVersion");
        let metadata = match version.filter(|_| !facts.deleting) {
            Some(version) => {
                json!({"uid": facts.primary.uid, "finalizers": names, "resourceVersion": version})
            }
            None => json!({"uid": facts.primary.uid, "finalizers": names}),
        };
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let answer = self
            .api(facts)
            .patch(&facts.primary.name, &params(), &patch)
            .await;
        match answer {
            Ok(object) => {
                self.source.put(object);
                Ok(())
            }
            Err(error) => match self.failed("patch", &facts.primary, error) {
                error if error.is_not_found() => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Writes the status, over this resource version alone where one is given; answers the one that
    /// was kept, `None` if the object is gone.
    pub(super) async fn patch_status(
        &self,
        primary: &Primary,
        version: Option<&str>,
        status: &serde_json::Value,
    ) -> Result<Option<serde_json::Value>, ApiError> {
        let mut metadata = json!({"uid": primary.uid});
        if let (Some(metadata), Some(version)) = (metadata.as_object_mut(), version) {
            metadata.insert("resourceVersion".to_owned(), json!(version));
        }
        let patch = Patch::Merge(json!({"metadata": metadata, "status": status}));
        let api = self.api_in(primary.namespace.as_deref());
        match api.patch_status(&primary.name, &params(), &patch).await {
            Ok(object) => {
                let kept = object.data.get("status").cloned();
                self.source.put(object);
                Ok(Some(kept.unwrap_or_default()))
            }
            Err(error) => match self.failed("patch", primary, error) {
                error if error.is_not_found() => Ok(None),
                // Another one of its name is another reconcile's affair; the source tells of it in
                // its time.
                error => Err(error),
            },
        }
    }

    /// Why a request about the custom resource failed.
    fn failed(&self, verb: &'static str, primary: &Primary, error: kube::Error) -> ApiError {
        let namespace = primary.namespace.as_deref();
        let resource = self.source.resource();
        let target = Target::of(verb, resource, namespace, Some(&primary.name));
        ApiError::of(target, error)
    }
}

/// Names us in the managed fields of custom resources.
fn params() -> PatchParams {
    PatchParams {
        field_manager: Some("hybrid-operator".to_owned()),
        ..PatchParams::default()
    }
}

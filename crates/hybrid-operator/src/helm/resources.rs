//! Reads and writes the custom resources of a controller.

use std::sync::Arc;

use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube_objects::{AnyObject, ApiError, Primary, Target};
use operator_runtime::controller::Key;
use serde_json::{Value, json};

use super::outputs::Numbers;
use super::source::Source;

/// The custom resources of one controller.
#[derive(Clone)]
pub(super) struct Resources {
    client: Client,
    /// The cache, which a watch follows.
    source: Source,
}

/// A change of a custom resource.
pub(super) enum Change<'a> {
    /// Sets the finalizers, if the object still has this version.
    Finalizers {
        names: &'a [Value],
        version: Option<&'a Value>,
    },
    /// Merges a patch into the status. The version is that of the newest known object, so that the
    /// API server rejects the write of a former leader with a stale cache.
    Status { patch: &'a Value, version: Value },
}

impl Resources {
    pub(super) fn new(client: Client, source: Source) -> Self {
        Self { client, source }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the cached custom resource.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<DynamicObject>> {
        self.source.get(key)
    }

    /// Returns the version of the cached custom resource with this uid.
    pub(super) fn version(&self, primary: &Primary) -> Option<String> {
        self.source.version(&Key::from(primary), &primary.uid)
    }

    /// Returns the fields of the status that the operator has written for an entry, now or formerly.
    pub(super) fn outputs(&self, primary: &Primary) -> Vec<String> {
        self.source.outputs(&Key::from(primary), &primary.uid)
    }

    /// Sets the numbers among the outputs of a custom resource, for the metrics.
    pub(super) fn set_numbers(&self, primary: &Primary, numbers: Numbers) {
        self.source
            .set_numbers(&Key::from(primary), &primary.uid, numbers);
    }

    /// Returns whether the cached custom resource has this version.
    pub(super) fn has_version(&self, key: &Key, version: &str) -> bool {
        self.source.has_version(key, version)
    }

    /// Returns whether a custom resource exists and is not being deleted.
    pub(super) fn is_wanted(&self, primary: &Primary) -> bool {
        self.source.is_wanted(&Key::from(primary))
    }

    /// Reads a custom resource, past the cache, and caches it.
    pub(super) async fn read(&self, primary: &Primary) -> Result<Option<DynamicObject>, ApiError> {
        let answer = self.api(primary).get_opt(&primary.name).await;
        let answer = answer.map_err(|error| self.failed("get", primary, error))?;
        let fresh = answer.map(|AnyObject(object)| object);
        if let Some(fresh) = &fresh {
            self.source.put(fresh.clone());
        }
        Ok(fresh)
    }

    /// Changes a custom resource, and caches the result. Returns `None` if it no longer exists. The uid prevents
    /// patching a later object of the same name.
    pub(super) async fn change(
        &self,
        primary: &Primary,
        change: Change<'_>,
    ) -> Result<Option<DynamicObject>, ApiError> {
        let (api, uid) = (self.api(primary), &primary.uid);
        let answer = match change {
            Change::Finalizers { names, version } => {
                let metadata = match version {
                    Some(version) => {
                        json!({"uid": uid, "finalizers": names, "resourceVersion": version})
                    }
                    None => json!({"uid": uid, "finalizers": names}),
                };
                let patch = Patch::Merge(json!({"metadata": metadata}));
                api.patch(&primary.name, &params(), &patch).await
            }
            Change::Status { patch, version } => {
                let patch = Patch::Merge(json!({
                    "metadata": {"uid": uid, "resourceVersion": version},
                    "status": patch,
                }));
                api.patch_status(&primary.name, &params(), &patch).await
            }
        };
        match answer {
            Ok(AnyObject(object)) => {
                self.source.put(object.clone());
                Ok(Some(object))
            }
            Err(error) => match self.failed("patch", primary, error) {
                error if error.is_not_found() => Ok(None),
                // A conflict may be a new object of the same name, which has its own reconcile.
                error => Err(error),
            },
        }
    }

    fn api(&self, primary: &Primary) -> Api<AnyObject> {
        let (client, resource) = (self.client.clone(), self.source.resource());
        match &primary.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, resource),
            None => Api::all_with(client, resource),
        }
    }

    /// Returns the error of a request for a custom resource.
    fn failed(&self, verb: &'static str, primary: &Primary, error: kube::Error) -> ApiError {
        let (resource, namespace) = (self.source.resource(), primary.namespace.as_deref());
        let target = Target::of(verb, resource, namespace, Some(&primary.name));
        ApiError::of(target, error)
    }
}

/// Field manager for custom resources.
pub(super) const FIELD_MANAGER: &str = "hybrid-operator";

/// Sets the field manager for custom resources.
pub(super) fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

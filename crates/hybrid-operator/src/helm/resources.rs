//! Storage of the custom resources of a controller: in the cluster, or, for a
//! [component](super::component) of a native controller's custom resource, in memory.

use host::HashMap;
use std::sync::Arc;

use kube::Client;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::cluster::{AnyObject, ApiError, Primary, Target};
use crate::controller::{Key, Source};

/// The custom resources of one controller.
pub(super) enum Resources {
    /// Custom resources of a kind, cached by a watch.
    Served {
        /// Sends the writes.
        client: Client,
        /// The cache.
        source: Source,
    },
    /// Custom resources that a native controller has made up, each for a component of one of its custom resources.
    Components(Mutex<HashMap<Key, Arc<DynamicObject>>>),
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
    /// Returns the cached custom resource.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<DynamicObject>> {
        match self {
            Self::Served { source, .. } => source.get(key),
            Self::Components(components) => components.lock().get(key).cloned(),
        }
    }

    /// Stores the made-up custom resource of a component.
    pub(super) fn put_component(&self, key: Key, resource: DynamicObject) {
        if let Self::Components(components) = self {
            components.lock().insert(key, Arc::new(resource));
        }
    }

    /// Removes the made-up custom resource of a component. Returns whether others are left.
    pub(super) fn remove_component(&self, key: &Key) -> bool {
        match self {
            Self::Served { .. } => true,
            Self::Components(components) => {
                let mut components = components.lock();
                components.remove(key);
                !components.is_empty()
            }
        }
    }

    /// Reads a custom resource, past the cache.
    pub(super) async fn read(&self, primary: &Primary) -> Result<Option<DynamicObject>, ApiError> {
        match self {
            Self::Served { client, source } => {
                let answer = api(client, source, primary).get_opt(&primary.name).await;
                let answer = answer.map_err(|error| failed(source, "get", primary, error))?;
                Ok(answer.map(|AnyObject(object)| object))
            }
            Self::Components(components) => Ok(components
                .lock()
                .get(&Key::from(primary))
                .map(|component| (**component).clone())),
        }
    }

    /// Reads a custom resource, past the cache, and caches it.
    pub(super) async fn refresh(
        &self,
        primary: &Primary,
    ) -> Result<Option<DynamicObject>, ApiError> {
        let fresh = self.read(primary).await?;
        if let (Self::Served { source, .. }, Some(fresh)) = (self, &fresh) {
            source.put(fresh.clone());
        }
        Ok(fresh)
    }

    /// Changes a custom resource, and caches the result. Returns `None` if it no longer exists.
    pub(super) async fn change(
        &self,
        primary: &Primary,
        change: Change<'_>,
    ) -> Result<Option<DynamicObject>, ApiError> {
        match self {
            Self::Served { client, source } => {
                change_served(client, source, primary, &change).await
            }
            Self::Components(components) => {
                Ok(change_component(&mut components.lock(), primary, &change))
            }
        }
    }
}

fn api(client: &Client, source: &Source, primary: &Primary) -> Api<AnyObject> {
    match &primary.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, source.resource()),
        None => Api::all_with(client.clone(), source.resource()),
    }
}

/// Sends a change. The uid prevents patching a later object of the same name.
async fn change_served(
    client: &Client,
    source: &Source,
    primary: &Primary,
    change: &Change<'_>,
) -> Result<Option<DynamicObject>, ApiError> {
    let api = api(client, source, primary);
    let uid = &primary.uid;
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
            source.put(object.clone());
            Ok(Some(object))
        }
        Err(error) => match failed(source, "patch", primary, error) {
            error if error.is_not_found() => Ok(None),
            // A conflict may be a new object of the same name, which has its own reconcile.
            error => Err(error),
        },
    }
}

fn change_component(
    components: &mut HashMap<Key, Arc<DynamicObject>>,
    primary: &Primary,
    change: &Change<'_>,
) -> Option<DynamicObject> {
    let component = Arc::make_mut(components.get_mut(&Key::from(primary))?);
    match change {
        Change::Finalizers { names, .. } => {
            let names = names.iter().filter_map(Value::as_str);
            *component.finalizers_mut() = names.map(ToOwned::to_owned).collect();
        }
        Change::Status { patch, .. } => {
            if let Some(fields) = component.data.as_object_mut() {
                let status = fields.entry("status").or_insert(Value::Null);
                json_patch::merge(status, patch);
            }
        }
    }
    Some(component.clone())
}

/// Returns the error of a request for a custom resource.
fn failed(source: &Source, verb: &'static str, primary: &Primary, error: kube::Error) -> ApiError {
    let namespace = primary.namespace.as_deref();
    let target = Target::of(verb, source.resource(), namespace, Some(&primary.name));
    ApiError::of(target, error)
}

/// Sets the field manager for custom resources.
fn params() -> PatchParams {
    PatchParams {
        field_manager: Some("hybrid-operator".to_owned()),
        ..PatchParams::default()
    }
}

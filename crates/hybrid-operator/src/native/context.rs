//! Context passed to the reconcile function of a native controller.

use std::sync::Arc;

use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::{Event, EventType};
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

use super::builder::Kind;
use super::dependents::Dependents;
use crate::manager::ControllerContext;

/// Error of a reconcile of a native controller.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An object could not be applied.
    #[error("cannot apply {kind} {name}")]
    Apply {
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// The request error.
        #[source]
        source: kube::Error,
    },
    /// The status could not be written.
    #[error("cannot write the status of {name}")]
    Status {
        /// Name of the custom resource.
        name: String,
        /// The request error.
        #[source]
        source: kube::Error,
    },
    /// An object could not be serialized to JSON.
    #[error("cannot serialize the object")]
    Serialize(#[from] serde_json::Error),
    /// Other error.
    #[error(transparent)]
    Other(#[from] Box<dyn std::error::Error + Send + Sync>),
}

/// Context of one reconcile of a `K`.
#[derive(Clone)]
pub struct Context<K> {
    object: Arc<K>,
    manager: ControllerContext,
    dependents: Dependents,
    field_manager: String,
}

impl<K: Kind> Context<K> {
    pub(super) fn new(
        object: Arc<K>,
        manager: ControllerContext,
        dependents: Dependents,
        controller: &str,
    ) -> Self {
        Self {
            object,
            manager,
            dependents,
            field_manager: format!("{controller}-controller"),
        }
    }

    /// Returns the client, for requests that have no method here.
    pub fn client(&self) -> &Client {
        &self.manager.connection.client
    }

    /// Returns the cached objects of a type that the controller owns or watches, in the custom
    /// resource's namespace.
    pub fn cached<O: Kind>(&self) -> Vec<Arc<O>> {
        let namespace = self.object.namespace();
        let mut objects = self.dependents.all::<O>();
        objects.retain(|object| object.namespace() == namespace);
        objects
    }

    /// Applies an object by server-side apply, with the custom resource as its controller owner.
    /// Sends no request if the cached object already matches.
    ///
    /// # Errors
    /// If serialization or the request fails.
    pub async fn apply<O: Kind>(&self, object: &O) -> Result<(), Error> {
        let name = object.name_any();
        let kind = O::kind(&()).into_owned();
        let mut wanted = serde_json::to_value(object)?;
        if let Some(fields) = wanted.as_object_mut() {
            fields.insert("apiVersion".to_owned(), json!(O::api_version(&())));
            fields.insert("kind".to_owned(), json!(kind));
        }
        if let Some(metadata) = wanted.get_mut("metadata").and_then(Value::as_object_mut) {
            let owner = self.object.controller_owner_ref(&());
            metadata.insert("ownerReferences".to_owned(), json!([owner]));
        }
        for present in self.cached::<O>() {
            if present.name_any() == name && contains(&serde_json::to_value(&*present)?, &wanted) {
                return Ok(());
            }
        }
        let namespace = self.object.namespace().unwrap_or_default();
        let api: Api<O> = Api::namespaced(self.manager.connection.client.clone(), &namespace);
        let params = PatchParams::apply(&self.field_manager).force();
        api.patch(&name, &params, &Patch::Apply(&wanted))
            .await
            .map_err(|source| Error::Apply { kind, name, source })?;
        Ok(())
    }

    /// Patches the status if it differs from that of the custom resource.
    ///
    /// # Errors
    /// If serialization or the request fails.
    pub async fn patch_status<S: Serialize>(&self, status: &S) -> Result<(), Error> {
        let mut wanted = serde_json::to_value(status)?;
        let object = serde_json::to_value(&*self.object)?;
        let present = object.get("status").cloned().unwrap_or(Value::Null);
        if present == wanted {
            return Ok(());
        }
        if let (Some(wanted), Some(present)) = (wanted.as_object_mut(), present.as_object()) {
            for field in present.keys() {
                wanted.entry(field.clone()).or_insert(Value::Null);
            }
        }
        let name = self.object.name_any();
        let namespace = self.object.namespace().unwrap_or_default();
        let api: Api<K> = Api::namespaced(self.manager.connection.client.clone(), &namespace);
        let params = PatchParams {
            field_manager: Some(self.field_manager.clone()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(json!({"status": wanted}));
        api.patch_status(&name, &params, &patch)
            .await
            .map_err(|source| Error::Status { name, source })?;
        Ok(())
    }

    /// Sends an event about the custom resource, best effort.
    pub async fn event(&self, kind: EventType, reason: &str, action: &str, note: String) {
        let event = Event {
            type_: kind,
            reason: reason.to_owned(),
            note: Some(note),
            action: action.to_owned(),
            secondary: None,
        };
        let reference = self.object.object_ref(&());
        if let Err(error) = self
            .manager
            .connection
            .recorder
            .publish(&event, &reference)
            .await
        {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "cannot send an event"
            );
        }
    }
}

/// Returns whether `present` contains all fields of `wanted`.
fn contains(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (Value::Object(present), Value::Object(wanted)) => wanted.iter().all(|(key, value)| {
            value.is_null()
                || present
                    .get(key)
                    .is_some_and(|present| contains(present, value))
        }),
        (Value::Array(present), Value::Array(wanted)) => {
            present.len() == wanted.len() && present.iter().zip(wanted).all(|(p, w)| contains(p, w))
        }
        _ => present == wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::contains;

    #[test]
    fn fields_added_by_the_server_are_not_a_difference() {
        let wanted = json!({"spec": {"replicas": 2, "containers": [{"name": "a"}], "x": null}});
        for (present, expected) in [
            (
                json!({"spec": {"replicas": 2, "containers": [{"name": "a", "pull": "Always"}]}, "status": {}}),
                true,
            ),
            (
                json!({"spec": {"replicas": 3, "containers": [{"name": "a"}]}}),
                false,
            ),
            (
                json!({"spec": {"replicas": 2, "containers": [{"name": "a"}, {"name": "b"}]}}),
                false,
            ),
            (json!({"spec": {"containers": [{"name": "a"}]}}), false),
        ] {
            assert_eq!(contains(&present, &wanted), expected, "{present}");
        }
    }
}

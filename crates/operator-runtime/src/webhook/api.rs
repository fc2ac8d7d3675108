//! The requests of the webhooks to the API server.
//!
//! RBAC: `get`, `create` and `update` on Secrets of the operator's namespace; `get`, `create`,
//! `patch` and `delete` on webhook configurations; `get` and `patch` on definitions of kinds that
//! are converted.

use http::Method;
use kube::Client;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

use kube_objects::request::{self, Call};
use kube_objects::{ApiError, ApiKind, Scope};

/// An object of a kind that the webhooks read and write.
#[derive(Clone)]
pub(super) struct Object {
    client: Client,
    kind: ApiKind,
    namespace: Option<String>,
    name: String,
}

impl Object {
    /// Names a Secret.
    pub(super) fn secret(client: &Client, namespace: &str, name: &str) -> Self {
        let kind = GroupVersionKind::gvk("", "v1", "Secret");
        Self {
            client: client.clone(),
            kind: ApiKind::of_type(ApiResource::from_gvk(&kind), Scope::Namespaced),
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
        }
    }

    /// Names a cluster-scoped object of the type and name that `object` has.
    pub(super) fn of(client: &Client, group: &str, kind: &str, name: &str) -> Self {
        let kind = GroupVersionKind::gvk(group, "v1", kind);
        Self {
            client: client.clone(),
            kind: ApiKind::of_type(ApiResource::from_gvk(&kind), Scope::Cluster),
            namespace: None,
            name: name.to_owned(),
        }
    }

    pub(super) async fn get(&self) -> Result<Option<Value>, ApiError> {
        match self
            .call("get", Call::get(self.path(true)?, request::JSON))
            .await
        {
            Ok(found) => Ok(Some(found)),
            Err(ApiError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates the object; returns false if there is one already.
    pub(super) async fn create(&self, body: &Value) -> Result<bool, ApiError> {
        let path = self.path(false)?;
        self.write("create", Method::POST, path, request::JSON, body)
            .await
    }

    /// Replaces the version of the object that `body` names; returns false if it has changed.
    pub(super) async fn replace(&self, body: &Value) -> Result<bool, ApiError> {
        let path = self.path(true)?;
        self.write("update", Method::PUT, path, request::JSON, body)
            .await
    }

    /// Applies the fields in `body`, whoever owned them.
    pub(super) async fn apply(&self, body: &Value, manager: &str) -> Result<bool, ApiError> {
        let manager = request::query_value(manager);
        let path = format!("{}?fieldManager={manager}&force=true", self.path(true)?);
        self.write("patch", Method::PATCH, path, request::APPLY, body)
            .await
    }

    /// Deletes the object; returns false if it has changed.
    pub(super) async fn delete(&self, preconditions: &Value) -> Result<bool, ApiError> {
        let path = self.path(true)?;
        self.write("delete", Method::DELETE, path, request::JSON, preconditions)
            .await
    }

    fn path(&self, named: bool) -> Result<String, ApiError> {
        let name = named.then_some(&*self.name);
        Ok(request::path(&self.kind, self.namespace.as_deref(), name)?)
    }

    async fn write(
        &self,
        verb: &'static str,
        method: Method,
        path: String,
        content: &'static str,
        body: &Value,
    ) -> Result<bool, ApiError> {
        let body = body.to_string().into_bytes();
        let call = Call::with_body(method, path, request::JSON, content, body);
        match self.call(verb, call).await {
            Ok(_) => Ok(true),
            Err(ApiError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn call(&self, verb: &'static str, call: Call) -> Result<Value, ApiError> {
        let target = request::target(
            verb,
            &self.kind,
            self.namespace.as_deref(),
            Some(&self.name),
        );
        request::call(&self.client, target, call).await?.decode()
    }
}

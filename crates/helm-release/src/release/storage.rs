//! Storage of release records: Secrets or `ConfigMap`s.

use data_encoding::BASE64;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::ApiResource;
use serde_json::{Value, json};

/// The kind of object that holds a release record, as Helm's `HELM_DRIVER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Storage {
    /// Secrets, Helm's default.
    #[default]
    Secrets,
    /// `ConfigMap`s, for `HELM_DRIVER=configmap`. Records contain all rendered objects: with Secrets
    /// in the chart, whoever reads `ConfigMap`s reads their content.
    ConfigMaps,
}

impl Storage {
    pub(super) fn resource(self) -> ApiResource {
        match self {
            Self::Secrets => ApiResource::erase::<Secret>(&()),
            Self::ConfigMaps => ApiResource::erase::<ConfigMap>(&()),
        }
    }

    /// Returns an object with some content. Only Secrets have a type.
    pub(super) fn object(self, metadata: &Value, type_: &str, key: &str, content: &str) -> Value {
        match self {
            Self::Secrets => json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": metadata,
                "type": type_,
                "data": {key: BASE64.encode(content.as_bytes())},
            }),
            Self::ConfigMaps => json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": metadata,
                "data": {key: content},
            }),
        }
    }

    /// Returns the content of a value; `None` if it is not encoded as in this kind.
    pub(super) fn content(self, value: &str) -> Option<Vec<u8>> {
        match self {
            Self::Secrets => BASE64.decode(value.as_bytes()).ok(),
            Self::ConfigMaps => Some(value.as_bytes().to_vec()),
        }
    }
}

//! Reads of objects: whole objects for `lookup`, metadata for everything else.
//!
//! A missing object (`None`) is distinguished from a failed read: a missing permission or an
//! unavailable server must never look like an object that does not exist.

use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use kube::core::GroupVersionKind;
use object_key::ObjectKey;
use serde::Deserialize;
use serde_json::Value;

use super::request::{self, Call};
use super::{ApiError, ApiKind, Cluster, DiscoveryError, Scope};

/// Maximum number of objects per page of a list.
const PAGE: u32 = 500;

/// Error of reading an object.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The kind of the object cannot be found out.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// The request failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Discovery does not say completely which kinds are served.
    #[error("cannot tell which kinds the cluster serves")]
    Unproven(#[source] DiscoveryError),
}

impl ReadError {
    /// Returns the kind of the error, for metrics and traces.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Discovery(error) | Self::Unproven(error) => error.reason(),
            Self::Api(error) => error.reason(),
        }
    }

    /// Returns whether the same read may succeed later without any change.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Discovery(error) => error.is_transient(),
            Self::Api(error) => error.is_transient(),
            // Whatever keeps the API server from saying what it serves does not concern the object.
            Self::Unproven(_) => true,
        }
    }
}

/// An object of which only the metadata is decoded.
#[derive(Deserialize)]
pub(super) struct Metadata {
    #[serde(default)]
    pub(super) metadata: ObjectMeta,
}

#[derive(Deserialize)]
struct MetadataList {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default, deserialize_with = "request::nullable")]
    items: Vec<Metadata>,
}

/// Reads an object; `None` if it does not exist. The key of a namespaced object must have a
/// namespace.
///
/// # Errors
/// [`DiscoveryError::UnknownKind`] if the kind is not served.
pub async fn get(cluster: &Cluster, key: &ObjectKey) -> Result<Option<Value>, ReadError> {
    let kind = cluster.resolve(&gvk_of(key)).await?;
    let namespace = namespace_of(&kind, key.namespace.as_deref());
    let answer = whole(cluster, &kind, namespace, &key.name).await;
    answer.map_err(|error| failed(cluster, &kind, error))
}

/// Reads an object of a kind; `None` if it does not exist.
pub async fn whole(
    cluster: &Cluster,
    kind: &ApiKind,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<Value>, ApiError> {
    let uri = request::path(kind, namespace, Some(name))?;
    let target = request::target("get", kind, namespace, Some(name));
    let call = Call::get(uri, request::JSON);
    match request::call(cluster.client(), target, call).await {
        Ok(answer) => Ok(Some(answer.decode()?)),
        Err(error) if error.is_not_found() && !error.is_unserved() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lists the objects of a kind as the API server's list object (`kind: PodList`, `items`), which
/// `lookup` returns to templates. A `namespace` of `None` lists all namespaces.
pub async fn list(
    cluster: &Cluster,
    gvk: &GroupVersionKind,
    namespace: Option<&str>,
) -> Result<Value, ReadError> {
    let kind = cluster.resolve(gvk).await?;
    let namespace = namespace_of(&kind, namespace);
    let uri = request::path(&kind, namespace, None).map_err(ApiError::from)?;
    let target = request::target("list", &kind, namespace, None);
    let call = Call::get(uri, request::JSON);
    match request::call(cluster.client(), target, call).await {
        Ok(answer) => Ok(answer.decode()?),
        Err(error) => Err(failed(cluster, &kind, error)),
    }
}

/// Reads the metadata of an object; `None` if it does not exist.
pub async fn get_metadata(
    cluster: &Cluster,
    key: &ObjectKey,
) -> Result<Option<ObjectMeta>, ReadError> {
    let kind = cluster.resolve(&gvk_of(key)).await?;
    let namespace = namespace_of(&kind, key.namespace.as_deref());
    let answer = metadata(cluster, &kind, namespace, &key.name).await;
    answer.map_err(|error| failed(cluster, &kind, error))
}

/// Reads the metadata of an object of a kind; `None` if it does not exist.
pub async fn metadata(
    cluster: &Cluster,
    kind: &ApiKind,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<ObjectMeta>, ApiError> {
    let uri = request::path(kind, namespace, Some(name))?;
    let target = request::target("get", kind, namespace, Some(name));
    let call = Call::get(uri, request::METADATA_ONLY);
    match request::call(cluster.client(), target, call).await {
        Ok(answer) => Ok(Some(answer.decode::<Metadata>()?.metadata)),
        Err(error) if error.is_not_found() && !error.is_unserved() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lists the metadata of objects page by page, until the last page or until `stop` returns true for
/// an object.
pub async fn list_metadata(
    cluster: &Cluster,
    kind: &ApiKind,
    namespace: Option<&str>,
    selector: Option<&str>,
    stop: Option<&(dyn Fn(&ObjectMeta) -> bool + Sync)>,
) -> Result<Vec<ObjectMeta>, ApiError> {
    let mut objects = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let mut uri = format!("{}?limit={PAGE}", request::path(kind, namespace, None)?);
        for (name, value) in [("labelSelector", selector), ("continue", next.as_deref())] {
            if let Some(value) = value {
                // Writing to a String cannot fail.
                let _ = write!(uri, "&{name}={}", request::query_value(value));
            }
        }
        let target = request::target("list", kind, namespace, None);
        let call = Call::get(uri, request::METADATA_LIST);
        let page: MetadataList = request::call(cluster.client(), target, call)
            .await?
            .decode()?;
        let enough = stop.is_some_and(|stop| page.items.iter().any(|item| stop(&item.metadata)));
        objects.extend(page.items.into_iter().map(|item| item.metadata));
        next = page.metadata.continue_.filter(|token| !token.is_empty());
        if enough || next.is_none() {
            return Ok(objects);
        }
    }
}

fn failed(cluster: &Cluster, kind: &ApiKind, error: ApiError) -> ReadError {
    match unserved(cluster, kind, &error) {
        Some(unserved) => unserved.into(),
        None => error.into(),
    }
}

/// Returns the error of a kind that is not served, if the failure of a request says so. The kind is looked for anew
/// when it is next needed.
pub(super) fn unserved(
    cluster: &Cluster,
    kind: &ApiKind,
    error: &ApiError,
) -> Option<DiscoveryError> {
    if !error.is_unserved() {
        return None;
    }
    cluster.group_changed(&kind.resource.group);
    Some(DiscoveryError::UnknownKind {
        api_version: kind.resource.api_version.clone(),
        kind: kind.resource.kind.clone(),
    })
}

fn namespace_of<'a>(kind: &ApiKind, namespace: Option<&'a str>) -> Option<&'a str> {
    namespace.filter(|_| kind.scope == Scope::Namespaced)
}

fn gvk_of(key: &ObjectKey) -> GroupVersionKind {
    GroupVersionKind::gvk(&key.group, &key.version, &key.kind)
}

//! Finds objects whatever has become of the version in which they were applied.
//!
//! An object is the same in each version of its group. When a version is no longer served, its objects
//! are read and deleted in another one; when the whole kind is gone, so are they. That a kind is gone
//! has to be proven, because a deletion that is skipped by mistake leaves objects behind.

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::core::GroupVersionKind;
use object_key::ObjectKey;

use super::ownership::placed;
use super::read::ReadError;
use super::{ApiError, ApiKind, Cluster, DiscoveryError};

/// Returns the key in the cluster of an object of a manifest: with a version that is served, and with a
/// namespace if its kind is namespaced. `None` is proof that the object does not exist, because its
/// kind is not served in any version.
///
/// # Errors
/// When the API server does not say completely what it serves.
pub async fn locate(
    cluster: &Cluster,
    key: &ObjectKey,
    release_namespace: &str,
) -> Result<Option<ObjectKey>, ReadError> {
    let Some(kind) = find(cluster, key).await? else {
        return Ok(None);
    };
    let resource = &kind.resource;
    Ok(Some(ObjectKey {
        group: resource.group.clone(),
        version: resource.version.clone(),
        ..placed(key, kind.scope, release_namespace)
    }))
}

/// Returns the kind that serves an object now; `None` is proof that there is none.
async fn find(cluster: &Cluster, key: &ObjectKey) -> Result<Option<Arc<ApiKind>>, ReadError> {
    let gvk = GroupVersionKind::gvk(&key.group, &key.version, &key.kind);
    let found = cluster.discovery().find(&gvk).await;
    found.map_err(ReadError::Unproven)
}

/// Sends a request about an object of this kind. If the API server does not know the path, it is asked
/// which kinds it serves now, and the request is sent once more. `None` is proof that the kind is gone.
///
/// # Errors
/// Those of the request, and when the API server does not say completely what it serves.
pub async fn of_kind<'f, T>(
    cluster: &Cluster,
    key: &ObjectKey,
    send: impl Fn(Arc<ApiKind>) -> BoxFuture<'f, Result<T, ApiError>>,
) -> Result<Option<T>, ReadError> {
    for is_last in [false, true] {
        let Some(kind) = find(cluster, key).await? else {
            return Ok(None);
        };
        match send(Arc::clone(&kind)).await {
            Ok(answer) => return Ok(Some(answer)),
            Err(error) if !error.is_unserved() => return Err(error.into()),
            Err(_) if is_last => break,
            Err(_) => {
                cluster.group_changed(&kind.resource.group);
                let asked = cluster.discovery().refresh().await;
                asked.map_err(ReadError::Unproven)?;
            }
        }
    }
    Err(ReadError::Discovery(DiscoveryError::Unsettled {
        api_version: key.api_version(),
        kind: key.kind.clone(),
    }))
}

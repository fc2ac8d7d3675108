//! Finds the objects that blocked an attempt. A change of one of them triggers an immediate retry.
//!
//! RBAC: `list` and `watch` on `resourcequotas`; without it, a release blocked by a quota is
//! retried with the usual backoff.

use kube::core::{ApiResource, GroupVersionKind};
use kube_objects::apply::ApplyError;
use kube_objects::{DiscoveryError, Scope, read};

use super::super::interest::ResourceRef;
use super::super::memory::Obstacles;
use super::context::ActContext;
use crate::action::ActionError;

/// Returns the objects that caused an error and starts watching them. Empty if nothing can be
/// watched; the release is then retried with the usual backoff.
pub(super) async fn of(context: &ActContext<'_>, error: &ActionError) -> Obstacles {
    let none = Obstacles::default;
    let ActionError::Apply(error) = error else {
        return none();
    };
    let interests = &context.access.interests;
    let core = |kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
    let target = match error {
        // The name is taken by an object of another owner.
        ApplyError::Foreign { key, .. } => {
            let gvk = GroupVersionKind::gvk(&key.group, &key.version, &key.kind);
            let Ok(kind) = context.target.cluster.resolve(&gvk).await else {
                return none();
            };
            let namespaced = kind.scope == Scope::Namespaced;
            ResourceRef {
                resource: kind.resource.clone(),
                namespace: key.namespace.clone().filter(|_| namespaced),
                name: Some(key.name.clone()),
            }
        }
        ApplyError::NamespaceMissing { key } => ResourceRef {
            resource: core("Namespace"),
            namespace: None,
            name: key.namespace.clone(),
        },
        // An exhausted quota and a missing permission are both answered with 403.
        ApplyError::Api(error) if error.status().is_some_and(|status| status.code == 403) => {
            if !has_quota(context).await {
                return none();
            }
            ResourceRef {
                resource: core("ResourceQuota"),
                namespace: Some(context.target.namespace.clone()),
                name: None,
            }
        }
        ApplyError::Discovery(DiscoveryError::UnknownKind { api_version, kind }) => {
            let epoch = Some(context.access.cluster.capabilities_epoch());
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let gvk = GroupVersionKind::gvk(group, version, kind);
            interests.add_kind(&gvk, &context.target.key());
            return Obstacles {
                objects: Vec::new(),
                epoch,
            };
        }
        _ => return none(),
    };
    let seen = interests.add(&target, &context.target.key());
    Obstacles {
        objects: vec![(target, seen)],
        epoch: None,
    }
}

/// Returns whether the release namespace has a quota; `false` if quotas cannot be listed.
async fn has_quota(context: &ActContext<'_>) -> bool {
    let gvk = GroupVersionKind::gvk("", "v1", "ResourceQuota");
    let namespace = Some(context.target.namespace.as_str());
    let list = read::list(&context.access.cluster, &gvk, namespace).await;
    let items = list.ok().and_then(|list| list.get("items").cloned());
    items.is_some_and(|items| items.as_array().is_some_and(|items| !items.is_empty()))
}

//! What stood in the way of an attempt, as objects whose change is worth another attempt at once.
//!
//! RBAC: `list` and `watch` on `resourcequotas`; without it, a release that a quota has stopped goes
//! on at the pace of its attempts.

use kube::core::{ApiResource, GroupVersionKind};

use super::super::interest::Named;
use super::super::memory::Obstacles;
use super::ActContext;
use crate::action::ActionError;
use crate::cluster::apply::ApplyError;
use crate::cluster::{DiscoveryError, Scope, read};

/// The objects behind an error, each followed from now on. Empty where nothing can be followed: the
/// attempts then go on at their own pace.
pub(super) async fn of(context: &ActContext<'_>, error: &ActionError) -> Obstacles {
    let none = Obstacles::default;
    let ActionError::Apply(error) = error else {
        return none();
    };
    let (subject, interests) = (context.subject, &context.access.interests);
    let core = |kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
    let named = match error {
        // Somebody else's object has the name.
        ApplyError::Foreign { key, .. } => {
            let gvk = GroupVersionKind::gvk(&key.group, &key.version, &key.kind);
            let Ok(kind) = subject.cluster.resolve(&gvk).await else {
                return none();
            };
            let namespaced = kind.scope == Scope::Namespaced;
            Named {
                resource: kind.resource.clone(),
                namespace: key.namespace.clone().filter(|_| namespaced),
                name: Some(key.name.clone()),
            }
        }
        ApplyError::NamespaceMissing { key } => Named {
            resource: core("Namespace"),
            namespace: None,
            name: key.namespace.clone(),
        },
        // A quota may be exhausted: the answer is the same as for a missing permission.
        ApplyError::Api(error) if error.status().is_some_and(|status| status.code == 403) => {
            if !has_quota(context).await {
                return none();
            }
            Named {
                resource: core("ResourceQuota"),
                namespace: Some(subject.namespace.clone()),
                name: None,
            }
        }
        ApplyError::Discovery(DiscoveryError::UnknownKind { api_version, kind }) => {
            let epoch = Some(context.access.cluster.capabilities_epoch());
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let gvk = GroupVersionKind::gvk(group, version, kind);
            interests.add_kind(&gvk, &subject.key());
            return Obstacles {
                objects: Vec::new(),
                epoch,
            };
        }
        _ => return none(),
    };
    let seen = interests.add(&named, &subject.key());
    Obstacles {
        objects: vec![(named, seen)],
        epoch: None,
    }
}

/// Whether there is a quota in the release's namespace, as far as that may be seen.
async fn has_quota(context: &ActContext<'_>) -> bool {
    let gvk = GroupVersionKind::gvk("", "v1", "ResourceQuota");
    let namespace = Some(context.subject.namespace.as_str());
    let list = read::list(&context.access.cluster, &gvk, namespace, None).await;
    let items = list.ok().and_then(|list| list.get("items").cloned());
    items.is_some_and(|items| items.as_array().is_some_and(|items| !items.is_empty()))
}

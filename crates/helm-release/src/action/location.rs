//! The place of an object in the cluster, with the watch that shows it.

use std::sync::Arc;

use helm_core::manifest::ObjectKey;
use kube::core::GroupVersionKind;
use kube_objects::ownership::{operator_selector, placed};
use kube_objects::shards::By;
use kube_objects::watch::{WatchGuard, WatchKey};
use kube_objects::{ApiKind, DiscoveryError, Scope};

use super::context::ActionContext;

/// The key of an object in the cluster, its kind, and the watch that shows it.
pub(crate) struct ObjectLocation {
    pub(crate) key: ObjectKey,
    pub(crate) kind: Arc<ApiKind>,
    pub(crate) guard: WatchGuard,
}

/// Locates an object of the release in the cluster and acquires its watch.
pub(super) async fn locate(
    context: &ActionContext<'_>,
    key: &ObjectKey,
) -> Result<ObjectLocation, DiscoveryError> {
    let gvk = GroupVersionKind::gvk(&key.group, &key.version, &key.kind);
    let kind = context.cluster.resolve(&gvk).await?;
    let key = placed(key, kind.scope, context.namespace);
    // With a list of namespaces, the operator may only read there.
    let lists_all = context.namespaces.is_empty();
    let namespace = match (&key.namespace, kind.scope) {
        (Some(namespace), Scope::Namespaced) if !lists_all => Some(namespace.clone()),
        _ => None,
    };
    let watch = WatchKey {
        resource: kind.resource.clone(),
        namespace,
        selector: operator_selector(context.operator),
        fields: context.kept_fields.get(&gvk.kind).cloned(),
        by: if key.namespace == context.primary.namespace {
            By::Namespace
        } else {
            By::Owner
        },
    };
    Ok(ObjectLocation {
        key,
        kind,
        guard: context.registry.acquire(watch),
    })
}

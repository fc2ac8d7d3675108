//! `ObjectIdentity`: which object of a cluster a document describes.
//!
//! An object is the same in any version of its group, and the namespace of a document means nothing if
//! the kind is cluster-scoped. Only the cluster knows which kinds are; whoever has asked it passes a
//! function that says so.

use super::ObjectKey;

/// The identity of an object in a cluster: group, kind, namespace if the kind is namespaced, and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectIdentity<'k> {
    group: &'k str,
    kind: &'k str,
    namespace: Option<&'k str>,
    name: &'k str,
}

impl<'k> ObjectIdentity<'k> {
    /// Returns the identity of an object of a manifest. A namespaced object without a namespace is in
    /// `namespace`.
    ///
    /// ```
    /// use object_key::{ObjectIdentity, ObjectKey};
    /// let object = serde_json::json!({
    ///     "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
    ///     "metadata": {"name": "reader", "namespace": "ignored"},
    /// });
    /// let key = ObjectKey::of(&object).unwrap();
    /// let bare = ObjectKey { namespace: None, ..key.clone() };
    /// let is_cluster_scoped = |key: &ObjectKey| key.kind.starts_with("Cluster");
    /// assert_eq!(
    ///     ObjectIdentity::of(&key, "prod", &is_cluster_scoped),
    ///     ObjectIdentity::in_cluster(&bare),
    /// );
    /// ```
    pub fn of(
        key: &'k ObjectKey,
        namespace: &'k str,
        is_cluster_scoped: &dyn Fn(&ObjectKey) -> bool,
    ) -> Self {
        let own = key.namespace.as_deref().unwrap_or(namespace);
        Self {
            namespace: (!is_cluster_scoped(key)).then_some(own),
            ..Self::in_cluster(key)
        }
    }

    /// Returns the identity of an object whose key has a namespace only if its kind is namespaced.
    pub fn in_cluster(key: &'k ObjectKey) -> Self {
        Self {
            group: &key.group,
            kind: &key.kind,
            namespace: key.namespace.as_deref(),
            name: &key.name,
        }
    }
}

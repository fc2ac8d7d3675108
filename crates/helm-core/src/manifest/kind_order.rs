//! The order in which kinds are installed and uninstalled (Helm's `kind_sorter.go`).

use std::cmp::Ordering;

/// Kinds in the order of installation.
pub const INSTALL: &[&str] = &[
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleList",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    "Role",
    "RoleList",
    "RoleBinding",
    "RoleBindingList",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// Kinds in the order of uninstallation, which is not the reverse of [`INSTALL`].
pub const UNINSTALL: &[&str] = &[
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "APIService",
    "Ingress",
    "IngressClass",
    "Service",
    "CronJob",
    "Job",
    "StatefulSet",
    "HorizontalPodAutoscaler",
    "Deployment",
    "ReplicaSet",
    "ReplicationController",
    "Pod",
    "DaemonSet",
    "RoleBindingList",
    "RoleBinding",
    "RoleList",
    "Role",
    "ClusterRoleBindingList",
    "ClusterRoleBinding",
    "ClusterRoleList",
    "ClusterRole",
    "CustomResourceDefinition",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "ConfigMap",
    "SecretList",
    "Secret",
    "ServiceAccount",
    "PodDisruptionBudget",
    "PodSecurityPolicy",
    "LimitRange",
    "ResourceQuota",
    "NetworkPolicy",
    "Namespace",
    "PriorityClass",
];

/// One of the two orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindOrder {
    /// The order of [`INSTALL`].
    Install,
    /// The order of [`UNINSTALL`].
    Uninstall,
}

impl KindOrder {
    /// Compares two kinds by the table; unknown kinds come last, by name.
    ///
    /// ```
    /// use std::cmp::Ordering;
    /// use helm_core::manifest::KindOrder;
    /// assert_eq!(KindOrder::Install.compare("Service", "Deployment"), Ordering::Less);
    /// assert_eq!(KindOrder::Install.compare("Widget", "Deployment"), Ordering::Greater);
    /// assert_eq!(KindOrder::Uninstall.compare("Widget", "Gadget"), Ordering::Greater);
    /// ```
    pub fn compare(self, a: &str, b: &str) -> Ordering {
        match (self.rank(a), self.rank(b)) {
            (Some(a), Some(b)) => a.cmp(&b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => a.cmp(b),
        }
    }

    /// Returns the position of `kind` in the table, or `None` for unknown kinds, which come last.
    /// Objects of one rank can be applied concurrently.
    pub fn rank(self, kind: &str) -> Option<usize> {
        let table = match self {
            Self::Install => INSTALL,
            Self::Uninstall => UNINSTALL,
        };
        table.iter().position(|known| *known == kind)
    }

    /// Sorts stably by kind.
    pub fn sort<T>(self, items: &mut [T], kind: impl Fn(&T) -> &str) {
        items.sort_by_cached_key(|item| {
            let kind = kind(item);
            match self.rank(kind) {
                Some(rank) => (rank, String::new()),
                None => (usize::MAX, kind.to_owned()),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tables_have_the_same_kinds() {
        let sorted = |table: &[&'static str]| {
            let mut kinds = table.to_vec();
            kinds.sort_unstable();
            kinds
        };
        assert_eq!(sorted(INSTALL), sorted(UNINSTALL));
    }

    #[test]
    fn sorting_agrees_with_comparing() {
        for order in [KindOrder::Install, KindOrder::Uninstall] {
            let mut kinds = [INSTALL, &["Zebra", "Ant", "", "ant"]].concat();
            let mut compared = kinds.clone();
            order.sort(&mut kinds, |kind| kind);
            compared.sort_by(|a, b| order.compare(a, b));
            assert_eq!(kinds, compared);
        }
    }

    #[test]
    fn sorting_keeps_the_order_within_a_kind() {
        let mut items = [
            ("Service", 1),
            ("Zebra", 2),
            ("Secret", 3),
            ("Service", 4),
            ("Ant", 5),
        ];
        KindOrder::Install.sort(&mut items, |item| item.0);
        assert_eq!(items.map(|item| item.1), [3, 1, 4, 5, 2]);
    }
}

//! Rings of kubernetes-controller-sharding, with what their sharder may do.

use std::collections::BTreeMap;

/// Resources of the ring, by API group.
pub(crate) type Resources = BTreeMap<String, Vec<String>>;

/// Returns the ring and the permissions of the sharder, as the YAML of a file.
pub(crate) fn ring(name: &str, resources: &Resources) -> String {
    let each = resources.iter().flat_map(|(group, plurals)| {
        let line = move |plural| format!("  - group: {group}\n    resource: {plural}\n");
        plurals.iter().map(line)
    });
    let listed: String = each.collect();
    let rules = resources.iter().map(|(group, plurals)| {
        let plurals = plurals.join(", ");
        format!("- apiGroups: [{group}]\n  resources: [{plurals}]\n  verbs: [list, patch]\n")
    });
    let rules: String = rules.collect();
    format!(
        "\
# The replicas of an operator that is run with --shard-ring={name}, and what the sharder of
# kubernetes-controller-sharding may do with their custom resources.
apiVersion: sharding.timebertt.dev/v1alpha1
kind: ControllerRing
metadata:
  name: {name}
spec:
  resources:
{listed}---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: sharding:controllerring:{name}
rules:
{rules}---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: sharding:controllerring:{name}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: sharding:controllerring:{name}
subjects:
- kind: ServiceAccount
  name: sharder
  namespace: sharding-system
"
    )
}

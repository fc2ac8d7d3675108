//! The manifests of roles and bindings.

use super::rules::Rules;

/// Whether a role is for one namespace or for the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoleScope {
    /// `ClusterRole` and `ClusterRoleBinding`.
    Cluster,
    /// Role and `RoleBinding` in the operator's namespace.
    Namespace,
}

impl RoleScope {
    fn prefix(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Namespace => "",
        }
    }

    /// Returns the line that puts an object into the namespace, which kustomize replaces by that of
    /// the operator.
    fn namespace(self) -> &'static str {
        match self {
            Self::Cluster => "",
            Self::Namespace => "  namespace: system\n",
        }
    }
}

/// Returns the manifest of a role. `comment` is its first lines, without `#`.
pub(crate) fn role(scope: RoleScope, name: &str, comment: &str, rules: &Rules) -> String {
    let comment: Vec<String> = comment.lines().map(|line| format!("# {line}")).collect();
    let comment = comment.join("\n");
    let (prefix, namespace) = (scope.prefix(), scope.namespace());
    let list = rules.to_yaml();
    let body = if list.is_empty() {
        "rules: []\n".to_owned()
    } else {
        format!("rules:\n{list}")
    };
    format!(
        "{comment}\napiVersion: rbac.authorization.k8s.io/v1\nkind: {prefix}Role\nmetadata:\n  name: {name}\n{namespace}{body}"
    )
}

/// Returns the manifest of a binding of a role to the operator's service account.
pub(crate) fn binding(scope: RoleScope, name: &str, role: &str) -> String {
    let (prefix, namespace) = (scope.prefix(), scope.namespace());
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: {prefix}RoleBinding
metadata:
  name: {name}
{namespace}roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {prefix}Role
  name: {role}
subjects:
- kind: ServiceAccount
  name: controller-manager
  namespace: system
"
    )
}

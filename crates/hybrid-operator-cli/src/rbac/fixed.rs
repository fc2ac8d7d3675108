//! The roles that do not depend on a chart: those that every operator needs, and those for users of
//! a kind.

use super::write::RoleScope;

/// Returns the role that every operator needs.
pub(crate) fn operator_role(scope: RoleScope) -> String {
    let (kind, namespace) = match scope {
        RoleScope::Cluster => ("ClusterRole", ""),
        RoleScope::Namespace => ("Role", "  namespace: system\n"),
    };
    let mut text = format!(
        "# Permissions that every hybrid operator needs, regardless of its charts and controllers.
apiVersion: rbac.authorization.k8s.io/v1
kind: {kind}
metadata:
  name: operator-role
{namespace}rules:
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
"
    );
    if scope == RoleScope::Cluster {
        text.push_str(
            "\
# Detects new kinds immediately. Without this permission, discovery runs every ten minutes.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [list, watch]
- apiGroups: [apiregistration.k8s.io]
  resources: [apiservices]
  verbs: [list, watch]
",
        );
    }
    text.push_str(
        "\
# Retries a release that exceeded a quota when the quota changes.
- apiGroups: [\"\"]
  resources: [resourcequotas]
  verbs: [list, watch]
# Finds why a release is not ready: its Pods, their events, and the last lines of a crashed container.
- apiGroups: [\"\"]
  resources: [events, pods]
  verbs: [list]
- apiGroups: [\"\"]
  resources: [pods/log]
  verbs: [get]
",
    );
    text
}

pub(crate) const LEADER_ELECTION_ROLE: &str = "\
# The Lease for leader election.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: leader-election-role
  namespace: system
rules:
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, list, create, update, patch]
";

/// The role for asking who reads the metrics and what they may do.
pub(crate) const METRICS_AUTH_ROLE: &str = "\
# With --metrics-require-rbac the operator asks the API server about the clients of /metrics.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: metrics-auth-role
rules:
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
";

/// The role for clients of the metrics.
pub(crate) const METRICS_READER_ROLE: &str = "\
# For Prometheus: allows reading /metrics with --metrics-require-rbac. The operator does not need it.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: metrics-reader
rules:
- nonResourceURLs: [/metrics]
  verbs: [get]
";

/// The operator's service account.
pub(crate) const SERVICE_ACCOUNT: &str = "\
apiVersion: v1
kind: ServiceAccount
metadata:
  name: controller-manager
  namespace: system
";

/// Objects that a project needs so that its operator serves webhooks for `admission`, by file.
pub(crate) const ADMISSION: [(&str, &str); 3] = [
    (
        "admission/role.yaml",
        include_str!("../../templates/webhook/role.yaml"),
    ),
    (
        "admission/role_binding.yaml",
        include_str!("../../templates/webhook/role_binding.yaml"),
    ),
    ("admission/service.yaml", ADMISSION_SERVICE),
];

const ADMISSION_SERVICE: &str = "\
# The API server asks the operator about custom resources through it.
apiVersion: v1
kind: Service
metadata:
  name: webhook
  namespace: system
spec:
  ports:
  - port: 443
    targetPort: 9443
  selector:
    control-plane: controller-manager
";

/// Permissions of a role for users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everything.
    Admin,
    /// Reading and writing.
    Editor,
    /// Reading.
    Viewer,
}

impl Access {
    /// All of them, in the order of their files.
    pub(crate) const ALL: [Self; 3] = [Self::Admin, Self::Editor, Self::Viewer];

    /// Returns the name as in file names.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Editor => "editor",
            Self::Viewer => "viewer",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Editor => "edit",
            Self::Viewer => "read",
        }
    }

    fn verbs(self) -> &'static str {
        match self {
            Self::Admin => "\"*\"",
            Self::Editor => "create, delete, get, list, patch, update, watch",
            Self::Viewer => "get, list, watch",
        }
    }
}

/// Returns a role for users of a kind, whose name in lower case is `name`.
pub(crate) fn user_role(access: Access, name: &str, group: &str, plural: &str) -> String {
    let (as_, description, verbs) = (access.name(), access.description(), access.verbs());
    format!(
        "# For users: {description} access to {plural}. The operator does not need it.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {name}-{as_}-role
rules:
- apiGroups: [{group}]
  resources: [{plural}]
  verbs: [{verbs}]
- apiGroups: [{group}]
  resources: [{plural}/status]
  verbs: [get]
"
    )
}

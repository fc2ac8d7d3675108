//! The role for a native controller, from what the operator's program says about itself.

use std::collections::BTreeMap;

use kube::core::GroupVersionKind;
use serde::Deserialize;
use serde_json::Value;

use super::rules::{Rules, grants_of};
use super::write::{RoleScope, role};

/// A native controller, as the program of an operator describes it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Controller {
    pub(crate) name: String,
    /// API group of its kind.
    #[serde(default)]
    pub(crate) group: String,
    /// API version of its kind.
    pub(crate) version: String,
    pub(crate) kind: String,
    /// The kinds of objects that it owns.
    #[serde(default)]
    pub(crate) owns: Vec<GroupVersionKind>,
    /// Permissions that it needs, as the `rules` of a role.
    #[serde(default)]
    pub(crate) rules: Value,
}

/// The role of a native controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NativeRole {
    /// Kind of the controller in lower case, for the name of the file.
    pub(crate) name: String,
    /// The manifest.
    pub(crate) text: String,
}

/// Returns the role of each native controller, sorted by name. Controllers of one kind share a role.
pub(crate) fn native_role(controllers: &[Controller], scope: RoleScope) -> Vec<NativeRole> {
    let mut by_kind: BTreeMap<String, Vec<&Controller>> = BTreeMap::default();
    for controller in controllers {
        let kind = controller.kind.to_lowercase();
        by_kind.entry(kind).or_default().push(controller);
    }
    by_kind
        .into_iter()
        .map(|(name, controllers)| {
            let mut rules = Rules::default();
            for controller in &controllers {
                let comment = format!(
                    "The controller {} of {}.",
                    controller.name,
                    [&*controller.group, &controller.version, &controller.kind]
                        .into_iter()
                        .filter(|part| !part.is_empty())
                        .collect::<Vec<_>>()
                        .join("/")
                );
                rules.add(&comment, grants_of(&controller.rules, &comment));
            }
            let comment = format!("What the native controller of {name} does.");
            let text = role(scope, &format!("native-{name}-role"), &comment, &rules);
            NativeRole { name, text }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_role_with_the_rules_of_its_controllers() {
        let controllers: Vec<Controller> = serde_json::from_str(
            r#"[{
                "name": "memcached-backup", "group": "cache.example.com", "version": "v1alpha1",
                "kind": "MemcachedBackup",
                "rules": [
                    {"apiGroups": ["cache.example.com"], "resources": ["memcachedbackups"],
                     "verbs": ["watch", "get", "list"]},
                    {"apiGroups": ["cache.example.com"], "resources": ["memcachedbackups/status"],
                     "verbs": ["patch"]}
                ]}]"#,
        )
        .unwrap();
        let expected = "\
# What the native controller of memcachedbackup does.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: native-memcachedbackup-role
rules:
# The controller memcached-backup of cache.example.com/v1alpha1/MemcachedBackup.
- apiGroups: [cache.example.com]
  resources: [memcachedbackups]
  verbs: [get, list, watch]
- apiGroups: [cache.example.com]
  resources: [memcachedbackups/status]
  verbs: [patch]
";
        let roles = native_role(&controllers, RoleScope::Cluster);
        assert_eq!(
            roles,
            [NativeRole {
                name: "memcachedbackup".to_owned(),
                text: expected.to_owned()
            }]
        );
    }
}

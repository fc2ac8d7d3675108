//! Permissions that a native controller needs, derived from how it is built.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::controller::TypedObject;

/// Returns a rule for resources of one API group.
pub(super) fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

fn of<O: TypedObject>(subresource: &str, verbs: &[&str]) -> PolicyRule {
    let resource = format!("{}{subresource}", O::plural(&()));
    rule(&O::group(&()), &[&resource], verbs)
}

/// Returns the rules for the custom resource itself. Objects that name it as their owner block its
/// deletion, for which `update` of its finalizers is needed where the admission plugin
/// `OwnerReferencesPermissionEnforcement` is on.
pub(super) fn of_primary<K: TypedObject>(finalizer: bool) -> Vec<PolicyRule> {
    let verbs: &[&str] = if finalizer {
        &["get", "list", "patch", "watch"]
    } else {
        &["get", "list", "watch"]
    };
    vec![
        of::<K>("", verbs),
        of::<K>("/status", &["patch"]),
        of::<K>("/finalizers", &["update"]),
    ]
}

/// Returns the rule that [`Builder::owns`](super::Builder::owns) needs.
pub(super) fn of_owned<O: TypedObject>() -> PolicyRule {
    of::<O>("", &["create", "delete", "get", "list", "patch", "watch"])
}

/// Returns the rule that watching a type needs; a function may also read its objects.
pub(super) fn of_watched<O: TypedObject>() -> PolicyRule {
    of::<O>("", &["get", "list", "watch"])
}

/// Combines rules for the same resources. The order is that of the first of each.
pub(super) fn combined(rules: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut combined: Vec<PolicyRule> = Vec::new();
    let mut seen: BTreeMap<_, usize> = BTreeMap::new();
    for rule in rules {
        let key = (
            rule.api_groups.clone(),
            rule.resources.clone(),
            rule.resource_names.clone(),
            rule.non_resource_urls.clone(),
        );
        if let Some(present) = seen.get(&key).and_then(|index| combined.get_mut(*index)) {
            present.verbs.extend(rule.verbs);
            present.verbs.sort();
            present.verbs.dedup();
        } else {
            seen.insert(key, combined.len());
            combined.push(rule);
        }
    }
    combined
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
    use serde_json::json;

    use crate::manager::Controller as _;
    use crate::native::{self, Action};

    #[test]
    fn permissions_follow_from_how_a_controller_is_built() {
        let controller = native::controller::<ConfigMap>("maps")
            .owns::<Pod>()
            .watches::<Pod, _>(|_| None)
            .watches_metadata::<Service, _>(|_| None)
            .needs("", &["secrets"], &["get"])
            .finalizer("example.com/end", |_, _| async { Ok(Action::done()) })
            .reconcile(|_, _| async { Ok(Action::done()) });
        let of = |resource: &str, verbs: &[&str]| json!({"apiGroups": [""], "resources": [resource], "verbs": verbs});
        let read = ["get", "list", "watch"];
        assert_eq!(
            serde_json::to_value(controller.permissions()).unwrap(),
            json!([
                of("configmaps", &["get", "list", "patch", "watch"]),
                of("configmaps/status", &["patch"]),
                of("configmaps/finalizers", &["update"]),
                of(
                    "pods",
                    &["create", "delete", "get", "list", "patch", "watch"]
                ),
                of("services", &read),
                of("secrets", &["get"]),
            ])
        );
    }
}

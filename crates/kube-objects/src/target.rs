//! The objects that a rule is for.

use std::collections::BTreeMap;

use kube::core::{Selector, SelectorExt};
use object_key::ObjectKey;
use serde_json::Value;

/// Selects objects; a missing field matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// API group; the empty string is the core group.
    pub group: Option<String>,
    /// API version.
    pub version: Option<String>,
    /// Kind.
    pub kind: Option<String>,
    /// Name.
    pub name: Option<String>,
    /// Namespace; the empty string selects objects without one.
    pub namespace: Option<String>,
    /// Labels that the object has in the manifest; `None` matches all.
    pub labels: Option<Selector>,
}

impl Target {
    /// Returns whether an object is selected; `object` is from the manifest.
    pub fn matches(&self, key: &ObjectKey, object: &Value) -> bool {
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        let has_labels = |selector: &Selector| {
            let labels = object.pointer("/metadata/labels").cloned();
            let labels: BTreeMap<String, String> = labels
                .and_then(|labels| serde_json::from_value(labels).ok())
                .unwrap_or_default();
            selector.matches(&labels)
        };
        is(&self.group, &key.group)
            && is(&self.version, &key.version)
            && is(&self.kind, &key.kind)
            && is(&self.name, &key.name)
            && is(
                &self.namespace,
                key.namespace.as_deref().unwrap_or_default(),
            )
            && self.labels.as_ref().is_none_or(has_labels)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn targets_select_objects_by_kind_version_namespace_name_and_labels() {
        let object = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "a", "namespace": "n", "labels": {"app": "web"}},
        });
        let key = ObjectKey::of(&object).unwrap();
        let with = |field: &str, value: &str| {
            let mut target = Target::default();
            let value = value.to_owned();
            match field {
                "group" => target.group = Some(value),
                "version" => target.version = Some(value),
                "kind" => target.kind = Some(value),
                "name" => target.name = Some(value),
                "namespace" => target.namespace = Some(value),
                _ => target.labels = Some(Selector::from_iter([(field.to_owned(), value)])),
            }
            target
        };
        assert!(Target::default().matches(&key, &object));
        for (field, same, other) in [
            ("group", "apps", ""),
            ("version", "v1", "v1beta1"),
            ("kind", "Deployment", "StatefulSet"),
            ("name", "a", "b"),
            ("namespace", "n", "m"),
            ("app", "web", "db"),
        ] {
            assert!(with(field, same).matches(&key, &object), "{field}");
            assert!(!with(field, other).matches(&key, &object), "{field}");
        }
    }
}

//! Compares two sets of objects.

use anyhow::Context as _;
use helm_core::manifest::{ManifestObject, ObjectIdentity, ObjectKey, replaced};
use hybrid_operator::helm::hide_secrets;
use serde_json::Value;

use super::Deployed;
use crate::rbac::kinds::{GroupKind, Kinds};

/// Kind of difference of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only the new set has it.
    Added,
    /// Only the old set has it.
    Removed,
    /// The content differs.
    Changed,
}

/// An object that differs. The content of Secrets is hidden.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ObjectDifference {
    pub(crate) key: ObjectKey,
    pub(crate) hook: bool,
    pub(crate) kind: Kind,
    /// YAML of the old object; empty if there is none.
    pub(crate) before: String,
    /// YAML of the new object; empty if there is none.
    pub(crate) after: String,
}

/// Compares objects: first the new ones in their order, then those that are gone. Objects without a
/// namespace are in `namespace`, or in none if they are cluster-scoped.
pub(crate) fn compare(
    old: &[Deployed],
    new: &[Deployed],
    namespace: &str,
) -> anyhow::Result<Vec<ObjectDifference>> {
    compare_as(old, new, namespace, |object| object.object().clone())
}

/// Compares the objects of somebody else's record with those that would be deployed: what the Go operators add
/// to a manifest is no difference.
pub(crate) fn compare_with_foreign(
    old: &[Deployed],
    new: &[Deployed],
    namespace: &str,
) -> anyhow::Result<Vec<ObjectDifference>> {
    compare_as(old, new, namespace, |object| {
        object.without_ownership(namespace)
    })
}

fn compare_as(
    old: &[Deployed],
    new: &[Deployed],
    namespace: &str,
    content: impl Fn(&ManifestObject) -> Value,
) -> anyhow::Result<Vec<ObjectDifference>> {
    let scopes = Scopes::of(old.iter().chain(new));
    let same = |a: &Deployed, b: &Deployed| {
        a.hook == b.hook && scopes.identity(a, namespace) == scopes.identity(b, namespace)
    };
    let mut differences = Vec::new();
    for after in scopes.applied(new, namespace) {
        let known = old.iter().find(|before| same(before, after));
        let before = known.map(|before| content(&before.object));
        let object = content(&after.object);
        differences.extend(difference(after, before.as_ref(), Some(&object))?);
    }
    for before in old {
        if !new.iter().any(|after| same(before, after)) {
            let object = content(&before.object);
            differences.extend(difference(before, Some(&object), None)?);
        }
    }
    Ok(differences)
}

/// The scopes of the kinds of some objects: those that their definitions have, and those of Kubernetes'
/// own kinds.
pub(crate) struct Scopes(Kinds);

impl Scopes {
    pub(crate) fn of<'o>(objects: impl IntoIterator<Item = &'o Deployed>) -> Self {
        let mut kinds = Kinds::default();
        for object in objects {
            if object.object.key().kind == "CustomResourceDefinition" {
                kinds.add_definition(object.object.object());
            }
        }
        Self(kinds)
    }

    fn is_cluster_scoped(&self, key: &ObjectKey) -> bool {
        let kind = GroupKind::new(&key.group, &key.kind);
        !self.0.resource(&kind).namespaced
    }

    pub(crate) fn identity<'o>(
        &self,
        object: &'o Deployed,
        namespace: &'o str,
    ) -> ObjectIdentity<'o> {
        let is_cluster_scoped = |key: &ObjectKey| self.is_cluster_scoped(key);
        ObjectIdentity::of(object.object.key(), namespace, &is_cluster_scoped)
    }

    /// Returns the hooks, and the objects that are applied: of several with one identity, the last.
    pub(crate) fn applied<'o>(&self, new: &'o [Deployed], namespace: &str) -> Vec<&'o Deployed> {
        let objects: Vec<&Deployed> = new.iter().filter(|object| !object.hook).collect();
        let manifest: Vec<ManifestObject> =
            objects.iter().map(|object| object.object.clone()).collect();
        let is_cluster_scoped = |key: &ObjectKey| self.is_cluster_scoped(key);
        let replaced = replaced(&manifest, namespace, &is_cluster_scoped);
        let earlier = replaced
            .iter()
            .filter_map(|(earlier, _)| objects.get(*earlier));
        let earlier: Vec<&Deployed> = earlier.copied().collect();
        let is_earlier = |object: &Deployed| {
            let mut earlier = earlier.iter();
            earlier.any(|known| std::ptr::eq(*known, object))
        };
        new.iter().filter(|object| !is_earlier(object)).collect()
    }
}

/// Compares two versions of one object. Returns `None` if they mean the same.
pub(crate) fn difference(
    named: &Deployed,
    before: Option<&Value>,
    after: Option<&Value>,
) -> anyhow::Result<Option<ObjectDifference>> {
    let mut before = before.cloned();
    let mut after = after.cloned();
    if before == after {
        return Ok(None);
    }
    hide_secrets(before.as_mut(), after.as_mut());
    let kind = match (&before, &after) {
        (None, _) => Kind::Added,
        (_, None) => Kind::Removed,
        _ => Kind::Changed,
    };
    let yaml = |object: Option<Value>| match object {
        Some(object) => go_yaml::to_string(&object).context("cannot write an object as YAML"),
        None => Ok(String::new()),
    };
    Ok(Some(ObjectDifference {
        key: named.object.key().clone(),
        hook: named.hook,
        kind,
        before: yaml(before)?,
        after: yaml(after)?,
    }))
}

#[cfg(test)]
mod tests {
    use helm_core::manifest::parse_objects;

    use super::*;

    fn objects(manifest: &str) -> Vec<Deployed> {
        let objects = parse_objects(manifest).unwrap().into_iter();
        objects
            .map(|object| Deployed {
                object,
                hook: false,
            })
            .collect()
    }

    #[test]
    fn objects_are_added_changed_and_removed() {
        let old = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '1'}\n---\n\
                   apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n---\n\
                   apiVersion: v1\nkind: Service\nmetadata: {name: same, labels: null}\n";
        let new = "apiVersion: v1\nkind: Service\nmetadata: {name: same, namespace: prod}\n---\n\
                   apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '2'}\n---\n\
                   apiVersion: v1\nkind: Secret\nmetadata: {name: c}\n";
        let found = compare(&objects(old), &objects(new), "prod").unwrap();
        let shown: Vec<_> = found.iter().map(|d| (d.key.to_string(), d.kind)).collect();
        let expected = [
            ("Service prod/same".to_owned(), Kind::Changed),
            ("ConfigMap a".to_owned(), Kind::Changed),
            ("Secret c".to_owned(), Kind::Added),
            ("ConfigMap b".to_owned(), Kind::Removed),
        ];
        assert_eq!(shown, expected);
        let again = compare(&objects(old), &objects(old), "prod").unwrap();
        assert_eq!(again, []);
    }

    #[test]
    fn what_a_go_operator_adds_to_a_manifest_is_no_difference() {
        let map = |metadata: &str, data: &str| {
            objects(&format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a{metadata}}}\ndata: {{x: '{data}'}}\n"
            ))
        };
        let old = map(", namespace: prod, ownerReferences: [{uid: u}]", "1");
        let found = |data| compare_with_foreign(&old, &map("", data), "prod").unwrap();
        assert_eq!(found("1"), []);
        let changed = found("2");
        assert_eq!(changed.len(), 1);
        assert!(
            !changed[0].before.contains("ownerReferences"),
            "{changed:?}"
        );
    }

    #[test]
    fn an_object_is_the_same_whatever_its_version_and_a_meaningless_namespace() {
        let role = |namespace: &str| {
            format!(
                "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: a, namespace: {namespace}}}\n"
            )
        };
        let kinds = |old: &str, new: &str| {
            let found = compare(&objects(old), &objects(new), "prod").unwrap();
            found.iter().map(|found| found.kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(&role("x"), &role("y")), [Kind::Changed]);
        // Of two, the last is applied.
        let twice = format!("{}---\n{}", role("y"), role("x"));
        assert_eq!(kinds(&role("x"), &twice), []);
    }

    #[test]
    fn a_change_of_the_data_of_a_secret_is_a_difference_without_its_content() {
        let secret = |text: &str| {
            let manifest = format!(
                "apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{a: {text}}}\n"
            );
            objects(&manifest)
        };
        let found = compare(&secret("first"), &secret("second"), "n").unwrap();
        let [difference] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert!(
            difference.after.contains("a: '*** (after)'"),
            "{difference:?}"
        );
        assert!(!format!("{difference:?}").contains("second"));
    }
}

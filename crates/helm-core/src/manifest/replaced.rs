//! Objects that a document describes more than once.

use std::collections::HashMap;

use super::{ManifestObject, ObjectIdentity, ObjectKey};

/// Returns the objects that a later one of the same identity replaces, each with the index of the last
/// such object. Objects without a name are never replaced, because the API server generates a name
/// for each.
///
/// Runs in linear time.
///
/// ```
/// use helm_core::manifest::{parse_objects, replaced};
/// let objects = parse_objects(
///     r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
/// ---
/// {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "prod"}}"#,
/// )?;
/// assert_eq!(replaced(&objects, "prod", &|_| false), [(0, 1)]);
/// assert_eq!(replaced(&objects, "test", &|_| false), []);
/// # Ok::<(), helm_core::manifest::ManifestError>(())
/// ```
pub fn replaced(
    objects: &[ManifestObject],
    namespace: &str,
    is_cluster_scoped: &dyn Fn(&ObjectKey) -> bool,
) -> Vec<(usize, usize)> {
    let mut last = HashMap::with_capacity(objects.len());
    for (index, object) in objects.iter().enumerate() {
        if let Some(identity) = named(object, namespace, is_cluster_scoped) {
            last.insert(identity, index);
        }
    }
    let replacements = objects.iter().enumerate().filter_map(|(index, object)| {
        let last = *last.get(&named(object, namespace, is_cluster_scoped)?)?;
        (last != index).then_some((index, last))
    });
    replacements.collect()
}

/// Returns the identity of an object that has a name.
fn named<'k>(
    object: &'k ManifestObject,
    namespace: &'k str,
    is_cluster_scoped: &dyn Fn(&ObjectKey) -> bool,
) -> Option<ObjectIdentity<'k>> {
    let key = object.key();
    (!key.name.is_empty()).then(|| ObjectIdentity::of(key, namespace, is_cluster_scoped))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{parse_objects, push_object};
    use super::*;
    use crate::rows::rows;

    /// Returns objects that are written as `apiVersion:namespace:name`.
    fn objects(text: &str) -> Vec<ManifestObject> {
        let mut objects = Vec::new();
        for written in text.split_whitespace() {
            let parts: Vec<&str> = written.split(':').collect();
            let [api_version, namespace, name] = parts[..] else {
                panic!("{written}")
            };
            let object = json!({"apiVersion": api_version, "kind": "Deployment",
                "metadata": {"name": name, "namespace": namespace}});
            push_object(object, 1, None, &mut objects).unwrap();
        }
        objects
    }

    /// Says that the kinds of the group `wide` are cluster-scoped.
    fn wide(key: &ObjectKey) -> bool {
        key.group == "wide"
    }

    #[test]
    fn the_last_object_of_an_identity_replaces_the_others() {
        for [text, expected] in rows(
            "
            apps/v1::a  apps/v1::b        | []
            apps/v1::a  apps/v1beta1::a   | [(0, 1)]
            apps/v1::a  extensions/v1::a  | []
            apps/v1:x:a apps/v1:y:a       | []
            // Cluster-scoped: the namespace of the text means nothing.
            wide/v1:x:a wide/v1:y:a       | [(0, 1)]
            wide/v1:x:a wide/v1::a        | [(0, 1)]
            apps/v1:ns:a apps/v1::a       | [(0, 1)]
            // The server generates the missing names.
            apps/v1:: apps/v1::           | []
            apps/v1::a apps/v1::b apps/v1::b apps/v1::a apps/v1::a | [(0, 4), (1, 2), (3, 4)]
            ",
        ) {
            let found = replaced(&objects(text), "ns", &wide);
            assert_eq!(format!("{found:?}"), expected, "{text}");
        }
    }

    #[test]
    fn result_agrees_with_a_comparison_of_all_pairs() {
        let one = |n: usize| {
            let api_version = ["v1", "g/v1", "wide/v2"][n % 3];
            let (namespace, name) = (["", "ns", "x"][n / 3 % 3], ["a", "b", ""][n / 9]);
            format!("{api_version}:{namespace}:{name}")
        };
        let pairs = (0..27 * 27).map(|n| format!("{} {}", one(n / 27), one(n % 27)));
        for pair in pairs {
            let objects = objects(&pair);
            let (a, b) = (objects[0].key(), objects[1].key());
            let namespace = |key: &ObjectKey| {
                let own = key.namespace.clone().unwrap_or("ns".to_owned());
                if wide(key) { String::new() } else { own }
            };
            let same = !a.name.is_empty()
                && (&a.group, &a.kind, &a.name) == (&b.group, &b.kind, &b.name)
                && namespace(a) == namespace(b);
            let found = replaced(&objects, "ns", &wide);
            assert_eq!(!found.is_empty(), same, "{pair}");
        }
    }

    // A comparison of all pairs would take hours here.
    #[test]
    fn manifest_with_the_maximum_number_of_objects_is_checked_quickly() {
        let secret =
            |name: usize| format!("{{apiVersion: v1, kind: Secret, metadata: {{name: s{name}}}}}");
        let all = (0..super::super::MAX_OBJECTS - 1).chain([7]).map(secret);
        let text = all.collect::<Vec<_>>().join("\n---\n");
        let objects = parse_objects(&text).unwrap();
        assert_eq!(replaced(&objects, "ns", &wide), [(7, objects.len() - 1)]);
    }
}

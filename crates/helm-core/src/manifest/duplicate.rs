//! Detection of duplicate objects in a manifest.

use std::collections::HashMap;

use super::ManifestObject;

/// Returns the indices of the first object that duplicates an earlier one, in any version of its
/// group: the earlier one's and its own. `namespace` applies to objects without one. Objects
/// without a name are never duplicates, because the API server generates a name for each.
///
/// Runs in linear time.
///
/// ```
/// use helm_core::manifest::{first_duplicate, parse_objects};
/// let objects = parse_objects(
///     r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
/// ---
/// {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "prod"}}"#,
/// )?;
/// assert_eq!(first_duplicate(&objects, "prod"), Some((0, 1)));
/// assert_eq!(first_duplicate(&objects, "test"), None);
/// # Ok::<(), helm_core::manifest::ManifestError>(())
/// ```
pub fn first_duplicate(objects: &[ManifestObject], namespace: &str) -> Option<(usize, usize)> {
    let mut seen = HashMap::with_capacity(objects.len());
    objects.iter().enumerate().find_map(|(index, object)| {
        let key = object.key();
        if key.name.is_empty() {
            return None;
        }
        let identity = key.identity(namespace);
        let earlier = *seen.entry(identity).or_insert(index);
        (earlier != index).then_some((earlier, index))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{parse_objects, push_object};
    use super::*;

    fn objects(of: &[(&str, &str, &str)]) -> Vec<ManifestObject> {
        let mut objects = Vec::new();
        for (api_version, namespace, name) in of {
            let object = json!({"apiVersion": api_version, "kind": "Deployment",
                "metadata": {"name": name, "namespace": namespace}});
            push_object(object, 1, None, &mut objects).unwrap();
        }
        objects
    }

    #[test]
    fn first_duplicate_is_found_with_the_original() {
        let table = [
            (vec![("apps/v1", "", "a"), ("apps/v1", "", "b")], None),
            (
                vec![("apps/v1", "", "a"), ("apps/v1beta1", "", "a")],
                Some((0, 1)),
            ),
            (vec![("apps/v1", "", "a"), ("extensions/v1", "", "a")], None),
            (vec![("apps/v1", "x", "a"), ("apps/v1", "y", "a")], None),
            (
                vec![("apps/v1", "ns", "a"), ("apps/v1", "", "a")],
                Some((0, 1)),
            ),
            // The server generates the missing names.
            (vec![("apps/v1", "", ""), ("apps/v1", "", "")], None),
            (
                vec![
                    ("apps/v1", "", "a"),
                    ("apps/v1", "", "b"),
                    ("apps/v1", "", "b"),
                    ("apps/v1", "", "a"),
                ],
                Some((1, 2)),
            ),
        ];
        for (of, expected) in table {
            assert_eq!(first_duplicate(&objects(&of), "ns"), expected, "{of:?}");
        }
    }

    #[test]
    fn result_agrees_with_a_comparison_of_all_pairs() {
        let names = ["a", "b", ""];
        let mut all = Vec::new();
        for first in 0..27 {
            for second in 0..27 {
                let one = |n: usize| {
                    (
                        ["v1", "g/v1", "g/v2"][n % 3],
                        ["", "ns", "x"][n / 3 % 3],
                        names[n / 9],
                    )
                };
                all.push([one(first), one(second)]);
            }
        }
        for pair in all {
            let objects = objects(&pair);
            let (a, b) = (objects[0].key(), objects[1].key());
            let same = !a.name.is_empty() && a.is_same_object(b, "ns");
            assert_eq!(first_duplicate(&objects, "ns").is_some(), same, "{pair:?}");
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
        assert_eq!(
            first_duplicate(&objects, "ns"),
            Some((7, objects.len() - 1))
        );
    }
}

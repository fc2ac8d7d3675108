//! Semantic differences between two manifests: changed objects and fields.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;

use super::{ManifestObject, ObjectIdentity, ObjectKey};

/// The change of one object between two manifests.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The object.
    pub key: ObjectKey,
    /// The kind of change.
    pub kind: ChangeKind,
}

/// Kinds of changes.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangeKind {
    /// Only the new manifest has the object.
    Added,
    /// Only the old manifest has the object.
    Removed,
    /// The content differs at these JSON pointers (RFC 6901).
    Changed(Vec<String>),
}

/// Returns the changes from `old` to `new`: objects of the new manifest in its order, then the
/// removed ones in the order of the old. Objects are the same if their [`ObjectIdentity`] is; of several
/// in one manifest, the last counts. JSON pointers for which `skip` returns true are left out, with
/// everything below them.
///
/// ```
/// use helm_core::manifest::{diff::diff, parse_objects, ChangeKind};
/// let old = parse_objects(r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#)?;
/// let new = parse_objects(
///     r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"type":"Opaque"}"#,
/// )?;
/// let changes = diff(&old, &new, "default", &|_| false, |_| false);
/// assert_eq!(changes[0].kind, ChangeKind::Changed(vec!["/type".to_owned()]));
/// # Ok::<(), helm_core::manifest::ManifestError>(())
/// ```
pub fn diff(
    old: &[ManifestObject],
    new: &[ManifestObject],
    namespace: &str,
    is_cluster_scoped: &dyn Fn(&ObjectKey) -> bool,
    skip: impl Fn(&str) -> bool,
) -> Vec<Change> {
    let (after, order) = by_identity(new, namespace, is_cluster_scoped);
    let (mut before, order_before) = by_identity(old, namespace, is_cluster_scoped);
    let mut changes = Vec::new();
    for identity in order {
        let Some(object) = after.get(&identity) else {
            continue;
        };
        let kind = match before.remove(&identity) {
            None => ChangeKind::Added,
            Some(earlier) => {
                let mut paths = Vec::new();
                compare(
                    earlier.object(),
                    object.object(),
                    &mut String::new(),
                    &skip,
                    &mut paths,
                );
                if paths.is_empty() {
                    continue;
                }
                ChangeKind::Changed(paths)
            }
        };
        changes.push(Change {
            key: object.key().clone(),
            kind,
        });
    }
    let removed = order_before
        .into_iter()
        .filter_map(|identity| before.remove(&identity));
    changes.extend(removed.map(|object| Change {
        key: object.key().clone(),
        kind: ChangeKind::Removed,
    }));
    changes
}

/// Returns whether both manifests describe the same objects, regardless of order and formatting.
pub fn same_meaning(
    old: &[ManifestObject],
    new: &[ManifestObject],
    namespace: &str,
    is_cluster_scoped: &dyn Fn(&ObjectKey) -> bool,
) -> bool {
    let (before, _) = by_identity(old, namespace, is_cluster_scoped);
    let (after, _) = by_identity(new, namespace, is_cluster_scoped);
    before.len() == after.len()
        && after.iter().all(|(identity, object)| {
            let earlier = before.get(identity);
            earlier.is_some_and(|earlier| earlier.object() == object.object())
        })
}

/// An identity, and the number of an object among those whose name the API server generates.
type Place<'o> = (ObjectIdentity<'o>, usize);

/// Maps objects by identity; of several, the last one counts. Also returns their places in order.
fn by_identity<'o>(
    objects: &'o [ManifestObject],
    namespace: &'o str,
    is_cluster_scoped: &dyn Fn(&ObjectKey) -> bool,
) -> (HashMap<Place<'o>, &'o ManifestObject>, Vec<Place<'o>>) {
    let mut generated: HashMap<ObjectIdentity<'o>, usize> = HashMap::new();
    let mut found = HashMap::with_capacity(objects.len());
    let mut order = Vec::with_capacity(objects.len());
    for object in objects {
        let key = object.key();
        let identity = ObjectIdentity::of(key, namespace, is_cluster_scoped);
        let number = if key.name.is_empty() {
            let next = generated.entry(identity).or_default();
            *next += 1;
            *next
        } else {
            0
        };
        if found.insert((identity, number), object).is_none() {
            order.push((identity, number));
        }
    }
    (found, order)
}

fn compare(
    old: &Value,
    new: &Value,
    path: &mut String,
    skip: &impl Fn(&str) -> bool,
    paths: &mut Vec<String>,
) {
    if skip(path) {
        return;
    }
    // Do not compare whole values first, because each level would repeat it.
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in old {
                within(path, &escape(key), |path| match new.get(key) {
                    Some(other) => compare(value, other, path, skip, paths),
                    None => add(path, skip, paths),
                });
            }
            for key in new.keys().filter(|key| !old.contains_key(*key)) {
                within(path, &escape(key), |path| add(path, skip, paths));
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                within(path, &index.to_string(), |path| {
                    compare(old, new, path, skip, paths);
                });
            }
        }
        _ if old == new => {}
        _ => paths.push(path.clone()),
    }
}

fn add(path: &str, skip: &impl Fn(&str) -> bool, paths: &mut Vec<String>) {
    if !skip(path) {
        paths.push(path.to_owned());
    }
}

fn within(path: &mut String, part: &str, run: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push('/');
    path.push_str(part);
    run(path);
    path.truncate(length);
}

fn escape(key: &str) -> Cow<'_, str> {
    if key.contains(['~', '/']) {
        Cow::Owned(key.replace('~', "~0").replace('/', "~1"))
    } else {
        Cow::Borrowed(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::parse_objects;

    #[test]
    fn manifests_mean_the_same_when_there_is_no_change() {
        let object = |body: &str| {
            let head = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}"#;
            parse_objects(&format!("{head}, \"data\": {body}}}")).unwrap()
        };
        let values = [
            "null",
            "{}",
            "1",
            "\"1\"",
            "[]",
            "[null]",
            "[1]",
            "[{}]",
            r#"{"a":null}"#,
            r#"{"a":{}}"#,
            r#"{"a":{"b":null}}"#,
            r#"{"a":{"b":1}}"#,
            r#"{"a":{"b":1},"c":null}"#,
        ];
        for old in values {
            for new in values {
                let (before, after) = (object(old), object(new));
                let changes = diff(&before, &after, "ns", &|_| false, |_| false);
                let same = same_meaning(&before, &after, "ns", &|_| false);
                assert_eq!(same, changes.is_empty(), "{old} and {new}: {changes:?}");
            }
        }
        // A null is sent, and keeps the default of a field away.
        let (null, none) = (object(r#"{"a":null}"#), object("{}"));
        assert!(!same_meaning(&null, &none, "ns", &|_| false));
        let changes = diff(&none, &null, "ns", &|_| false, |_| false);
        assert_eq!(
            changes[0].kind,
            ChangeKind::Changed(vec!["/data/a".to_owned()])
        );
        assert!(!same_meaning(&object("1"), &[], "ns", &|_| false));
        assert!(!same_meaning(&[], &object("1"), "ns", &|_| false));
        assert!(same_meaning(&[], &[], "ns", &|_| false));
    }

    #[test]
    fn difference_at_the_innermost_level_is_found() {
        let deep = |leaf: &str| {
            let nested = "[1, 2, ".repeat(400) + leaf + &"]".repeat(400);
            let head = "apiVersion: v1, kind: Secret, metadata: {name: a}";
            parse_objects(&format!("{{{head}, data: {nested}}}")).unwrap()
        };
        let changes = diff(&deep("1"), &deep("2"), "ns", &|_| false, |_| false);
        let ChangeKind::Changed(paths) = &changes[0].kind else {
            panic!("{:?}", changes[0].kind)
        };
        assert_eq!(paths, &["/data".to_owned() + &"/2".repeat(400)]);
        assert!(!same_meaning(&deep("1"), &deep("2"), "ns", &|_| false));
    }

    #[test]
    fn changes_name_objects_and_fields() {
        let old = parse_objects(
            r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"gone"}}
---
{"apiVersion":"apps/v1beta1","kind":"Deployment","metadata":{"name":"web","labels":{"a/b":"1"}},
 "spec":{"replicas":1,"ports":[1,2],"x":null}}"#,
        )
        .unwrap();
        let new = parse_objects(
            r#"{"apiVersion":"apps/v1","kind":"Deployment",
 "metadata":{"name":"web","namespace":"default","labels":{"a/b":"2"}},"spec":{"ports":[1,3]}}
---
{"apiVersion":"v1","kind":"Secret","metadata":{"name":"fresh"}}"#,
        )
        .unwrap();
        let changes = diff(&old, &new, "default", &|_| false, |path| {
            path == "/apiVersion" || path == "/metadata/namespace"
        });
        let kinds: Vec<_> = changes
            .iter()
            .map(|c| (c.key.name.as_str(), &c.kind))
            .collect();
        let paths = [
            "/metadata/labels/a~1b",
            "/spec/ports/1",
            "/spec/replicas",
            "/spec/x",
        ];
        assert_eq!(kinds.len(), 3);
        assert_eq!(kinds[0].0, "web");
        let ChangeKind::Changed(found) = kinds[0].1 else {
            panic!("{kinds:?}")
        };
        let mut found = found.clone();
        found.sort();
        assert_eq!(found, paths);
        assert_eq!(kinds[1], ("fresh", &ChangeKind::Added));
        assert_eq!(kinds[2], ("gone", &ChangeKind::Removed));
    }

    #[test]
    fn objects_without_a_name_are_compared_in_order() {
        let of = |values: &[&str]| {
            let documents = values.iter().map(|value| {
                format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"generateName":"a-"}},"data":"{value}"}}"#)
            });
            parse_objects(&documents.collect::<Vec<_>>().join("\n---\n")).unwrap()
        };
        let changes = |old: &[&str], new: &[&str]| {
            diff(&of(old), &of(new), "ns", &|_| false, |_| false).len()
        };
        for (old, new, expected) in [
            (&["1", "2"][..], &["1", "2"][..], 0),
            (&["1", "2"], &["3", "2"], 1),
            (&["1"], &["1", "2"], 1),
            (&["1", "2"], &["1"], 1),
        ] {
            assert_eq!(changes(old, new), expected, "{old:?} {new:?}");
            let same = same_meaning(&of(old), &of(new), "ns", &|_| false);
            assert_eq!(same, expected == 0, "{old:?} {new:?}");
        }
    }

    #[test]
    fn of_an_object_that_is_there_twice_the_last_counts() {
        let of = |data: &[(&str, &str)]| {
            let documents = data.iter().map(|(namespace, value)| {
                format!(
                    r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"a","namespace":"{namespace}"}},"data":"{value}"}}"#
                )
            });
            parse_objects(&documents.collect::<Vec<_>>().join("\n---\n")).unwrap()
        };
        let (once, twice) = (of(&[("x", "2")]), of(&[("y", "1"), ("x", "2")]));
        let is_cluster_scoped = |key: &ObjectKey| key.kind == "Node";
        for (old, new) in [(&once, &twice), (&twice, &once), (&twice, &twice)] {
            assert!(same_meaning(old, new, "ns", &is_cluster_scoped));
            assert_eq!(diff(old, new, "ns", &is_cluster_scoped, |_| false), []);
        }
        let other = of(&[("x", "2"), ("x", "1")]);
        assert!(!same_meaning(&once, &other, "ns", &is_cluster_scoped));
        assert_eq!(
            diff(&once, &other, "ns", &is_cluster_scoped, |_| false).len(),
            1
        );
    }
}

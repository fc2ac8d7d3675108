//! Differences between two manifests by meaning: which objects, and which of their fields.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{ManifestObject, ObjectKey};

/// What happened to an object between two manifests.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The object.
    pub key: ObjectKey,
    /// What happened.
    pub kind: ChangeKind,
}

/// Kinds of changes.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangeKind {
    /// Only the new manifest has the object.
    Added,
    /// Only the old manifest has the object.
    Removed,
    /// Both have it with different content; the JSON pointers (RFC 6901) of what differs.
    Changed(Vec<String>),
}

/// The changes from `old` to `new`: objects of the new manifest in its order, then the removed
/// ones in the order of the old. Objects of another version of one group are the same object.
/// `namespace` is that of objects which name none. `skip` says which JSON pointers to leave out,
/// together with all below them.
///
/// ```
/// use helm_core::manifest::{diff::diff, parse_objects, ChangeKind};
/// let old = parse_objects(r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#)?;
/// let new = parse_objects(
///     r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"type":"Opaque"}"#,
/// )?;
/// let changes = diff(&old, &new, "default", |_| false);
/// assert_eq!(changes[0].kind, ChangeKind::Changed(vec!["/type".to_owned()]));
/// # Ok::<(), helm_core::manifest::ManifestError>(())
/// ```
pub fn diff(
    old: &[ManifestObject],
    new: &[ManifestObject],
    namespace: &str,
    skip: impl Fn(&str) -> bool,
) -> Vec<Change> {
    let identity = |object: &ManifestObject| {
        let key = object.key();
        let namespace = key
            .namespace
            .clone()
            .unwrap_or_else(|| namespace.to_owned());
        (
            key.group.clone(),
            key.kind.clone(),
            namespace,
            key.name.clone(),
        )
    };
    let mut before: BTreeMap<_, _> = old
        .iter()
        .map(|object| (identity(object), object))
        .collect();
    let mut changes = Vec::new();
    for object in new {
        let kind = match before.remove(&identity(object)) {
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
    let removed = old
        .iter()
        .filter(|object| before.remove(&identity(object)).is_some());
    changes.extend(removed.map(|object| Change {
        key: object.key().clone(),
        kind: ChangeKind::Removed,
    }));
    changes
}

/// Whether both manifests mean the same objects, in whatever order and spelling.
pub fn same_meaning(old: &[ManifestObject], new: &[ManifestObject], namespace: &str) -> bool {
    diff(old, new, namespace, |_| false).is_empty()
}

fn compare(
    old: &Value,
    new: &Value,
    path: &mut String,
    skip: &impl Fn(&str) -> bool,
    paths: &mut Vec<String>,
) {
    if old == new || skip(path) {
        return;
    }
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in old {
                // A null says the same as nothing.
                let other = new.get(key).unwrap_or(&Value::Null);
                within(path, &escape(key), |path| {
                    compare(value, other, path, skip, paths);
                });
            }
            for (key, value) in new.iter().filter(|(key, _)| !old.contains_key(*key)) {
                within(path, &escape(key), |path| {
                    compare(&Value::Null, value, path, skip, paths);
                });
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                within(path, &index.to_string(), |path| {
                    compare(old, new, path, skip, paths);
                });
            }
        }
        _ => paths.push(path.clone()),
    }
}

fn within(path: &mut String, part: &str, run: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push('/');
    path.push_str(part);
    run(path);
    path.truncate(length);
}

fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::parse_objects;

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
        let changes = diff(&old, &new, "default", |path| {
            path == "/apiVersion" || path == "/metadata/namespace"
        });
        let kinds: Vec<_> = changes
            .iter()
            .map(|c| (c.key.name.as_str(), &c.kind))
            .collect();
        let paths = ["/metadata/labels/a~1b", "/spec/ports/1", "/spec/replicas"];
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
}

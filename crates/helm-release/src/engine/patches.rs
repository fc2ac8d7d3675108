//! Applies the `patches` of `watches.yaml` to rendered objects before they are recorded and
//! applied. No I/O.

use helm_core::Rendered;
use helm_core::manifest::ObjectKey;
use serde_json::{Map, Value};

use crate::policy::{Patch, PatchBody};

/// Error applying a patch.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum PatchError {
    #[error("cannot apply patches[{index}] to {object}")]
    Misfit {
        /// Index of the patch in `watches.yaml`.
        index: usize,
        object: String,
        #[source]
        source: Box<json_patch::PatchError>,
    },
    #[error(
        "patches[{index}] changes the identity of {object}; apiVersion, kind, name and namespace must not change"
    )]
    Identity {
        /// Index of the patch in `watches.yaml`.
        index: usize,
        object: String,
    },
}

/// Applies the patches in order.
pub(super) fn apply(mut rendered: Rendered, patches: &[Patch]) -> Result<Rendered, PatchError> {
    if !patches.is_empty() {
        rendered.change_objects(|object| change(object, patches))?;
    }
    Ok(rendered)
}

/// Applies the patches that select an object. Returns whether there were any.
fn change(value: &mut Value, patches: &[Patch]) -> Result<bool, PatchError> {
    let Some(key) = ObjectKey::of(value) else {
        return Ok(false);
    };
    let mut changed = false;
    for (index, patch) in patches.iter().enumerate() {
        if !patch.target.matches(&key, value) {
            continue;
        }
        match &patch.patch {
            PatchBody::Json(operations) => {
                json_patch::patch(value, operations).map_err(|source| PatchError::Misfit {
                    index,
                    object: key.to_string(),
                    source: Box::new(source),
                })?;
            }
            PatchBody::StrategicMerge(body) => merge(value, body),
        }
        if ObjectKey::of(value).as_ref() != Some(&key) {
            let object = key.to_string();
            return Err(PatchError::Identity { index, object });
        }
        changed = true;
    }
    Ok(changed)
}

/// Merge keys of lists in Kubernetes objects.
const MERGE_KEYS: &[&str] = &[
    "name",
    "mountPath",
    "containerPort",
    "port",
    "ip",
    "key",
    "type",
];

/// Applies a strategic merge patch as `kubectl patch` does: maps are merged, null removes a field,
/// lists of objects are merged by their key, other lists are replaced. Supports `$patch: replace`
/// and `$patch: delete`.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (target, Value::Object(patch)) => {
            if directive(patch) == Some("replace") {
                *target = Value::Object(without_directive(patch));
                return;
            }
            if !target.is_object() {
                *target = Value::Object(Map::new());
            }
            let Some(map) = target.as_object_mut() else {
                return;
            };
            for (key, value) in patch {
                match value {
                    Value::Null => {
                        map.remove(key);
                    }
                    Value::Object(inner) if directive(inner) == Some("delete") => {
                        map.remove(key);
                    }
                    value => merge(map.entry(key.clone()).or_insert(Value::Null), value),
                }
            }
        }
        (Value::Array(items), Value::Array(changes)) => match merge_key(changes) {
            Some(key) => merge_lists(items, changes, key),
            None => changes.clone_into(items),
        },
        (target, value) => value.clone_into(target),
    }
}

/// Returns the first merge key that all elements have.
pub(super) fn merge_key(changes: &[Value]) -> Option<&'static str> {
    let has = |key: &str| changes.iter().all(|change| change.get(key).is_some());
    let key = MERGE_KEYS.iter().copied().find(|key| has(key));
    key.filter(|_| !changes.is_empty())
}

fn merge_lists(items: &mut Vec<Value>, changes: &[Value], key: &str) {
    for change in changes {
        let position = items
            .iter()
            .position(|item| item.get(key).is_some() && item.get(key) == change.get(key));
        let deletes = change.as_object().and_then(directive) == Some("delete");
        match position {
            Some(at) if deletes => {
                items.remove(at);
            }
            Some(at) => {
                if let Some(item) = items.get_mut(at) {
                    merge(item, change);
                }
            }
            None if deletes => {}
            None => items.push(change.clone()),
        }
    }
}

pub(super) fn directive(patch: &Map<String, Value>) -> Option<&str> {
    patch.get("$patch").and_then(Value::as_str)
}

fn without_directive(patch: &Map<String, Value>) -> Map<String, Value> {
    let kept = patch.iter().filter(|(key, _)| *key != "$patch");
    kept.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{PatchError, change};
    use crate::policy::{Patch, PatchBody};
    use kube_objects::target::Target;

    fn deployment() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replicas": 1, "template": {"spec": {"containers": [
                {"name": "main", "image": "a", "args": ["x", "y"]}, {"name": "side", "image": "b"}]}}}})
    }

    fn patch(kind: &str, patch: PatchBody) -> Patch {
        let target = Target {
            kind: Some(kind.to_owned()),
            ..Target::default()
        };
        Patch { target, patch }
    }

    fn json_patch(value: Value) -> PatchBody {
        PatchBody::Json(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn json_patches_change_only_selected_objects() {
        let replicas = json_patch(json!([{"op": "replace", "path": "/spec/replicas", "value": 5}]));
        let mut object = deployment();
        let patches = [patch("Service", replicas.clone())];
        assert!(!change(&mut object, &patches).unwrap());
        assert!(change(&mut object, &[patch("Deployment", replicas)]).unwrap());
        assert_eq!(object["spec"]["replicas"], 5);
    }

    #[test]
    fn strategic_merges_merge_lists_by_their_key() {
        let body = json!({"spec": {"replicas": null, "template": {"spec": {"containers": [
            {"name": "side", "$patch": "delete"},
            {"name": "main", "image": "c", "args": ["z"]},
            {"name": "new", "image": "d"}]}}}});
        let mut object = deployment();
        let patches = [patch("Deployment", PatchBody::StrategicMerge(body))];
        assert!(change(&mut object, &patches).unwrap());
        assert_eq!(
            object["spec"],
            json!({"template": {"spec": {"containers": [
                {"name": "main", "image": "c", "args": ["z"]}, {"name": "new", "image": "d"}]}}})
        );
    }

    #[test]
    fn failing_patches_are_named_by_index() {
        let missing = json_patch(json!([{"op": "remove", "path": "/spec/none"}]));
        let error = change(&mut deployment(), &[patch("Deployment", missing)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot apply patches[0] to Deployment.apps web"
        );
        let renames = PatchBody::StrategicMerge(json!({"metadata": {"name": "other"}}));
        let error = change(&mut deployment(), &[patch("Deployment", renames)]).unwrap_err();
        assert!(matches!(error, PatchError::Identity { index: 0, .. }));
    }
}

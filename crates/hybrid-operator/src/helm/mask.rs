//! Hides the content of Secrets in manifests and differences. Equal values look equal; of changed ones only the
//! fact that they have changed is shown.

use serde_json::{Map, Value};

/// Stands for a value that is equal on both sides, or only on one side.
const HIDDEN: &str = "***";
/// Stands for a value before its change.
const BEFORE: &str = "*** (before)";
/// Stands for a value after its change.
const AFTER: &str = "*** (after)";

/// Annotation in which kubectl keeps the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Hides the data of two versions of an object, if it is a Secret.
pub fn hide_secrets(before: Option<&mut Value>, after: Option<&mut Value>) {
    let is_secret = |object: &&mut Value| {
        object.get("kind").and_then(Value::as_str) == Some("Secret")
            && object.get("apiVersion").and_then(Value::as_str) == Some("v1")
    };
    let mut before = before.filter(is_secret);
    let mut after = after.filter(is_secret);
    for field in ["data", "stringData"] {
        hide_maps(
            before
                .as_deref_mut()
                .and_then(|object| map(object, &[field])),
            after
                .as_deref_mut()
                .and_then(|object| map(object, &[field])),
        );
    }
    for object in [before, after].into_iter().flatten() {
        if let Some(annotations) = map(object, &["metadata", "annotations"])
            && annotations.contains_key(LAST_APPLIED)
        {
            annotations.insert(LAST_APPLIED.to_owned(), Value::from(HIDDEN));
        }
    }
}

fn map<'o>(object: &'o mut Value, path: &[&str]) -> Option<&'o mut Map<String, Value>> {
    let mut found = object;
    for field in path {
        found = found.get_mut(field)?;
    }
    found.as_object_mut()
}

fn hide_maps(before: Option<&mut Map<String, Value>>, after: Option<&mut Map<String, Value>>) {
    match (before, after) {
        (Some(before), Some(after)) => {
            for (key, old) in before.iter_mut() {
                let (mine, theirs) = match after.get_mut(key) {
                    Some(new) if new == old => (HIDDEN, Some((new, HIDDEN))),
                    Some(new) => (BEFORE, Some((new, AFTER))),
                    None => (HIDDEN, None),
                };
                *old = Value::from(mine);
                if let Some((new, text)) = theirs {
                    *new = Value::from(text);
                }
            }
            for (key, new) in after.iter_mut() {
                if !before.contains_key(key) {
                    *new = Value::from(HIDDEN);
                }
            }
        }
        (one, None) | (None, one) => {
            for value in one.into_iter().flat_map(Map::values_mut) {
                *value = Value::from(HIDDEN);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::hide_secrets;

    fn secret(data: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Secret", "data": data})
    }

    #[test]
    fn only_the_change_of_a_secret_is_shown() {
        let mut before = secret(&json!({"same": "YQ==", "other": "Yg==", "gone": "Yw=="}));
        let mut after = secret(&json!({"same": "YQ==", "other": "ZA==", "new": "ZQ=="}));
        hide_secrets(Some(&mut before), Some(&mut after));
        let expected = json!({"same": "***", "other": "*** (before)", "gone": "***"});
        assert_eq!(before["data"], expected);
        let expected = json!({"same": "***", "other": "*** (after)", "new": "***"});
        assert_eq!(after["data"], expected);
    }

    #[test]
    fn a_secret_on_one_side_is_hidden_too_and_other_kinds_are_not() {
        let mut added = secret(&json!({"a": "YQ=="}));
        added["stringData"] = json!({"b": "text"});
        added["metadata"] = json!({"annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "{\"data\": \"YQ==\"}"}});
        hide_secrets(None, Some(&mut added));
        assert!(!added.to_string().contains("YQ=="), "{added}");
        assert_eq!(added["stringData"], json!({"b": "***"}));
        let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}});
        let same = map.clone();
        hide_secrets(Some(&mut map), None);
        assert_eq!(map, same);
    }
}

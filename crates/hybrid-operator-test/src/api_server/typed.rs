//! Rules of single built-in kinds: defaults, what an update may change, and validation.
//!
//! Source: `pkg/registry/*/strategy.go` and `pkg/apis/*/validation` of Kubernetes. Kinds that are not
//! named here are stored as they come.

use serde_json::{Value, json};

use super::kinds::Kind;
use super::object::{at, copy, items, meta, remove, same_except, set, set_at, set_meta, text};
use super::status::Cause;

const KEY_RULE: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// Brings an object of a built-in kind into the form in which the server stores it.
pub(super) fn normalize(kind: &Kind, object: &mut Value) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    fields.values_mut().for_each(drop_nulls);
    fields.retain(|_, value| !value.is_null());
    let drop_empty: &[&str] = match kind.kind.as_str() {
        "ConfigMap" => &["data", "binaryData"],
        "Secret" => &["data", "stringData"],
        "ServiceAccount" => &["secrets", "imagePullSecrets"],
        _ => &[],
    };
    for field in drop_empty {
        if fields.get(*field).is_some_and(is_empty) {
            fields.remove(*field);
        }
    }
    match kind.kind.as_str() {
        "Secret" => merge_texts(object),
        "Lease" => set_default(object, &["spec"], json!({})),
        "Role" | "ClusterRole" if items(object.get("rules")).is_empty() => {
            set(object, "rules", Value::Null);
        }
        "Namespace" => {
            set_default(object, &["spec"], json!({}));
            set_default(object, &["status"], json!({}));
            set_default(object, &["status", "phase"], json!("Active"));
            let name = meta(object, "name").to_owned();
            if !name.is_empty() {
                let label = ["metadata", "labels", "kubernetes.io/metadata.name"];
                set_at(object, &label, name.into());
            }
        }
        _ => {}
    }
}

pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn set_default(object: &mut Value, path: &[&str], value: Value) {
    if at(object, path).is_none() {
        set_at(object, path, value);
    }
}

/// Adds `stringData` to the data of a Secret.
fn merge_texts(object: &mut Value) {
    let texts = object.get("stringData").cloned();
    remove(object, "stringData");
    if let Some(Value::Object(texts)) = texts {
        for (key, text) in texts {
            let text = text.as_str().unwrap_or_default();
            set_at(object, &["data", &key], base64(text.as_bytes()).into());
        }
    }
    if text(object, "type").is_empty() {
        set(object, "type", "Opaque");
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |index: u32| {
        let index = usize::try_from(index & 63).unwrap_or_default();
        DIGITS.get(index).copied().map_or('=', char::from)
    };
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        text.push(digit(bits >> 18));
        text.push(digit(bits >> 12));
        let (second, third) = (chunk.len() > 1, chunk.len() > 2);
        text.push(if second { digit(bits >> 6) } else { '=' });
        text.push(if third { digit(bits) } else { '=' });
    }
    text
}

/// Returns whether a text is base64 of something, as Go decodes it.
fn is_base64(text: &str) -> bool {
    let text: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    text.len().is_multiple_of(4)
        && padding <= 2
        && (digits.chars()).all(|c| c.is_ascii_alphanumeric() || "+/".contains(c))
}

/// Returns what Go's decoder says about an object of a built-in kind that it cannot decode.
pub(super) fn undecodable(kind: &Kind, object: &Value) -> Option<String> {
    let maps: &[&str] = match kind.kind.as_str() {
        "Secret" => &["data"],
        "ConfigMap" => &["binaryData"],
        _ => &[],
    };
    let mut texts = maps.iter().flat_map(|field| {
        let map = object.get(*field).and_then(Value::as_object);
        map.into_iter().flat_map(|map| map.values())
    });
    let is_wrong = texts.any(|text| text.as_str().is_some_and(|text| !is_base64(text)));
    is_wrong.then(|| "illegal base64 data at input byte 0".to_owned())
}

/// Sets what only the server sets in a new object.
pub(super) fn prepare_create(kind: &Kind, object: &mut Value) {
    match kind.kind.as_str() {
        "Namespace" => {
            let finalizers = namespace_finalizers(object);
            set_at(object, &["spec", "finalizers"], finalizers);
            set(object, "status", json!({"phase": "Active"}));
        }
        "Pod" => set(object, "status", json!({"phase": "Pending"})),
        "PersistentVolume" | "PersistentVolumeClaim" => {
            set(object, "status", json!({"phase": "Pending"}));
        }
        "Event" | "CustomResourceDefinition" => {}
        _ => {
            if kind.versions.iter().any(|version| version.has("status")) {
                remove(object, "status");
            }
        }
    }
    if kind.rules.generation {
        set_meta(object, "generation", 1);
    }
}

fn namespace_finalizers(object: &Value) -> Value {
    let mut finalizers = items(at(object, &["spec", "finalizers"])).to_vec();
    let own = json!("kubernetes");
    if !finalizers.contains(&own) {
        finalizers.push(own);
    }
    finalizers.into()
}

/// Restores what an update of the object itself cannot change, and counts its generation.
pub(super) fn prepare_update(kind: &Kind, object: &mut Value, before: &Value) {
    if kind.versions.iter().any(|version| version.has("status")) {
        copy(before, object, "status");
    }
    if kind.kind == "Namespace" {
        copy(before, object, "spec");
    }
    if kind.kind == "Secret" && object.get("type").is_none() {
        copy(before, object, "type");
    }
    if kind.rules.generation && kind.kind != "PriorityClass" {
        let annotations = |object| at(object, &["metadata", "annotations"]);
        let has_annotations = kind.kind == "Deployment";
        let except = ["metadata", "status", "apiVersion", "kind"];
        if !same_except(object, before, &except)
            || (has_annotations && annotations(object) != annotations(before))
        {
            set_meta(object, "generation", super::object::generation(before) + 1);
        }
    }
}

/// Returns what is invalid in an object of a built-in kind, apart from its metadata.
pub(super) fn validate(kind: &Kind, object: &Value, before: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    match kind.kind.as_str() {
        "ConfigMap" => {
            validate_keys(object, &["data", "binaryData"], &mut causes);
            validate_immutable(object, before, &["data", "binaryData"], &mut causes);
        }
        "Secret" => {
            validate_keys(object, &["data"], &mut causes);
            if let Some(before) = before
                && before.get("type") != object.get("type")
            {
                let shown = object.get("type").cloned().unwrap_or_default();
                causes.push(Cause::invalid("type", &shown, "field is immutable"));
            }
            validate_immutable(object, before, &["data"], &mut causes);
        }
        "Lease" => {
            let positive = |path: &str, least: i64, words: &str| {
                let value = at(object, &["spec", path]).and_then(Value::as_i64)?;
                let field = format!("spec.{path}");
                (value < least).then(|| Cause::invalid(field, &value.into(), words))
            };
            let words = "must be greater than 0";
            causes.extend(positive("leaseDurationSeconds", 1, words));
            let at_least = "must be greater than or equal to 0";
            causes.extend(positive("leaseTransitions", 0, at_least));
        }
        "Role" => {
            for (index, rule) in items(object.get("rules")).iter().enumerate() {
                let mut require = |field: &str, words: &str| {
                    if items(rule.get(field)).is_empty() {
                        causes.push(Cause::required(format!("rules[{index}].{field}"), words));
                    }
                };
                require("verbs", "verbs must contain at least one value");
                let groups = "resource rules must supply at least one api group";
                require("apiGroups", groups);
                let resources = "resource rules must supply at least one resource";
                require("resources", resources);
            }
        }
        _ => {}
    }
    causes
}

fn validate_keys(object: &Value, maps: &[&str], causes: &mut Vec<Cause>) {
    for map in maps {
        let fields = object.get(*map).and_then(Value::as_object);
        for key in fields.into_iter().flat_map(serde_json::Map::keys) {
            let mut letters = key.chars();
            let fits = letters.all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
            if !fits || key.is_empty() {
                let field = format!("{map}[{key}]");
                causes.push(Cause::invalid(field, &key.as_str().into(), KEY_RULE));
            }
        }
    }
}

fn validate_immutable(
    object: &Value,
    before: Option<&Value>,
    maps: &[&str],
    causes: &mut Vec<Cause>,
) {
    let Some(before) = before else { return };
    if before.get("immutable") != Some(&Value::Bool(true)) {
        return;
    }
    let words = "field is immutable when `immutable` is set";
    if object.get("immutable") != Some(&Value::Bool(true)) {
        causes.push(Cause::forbidden("immutable", words));
    }
    for map in maps {
        if object.get(*map) != before.get(*map) {
            causes.push(Cause::forbidden(*map, words));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_encoded_as_base64() {
        for (text, expected) in [
            ("", ""),
            ("a", "YQ=="),
            ("ab", "YWI="),
            ("abc", "YWJj"),
            ("?>~", "Pz5+"),
        ] {
            assert_eq!(base64(text.as_bytes()), expected);
            assert!(is_base64(expected));
        }
        assert!(!is_base64("???"));
        assert!(!is_base64("YQ"));
    }
}

//! Decodes and validates the metadata of objects.
//!
//! Source: `k8s.io/apimachinery/pkg/api/validation/objectmeta.go`.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};

use super::kinds::Kind;
use super::names;
use super::object::{finalizers, generation, is_deleting, items, meta, meta_field, text};
use super::status::Cause;

/// Brings the metadata of an object into the form in which the server stores it: without unknown and
/// empty fields. Returns the paths of unknown fields.
///
/// # Errors
/// The words of Go's decoder about a field of a wrong type.
pub(super) fn decode(kind: &Kind, object: &mut Value) -> Result<Vec<String>, String> {
    let (of, custom) = (kind.kind.as_str(), kind.rules.custom);
    let Some(fields) = object.as_object_mut() else {
        return Err("json: cannot unmarshal into Go value".to_owned());
    };
    let metadata = fields.remove("metadata").unwrap_or(Value::Null);
    let metadata = match metadata {
        Value::Object(metadata) => metadata,
        Value::Null => Map::new(),
        other => {
            let field = format!("{of}.metadata");
            return Err(wrong_type(&other, &field, "v1.ObjectMeta"));
        }
    };
    let mut decoded = Map::new();
    let mut unknown = Vec::new();
    for (name, value) in metadata {
        let field = format!("ObjectMeta.metadata.{name}");
        let expected = match name.as_str() {
            "name" | "generateName" | "namespace" | "selfLink" | "uid" | "resourceVersion"
            | "creationTimestamp" | "deletionTimestamp" => "string",
            "generation" | "deletionGracePeriodSeconds" => "int64",
            "labels" | "annotations" => "map[string]string",
            "ownerReferences" => "[]v1.OwnerReference",
            "finalizers" => "[]string",
            "managedFields" => "[]v1.ManagedFieldsEntry",
            _ => {
                unknown.push(format!("metadata.{name}"));
                continue;
            }
        };
        if value.is_null() {
            continue;
        }
        let fits = match expected {
            "string" => value.is_string(),
            "int64" => value.is_i64(),
            "map[string]string" => value.is_object(),
            _ => value.is_array(),
        };
        if !fits {
            return Err(wrong_type(&value, &field, expected));
        }
        let inner = match &value {
            Value::Object(texts) => texts.values().find(|text| !text.is_string()),
            Value::Array(texts) if expected == "[]string" => {
                texts.iter().find(|text| !text.is_string())
            }
            _ => None,
        };
        if let Some(inner) = inner {
            return Err(wrong_type(inner, &field, "string"));
        }
        if name == "managedFields" {
            let entries = decode_entries(value, &mut unknown)?;
            // Custom resources lose an empty list when they are decoded.
            if !custom || !items(Some(&entries)).is_empty() {
                decoded.insert(name, entries);
            }
            continue;
        }
        let empty = match &value {
            Value::Object(texts) => texts.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::String(text) => text.is_empty(),
            Value::Number(_) => name == "generation" && value == 0,
            _ => false,
        };
        if empty || name == "selfLink" {
            continue;
        }
        let value = if name == "ownerReferences" {
            decode_owners(value, &mut unknown)
        } else {
            value
        };
        decoded.insert(name, value);
    }
    fields.insert("metadata".to_owned(), Value::Object(decoded));
    Ok(unknown)
}

fn decode_owners(owners: Value, unknown: &mut Vec<String>) -> Value {
    let Value::Array(owners) = owners else {
        return owners;
    };
    let mut decoded: Vec<Value> = Vec::new();
    for (index, owner) in owners.into_iter().enumerate() {
        let mut fields = Map::new();
        for name in ["apiVersion", "kind", "name", "uid"] {
            fields.insert(name.to_owned(), text(&owner, name).into());
        }
        for (name, value) in owner.as_object().into_iter().flatten() {
            match name.as_str() {
                "apiVersion" | "kind" | "name" | "uid" => {}
                "controller" | "blockOwnerDeletion" => {
                    if value.is_boolean() {
                        fields.insert(name.clone(), value.clone());
                    }
                }
                _ => unknown.push(format!("metadata.ownerReferences[{index}].{name}")),
            }
        }
        let kept = Value::Object(fields);
        if !decoded.contains(&kept) {
            decoded.push(kept);
        }
    }
    Value::Array(decoded)
}

/// Decodes the entries of managers.
fn decode_entries(entries: Value, unknown: &mut Vec<String>) -> Result<Value, String> {
    let Value::Array(entries) = entries else {
        return Ok(entries);
    };
    let mut decoded: Vec<Value> = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let entry = match entry {
            Value::Object(entry) => entry,
            Value::Null => Map::new(),
            other => {
                let field = "ObjectMeta.metadata.managedFields";
                return Err(wrong_type(&other, field, "v1.ManagedFieldsEntry"));
            }
        };
        let mut fields = Map::new();
        for (name, value) in entry {
            let field = format!("ManagedFieldsEntry.metadata.managedFields.{name}");
            match name.as_str() {
                _ if value.is_null() => {}
                "manager" | "operation" | "apiVersion" | "fieldsType" | "subresource" => {
                    let text = value.as_str();
                    let text = text.ok_or_else(|| wrong_type(&value, &field, "string"))?;
                    if !text.is_empty() {
                        fields.insert(name, value);
                    }
                }
                "time" => {
                    let text = value.as_str();
                    let text = text.ok_or_else(|| wrong_type(&value, &field, "string"))?;
                    let time: Result<Timestamp, _> = text.parse();
                    let time = time.map_err(|_| {
                        format!("json: cannot decode: parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\"")
                    })?;
                    let time = time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                    fields.insert(name, time.into());
                }
                "fieldsV1" => {
                    fields.insert(name, value);
                }
                _ => unknown.push(format!("metadata.managedFields[{index}].{name}")),
            }
        }
        decoded.push(Value::Object(fields));
    }
    Ok(Value::Array(decoded))
}

fn wrong_type(value: &Value, field: &str, expected: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into Go struct field {field} of type {expected}")
}

/// Returns what is invalid in the metadata of a new object, with this rule for its name.
pub(super) fn validate(kind: &Kind, object: &Value) -> Vec<Cause> {
    let rule = kind.rules.names;
    let mut causes = Vec::new();
    let mut wrong = |field: &str, value: &str, found: Vec<String>| {
        let field = format!("metadata.{field}");
        let found = found.iter();
        causes.extend(found.map(|text| Cause::invalid(field.as_str(), &value.into(), text)));
    };
    let prefix = meta(object, "generateName");
    if !prefix.is_empty() {
        wrong("generateName", prefix, names::check(rule, prefix, true));
    }
    let name = meta(object, "name");
    let namespace = meta(object, "namespace");
    if !name.is_empty() {
        wrong("name", name, names::check(rule, name, false));
    }
    if kind.namespaced && !namespace.is_empty() {
        let found = names::check(super::kinds::Names::Label, namespace, false);
        wrong("namespace", namespace, found);
    }
    for (key, value) in texts(object, "labels") {
        wrong("labels", key, names::check_key(key));
        wrong("labels", value, names::check_value(value));
    }
    for (key, _) in texts(object, "annotations") {
        wrong("annotations", key, names::check_key(&key.to_lowercase()));
    }
    if name.is_empty() {
        let cause = Cause::required("metadata.name", "name or generateName is required");
        causes.insert(0, cause);
    }
    if kind.namespaced && namespace.is_empty() {
        causes.push(Cause::required("metadata.namespace", ""));
    } else if !kind.namespaced && !namespace.is_empty() {
        let detail = "not allowed on this type";
        causes.push(Cause::forbidden("metadata.namespace", detail));
    }
    if generation(object) < 0 {
        let detail = "must be greater than or equal to 0";
        let generation = Value::from(generation(object));
        causes.push(Cause::invalid("metadata.generation", &generation, detail));
    }
    causes.extend(validate_owners(object));
    causes.extend(validate_finalizers(kind, object));
    causes
}

/// Returns warnings about finalizers that an update or a creation adds to a custom resource.
pub(super) fn finalizer_warnings(object: &Value, before: Option<&Value>) -> Vec<String> {
    let known = before.map(finalizers).unwrap_or_default();
    let mut added = finalizers(object);
    added.retain(|name| !known.contains(name) && !is_qualified(name));
    added.sort();
    added.dedup();
    let warnings = added.iter().map(|name| {
        format!("metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers")
    });
    warnings.collect()
}

fn is_qualified(finalizer: &str) -> bool {
    finalizer.contains('/') || matches!(finalizer, "orphan" | "foregroundDeletion" | "kubernetes")
}

fn texts<'a>(object: &'a Value, field: &str) -> Vec<(&'a str, &'a str)> {
    let texts = meta_field(object, field).and_then(Value::as_object);
    let texts = texts.into_iter().flatten();
    let texts = texts.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
    texts.collect()
}

fn validate_owners(object: &Value) -> Vec<Cause> {
    let field = "metadata.ownerReferences";
    let mut causes = Vec::new();
    let owners = items(meta_field(object, "ownerReferences"));
    let mut controller: Option<String> = None;
    for owner in owners {
        for (name, detail) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if text(owner, name).is_empty() {
                let field = format!("{field}.{name}");
                causes.push(Cause::invalid(field, &"".into(), detail));
            }
        }
        if owner.get("controller") != Some(&Value::Bool(true)) {
            continue;
        }
        let this = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
        if let Some(first) = &controller {
            let detail = format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
            );
            let shown = Value::Array(owners.to_vec());
            causes.push(Cause::invalid(field, &shown, &detail));
        } else {
            controller = Some(this);
        }
    }
    causes
}

fn validate_finalizers(kind: &Kind, object: &Value) -> Vec<Cause> {
    let field = "metadata.finalizers";
    let all = finalizers(object);
    let mut causes = Vec::new();
    let lenient = "admissionregistration.k8s.io apiextensions.k8s.io apiregistration.k8s.io coordination.k8s.io";
    let mut lenient = lenient.split(' ');
    let needs_qualified = !kind.rules.custom && !lenient.any(|group| group == kind.resource.group);
    for (index, finalizer) in all.iter().enumerate() {
        let shown = finalizer.as_str().into();
        for text in names::check_key(finalizer) {
            causes.push(Cause::invalid(field, &shown, &text));
        }
        if needs_qualified && !is_qualified(finalizer) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(format!("{field}[{index}]"), &shown, detail));
        }
    }
    let has = |name: &str| all.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(Cause::invalid(field, &all.into(), detail));
    }
    causes
}

/// Returns what is invalid in a change of the metadata.
pub(super) fn validate_update(object: &Value, before: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if is_deleting(before) {
        let known = finalizers(before);
        let mut added = finalizers(object);
        added.retain(|finalizer| !known.contains(finalizer));
        added.sort();
        added.dedup();
        if !added.is_empty() {
            let quoted: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                quoted.join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &detail));
        }
    }
    let fixed = "name namespace uid deletionTimestamp deletionGracePeriodSeconds";
    for field in fixed.split(' ') {
        let (old, new) = (meta_field(before, field), meta_field(object, field));
        if old != new {
            let shown = new.cloned().unwrap_or(Value::Null);
            let field = format!("metadata.{field}");
            causes.push(Cause::invalid(field, &shown, "field is immutable"));
        }
    }
    causes
}

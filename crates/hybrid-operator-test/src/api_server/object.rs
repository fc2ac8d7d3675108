//! Reads and writes the metadata of objects that are JSON.

use serde_json::{Map, Value};

/// Returns the text at a field of the metadata; the empty text if there is none.
pub(super) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    let metadata = object.get("metadata");
    let text = metadata.and_then(|metadata| metadata.get(field)?.as_str());
    text.unwrap_or_default()
}

/// Returns a field of the metadata, unless it is null.
pub(super) fn meta_field<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    let value = object.get("metadata")?.get(field)?;
    (!value.is_null()).then_some(value)
}

pub(super) fn set_meta(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(metadata) = metadata_mut(object) {
        metadata.insert(field.to_owned(), value.into());
    }
}

pub(super) fn remove_meta(object: &mut Value, field: &str) {
    if let Some(metadata) = metadata_mut(object) {
        metadata.remove(field);
    }
}

/// Copies a field of the metadata, or its absence.
pub(super) fn copy_meta(from: &Value, to: &mut Value, field: &str) {
    match meta_field(from, field) {
        Some(value) => set_meta(to, field, value.clone()),
        None => remove_meta(to, field),
    }
}

fn metadata_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let fields = object.as_object_mut()?;
    let metadata = fields.entry("metadata");
    metadata
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()
}

pub(super) fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(field.to_owned(), value.into());
    }
}

pub(super) fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// Copies a field, or its absence.
pub(super) fn copy(from: &Value, to: &mut Value, field: &str) {
    match from.get(field) {
        Some(value) => set(to, field, value.clone()),
        None => remove(to, field),
    }
}

/// Returns the text at a field; the empty text if there is none.
pub(super) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    let text = object.get(field).and_then(Value::as_str);
    text.unwrap_or_default()
}

/// Returns the text at a JSON pointer; the empty text if there is none.
pub(super) fn text_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let text = object.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default()
}

/// Returns the elements of a list, none if it is absent.
pub(super) fn items(list: Option<&Value>) -> &[Value] {
    list.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the texts in a list.
pub(super) fn texts(list: Option<&Value>) -> Vec<String> {
    let texts = items(list).iter().filter_map(Value::as_str);
    texts.map(ToOwned::to_owned).collect()
}

pub(super) fn finalizers(object: &Value) -> Vec<String> {
    texts(meta_field(object, "finalizers"))
}

pub(super) fn has_finalizer(object: &Value, name: &str) -> bool {
    let mut finalizers = items(meta_field(object, "finalizers")).iter();
    finalizers.any(|finalizer| finalizer == name)
}

/// Sets the finalizers; none removes the field.
pub(super) fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    if finalizers.is_empty() {
        remove_meta(object, "finalizers");
    } else {
        set_meta(object, "finalizers", finalizers);
    }
}

pub(super) fn is_deleting(object: &Value) -> bool {
    meta_field(object, "deletionTimestamp").is_some()
}

/// Returns the generation, 0 if there is none.
pub(super) fn generation(object: &Value) -> i64 {
    let generation = meta_field(object, "generation");
    generation.and_then(Value::as_i64).unwrap_or_default()
}

/// Returns the value at a path of fields.
pub(super) fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter()
        .try_fold(object, |value, field| value.get(field))
}

/// Sets the value at a path of fields, and makes the objects on the way.
pub(super) fn set_at(object: &mut Value, path: &[&str], value: Value) {
    match path {
        [] => *object = value,
        [field, rest @ ..] => {
            if !object.is_object() {
                *object = Value::Object(Map::new());
            }
            if let Some(fields) = object.as_object_mut() {
                let inner = fields.entry((*field).to_owned()).or_insert(Value::Null);
                set_at(inner, rest, value);
            }
        }
    }
}

/// Returns whether two objects have the same fields, apart from these.
pub(super) fn same_except(one: &Value, two: &Value, except: &[&str]) -> bool {
    let (Some(one), Some(two)) = (one.as_object(), two.as_object()) else {
        return one == two;
    };
    let counts = |name: &&String| !except.contains(&name.as_str());
    one.keys().filter(counts).count() == two.keys().filter(counts).count()
        && one
            .iter()
            .filter(|(name, _)| counts(name))
            .all(|(name, value)| two.get(name) == Some(value))
}

//! Decodes the objects of requests, and converts stored objects to the version of a request.

use std::sync::Arc;

use serde_json::Value;

use super::definitions;
use super::fields::{kind_text, object_text};
use super::kinds::{Kind, Version};
use super::metadata;
use super::object::{set, text};
use super::status::{Cause, Failure, Named};
use super::store::{Read, Stored};
use super::typed;

/// An object of a request, in the version of the request.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) object: Value,
    /// Paths of fields that the kind does not have, which were dropped.
    pub(super) unknown: Vec<String>,
}

/// Decodes an object. A failure has the words about a body.
pub(super) fn body(kind: &Kind, version: &Version, object: Value) -> Result<Decoded, Failure> {
    check_type(kind, version, &object)?;
    object_of(kind, version, object).map_err(|why| undecodable(kind, version, &why))
}

/// Decodes an object that a patch has changed.
pub(super) fn patched(
    kind: &Kind,
    version: &Version,
    object: Value,
    text: impl FnOnce() -> String,
) -> Result<Decoded, Failure> {
    object_of(kind, version, object).map_err(|why| invalid_patch(text(), &why))
}

/// Sets the defaults of an object that a server-side apply has merged. Nothing is removed from custom resources until
/// they are read from the store.
pub(super) fn applied(
    kind: &Kind,
    version: &Version,
    applied: &Value,
    mut object: Value,
) -> Result<Value, Failure> {
    if !kind.rules.custom {
        let decoded = object_of(kind, version, object).map_err(|why| {
            let (text, type_name) = (object_text(applied), kind_text(applied));
            Failure::internal(format!(
                "failed to convert new object ({text}) to proper version: unable to convert unstructured object to {type_name}: error decoding from json: {why}"
            ))
        })?;
        return Ok(decoded.object);
    }
    if let Some(schema) = &version.schema {
        schema.fill_defaults(&mut object);
    }
    Ok(object)
}

/// The patched object cannot be decoded.
pub(super) fn invalid_patch(object: String, why: &str) -> Failure {
    let nothing = Named {
        group: "",
        name: "",
    };
    let cause = Cause::invalid("patch", &Value::String(object), why);
    Failure::invalid(nothing, "", &[cause])
}

pub(super) fn undecodable(kind: &Kind, version: &Version, why: &str) -> Failure {
    let kind = &kind.kind;
    Failure::bad_request(format!(
        "{kind} in version {:?} cannot be handled as a {kind}: {why}",
        version.name
    ))
}

fn check_type(kind: &Kind, version: &Version, object: &Value) -> Result<(), Failure> {
    let expected = kind.api_version(&version.name);
    let (found_version, found_kind) = (text(object, "apiVersion"), text(object, "kind"));
    if kind.rules.custom {
        if found_kind.is_empty() || found_version.is_empty() {
            let has_kind = !found_kind.is_empty();
            let what = if has_kind { "apiVersion" } else { "Kind" };
            return Err(Failure::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): Object '{what}' is missing in '{object}' ({object})",
                kind.kind
            )));
        }
        if found_version != expected {
            return Err(Failure::bad_request(format!(
                "the API version in the data ({found_version}) does not match the expected API version ({expected})"
            )));
        }
        return Ok(());
    }
    if !found_kind.is_empty() && found_kind != kind.kind {
        return Err(Failure::bad_request(format!(
            "{found_kind} in version {:?} cannot be handled as a {}: unknown conversion",
            version.name, kind.kind
        )));
    }
    if !found_version.is_empty() && found_version != expected {
        return Err(Failure::bad_request(format!(
            "{} in version {found_version:?} cannot be handled as a {}: no kind {:?} is registered for version {found_version:?} in scheme \"pkg/runtime/scheme.go:111\"",
            kind.kind, kind.kind, kind.kind
        )));
    }
    Ok(())
}

fn object_of(kind: &Kind, version: &Version, mut object: Value) -> Result<Decoded, String> {
    if !object.is_object() {
        return Err("json: cannot unmarshal into Go value".to_owned());
    }
    let mut unknown = metadata::decode(kind, &mut object)?;
    if !kind.rules.custom {
        set(&mut object, "apiVersion", kind.api_version(&version.name));
        set(&mut object, "kind", kind.kind.clone());
    }
    if let Some(schema) = &version.schema {
        unknown.extend(schema.prune(&mut object));
        schema.drop_nulls(&mut object);
        if kind.rules.custom {
            schema.fill_defaults(&mut object);
        }
    }
    if kind.rules.custom {
        return Ok(Decoded { object, unknown });
    }
    typed::normalize(kind, &mut object);
    definitions::fill_defaults(kind, &mut object);
    if let Some(schema) = &version.schema {
        let wrong = schema.validate(&object, None);
        if let Some(why) = typed::undecodable(kind, &object) {
            return Err(why);
        }
        if let Some(cause) = wrong.first() {
            return Err(format!("json: cannot unmarshal: {}", cause.text()));
        }
    }
    Ok(Decoded { object, unknown })
}

/// Converts a stored object to a version. The conversion of custom resources is `None`: only the
/// version changes, and what the other version does not have is dropped.
pub(super) fn to_version(kind: &Kind, version: &Version, object: &Arc<Stored>) -> Arc<Stored> {
    if !kind.rules.custom {
        return Arc::clone(object);
    }
    let shown = |read: &Read| match &read.object {
        Some(shown) => Arc::clone(shown),
        None => Arc::clone(object),
    };
    let is_same = |read: &Read| read.since == kind.since && read.api_version == version.api_version;
    if let Some(read) = object.read.get().filter(|read| is_same(read)) {
        return shown(read);
    }
    let converted = converted(kind, version, object);
    let read = Read {
        since: kind.since,
        api_version: version.api_version.clone(),
        object: (converted != ***object).then(|| Arc::new(Stored::new(converted))),
    };
    let result = shown(&read);
    // Only the first reading is remembered.
    drop(object.read.set(read));
    result
}

fn converted(kind: &Kind, version: &Version, object: &Value) -> Value {
    let mut converted = object.clone();
    // What is stored has metadata of the right types.
    drop(metadata::decode(kind, &mut converted));
    let stored = text(object, "apiVersion");
    if let Some(schema) = kind.schemas.get(stored) {
        schema.prune(&mut converted);
        schema.drop_nulls(&mut converted);
        schema.fill_defaults(&mut converted);
    }
    if version.api_version != stored {
        set(&mut converted, "apiVersion", version.api_version.clone());
        if let Some(schema) = &version.schema {
            schema.prune(&mut converted);
            schema.drop_nulls(&mut converted);
        }
    }
    converted
}

/// Converts an object of a request to the version in which it is stored.
pub(super) fn to_stored(kind: &Kind, mut object: Value) -> Value {
    if kind.rules.custom {
        if let Some(schema) = &kind.stored.schema {
            schema.prune(&mut object);
            schema.drop_nulls(&mut object);
        }
        set(&mut object, "apiVersion", kind.stored.api_version.clone());
    }
    object
}

//! Checks of writes before anything is changed: options, body, name, namespace, uid and version.

use serde_json::{Value, json};

use super::kinds::Kind;
use super::object::{meta, set_meta};
use super::request::{Call, MAX_MANAGER};
use super::server::Place;
use super::status::{Cause, Failure};

/// Checks the parameters that all writes have.
pub(super) fn check_options(options: &str, call: &Call) -> Result<(), Failure> {
    let invalid = |cause: Cause| Err(Failure::invalid_options(options, cause));
    if let Some(value) = call.query.get("dryRun")
        && value != "All"
    {
        let shown = json!([value]);
        return invalid(Cause::not_supported("dryRun", &shown, &["All".into()]));
    }
    let manager = call.parameter("fieldManager");
    if manager.len() > MAX_MANAGER {
        return invalid(Cause::too_long("fieldManager", MAX_MANAGER as u64));
    }
    let mut letters = manager.char_indices();
    if let Some((position, letter)) = letters.find(|(_, letter)| letter.is_control()) {
        let code = u32::from(letter);
        let detail = format!("invalid character U+{code:04X} (at position {position})");
        return invalid(Cause::invalid("fieldManager", &manager.into(), &detail));
    }
    let validation = call.parameter("fieldValidation");
    if !matches!(validation, "" | "Ignore" | "Warn" | "Strict") {
        let supported = ["".into(), "Ignore".into(), "Strict".into(), "Warn".into()];
        let cause = Cause::not_supported("fieldValidation", &validation.into(), &supported);
        return invalid(cause);
    }
    Ok(())
}

pub(super) fn parse_body(call: &Call, kind: &Kind) -> Result<Value, Failure> {
    let media_type = call.content_type.split(';').next().unwrap_or_default();
    if !matches!(media_type, "" | "application/json") {
        let what = format!("bodies of the type {media_type:?}");
        return Err(Failure::unmodelled(what));
    }
    serde_json::from_slice(&call.body).map_err(|error| {
        let text = String::from_utf8_lossy(&call.body);
        Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {error} ({text})",
            kind.kind
        ))
    })
}

/// Gives the object the namespace of the path.
pub(super) fn take_namespace(place: &Place, object: &mut Value) -> Result<(), Failure> {
    let wanted = place.namespace.as_deref().unwrap_or_default();
    let found = meta(object, "namespace");
    if found == wanted {
        return Ok(());
    }
    if found.is_empty() {
        set_meta(object, "namespace", wanted);
        return Ok(());
    }
    Err(Failure::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    ))
}

pub(super) fn check_name(object: &Value, name: &str) -> Result<(), Failure> {
    let found = meta(object, "name");
    if found.is_empty() {
        return Err(Failure::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if found != name {
        return Err(Failure::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

/// Fails if an object names another uid than the stored one has.
pub(super) fn check_uid(
    place: &Place,
    object: &Value,
    existing: Option<&Value>,
) -> Result<(), Failure> {
    let uid = meta(object, "uid");
    let found = existing.map_or("", |existing| meta(existing, "uid"));
    if uid.is_empty() || uid == found {
        return Ok(());
    }
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {found}",
        storage_key(place),
    );
    let name = place.key().name;
    Err(Failure::conflict(place.kind.named(), &name, &why))
}

pub(super) fn parse_version(version: &str) -> Result<u64, Failure> {
    if version.is_empty() {
        return Ok(0);
    }
    let words = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
    version.parse().map_err(|_| Failure::internal(words))
}

fn storage_key(place: &Place) -> String {
    let (resource, key) = (&place.kind.resource, place.key());
    let mut path = "/registry".to_owned();
    if place.kind.rules.custom {
        path = format!("{path}/{}", resource.group);
    }
    path = format!("{path}/{}", resource.plural);
    if !key.namespace.is_empty() {
        path = format!("{path}/{}", key.namespace);
    }
    format!("{path}/{}", key.name)
}

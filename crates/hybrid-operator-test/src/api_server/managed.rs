//! The seam to field management: which fields of an object belong to whom, and server-side apply.

use serde_json::{Value, json};

use super::fields::{self, Applied, ApplyError, TypeRef, Writer};
use super::request::Call;
use super::server::Place;
use super::status::Failure;

/// Returns who writes an object, and when.
pub(super) fn writer<'a>(
    call: &'a Call,
    place: &'a Place,
    subresource: Option<&'a str>,
    now: &'a str,
) -> Writer<'a> {
    Writer {
        manager: call.manager(),
        subresource,
        api_version: &place.version.api_version,
        now,
    }
}

/// Returns the new state of an object with its `managedFields`, after a write that is not an apply.
///
/// # Errors
/// The owners of its fields are not modelled.
pub(super) fn update(
    place: &Place,
    live: Option<&Value>,
    new: Value,
    writer: &Writer<'_>,
) -> Result<Value, Failure> {
    Ok(fields::update(live, new, type_of(place)?, writer)?)
}

/// Returns the state of an object after a server-side apply.
///
/// # Errors
/// A conflict with other managers, an object of another type, or what is not modelled.
pub(super) fn apply(
    place: &Place,
    live: Option<&Value>,
    applied: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Applied, Failure> {
    let type_ = type_of(place)?;
    Ok(fields::apply(live, applied, type_, writer, force)?)
}

fn type_of(place: &Place) -> Result<&TypeRef, Failure> {
    place.version.fields.as_deref().ok_or_else(|| {
        let kind = &place.kind.kind;
        Failure::unmodelled(format!("fields of the kind {kind}"))
    })
}

impl From<ApplyError> for Failure {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::Conflict { message, causes } => {
                let causes = causes.iter().map(|cause| {
                    json!({
                        "reason": "FieldManagerConflict", "message": cause.message,
                        "field": cause.field,
                    })
                });
                let causes: Vec<Value> = causes.collect();
                Self::new(409, "Conflict", message).with_details(json!({"causes": causes}))
            }
            ApplyError::BadRequest(message) => Self::bad_request(message),
            ApplyError::Internal(message) => Self::internal(message),
            ApplyError::NotModelled(what) => Self::unmodelled(what),
        }
    }
}

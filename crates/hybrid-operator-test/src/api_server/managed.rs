//! The seam to field management: who owns which fields of an object, and server-side apply.

use serde_json::Value;

use super::kinds::{Kind, Version};
use super::object::remove_meta;
use super::status::Failure;

/// Who writes an object, and how.
#[derive(Debug, Clone, Copy)]
#[allow(dead_code, reason = "read once fields are managed")]
pub(super) struct Writer<'a> {
    /// The field manager; the empty text if the request names none.
    pub(super) manager: &'a str,
    pub(super) subresource: Option<&'a str>,
    /// The time of the write, as `managedFields` shows it.
    pub(super) now: &'a str,
}

/// Returns the new state of an object with its `managedFields`, after a write that is not an apply.
pub(super) fn update(
    _kind: &Kind,
    _version: &Version,
    _live: Option<&Value>,
    mut new: Value,
    _writer: Writer<'_>,
) -> Value {
    remove_meta(&mut new, "managedFields");
    new
}

/// Returns the state of an object after a server-side apply.
///
/// # Errors
/// A conflict with other managers.
pub(super) fn apply(
    _kind: &Kind,
    _version: &Version,
    _live: Option<&Value>,
    _applied: &Value,
    _writer: Writer<'_>,
    _force: bool,
) -> Result<Value, Failure> {
    Err(Failure::unmodelled("server-side apply"))
}

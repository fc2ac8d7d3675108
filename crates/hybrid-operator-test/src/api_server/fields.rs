//! Server-side apply and `metadata.managedFields`, as kube-apiserver has them.
//!
//! Pure functions: what a write does to an object and to the owners of its fields. The order of a request is that of
//! the server:
//!
//! 1. The store decodes the request and sets defaults.
//! 2. [`update`], or [`apply`], after which the store sets defaults again if the object has changed.
//! 3. [`keep_times`], just before the store decides whether the object changed.
//!
//! Values that the server sets later, such as `spec.clusterIP` of a Service, are nobody's, so that they must not be in
//! the object yet.
//!
//! The subresource `scale` is an object of its own, whose entries [`scale`] exchanges with those of the object.
//!
//! Not modelled, and refused with [`ApplyError::NotModelled`]: subresources but `status`, `scale` and `finalize`; kinds
//! that are not in `types.json`; entries of another version of a built-in kind, whose fields may differ; the takeover of
//! `kubectl apply`'s annotation by the manager `kubectl`.

mod error;
mod go_text;
mod managed;
mod openapi;
mod path;
mod reset;
pub(crate) mod scale;
mod schema;
mod set;
mod typed;
mod types;
mod updater;

#[cfg(test)]
mod tests;

use serde_json::Value;

pub(crate) use error::ApplyError;
pub(crate) use types::TypeRef;
pub(crate) use types::Types;

use super::object::meta;
use managed::{Managed, ManagerId, Owned, metadata};
use set::FieldSet;
use typed::{Duplicates, validate};
use updater::{Refused, Updater};

/// Entries of updates beyond these are merged, oldest first.
const MAX_UPDATE_MANAGERS: usize = 10;

/// Manager of merged entries.
const ANCIENT: &str = "ancient-changes";

/// Manager of the fields of an object without managers, when it is applied for the first time.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Annotation of `kubectl apply`.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Fields that belong to the server.
const UNOWNED: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

/// The manager, the operation and the time of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    /// `fieldManager` of the request, or the first part of its user agent.
    pub(crate) manager: &'a str,
    pub(crate) subresource: Option<&'a str>,
    /// `apiVersion` of the request's path.
    pub(crate) api_version: &'a str,
    /// Time in RFC 3339, in UTC, with seconds.
    pub(crate) now: &'a str,
}

/// An applied object.
#[derive(Debug, Clone)]
pub(crate) struct Applied {
    /// The merged object, with its entries.
    pub(crate) object: Value,
    /// Whether the merge changed the object. The server sets defaults then.
    pub(crate) is_changed: bool,
}

/// Applies an object. Without a `live` object it is created.
///
/// # Errors
///
/// As the server answers, or [`ApplyError::NotModelled`].
pub(crate) fn apply(
    live: Option<&Value>,
    applied: &Value,
    type_: &TypeRef,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Applied, ApplyError> {
    let reset = reset_fields(type_, writer)?;
    let stored = live;
    let live = &live
        .cloned()
        .unwrap_or_else(|| type_.empty(writer.api_version, &Value::Null));
    let mut managed = Managed::decode(live).map_err(|error| {
        ApplyError::Internal(format!("failed to decode managed fields: {error}"))
    })?;
    if applied["apiVersion"] != writer.api_version || applied["kind"] != type_.kind.as_str() {
        let kind = kind_text(applied);
        return Err(ApplyError::BadRequest(format!(
            "invalid object type: {kind}"
        )));
    }
    check_modelled(live, type_, writer, &managed)?;
    let last_applied =
        metadata(live, "annotations").and_then(|all| all.get(LAST_APPLIED)?.as_str());
    if writer.manager == "kubectl" && last_applied.is_some_and(|text| !text.is_empty()) {
        return Err(ApplyError::NotModelled(format!(
            "the manager kubectl with the annotation {LAST_APPLIED}"
        )));
    }
    let updater = Updater::new(type_, writer, &reset);
    let violates = |duplicates, object: &Value, what: &str| {
        let violations = validate(&type_.schema, &type_.root, object, duplicates);
        if violations.is_empty() {
            return Ok(());
        }
        let object = object_text(object);
        Err(ApplyError::Internal(format!(
            "failed to create typed {what} object ({object}): {violations}"
        )))
    };

    if managed.fields.is_empty() {
        let first = Writer {
            manager: BEFORE_FIRST_APPLY,
            ..*writer
        };
        let empty = type_.empty(writer.api_version, live);
        violates(Duplicates::Allowed, live, "live")?;
        managed = updated(&empty, live, managed, &updater, &first).map_err(|refused| {
            let error = refusal(refused);
            ApplyError::Internal(format!(
                "failed to create manager for existing fields: {error}"
            ))
        })?;
    }
    if metadata(applied, "managedFields").is_some_and(Value::is_array) {
        let message = "metadata.managedFields must be nil";
        return Err(ApplyError::BadRequest(message.to_owned()));
    }
    violates(Duplicates::Forbidden, applied, "patch")?;
    violates(Duplicates::Allowed, live, "live")?;

    let id = ManagerId::applying(name(writer), writer.subresource.unwrap_or_default());
    let (merged, owners) = updater
        .apply(live, applied, managed.fields, &id, force)
        .map_err(refusal)?;
    managed.fields = owners;
    strip(&mut managed, &id);
    if merged.is_some() {
        managed.times.insert(id, writer.now.to_owned());
    }
    let is_changed = merged.is_some();
    let mut object = merged.unwrap_or_else(|| live.clone());
    managed.write(&mut object);
    type_.reset.restore(stored, &mut object, writer.subresource);
    Ok(Applied { object, is_changed })
}

/// Returns a created, updated or otherwise patched object with its entries.
///
/// `new` is the object after decoding and defaults, with the entries that the request has, if any.
///
/// # Errors
///
/// [`ApplyError::NotModelled`]. Where the server fails to manage fields it writes the object without entries.
pub(crate) fn update(
    live: Option<&Value>,
    mut new: Value,
    type_: &TypeRef,
    writer: &Writer<'_>,
) -> Result<Value, ApplyError> {
    let reset = reset_fields(type_, writer)?;
    let stored = live;
    let live = &live
        .cloned()
        .unwrap_or_else(|| type_.empty(writer.api_version, &new));
    let managed = entries_of_update(live, &new, type_, writer);
    check_modelled(live, type_, writer, &managed)?;
    managed::remove(&mut new);
    let is_tracked = !managed.fields.is_empty() || meta(live, "uid").is_empty();
    if is_tracked {
        let updater = Updater::new(type_, writer, &reset);
        let valid = [live, &new].iter().all(|object| {
            validate(&type_.schema, &type_.root, object, Duplicates::Allowed).is_empty()
        });
        if valid && let Ok(managed) = updated(live, &new, managed, &updater, writer) {
            managed.write(&mut new);
        }
    }
    type_.reset.restore(stored, &mut new, writer.subresource);
    Ok(new)
}

/// Gives a written object the times of the stored one if there is no other difference, so that nothing is written.
pub(crate) fn keep_times(live: &Value, new: Value) -> Value {
    let (Some(one), Some(two)) = (live.as_object(), new.as_object()) else {
        return new;
    };
    let same = same_fields(one, two, "metadata", |one, two| {
        let (Some(one), Some(two)) = (one.as_object(), two.as_object()) else {
            return path::equal(one, two);
        };
        same_fields(one, two, "managedFields", |one, two| {
            let (Some(one), Some(two)) = (one.as_array(), two.as_array()) else {
                return path::equal(one, two);
            };
            let mut entries = one.iter().zip(two);
            one.len() == two.len()
                && entries.all(|(one, two)| match (one.as_object(), two.as_object()) {
                    (Some(one), Some(two)) => same_fields(one, two, "time", |_, _| true),
                    _ => false,
                })
        })
    });
    if same { live.clone() } else { new }
}

/// Returns whether two objects have the same fields, of which one is compared in another way.
fn same_fields(
    one: &serde_json::Map<String, Value>,
    two: &serde_json::Map<String, Value>,
    other: &str,
    same: impl Fn(&Value, &Value) -> bool,
) -> bool {
    let null = Value::Null;
    let rest = |fields: &serde_json::Map<String, Value>| {
        fields.len() - usize::from(fields.contains_key(other))
    };
    rest(one) == rest(two)
        && one
            .iter()
            .filter(|(name, _)| *name != other)
            .all(|(name, value)| two.get(name).is_some_and(|with| path::equal(value, with)))
        && same(
            one.get(other).unwrap_or(&null),
            two.get(other).unwrap_or(&null),
        )
}

fn name<'a>(writer: &Writer<'a>) -> &'a str {
    if writer.manager.is_empty() {
        "unknown"
    } else {
        writer.manager
    }
}

fn reset_fields(type_: &TypeRef, writer: &Writer<'_>) -> Result<FieldSet, ApplyError> {
    type_.reset.fields(writer.subresource).ok_or_else(|| {
        ApplyError::NotModelled(format!(
            "managed fields of the subresource {} of {}",
            writer.subresource.unwrap_or_default(),
            type_.kind
        ))
    })
}

/// Refuses objects with fields in another version, if that may have other fields.
fn check_modelled(
    live: &Value,
    type_: &TypeRef,
    writer: &Writer<'_>,
    managed: &Managed,
) -> Result<(), ApplyError> {
    for owned in managed.fields.values() {
        // The versions of a definition are known.
        if !type_.is_custom && owned.api_version != writer.api_version {
            return Err(ApplyError::NotModelled(format!(
                "fields that are managed in {} of {}, which is written in {}",
                owned.api_version,
                object_text(live),
                writer.api_version
            )));
        }
    }
    Ok(())
}

/// Returns the entries that an update starts from: those of the request, if it has valid ones, or the stored ones.
fn entries_of_update(live: &Value, new: &Value, type_: &TypeRef, writer: &Writer<'_>) -> Managed {
    let stored = || Managed::decode(live).unwrap_or_default();
    if writer.subresource.is_some() {
        return stored();
    }
    // A list of one empty entry stops the tracking, and so does an empty list, which custom resources lose when they are
    // decoded.
    let is_reset = metadata(new, "managedFields")
        .and_then(Value::as_array)
        .is_some_and(|entries| match entries.as_slice() {
            [] => !type_.is_custom,
            [only] => only.as_object().is_some_and(serde_json::Map::is_empty),
            _ => false,
        });
    if is_reset {
        return Managed::default();
    }
    match Managed::decode(new) {
        Ok(managed) if !managed.fields.is_empty() => managed,
        _ => stored(),
    }
}

/// Returns the entries after an update.
fn updated(
    live: &Value,
    new: &Value,
    managed: Managed,
    updater: &Updater<'_>,
    writer: &Writer<'_>,
) -> Result<Managed, Refused> {
    let Managed { fields, times } = managed;
    // No entry has this identity, so that the manager takes its fields from its own entries, too.
    let current = ManagerId::updating("current-operation", "", "");
    let fields = updater.update(live, new, fields, &current)?;
    let mut managed = Managed { fields, times };
    strip(&mut managed, &current);
    if let Some(mut owned) = managed.fields.remove(&current) {
        let subresource = writer.subresource.unwrap_or_default();
        let id = ManagerId::updating(name(writer), writer.api_version, subresource);
        if let Some(before) = managed.fields.remove(&id) {
            owned.set = owned.set.union(&before.set);
        }
        managed.times.insert(id.clone(), writer.now.to_owned());
        managed.fields.insert(id, owned);
    }
    cap(&mut managed);
    Ok(managed)
}

fn refusal(refused: Refused) -> ApplyError {
    match refused {
        Refused::Conflicts(conflicts) => ApplyError::conflicts(&conflicts),
        Refused::Violations(what, violations) => {
            ApplyError::Internal(format!("{what}{violations}"))
        }
        Refused::Version(message) => ApplyError::Internal(message),
    }
}

/// Takes from a manager what belongs to the server.
fn strip(managed: &mut Managed, id: &ManagerId) {
    if let Some(owned) = managed.fields.get_mut(id) {
        owned.set = owned.set.difference(&FieldSet::of(UNOWNED));
        if owned.set.is_empty() {
            managed.fields.remove(id);
        }
    }
}

/// Merges the oldest entries of updates while there are too many.
fn cap(managed: &mut Managed) {
    let mut updaters: Vec<ManagerId> = managed
        .fields
        .keys()
        .filter(|id| !id.applies)
        .cloned()
        .collect();
    updaters.sort_by_key(|id| (managed.times.get(id).cloned(), id.text()));
    let mut excess = updaters.len().saturating_sub(MAX_UPDATE_MANAGERS);
    let mut first_of_version = std::collections::BTreeMap::new();
    for id in updaters {
        if excess == 0 {
            return;
        }
        let Some(Owned { api_version, .. }) = managed.fields.get(&id).cloned() else {
            continue;
        };
        let Some(first) = first_of_version.get(&api_version).cloned() else {
            first_of_version.insert(api_version, id);
            continue;
        };
        let bucket = ManagerId::updating(ANCIENT, &api_version, "");
        if !managed.fields.contains_key(&bucket)
            && let Some(owned) = managed.fields.remove(&first)
        {
            managed.fields.insert(bucket.clone(), owned);
        }
        let Some(merged) = managed.fields.remove(&id) else {
            continue;
        };
        if let Some(owned) = managed.fields.get_mut(&bucket) {
            owned.set = merged.set.union(&owned.set);
        }
        excess -= 1;
        if let Some(time) = managed.times.get(&id).cloned() {
            managed.times.insert(bucket, time);
        }
    }
}

/// Returns the group, version and kind of an object as Go prints them.
pub(super) fn kind_text(object: &Value) -> String {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let kind = object["kind"].as_str().unwrap_or_default();
    format!("{group}/{version}, Kind={kind}")
}

/// Returns the namespace, name and kind of an object as messages have them.
pub(super) fn object_text(object: &Value) -> String {
    let (namespace, name) = (meta(object, "namespace"), meta(object, "name"));
    format!("{namespace}/{name}; {}", kind_text(object))
}

//! Managed fields of the subresource `scale`: `ScaleHandler` of apimachinery.
//!
//! The number of replicas is the only field that an object shares with its scale.

use std::collections::BTreeMap;

use serde_json::Value;

use super::error::ApplyError;
use super::managed::{Managed, Owned};
use super::path::{Path, PathElement};
use super::set::FieldSet;

/// `apiVersion` of scales.
pub(crate) const API_VERSION: &str = "autoscaling/v1";

/// Paths of the number of replicas in objects of a kind, by `apiVersion`: names of fields, or `None` for a version
/// without the subresource.
pub(crate) type Replicas = BTreeMap<String, Option<Vec<String>>>;

const FIELD: &[&[&str]] = &[&["spec", "replicas"]];

fn path(fields: &[String]) -> Path {
    fields.iter().map(|name| PathElement::field(name)).collect()
}

fn decode(object: &Value) -> Result<Managed, ApplyError> {
    Managed::decode(object).map_err(ApplyError::Internal)
}

/// Gives a scale the entries of the managers who own the replicas of its object.
///
/// # Errors
///
/// The entries of the object are invalid.
pub(crate) fn share(
    object: &Value,
    scale: &mut Value,
    replicas: &Replicas,
) -> Result<(), ApplyError> {
    let parent = decode(object)?;
    let mut shared = Managed::default();
    for (id, owned) in &parent.fields {
        let Some(Some(fields)) = replicas.get(&owned.api_version) else {
            continue;
        };
        if owned.set.contains(&path(fields)) {
            let in_scale = Owned {
                set: FieldSet::of(FIELD),
                api_version: API_VERSION.to_owned(),
                applied: owned.applied,
            };
            shared.fields.insert(id.clone(), in_scale);
            shared
                .times
                .extend(parent.times.get(id).map(|time| (id.clone(), time.clone())));
        }
    }
    shared.write(scale);
    Ok(())
}

/// Gives an object its entries after a write of its scale.
///
/// # Errors
///
/// The entries of one of them are invalid.
pub(crate) fn merge(
    object: &mut Value,
    scale: &Value,
    api_version: &str,
    replicas: &Replicas,
) -> Result<(), ApplyError> {
    let Managed { fields, times } = decode(object)?;
    let mut in_scale = decode(scale)?.fields;
    let mut merged = Managed::default();
    for (id, mut owned) in fields {
        let Some(path) = replicas.get(&owned.api_version) else {
            // The version is gone.
            continue;
        };
        let path = path.as_deref().map(self::path);
        if let Some(path) = path.filter(|path| owned.set.contains(path))
            && in_scale.remove(&id).is_none()
        {
            let mut taken = FieldSet::default();
            taken.insert(&path);
            owned.set = owned.set.difference(&taken);
            if owned.set.is_empty() {
                continue;
            }
        }
        merged.fields.insert(id, owned);
    }
    let own = replicas.get(api_version).and_then(Option::as_deref);
    let field = FieldSet::of(FIELD);
    for (id, owned) in in_scale {
        if owned.set.intersection(&field).is_empty() {
            continue;
        }
        let mut set = FieldSet::default();
        set.insert(&own.map(path).unwrap_or_default());
        let owned = Owned {
            set,
            api_version: api_version.to_owned(),
            applied: owned.applied,
        };
        merged.fields.insert(id, owned);
    }
    // A manager who is new in the object has no time there.
    merged.times = times
        .into_iter()
        .filter(|(id, _)| merged.fields.contains_key(id))
        .collect();
    merged.write(object);
    Ok(())
}

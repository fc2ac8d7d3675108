//! Objects with their types: validation, sets of fields, comparison, merging and removal, as in the package `typed` of
//! structured-merge-diff.

mod compare;
mod field_set;
mod items;
mod merge;
mod reconcile;
mod remove;
mod validate;

pub(super) use compare::{Comparison, compare};
pub(super) use field_set::field_set;
pub(super) use merge::merge;
pub(super) use reconcile::reconcile;
pub(super) use remove::remove;
pub(super) use validate::{Duplicates, Violations, validate};

use serde_json::{Map as Object, Value};

/// Returns a value as an object; anything else counts as none.
fn object(value: Option<&Value>) -> Option<&Object<String, Value>> {
    value.and_then(Value::as_object)
}

/// Returns a value as a list; anything else counts as none.
fn items(value: Option<&Value>) -> Option<&Vec<Value>> {
    value.and_then(Value::as_array)
}

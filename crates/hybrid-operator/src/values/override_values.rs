//! `overrideValues`: sets values in the syntax of Helm's `--set`, one path each.
//!
//! Only what the author of `watches.yaml` wrote has a meaning. What an action prints, and what a variable
//! of the environment holds, is data: it adds no path, list or escape, and is never null.

use helm_core::Values;
use helm_core::values::set_one;
use serde_json::Value;

use super::inputs::{Inputs, ValuesError};
use super::mapping;
use crate::watches::expand::expand;
use crate::watches::{OverrideValuesType, Watch};

/// Sets the values in `values`. Returns the paths whose value changed.
pub(super) fn apply(
    watch: &Watch,
    inputs: &Inputs<'_>,
    values: &mut Values,
) -> Result<Vec<String>, ValuesError> {
    let is_typed = watch.override_values_type == OverrideValuesType::Typed;
    let mut overridden = Vec::new();
    for (path, text) in &watch.override_values {
        let field = || format!("overrideValues.{path}");
        let template = expand(text, &|name| inputs.env.get(name));
        let value = mapping::set_text(&template, inputs, &field())?;
        let before = Value::Object(values.clone());
        set_one(path, &value, is_typed, values).map_err(|source| ValuesError::Set {
            field: field(),
            source: Box::new(source),
        })?;
        if before != Value::Object(values.clone()) {
            overridden.push(path.clone());
        }
    }
    Ok(overridden)
}

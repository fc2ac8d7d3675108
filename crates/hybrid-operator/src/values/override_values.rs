//! `overrideValues`: sets values as Helm's `--set` does.

use helm_core::Values;
use helm_core::values::{set, set_string};
use serde_json::Value;

use super::{Inputs, ValuesError, mapping};
use crate::watches::expand::expand;
use crate::watches::{OverrideValuesType, Watch};

/// Sets the values in `values`. Returns the paths whose value changed.
pub(super) fn apply(
    watch: &Watch,
    inputs: &Inputs<'_>,
    values: &mut Values,
) -> Result<Vec<String>, ValuesError> {
    let mut overridden = Vec::new();
    for (path, text) in &watch.override_values {
        let field = || format!("overrideValues.{path}");
        let expanded = expand(text, &|name| inputs.env.get(name));
        let text = mapping::text(&expanded, inputs, &field())?;
        let before = Value::Object(values.clone());
        let flag = format!("{path}={text}");
        match watch.override_values_type {
            OverrideValuesType::Typed => set(&flag, values),
            OverrideValuesType::String => set_string(&flag, values),
        }
        .map_err(|source| ValuesError::Set {
            field: field(),
            source: Box::new(source),
        })?;
        if before != Value::Object(values.clone()) {
            overridden.push(path.clone());
        }
    }
    Ok(overridden)
}

//! Values that the expressions of `map` in `watches.yaml` compute.

use helm_core::Values;
use object_cel::Outcome;
use serde_json::Value;

use super::inputs::{Inputs, ValuesError};
use crate::watches::Watch;

/// Sets the values of all expressions. One that reads a field that the custom resource leaves out sets nothing.
pub(super) fn apply(
    watch: &Watch,
    inputs: &Inputs<'_>,
    values: &mut Values,
) -> Result<(), ValuesError> {
    if watch.map.is_empty() {
        return Ok(());
    }
    let variables = watch.variables(inputs.object);
    for (path, expression) in &watch.map {
        let outcome = expression.evaluate(&variables);
        let outcome = outcome.map_err(|source| ValuesError::Expression {
            field: format!("map.{}", path.join(".")),
            source: Box::new(source),
        })?;
        if let Outcome::Value(value) = outcome {
            set(values, path, value);
        }
    }
    Ok(())
}

/// Sets the value at a path; what is in the way is replaced.
fn set(values: &mut Values, path: &[String], value: Value) {
    match path {
        [] => {}
        [last] => {
            values.insert(last.clone(), value);
        }
        [first, rest @ ..] => {
            let below = values
                .entry(first.clone())
                .or_insert_with(|| Values::new().into());
            if !below.is_object() {
                *below = Values::new().into();
            }
            if let Value::Object(below) = below {
                set(below, rest, value);
            }
        }
    }
}

//! Evaluates templates in `watches.yaml`. Their data is `.Object`, the custom resource, and
//! `.Spec`, its spec, and `.Env`, the environment variables of the operator.

use go_template::{List, Map, Str, Value as GoValue};
use helm_core::Values;
use helm_core::values::SetText;
use serde_json::{Number, Value};

use super::inputs::{Inputs, ValuesError};
use crate::watches::template;

/// Evaluates the templates in all strings of a tree.
pub(super) fn evaluate(tree: &Value, inputs: &Inputs<'_>) -> Result<Values, ValuesError> {
    match node(tree, inputs, "values")? {
        Value::Object(values) => Ok(values),
        _ => Ok(Values::new()),
    }
}

fn node(tree: &Value, inputs: &Inputs<'_>, field: &str) -> Result<Value, ValuesError> {
    Ok(match tree {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| Ok((key.clone(), node(value, inputs, &format!("{field}.{key}"))?)))
            .collect::<Result<_, ValuesError>>()?,
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(i, value)| node(value, inputs, &format!("{field}[{i}]")))
            .collect::<Result<_, _>>()?,
        Value::String(text) if text.contains("{{") => match pipeline(text) {
            Some(pipeline) => typed(pipeline, inputs, field)?,
            None => Value::String(self::text(text, inputs, field)?),
        },
        other => other.clone(),
    })
}

/// Returns the pipeline of a text that is a single action and not a control structure.
fn pipeline(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let inner = inner.trim_start_matches('-').trim_end_matches('-').trim();
    let keyword = inner.split_whitespace().next().unwrap_or("");
    let control = matches!(
        keyword,
        "if" | "range" | "with" | "define" | "template" | "block" | "end" | "else"
    ) || inner.starts_with("/*")
        || inner.starts_with('$') && inner.contains(":=");
    (!control && !inner.contains("{{") && !inner.contains("}}")).then_some(inner)
}

/// Evaluates a pipeline and keeps the type of its result.
fn typed(pipeline: &str, inputs: &Inputs<'_>, field: &str) -> Result<Value, ValuesError> {
    let json = render(&format!("{{{{ toRawJson ({pipeline}) }}}}"), inputs, field)?;
    serde_json::from_str(&json.text).map_err(|_| ValuesError::Result {
        field: field.to_owned(),
    })
}

/// Evaluates the templates in a text.
pub(super) fn text(text: &str, inputs: &Inputs<'_>, field: &str) -> Result<String, ValuesError> {
    Ok(set_text(text, inputs, field)?.text)
}

/// Evaluates the templates in a text. What their actions print is data in the result.
pub(super) fn set_text(
    text: &str,
    inputs: &Inputs<'_>,
    field: &str,
) -> Result<SetText, ValuesError> {
    if text.contains("{{") {
        render(text, inputs, field)
    } else {
        Ok(SetText::from(text))
    }
}

fn render(text: &str, inputs: &Inputs<'_>, field: &str) -> Result<SetText, ValuesError> {
    let spec = inputs.object.get("spec").unwrap_or(&Value::Null);
    let data: Map = [
        ("Object", go_value(inputs.object)),
        ("Spec", go_value(spec)),
        ("Env", inputs.env.to_value()),
    ]
    .into_iter()
    .collect();
    let field = field.to_owned();
    template::render(&field, text, &GoValue::Map(data)).map_err(|failure| match failure {
        template::Failure::Parse(source) => ValuesError::Parse { field, source },
        template::Failure::Render(source) => ValuesError::Render { field, source },
        template::Failure::NotText => ValuesError::Result { field },
    })
}

fn go_value(value: &Value) -> GoValue {
    match value {
        Value::Null => GoValue::Nil,
        Value::Bool(value) => GoValue::Bool(*value),
        Value::Number(number) => go_number(number),
        Value::String(text) => GoValue::Str(Str::from(text.as_bytes())),
        Value::Array(items) => {
            GoValue::List(List::from(items.iter().map(go_value).collect::<Vec<_>>()))
        }
        Value::Object(map) => GoValue::Map(
            map.iter()
                .map(|(key, value)| (key.as_str(), go_value(value)))
                .collect(),
        ),
    }
}

/// Converts a number. Integers become int64, as in Go's unstructured objects.
fn go_number(number: &Number) -> GoValue {
    match number.as_i64() {
        Some(value) => GoValue::Int64(value),
        None => GoValue::Float(number.as_f64().unwrap_or_default()),
    }
}

//! The one door to YAML: documents in, JSON values out, as sigs.k8s.io/yaml reads them.

use serde_json::Value;

/// A text that is no YAML, or has more than JSON can say.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct YamlError(String);

/// Reads the first document of `text`; an empty one is null. Numbers are what Go's JSON decoder
/// makes of them: all are floats.
pub(crate) fn parse(text: &str) -> Result<Value, YamlError> {
    let content: String = text.lines().filter(|line| !line.starts_with('#')).collect();
    if content.trim().is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(&content).map_err(|error| YamlError(error.to_string()))
}

/// Makes all numbers floats, which is what they are once Go has read them from JSON.
pub(crate) fn all_floats(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(float) = number.as_f64().and_then(serde_json::Number::from_f64) {
                *number = float;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(all_floats),
        Value::Object(map) => map.values_mut().for_each(all_floats),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

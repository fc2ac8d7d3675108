//! Writes a node as the structural schema that a CRD holds.
//!
//! * A value that Helm does not restrict has no `type`, but `x-kubernetes-preserve-unknown-fields`:
//!   charts often take a number where the default is a string, or a template where it is a list.
//! * Everything outside of lists is nullable: in Helm, null removes a chart's default. The API server
//!   refuses null where there is an `enum`, so strings have a `pattern` instead.
//! * There is no `required` outside of lists: the chart's defaults, or the watches file, may have the
//!   field.
//! * There is no `default`: it would be stored in custom resources, and outlive that of the chart.

use serde_json::{Map, Value, json};

use super::description;
use super::node::{Kind, Node, Others};

const OPEN: &str = "x-kubernetes-preserve-unknown-fields";

/// Place of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Outside of lists, where Helm merges the values over the chart's defaults.
    Merged,
    /// In a list, which Helm takes as it is.
    Listed,
}

/// Returns the schema of the `spec`.
pub(crate) fn spec(node: &Node) -> Value {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    if let Some(text) = &node.text {
        schema.insert("description".to_owned(), json!(text));
    }
    add_fields(node, node.binding, Place::Merged, &mut schema);
    Value::Object(schema)
}

fn structural(node: &Node, place: Place) -> Value {
    let mut schema = Map::new();
    if let Some(text) = description::of(node) {
        schema.insert("description".to_owned(), json!(text));
    }
    let restricted = node.binding;
    if place == Place::Merged || !restricted || node.may_be(Kind::Null) {
        schema.insert("nullable".to_owned(), json!(true));
    }
    let nullable = schema.contains_key("nullable");
    match node.only_kind().filter(|_| restricted) {
        Some(Kind::Object) => {
            schema.insert("type".to_owned(), json!("object"));
            add_fields(node, true, place, &mut schema);
        }
        Some(Kind::Array) => {
            schema.insert("type".to_owned(), json!("array"));
            let items = node.items.as_ref().map_or_else(
                || json!({OPEN: true, "nullable": true}),
                |items| structural(items, Place::Listed),
            );
            schema.insert("items".to_owned(), items);
            insert(&mut schema, "minItems", node.bounds.min_items);
            insert(&mut schema, "maxItems", node.bounds.max_items);
        }
        Some(kind @ (Kind::String | Kind::Integer | Kind::Number | Kind::Boolean)) => {
            schema.insert("type".to_owned(), json!(kind.name()));
            restrict_scalar(node, kind, nullable, &mut schema);
        }
        Some(Kind::Null) | None if restricted && is_int_or_string(node) => {
            schema.insert("x-kubernetes-int-or-string".to_owned(), json!(true));
        }
        Some(Kind::Null) | None => {
            add_fields(node, false, place, &mut schema);
            if let Some(items) = node.items.as_ref().filter(|_| node.may_be(Kind::Array)) {
                schema.insert("items".to_owned(), structural(items, Place::Listed));
            }
        }
    }
    Value::Object(schema)
}

fn is_int_or_string(node: &Node) -> bool {
    let kinds = node.kinds.iter().filter(|kind| **kind != Kind::Null);
    kinds.eq([&Kind::Integer, &Kind::String])
}

/// Adds the fields of a map. `restricted` says whether it is known to be a map.
fn add_fields(node: &Node, restricted: bool, place: Place, schema: &mut Map<String, Value>) {
    let open = match &node.others {
        Others::None if restricted => false,
        Others::Like(others) if restricted && node.properties.is_empty() => {
            let others = structural(others, place);
            schema.insert("additionalProperties".to_owned(), others);
            false
        }
        _ => true,
    };
    if open {
        schema.insert(OPEN.to_owned(), json!(true));
    }
    if !node.properties.is_empty() {
        let properties: Map<String, Value> = node
            .properties
            .iter()
            .map(|(name, node)| (name.clone(), structural(node, place)))
            .collect();
        schema.insert("properties".to_owned(), Value::Object(properties));
    }
    if place == Place::Listed && restricted && !node.required.is_empty() {
        schema.insert("required".to_owned(), json!(node.required));
    }
}

fn restrict_scalar(node: &Node, kind: Kind, nullable: bool, schema: &mut Map<String, Value>) {
    let bounds = &node.bounds;
    let allowed: Vec<&Value> = node
        .allowed
        .iter()
        .filter(|value| !value.is_null())
        .collect();
    match kind {
        Kind::String => {
            insert(schema, "minLength", bounds.min_length);
            insert(schema, "maxLength", bounds.max_length);
            let pattern = bounds.pattern.as_ref().filter(|text| is_go_pattern(text));
            insert(schema, "pattern", pattern);
        }
        Kind::Integer | Kind::Number => {
            for (name, exclusive, bound) in [
                ("minimum", "exclusiveMinimum", &bounds.minimum),
                ("maximum", "exclusiveMaximum", &bounds.maximum),
            ] {
                if let Some((number, excluded)) = bound {
                    schema.insert(name.to_owned(), short(number));
                    insert(schema, exclusive, excluded.then_some(true));
                }
            }
            // The API server divides fractions inexactly.
            let factor = bounds.multiple_of.filter(|_| kind == Kind::Integer);
            insert(schema, "multipleOf", factor);
        }
        _ => {}
    }
    if allowed.is_empty() {
        return;
    }
    if !nullable {
        schema.insert("enum".to_owned(), json!(allowed));
        return;
    }
    match kind {
        Kind::String => {
            let texts: Vec<String> = allowed
                .iter()
                .filter_map(|value| value.as_str())
                .map(quoted)
                .collect();
            let pattern = format!("^({})$", texts.join("|"));
            schema.insert("pattern".to_owned(), json!(pattern));
        }
        Kind::Integer | Kind::Number => {
            let numbers = || {
                let numbers = allowed.iter().filter_map(|value| value.as_number());
                numbers.filter_map(|number| Some((number.as_f64()?, number)))
            };
            let least = numbers().min_by(|one, two| one.0.total_cmp(&two.0));
            let most = numbers().max_by(|one, two| one.0.total_cmp(&two.0));
            if let (Some((_, least)), Some((_, most))) = (least, most) {
                schema.insert("minimum".to_owned(), short(least));
                schema.insert("maximum".to_owned(), short(most));
                schema.remove("exclusiveMinimum");
                schema.remove("exclusiveMaximum");
            }
        }
        _ => {}
    }
}

fn insert<T: serde::Serialize>(schema: &mut Map<String, Value>, name: &str, value: Option<T>) {
    if let Some(value) = value {
        schema.insert(name.to_owned(), json!(value));
    }
}

/// Writes `1.0` as `1`.
pub(super) fn short(number: &serde_json::Number) -> Value {
    let whole = number.as_f64().filter(|float| {
        number.is_f64() && float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0
    });
    #[expect(clippy::cast_possible_truncation, reason = "checked")]
    whole.map_or_else(|| json!(number), |float| json!(float as i64))
}

/// Quotes a text for a regular expression of Go.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for character in text.chars() {
        if r"\.+*?()|[]{}^$".contains(character) {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted
}

/// Returns whether Go knows the syntax of a pattern. If it does not, Helm refuses all values, which
/// the operator reports; a CRD with it could not be created.
fn is_go_pattern(pattern: &str) -> bool {
    !["(?=", "(?!", "(?<=", "(?<!"]
        .iter()
        .any(|unknown| pattern.contains(unknown))
}

#[cfg(test)]
mod tests {
    use super::super::convert::convert;
    use super::*;

    /// The schema of the field `a` of a chart's schema.
    fn field(schema: &Value) -> Value {
        let spec = spec(&convert(&json!({"properties": {"a": schema}})));
        spec["properties"]["a"].clone()
    }

    #[test]
    fn keywords_of_a_chart_become_a_structural_schema() {
        let cases = r#"true -> {"nullable": true, "x-kubernetes-preserve-unknown-fields": true}
false -> {"nullable": true, "x-kubernetes-preserve-unknown-fields": true}
{"type": "string", "enum": ["a", "b.c", null]} -> {"nullable": true, "type": "string", "pattern": "^(a|b\\.c)$", "description": "One of: a, b.c."}
{"enum": [0, 1, 2]} -> {"nullable": true, "type": "integer", "minimum": 0, "maximum": 2, "description": "One of: 0, 1, 2."}
{"type": ["integer", "string"]} -> {"nullable": true, "x-kubernetes-int-or-string": true}
{"type": ["boolean", "string", "null"]} -> {"nullable": true, "x-kubernetes-preserve-unknown-fields": true, "description": "A boolean or string."}
{"type": "object", "additionalProperties": {"type": "string"}} -> {"nullable": true, "type": "object", "additionalProperties": {"nullable": true, "type": "string"}}
{"type": "object", "additionalProperties": false, "required": ["b"], "properties": {"b": {"type": "number", "exclusiveMinimum": 0}}} -> {"nullable": true, "type": "object", "properties": {"b": {"nullable": true, "type": "number", "minimum": 0, "exclusiveMinimum": true}}}
{"type": "array", "uniqueItems": true, "items": {"type": "object", "required": ["b"], "properties": {"b": {"enum": ["x", "y"]}}}} -> {"nullable": true, "type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "required": ["b"], "properties": {"b": {"type": "string", "enum": ["x", "y"], "description": "One of: x, y."}}}}
{"type": "string", "format": "uri", "minLength": 1} -> {"nullable": true, "type": "string", "minLength": 1, "description": "Format: uri."}
{"type": "string", "pattern": "^(?!x)"} -> {"nullable": true, "type": "string"}"#;
        for case in cases.lines() {
            let (schema, wanted) = case.split_once(" -> ").unwrap();
            let schema: Value = serde_json::from_str(schema).unwrap();
            let wanted: Value = serde_json::from_str(wanted).unwrap();
            assert_eq!(field(&schema), wanted, "{schema}");
        }
    }
}

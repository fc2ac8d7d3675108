//! The JSON schema of `watches.yaml`, for editors.

/// The schema, in the draft 2020-12.
pub(crate) const SCHEMA: &str = include_str!("watches.schema.json");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use hybrid_operator::watches;
    use serde_json::{Map, Value, json};

    use super::SCHEMA;

    const UNKNOWN: &str = "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqq";

    fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
        match schema.get("$ref").and_then(Value::as_str) {
            Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap(),
            None => schema,
        }
    }

    /// Returns what the parser says of an entry with `value` at a path of the schema; `[]` is an item.
    fn messages(path: &[String], value: Value) -> Vec<String> {
        let nested = path
            .iter()
            .rev()
            .fold(value, |inner, part| match part.as_str() {
                "[]" => json!([inner]),
                name => json!({ name: inner }),
            });
        let mut entry = json!({"group": "a.b", "version": "v1", "kind": "A", "chart": "charts/a"});
        entry
            .as_object_mut()
            .unwrap()
            .extend(nested.as_object().cloned().unwrap_or_default());
        let text = json!([entry]).to_string();
        let (_, problems) = watches::parse(text.as_bytes(), Path::new(""));
        problems
            .into_iter()
            .map(|problem| problem.message)
            .collect()
    }

    /// The fields that the parser knows at a path.
    fn fields_of_parser(path: &[String]) -> BTreeSet<String> {
        let messages = messages(path, json!({ UNKNOWN: 1 }));
        let list = messages
            .iter()
            .find_map(|message| message.split_once("known fields: "));
        let (_, list) = list.unwrap_or_else(|| panic!("{path:?}: {messages:?}"));
        list.split(", ").map(ToOwned::to_owned).collect()
    }

    fn walk(document: &Value, schema: &Value, path: &mut Vec<String>, seen: &mut usize) {
        let schema = resolved(document, schema);
        let maps = schema.get("oneOf").and_then(Value::as_array);
        for map in maps.into_iter().flatten() {
            walk(document, map, path, seen);
        }
        if schema.get("additionalProperties") == Some(&json!(false)) {
            let properties: &Map<String, Value> = schema["properties"].as_object().unwrap();
            let fields: BTreeSet<String> = properties.keys().cloned().collect();
            assert_eq!(fields, fields_of_parser(path), "fields at {path:?}");
            *seen += 1;
            for (name, below) in properties {
                path.push(name.clone());
                walk(document, below, path, seen);
                path.pop();
            }
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            let said = messages(path, json!(UNKNOWN)).join("\n");
            let values = values.iter().map(|value| value.as_str().unwrap());
            let names: Vec<String> = values.map(|value| format!("`{value}`")).collect();
            let expected = format!("must be one of {}", names.join(", "));
            assert!(said.contains(&expected), "{path:?}: {said}");
        }
        if schema["additionalProperties"].is_object() {
            path.push("NAME".to_owned());
            walk(document, &schema["additionalProperties"], path, seen);
            path.pop();
        }
        if schema["items"].get("additionalProperties") == Some(&json!(false)) {
            path.push("[]".to_owned());
            walk(document, &schema["items"], path, seen);
            path.pop();
        }
    }

    /// Adding a field to the parser, or to the schema, fails here until the other has it too.
    #[test]
    fn schema_and_parser_have_the_same_fields_and_choices() {
        let document: Value = serde_json::from_str(SCHEMA).unwrap();
        let mut seen = 0;
        walk(&document, &document["items"], &mut Vec::new(), &mut seen);
        // The entry, its sections, and what is in them.
        assert_eq!(seen, 30);
    }
}

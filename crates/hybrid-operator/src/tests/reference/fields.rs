//! The page about the fields of a watches file, from their JSON schema, which a test of the command
//! compares with the parser.

use serde_json::{Value, json};

use super::{assert_generated, root, table};

/// Returns the schema that a schema refers to, if it does.
fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let reference = schema.get("$ref").and_then(Value::as_str);
    let found = reference.and_then(|path| document.pointer(path.trim_start_matches('#')));
    found.unwrap_or(schema)
}

/// Returns the schemas of which one holds.
fn alternatives(schema: &Value) -> Vec<&Value> {
    let any = ["oneOf", "anyOf"].iter().find_map(|name| schema.get(name));
    match any.and_then(Value::as_array) {
        Some(all) => all.iter().collect(),
        None => vec![schema],
    }
}

fn type_of(schema: &Value) -> String {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        return match reference.rsplit('/').next().unwrap_or_default() {
            "selector" => "label selector".to_owned(),
            name => name.to_owned(),
        };
    }
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        let choices = choices.iter().filter_map(Value::as_str);
        let choices: Vec<String> = choices.map(|choice| format!("`{choice}`")).collect();
        return choices.join(", ");
    }
    let names = alternatives(schema).into_iter().map(|one| {
        let name = match one.get("type") {
            Some(Value::Array(all)) => {
                let all = all.iter().filter_map(Value::as_str).map(simple);
                return all.collect::<Vec<_>>().join(" or ");
            }
            name => name.and_then(Value::as_str).unwrap_or("any"),
        };
        match (name, one.get("items"), one.get("minimum")) {
            ("array", Some(items), _) if items.get("properties").is_none() => {
                format!("list of {}", type_of(items))
            }
            (_, _, Some(least)) => format!("{}, at least {least}", simple(name)),
            _ => simple(name).to_owned(),
        }
    });
    let mut names: Vec<String> = names.collect();
    names.dedup();
    names.join(" or ")
}

fn simple(name: &str) -> &str {
    match name {
        "array" => "list",
        "object" => "map",
        "integer" => "number",
        other => other,
    }
}

/// Adds the fields of a map to the rows.
fn walk(schema: &Value, path: &str, rows: &mut Vec<Vec<String>>) {
    for schema in alternatives(schema) {
        let required = schema.get("required").and_then(Value::as_array);
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, below) in properties.into_iter().flatten() {
            let path = match path {
                "" => name.clone(),
                path => format!("{path}.{name}"),
            };
            let text = below.get("description").and_then(Value::as_str);
            let text = text.unwrap_or_else(|| panic!("{path} has no description"));
            let (text, said) = match text.split_once(" Default: ") {
                Some((text, default)) => (text, default.trim_end_matches('.').to_owned()),
                None => (text, String::new()),
            };
            let is_required = required.is_some_and(|all| all.contains(&Value::from(name.as_str())));
            let default = match below.get("default") {
                _ if is_required => "required".to_owned(),
                Some(Value::String(default)) => format!("`{default}`"),
                Some(default) => format!("`{default}`"),
                None => said,
            };
            rows.push(vec![
                format!("`{path}`"),
                type_of(below),
                default,
                text.to_owned(),
            ]);
            // Types with a name have a table of their own.
            if below.get("$ref").is_none() {
                walk(below, &path, rows);
                if let Some(items) = below.get("items") {
                    walk(items, &format!("{path}[]"), rows);
                }
                let named = below.get("additionalProperties");
                if let Some(named) = named.filter(|named| named.get("description").is_some()) {
                    let schema = json!({"properties": {"NAME": named}});
                    walk(&schema, &path, rows);
                }
            }
        }
    }
}

#[test]
fn the_page_about_the_watches_file_has_the_fields_of_the_schema() {
    let path = root().join("crates/hybrid-operator-cli/src/generate/watches.schema.json");
    let document: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut rows = Vec::new();
    walk(&document["items"], "", &mut rows);
    // Maps of JSON have an order of their own only if a feature of another crate says so.
    rows.sort_by_key(|row| row[0].trim_matches('`').to_owned());
    let target = serde_json::json!({"$ref": "#/$defs/target"});
    walk(resolved(&document, &target), "target", &mut rows);
    let text = format!(
        "The fields of an entry of [`watches.yaml`](../guides/watches.md), which explains them with examples. A path \
         such as `install.timeout` is the field `timeout` in the map `install`; `valuesFrom[].name` is the \
         field `name` of each item of the list `valuesFrom`. A duration is text with a unit: `300ms`, `1m30s`, \
         `2h`. A target selects objects of the release; its fields are `target.*`. A field whose value is \
         null is absent.\n\n{}",
        table(&["field", "type", "default", "meaning"], rows)
    );
    assert_generated("watches.md", "Fields", &text);
}

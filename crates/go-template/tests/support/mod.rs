//! Values for tests: JSON as Helm reads it, and a root like a chart's.
#![allow(dead_code, reason = "each test uses a part")]

use go_template::{Str, Tree, TreeMap, Type, TypeInfo};

static VALUES: TypeInfo = TypeInfo {
    named: true,
    ..TypeInfo::map("common.Values", Type::ANY)
};

/// Converts JSON to a tree in which every number is a `float64`.
pub(crate) fn json_to_tree(json: &serde_json::Value) -> Tree {
    match json {
        serde_json::Value::Null => Tree::Nil,
        serde_json::Value::Bool(value) => Tree::Bool(*value),
        serde_json::Value::Number(number) => Tree::Float(number.as_f64().unwrap_or(f64::NAN)),
        serde_json::Value::String(text) => Tree::Str(Str::from(text)),
        serde_json::Value::Array(items) => {
            Tree::from(items.iter().map(json_to_tree).collect::<Vec<_>>())
        }
        serde_json::Value::Object(entries) => map(entries
            .iter()
            .map(|(key, value)| (key.as_str(), json_to_tree(value)))),
    }
}

/// Creates a `map[string]interface {}`.
pub(crate) fn map<'k>(entries: impl IntoIterator<Item = (&'k str, Tree)>) -> Tree {
    let entries = entries
        .into_iter()
        .map(|(key, value)| (Str::from(key), value));
    Tree::from(TreeMap::new(Type::MAP, entries))
}

/// Returns a dot like that of a chart's template, as far as it contains no functions of Helm.
pub(crate) fn root(values: &Tree) -> Tree {
    let values = match values {
        Tree::Map(values) => {
            let entries = values
                .iter()
                .map(|(key, value)| (key.clone(), value.clone()));
            Tree::from(TreeMap::new(Type::new(&VALUES), entries))
        }
        _ => Tree::from(TreeMap::new(Type::new(&VALUES), [])),
    };
    let release = map([
        ("Name", Tree::Str("release-name".into())),
        ("Namespace", Tree::Str("default".into())),
        ("Service", Tree::Str("Helm".into())),
        ("Revision", Tree::Int(1)),
        ("IsInstall", Tree::Bool(true)),
        ("IsUpgrade", Tree::Bool(false)),
    ]);
    let entries = [("Values", values), ("Release", release)];
    let entries = entries.map(|(key, value)| (Str::from(key), value));
    Tree::from(TreeMap::new(Type::new(&VALUES), entries))
}

/// Formats errors that no function returned as Helm does.
pub(crate) fn reformat(error: &str) -> String {
    let place_and_rest = error
        .strip_prefix("template: ")
        .and_then(|text| text.split_once(": "));
    let Some((place, rest)) = place_and_rest else {
        return error.to_owned();
    };
    match rest.split_once(">: ") {
        Some((node, message)) => format!("{place}\n  {node}>:\n    {}", message.trim_end()),
        None => error.to_owned(),
    }
}

/// Formats errors of the parser as Helm does.
pub(crate) fn parse_error(error: &go_template::ParseError) -> String {
    let place = error.location();
    let message = error.message().rsplit(": ").next().unwrap_or_default();
    format!("parse error at ({}:{}): {message}", place.file, place.line)
}

//! The description of a field: the chart's words, then what the schema cannot say.

use serde_json::Value;

use super::node::{Kind, Node};

/// Longest default that is shown, in characters.
const DEFAULT: usize = 80;
/// Text shown instead of a default that may be a secret.
const HIDDEN: &str = "(hidden)";

/// Returns the description of a field.
pub(crate) fn of(node: &Node) -> Option<String> {
    let mut sentences = Vec::new();
    if let Some(text) = &node.text {
        sentences.push(sentence(text));
    }
    if let Some(kinds) = kinds(node) {
        sentences.push(kinds);
    }
    if !node.allowed.is_empty() {
        let allowed: Vec<String> = node
            .allowed
            .iter()
            .filter(|value| !value.is_null())
            .map(plain)
            .collect();
        sentences.push(format!("One of: {}.", allowed.join(", ")));
    }
    if let Some(format) = &node.format {
        sentences.push(format!("Format: {format}."));
    }
    if let Some(default) = &node.default {
        sentences.push(format!("Default: {default}"));
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// Ends a text with a full stop.
fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() || text.ends_with(['.', '!', '?', ':', ';']) {
        return text.to_owned();
    }
    format!("{text}.")
}

/// Names the kinds of a value if its schema has no `type`.
fn kinds(node: &Node) -> Option<String> {
    let kinds: Vec<Kind> = node.kinds.iter().copied().collect();
    let named: Vec<&str> = kinds
        .iter()
        .filter(|kind| **kind != Kind::Null)
        .map(|kind| kind.name())
        .collect();
    let in_type = node.binding && (node.only_kind().is_some() || named == ["integer", "string"]);
    let shown_by_fields = !node.properties.is_empty() || node.items.is_some();
    if named.is_empty() || in_type || shown_by_fields && named.len() == 1 {
        return None;
    }
    // A default shows the kind as well.
    if named.len() == 1 && node.default.is_some() {
        return None;
    }
    let article = if named.first()?.starts_with(['i', 'a', 'o']) {
        "An"
    } else {
        "A"
    };
    let (last, others) = named.split_last()?;
    Some(match others {
        [] => format!("{article} {last}."),
        others => format!("{article} {} or {last}.", others.join(", ")),
    })
}

/// Writes a default for the description, if it is short. Values whose name suggests a secret are
/// not shown.
pub(crate) fn default(name: &str, value: &Value) -> Option<String> {
    let is_empty = match value {
        Value::Null => return Some("null".to_owned()),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    if matches!(value, Value::Object(map) if !map.is_empty()) {
        return None;
    }
    let is_text = matches!(value, Value::String(_) | Value::Number(_));
    if !is_empty && (is_text && is_secret(name) || holds_secret(value)) {
        return Some(HIDDEN.to_owned());
    }
    let text = match value {
        Value::String(text) if !text.is_empty() => text.clone(),
        other => short_numbers(other).to_string(),
    };
    (text.chars().count() <= DEFAULT && !text.contains('\n')).then_some(text)
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() => text.clone(),
        other => other.to_string(),
    }
}

/// Writes `1.0` as `1`: all numbers of a values file are floats.
pub(crate) fn short_numbers(value: &Value) -> Value {
    match value {
        Value::Number(number) => super::structural::short(number),
        Value::Array(items) => items.iter().map(short_numbers).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), short_numbers(value)))
            .collect(),
        other => other.clone(),
    }
}

/// Returns whether the name of a value suggests that it is a secret. Names of Secrets are not.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let mut words = "\
        password passwd passphrase secret token apikey api_key privatekey private_key accesskey \
        access_key credential"
        .split_whitespace();
    let of_object = ["name", "ref", "path", "file", "enabled"];
    words.any(|word| name.contains(word)) && !of_object.iter().any(|suffix| name.ends_with(suffix))
}

fn holds_secret(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(holds_secret),
        Value::Object(map) => map.iter().any(|(name, value)| {
            holds_secret(value) || is_secret(name) && value.as_str().is_some_and(|t| !t.is_empty())
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        for (name, value, shown) in [
            ("password", json!("hunter2"), Some(HIDDEN)),
            ("password", json!(""), Some("\"\"")),
            ("existingSecretName", json!("db"), Some("db")),
            ("apiToken", json!(12.0), Some(HIDDEN)),
            ("automountToken", json!(false), Some("false")),
            (
                "users",
                json!([{"name": "a", "password": "b"}]),
                Some(HIDDEN),
            ),
            ("replicas", json!(3.0), Some("3")),
            ("ports", json!([80.0]), Some("[80]")),
            ("extra", json!({}), Some("{}")),
            ("tag", json!(null), Some("null")),
            ("image", json!({"tag": "1"}), None),
            ("auth", json!({"password": "1"}), None),
            ("script", json!("a\nb"), None),
        ] {
            assert_eq!(default(name, &value).as_deref(), shown, "{name} {value}");
        }
    }
}

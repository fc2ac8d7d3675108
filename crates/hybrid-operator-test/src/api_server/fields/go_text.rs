//! Values as Go prints them, in keys of `fieldsV1` and in messages.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// Returns JSON as Go's encoder writes it: whole numbers without a fraction, `<`, `>` and `&` escaped.
pub(super) fn json(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => self::number(number),
        Value::String(text) => json_string(text),
        Value::Array(items) => format!("[{}]", joined(items, ",", json)),
        Value::Object(fields) => {
            let field =
                |(name, value): (&String, &Value)| format!("{}:{}", json_string(name), json(value));
            format!("{{{}}}", joined(fields, ",", field))
        }
    }
}

pub(super) fn joined<T>(
    parts: impl IntoIterator<Item = T>,
    between: &str,
    text: impl Fn(T) -> String,
) -> String {
    let texts: Vec<String> = parts.into_iter().map(text).collect();
    texts.join(between)
}

/// Returns a string of JSON as Go's encoder writes it.
pub(super) fn json_string(text: &str) -> String {
    let plain = Value::String(text.to_owned()).to_string();
    let mut escaped = String::with_capacity(plain.len());
    for c in plain.chars() {
        if matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}') {
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

fn number(number: &Number) -> String {
    match (number.as_i64(), number.as_f64()) {
        (None, Some(float)) if float.fract() == 0.0 && float.abs() < 1e21 => format!("{float:.0}"),
        _ => number.to_string(),
    }
}

/// Returns a value as in a path: `[name="web",port=80]` has a string and a number.
pub(super) fn readable(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => self::number(number),
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[{}]", joined(items, ",", readable)),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{name}={}", readable(value));
            joined(fields, "", field)
        }
    }
}

/// Returns a text as `%q` prints it.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            c if c.is_ascii_control() => {
                let _ = write!(quoted, "\\x{:02x}", u32::from(c));
            }
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns a value as `%v` prints it: `map[a:1 b:[x y]]`.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => self::number(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", joined(items, " ", plain)),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{name}:{}", plain(value));
            format!("map[{}]", joined(fields, " ", field))
        }
    }
}

/// Returns a value as `%#v` prints it: `map[string]interface {}{"a":1}`.
pub(super) fn source(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => self::number(number),
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[]interface {{}}{{{}}}", joined(items, ", ", source)),
        Value::Object(fields) => {
            let field =
                |(name, value): (&String, &Value)| format!("{}:{}", quoted(name), source(value));
            format!(
                "map[string]interface {{}}{{{}}}",
                joined(fields, ", ", field)
            )
        }
    }
}

/// Returns the name of a value's type in Go, as `%T` prints it. Numbers of an applied object are read as floats.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

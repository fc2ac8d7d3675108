//! Texts that a message must not quote: pure.

use std::collections::BTreeSet;

use serde_json::Value;

/// The replacement of such a text in a message.
pub(crate) const REDACTED: &str = "[redacted]";
/// Shorter texts occur in messages by chance, and are only replaced where they are a word.
const SHORT: usize = 4;

/// Texts that a message must not quote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Withheld(BTreeSet<String>);

impl Withheld {
    /// Adds a text, and its base64.
    pub(crate) fn add(&mut self, text: &str) {
        if !text.is_empty() {
            self.0.insert(data_encoding::BASE64.encode(text.as_bytes()));
            self.0.insert(text.to_owned());
        }
    }

    /// Adds a text and each of its lines.
    pub(crate) fn add_lines(&mut self, text: &str) {
        self.add(text);
        text.lines().for_each(|line| self.add(line.trim()));
    }

    /// Adds all texts and numbers in a value.
    pub(crate) fn add_leaves(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add_lines(text),
            Value::Number(number) => {
                // Numbers of YAML are floats, which templates print without a fraction.
                let text = number.to_string();
                self.add(text.strip_suffix(".0").unwrap_or(&text));
            }
            Value::Array(items) => items.iter().for_each(|item| self.add_leaves(item)),
            Value::Object(fields) => fields.values().for_each(|field| self.add_leaves(field)),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Adds the content of an object if it is a Secret.
    pub(crate) fn add_secret(&mut self, object: &Value) {
        let text = |field: &str| object.get(field).and_then(Value::as_str);
        if text("kind") != Some("Secret") || text("apiVersion") != Some("v1") {
            return;
        }
        if let Some(data) = object.get("stringData") {
            self.add_leaves(data);
        }
        let data = object.get("data");
        if let Some(data) = data {
            self.add_leaves(data);
        }
        let texts = data.and_then(Value::as_object).into_iter().flatten();
        for encoded in texts.filter_map(|(_, value)| value.as_str()) {
            let decoded = data_encoding::BASE64.decode(encoded.as_bytes()).ok();
            if let Some(text) = decoded.and_then(|bytes| String::from_utf8(bytes).ok()) {
                self.add_lines(&text);
            }
        }
    }

    /// Returns a message without these texts.
    pub(crate) fn clean(&self, message: &str) -> String {
        let mut message = message.to_owned();
        // A text may contain another one.
        let mut texts: Vec<&String> = self.0.iter().collect();
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        for text in texts {
            for form in [text.clone(), escaped(text)] {
                if form.len() < SHORT {
                    message = replace_whole(&message, &form);
                } else if message.contains(&form) {
                    message = message.replace(&form, REDACTED);
                }
            }
        }
        message
    }
}

/// Replaces a value that is not part of a longer word, such as the path of a template.
pub(crate) fn replace_whole(text: &str, value: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || "_./-".contains(c);
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(value) {
        let (before, found) = rest.split_at(at);
        let after = found.strip_prefix(value).unwrap_or_default();
        let last = before.chars().next_back().or(out.chars().next_back());
        let inside = value.starts_with(is_word) && last.is_some_and(is_word)
            || value.ends_with(is_word) && after.starts_with(is_word);
        out.push_str(before);
        out.push_str(if inside { value } else { REDACTED });
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Returns a text as Go and Rust quote it.
pub(crate) fn escaped(text: &str) -> String {
    let quoted = go_template::go::strconv::quote(text.as_bytes());
    let quoted = String::from_utf8_lossy(&quoted).into_owned();
    let inner = quoted
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    inner.map_or_else(|| quoted.clone(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn content_of_a_secret_is_withheld_in_every_form() {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "name-of-secret"},
            "data": {"password": "aHVudGVyMg==", "pin": 5432, "short": "YQ=="},
            "stringData": {"url": "db://u:p\"w@h"},
        });
        let mut withheld = Withheld::default();
        withheld.add_secret(&secret);
        for (message, cleaned) in [
            (
                "Secret \"name-of-secret\": data[my key]: Invalid value: \"my key\": no key",
                "Secret \"name-of-secret\": data[my key]: Invalid value: \"my key\": no key",
            ),
            ("got hunter2", "got [redacted]"),
            ("got aHVudGVyMg== here", "got [redacted] here"),
            (
                ".data.pin: expected string, got Value:5432}",
                ".data.pin: expected string, got Value:[redacted]}",
            ),
            ("at \"a\" a.b", "at \"[redacted]\" a.b"),
            ("db://u:p\"w@h", "[redacted]"),
            ("\"db://u:p\\\"w@h\"", "\"[redacted]\""),
        ] {
            assert_eq!(withheld.clean(message), cleaned);
        }
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "hunter2"}});
        let mut withheld = Withheld::default();
        withheld.add_secret(&map);
        assert_eq!(withheld, Withheld::default());
    }
}

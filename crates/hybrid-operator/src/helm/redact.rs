//! Keeps values out of conditions, events and logs.
//!
//! Errors quote what they are about: the API server quotes an invalid field, a template function its
//! argument. The values of `valuesFrom` may be secrets that the readers of a custom resource's status
//! must not see, so they are removed from every message. Values of the spec are removed from the
//! errors of the templates and of the schema, where they may be anything. Messages that the chart's
//! author writes with `fail` and `required` keep them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::references::Contents;
use crate::withheld::{REDACTED, Withheld, escaped, replace_whole};

/// Shorter texts are no secrets, and occur in messages by chance.
const MIN_LENGTH: usize = 4;
/// Maximum length of an error in bytes.
const MAX_ERROR: usize = 4 * 1024;

/// Removes values of referenced objects from messages. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Redactor(Arc<Withheld>);

impl Redactor {
    /// Removes the values of these objects.
    pub(super) fn of(contents: &Contents) -> Self {
        let mut texts = BTreeSet::new();
        for text in contents.values().flat_map(|data| data.values()) {
            if let Ok(values) = helm_core::values::read(text.as_bytes()) {
                leaves(&Value::Object(values), &mut texts);
            } else {
                add(text, &mut texts);
            }
            text.lines().for_each(|line| add(line.trim(), &mut texts));
        }
        let mut withheld = Withheld::default();
        for text in &texts {
            withheld.add(text);
        }
        Self(Arc::new(withheld))
    }

    /// Returns a message without values of referenced objects.
    pub(super) fn clean(&self, text: &str) -> String {
        self.0.clean(text)
    }
}

/// Returns an error of computing the inputs, without values of the spec, and shortened.
pub(super) fn without_values(error: &str, spec: &Value) -> String {
    let author = error.contains("execution error at (");
    let mut texts = BTreeSet::new();
    if !author {
        leaves(spec, &mut texts);
    }
    let mut error = error.to_owned();
    let mut values: Vec<&String> = texts.iter().collect();
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    for value in values {
        for form in [value.clone(), escaped(value)] {
            error = replace_whole(&error, &form);
        }
        if value.contains("{{") {
            // Errors quote parts of a template: its texts, and what the parser does not understand.
            for text in value.split(['"', '`']).skip(1).step_by(2) {
                if text.len() >= MIN_LENGTH {
                    error = replace_whole(&error, text);
                }
            }
            let words = value.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for word in words.filter(|word| word.len() >= MIN_LENGTH) {
                error = error.replace(&format!("\"{word}\""), &format!("\"{REDACTED}\""));
            }
        }
    }
    if error.len() > MAX_ERROR {
        let end = (0..=MAX_ERROR)
            .rev()
            .find(|end| error.is_char_boundary(*end));
        error.truncate(end.unwrap_or_default());
        error.push('…');
    }
    error
}

fn leaves(value: &Value, texts: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => add(text, texts),
        Value::Number(number) => {
            // Numbers of YAML are floats, which templates print without a fraction.
            let text = number.to_string();
            add(text.strip_suffix(".0").unwrap_or(&text), texts);
        }
        Value::Array(items) => items.iter().for_each(|item| leaves(item, texts)),
        Value::Object(fields) => fields.values().for_each(|field| leaves(field, texts)),
        Value::Null | Value::Bool(_) => {}
    }
}

fn add(text: &str, texts: &mut BTreeSet<String>) {
    if text.len() >= MIN_LENGTH {
        texts.insert(text.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::values::Reference;
    use crate::watches::ReferenceKind;

    #[test]
    fn values_of_referenced_objects_are_removed_in_every_form() {
        let reference = Reference {
            kind: ReferenceKind::Secret,
            namespace: "ns".to_owned(),
            name: "db".to_owned(),
        };
        let data = BTreeMap::from([
            ("password".to_owned(), "hunter2\"x".to_owned()),
            (
                "values.yaml".to_owned(),
                "auth: {token: tok-en1, pin: 12345}\n".to_owned(),
            ),
            ("short".to_owned(), "abc".to_owned()),
        ]);
        let redactor = Redactor::of(&Contents::from([(reference, data)]));
        for (message, cleaned) in [
            (
                "Invalid value: \"tok-en1\": must be",
                "Invalid value: \"[redacted]\": must be",
            ),
            ("urltok-en1end", "url[redacted]end"),
            ("parsing \"hunter2\\\"x\"", "parsing \"[redacted]\""),
            ("data dG9rLWVuMQ== is", "data [redacted] is"),
            ("pin 12345 abc", "pin [redacted] abc"),
        ] {
            assert_eq!(redactor.clean(message), cleaned);
        }
        assert_eq!(Redactor::default().clean("tok-en1"), "tok-en1");
    }

    #[test]
    fn values_of_the_spec_are_removed_from_errors_but_not_from_names_and_authors_messages() {
        let spec = json!({"a": "hunter2", "b": ["web1"], "c": {"d": "x {{ mar-ker \"te-xt\" }}"}, "e": true});
        for (error, cleaned) in [
            (
                "parsing \"hunter2\": invalid syntax",
                "parsing \"[redacted]\": invalid syntax",
            ),
            (
                "'hunter2' does not match pattern",
                "'[redacted]' does not match pattern",
            ),
            ("chart/templates/web1.yaml:3", "chart/templates/web1.yaml:3"),
            (
                "template \"web1\" and hunter23",
                "template \"[redacted]\" and hunter23",
            ),
            (
                "for \"x {{ mar-ker \\\"te-xt\\\" }}\": true",
                "for \"[redacted]\": true",
            ),
            (
                "at <index .Values \"te-xt\" 1>: x",
                "at <index .Values \"[redacted]\" 1>: x",
            ),
            ("no function \"marker\"", "no function \"marker\""),
            (
                "execution error at (chart/templates/a.yaml:1:3): hunter2 is no number",
                "execution error at (chart/templates/a.yaml:1:3): hunter2 is no number",
            ),
        ] {
            assert_eq!(without_values(error, &spec), cleaned);
        }
        let long = without_values(&"é".repeat(5000), &spec);
        assert!(long.len() <= MAX_ERROR + "…".len(), "{}", long.len());
    }
}

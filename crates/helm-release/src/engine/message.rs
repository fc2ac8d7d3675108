//! Texts for people, who may not all read the same.
//!
//! Errors quote what they are about: the API server quotes an invalid field, a template function its
//! argument. Whoever reads the conditions of an owner reads its spec, too, so that conditions
//! quote the spec. They do not quote what comes from elsewhere: from the objects that `valuesFrom` names
//! and that templates look up, and from the environment of the operator. Events and logs have other
//! readers, for whom the values of the owner are left out as well.
//!
//! A [`Message`] is what is known; [`Redactor::text`] is what a [`Reader`] sees of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use helm_core::Values;
use helm_core::manifest::parse_objects;
use helm_core::release::Release as Record;
use kube_objects::withheld::{REDACTED, Withheld, forms, replace_whole, without_cut_ends};
use serde_json::Value;

use super::bounded::bounded;

/// Shorter values of an owner occur in messages by chance.
const MIN_LENGTH: usize = 4;

/// Maximum size of a text in a log line, in bytes. That of events is smaller.
const MAX_TOLD: usize = 4 * 1024;

/// Reader of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reader {
    /// Somebody who may read the owner: a reader of its conditions.
    OfResource,
    /// Anybody else: a reader of events or logs, and of the state of a component, whose values may come from anywhere.
    #[default]
    Anybody,
}

/// A text for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    text: String,
    /// The text with the contents of values that functions may have changed, if `text` leaves them out.
    quoting: Option<String>,
    /// Values that it may quote, and that only readers of the owner may see.
    values: Arc<BTreeSet<String>>,
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl Message {
    /// Sets the same text with the contents of values.
    pub(super) fn with_contents(self, quoting: Option<String>) -> Self {
        Self { quoting, ..self }
    }

    /// Adds values that the text may quote, and that only readers of the owner may see.
    #[must_use]
    pub fn about(self, values: &[&Value]) -> Self {
        let mut texts = BTreeSet::clone(&self.values);
        for value in values {
            leaves(value, &mut texts);
        }
        Self {
            values: Arc::new(texts),
            ..self
        }
    }

    /// Adds values as [`about`](Self::about) does.
    pub(super) fn about_values(self, values: &Values) -> Self {
        let values: Vec<&Value> = values.values().collect();
        self.about(&values)
    }

    /// Returns the message with more words behind it.
    #[must_use]
    pub fn followed_by(&self, more: &str) -> Self {
        Self {
            text: format!("{}{more}", self.text),
            quoting: self.quoting.as_ref().map(|text| format!("{text}{more}")),
            values: Arc::clone(&self.values),
        }
    }

    /// Returns the text without the contents of values that functions may have changed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether it has several lines.
    pub fn is_long(&self) -> bool {
        self.text.contains('\n')
    }
}

/// Decides what readers see of messages about one owner. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Redactor {
    /// Texts that nobody may see.
    secrets: Arc<Withheld>,
    /// Texts that nobody may see, of the record that the present step is about.
    of_record: Arc<Withheld>,
    /// Whether inputs may contain what nobody may see, also changed by functions.
    has_secrets: bool,
}

impl Redactor {
    /// Withholds these contents of objects from everybody.
    pub fn of<'a>(contents: impl Iterator<Item = &'a str>) -> Self {
        let mut redactor = Self::default();
        let mut withheld = Withheld::default();
        for text in contents {
            if let Ok(values) = helm_core::values::read(text.as_bytes()) {
                withheld.add_leaves(&Value::Object(values));
            } else {
                withheld.add(text);
            }
            withheld.add_lines(text);
        }
        redactor.withhold(withheld);
        redactor
    }

    /// Withholds more texts from everybody.
    pub fn withhold(&mut self, more: Withheld) {
        if !more.is_empty() {
            self.has_secrets = true;
            Arc::make_mut(&mut self.secrets).extend(more);
        }
    }

    /// Withholds what is secret in a record, until [`forget_record`](Self::forget_record): the content of its
    /// Secrets, and those of its values that are not among `known`, the spec and the present values. What
    /// is secret in the latter is withheld in any case.
    pub(super) fn withhold_record(&mut self, record: &Record, known: &[&Value]) {
        let mut open = BTreeSet::new();
        for value in known {
            leaves(value, &mut open);
        }
        let mut values = BTreeSet::new();
        let config = record.config.values();
        config.for_each(|value| leaves(value, &mut values));
        let withheld = Arc::make_mut(&mut self.of_record);
        for text in values.difference(&open) {
            withheld.add(text);
        }
        let last = record.values_from.iter().flat_map(|last| last.values());
        for text in last.flat_map(|data| data.values()) {
            withheld.add_lines(text);
        }
        let hooks = record.hooks.iter().map(|hook| hook.manifest.as_str());
        for manifest in std::iter::once(record.manifest.as_str()).chain(hooks) {
            for object in parse_objects(manifest).into_iter().flatten() {
                withheld.add_secret(object.object());
            }
        }
    }

    /// Forgets what is secret in a record.
    pub fn forget_record(&mut self) {
        self.of_record = Arc::default();
    }

    /// Withholds values that `before` does not have.
    pub fn withhold_more(&mut self, before: &Values, values: &Values) {
        let (mut known, mut all) = (BTreeSet::new(), BTreeSet::new());
        before.values().for_each(|value| leaves(value, &mut known));
        values.values().for_each(|value| leaves(value, &mut all));
        let mut withheld = Withheld::default();
        all.difference(&known).for_each(|text| withheld.add(text));
        self.withhold(withheld);
    }

    /// Notes that inputs contain more than what is withheld.
    pub fn suspect(&mut self) {
        self.has_secrets = true;
    }

    /// Returns what a reader sees of a message.
    pub fn text(&self, message: &Message, reader: Reader) -> String {
        if reader == Reader::OfResource {
            // A function may have changed a secret so that it is not recognised.
            let quoting = message.quoting.as_ref().filter(|_| !self.has_secrets);
            return self.without_secrets(quoting.unwrap_or(&message.text));
        }
        let text = without_values(self.without_secrets(&message.text), &message.values);
        bounded(&text, MAX_TOLD).into_owned()
    }

    fn without_secrets(&self, text: &str) -> String {
        self.of_record.clean_words(&self.secrets.clean(text))
    }

    /// Returns a text without what nobody may see of the inputs.
    pub fn clean(&self, text: &str) -> String {
        self.secrets.clean(text)
    }
}

/// Returns a text without these values.
fn without_values(text: String, values: &BTreeSet<String>) -> String {
    let all: BTreeSet<String> = values.iter().flat_map(|value| forms(value)).collect();
    let mut text = without_cut_ends(text, &all);
    let mut all: Vec<String> = all.into_iter().collect();
    // A value may contain another one.
    all.sort_by_key(|form| std::cmp::Reverse(form.len()));
    for form in &all {
        text = replace_whole(&text, form);
    }
    for template in values.iter().filter(|value| value.contains("{{")) {
        // Errors quote parts of a template: its texts, and what the parser does not understand.
        for part in template.split(['"', '`']).skip(1).step_by(2) {
            if part.len() >= MIN_LENGTH {
                text = replace_whole(&text, part);
            }
        }
        let words = template.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for word in words.filter(|word| word.len() >= MIN_LENGTH) {
            text = text.replace(&format!("\"{word}\""), &format!("\"{REDACTED}\""));
        }
    }
    text
}

/// Adds the texts and numbers in a value.
fn leaves(value: &Value, texts: &mut BTreeSet<String>) {
    let mut add = |text: &str| {
        if text.len() >= MIN_LENGTH {
            texts.insert(text.to_owned());
        }
    };
    match value {
        Value::String(text) => {
            add(text);
            text.lines().for_each(|line| add(line.trim()));
        }
        Value::Number(number) => {
            // Numbers of YAML are floats, which templates print without a fraction.
            let text = number.to_string();
            add(text.strip_suffix(".0").unwrap_or(&text));
        }
        Value::Array(items) => items.iter().for_each(|item| leaves(item, texts)),
        Value::Object(fields) => fields.values().for_each(|field| leaves(field, texts)),
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use helm_core::release::{ReleaseName, Revision};
    use serde_json::json;

    use super::*;

    fn redactor(data: &[(&str, &str)]) -> Redactor {
        Redactor::of(data.iter().map(|(_, text)| *text))
    }

    #[test]
    fn values_of_referenced_objects_are_removed_in_every_form() {
        let redactor = redactor(&[
            ("password", "hunter2\"x"),
            (
                "values.yaml",
                "auth: {token: tok-en1, pin: 12345, on: true, n: 3}\n",
            ),
            ("short", "a"),
        ]);
        for (message, cleaned) in [
            (
                "Invalid value: \"tok-en1\": must be",
                "Invalid value: \"[redacted]\": must be",
            ),
            ("urltok-en1end", "url[redacted]end"),
            ("parsing \"hunter2\\\"x\"", "parsing \"[redacted]\""),
            ("data dG9rLWVuMQ== is", "data [redacted] is"),
            ("pin 12345 abc", "pin [redacted] abc"),
            // Short values are words of any text, unless a message shows them as a value.
            (
                "a.yaml:3:1: a value \"a\" of 'a' is `a`",
                "a.yaml:3:1: a value \"[redacted]\" of '[redacted]' is `[redacted]`",
            ),
            (
                "Invalid value: 3: got 3, in line 3",
                "Invalid value: [redacted]: got [redacted], in line 3",
            ),
        ] {
            for reader in [Reader::OfResource, Reader::Anybody] {
                let text = redactor.text(&message.into(), reader);
                assert_eq!(text, cleaned);
                assert_eq!(redactor.text(&text.as_str().into(), reader), cleaned);
            }
        }
        assert_eq!(Redactor::default().clean("tok-en1"), "tok-en1");
    }

    #[test]
    fn the_spec_is_quoted_for_readers_of_the_custom_resource_and_for_nobody_else() {
        let spec = json!({"a": "hunter2", "b": ["web1", "xx<yy"], "c": {"d": "x {{ mar-ker \"te-xt\" }}"}, "e": true});
        for (error, cleaned) in [
            (
                "parsing \"hunter2\": invalid syntax",
                "parsing \"[redacted]\": invalid syntax",
            ),
            (
                "'hunter2' does not match pattern",
                "'[redacted]' does not match pattern",
            ),
            (
                "missing in charts/: a, web1, b",
                "missing in charts/: a, [redacted], b",
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
                "Invalid value: {\"a\":\"xx\\u003cyy\"}",
                "Invalid value: {\"a\":\"[redacted]\"}",
            ),
        ] {
            let redactor = Redactor::default();
            let message = Message::from(error).about(&[&spec]);
            assert_eq!(redactor.text(&message, Reader::OfResource), error);
            assert_eq!(redactor.text(&message, Reader::Anybody), cleaned);
        }
    }

    #[test]
    fn the_beginning_of_a_value_that_was_cut_is_left_out() {
        let value = "long \"value\" ".repeat(100);
        for message in [
            "got long \"value\" long \"v…",
            "got long \\\"value\\\" lon…",
        ] {
            let message = Message::from(message).about(&[&json!(value)]);
            let anybody = Redactor::default().text(&message, Reader::Anybody);
            assert_eq!(anybody, "got [redacted]…");
        }
    }

    #[test]
    fn what_is_also_secret_is_removed_for_everybody() {
        let redactor = redactor(&[("password", "hunter2")]);
        let message = Message::from("got hunter2, not other-value")
            .about(&[&json!(["hunter2", "other-value"])]);
        let (of_resource, anybody) = (
            "got [redacted], not other-value",
            "got [redacted], not [redacted]",
        );
        assert_eq!(redactor.text(&message, Reader::OfResource), of_resource);
        assert_eq!(redactor.text(&message, Reader::Anybody), anybody);
    }

    #[test]
    fn contents_of_values_are_quoted_only_where_no_function_can_have_changed_a_secret() {
        let message = Message::from("parsing a string of 7 bytes")
            .with_contents(Some("parsing \"HUNTER2\"".to_owned()))
            .followed_by("; later");
        let none = Redactor::default();
        assert_eq!(
            none.text(&message, Reader::OfResource),
            "parsing \"HUNTER2\"; later"
        );
        let hidden = "parsing a string of 7 bytes; later";
        assert_eq!(none.text(&message, Reader::Anybody), hidden);
        let secret = redactor(&[("password", "hunter2")]);
        assert_eq!(secret.text(&message, Reader::OfResource), hidden);
    }

    #[test]
    fn secrets_of_a_record_are_withheld_whatever_the_present_inputs_are() {
        let name = ReleaseName::new("one").unwrap();
        let mut record = Record::new(name, "ns", Revision::FIRST);
        let config = json!({"image": "nginx:1", "token": "former-token"});
        record.config = config.as_object().unwrap().clone();
        record.values_from = Some(
            [(
                "ref".to_owned(),
                [("key".to_owned(), "last-value".to_owned())].into(),
            )]
            .into(),
        );
        record.manifest =
            "apiVersion: v1\nkind: Secret\nmetadata: {name: web}\nstringData: {a: generated}\n"
                .to_owned();
        let mut redactor = Redactor::default();
        redactor.withhold_record(&record, &[&json!({"image": "nginx:1"})]);
        let message = "Secret web: nginx:1, former-token, last-value, \"generated\", one-generated";
        let cleaned = "Secret web: nginx:1, [redacted], [redacted], \"[redacted]\", one-generated";
        for reader in [Reader::OfResource, Reader::Anybody] {
            assert_eq!(redactor.text(&message.into(), reader), cleaned);
        }
        redactor.forget_record();
        assert_eq!(redactor.text(&message.into(), Reader::OfResource), message);
    }

    #[test]
    fn a_secret_that_looks_like_a_mark_does_not_grow() {
        let redactor = redactor(&[("a", "redacted"), ("b", "acte")]);
        let once = redactor.clean("is redacted or acted");
        assert_eq!(once, "is [redacted] or [redacted]d");
        assert_eq!(redactor.clean(&once), once);
    }
}

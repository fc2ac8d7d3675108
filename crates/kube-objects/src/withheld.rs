//! Texts that a message must not quote: pure.

use std::collections::BTreeSet;

use serde_json::Value;

/// The replacement of such a text in a message.
pub const REDACTED: &str = "[redacted]";
/// Shorter texts occur in messages by chance, and are only replaced where a message shows them as a value.
const SHORT: usize = 4;

/// Longer texts are hardly parts of names.
const NO_NAME: usize = 16;

/// Texts that a message must not quote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Withheld(BTreeSet<String>);

impl Withheld {
    /// Adds a text, and its base64, each also as messages quote it.
    pub fn add(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.0.insert(data_encoding::BASE64.encode(text.as_bytes()));
        self.0.extend(forms(text));
    }

    /// Adds the texts of others.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Returns whether there are no texts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps only what occurs in one of these texts.
    pub fn retain_in(&mut self, texts: &[&str]) {
        self.0
            .retain(|known| texts.iter().any(|text| text.contains(known)));
    }

    /// Adds a text and each of its lines.
    pub fn add_lines(&mut self, text: &str) {
        self.add(text);
        text.lines().for_each(|line| self.add(line.trim()));
    }

    /// Adds all texts and numbers in a value.
    pub fn add_leaves(&mut self, value: &Value) {
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
    pub fn add_secret(&mut self, object: &Value) {
        let text = |field: &str| object.get(field).and_then(Value::as_str);
        if text("kind") != Some("Secret") || text("apiVersion") != Some("v1") {
            return;
        }
        let fields = ["stringData", "data"];
        for data in fields.iter().filter_map(|field| object.get(*field)) {
            self.add_leaves(data);
        }
        self.add_decoded(object.get("data"));
    }

    /// Adds what an object of this kind holds, or the objects of a list, apart from their names and labels.
    pub fn add_object(&mut self, kind: &str, object: &Value) {
        if let Some(items) = object.get("items").and_then(Value::as_array) {
            let kind = kind.strip_suffix("List").unwrap_or(kind);
            return items.iter().for_each(|item| self.add_object(kind, item));
        }
        if kind == "Secret" {
            self.add_decoded(object.get("data"));
        }
        if let Some(annotations) = object.pointer("/metadata/annotations") {
            self.add_leaves(annotations);
        }
        for (name, field) in object.as_object().into_iter().flatten() {
            match name.as_str() {
                "metadata" => {}
                "data" | "stringData" => self.add_leaves(field),
                _ => self.add_but_names(name, field),
            }
        }
    }

    /// Adds all texts and numbers in a field, apart from references to objects.
    fn add_but_names(&mut self, name: &str, field: &Value) {
        match field {
            _ if ["apiVersion", "apiGroup", "kind", "namespace", "name"].contains(&name) => {}
            Value::Array(items) => items.iter().for_each(|item| self.add_but_names("", item)),
            Value::Object(fields) => {
                let fields = fields.iter();
                fields.for_each(|(name, field)| self.add_but_names(name, field));
            }
            leaf => self.add_leaves(leaf),
        }
    }

    /// Adds what is encoded in the `data` of a Secret.
    fn add_decoded(&mut self, data: Option<&Value>) {
        let texts = data.and_then(Value::as_object).into_iter().flatten();
        for encoded in texts.filter_map(|(_, value)| value.as_str()) {
            let decoded = data_encoding::BASE64.decode(encoded.as_bytes()).ok();
            if let Some(text) = decoded.and_then(|bytes| String::from_utf8(bytes).ok()) {
                self.add_lines(&text);
            }
        }
    }

    /// Returns a message without these texts. Cleaning it again changes nothing.
    pub fn clean(&self, message: &str) -> String {
        let mut message = message.to_owned();
        // A text may contain another one.
        let mut texts: Vec<&String> = self.0.iter().collect();
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        for text in &texts {
            message = if text.len() < SHORT {
                replace(&message, text, is_shown_as_value)
            } else {
                replace(&message, text, |_, _| true)
            };
        }
        without_cut_ends(message, &self.0)
    }

    /// Returns a message without those of these texts that stand alone: parts of names stay.
    pub fn clean_words(&self, message: &str) -> String {
        let mut message = message.to_owned();
        let mut texts: Vec<&String> = self.0.iter().collect();
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        for text in texts {
            message = match text.len() {
                ..SHORT => replace(&message, text, is_shown_as_value),
                SHORT..NO_NAME => replace_whole(&message, text),
                _ => replace(&message, text, |_, _| true),
            };
        }
        without_cut_ends(message, &self.0)
    }
}

/// The mark of a message that was cut.
pub(crate) const CUT: &str = "…";

/// Returns a message without the beginnings of texts before a mark where somebody has cut it.
pub fn without_cut_ends(message: String, texts: &BTreeSet<String>) -> String {
    if !message.contains(CUT) {
        return message;
    }
    let mut pieces: Vec<String> = message.split(CUT).map(ToOwned::to_owned).collect();
    let last = pieces.len().saturating_sub(1);
    for piece in pieces.iter_mut().take(last) {
        let beginnings = texts.iter().filter_map(|text| {
            let mut ends = text
                .char_indices()
                .map(|(at, _)| at)
                .rev()
                .skip_while(|end| *end > piece.len())
                .take_while(|end| *end >= SHORT);
            ends.find(|end| {
                text.get(..*end)
                    .is_some_and(|beginning| piece.ends_with(beginning))
            })
        });
        if let Some(longest) = beginnings.max() {
            piece.truncate(piece.len().saturating_sub(longest));
            piece.push_str(REDACTED);
        }
    }
    pieces.join(CUT)
}

/// Returns whether a short text between these is shown as a value: in quotes, or as the API server and
/// schemas show what they got.
fn is_shown_as_value(before: &str, after: &str) -> bool {
    let quote = before
        .chars()
        .next_back()
        .filter(|c| matches!(c, '"' | '\'' | '`'));
    if let Some(quote) = quote {
        return after.trim_start_matches('\\').starts_with(quote);
    }
    let introductions = ["alue: ", "alue:", "got ", "="];
    !after.starts_with(is_word) && introductions.iter().any(|it| before.ends_with(it))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || "_./-".contains(c)
}

/// Replaces a text where `counts` accepts what stands before and after it. What was replaced before stays.
fn replace(message: &str, text: &str, counts: impl Fn(&str, &str) -> bool) -> String {
    if !message.contains(text) {
        return message.to_owned();
    }
    let pieces = message.split(REDACTED).map(|piece| {
        let mut out = String::with_capacity(piece.len());
        let mut copied = 0;
        for (at, found) in piece.match_indices(text) {
            let (before, after) = (piece.get(..at), piece.get(at + found.len()..));
            if counts(before.unwrap_or_default(), after.unwrap_or_default()) {
                out.push_str(piece.get(copied..at).unwrap_or_default());
                out.push_str(REDACTED);
                copied = at + found.len();
            }
        }
        out.push_str(piece.get(copied..).unwrap_or_default());
        out
    });
    let pieces: Vec<String> = pieces.collect();
    pieces.join(REDACTED)
}

/// Replaces a value that is not part of a longer word, such as the path of a template.
pub fn replace_whole(message: &str, value: &str) -> String {
    let is_alone = |before: &str, after: &str| {
        let inside = value.starts_with(is_word) && before.ends_with(is_word)
            || value.ends_with(is_word) && after.starts_with(is_word);
        !inside
    };
    replace(message, value, is_alone)
}

/// Returns a text as messages have it: as it is, quoted, and in JSON, in which Go escapes some characters.
pub fn forms(text: &str) -> BTreeSet<String> {
    let quoted = escaped(text);
    let in_json = quoted
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e");
    [text.to_owned(), quoted, in_json].into()
}

/// Returns a text as Go and Rust quote it.
fn escaped(text: &str) -> String {
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
    #[test]
    fn content_of_objects_is_withheld_and_their_names_are_not() {
        let list = json!({"kind": "SecretList", "apiVersion": "v1", "items": [{
            "metadata": {"name": "name-of-secret", "labels": {"a": "label"}, "annotations": {"a": "noted"}},
            "data": {"password": "aHVudGVyMg=="}, "type": "Opaque",
        }]});
        let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web"}, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "server"}, "maxReplicas": 12345}});
        let mut withheld = Withheld::default();
        withheld.add_object("SecretList", &list);
        withheld.add_object("HorizontalPodAutoscaler", &scaler);
        let message =
            "Deployment server, name-of-secret, label: noted, hunter2, aHVudGVyMg==, 12345";
        let cleaned = "Deployment server, name-of-secret, label: [redacted], [redacted], [redacted], [redacted]";
        assert_eq!(withheld.clean(message), cleaned);
        withheld.retain_in(&["a: hunter2-x"]);
        let cleaned =
            "Deployment server, name-of-secret, label: noted, [redacted], aHVudGVyMg==, 12345";
        assert_eq!(withheld.clean(message), cleaned);
    }

    #[test]
    fn words_are_withheld_and_parts_of_names_are_not() {
        let mut withheld = Withheld::default();
        withheld.add("word");
        withheld.add("5");
        withheld.add("long-and-not-a-name");
        let message = "Job ns/word-5: x-word \"word\", word: got 5 5, along-and-not-a-names";
        let cleaned =
            "Job ns/word-5: x-word \"[redacted]\", [redacted]: got [redacted] 5, a[redacted]s";
        assert_eq!(withheld.clean_words(message), cleaned);
    }

    #[test]
    fn what_was_cut_off_of_a_text_is_withheld_too() {
        let mut withheld = Withheld::default();
        withheld.add("hunter2 of the secret");
        for (message, cleaned) in [
            ("got hunter2 of t…", "got [redacted]…"),
            ("got hunt… and hun…", "got [redacted]… and hun…"),
            ("got hunter2 of t", "got hunter2 of t"),
        ] {
            assert_eq!(withheld.clean(message), cleaned);
        }
    }
}

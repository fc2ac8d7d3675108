//! Environment variables in the texts of `overrideValues`: `$NAME` and `${NAME}`, by the rules of Go's
//! `os.Expand`.
//!
//! What a variable holds is data. So a text does not become another text, but a template that prints
//! what the variables hold: no variable adds an action, ends a string, or has a meaning for `--set`.

use go_template::go::strconv::quote;

/// Writes a text with variables as a template. `lookup` returns the content of a variable; one that
/// does not exist is empty. A `$` without a name is kept; `${}` and an unclosed `${` are removed.
///
/// ```text
/// $IMAGE:{{ .Spec.tag }}                 {{"repo/img"}}:{{ .Spec.tag }}
/// {{ "$IMAGE" | upper }}                 {{ "repo/img" | upper }}
/// {{ add $COUNT 1 }}                     {{ add 3 1 }}
/// {{ .Spec.$FIELD }}                     {{ .Spec.tag }}
/// ```
pub(crate) fn expand(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> String {
    let mut scanner = Scanner {
        rest: text,
        out: String::with_capacity(text.len()),
        lookup,
    };
    while !scanner.rest.is_empty() {
        scanner.literal();
        scanner.action();
    }
    scanner.out
}

struct Scanner<'a> {
    rest: &'a str,
    out: String,
    lookup: &'a dyn Fn(&str) -> Option<String>,
}

/// Meaning of a `$`.
enum Dollar {
    /// A variable, with its content.
    Variable(String),
    /// Bad syntax, which is removed.
    Nothing,
    /// The character itself.
    Character,
}

impl Scanner<'_> {
    /// Copies the text up to the next action.
    fn literal(&mut self) {
        let end = self.rest.find("{{").unwrap_or(self.rest.len());
        let (text, after) = self.rest.split_at(end);
        self.rest = text;
        while let Some(at) = self.rest.find('$') {
            self.copy(at);
            match self.dollar() {
                Dollar::Variable(content) => {
                    // Three braces would begin the action with the first one.
                    let trim = if self.out.ends_with('{') {
                        " {{- "
                    } else {
                        "{{"
                    };
                    self.out.push_str(trim);
                    self.out.push_str(&quoted(&content));
                    self.out.push_str("}}");
                }
                Dollar::Nothing => {}
                Dollar::Character => self.out.push('$'),
            }
        }
        self.copy(self.rest.len());
        self.rest = after;
    }

    /// Copies an action; to the end, if it is not closed.
    fn action(&mut self) {
        let inner = self.rest.strip_prefix("{{").unwrap_or("");
        let inner = inner.strip_prefix('-').unwrap_or(inner).trim_start();
        if inner.starts_with("/*") {
            let end = self.rest.find("*/").unwrap_or(self.rest.len());
            self.copy(end);
        }
        while let Some(at) = self.rest.find(['"', '`', '\'', '$', '}']) {
            self.copy(at);
            match self.rest.chars().next() {
                Some('"') => self.string(),
                Some('`') => self.raw_string(),
                Some('\'') => self.character(),
                Some('$') => self.operand(),
                _ if self.rest.starts_with("}}") => return self.copy("}}".len()),
                _ => self.copy(1),
            }
        }
        self.copy(self.rest.len());
    }

    /// Copies a string in which a backslash escapes.
    fn string(&mut self) {
        self.copy(1);
        while let Some(at) = self.rest.find(['"', '\\', '$', '\n']) {
            self.copy(at);
            match self.rest.chars().next() {
                Some('\\') => self.copy(2),
                Some('$') => match self.dollar() {
                    Dollar::Variable(content) => self.out.push_str(inner(&quoted(&content))),
                    Dollar::Nothing => {}
                    Dollar::Character => self.out.push('$'),
                },
                // A string ends with its line, at the latest.
                _ => return self.copy(1),
            }
        }
    }

    /// Copies a string between backquotes. It can hold no backquote, so one with a variable becomes a
    /// string with escapes.
    fn raw_string(&mut self) {
        let end = self.rest.get(1..).and_then(|inner| inner.find('`'));
        let Some(end) = end else {
            return self.copy(self.rest.len());
        };
        let (raw, after) = self.rest.split_at(end + 2);
        let raw = inner(raw);
        if !raw.contains('$') {
            return self.copy(end + 2);
        }
        let mut text = String::new();
        self.rest = raw;
        while let Some(at) = self.rest.find('$') {
            let (before, rest) = self.rest.split_at(at);
            text.push_str(before);
            self.rest = rest;
            match self.dollar() {
                Dollar::Variable(content) => text.push_str(&content),
                Dollar::Nothing => {}
                Dollar::Character => text.push('$'),
            }
        }
        text.push_str(self.rest);
        // Go takes carriage returns out of such a string.
        self.out.push_str(&quoted(&text.replace('\r', "")));
        self.rest = after;
    }

    fn character(&mut self) {
        self.copy(1);
        while let Some(at) = self.rest.find(['\'', '\\', '\n']) {
            self.copy(at);
            if !self.rest.starts_with('\\') {
                return self.copy(1);
            }
            self.copy(2);
        }
    }

    /// Replaces a variable outside of strings: in a name by a part of the name, elsewhere by a literal,
    /// which is a number or a boolean if it is printed as that.
    fn operand(&mut self) {
        let in_name = self.out.ends_with(|c: char| c == '.' || is_of_name(c));
        match self.dollar() {
            Dollar::Variable(content) => {
                let continues = in_name && content.chars().all(is_of_name);
                if continues || is_printed_the_same(&content) {
                    self.out.push_str(&content);
                } else {
                    self.out.push_str(&quoted(&content));
                }
            }
            Dollar::Nothing => {}
            Dollar::Character => self.out.push('$'),
        }
    }

    /// Consumes a `$`, with the variable that it begins.
    fn dollar(&mut self) -> Dollar {
        let after = self.rest.get(1..).unwrap_or("");
        let (name, length) = variable(after);
        self.rest = after.get(length..).unwrap_or("");
        match name {
            Some("") if length == 0 => Dollar::Character,
            Some(name) => Dollar::Variable((self.lookup)(name).unwrap_or_default()),
            None => Dollar::Nothing,
        }
    }

    /// Copies this many bytes, and the rest of the last character.
    fn copy(&mut self, length: usize) {
        let end = (length..=self.rest.len()).find(|end| self.rest.is_char_boundary(*end));
        let (copied, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.out.push_str(copied);
        self.rest = rest;
    }
}

/// Returns a text as a string of a template.
fn quoted(text: &str) -> String {
    String::from_utf8_lossy(&quote(text.as_bytes())).into_owned()
}

/// Returns a text without its quotes.
fn inner(quoted: &str) -> &str {
    quoted.get(1..quoted.len() - 1).unwrap_or("")
}

fn is_of_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Returns whether a text is a literal of templates that is printed as it is written.
fn is_printed_the_same(text: &str) -> bool {
    let is_number = || {
        let number = text.parse::<i64>();
        number.is_ok_and(|number| number.to_string() == text)
    };
    matches!(text, "true" | "false") || is_number()
}

/// Returns the variable name at the start of `text`, which follows a `$`, and its length in bytes.
/// `None` is bad syntax, whose bytes are removed; an empty name of length 0 is not a variable.
fn variable(text: &str) -> (Option<&str>, usize) {
    if let Some(braced) = text.strip_prefix('{') {
        return match braced.find('}') {
            Some(0) => (None, 2),
            Some(end) => (braced.get(..end), end + 2),
            None => (None, 1),
        };
    }
    let first = text.as_bytes().first().copied().unwrap_or(0);
    if matches!(
        first,
        b'*' | b'#' | b'$' | b'@' | b'!' | b'?' | b'-' | b'0'..=b'9'
    ) {
        return (text.get(..1), 1);
    }
    let end = text
        .bytes()
        .position(|c| !(c == b'_' || c.is_ascii_alphanumeric()))
        .unwrap_or(text.len());
    (text.get(..end), end)
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn variables_are_found_as_in_go() {
        let lookup = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "LONG_name2" => Some("x".to_owned()),
            _ => None,
        };
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("$A", r#"{{"1"}}"#),
            ("${A}b", r#"{{"1"}}b"#),
            ("$LONG_name2/$A", r#"{{"x"}}/{{"1"}}"#),
            ("$NOPE.", r#"{{""}}."#),
            ("a$", "a$"),
            ("a$ b", "a$ b"),
            ("$$A", r#"{{""}}A"#),
            ("${}x", "x"),
            ("${A", "A"),
            ("100%$-", r#"100%{{""}}"#),
            ("é$A é", r#"é{{"1"}} é"#),
            ("{$A,b}", r#"{ {{- "1"}},b}"#),
        ] {
            assert_eq!(expand(text, &lookup), expected, "{text:?}");
        }
    }

    #[test]
    fn content_of_a_variable_stays_in_its_place_in_an_action() {
        let lookup = |name: &str| match name {
            "QUOTE" => Some("a\"b`c\\d\n}}{{".to_owned()),
            "N" => Some("-3".to_owned()),
            "ZERO" => Some("007".to_owned()),
            "BIG" => Some("99999999999999999999".to_owned()),
            "ON" => Some("true".to_owned()),
            "FIELD" => Some("tag".to_owned()),
            "NIL" => Some("nil".to_owned()),
            _ => None,
        };
        let all = r#"a\"b`c\\d\n}}{{"#;
        for (text, expected) in [
            ("x$QUOTE", format!("x{{{{\"{all}\"}}}}")),
            ("{{ \"$QUOTE\" }}", format!("{{{{ \"{all}\" }}}}")),
            (
                "{{ `\\ $QUOTE` }}$N",
                format!("{{{{ \"\\\\ {all}\" }}}}{{{{\"-3\"}}}}"),
            ),
            ("{{ $QUOTE }}", format!("{{{{ \"{all}\" }}}}")),
            ("{{ add $N 1 }}", "{{ add -3 1 }}".to_owned()),
            ("{{ $ZERO }}", "{{ \"007\" }}".to_owned()),
            ("{{ $BIG }}", "{{ \"99999999999999999999\" }}".to_owned()),
            ("{{if $ON}}x{{end}}", "{{if true}}x{{end}}".to_owned()),
            ("{{ $NIL }}", "{{ \"nil\" }}".to_owned()),
            ("{{ .Spec.$FIELD }}", "{{ .Spec.tag }}".to_owned()),
            ("{{ .Spec.a$FIELD }}", "{{ .Spec.atag }}".to_owned()),
            ("{{ .Spec.$QUOTE }}", format!("{{{{ .Spec.\"{all}\" }}}}")),
            ("{{ $.Spec.a }}$", "{{ $.Spec.a }}$".to_owned()),
            ("{{/* $QUOTE */}}x", "{{/* $QUOTE */}}x".to_owned()),
            ("{{- /* $QUOTE */ -}}x", "{{- /* $QUOTE */ -}}x".to_owned()),
            ("{{ '$' }}'$N'", "{{ '$' }}'{{\"-3\"}}'".to_owned()),
            ("{{ \"\\\"$N}}\" }}", "{{ \"\\\"-3}}\" }}".to_owned()),
            ("{{ `}}$` }}", "{{ \"}}$\" }}".to_owned()),
            ("{{ \"é\\é\" $N", "{{ \"é\\é\" -3".to_owned()),
            ("{{ \"a", "{{ \"a".to_owned()),
            ("{{ `a", "{{ `a".to_owned()),
            ("{{", "{{".to_owned()),
        ] {
            assert_eq!(expand(text, &lookup), expected, "{text:?}");
        }
    }
}

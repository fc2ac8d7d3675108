//! Replaces the contents of values in messages by their length.

use crate::go::strconv::unquote;

/// Describes a text by its length.
pub(crate) fn sized(length: usize) -> String {
    let unit = if length == 1 { "byte" } else { "bytes" };
    format!("a string of {length} {unit}")
}

/// Replaces the texts in quotes, by which Go's messages show values.
pub(crate) fn quoted(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(at) = rest.find(['"', '`']) {
        let (before, text) = rest.split_at(at);
        out.push_str(before);
        let (text, after) = text.split_at(length_with_quotes(text));
        let inner = text.len().saturating_sub(2);
        let length = unquote(text.as_bytes()).map_or(inner, |content| content.len());
        out.push_str(&sized(length));
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Returns the length of the text in quotes that `text` begins with; all of it, if it was cut off.
fn length_with_quotes(text: &str) -> usize {
    let mut bytes = text.bytes().enumerate();
    let Some((_, quote)) = bytes.next() else {
        return 0;
    };
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' if quote == b'"' => drop(bytes.next()),
            _ if byte == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Replaces what a parser's message shows of the text.
pub(crate) fn token(message: &str) -> String {
    match message.split_once("U+") {
        Some((before, _)) => format!("{}a character", quoted(before)),
        None => quoted(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_texts_are_replaced_by_their_length() {
        let cases = [
            ("no quotes", "no quotes"),
            (
                r#"parsing "hunter2": failed"#,
                "parsing a string of 7 bytes: failed",
            ),
            (
                r#""a\"\n\u00e9" and `b"`"#,
                "a string of 5 bytes and a string of 2 bytes",
            ),
            (r#"cut off: "hunt..."#, "cut off: a string of 6 bytes"),
            ("\"", "a string of 0 bytes"),
            ("``", "a string of 0 bytes"),
            ("\"x\"", "a string of 1 byte"),
        ];
        for (message, want) in cases {
            assert_eq!(quoted(message), want, "{message}");
        }
        let character = token("bad character U+002B '+'");
        assert_eq!(character, "bad character a character");
        let token = token(r#"function "x" not defined"#);
        assert_eq!(token, "function a string of 1 byte not defined");
    }
}

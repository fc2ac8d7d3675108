//! Quoting: Go's `Quote`, `QuoteToASCII`, `QuoteRune` and `CanBackquote`.

use crate::go::unicode::is_print;
use crate::go::utf8::{RUNE_ERROR, decode_rune, push_rune, runes};
use bounded::Buffer;

const HEX: [u8; 16] = *b"0123456789abcdef";

/// Go's `strconv.Quote`.
pub fn quote(s: &[u8]) -> Vec<u8> {
    let mut out = Buffer::with_capacity(s.len() + 2);
    push_quoted(&mut out, s);
    out.into_vec()
}

/// Returns the result of [`quote`] as a string.
pub(crate) fn quoted(s: &[u8]) -> String {
    String::from_utf8_lossy(&quote(s)).into_owned()
}

/// Go's `strconv.QuoteToASCII`.
pub fn quote_to_ascii(s: &[u8]) -> Vec<u8> {
    let mut out = Buffer::with_capacity(s.len() + 2);
    push_quoted_ascii(&mut out, s);
    out.into_vec()
}

/// Appends the result of [`quote`].
pub fn push_quoted(dst: &mut Buffer, s: &[u8]) {
    dst.reserve(s.len() + 2);
    dst.push(b'"');
    let mut rest = s;
    loop {
        // Copy runs of text that need no escape.
        let plain = rest
            .iter()
            .position(|&c| !matches!(c, b' '..=b'~') || c == b'"' || c == b'\\');
        let (run, tail) = rest.split_at(plain.unwrap_or(rest.len()));
        dst.extend_from_slice(run);
        let (rune, width) = decode_rune(tail);
        if width == 0 {
            break;
        }
        if rune == RUNE_ERROR && width == 1 {
            push_byte_escape(dst, tail.first().copied().unwrap_or(0));
        } else {
            push_escaped(dst, rune, b'"', false);
        }
        rest = tail.get(width..).unwrap_or_default();
    }
    dst.push(b'"');
}

/// Appends the result of [`quote_to_ascii`].
pub fn push_quoted_ascii(dst: &mut Buffer, s: &[u8]) {
    dst.push(b'"');
    for (at, rune, width) in runes(s) {
        if rune == RUNE_ERROR && width == 1 {
            push_byte_escape(dst, s.get(at).copied().unwrap_or(0));
        } else {
            push_escaped(dst, rune, b'"', true);
        }
    }
    dst.push(b'"');
}

/// Go's `strconv.QuoteRune`: the rune as a character literal; an invalid rune reads as U+FFFD.
pub fn quote_rune(rune: u32) -> Vec<u8> {
    let mut out = Buffer::new();
    push_quoted_rune(&mut out, rune, false);
    out.into_vec()
}

/// Appends a rune as a character literal, escaping all non-ASCII characters if `ascii` is set.
pub fn push_quoted_rune(dst: &mut Buffer, rune: u32, ascii: bool) {
    dst.push(b'\'');
    let rune = char::from_u32(rune).unwrap_or(RUNE_ERROR);
    push_escaped(dst, rune, b'\'', ascii);
    dst.push(b'\'');
}

fn push_escaped(dst: &mut Buffer, rune: char, quote: u8, ascii: bool) {
    if rune == quote as char || rune == '\\' {
        dst.extend_from_slice(&[b'\\', rune as u8]);
        return;
    }
    if matches!(rune, ' '..='~') || !ascii && is_print(rune) {
        push_rune(dst, rune);
        return;
    }
    let short = match rune {
        '\x07' => b'a',
        '\x08' => b'b',
        '\x0C' => b'f',
        '\n' => b'n',
        '\r' => b'r',
        '\t' => b't',
        '\x0B' => b'v',
        '\0'..=' ' | '\x7F' => return push_byte_escape(dst, rune as u8),
        '\u{10000}'.. => return push_hex(dst, b'U', rune as u32, 8),
        _ => return push_hex(dst, b'u', rune as u32, 4),
    };
    dst.extend_from_slice(&[b'\\', short]);
}

fn push_byte_escape(dst: &mut Buffer, byte: u8) {
    push_hex(dst, b'x', u32::from(byte), 2);
}

fn push_hex(dst: &mut Buffer, letter: u8, value: u32, digits: u32) {
    dst.extend_from_slice(&[b'\\', letter]);
    for place in (0..digits).rev() {
        let digit = (value >> (place * 4)) & 15;
        dst.push(HEX.get(digit as usize).copied().unwrap_or(b'0'));
    }
}

/// Go's `strconv.CanBackquote`: whether the text can be written on one line between backquotes.
pub fn can_backquote(s: &[u8]) -> bool {
    runes(s).all(|(_, rune, width)| match rune {
        RUNE_ERROR => width > 1,
        '\u{FEFF}' | '`' | '\x7F' => false,
        '\0'..' ' => rune == '\t',
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_escapes_unprintable_runes_as_in_go() {
        let cases: [(&[u8], &str); 9] = [
            (b"plain text", r#""plain text""#),
            (b"a\"b\\c", r#""a\"b\\c""#),
            (
                b"\x07\x08\x0C\n\r\t\x0B\x00\x7F",
                r#""\a\b\f\n\r\t\v\x00\x7f""#,
            ),
            (b"h\xC3", r#""h\xc3""#),
            ("h\u{e9}\u{2028}".as_bytes(), "\"h\u{e9}\\u2028\""),
            (
                "\u{AD}\u{FEFF}\u{FFFD}".as_bytes(),
                "\"\\u00ad\\ufeff\u{FFFD}\"",
            ),
            ("\u{1F600}\u{E0001}".as_bytes(), "\"\u{1F600}\\U000e0001\""),
            (b"", r#""""#),
            (b"'", r#""'""#),
        ];
        for (text, want) in cases {
            assert_eq!(String::from_utf8(quote(text)).unwrap(), want);
        }
        let ascii = quote_to_ascii("\u{e9}\u{1F600}\t\"".as_bytes());
        assert_eq!(ascii, br#""\u00e9\U0001f600\t\"""#);
    }

    #[test]
    fn runes_are_quoted_as_character_literals() {
        assert_eq!(quote_rune(u32::from('\'')), br"'\''");
        assert_eq!(quote_rune(u32::from('"')), b"'\"'");
        assert_eq!(quote_rune(0xD800), "'\u{FFFD}'".as_bytes());
        assert_eq!(quote_rune(0xFFFF_FFFF), "'\u{FFFD}'".as_bytes());
    }

    #[test]
    fn can_backquote_accepts_one_printable_line() {
        assert!(can_backquote("a\tb \u{e9}".as_bytes()));
        assert!(!can_backquote(b"a`b"));
        assert!(!can_backquote(b"a\nb"));
        assert!(!can_backquote(b"\xFF"));
    }
}

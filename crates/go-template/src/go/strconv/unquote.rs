//! Parsing of quoted text: Go's `Unquote` and `UnquoteChar`.

use super::NumErrorKind;
use crate::go::utf8::{RUNE_ERROR, decode_rune, push_rune};
use bounded::Buffer;

/// One character of a quoted text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unquoted<'a> {
    /// The code point, or the byte given by an octal or `\x` escape.
    pub value: u32,
    /// Whether the character is encoded in UTF-8 rather than as one byte.
    pub multibyte: bool,
    /// The text after the character.
    pub rest: &'a [u8],
}

impl<'a> Unquoted<'a> {
    fn new(value: u32, multibyte: bool, rest: &'a [u8]) -> Self {
        Self {
            value,
            multibyte,
            rest,
        }
    }
}

/// Go's `strconv.Unquote`: a literal in double quotes, in backquotes, or one character in single
/// quotes.
///
/// # Errors
/// If the text is not a literal.
pub fn unquote(s: &[u8]) -> Result<Vec<u8>, NumErrorKind> {
    let (quote, body) = match s {
        [first @ (b'"' | b'\'' | b'`'), body @ .., last] if first == last => (*first, body),
        _ => return Err(NumErrorKind::Syntax),
    };
    if quote == b'`' {
        if body.contains(&b'`') {
            return Err(NumErrorKind::Syntax);
        }
        return Ok(body.iter().copied().filter(|&c| c != b'\r').collect());
    }
    let mut out = Buffer::with_capacity(body.len());
    let mut rest = body;
    while let Some(&first) = rest.first() {
        let unquoted = unquote_char(rest, quote)?;
        if first == b'\n' {
            return Err(NumErrorKind::Syntax);
        }
        if unquoted.multibyte {
            let rune = char::from_u32(unquoted.value);
            push_rune(&mut out, rune.unwrap_or(RUNE_ERROR));
        } else {
            out.extend(u8::try_from(unquoted.value));
        }
        rest = unquoted.rest;
        if quote == b'\'' && !rest.is_empty() {
            return Err(NumErrorKind::Syntax);
        }
    }
    Ok(out.into_vec())
}

/// Go's `strconv.UnquoteChar`: the first character inside a literal. `quote` is the quote that may
/// be escaped and must not occur unescaped; zero allows neither.
///
/// # Errors
/// If the text does not begin with a character of a literal.
pub fn unquote_char(s: &[u8], quote: u8) -> Result<Unquoted<'_>, NumErrorKind> {
    let (escape, rest) = match s {
        [] | [b'\\'] => return Err(NumErrorKind::Syntax),
        [c, ..] if *c == quote && (quote == b'\'' || quote == b'"') => {
            return Err(NumErrorKind::Syntax);
        }
        [0x80..=0xFF, ..] => {
            let (rune, width) = decode_rune(s);
            let rest = s.get(width..).unwrap_or_default();
            return Ok(Unquoted::new(rune as u32, true, rest));
        }
        [b'\\', escape, rest @ ..] => (*escape, rest),
        [c, rest @ ..] => return Ok(Unquoted::new(u32::from(*c), false, rest)),
    };
    let byte = |value: u8| Ok(Unquoted::new(u32::from(value), false, rest));
    match escape {
        b'a' => byte(7),
        b'b' => byte(8),
        b'f' => byte(12),
        b'n' => byte(b'\n'),
        b'r' => byte(b'\r'),
        b't' => byte(b'\t'),
        b'v' => byte(11),
        b'\\' => byte(b'\\'),
        b'\'' | b'"' if escape == quote => byte(escape),
        b'x' => number(rest, 2, 16).map(|(value, rest)| Unquoted::new(value, false, rest)),
        b'u' | b'U' => {
            let (value, rest) = number(rest, if escape == b'u' { 4 } else { 8 }, 16)?;
            if char::from_u32(value).is_none() {
                return Err(NumErrorKind::Syntax);
            }
            Ok(Unquoted::new(value, true, rest))
        }
        b'0'..=b'7' => {
            let (low, rest) = number(rest, 2, 8)?;
            let value = u32::from(escape - b'0') * 64 + low;
            if value > 255 {
                return Err(NumErrorKind::Syntax);
            }
            Ok(Unquoted::new(value, false, rest))
        }
        _ => Err(NumErrorKind::Syntax),
    }
}

fn number(s: &[u8], digits: usize, base: u32) -> Result<(u32, &[u8]), NumErrorKind> {
    let (text, rest) = s.split_at_checked(digits).ok_or(NumErrorKind::Syntax)?;
    let mut value = 0_u32;
    for &c in text {
        let digit = (c as char).to_digit(base).ok_or(NumErrorKind::Syntax)?;
        value = value.wrapping_mul(base).wrapping_add(digit);
    }
    Ok((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unquote_removes_quotes_and_escapes() {
        let cases: [(&[u8], Option<&[u8]>); 16] = [
            (b"\"a\\tb\\x41\\101\"", Some(b"a\tbAA")),
            (
                b"\"\\u00e9\\U0001F600\"",
                Some("\u{e9}\u{1F600}".as_bytes()),
            ),
            (b"\"\\xff\"", Some(b"\xFF")),
            (b"\"\xFF\"", Some("\u{FFFD}".as_bytes())),
            (b"`a\\n\rb`", Some(b"a\\nb")),
            (b"'x'", Some(b"x")),
            (b"'\\''", Some(b"'")),
            (b"'xy'", None),
            (b"''", Some(b"")),
            (b"\"\\'\"", None),
            (b"\"a\nb\"", None),
            (b"\"\\400\"", None),
            (b"\"\\ud800\"", None),
            (b"\"", None),
            (b"\"a\\\"", None),
            (b"a", None),
        ];
        for (text, want) in cases {
            let shown = String::from_utf8_lossy(text);
            assert_eq!(unquote(text).ok().as_deref(), want, "{shown}");
        }
    }
}

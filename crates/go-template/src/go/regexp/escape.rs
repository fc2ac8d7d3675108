//! Escapes of single characters, and iteration over the runes of a pattern.

use super::error::{Error, ErrorCode};
use crate::go::utf8::{RUNE_ERROR, decode_rune, runes};

/// Splits off the first rune of a non-empty pattern.
pub(super) fn next_rune(s: &[u8]) -> Result<(char, &[u8]), Error> {
    let (rune, width) = decode_rune(s);
    if rune == RUNE_ERROR && width == 1 {
        return Err(Error::new(ErrorCode::InvalidUtf8, s));
    }
    Ok((rune, s.get(width..).unwrap_or_default()))
}

/// Fails if the text is not UTF-8.
pub(super) fn check_utf8(s: &[u8]) -> Result<(), Error> {
    match runes(s).find(|&(_, rune, width)| rune == RUNE_ERROR && width == 1) {
        Some((at, ..)) => Err(Error::new(
            ErrorCode::InvalidUtf8,
            s.get(at..).unwrap_or_default(),
        )),
        None => Ok(()),
    }
}

/// Parses the escape of one code point; `s` begins with a backslash.
pub(super) fn parse_escape(s: &[u8]) -> Result<(u32, &[u8]), Error> {
    let after = s.get(1..).unwrap_or_default();
    if after.is_empty() {
        return Err(Error::new(ErrorCode::TrailingBackslash, b""));
    }
    let (rune, rest) = next_rune(after)?;
    let value = match rune {
        'a' => 7,
        'f' => 12,
        'n' => 10,
        'r' => 13,
        't' => 9,
        'v' => 11,
        'x' => return parse_hex(s, rest),
        '0' => return Ok(parse_octal(0, rest)),
        // A single digit would be a back reference, which RE2 does not support.
        '1'..='7' if matches!(rest.first(), Some(b'0'..=b'7')) => {
            return Ok(parse_octal(rune as u32 - u32::from(b'0'), rest));
        }
        _ if rune.is_ascii() && !rune.is_ascii_alphanumeric() => rune as u32,
        _ => return Err(Error::before(ErrorCode::InvalidEscape, s, rest)),
    };
    Ok((value, rest))
}

fn parse_octal(first: u32, mut rest: &[u8]) -> (u32, &[u8]) {
    let mut value = first;
    for _ in 0..2 {
        let [digit @ b'0'..=b'7', tail @ ..] = rest else {
            break;
        };
        value = value * 8 + u32::from(digit - b'0');
        rest = tail;
    }
    (value, rest)
}

fn parse_hex<'p>(s: &'p [u8], rest: &'p [u8]) -> Result<(u32, &'p [u8]), Error> {
    let invalid = |rest: &[u8]| Err(Error::before(ErrorCode::InvalidEscape, s, rest));
    if rest.is_empty() {
        return invalid(rest);
    }
    let (first, mut rest) = next_rune(rest)?;
    if first != '{' {
        if rest.is_empty() {
            return invalid(rest);
        }
        let (second, rest) = next_rune(rest)?;
        return match (first.to_digit(16), second.to_digit(16)) {
            (Some(high), Some(low)) => Ok((high * 16 + low, rest)),
            _ => invalid(rest),
        };
    }
    let (mut value, mut digits) = (0_u32, 0);
    loop {
        if rest.is_empty() {
            return invalid(rest);
        }
        let (rune, tail) = next_rune(rest)?;
        rest = tail;
        if rune == '}' {
            return if digits == 0 {
                invalid(rest)
            } else {
                Ok((value, rest))
            };
        }
        let Some(digit) = rune.to_digit(16) else {
            return invalid(rest);
        };
        value = value * 16 + digit;
        digits += 1;
        if value > 0x10_FFFF {
            return invalid(rest);
        }
    }
}

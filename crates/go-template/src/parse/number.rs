//! Numeric constants: a constant is converted to every type that can represent it.

use crate::ast::Number;
use crate::go::strconv::{NumErrorKind, parse_float, parse_int, parse_uint, quoted, unquote_char};
use crate::lex::TokenKind;
use crate::value::Str;

/// Parses a constant, or returns Go's error.
pub(super) fn parse(text: &[u8], kind: TokenKind) -> Result<Number, String> {
    let number = Number {
        text: Str::from(text),
        ..Number::default()
    };
    match kind {
        TokenKind::CharConstant => character(text, number),
        TokenKind::Complex => complex(text, number),
        _ => plain(text, number),
    }
}

fn character(text: &[u8], mut number: Number) -> Result<Number, String> {
    let inner = text.get(1..).unwrap_or_default();
    let Ok(unquoted) = unquote_char(inner, b'\'') else {
        return Err(NumErrorKind::Syntax.to_string());
    };
    if unquoted.rest != b"'" {
        let text = String::from_utf8_lossy(text);
        return Err(format!("malformed character constant: {text}"));
    }
    number.int = Some(i64::from(unquoted.value));
    number.uint = Some(u64::from(unquoted.value));
    number.float = Some(f64::from(unquoted.value));
    Ok(number)
}

/// Parses a constant such as `1+2i`; the lexer has checked the sign in the middle and the i.
fn complex(text: &[u8], mut number: Number) -> Result<Number, String> {
    let body = text.strip_suffix(b"i").unwrap_or(text);
    // The sign of an exponent is not a separator.
    let split = body.iter().enumerate().rposition(|(at, byte)| {
        let before = at.checked_sub(1).and_then(|at| body.get(at));
        at > 0 && matches!(byte, b'+' | b'-') && !matches!(before, Some(b'e' | b'E' | b'p' | b'P'))
    });
    let (real, imaginary) = body.split_at(split.unwrap_or(0));
    match (parse_float(real, 64), parse_float(imaginary, 64)) {
        (Ok(real), Ok(imaginary)) => {
            simplify(&mut number, real, imaginary);
            Ok(number)
        }
        _ => Err("syntax error scanning complex number".to_owned()),
    }
}

/// Sets the complex value and, if there is no imaginary part, those of the other types.
fn simplify(number: &mut Number, real: f64, imaginary: f64) {
    number.complex = Some((real, imaginary));
    if imaginary == 0.0 {
        number.float = Some(real);
        number.int = whole(real);
        number.uint = whole_unsigned(real);
    }
}

/// Converts `float` to an integer, if it is one.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    reason = "the cast back shows whether anything was lost"
)]
fn whole(float: f64) -> Option<i64> {
    let int = float as i64;
    (int as f64 == float && int != i64::MAX).then_some(int)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "the cast back shows whether anything was lost"
)]
fn whole_unsigned(float: f64) -> Option<u64> {
    let uint = float as u64;
    (uint as f64 == float && uint != u64::MAX).then_some(uint)
}

#[allow(
    clippy::cast_precision_loss,
    reason = "Go rounds integers to floats likewise"
)]
fn plain(text: &[u8], mut number: Number) -> Result<Number, String> {
    if let Some(imaginary) = text.strip_suffix(b"i")
        && let Ok(imaginary) = parse_float(imaginary, 64)
    {
        simplify(&mut number, 0.0, imaginary);
        return Ok(number);
    }
    number.uint = parse_uint(text, 0, 64).ok();
    number.int = parse_int(text, 0, 64).ok();
    if number.int == Some(0) {
        // Makes -0 unsigned as well.
        number.uint = Some(0);
    }
    number.float = match (number.int, number.uint) {
        (Some(int), _) => Some(int as f64),
        (None, Some(uint)) => Some(uint as f64),
        (None, None) => {
            let Ok(float) = parse_float(text, 64) else {
                return Err(format!("illegal number syntax: {}", quoted(text)));
            };
            if !text.iter().any(|byte| b".eEpP".contains(byte)) {
                return Err(format!("integer overflow: {}", quoted(text)));
            }
            number.int = whole(float);
            number.uint = whole_unsigned(float);
            Some(float)
        }
    };
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_has_every_type_that_can_represent_it() {
        let number = |text: &str| parse(text.as_bytes(), TokenKind::Number).unwrap();
        for (text, int) in [
            ("0x1F", 31),
            ("0o17", 15),
            ("017", 15),
            ("1_000", 1000),
            ("1e3", 1000),
        ] {
            assert_eq!(number(text).int, Some(int), "{text}");
        }
        assert_eq!(number("0b101").uint, Some(5));
        assert_eq!(number("1.5").int, None);
        assert_eq!(number("1.5").float, Some(1.5));
        assert_eq!(number("-1").uint, None);
        assert_eq!(number("-0").uint, Some(0));
        assert_eq!(number("0x1p4").float, Some(16.0));
        assert_eq!(number("2i").complex, Some((0.0, 2.0)));
        assert_eq!(number("18446744073709551615").int, None);
        assert_eq!(number("18446744073709551615").uint, Some(u64::MAX));
        let complex = parse(b"1e+2-3.5i", TokenKind::Complex).unwrap();
        assert_eq!(complex.complex, Some((100.0, -3.5)));
        let character = |text: &str| parse(text.as_bytes(), TokenKind::CharConstant);
        for (text, int) in [("'a'", 97), (r"'\''", 39), ("'\\u00e9'", 233)] {
            assert_eq!(character(text).unwrap().int, Some(int), "{text}");
        }
        assert!(character("'ab'").is_err());
        assert!(parse(b"089", TokenKind::Number).is_err());
    }
}

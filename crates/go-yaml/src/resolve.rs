//! The types of scalars: the rules of YAML 1.1 as implemented by Go's yaml.v2.

use std::borrow::Cow;

use crate::mark::{Error, Mark};

/// A resolved scalar.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scalar<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Str(Cow<'a, str>),
}

const TAG: &str = "tag:yaml.org,2002:";
/// The tag of bytes in base64.
pub(crate) const BINARY: &str = "tag:yaml.org,2002:binary";

/// Resolves a scalar by its tag or, if it is plain and untagged, by its text.
pub(crate) fn resolve<'a>(
    tag: Option<&str>,
    text: &'a str,
    plain: bool,
    mark: Mark,
) -> Result<Scalar<'a>, Error> {
    let short = tag.map(|tag| tag.strip_prefix(TAG).unwrap_or(tag));
    match short {
        None if !plain => Ok(Scalar::Str(text.into())),
        None => Ok(resolve_plain(text)),
        Some("binary") => binary(text)
            .map(|bytes| Scalar::Str(String::from_utf8_lossy(&bytes).into_owned().into()))
            .ok_or_else(|| Error::at("!!binary value contains invalid base64 data", mark)),
        Some(wanted @ ("bool" | "int" | "float" | "null" | "timestamp")) => {
            let found = resolve_plain(text);
            let matches = match (&found, wanted) {
                (Scalar::Int(n), "float") => {
                    #[expect(clippy::cast_precision_loss, reason = "as Go converts")]
                    return Ok(Scalar::Float(*n as f64));
                }
                (Scalar::Bool(_), "bool")
                | (Scalar::Int(_) | Scalar::Uint(_), "int")
                | (Scalar::Float(_), "float")
                | (Scalar::Null, "null") => true,
                (Scalar::Str(_), "timestamp") => is_timestamp(text),
                _ => false,
            };
            if matches {
                return Ok(found);
            }
            let found = match found {
                Scalar::Null => "null",
                Scalar::Bool(_) => "bool",
                Scalar::Int(_) | Scalar::Uint(_) => "int",
                Scalar::Float(_) => "float",
                Scalar::Str(_) => "str",
            };
            let message = format!("cannot decode !!{found} `{text}` as a !!{wanted}");
            Err(Error::at(message, mark))
        }
        Some(_) => Ok(Scalar::Str(text.into())),
    }
}

/// The length of the longest word that is not a string.
const LONGEST_WORD: usize = "false".len();

/// Resolves an untagged plain scalar.
#[inline]
pub(crate) fn resolve_plain(text: &str) -> Scalar<'_> {
    let may_have_type = match text.as_bytes() {
        [b'.' | b'+' | b'-' | b'0'..=b'9', ..] | [] => true,
        [
            b'~' | b'n' | b'N' | b'y' | b'Y' | b't' | b'T' | b'f' | b'F' | b'o' | b'O',
            ..,
        ] => text.len() <= LONGEST_WORD,
        _ => false,
    };
    if may_have_type {
        resolve_typed(text)
    } else {
        Scalar::Str(text.into())
    }
}

/// Resolves a scalar that may be something else than a string.
fn resolve_typed(text: &str) -> Scalar<'_> {
    let string = || Scalar::Str(text.into());
    let Some(first) = text.bytes().next() else {
        return Scalar::Null;
    };
    match first {
        b'~' | b'n' | b'N' | b'y' | b'Y' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' => match text {
            "~" | "null" | "Null" | "NULL" => Scalar::Null,
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
                Scalar::Bool(true)
            }
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off"
            | "OFF" => Scalar::Bool(false),
            _ => string(),
        },
        b'.' => match text {
            ".nan" | ".NaN" | ".NAN" => Scalar::Float(f64::NAN),
            ".inf" | ".Inf" | ".INF" => Scalar::Float(f64::INFINITY),
            _ => go_float(text).map_or_else(string, Scalar::Float),
        },
        b'+' | b'-' | b'0'..=b'9' => match text {
            "+.inf" | "+.Inf" | "+.INF" => Scalar::Float(f64::INFINITY),
            "-.inf" | "-.Inf" | "-.INF" => Scalar::Float(f64::NEG_INFINITY),
            _ if is_timestamp(text) => string(),
            _ => number(text).unwrap_or_else(string),
        },
        _ => string(),
    }
}

/// Parses integers of base 2, 8, 10 and 16 with any underscores, and floats.
fn number<'a>(text: &str) -> Option<Scalar<'a>> {
    if let Some(value) = short_decimal(text) {
        return Some(Scalar::Int(value));
    }
    let plain: Cow<'_, str> = if text.contains('_') {
        text.replace('_', "").into()
    } else {
        text.into()
    };
    let plain = plain.as_ref();
    let (negative, unsigned) = match plain.strip_prefix(['+', '-']) {
        Some(rest) => (plain.starts_with('-'), rest),
        None => (false, plain),
    };
    let signed = plain.len() != unsigned.len();
    let lower = unsigned.to_ascii_lowercase();
    let (radix, digits) = if let Some(rest) = lower.strip_prefix("0x") {
        (16, rest)
    } else if let Some(rest) = lower.strip_prefix("0b") {
        (2, rest)
    } else if let Some(rest) = lower.strip_prefix("0o") {
        (8, rest)
    } else if unsigned.len() > 1 && unsigned.starts_with('0') {
        (8, lower.get(1..).unwrap_or(""))
    } else {
        (10, lower.as_str())
    };
    if digits.chars().all(|c| c.is_digit(radix))
        && !digits.is_empty()
        && let Ok(value) = u64::from_str_radix(digits, radix)
    {
        let magnitude = i128::from(value);
        let value_signed = if negative { -magnitude } else { magnitude };
        if let Ok(int) = i64::try_from(value_signed) {
            return Some(Scalar::Int(int));
        }
        if !signed {
            return Some(Scalar::Uint(value));
        }
    }
    if is_yaml_float(unsigned) {
        go_float(plain).map(Scalar::Float)
    } else {
        None
    }
}

/// Parses the most common numbers: a few decimal digits without a leading zero.
fn short_decimal(text: &str) -> Option<i64> {
    const DIGITS: usize = 18;
    if text.len() > DIGITS || text.starts_with('0') {
        return None;
    }
    text.bytes().try_fold(0, |value: i64, digit| {
        digit
            .is_ascii_digit()
            .then(|| value * 10 + i64::from(digit - b'0'))
    })
}

/// Go's `strconv.ParseFloat` for YAML floats; returns `None` if out of range.
fn go_float(text: &str) -> Option<f64> {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !is_yaml_float(body) {
        return None;
    }
    text.parse::<f64>().ok().filter(|value| value.is_finite())
}

/// `(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_yaml_float(text: &str) -> bool {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (text.get(..at).unwrap_or(""), text.get(at + 1..)),
        None => (text, None),
    };
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|c| c.is_ascii_digit());
    let mantissa_ok = match mantissa.split_once('.') {
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
        None => digits(mantissa),
    };
    mantissa_ok && exponent.is_none_or(|e| digits(e.strip_prefix(['+', '-']).unwrap_or(e)))
}

/// Returns whether Go resolves the text to a timestamp, which stays a string here.
pub(crate) fn is_timestamp(text: &str) -> bool {
    read_timestamp(text).is_some()
}

fn read_timestamp(text: &str) -> Option<()> {
    let year = text.bytes().take_while(u8::is_ascii_digit).count();
    let mut rest = text.get(4..).filter(|_| year == 4)?.strip_prefix('-')?;
    let month = take_number(&mut rest, 2)?;
    rest = rest.strip_prefix('-')?;
    let day = take_number(&mut rest, 2)?;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let Some(separator) = rest.chars().next() else {
        return Some(());
    };
    rest = rest.strip_prefix(['T', 't', ' '])?;
    for (i, limit) in [24, 60, 60].into_iter().enumerate() {
        if i > 0 {
            rest = rest.strip_prefix(':')?;
        }
        take_number(&mut rest, 2).filter(|value| *value < limit)?;
    }
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        rest = fraction.get(digits..).filter(|_| digits > 0)?;
    }
    let ends = if separator == ' ' {
        rest.is_empty()
    } else {
        is_zone(rest)
    };
    ends.then_some(())
}

fn take_number(text: &mut &str, most: usize) -> Option<u32> {
    let len = text
        .bytes()
        .take(most)
        .take_while(u8::is_ascii_digit)
        .count();
    let (digits, rest) = text.split_at_checked(len)?;
    *text = rest;
    digits.parse().ok()
}

fn is_zone(text: &str) -> bool {
    if text == "Z" {
        return true;
    }
    let Some(rest) = text.strip_prefix(['+', '-']) else {
        return false;
    };
    let digits = |s: &str| s.len() == 2 && s.bytes().all(|c| c.is_ascii_digit());
    rest.split_once(':')
        .is_some_and(|(hours, minutes)| digits(hours) && digits(minutes))
}

/// Decodes standard base64, ignoring line breaks.
pub(crate) fn binary(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut bits = 0_u32;
    let mut count = 0_u32;
    let mut padding = 0_usize;
    let mut total = 0_usize;
    for c in text.bytes().filter(|c| !matches!(c, b'\n' | b'\r')) {
        total += 1;
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => {
                padding += 1;
                continue;
            }
            _ => return None,
        };
        if padding > 0 {
            return None;
        }
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push(u8::try_from((bits >> count) & 0xFF).unwrap_or(0));
        }
    }
    (total.is_multiple_of(4) && padding <= 2).then_some(out)
}

/// Returns whether Go recognizes the text as a base 60 float, which it quotes for other parsers.
pub(crate) fn is_base60(text: &str) -> bool {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut parts = body.split(':');
    let head = parts.next().unwrap_or("");
    let head_ok = head.starts_with(|c: char| c.is_ascii_digit())
        && head.bytes().all(|c| c.is_ascii_digit() || c == b'_');
    let rest: Vec<&str> = parts.collect();
    let Some((last, middle)) = rest.split_last() else {
        return false;
    };
    let sixty = |s: &str| match s.as_bytes() {
        [d] => d.is_ascii_digit(),
        [tens, ones] => (b'0'..=b'5').contains(tens) && ones.is_ascii_digit(),
        _ => false,
    };
    let (last, fraction) = last.split_once('.').map_or((*last, ""), |(a, b)| (a, b));
    head_ok
        && middle.iter().all(|part| sixty(part))
        && sixty(last)
        && fraction.bytes().all(|c| c.is_ascii_digit() || c == b'_')
}

#[cfg(test)]
mod tests {
    use super::{Scalar, is_base60, is_timestamp, resolve_plain};

    #[test]
    fn plain_scalars_are_resolved_as_in_go() {
        for (text, expected) in [
            ("010", Scalar::Int(8)),
            ("0o10", Scalar::Int(8)),
            ("0x1F", Scalar::Int(31)),
            ("-0b11", Scalar::Int(-3)),
            ("1_000", Scalar::Int(1000)),
            ("18446744073709551615", Scalar::Uint(u64::MAX)),
            ("1e3", Scalar::Float(1000.0)),
            ("1.", Scalar::Float(1.0)),
            (".5", Scalar::Float(0.5)),
            ("08", Scalar::Float(8.0)),
            ("1:30", Scalar::Str("1:30".into())),
            ("yes", Scalar::Bool(true)),
            ("Off", Scalar::Bool(false)),
            ("2001-01-01", Scalar::Str("2001-01-01".into())),
            ("nul", Scalar::Str("nul".into())),
            ("", Scalar::Null),
            ("-", Scalar::Str("-".into())),
            ("0x", Scalar::Str("0x".into())),
        ] {
            assert_eq!(resolve_plain(text), expected, "{text:?}");
        }
    }

    #[test]
    fn base_60_floats_and_timestamps_are_recognized() {
        for (text, base60, timestamp) in [
            ("1:30", true, false),
            ("1:60", false, false),
            ("190:20:30.15", true, false),
            ("2001-1-1", false, true),
            ("2001-13-1", false, false),
            ("2001-12-14T21:59:43.10-05:00", false, true),
            ("2001-12-14 21:59:43", false, true),
        ] {
            assert_eq!(
                (is_base60(text), is_timestamp(text)),
                (base60, timestamp),
                "{text:?}"
            );
        }
    }
}

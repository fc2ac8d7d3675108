//! Go's `time.Duration`: nanoseconds with formatting, parsing, rounding and arithmetic.

use super::strconv::{push_uint, split_sign};
use bounded::Buffer;

/// Nanoseconds in a microsecond.
pub const MICROSECOND: i64 = 1_000;
/// Nanoseconds in a millisecond.
pub const MILLISECOND: i64 = 1_000 * MICROSECOND;
/// Nanoseconds in a second.
pub const SECOND: i64 = 1_000 * MILLISECOND;
/// Nanoseconds in a minute.
pub const MINUTE: i64 = 60 * SECOND;
/// Nanoseconds in an hour.
pub const HOUR: i64 = 60 * MINUTE;

/// A span of time in nanoseconds.
///
/// ```
/// use go_template::go::duration::Duration;
/// let span = Duration::parse(b"1h15m30.5s")?;
/// assert_eq!(span.to_string(), "1h15m30.5s");
/// # Ok::<(), go_template::go::duration::ParseDurationError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Duration(pub i64);

/// An error in the text of a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ParseDurationError {
    /// Malformed text, or a value that does not fit.
    #[error("time: invalid duration {}", quote(.0))]
    Invalid(Vec<u8>),
    /// A number without a unit.
    #[error("time: missing unit in duration {}", quote(.0))]
    MissingUnit(Vec<u8>),
    /// An unknown unit.
    #[error("time: unknown unit {} in duration {}", quote(unit), quote(text))]
    UnknownUnit { unit: Vec<u8>, text: Vec<u8> },
}

/// Quotes like package `time`: everything outside printable ASCII byte by byte.
pub(super) fn quote(text: &[u8]) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend(['\\', byte as char]),
            b' '..=0x7F => out.push(byte as char),
            _ => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push('"');
    out
}

impl Duration {
    /// Go's `time.ParseDuration`.
    ///
    /// # Errors
    /// If the text is not a duration, with Go's message.
    pub fn parse(text: &[u8]) -> Result<Self, ParseDurationError> {
        let invalid = || ParseDurationError::Invalid(text.to_vec());
        let (negative, mut rest) = split_sign(text);
        if rest == b"0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total = 0_u64;
        while !rest.is_empty() {
            let (whole, after) = leading_int(rest).ok_or_else(invalid)?;
            let mut seen = after.len() < rest.len();
            rest = after;
            let mut fraction = (0, 1.0);
            if let [b'.', after @ ..] = rest {
                let (value, scale, tail) = leading_fraction(after);
                seen |= tail.len() < after.len();
                fraction = (value, scale);
                rest = tail;
            }
            if !seen {
                return Err(invalid());
            }
            let is_number = |c: &u8| *c == b'.' || c.is_ascii_digit();
            let end = rest.iter().position(is_number).unwrap_or(rest.len());
            let (unit, tail) = rest.split_at(end);
            rest = tail;
            if unit.is_empty() {
                return Err(ParseDurationError::MissingUnit(text.to_vec()));
            }
            let Some(scale) = unit_of(unit) else {
                let (unit, text) = (unit.to_vec(), text.to_vec());
                return Err(ParseDurationError::UnknownUnit { unit, text });
            };
            let part = nanoseconds(whole, fraction, scale).ok_or_else(invalid)?;
            total = total
                .checked_add(part)
                .filter(|&total| total <= 1 << 63)
                .ok_or_else(invalid)?;
        }
        match (negative, i64::try_from(total)) {
            (false, Ok(total)) => Ok(Self(total)),
            (false, Err(_)) => Err(invalid()),
            (true, _) => Ok(Self(total.cast_signed().wrapping_neg())),
        }
    }

    /// Returns the span in seconds, like Go's `Seconds`.
    pub fn seconds(self) -> f64 {
        self.in_units(SECOND)
    }

    /// Returns the span in minutes, like Go's `Minutes`.
    pub fn minutes(self) -> f64 {
        self.in_units(MINUTE)
    }

    /// Returns the span in hours, like Go's `Hours`.
    pub fn hours(self) -> f64 {
        self.in_units(HOUR)
    }

    #[allow(clippy::cast_precision_loss, reason = "so does Go")]
    fn in_units(self, unit: i64) -> f64 {
        (self.0 / unit) as f64 + (self.0 % unit) as f64 / unit as f64
    }

    /// Rounds towards zero to a multiple of `unit`; a unit that is not positive has no effect.
    #[must_use]
    pub fn truncate(self, unit: Self) -> Self {
        if unit.0 <= 0 {
            self
        } else {
            Self(self.0 - self.0 % unit.0)
        }
    }

    /// Rounds to the nearest multiple of `unit`, half away from zero, like Go's `Round`; saturates
    /// on overflow.
    #[must_use]
    pub fn round(self, unit: Self) -> Self {
        if unit.0 <= 0 {
            return self;
        }
        let rest = (self.0 % unit.0).unsigned_abs();
        let down = rest.saturating_mul(2) < unit.0.unsigned_abs();
        let truncated = self.0 - self.0 % unit.0;
        Self(match (down, self.0 < 0) {
            (true, _) => truncated,
            (false, true) => truncated.checked_sub(unit.0).unwrap_or(i64::MIN),
            (false, false) => truncated.checked_add(unit.0).unwrap_or(i64::MAX),
        })
    }

    /// Go's `Abs`: the minimum becomes the maximum.
    #[must_use]
    pub fn abs(self) -> Self {
        Self(self.0.checked_abs().unwrap_or(i64::MAX))
    }

    /// Appends Go's `String`.
    pub fn push_text(self, dst: &mut Buffer) {
        let span = self.0.unsigned_abs();
        if span == 0 {
            return dst.extend_from_slice(b"0s");
        }
        if self.0 < 0 {
            dst.push(b'-');
        }
        let unit = |value: i64| value.unsigned_abs();
        if span < unit(SECOND) {
            let (scale, decimals, name): (_, _, &[u8]) = if span < unit(MICROSECOND) {
                (1, 0, b"ns")
            } else if span < unit(MILLISECOND) {
                (unit(MICROSECOND), 3, "\u{b5}s".as_bytes())
            } else {
                (unit(MILLISECOND), 6, b"ms")
            };
            push_decimal(dst, span, scale, decimals);
            return dst.extend_from_slice(name);
        }
        let minutes = span / unit(MINUTE);
        if minutes >= 60 {
            push_uint(dst, minutes / 60);
            dst.push(b'h');
        }
        if minutes > 0 {
            push_uint(dst, minutes % 60);
            dst.push(b'm');
        }
        push_decimal(dst, span % unit(MINUTE), unit(SECOND), 9);
        dst.push(b's');
    }
}

impl std::fmt::Display for Duration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = Buffer::new();
        self.push_text(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

/// Appends `value / scale` with as many of the `decimals` digits as are needed.
fn push_decimal(dst: &mut Buffer, value: u64, scale: u64, decimals: usize) {
    push_uint(dst, value / scale);
    let fraction = value % scale;
    if fraction == 0 {
        return;
    }
    dst.push(b'.');
    let digits = format!("{fraction:0decimals$}");
    dst.extend_from_slice(digits.trim_end_matches('0').as_bytes());
}

/// Parses leading digits as a number of at most 2^63.
pub(super) fn leading_int(s: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    let mut rest = s;
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        value = value
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
        if value > 1 << 63 {
            return None;
        }
        rest = after;
    }
    Some((value, rest))
}

/// Parses leading digits as a fraction `value / scale`; excess digits are dropped.
fn leading_fraction(s: &[u8]) -> (u64, f64, &[u8]) {
    let (mut value, mut scale) = (0_u64, 1.0);
    let mut full = false;
    let mut rest = s;
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        rest = after;
        let next = value
            .checked_mul(10)
            .and_then(|next| next.checked_add(u64::from(digit - b'0')));
        match next {
            Some(next) if !full && value <= (i64::MAX as u64) / 10 && next <= 1 << 63 => {
                value = next;
                scale *= 10.0;
            }
            _ => full = true,
        }
    }
    (value, scale, rest)
}

fn unit_of(name: &[u8]) -> Option<u64> {
    let unit = match name {
        b"ns" => 1,
        b"us" | b"\xC2\xB5s" | b"\xCE\xBCs" => MICROSECOND,
        b"ms" => MILLISECOND,
        b"s" => SECOND,
        b"m" => MINUTE,
        b"h" => HOUR,
        _ => return None,
    };
    Some(unit.unsigned_abs())
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the fraction of one unit is below 2^42 nanoseconds"
)]
fn nanoseconds(whole: u64, (fraction, scale): (u64, f64), unit: u64) -> Option<u64> {
    if whole > (1 << 63) / unit {
        return None;
    }
    let part = (fraction as f64 * (unit as f64 / scale)) as u64;
    (whole * unit)
        .checked_add(part)
        .filter(|&value| value <= 1 << 63)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> String {
        match Duration::parse(text.as_bytes()) {
            Ok(span) => span.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn durations_are_parsed_and_formatted() {
        let cases = [
            ("0", "0s"),
            ("95s", "1m35s"),
            ("-1.5h", "-1h30m0s"),
            ("1h0.5s", "1h0m0.5s"),
            ("1500us", "1.5ms"),
            ("1\u{b5}s", "1\u{b5}s"),
            ("12ns", "12ns"),
            ("2540400h10m10.000000001s", "2540400h10m10.000000001s"),
            ("-9223372036854775808ns", "-2562047h47m16.854775808s"),
            (
                "9223372036854775808ns",
                "time: invalid duration \"9223372036854775808ns\"",
            ),
            ("", "time: invalid duration \"\""),
            ("3", "time: missing unit in duration \"3\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
            (".s", "time: invalid duration \".s\""),
            (
                "1\u{e9}",
                "time: unknown unit \"\\xc3\\xa9\" in duration \"1\\xc3\\xa9\"",
            ),
        ];
        for (text, want) in cases {
            assert_eq!(parsed(text), want);
        }
    }

    #[test]
    fn rounding_is_half_away_from_zero() {
        let minute = Duration(MINUTE);
        assert_eq!(Duration(90 * SECOND).round(minute), Duration(2 * MINUTE));
        assert_eq!(Duration(-90 * SECOND).round(minute), Duration(-2 * MINUTE));
        assert_eq!(Duration(89 * SECOND).round(minute), minute);
        assert_eq!(Duration(i64::MAX).round(Duration(HOUR)), Duration(i64::MAX));
        assert_eq!(Duration(-90 * SECOND).truncate(minute), Duration(-MINUTE));
        assert_eq!(Duration(5).round(Duration(0)), Duration(5));
    }
}

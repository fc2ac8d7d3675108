//! Floats: Go's `FormatFloat` in every format, and `ParseFloat`.

use bounded::Buffer;
use std::io::Write;

use super::{NumError, hexfloat, parse_int, push_uint, split_sign, underscores_ok};

/// Maximum number of significant digits of any `f64`; further digits are zeros.
const MAX_PRECISION: usize = 1100;

/// The shortest decimal digits of a number and the position of its point: `0.d1d2d3… * 10^point`.
/// Zero has no digits.
#[derive(Debug, Clone, Copy)]
pub struct Digits {
    buffer: [u8; 24],
    length: usize,
    /// The power of ten that `0.d1d2d3…` is multiplied by.
    pub point: i32,
}

impl Digits {
    /// Returns the shortest digits that parse to `value`, or to the `f32` nearest to it if `bits`
    /// is 32.
    pub fn shortest(value: f64, bits: u32) -> Self {
        let mut digits = Self {
            buffer: [0; 24],
            length: 0,
            point: 0,
        };
        if value == 0.0 {
            return digits;
        }
        let mut text = StackText {
            buffer: [0; 40],
            length: 0,
        };
        #[allow(
            clippy::cast_possible_truncation,
            reason = "the caller asks for 32 bits"
        )]
        let _ = if bits == 32 {
            write!(text, "{:e}", (value as f32).abs())
        } else {
            write!(text, "{:e}", value.abs())
        };
        let text = text.buffer.get(..text.length).unwrap_or_default();
        let (mantissa, exponent) = split_exponent(text);
        let slots = digits.buffer.iter_mut();
        for (slot, &digit) in slots.zip(mantissa.iter().filter(|c| c.is_ascii_digit())) {
            *slot = digit;
            digits.length += 1;
        }
        digits.point = exponent + 1;
        digits.break_tie(value, bits);
        digits
    }

    /// Breaks a tie like Go: if two shortest texts are equally near, Go takes the even one and the
    /// standard library the greater. This only happens with nearly as many digits as the type can
    /// represent.
    fn break_tie(&mut self, value: f64, bits: u32) {
        let Some(last) = self.length.checked_sub(1) else {
            return;
        };
        let odd = self.buffer.get(last).is_some_and(|digit| digit % 2 == 1);
        if !odd || self.length < if bits == 32 { 6 } else { 15 } {
            return;
        }
        let exact = format!("{:.last$e}", value.abs());
        let (mantissa, exponent) = split_exponent(exact.as_bytes());
        let even = || mantissa.iter().copied().filter(u8::is_ascii_digit);
        if exponent + 1 != self.point || even().eq(self.as_bytes().iter().copied()) {
            return;
        }
        let read_back = if bits == 32 {
            exact.parse::<f32>().map(f64::from)
        } else {
            exact.parse::<f64>()
        };
        let same = read_back.is_ok_and(|read| read.to_bits() == value.abs().to_bits());
        if same {
            for (slot, digit) in self.buffer.iter_mut().zip(even()) {
                *slot = digit;
            }
        }
    }

    /// Returns the digits without trailing zeros.
    pub fn as_bytes(&self) -> &[u8] {
        self.buffer.get(..self.length).unwrap_or_default()
    }
}

/// A short text on the stack.
struct StackText {
    buffer: [u8; 40],
    length: usize,
}

impl Write for StackText {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let free = self.buffer.get_mut(self.length..).unwrap_or_default();
        let taken = bytes.len().min(free.len());
        for (slot, byte) in free.iter_mut().zip(bytes) {
            *slot = *byte;
        }
        self.length += taken;
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Splits the standard library's `1.25e-7` into mantissa and exponent.
fn split_exponent(text: &[u8]) -> (&[u8], i32) {
    let mut halves = text.splitn(2, |&c| c == b'e');
    let mantissa = halves.next().unwrap_or_default();
    let exponent = halves.next().map(|digits| parse_int(digits, 10, 32));
    let exponent = exponent.and_then(|value| i32::try_from(value.ok()?).ok());
    (mantissa, exponent.unwrap_or(0))
}

/// Appends `value` like Go's `strconv.AppendFloat`. `format` is one of `b e E f g G x X`; without a
/// precision the text is the shortest that parses to the same value of `bits` (32 or 64) bits.
///
/// ```
/// let mut out = go_template::Buffer::new();
/// go_template::go::strconv::format_float(&mut out, 1_000_000.0, b'g', None, 64);
/// assert_eq!(out, b"1e+06");
/// ```
pub fn format_float(dst: &mut Buffer, value: f64, format: u8, precision: Option<usize>, bits: u32) {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the caller asks for 32 bits"
    )]
    let value = if bits == 32 {
        f64::from(value as f32)
    } else {
        value
    };
    if push_special(dst, value) {
        return;
    }
    match (format, precision) {
        (b'b', _) => hexfloat::push_b(dst, value, bits),
        (b'x' | b'X', _) => hexfloat::push_x(dst, value, precision, format == b'X', bits),
        (b'e' | b'E' | b'f' | b'g' | b'G', None) => {
            push_sign(dst, value);
            push_shortest(dst, value, format, bits);
        }
        (b'e' | b'E' | b'f' | b'g' | b'G', Some(precision)) => {
            push_sign(dst, value);
            push_fixed(dst, value, format, precision);
        }
        _ => dst.extend_from_slice(&[b'%', format]),
    }
}

fn push_special(dst: &mut Buffer, value: f64) -> bool {
    if value.is_nan() {
        dst.extend_from_slice(b"NaN");
    } else if value.is_infinite() {
        dst.extend_from_slice(if value < 0.0 { b"-Inf" } else { b"+Inf" });
    } else {
        return false;
    }
    true
}

fn push_sign(dst: &mut Buffer, value: f64) {
    if value.is_sign_negative() {
        dst.push(b'-');
    }
}

fn push_shortest(dst: &mut Buffer, value: f64, format: u8, bits: u32) {
    let magnitude = value.abs();
    // Small whole numbers are the most common in templates and need no search for the shortest
    // digits.
    if matches!(format, b'g' | b'f') && magnitude < 1_000_000.0 && magnitude.fract() == 0.0 {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole and below a million"
        )]
        return push_uint(dst, magnitude as u64);
    }
    let found = Digits::shortest(value, bits);
    let (digits, point) = (found.as_bytes(), found.point);
    let decimals = usize::try_from(count(digits) - point).unwrap_or(0);
    let fraction = digits.len().saturating_sub(1);
    match format {
        b'f' => push_f(dst, digits, point, decimals),
        b'e' | b'E' => push_e(dst, digits, point, fraction, format),
        _ if (-4..6).contains(&(point - 1)) || digits.is_empty() => {
            push_f(dst, digits, point, decimals);
        }
        // 'e' is two letters before 'g'.
        _ => push_e(dst, digits, point, fraction, format - 2),
    }
}

fn push_fixed(dst: &mut Buffer, value: f64, format: u8, precision: usize) {
    let magnitude = value.abs();
    let exact = precision.min(MAX_PRECISION);
    match format {
        b'f' => {
            let _ = write!(dst, "{magnitude:.exact$}");
            dst.resize(dst.len() + (precision - exact), b'0');
        }
        b'e' | b'E' => {
            let text = format!("{magnitude:.exact$e}");
            let (mantissa, exponent) = split_exponent(text.as_bytes());
            dst.extend_from_slice(mantissa);
            dst.resize(dst.len() + (precision - exact), b'0');
            push_exponent(dst, exponent, format);
        }
        _ => push_general(dst, magnitude, format, precision.max(1)),
    }
}

/// Formats `%g` with a precision: at most that many significant digits, without trailing zeros.
fn push_general(dst: &mut Buffer, magnitude: f64, format: u8, precision: usize) {
    let decimals = precision.min(MAX_PRECISION) - 1;
    let text = format!("{magnitude:.decimals$e}");
    let (mantissa, power) = split_exponent(text.as_bytes());
    let mut digits: Vec<u8> = mantissa
        .iter()
        .copied()
        .filter(u8::is_ascii_digit)
        .collect();
    while digits.last() == Some(&b'0') {
        digits.pop();
    }
    let point = if digits.is_empty() { 0 } else { power + 1 };
    let most = i32::try_from(precision).unwrap_or(i32::MAX);
    let limit = if most > count(&digits) && count(&digits) >= point {
        count(&digits)
    } else {
        most
    };
    let exponent = point - 1;
    if exponent < -4 || exponent >= limit {
        let kept = precision.min(digits.len());
        push_e(dst, &digits, point, kept.saturating_sub(1), format - 2);
    } else {
        let kept = if most > point { count(&digits) } else { most };
        let places = usize::try_from(kept - point).unwrap_or(0);
        push_f(dst, &digits, point, places);
    }
}

fn count(digits: &[u8]) -> i32 {
    i32::try_from(digits.len()).unwrap_or(i32::MAX)
}

/// Appends `d.ddde±dd` with `decimals` digits after the point.
fn push_e(dst: &mut Buffer, digits: &[u8], point: i32, decimals: usize, letter: u8) {
    dst.push(digits.first().copied().unwrap_or(b'0'));
    if decimals > 0 {
        dst.push(b'.');
        let fraction = digits.get(1..).unwrap_or_default();
        let taken = fraction.len().min(decimals);
        dst.extend_from_slice(fraction.get(..taken).unwrap_or_default());
        dst.resize(dst.len() + (decimals - taken), b'0');
    }
    push_exponent(dst, if digits.is_empty() { 0 } else { point - 1 }, letter);
}

fn push_exponent(dst: &mut Buffer, exponent: i32, letter: u8) {
    dst.push(letter);
    dst.push(if exponent < 0 { b'-' } else { b'+' });
    if exponent.abs() < 10 {
        dst.push(b'0');
    }
    push_uint(dst, u64::from(exponent.unsigned_abs()));
}

/// Appends `ddd.ddd` with `decimals` digits after the point.
fn push_f(dst: &mut Buffer, digits: &[u8], point: i32, decimals: usize) {
    let whole = usize::try_from(point).unwrap_or(0);
    if whole == 0 {
        dst.push(b'0');
    } else {
        let taken = whole.min(digits.len());
        dst.extend_from_slice(digits.get(..taken).unwrap_or_default());
        dst.resize(dst.len() + (whole - taken), b'0');
    }
    if decimals > 0 {
        dst.push(b'.');
        let end = dst.len() + decimals;
        let leading = usize::try_from(-i64::from(point))
            .unwrap_or(0)
            .min(decimals);
        dst.resize(dst.len() + leading, b'0');
        let fraction = digits.get(whole..).unwrap_or_default();
        let taken = fraction.len().min(end - dst.len());
        dst.extend_from_slice(fraction.get(..taken).unwrap_or_default());
        dst.resize(end, b'0');
    }
}

/// Go's `strconv.ParseFloat`: decimal and hexadecimal floats, `inf`, `infinity` and `nan`,
/// underscores as in Go's literals. With 32 bits the value is rounded to an `f32`.
///
/// # Errors
/// If the text is not a number, or out of range.
pub fn parse_float(s: &[u8], bits: u32) -> Result<f64, NumError<f64>> {
    if let Some(value) = special(s) {
        return Ok(value);
    }
    if hexfloat::is_hex(s) {
        return hexfloat::parse(s, bits);
    }
    if !is_decimal(s) || s.contains(&b'_') && !underscores_ok(s) {
        return Err(NumError::syntax());
    }
    let cleaned: Vec<u8>;
    let plain = if s.contains(&b'_') {
        cleaned = s.iter().copied().filter(|&c| c != b'_').collect();
        cleaned.as_slice()
    } else {
        s
    };
    let text = std::str::from_utf8(plain).map_err(|_| NumError::syntax())?;
    let value = if bits == 32 {
        text.parse::<f32>().map(f64::from)
    } else {
        text.parse::<f64>()
    };
    match value {
        Ok(value) if value.is_infinite() => Err(NumError::range(value)),
        Ok(value) => Ok(value),
        Err(_) => Err(NumError::syntax()),
    }
}

fn special(s: &[u8]) -> Option<f64> {
    if s.eq_ignore_ascii_case(b"nan") {
        return Some(f64::NAN);
    }
    let (negative, rest) = split_sign(s);
    let infinite = rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity");
    infinite.then_some(if negative {
        f64::NEG_INFINITY
    } else {
        f64::INFINITY
    })
}

/// Returns whether the text is a sign, digits with at most one point, and an optional exponent.
/// Underscores count as digits here.
fn is_decimal(s: &[u8]) -> bool {
    let (_, s) = split_sign(s);
    let (mantissa, exponent) = match s.iter().position(|&c| c == b'e' || c == b'E') {
        Some(at) => (s.get(..at).unwrap_or_default(), s.get(at + 1..)),
        None => (s, None),
    };
    let one_point = mantissa.splitn(3, |&c| c == b'.').count() <= 2;
    let well_formed = mantissa
        .iter()
        .all(|&c| c.is_ascii_digit() || c == b'.' || c == b'_');
    let exponent_ok = exponent.is_none_or(|digits| {
        let (_, digits) = split_sign(digits);
        digits.first().is_some_and(u8::is_ascii_digit)
            && digits.iter().all(|&c| c.is_ascii_digit() || c == b'_')
    });
    well_formed && one_point && mantissa.iter().any(u8::is_ascii_digit) && exponent_ok
}

#[cfg(test)]
mod tests {
    use super::super::NumErrorKind;
    use super::*;

    fn formatted(value: f64, format: u8, precision: Option<usize>) -> String {
        let mut out = bounded::Buffer::new();
        format_float(&mut out, value, format, precision, 64);
        String::from_utf8(out.into_vec()).unwrap()
    }

    #[test]
    fn shortest_form_switches_to_exponents_at_a_million() {
        let cases = [
            (1.0, "1"),
            (-0.0, "-0"),
            (80.5, "80.5"),
            (999_999.0, "999999"),
            (1e6, "1e+06"),
            (12_345_678_901.0, "1.2345678901e+10"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e100, "1e+100"),
            (5e-324, "5e-324"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Inf"),
        ];
        for (value, want) in cases {
            assert_eq!(formatted(value, b'g', None), want);
        }
    }

    #[test]
    fn precision_rounds_the_exact_value_half_to_even() {
        assert_eq!(formatted(0.125, b'f', Some(2)), "0.12");
        assert_eq!(formatted(2.5, b'f', Some(0)), "2");
        assert_eq!(formatted(1234.5678, b'e', Some(2)), "1.23e+03");
        assert_eq!(formatted(0.0, b'e', Some(3)), "0.000e+00");
        assert_eq!(formatted(100.0, b'g', Some(2)), "1e+02");
        assert_eq!(formatted(100_000.0, b'g', Some(10)), "100000");
        assert_eq!(formatted(123_456_789.0, b'G', Some(3)), "1.23E+08");
        assert_eq!(formatted(1.0, b'f', Some(1200)).len(), 1202);
        assert_eq!(formatted(1.0, b'z', None), "%z");
    }

    #[test]
    fn floats_are_parsed_as_go_literals() {
        let cases: [(&[u8], Result<f64, NumErrorKind>); 16] = [
            (b"1_000.5", Ok(1000.5)),
            (b".5", Ok(0.5)),
            (b"5.", Ok(5.0)),
            (b"-1e3", Ok(-1000.0)),
            (b"+Inf", Ok(f64::INFINITY)),
            (b"-infinity", Ok(f64::NEG_INFINITY)),
            (b"0x1p-2", Ok(0.25)),
            (b"0x1.8p1", Ok(3.0)),
            (b"0x10", Err(NumErrorKind::Syntax)),
            (b"1__0", Err(NumErrorKind::Syntax)),
            (b"1e", Err(NumErrorKind::Syntax)),
            (b".", Err(NumErrorKind::Syntax)),
            (b"1.2.3", Err(NumErrorKind::Syntax)),
            (b" 1", Err(NumErrorKind::Syntax)),
            (b"1e400", Err(NumErrorKind::Range)),
            (b"", Err(NumErrorKind::Syntax)),
        ];
        for (text, want) in cases {
            let got = parse_float(text, 64).map_err(|error| error.kind);
            assert_eq!(got, want, "{}", String::from_utf8_lossy(text));
        }
        assert!(parse_float(b"NaN", 64).unwrap().is_nan());
    }
}

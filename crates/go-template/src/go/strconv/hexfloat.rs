//! Floats in base 2 and 16: the formats `b` and `x`, and hexadecimal literals such as `0x1.8p-3`.

use super::{NumError, push_int, push_uint, split_sign, underscores_ok};
use bounded::Buffer;

/// The layout of an IEEE 754 float.
struct Layout {
    mantissa_bits: u32,
    exponent_bits: u32,
    bias: i32,
}

const SINGLE: Layout = Layout {
    mantissa_bits: 23,
    exponent_bits: 8,
    bias: -127,
};
const DOUBLE: Layout = Layout {
    mantissa_bits: 52,
    exponent_bits: 11,
    bias: -1023,
};

/// A decomposed finite float: `mantissa * 2^(exponent - mantissa bits)`.
struct Parts {
    mantissa: u64,
    exponent: i32,
    layout: &'static Layout,
}

fn parts(value: f64, bits: u32) -> Parts {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the caller asks for 32 bits"
    )]
    let (raw, layout) = if bits == 32 {
        (u64::from((value as f32).to_bits()), &SINGLE)
    } else {
        (value.to_bits(), &DOUBLE)
    };
    let fraction = raw & ((1 << layout.mantissa_bits) - 1);
    let biased = (raw >> layout.mantissa_bits) & ((1 << layout.exponent_bits) - 1);
    let biased = i32::try_from(biased).unwrap_or(0);
    let (mantissa, exponent) = match biased {
        0 => (fraction, 1 + layout.bias),
        _ => (fraction | 1 << layout.mantissa_bits, biased + layout.bias),
    };
    Parts {
        mantissa,
        exponent,
        layout,
    }
}

/// Appends a finite value as `-ddddp±ddd`.
pub(super) fn push_b(dst: &mut Buffer, value: f64, bits: u32) {
    let parts = parts(value, bits);
    if value.is_sign_negative() {
        dst.push(b'-');
    }
    push_uint(dst, parts.mantissa);
    dst.push(b'p');
    let exponent = i64::from(parts.exponent) - i64::from(parts.layout.mantissa_bits);
    if exponent >= 0 {
        dst.push(b'+');
    }
    push_int(dst, exponent);
}

/// Appends a finite value as `-0x1.yyyp±dd`.
pub(super) fn push_x(
    dst: &mut Buffer,
    value: f64,
    precision: Option<usize>,
    upper: bool,
    bits: u32,
) {
    let Parts {
        mut mantissa,
        mut exponent,
        layout,
    } = parts(value, bits);
    if mantissa == 0 {
        exponent = 0;
    }
    mantissa <<= 60 - layout.mantissa_bits;
    while mantissa != 0 && mantissa & (1 << 60) == 0 {
        mantissa <<= 1;
        exponent -= 1;
    }
    if let Some(digits @ 0..15) = precision {
        let shift = digits * 4;
        let extra = (mantissa << shift) & ((1 << 60) - 1);
        mantissa >>= 60 - shift;
        if extra | (mantissa & 1) > 1 << 59 {
            mantissa += 1;
        }
        mantissa <<= 60 - shift;
        if mantissa & (1 << 61) != 0 {
            mantissa >>= 1;
            exponent += 1;
        }
    }
    if value.is_sign_negative() {
        dst.push(b'-');
    }
    dst.extend_from_slice(if upper { b"0X" } else { b"0x" });
    dst.push(b'0' + ((mantissa >> 60) & 1) as u8);
    mantissa <<= 4;
    match precision {
        None if mantissa != 0 => {
            dst.push(b'.');
            while mantissa != 0 {
                dst.push(hex_digit(mantissa >> 60, upper));
                mantissa <<= 4;
            }
        }
        Some(digits) if digits > 0 => {
            dst.push(b'.');
            for _ in 0..digits {
                dst.push(hex_digit(mantissa >> 60, upper));
                mantissa <<= 4;
            }
        }
        _ => {}
    }
    dst.push(if upper { b'P' } else { b'p' });
    dst.push(if exponent < 0 { b'-' } else { b'+' });
    if exponent.abs() < 10 {
        dst.push(b'0');
    }
    push_uint(dst, u64::from(exponent.unsigned_abs()));
}

fn hex_digit(digit: u64, upper: bool) -> u8 {
    match (digit & 15) as u8 {
        digit @ 0..10 => b'0' + digit,
        digit if upper => b'A' + digit - 10,
        digit => b'a' + digit - 10,
    }
}

/// Returns whether the text, after its sign, begins like a hexadecimal float with at least one more
/// character.
pub(super) fn is_hex(s: &[u8]) -> bool {
    let (_, s) = split_sign(s);
    matches!(s, [b'0', b'x' | b'X', _, ..])
}

/// Parses a hexadecimal float; the exponent is mandatory.
pub(super) fn parse(s: &[u8], bits: u32) -> Result<f64, NumError<f64>> {
    let Some((mantissa, exponent, dropped)) = read(s) else {
        return Err(NumError::syntax());
    };
    if s.contains(&b'_') && !underscores_ok(s) {
        return Err(NumError::syntax());
    }
    let layout = if bits == 32 { &SINGLE } else { &DOUBLE };
    let (raw, overflow) = assemble(mantissa, exponent, dropped, layout);
    let magnitude = if bits == 32 {
        f64::from(f32::from_bits(u32::try_from(raw).unwrap_or(0)))
    } else {
        f64::from_bits(raw)
    };
    let value = if s.first() == Some(&b'-') {
        -magnitude
    } else {
        magnitude
    };
    if overflow {
        Err(NumError::range(value))
    } else {
        Ok(value)
    }
}

/// Returns the leading 64 bits of the mantissa, the power of two of its last bit, and whether
/// nonzero bits were dropped.
fn read(s: &[u8]) -> Option<(u64, i32, bool)> {
    let (_, s) = split_sign(s);
    let digits = s.get(2..)?;
    let at = digits.iter().position(|&c| c == b'p' || c == b'P')?;
    let (mut mantissa, mut dropped, mut seen, mut seen_point) = (0_u64, false, false, false);
    let mut shift = 0_i32;
    for &c in digits.get(..at)? {
        match c {
            b'_' => {}
            b'.' if seen_point => return None,
            b'.' => seen_point = true,
            _ => {
                let digit = u64::from((c as char).to_digit(16)?);
                seen = true;
                if mantissa >> 60 == 0 {
                    mantissa = mantissa << 4 | digit;
                    shift -= i32::from(seen_point) * 4;
                } else {
                    dropped |= digit != 0;
                    shift += i32::from(!seen_point) * 4;
                }
            }
        }
    }
    let text = digits.get(at + 1..)?;
    let (negative, text) = split_sign(text);
    if !seen || !text.first()?.is_ascii_digit() {
        return None;
    }
    let mut exponent = 0_i32;
    for &c in text {
        match c {
            b'0'..=b'9' if exponent < 10_000 => exponent = exponent * 10 + i32::from(c - b'0'),
            b'0'..=b'9' | b'_' => {}
            _ => return None,
        }
    }
    let exponent = if negative { -exponent } else { exponent };
    Some((mantissa, shift.saturating_add(exponent), dropped))
}

/// Rounds to the layout, half to even. The second result is whether the value overflows.
fn assemble(mut mantissa: u64, exponent: i32, dropped: bool, layout: &Layout) -> (u64, bool) {
    let bits = layout.mantissa_bits;
    let largest = (1 << layout.exponent_bits) + layout.bias - 2;
    let smallest = layout.bias + 1;
    let mut exponent = exponent.saturating_add(i32::try_from(bits).unwrap_or(0));
    // Two extra bits are kept for rounding; the lower one is set if any nonzero bit was lost.
    while mantissa != 0 && mantissa >> (bits + 2) == 0 {
        mantissa <<= 1;
        exponent -= 1;
    }
    mantissa |= u64::from(dropped);
    while mantissa >> (1 + bits + 2) != 0 {
        mantissa = mantissa >> 1 | mantissa & 1;
        exponent += 1;
    }
    while mantissa > 1 && exponent < smallest - 2 {
        mantissa = mantissa >> 1 | mantissa & 1;
        exponent += 1;
    }
    let lost = mantissa & 3;
    mantissa >>= 2;
    exponent += 2;
    if lost | mantissa & 1 == 3 {
        mantissa += 1;
        if mantissa == 1 << (1 + bits) {
            mantissa >>= 1;
            exponent += 1;
        }
    }
    if mantissa >> bits == 0 {
        exponent = layout.bias;
    }
    let overflow = exponent > largest;
    if overflow {
        mantissa = 1 << bits;
        exponent = largest + 1;
    }
    let biased = u64::try_from(exponent - layout.bias).unwrap_or(0);
    (mantissa & ((1 << bits) - 1) | biased << bits, overflow)
}

#[cfg(test)]
mod tests {
    use super::super::{format_float, parse_float};

    fn hex(value: f64, format: u8, precision: Option<usize>, bits: u32) -> String {
        let mut out = bounded::Buffer::new();
        format_float(&mut out, value, format, precision, bits);
        String::from_utf8(out.into_vec()).unwrap()
    }

    #[test]
    fn binary_formats_show_the_exact_value() {
        assert_eq!(hex(1.0, b'x', None, 64), "0x1p+00");
        assert_eq!(hex(-3.75, b'X', None, 64), "-0X1.EP+01");
        assert_eq!(hex(1.99, b'x', Some(1), 64), "0x1.0p+01");
        assert_eq!(hex(0.0, b'x', Some(2), 64), "0x0.00p+00");
        assert_eq!(hex(5e-324, b'x', None, 64), "0x1p-1074");
        assert_eq!(hex(1.0, b'b', None, 64), "4503599627370496p-52");
        assert_eq!(hex(0.5, b'b', None, 32), "8388608p-24");
    }

    #[test]
    fn hexadecimal_literals_round_half_to_even() {
        let parse = |text: &str| parse_float(text.as_bytes(), 64);
        assert_eq!(parse("0x1.fffffffffffff8p0"), Ok(2.0));
        assert_eq!(parse("0x1.fffffffffffff7p0"), Ok(1.999_999_999_999_999_8));
        assert_eq!(parse("-0x1p-1074"), Ok(-5e-324));
        assert_eq!(parse("0x1p-1075"), Ok(0.0));
        assert!(parse("0x1p1024").unwrap_err().value.is_infinite());
        let many = 20_988_295_479_420_645_121.0;
        assert_eq!(parse("0x123456789abcdef01p0"), Ok(many));
        assert!(parse("0x.p1").is_err());
        assert!(parse("0x1p").is_err());
    }
}

//! Integers and booleans: Go's `ParseInt`, `ParseUint`, `Atoi`, `ParseBool` and `FormatInt`.

use super::{NumError, split_sign, underscores_ok};
use bounded::Buffer;

/// Go's `strconv.ParseUint`. `base` 0 accepts prefixes and underscores; `bits` is 1 to 64.
///
/// A base above 36 or a width above 64 is clamped; callers pass constants.
///
/// # Errors
/// If the text is not a number, or out of range.
pub fn parse_uint(s: &[u8], base: u32, bits: u32) -> Result<u64, NumError<u64>> {
    let prefixed = base == 0;
    let (base, digits) = match (base, s) {
        (_, []) => return Err(NumError::syntax()),
        (0, [b'0', b'b' | b'B', rest @ ..]) if !rest.is_empty() => (2, rest),
        (0, [b'0', b'o' | b'O', rest @ ..]) if !rest.is_empty() => (8, rest),
        (0, [b'0', b'x' | b'X', rest @ ..]) if !rest.is_empty() => (16, rest),
        (0, [b'0', rest @ ..]) => (8, rest),
        (0, _) => (10, s),
        (base, _) => (base.min(36), s),
    };
    let max = if bits >= 64 {
        u64::MAX
    } else {
        (1_u64 << bits) - 1
    };
    let mut value = 0_u64;
    let mut underscores = false;
    for &c in digits {
        if c == b'_' && prefixed {
            underscores = true;
            continue;
        }
        let Some(digit) = (c as char).to_digit(base) else {
            return Err(NumError::syntax());
        };
        let next = value
            .checked_mul(u64::from(base))
            .and_then(|shifted| shifted.checked_add(u64::from(digit)))
            .filter(|&next| next <= max);
        match next {
            Some(next) => value = next,
            None => return Err(NumError::range(max)),
        }
    }
    if underscores && !underscores_ok(s) {
        return Err(NumError::syntax());
    }
    Ok(value)
}

/// Go's `strconv.ParseInt`. `base` 0 accepts prefixes and underscores; `bits` is 1 to 64.
///
/// # Errors
/// If the text is not a number, or out of range.
pub fn parse_int(s: &[u8], base: u32, bits: u32) -> Result<i64, NumError<i64>> {
    let (negative, magnitude) = split_sign(s);
    let value = match parse_uint(magnitude, base, bits) {
        Ok(value) => value,
        Err(error) if error.kind == super::NumErrorKind::Range => error.value,
        Err(_) => return Err(NumError::syntax()),
    };
    let cutoff = 1_u64 << (bits.clamp(1, 64) - 1);
    match (negative, value) {
        (false, value) if value >= cutoff => Err(NumError::range((cutoff - 1).cast_signed())),
        (true, value) if value > cutoff => {
            Err(NumError::range(cutoff.cast_signed().wrapping_neg()))
        }
        (false, value) => Ok(value.cast_signed()),
        (true, value) => Ok(value.cast_signed().wrapping_neg()),
    }
}

/// Go's `strconv.Atoi` on a 64-bit machine.
///
/// # Errors
/// If the text is not a number, or out of range.
pub fn atoi(s: &[u8]) -> Result<i64, NumError<i64>> {
    parse_int(s, 10, 64)
}

/// Go's `strconv.ParseBool`.
///
/// # Errors
/// If the text is not a bool.
pub fn parse_bool(s: &[u8]) -> Result<bool, NumError<bool>> {
    match s {
        b"1" | b"t" | b"T" | b"true" | b"TRUE" | b"True" => Ok(true),
        b"0" | b"f" | b"F" | b"false" | b"FALSE" | b"False" => Ok(false),
        _ => Err(NumError::syntax()),
    }
}

/// Appends `value` in decimal.
pub fn push_int(dst: &mut Buffer, value: i64) {
    if value < 0 {
        dst.push(b'-');
    }
    push_uint(dst, value.unsigned_abs());
}

/// Appends `value` in decimal.
pub fn push_uint(dst: &mut Buffer, mut value: u64) {
    let mut buffer = [0_u8; 20];
    let mut used = 0;
    for slot in buffer.iter_mut().rev() {
        *slot = b'0' + (value % 10) as u8;
        used += 1;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    dst.extend_from_slice(buffer.get(20 - used..).unwrap_or_default());
}

/// Go's `strconv.FormatInt` for bases 2 to 36; other bases are clamped.
pub fn format_int(value: i64, base: u32) -> Vec<u8> {
    let base = u64::from(base.clamp(2, 36));
    let mut rest = value.unsigned_abs();
    let mut out = Vec::new();
    loop {
        let digit = u32::try_from(rest % base)
            .ok()
            .and_then(|digit| char::from_digit(digit, 36));
        out.push(digit.map_or(b'0', |digit| digit as u8));
        rest /= base;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.reverse();
    out
}

#[cfg(test)]
mod tests {
    use super::super::NumErrorKind;
    use super::*;

    #[test]
    fn base_zero_accepts_prefixes_and_underscores() {
        let cases: [(&[u8], Result<i64, NumErrorKind>); 16] = [
            (b"0", Ok(0)),
            (b"010", Ok(8)),
            (b"08", Err(NumErrorKind::Syntax)),
            (b"0x10", Ok(16)),
            (b"0X_1f", Ok(31)),
            (b"0b101", Ok(5)),
            (b"0o17", Ok(15)),
            (b"1_000", Ok(1000)),
            (b"1__0", Err(NumErrorKind::Syntax)),
            (b"_1", Err(NumErrorKind::Syntax)),
            (b"1_", Err(NumErrorKind::Syntax)),
            (b"0x", Err(NumErrorKind::Syntax)),
            (b"+5", Ok(5)),
            (b"--5", Err(NumErrorKind::Syntax)),
            (b"", Err(NumErrorKind::Syntax)),
            (b"-", Err(NumErrorKind::Syntax)),
        ];
        for (text, want) in cases {
            let got = parse_int(text, 0, 64).map_err(|error| error.kind);
            assert_eq!(got, want, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn range_errors_carry_the_nearest_value() {
        let over = parse_int(b"9223372036854775808", 10, 64).unwrap_err();
        assert_eq!((over.kind, over.value), (NumErrorKind::Range, i64::MAX));
        let under = parse_int(b"-9223372036854775809", 10, 64).unwrap_err();
        assert_eq!(under.value, i64::MIN);
        assert_eq!(parse_int(b"-9223372036854775808", 10, 64), Ok(i64::MIN));
        assert_eq!(parse_int(b"200", 10, 8).unwrap_err().value, 127);
        assert_eq!(parse_uint(b"256", 10, 8).unwrap_err().value, 255);
        assert_eq!(
            atoi(b"x\"").unwrap_err().describe("Atoi", b"x\""),
            r#"strconv.Atoi: parsing "x\"": invalid syntax"#
        );
    }

    #[test]
    fn integers_are_formatted_in_any_base() {
        assert_eq!(format_int(-255, 16), b"-ff");
        assert_eq!(format_int(i64::MIN, 10), b"-9223372036854775808");
        let mut out = bounded::Buffer::new();
        push_int(&mut out, i64::MIN);
        push_uint(&mut out, 0);
        assert_eq!(&*out, b"-92233720368547758080");
    }
}

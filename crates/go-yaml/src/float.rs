//! Floats formatted like Go's `strconv.FormatFloat(f, 'g', -1, …)`.

use std::fmt::Write;

/// Formats a float like Go's packages.
pub(crate) fn shortest(value: f64) -> String {
    if value.is_nan() {
        return ".nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    format_g(&format!("{value:e}"))
}

/// Formats a float that passed through Go's JSON, where whole numbers below 1e21 become integers.
pub(crate) fn through_json(value: f64) -> String {
    // JSON integers are read back as int64 or uint64, larger ones as floats again.
    if value.fract() == 0.0 && value.abs() < 1e21 {
        // Display prints the shortest digits that identify the float, padded with zeros, as in
        // JSON.
        let text = value.to_string();
        let text = if value == 0.0 { "0" } else { &text };
        if text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok() {
            return text.to_owned();
        }
    }
    shortest(value)
}

/// Formats a float where a text is expected: with 32 bits, like `sigs.k8s.io/yaml`.
///
/// ```
/// use go_yaml::float_as_text;
/// assert_eq!(float_as_text(20240101.1), "2.0240102e+07");
/// assert_eq!(float_as_text(1.10), "1.1");
/// assert_eq!(float_as_text(3.4e39), "+Inf");
/// ```
pub fn as_text(value: f64) -> String {
    let narrow = narrow(value);
    if narrow.is_nan() {
        "NaN".to_owned()
    } else if narrow.is_infinite() {
        if narrow > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        format_g(&format!("{narrow:e}"))
    }
}

/// Formats a float as a map key: with 32 bits, like `sigs.k8s.io/yaml`.
pub(crate) fn key(value: f64) -> String {
    let narrow = narrow(value);
    if narrow.is_finite() {
        format_g(&format!("{narrow:e}"))
    } else {
        shortest(value)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "Go formats keys, and floats where a text is expected, with 32 bits"
)]
fn narrow(value: f64) -> f32 {
    value as f32
}

/// Formats the digits of `1.2345e6` like `%g`.
fn format_g(scientific: &str) -> String {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (minus, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let mut out = String::from(minus);
    // Go assumes a precision of 6 for this decision if the digits are the shortest.
    if !(-4..6).contains(&exponent) {
        out.push_str(digits.get(..1).unwrap_or("0"));
        if digits.len() > 1 {
            out.push('.');
            out.push_str(digits.get(1..).unwrap_or(""));
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "e{sign}{:02}", exponent.unsigned_abs());
        return out;
    }
    if exponent < 0 {
        out.push_str("0.");
        let zeros = exponent.unsigned_abs() as usize - 1;
        out.extend(std::iter::repeat_n('0', zeros));
        out.push_str(&digits);
        return out;
    }
    let whole = exponent.unsigned_abs() as usize + 1;
    if digits.len() <= whole {
        out.push_str(&digits);
        out.extend(std::iter::repeat_n('0', whole - digits.len()));
    } else {
        out.push_str(digits.get(..whole).unwrap_or(""));
        out.push('.');
        out.push_str(digits.get(whole..).unwrap_or(""));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::shortest;

    #[test]
    fn floats_are_formatted_as_in_go() {
        for (value, expected) in [
            (1_234_567.5, "1.2345675e+06"),
            (1e6, "1e+06"),
            (123_456.7, "123456.7"),
            (1e20, "1e+20"),
            (0.000_01, "1e-05"),
            (0.0001, "0.0001"),
            (-0.5, "-0.5"),
            (100_000.0, "100000"),
            (1.5e300, "1.5e+300"),
            (0.0, "0"),
        ] {
            assert_eq!(shortest(value), expected);
        }
    }
}

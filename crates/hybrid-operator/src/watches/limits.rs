//! Values of `limits`.

use std::time::Duration;

/// Less would not suffice for a chart with one object.
const SMALLEST: usize = 1 << 20;

/// Parses a size in bytes, of at least 1 MiB: `512Mi`, `1Gi`, or a number of bytes.
///
/// # Errors
/// If the text is not such a size.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("", 0)];
    let (number, shift) = units
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))
        .unwrap_or((text, &0));
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse::<usize>().ok().filter(|_| is_number);
    let size = number.and_then(|number| number.checked_mul(1 << shift));
    size.filter(|size| *size >= SMALLEST)
        .ok_or_else(|| "expected a size of at least 1Mi, such as 512Mi or 1Gi".to_owned())
}

/// Parses a duration in Go's format, such as `1m30s`.
///
/// # Errors
/// If the text is not such a duration.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    operator_runtime::duration::parse(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        for (text, size) in [
            ("1Mi", Some(1 << 20)),
            ("256Mi", Some(256 << 20)),
            ("2Gi", Some(2 << 30)),
            ("2048Ki", Some(2 << 20)),
            ("3000000", Some(3_000_000)),
            ("1023Ki", None),
            ("0", None),
            ("", None),
            ("Mi", None),
            ("+5Mi", None),
            ("-5Mi", None),
            ("5M", None),
            ("1.5Gi", None),
            ("99999999999999Gi", None),
        ] {
            assert_eq!(parse_size(text).ok(), size, "{text}");
        }
    }
}

//! Durations in Go's format: `300ms`, `1m30s`, `2h`.

use std::time::Duration;

/// Error of a string that is not a duration. The messages are those of Go's `time.ParseDuration`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum DurationError {
    /// Not a duration at all.
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {0:?}")]
    NoUnit(String),
    /// A unit that is not known.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit { unit: String, text: String },
    /// A negative duration.
    #[error("duration {0:?} must not be negative")]
    Negative(String),
}

/// Parses a duration that is not negative.
///
/// # Errors
/// When the string is not a duration, or is negative.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (negative, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0_f64;
    while !rest.is_empty() {
        let number_end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let seconds = match unit {
            "" => return Err(DurationError::NoUnit(text.to_owned())),
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => {
                let (unit, text) = (unit.to_owned(), text.to_owned());
                return Err(DurationError::UnknownUnit { unit, text });
            }
        };
        total += number * seconds;
        rest = tail;
    }
    if negative && total > 0.0 {
        return Err(DurationError::Negative(text.to_owned()));
    }
    Duration::try_from_secs_f64(total).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse;

    #[test]
    fn durations_are_parsed_as_in_go() {
        for (text, millis) in [
            ("0", 0),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            ("300ms", 300),
            ("+2s", 2_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for (text, message) in [
            ("", "time: invalid duration \"\""),
            ("soon", "time: invalid duration \"soon\""),
            ("5", "time: missing unit in duration \"5\""),
            ("5d", "time: unknown unit \"d\" in duration \"5d\""),
            ("-1s", "duration \"-1s\" must not be negative"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
    }
}

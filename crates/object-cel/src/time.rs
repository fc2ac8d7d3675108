//! Durations and points in time: their texts, as Go reads and writes them, and their parts.

use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

/// A point in time, with the offset that its text had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    pub(crate) at: Timestamp,
    offset: Offset,
}

impl Time {
    /// Returns a point in time between the years 1 and 9999.
    fn new(at: Timestamp, offset: Offset) -> Option<Self> {
        let range = -62_135_596_800..=253_402_300_799;
        let time = Self { at, offset };
        range.contains(&time.seconds()).then_some(time)
    }

    /// Returns the whole seconds since 1970, rounded down.
    pub(crate) fn seconds(self) -> i64 {
        let seconds = self.at.as_nanosecond().div_euclid(1_000_000_000);
        i64::try_from(seconds).unwrap_or(i64::MAX)
    }

    pub(crate) fn of_seconds(seconds: i64) -> Option<Self> {
        Self::new(Timestamp::from_second(seconds).ok()?, Offset::UTC)
    }

    /// Reads RFC 3339 as Go does.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (date, clock) = text.split_once('T')?;
        let has_shape = |text: &str, shape: &str| {
            let fits = |(a, b): (u8, u8)| {
                if b == b'0' {
                    a.is_ascii_digit()
                } else {
                    a == b
                }
            };
            text.len() == shape.len() && text.bytes().zip(shape.bytes()).all(fits)
        };
        let zone = clock.find(['Z', '+', '-'])?;
        let (clock, zone) = clock.split_at_checked(zone)?;
        let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
        let is_fraction =
            (1..=9).contains(&fraction.len()) && fraction.bytes().all(|byte| byte.is_ascii_digit());
        let is_zone = zone == "Z" || has_shape(zone, "+00:00") || has_shape(zone, "-00:00");
        let is_clock = has_shape(clock, "00:00:00") && !clock.ends_with(":60");
        if !(has_shape(date, "0000-00-00") && is_clock && is_fraction && is_zone) {
            return None;
        }
        let at: Timestamp = text.parse().ok()?;
        let number = |range| {
            zone.get(range)
                .and_then(|digits: &str| digits.parse::<i32>().ok())
        };
        let seconds = match (number(1..3), number(4..6)) {
            (Some(hours), Some(minutes)) => hours * 3600 + minutes * 60,
            _ => 0,
        };
        let sign = if zone.starts_with('-') { -1 } else { 1 };
        Self::new(at, Offset::from_seconds(sign * seconds).ok()?)
    }

    pub(crate) fn checked_add(self, nanoseconds: i64) -> Option<Self> {
        let at = self.at.checked_add(SignedDuration::from_nanos(nanoseconds));
        Self::new(at.ok()?, self.offset)
    }

    pub(crate) fn checked_sub(self, nanoseconds: i64) -> Option<Self> {
        self.checked_add(nanoseconds.checked_neg()?)
    }

    /// Returns the nanoseconds since another point in time.
    pub(crate) fn since(self, other: Self) -> Option<i64> {
        i64::try_from(self.at.as_nanosecond() - other.at.as_nanosecond()).ok()
    }

    /// Returns the date and the time of day in UTC.
    pub(crate) fn utc(self) -> DateTime {
        Offset::UTC.to_datetime(self.at)
    }

    /// Formats with the offset that its text had.
    pub(crate) fn text(self) -> String {
        let seconds = self.offset.seconds();
        if seconds == 0 {
            return self.at.to_string();
        }
        let local = self.offset.to_datetime(self.at);
        let sign = if seconds < 0 { '-' } else { '+' };
        let minutes = seconds.unsigned_abs() / 60;
        format!("{local}{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a duration such as `-1h30m` as Go does, in nanoseconds.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Go computes fractions with floating-point numbers, too"
)]
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if unsigned == "0" {
        return Some(0);
    }
    let mut rest = Some(unsigned).filter(|rest| !rest.is_empty())?;
    let mut total = 0_u64;
    while !rest.is_empty() {
        let digits = |text: &str| {
            text.find(|c: char| !c.is_ascii_digit())
                .unwrap_or(text.len())
        };
        let (whole, after) = rest.split_at_checked(digits(rest))?;
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at_checked(digits(after))?,
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let is_unit = |c: char| c != '.' && !c.is_ascii_digit();
        let end = after.find(|c: char| !is_unit(c)).unwrap_or(after.len());
        let (name, after) = after.split_at_checked(end)?;
        let unit = UNITS.iter().find(|(unit, _)| *unit == name)?.1;
        let whole: u64 = if whole.is_empty() {
            0
        } else {
            whole.parse().ok()?
        };
        let kept = fraction.get(..18).unwrap_or(fraction);
        let part: u64 = kept.parse().unwrap_or(0);
        let scale = 10_f64.powi(i32::try_from(kept.len()).unwrap_or(0));
        let part = (part as f64 * (unit as f64 / scale)) as u64;
        let amount = whole.checked_mul(unit)?.checked_add(part)?;
        total = total.checked_add(amount)?;
        rest = after;
    }
    if text.starts_with('-') {
        0_i64.checked_sub_unsigned(total)
    } else {
        i64::try_from(total).ok()
    }
}

/// Formats as Go does: `1h30m0s`.
pub(crate) fn duration_text(nanoseconds: i64) -> String {
    let total = nanoseconds.unsigned_abs();
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let with_fraction = |amount: u64, unit: u64, name: &str| {
        let digits = unit.ilog10() as usize;
        let fraction = format!("{:0digits$}", amount % unit);
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        format!("{}{point}{fraction}{name}", amount / unit)
    };
    let text = match total {
        0 => "0s".to_owned(),
        1..1_000 => format!("{total}ns"),
        1_000..1_000_000 => with_fraction(total, 1_000, "µs"),
        1_000_000..1_000_000_000 => with_fraction(total, 1_000_000, "ms"),
        _ => {
            let minutes = total / 60_000_000_000;
            let hours = if minutes >= 60 {
                format!("{}h", minutes / 60)
            } else {
                String::new()
            };
            let minutes = if minutes > 0 {
                format!("{}m", minutes % 60)
            } else {
                String::new()
            };
            hours + &minutes + &with_fraction(total % 60_000_000_000, 1_000_000_000, "s")
        }
    };
    format!("{sign}{text}")
}

/// Formats as CEL converts a duration to a string: `5400s`.
#[expect(
    clippy::cast_precision_loss,
    reason = "CEL converts with floating-point numbers, too"
)]
pub(crate) fn duration_seconds(nanoseconds: i64) -> String {
    let second = 1_000_000_000;
    let seconds = (nanoseconds / second) as f64 + (nanoseconds % second) as f64 / 1e9;
    format!("{seconds}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_in_go() {
        for (text, nanoseconds, written) in [
            ("1h30m", 5_400_000_000_000, "1h30m0s"),
            ("-1.5h", -5_400_000_000_000, "-1h30m0s"),
            ("90s", 90_000_000_000, "1m30s"),
            ("1.001s", 1_001_000_000, "1.001s"),
            ("15ms", 15_000_000, "15ms"),
            ("1.5µs", 1_500, "1.5µs"),
            (".5s", 500_000_000, "500ms"),
            ("+7ns", 7, "7ns"),
            ("0", 0, "0s"),
            (
                "2562047h47m16.854775807s",
                i64::MAX,
                "2562047h47m16.854775807s",
            ),
            (
                "-2562047h47m16.854775808s",
                i64::MIN,
                "-2562047h47m16.854775808s",
            ),
        ] {
            assert_eq!(parse_duration(text), Some(nanoseconds), "{text}");
            assert_eq!(duration_text(nanoseconds), written);
        }
        for text in [
            "",
            "-",
            "1",
            "h",
            "1d",
            "1h ",
            "3000000h",
            ".s",
            "1e3s",
            "2562047h47m16.854775808s",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
        assert_eq!(duration_seconds(5_400_000_000_000), "5400s");
        assert_eq!(duration_seconds(-1_500_000_000), "-1.5s");
    }

    #[test]
    fn times_are_read_and_written_as_in_go() {
        for (text, written) in [
            ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
            ("2026-01-31T12:00:00.250Z", "2026-01-31T12:00:00.25Z"),
            ("2026-01-31T12:00:00-01:30", "2026-01-31T12:00:00-01:30"),
            ("2026-01-31T12:00:00+00:00", "2026-01-31T12:00:00Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ] {
            assert_eq!(Time::parse(text).unwrap().text(), written);
        }
        for text in [
            "",
            "T",
            "TZ",
            "2026-01-31",
            "2026-01-31 12:00:00Z",
            "2026-01-31T12:00Z",
            "2026-02-30T12:00:00Z",
            "2026-01-31T12:00:60Z",
            "2026-01-31T12:00:00",
            "0000-01-01T00:00:00Z",
            "2026-01-31T24:00:00Z",
            "2026-01-31T12:00:00Z[UTC]",
            "ä026-01-31T12:00:00Z",
        ] {
            assert!(Time::parse(text).is_none(), "{text}");
        }
    }
}

//! `Time`: an instant with its original UTC offset, formatted as in Go's JSON.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::tz::Offset;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant with an offset from UTC.
///
/// ```
/// use helm_core::release::Time;
/// let time: Time = "2026-03-01T10:00:00.120000000+02:00".parse()?;
/// assert_eq!(time.to_string(), "2026-03-01T10:00:00.12+02:00");
/// # Ok::<(), helm_core::release::TimeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Time {
    instant: Timestamp,
    offset: Offset,
}

impl Time {
    /// Creates a time in UTC.
    pub fn utc(instant: Timestamp) -> Self {
        Self {
            instant,
            offset: Offset::UTC,
        }
    }

    /// Returns the instant.
    pub fn instant(&self) -> Timestamp {
        self.instant
    }
}

impl From<Timestamp> for Time {
    fn from(instant: Timestamp) -> Self {
        Self::utc(instant)
    }
}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.instant, self.offset).cmp(&(other.instant, other.offset))
    }
}

/// Formats as RFC 3339 with as many fractional digits as needed and `Z` for UTC.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = self.offset.to_datetime(self.instant);
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            local.year(),
            local.month(),
            local.day(),
            local.hour(),
            local.minute(),
            local.second()
        )?;
        let nanoseconds = local.subsec_nanosecond();
        if nanoseconds != 0 {
            write!(f, ".{}", format!("{nanoseconds:09}").trim_end_matches('0'))?;
        }
        let minutes = self.offset.seconds() / 60;
        if self.offset.seconds() == 0 {
            f.write_str("Z")
        } else {
            let sign = if minutes < 0 { '-' } else { '+' };
            write!(
                f,
                "{sign}{:02}:{:02}",
                minutes.abs() / 60,
                minutes.abs() % 60
            )
        }
    }
}

/// A text that is not an RFC 3339 time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid RFC 3339 time {0:?}")]
pub struct TimeError(String);

impl FromStr for Time {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let error = || TimeError(text.to_owned());
        let pieces = jiff::fmt::temporal::Pieces::parse(text).map_err(|_| error())?;
        let offset = pieces.to_numeric_offset().ok_or_else(error)?;
        let time = pieces.time().ok_or_else(error)?;
        let local = jiff::civil::DateTime::from_parts(pieces.date(), time);
        let instant = offset.to_timestamp(local).map_err(|_| error())?;
        Ok(Self { instant, offset })
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// Deserializes a time that may be missing: absent, null, empty, or Go's year 1.
pub(crate) fn lenient<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Time>, D::Error> {
    match Option::<String>::deserialize(deserializer)? {
        Some(text) if !text.is_empty() && !text.starts_with("0001-01-01T00:00:00") => {
            text.parse().map(Some).map_err(serde::de::Error::custom)
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::Time;

    #[test]
    fn times_are_written_as_go_writes_them() {
        for text in [
            "2024-02-29T23:59:59Z",
            "2024-02-29T23:59:59.000000001Z",
            "2024-02-29T23:59:59.5-03:30",
            "1999-12-31T00:00:00+14:00",
        ] {
            assert_eq!(text.parse::<Time>().unwrap().to_string(), text);
        }
        assert_eq!(
            "2024-01-01T00:00:00.100+00:00"
                .parse::<Time>()
                .unwrap()
                .to_string(),
            "2024-01-01T00:00:00.1Z"
        );
        assert!("2024-01-01".parse::<Time>().is_err());
        assert!("".parse::<Time>().is_err());
    }
}

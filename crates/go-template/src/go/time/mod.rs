//! Go's `time.Time`: an instant with a display zone, formatted and parsed by layouts.
//!
//! Zones are UTC or fixed offsets, which is all that templates can create: Sprig can show a time in
//! a named zone but never returns such a time.

mod civil;
mod format;
mod layout;
mod parse;
#[cfg(not(feature = "time-zones"))]
#[path = "no_zones.rs"]
mod zone;
#[cfg(feature = "time-zones")]
mod zone;

use std::sync::Arc;

pub use parse::ParseTimeError;
pub use zone::Zone;

use super::duration::{Duration, SECOND};
use civil::CivilDate;

/// Go's layout for `Time.String`.
pub const STRING_LAYOUT: &[u8] = b"2006-01-02 15:04:05.999999999 -0700 MST";
/// Go's `time.RFC3339Nano`, which JSON uses.
pub const RFC3339_NANO: &[u8] = b"2006-01-02T15:04:05.999999999Z07:00";

/// Seconds from year 1 to 1970.
const YEAR_ONE: i64 = 62_135_596_800;
const DAY: i64 = 86_400;

/// The zone in which a time is shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Location {
    /// UTC, which is also the local zone.
    #[default]
    Utc,
    /// A fixed offset with a name, which may be empty.
    Fixed {
        /// The abbreviation.
        name: Arc<[u8]>,
        /// Seconds east of UTC.
        offset: i32,
    },
}

impl Location {
    /// Returns the seconds east of UTC.
    pub fn offset(&self) -> i32 {
        match self {
            Self::Utc => 0,
            Self::Fixed { offset, .. } => *offset,
        }
    }

    /// Returns the abbreviation.
    pub fn name(&self) -> &[u8] {
        match self {
            Self::Utc => b"UTC",
            Self::Fixed { name, .. } => name,
        }
    }
}

/// The local time settings of a zone at an instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneAt {
    /// The abbreviation, such as `CEST`; empty if there is none.
    pub name: String,
    /// Seconds east of UTC.
    pub offset: i32,
}

/// An instant in nanoseconds, and its display zone.
///
/// ```
/// use go_template::go::time::Time;
/// let time = Time::parse(b"2006-01-02", b"2024-02-29")?;
/// let mut out = go_template::Buffer::new();
/// time.format(b"Monday, Jan _2", &mut out);
/// assert_eq!(&*out, b"Thursday, Feb 29");
/// # Ok::<(), go_template::go::time::ParseTimeError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Time {
    seconds: i64,
    nanoseconds: u32,
    location: Location,
    /// Nanoseconds of a clock that only runs forward, for times that were read from a clock.
    monotonic: Option<i64>,
}

impl Default for Time {
    /// Go's zero time: the first of January of year 1, in UTC.
    fn default() -> Self {
        Self::unix(-YEAR_ONE, 0)
    }
}

impl Time {
    /// Returns the instant `seconds` and `nanoseconds` (below 1e9) after 1970, shown in UTC.
    pub fn unix(seconds: i64, nanoseconds: u32) -> Self {
        Self {
            seconds,
            nanoseconds,
            location: Location::Utc,
            monotonic: None,
        }
    }

    /// Adds the reading of a clock that only runs forward.
    #[must_use]
    pub fn with_monotonic(mut self, nanoseconds: i64) -> Self {
        self.monotonic = Some(nanoseconds);
        self
    }

    /// Returns the instant of a date and time of day, shown in UTC. Values out of range carry over
    /// into the next larger unit.
    pub fn date(date: [i64; 3], clock: [i64; 3], nanoseconds: u32) -> Self {
        let [year, month, day] = date;
        let [hour, minute, second] = clock;
        let seconds = civil::days_of(year, month, day)
            .wrapping_mul(DAY)
            .wrapping_add(hour.wrapping_mul(3600))
            .wrapping_add(minute.wrapping_mul(60))
            .wrapping_add(second);
        Self::unix(seconds, nanoseconds)
    }

    /// Returns the same instant, shown in another zone.
    #[must_use]
    pub fn with_location(mut self, location: Location) -> Self {
        self.location = location;
        self.monotonic = None;
        self
    }

    /// Returns the display zone.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Returns the seconds since 1970.
    pub fn unix_seconds(&self) -> i64 {
        self.seconds
    }

    /// Returns the nanoseconds since 1970, which wrap around outside of 1678 to 2262, as in Go.
    pub fn unix_nanoseconds(&self) -> i64 {
        self.seconds
            .wrapping_mul(SECOND)
            .wrapping_add(i64::from(self.nanoseconds))
    }

    /// Returns the nanoseconds within the second.
    pub fn nanosecond(&self) -> u32 {
        self.nanoseconds
    }

    /// Returns whether this is the zero time.
    pub fn is_zero(&self) -> bool {
        self.seconds == -YEAR_ONE && self.nanoseconds == 0
    }

    /// Returns the instant `span` later.
    #[must_use]
    pub fn add(&self, span: Duration) -> Self {
        let nanoseconds = i64::from(self.nanoseconds) + span.0 % SECOND;
        let carry = nanoseconds.div_euclid(SECOND);
        Self {
            seconds: self
                .seconds
                .wrapping_add(span.0 / SECOND)
                .wrapping_add(carry),
            nanoseconds: u32::try_from(nanoseconds.rem_euclid(SECOND)).unwrap_or(0),
            location: self.location.clone(),
            monotonic: self.monotonic.and_then(|now| now.checked_add(span.0)),
        }
    }

    /// Returns the date this many years, months and days later, normalized as in Go.
    #[must_use]
    pub fn add_date(&self, years: i64, months: i64, days: i64) -> Self {
        let (date, clock) = (self.civil(), self.clock());
        let offset = i64::from(self.location.offset());
        let date = [
            date.year.wrapping_add(years),
            i64::from(date.month).saturating_add(months),
            i64::from(date.day).wrapping_add(days),
        ];
        let mut time = Self::date(date, clock, self.nanoseconds);
        time.seconds = time.seconds.wrapping_sub(offset);
        time.with_location(self.location.clone())
    }

    /// Returns the span from `earlier` to this time; saturates on overflow.
    pub fn since(&self, earlier: &Self) -> Duration {
        let span = self.total_nanoseconds() - earlier.total_nanoseconds();
        let clamped = span.clamp(i64::MIN.into(), i64::MAX.into());
        Duration(i64::try_from(clamped).unwrap_or(i64::MAX))
    }

    fn total_nanoseconds(&self) -> i128 {
        i128::from(self.seconds) * i128::from(SECOND) + i128::from(self.nanoseconds)
    }

    /// Rounds down to a multiple of `unit` since the zero time, like Go's `Truncate`.
    #[must_use]
    pub fn truncate(&self, unit: Duration) -> Self {
        let wall = self.clone().with_location(self.location.clone());
        match self.rest_of(unit) {
            Some(rest) => wall.add(Duration(-rest)),
            None => wall,
        }
    }

    /// Rounds to the nearest multiple of `unit` since the zero time, half up, like Go's `Round`.
    #[must_use]
    pub fn round(&self, unit: Duration) -> Self {
        let wall = self.clone().with_location(self.location.clone());
        match self.rest_of(unit) {
            Some(rest) if rest < unit.0 - rest => wall.add(Duration(-rest)),
            Some(rest) => wall.add(Duration(unit.0 - rest)),
            None => wall,
        }
    }

    fn rest_of(&self, unit: Duration) -> Option<i64> {
        if unit.0 <= 0 {
            return None;
        }
        let since_year_one = self.total_nanoseconds() + i128::from(YEAR_ONE) * i128::from(SECOND);
        i64::try_from(since_year_one.rem_euclid(i128::from(unit.0))).ok()
    }

    /// Compares the instants, regardless of zones.
    pub fn compare(&self, other: &Self) -> std::cmp::Ordering {
        (self.seconds, self.nanoseconds).cmp(&(other.seconds, other.nanoseconds))
    }

    fn local_seconds(&self) -> i64 {
        self.seconds.wrapping_add(i64::from(self.location.offset()))
    }

    fn civil(&self) -> CivilDate {
        civil::date_of(self.local_seconds().div_euclid(DAY))
    }

    /// Returns hour, minute and second.
    pub fn clock(&self) -> [i64; 3] {
        let second = self.local_seconds().rem_euclid(DAY);
        [second / 3600, second / 60 % 60, second % 60]
    }

    /// Returns the year.
    pub fn year(&self) -> i64 {
        self.civil().year
    }

    /// Returns the month, from 1.
    pub fn month(&self) -> u8 {
        self.civil().month
    }

    /// Returns the day of the month, from 1.
    pub fn day(&self) -> u8 {
        self.civil().day
    }

    /// Returns the day of the year, from 1.
    pub fn year_day(&self) -> u16 {
        civil::year_day(self.civil())
    }

    /// Returns the day of the week; Sunday is 0.
    pub fn weekday(&self) -> u8 {
        let days = self.local_seconds().div_euclid(DAY);
        u8::try_from((days + 4).rem_euclid(7)).unwrap_or(0)
    }
}

/// Returns the English name of a month from 1 to 12, like Go's `Month.String`.
pub fn month_name(month: i64) -> String {
    named(&layout::MONTHS, month.checked_sub(1)).unwrap_or_else(|| format!("%!Month({month})"))
}

/// Returns the English name of a weekday, Sunday being 0, like Go's `Weekday.String`.
pub fn weekday_name(weekday: i64) -> String {
    named(&layout::WEEKDAYS, Some(weekday)).unwrap_or_else(|| format!("%!Weekday({weekday})"))
}

fn named(names: &[&str], index: Option<i64>) -> Option<String> {
    let index = usize::try_from(index?).ok()?;
    names.get(index).map(|name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(time: &Time, layout: &str) -> String {
        let mut out = bounded::Buffer::new();
        time.format(layout.as_bytes(), &mut out);
        String::from_utf8(out.into_vec()).unwrap()
    }

    fn shown(layout: &str, value: &str) -> String {
        match Time::parse(layout.as_bytes(), value.as_bytes()) {
            Ok(time) => String::from_utf8(time.text()).unwrap(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_element_is_formatted() {
        let time = Time::unix(1_709_251_449, 123_450_000);
        let cases = "\
January Jan 1 01 Monday Mon 2 _2 02|March Mar 3 03 Friday Fri 1  1 01
__2 002 15 3 03 4 04 5 05 PM pm| 61 061 00 12 12 4 04 9 09 AM am
2006 06 _2006 .000 ,000000 .999 .9999999|2024 24 _2024 .123 ,123450 .123 .12345
MST Z0700 Z07:00 -07 -0700 -07:00 -07:00:00|UTC Z Z +00 +0000 +00:00 +00:00:00
Months Mondays .00x|Months Fridays .12x";
        for case in cases.lines() {
            let (layout, want) = case.split_once('|').unwrap();
            assert_eq!(formatted(&time, layout), want);
        }
        let location = Location::Fixed {
            name: Arc::from(&b""[..]),
            offset: -12_645,
        };
        let elsewhere = time.with_location(location);
        assert_eq!(
            formatted(&elsewhere, "MST Z070000 15:04"),
            "-0330 -033045 20:33"
        );
        assert_eq!(Time::default().text(), b"0001-01-01 00:00:00 +0000 UTC");
    }

    #[test]
    fn texts_are_parsed_as_in_go() {
        let cases = r#"
2006-01-02T15:04:05Z07:00 | 2024-02-29T10:20:30.5+02:00 | 2024-02-29 10:20:30.5 +0200 +0200
2006-01-02 15:04 MST | 2024-01-02 03:04 CEST | 2024-01-02 03:04:00 +0000 CEST
2006-01-02 15:04 MST | 2024-01-02 03:04 GMT+3 | 2024-01-02 06:04:00 +0300 GMT+3
2006 002 | 2024 060 | 2024-02-29 00:00:00 +0000 UTC
Jan _2 06 3PM | feb  1 70 12AM | 1970-02-01 00:00:00 +0000 UTC
2006-01-02 | 2023-02-29 | parsing time "2023-02-29": day out of range
2006-01-02 | 2023-13-29 | parsing time "2023-13-29": month out of range
2006-01-02 | 2023-01-02x | parsing time "2023-01-02x": extra text: "x"
2006 | x | parsing time "x" as "2006": cannot parse "x" as "2006"
2006 002 | 2023 366 | parsing time "2023 366": day-of-year out of range
-0700 | +2500 | parsing time "+2500": time zone offset hour out of range"#;
        for case in cases.trim_start().lines() {
            let [layout, value, want] = case.split(" | ").collect::<Vec<_>>()[..] else {
                panic!("{case}")
            };
            assert_eq!(shown(layout, value), want);
        }
    }

    #[test]
    #[cfg(feature = "time-zones")]
    fn zones_come_from_the_bundled_database() {
        let show = |name: &str, seconds| {
            let mut out = bounded::Buffer::new();
            let zone = Zone::load(name.as_bytes()).unwrap();
            Time::unix(seconds, 0).format_in(&zone, b"2006-01-02 15:04 MST", &mut out);
            String::from_utf8(out.into_vec()).unwrap()
        };
        assert_eq!(
            show("Europe/Berlin", 1_720_000_000),
            "2024-07-03 11:46 CEST"
        );
        assert_eq!(show("Asia/Kathmandu", 0), "1970-01-01 05:30 +0530");
        assert_eq!(
            show("America/New_York", 1_000_000_000_000),
            "33658-09-26 21:46 EDT"
        );
        assert_eq!(show("Local", 0), "1970-01-01 00:00 UTC");
        // IANA's main data, without `backzone`, which gives these zones a past of their own.
        for (name, same) in [
            ("EST", "America/Panama"),
            ("Europe/Amsterdam", "Europe/Brussels"),
        ] {
            let before_1908 = -2_000_000_000;
            assert_eq!(show(name, before_1908), show(same, before_1908), "{name}");
        }
        assert!(Zone::load(b"europe/berlin").is_none());
        assert!(Zone::load(b"../etc/passwd").is_none());
    }

    #[test]
    fn arithmetic_matches_go() {
        let day = Time::date([2024, 1, 31], [0, 0, 0], 5);
        assert_eq!(
            day.add_date(0, 1, 0).text(),
            b"2024-03-02 00:00:00.000000005 +0000 UTC"
        );
        assert_eq!(day.add(Duration(-6)).nanosecond(), 999_999_999);
        assert_eq!(day.since(&Time::default()), Duration(i64::MAX));
        assert_eq!(day.round(Duration(7 * 24 * 3600 * SECOND)).day(), 29);
        assert!(Time::default().is_zero());
        assert_eq!((day.weekday(), day.year_day()), (3, 31));
        assert_eq!(month_name(13), "%!Month(13)");
        assert_eq!(Time::unix(i64::MAX, 0).year(), 292_277_026_596);
    }
}

//! Time zones by name, from the bundled IANA database; the system's database is not used.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::ZoneAt;

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Seconds in 400 years, after which the calendar repeats.
const ERA: i64 = 146_097 * 86_400;

/// A time zone of the database.
#[derive(Debug, Clone)]
pub struct Zone(TimeZone);

impl Zone {
    /// Returns the zone that Go's `time.LoadLocation` finds under a name. The local zone is UTC,
    /// regardless of the machine's.
    pub fn load(name: &[u8]) -> Option<Self> {
        let name = std::str::from_utf8(name).ok()?;
        if matches!(name, "" | "UTC" | "Local") {
            return Some(Self(TimeZone::UTC));
        }
        let zone = DATABASE.get(name).ok()?;
        // Go finds zones in files, whose names are case-sensitive.
        (zone.iana_name() == Some(name)).then_some(Self(zone))
    }

    /// Returns the settings `seconds` after 1970.
    pub fn at(&self, seconds: i64) -> ZoneAt {
        let seconds = seconds.max(Timestamp::MIN.as_second());
        let beyond = seconds.saturating_sub(Timestamp::MAX.as_second());
        // Far in the future the rules repeat with the calendar.
        let eras = if beyond > 0 { beyond / ERA + 1 } else { 0 };
        let instant = Timestamp::from_second(seconds - eras * ERA).unwrap_or(Timestamp::UNIX_EPOCH);
        let info = self.0.to_offset_info(instant);
        ZoneAt {
            name: info.abbreviation().to_owned(),
            offset: info.offset().seconds(),
        }
    }
}

//! The proleptic Gregorian calendar: conversion between days since 1970 and dates, for the whole
//! range of `i64` seconds.

/// A day in the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CivilDate {
    pub(super) year: i64,
    /// 1 to 12.
    pub(super) month: u8,
    /// 1 to 31.
    pub(super) day: u8,
}

const DAYS_BEFORE: [u16; 13] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365];

pub(super) fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Returns the days of a common year before month `month`, which is 1 to 13.
pub(super) fn days_before(month: u8) -> u16 {
    let index = usize::from(month).saturating_sub(1);
    DAYS_BEFORE.get(index).copied().unwrap_or(365)
}

pub(super) fn days_in(month: u8, year: i64) -> u8 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the date `days` after 1970-01-01. Years are counted from March, so that leap days come
/// last; an era is 400 years, after which the calendar repeats.
pub(super) fn date_of(days: i64) -> CivilDate {
    const ERA: i64 = 146_097;
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(ERA), shifted.rem_euclid(ERA));
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    CivilDate {
        year: era * 400 + year + i64::from(month <= 2),
        month: u8::try_from(month).unwrap_or(1),
        day: u8::try_from(day).unwrap_or(1),
    }
}

/// Returns the days from 1970-01-01 to a date. Months outside 1 to 12 and days outside their month
/// are normalized, as in Go's `Date`.
pub(super) fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let months = month.saturating_sub(1);
    let year = year.saturating_add(months.div_euclid(12));
    let month = months.rem_euclid(12) + 1;
    let shifted = if month <= 2 {
        year.saturating_sub(1)
    } else {
        year
    };
    let (era, of_era) = (shifted.div_euclid(400), shifted.rem_euclid(400));
    let from_march = (month + 9) % 12;
    let of_year = (153 * from_march + 2) / 5;
    let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    era.wrapping_mul(146_097)
        .wrapping_add(day_of_era - 719_468)
        .wrapping_add(day.wrapping_sub(1))
}

/// Returns the day of the year, from 1.
pub(super) fn year_day(date: CivilDate) -> u16 {
    let leap = date.month > 2 && is_leap(date.year);
    days_before(date.month) + u16::from(date.day) + u16::from(leap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_agree() {
        for days in (-1_000_000..1_000_000).step_by(137) {
            let date = date_of(days);
            let back = days_of(date.year, date.month.into(), date.day.into());
            assert_eq!(back, days);
        }
        let date = |year, month, day| CivilDate { year, month, day };
        assert_eq!(date_of(0), date(1970, 1, 1));
        assert_eq!(date_of(-719_162), date(1, 1, 1));
        assert_eq!(date_of(11_016), date(2000, 2, 29));
        assert_eq!(days_of(2024, 14, 31), days_of(2025, 3, 3));
        assert_eq!(year_day(date(2024, 12, 31)), 366);
    }
}

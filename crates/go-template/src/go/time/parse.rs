//! Parsing of a time by a layout, like Go's `time.ParseInLocation` with UTC as the location.

use super::civil::{days_before, days_in, is_leap};
use super::layout::{Element, MONTHS, Offset, OffsetPrecision, WEEKDAYS, next_chunk};
use super::{Location, Time};
use crate::go::duration::{leading_int, quote};
use crate::go::strconv::split_sign;

/// An error while parsing a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ParseTimeError {
    /// The text does not match an element or literal text of the layout.
    #[error(
        "parsing time {} as {}: cannot parse {} as {}",
        quote(value),
        quote(layout),
        quote(value_part),
        quote(layout_part)
    )]
    Mismatch {
        layout: Vec<u8>,
        value: Vec<u8>,
        /// The part of the layout.
        layout_part: Vec<u8>,
        value_part: Vec<u8>,
    },
    /// Text remains after the end of the layout.
    #[error("parsing time {}: extra text: {}", quote(value), quote(rest))]
    Extra { value: Vec<u8>, rest: Vec<u8> },
    /// A number is out of range.
    #[error("parsing time {}: {what} out of range", quote(value))]
    Range {
        value: Vec<u8>,
        /// The meaning of the number.
        what: &'static str,
    },
    /// The day of the year contradicts month and day.
    #[error("parsing time {}: day-of-year does not match {what}", quote(value))]
    YearDay {
        value: Vec<u8>,
        /// Month or day.
        what: &'static str,
    },
}

/// An error in one element.
enum ElementError {
    Mismatch,
    Range(&'static str),
}

type Read<'v, T> = Result<(T, &'v [u8]), ElementError>;

/// The elements parsed so far.
#[derive(Default)]
struct Fields<'v> {
    year: i64,
    month: Option<u8>,
    day: Option<u8>,
    year_day: Option<u16>,
    hour: u8,
    minute: u8,
    second: u8,
    nanosecond: u32,
    afternoon: bool,
    morning: bool,
    utc: bool,
    offset: Option<i32>,
    zone_name: &'v [u8],
}

impl Time {
    /// Parses `value` by `layout`; without a zone in the text, the time is in UTC.
    ///
    /// # Errors
    /// If the text does not match the layout, with Go's message.
    pub fn parse(layout: &[u8], value: &[u8]) -> Result<Self, ParseTimeError> {
        let mut fields = Fields::default();
        let (mut rest, mut text) = (layout, value);
        loop {
            let chunk = next_chunk(rest);
            let mismatch = |layout_part: &[u8], value_part: &[u8]| ParseTimeError::Mismatch {
                layout: layout.to_vec(),
                value: value.to_vec(),
                layout_part: layout_part.to_vec(),
                value_part: value_part.to_vec(),
            };
            text = match skip(text, chunk.prefix) {
                Ok(text) => text,
                Err(left) => return Err(mismatch(chunk.prefix, left)),
            };
            let Some((element, element_text)) = chunk.element else {
                if text.is_empty() {
                    break;
                }
                return Err(ParseTimeError::Extra {
                    value: value.to_vec(),
                    rest: text.to_vec(),
                });
            };
            rest = chunk.rest;
            text = match fields.read(element, text, rest) {
                Ok(text) => text,
                Err(ElementError::Mismatch) => return Err(mismatch(element_text, text)),
                Err(ElementError::Range(what)) => {
                    return Err(ParseTimeError::Range {
                        value: value.to_vec(),
                        what,
                    });
                }
            };
        }
        fields.finish(value)
    }
}

/// Skips the literal `prefix`, in which a run of spaces matches any number of spaces. Fails with
/// the remaining text.
fn skip<'v>(mut value: &'v [u8], mut prefix: &[u8]) -> Result<&'v [u8], &'v [u8]> {
    while let Some((&wanted, after)) = prefix.split_first() {
        if wanted == b' ' {
            if value.first().is_some_and(|&c| c != b' ') {
                return Err(value);
            }
            prefix = cut_spaces(prefix);
            value = cut_spaces(value);
            continue;
        }
        match value.split_first() {
            Some((&found, rest)) if found == wanted => value = rest,
            _ => return Err(value),
        }
        prefix = after;
    }
    Ok(value)
}

fn cut_spaces(s: &[u8]) -> &[u8] {
    let spaces = s.iter().take_while(|&&c| c == b' ').count();
    s.get(spaces..).unwrap_or_default()
}

impl<'v> Fields<'v> {
    /// Parses one element from `value` and returns the rest. `layout` is what follows the element.
    fn read(
        &mut self,
        element: Element,
        value: &'v [u8],
        layout: &[u8],
    ) -> Result<&'v [u8], ElementError> {
        let rest;
        match element {
            Element::Year => {
                let (digits, after) = value.split_at_checked(2).ok_or(ElementError::Mismatch)?;
                let year = signed(digits).ok_or(ElementError::Mismatch)?;
                self.year = if year >= 69 { year + 1900 } else { year + 2000 };
                rest = after;
            }
            Element::LongYear => {
                let (digits, after) = value.split_at_checked(4).ok_or(ElementError::Mismatch)?;
                if !digits.first().is_some_and(u8::is_ascii_digit) {
                    return Err(ElementError::Mismatch);
                }
                self.year = signed(digits).ok_or(ElementError::Mismatch)?;
                rest = after;
            }
            Element::Month => {
                let (index, after) = lookup(&MONTHS, value, Some(3))?;
                self.month = Some(index + 1);
                rest = after;
            }
            Element::LongMonth => {
                let (index, after) = lookup(&MONTHS, value, None)?;
                self.month = Some(index + 1);
                rest = after;
            }
            Element::NumMonth | Element::ZeroMonth => {
                let (month, after) = two_digits(value, element == Element::ZeroMonth)?;
                if !(1..=12).contains(&month) {
                    return Err(ElementError::Range("month"));
                }
                self.month = Some(month);
                rest = after;
            }
            Element::Weekday => rest = lookup(&WEEKDAYS, value, Some(3))?.1,
            Element::LongWeekday => rest = lookup(&WEEKDAYS, value, None)?.1,
            Element::Day | Element::UnderDay | Element::ZeroDay => {
                let value = match value {
                    [b' ', after @ ..] if element == Element::UnderDay => after,
                    _ => value,
                };
                let (day, after) = two_digits(value, element == Element::ZeroDay)?;
                self.day = Some(day);
                rest = after;
            }
            Element::UnderYearDay | Element::ZeroYearDay => {
                let zeros = element == Element::ZeroYearDay;
                let spaces = value.iter().take(2).take_while(|&&c| c == b' ' && !zeros);
                let value = value.get(spaces.count()..).unwrap_or_default();
                let (day, after) = three_digits(value, zeros)?;
                self.year_day = Some(day);
                rest = after;
            }
            Element::Offset(shape) => match value {
                [b'Z', after @ ..] if shape.zulu => {
                    self.utc = true;
                    rest = after;
                }
                _ => {
                    let (offset, after) = read_offset(value, shape)?;
                    // Go uses this value to mark a missing offset.
                    self.offset = Some(offset).filter(|&offset| offset != -1);
                    rest = after;
                }
            },
            Element::ZoneName => {
                if let Some(after) = value.strip_prefix(b"UTC") {
                    self.utc = true;
                    rest = after;
                } else {
                    let length = zone_length(value).ok_or(ElementError::Mismatch)?;
                    (self.zone_name, rest) = value
                        .split_at_checked(length)
                        .ok_or(ElementError::Mismatch)?;
                }
            }
            Element::FractionZeros(fraction) => {
                let (digits, after) = value
                    .split_at_checked(fraction.digits + 1)
                    .ok_or(ElementError::Mismatch)?;
                self.nanosecond = nanoseconds(digits)?;
                rest = after;
            }
            Element::FractionNines(_) => match fraction_length(value) {
                None => rest = value,
                Some(length) => {
                    let (digits, after) = value.split_at(length);
                    self.nanosecond = nanoseconds(digits)?;
                    rest = after;
                }
            },
            _ => return self.read_clock(element, value, layout),
        }
        Ok(rest)
    }

    /// Parses an element of the time of day.
    fn read_clock(
        &mut self,
        element: Element,
        value: &'v [u8],
        layout: &[u8],
    ) -> Result<&'v [u8], ElementError> {
        let rest;
        match element {
            Element::Hour => {
                (self.hour, rest) = limited(two_digits(value, false)?, 23, "hour")?;
            }
            Element::Hour12 | Element::ZeroHour12 => {
                let read = two_digits(value, element == Element::ZeroHour12)?;
                (self.hour, rest) = limited(read, 12, "hour")?;
            }
            Element::Minute | Element::ZeroMinute => {
                let read = two_digits(value, element == Element::ZeroMinute)?;
                (self.minute, rest) = limited(read, 59, "minute")?;
            }
            Element::Second | Element::ZeroSecond => {
                let read = two_digits(value, element == Element::ZeroSecond)?;
                let (second, after) = limited(read, 59, "second")?;
                self.second = second;
                rest = self.implicit_fraction(after, layout)?;
            }
            Element::UpperPm => rest = self.half_day(value, b"AM", b"PM")?,
            Element::LowerPm => rest = self.half_day(value, b"am", b"pm")?,
            _ => return Err(ElementError::Mismatch),
        }
        Ok(rest)
    }

    /// Parses a fraction after the seconds even if the layout has none.
    fn implicit_fraction(
        &mut self,
        value: &'v [u8],
        layout: &[u8],
    ) -> Result<&'v [u8], ElementError> {
        let Some(length) = fraction_length(value) else {
            return Ok(value);
        };
        let next = next_chunk(layout).element;
        if let Some((Element::FractionZeros(_) | Element::FractionNines(_), _)) = next {
            return Ok(value);
        }
        let (digits, rest) = value.split_at(length);
        self.nanosecond = nanoseconds(digits)?;
        Ok(rest)
    }

    fn half_day(
        &mut self,
        value: &'v [u8],
        am: &[u8],
        pm: &[u8],
    ) -> Result<&'v [u8], ElementError> {
        let (text, rest) = value.split_at_checked(2).ok_or(ElementError::Mismatch)?;
        if text == pm {
            self.afternoon = true;
        } else if text == am {
            self.morning = true;
        } else {
            return Err(ElementError::Mismatch);
        }
        Ok(rest)
    }

    fn finish(mut self, value: &[u8]) -> Result<Time, ParseTimeError> {
        if self.afternoon && self.hour < 12 {
            self.hour += 12;
        } else if self.morning && self.hour == 12 {
            self.hour = 0;
        }
        let range = |what| ParseTimeError::Range {
            value: value.to_vec(),
            what,
        };
        let mismatch = |what| ParseTimeError::YearDay {
            value: value.to_vec(),
            what,
        };
        let (month, day) = match self.year_day {
            None => (self.month.unwrap_or(1), self.day.unwrap_or(1)),
            Some(year_day) => {
                let (month, day) =
                    month_and_day(self.year, year_day).ok_or_else(|| range("day-of-year"))?;
                if self.month.is_some_and(|known| known != month) {
                    return Err(mismatch("month"));
                }
                if self.day.is_some_and(|known| known != day) {
                    return Err(mismatch("day"));
                }
                (month, day)
            }
        };
        if day < 1 || day > days_in(month, self.year) {
            return Err(range("day"));
        }
        let date = [self.year, month.into(), day.into()];
        let clock = [self.hour, self.minute, self.second].map(i64::from);
        let shown_as = |offset: i32| {
            let mut time = Time::date(date, clock, self.nanosecond);
            time.seconds -= i64::from(offset);
            time
        };
        let utc = shown_as(0);
        Ok(match self.offset {
            _ if self.utc => utc,
            Some(0) if matches!(self.zone_name, b"" | b"UTC") => utc,
            Some(offset) => shown_as(offset).with_location(Location::Fixed {
                name: self.zone_name.into(),
                offset,
            }),
            None if self.zone_name.is_empty() => utc,
            None => {
                // The offset of an unknown abbreviation is zero, except for GMT with a number.
                let hours = self.zone_name.strip_prefix(b"GMT").and_then(signed);
                let offset = i32::try_from(hours.unwrap_or(0)).unwrap_or(0) * 3600;
                utc.with_location(Location::Fixed {
                    name: self.zone_name.into(),
                    offset,
                })
            }
        })
    }
}

/// Returns month and day of a day of the year.
fn month_and_day(year: i64, year_day: u16) -> Option<(u8, u8)> {
    let mut ordinal = year_day;
    if is_leap(year) {
        if ordinal == 60 {
            return Some((2, 29));
        }
        if ordinal > 60 {
            ordinal -= 1;
        }
    }
    if !(1..=365).contains(&ordinal) {
        return None;
    }
    let month = (1..=12).rev().find(|&month| days_before(month) < ordinal)?;
    Some((month, u8::try_from(ordinal - days_before(month)).ok()?))
}

fn limited<'v>((number, rest): (u8, &'v [u8]), max: u8, what: &'static str) -> Read<'v, u8> {
    if number > max {
        Err(ElementError::Range(what))
    } else {
        Ok((number, rest))
    }
}

/// Parses one or two digits; exactly two if `fixed`.
fn two_digits(s: &[u8], fixed: bool) -> Read<'_, u8> {
    match s {
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9', rest @ ..] => {
            Ok(((tens - b'0') * 10 + (ones - b'0'), rest))
        }
        [ones @ b'0'..=b'9', rest @ ..] if !fixed => Ok((ones - b'0', rest)),
        _ => Err(ElementError::Mismatch),
    }
}

/// Parses one to three digits; exactly three if `fixed`.
fn three_digits(s: &[u8], fixed: bool) -> Read<'_, u16> {
    let length = s.iter().take(3).take_while(|c| c.is_ascii_digit()).count();
    if length == 0 || fixed && length != 3 {
        return Err(ElementError::Mismatch);
    }
    let (digits, rest) = s.split_at(length);
    let digits = digits.iter().map(|digit| u16::from(digit - b'0'));
    Ok((digits.fold(0, |value, digit| value * 10 + digit), rest))
}

/// Parses a number with an optional sign that spans the whole text.
fn signed(s: &[u8]) -> Option<i64> {
    let (negative, digits) = split_sign(s);
    let (magnitude, rest) = leading_int(digits)?;
    let magnitude = magnitude.cast_signed();
    let value = if negative {
        magnitude.wrapping_neg()
    } else {
        magnitude
    };
    rest.is_empty().then_some(value)
}

/// Finds the name that `s` begins with, case-insensitively.
fn lookup<'v>(names: &[&str], s: &'v [u8], length: Option<usize>) -> Read<'v, u8> {
    for (index, name) in (0..).zip(names) {
        let name = name.get(..length.unwrap_or(name.len())).unwrap_or(name);
        if let Some((head, rest)) = s.split_at_checked(name.len())
            && head.eq_ignore_ascii_case(name.as_bytes())
        {
            return Ok((index, rest));
        }
    }
    Err(ElementError::Mismatch)
}

/// Parses `+07:00` and its other shapes into seconds.
fn read_offset(s: &[u8], shape: Offset) -> Read<'_, i32> {
    let count = match shape.precision {
        OffsetPrecision::Hours => 1,
        OffsetPrecision::Minutes => 2,
        OffsetPrecision::Seconds => 3,
    };
    let gap: &[u8] = if shape.colon { b":" } else { b"" };
    let width = 2 + gap.len();
    let (text, rest) = s
        .split_at_checked(width * count + 3 - width)
        .ok_or(ElementError::Mismatch)?;
    let (sign, mut digits) = text.split_first().ok_or(ElementError::Mismatch)?;
    let separators = text.iter().skip(3).step_by(3);
    if shape.colon && separators.copied().any(|c| c != b':') {
        return Err(ElementError::Mismatch);
    }
    let mut parts = [0_u8; 3];
    let mut well_formed = matches!(sign, b'+' | b'-');
    for part in parts.iter_mut().take(count) {
        let Ok((number, after)) = two_digits(digits, true) else {
            well_formed = false;
            break;
        };
        *part = number;
        digits = after.strip_prefix(gap).unwrap_or(after);
    }
    let [hours, minutes, seconds] = parts;
    // 24 hours and 60 minutes are accepted, as in Go.
    if seconds > 60 {
        return Err(ElementError::Range("time zone offset second"));
    }
    if minutes > 60 {
        return Err(ElementError::Range("time zone offset minute"));
    }
    if hours > 24 {
        return Err(ElementError::Range("time zone offset hour"));
    }
    if !well_formed {
        return Err(ElementError::Mismatch);
    }
    let offset = (i32::from(hours) * 60 + i32::from(minutes)) * 60 + i32::from(seconds);
    Ok((if *sign == b'-' { -offset } else { offset }, rest))
}

/// Returns the length of what looks like a zone abbreviation.
fn zone_length(s: &[u8]) -> Option<usize> {
    if s.len() < 3 {
        return None;
    }
    if s.starts_with(b"ChST") || s.starts_with(b"MeST") {
        return Some(4);
    }
    if let Some(rest) = s.strip_prefix(b"GMT") {
        return Some(3 + signed_offset_length(rest));
    }
    if matches!(s.first(), Some(b'+' | b'-')) {
        return Some(signed_offset_length(s)).filter(|&length| length > 0);
    }
    let upper = s.iter().take(6).take_while(|c| c.is_ascii_uppercase());
    match upper.count() {
        5 if s.get(4) == Some(&b'T') => Some(5),
        4 if s.get(3) == Some(&b'T') || s.starts_with(b"WITA") => Some(4),
        3 => Some(3),
        _ => None,
    }
}

/// Returns the length of a leading sign and number up to 23, or 0.
fn signed_offset_length(s: &[u8]) -> usize {
    let [b'+' | b'-', digits @ ..] = s else {
        return 0;
    };
    match leading_int(digits) {
        Some((0..=23, rest)) if rest.len() < digits.len() => s.len() - rest.len(),
        _ => 0,
    }
}

/// Returns the length of a separator with at least one digit, or `None`.
fn fraction_length(s: &[u8]) -> Option<usize> {
    let [b'.' | b',', digits @ ..] = s else {
        return None;
    };
    let length = digits.iter().take_while(|c| c.is_ascii_digit()).count();
    (length > 0).then_some(length + 1)
}

/// Parses a separator and digits into nanoseconds; digits after the ninth are dropped.
fn nanoseconds(s: &[u8]) -> Result<u32, ElementError> {
    let [b'.' | b',', digits @ ..] = s else {
        return Err(ElementError::Mismatch);
    };
    let digits = digits.get(..digits.len().min(9)).unwrap_or_default();
    let value = signed(digits).ok_or(ElementError::Mismatch)?;
    let value = u32::try_from(value).map_err(|_| ElementError::Range("fractional second"))?;
    let missing = 9 - u32::try_from(digits.len()).unwrap_or(9);
    Ok(value * 10_u32.pow(missing))
}

//! Formatting of a time by a layout, like Go's `Time.AppendFormat`.

use super::layout::{Element, Fraction, MONTHS, Offset, OffsetPrecision, WEEKDAYS, next_chunk};
use super::{Location, STRING_LAYOUT, Time, Zone};
use crate::go::strconv::push_int;
use bounded::Buffer;

impl Time {
    /// Appends the time formatted by the layout.
    pub fn format(&self, layout: &[u8], dst: &mut Buffer) {
        let mut rest = layout;
        while !rest.is_empty() {
            let chunk = next_chunk(rest);
            dst.extend_from_slice(chunk.prefix);
            let Some((element, _)) = chunk.element else {
                break;
            };
            rest = chunk.rest;
            self.push_element(element, dst);
        }
    }

    /// Appends the time in a named zone.
    pub fn format_in(&self, zone: &Zone, layout: &[u8], dst: &mut Buffer) {
        let at = zone.at(self.unix_seconds());
        let location = Location::Fixed {
            name: at.name.into_bytes().into(),
            offset: at.offset,
        };
        self.clone().with_location(location).format(layout, dst);
    }

    /// Go's `Time.String`: `m=` and seconds are the monotonic clock reading, if there is one.
    pub fn text(&self) -> Vec<u8> {
        let mut out = Buffer::with_capacity(40);
        self.format(STRING_LAYOUT, &mut out);
        if let Some(reading) = self.monotonic {
            let sign = if reading < 0 { '-' } else { '+' };
            let nanoseconds = reading.unsigned_abs();
            let (seconds, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
            out.extend_from_slice(format!(" m={sign}{seconds}.{rest:09}").as_bytes());
        }
        out.into_vec()
    }

    fn push_element(&self, element: Element, dst: &mut Buffer) {
        let [hour, minute, second] = self.clock();
        let hour12 = if hour % 12 == 0 { 12 } else { hour % 12 };
        let month = usize::from(self.month());
        match element {
            Element::Year => push_padded(dst, self.year().abs() % 100, 2),
            Element::LongYear => push_padded(dst, self.year(), 4),
            Element::Month => push_name(dst, &MONTHS, month.wrapping_sub(1), Some(3)),
            Element::LongMonth => push_name(dst, &MONTHS, month.wrapping_sub(1), None),
            Element::NumMonth => push_padded(dst, i64::from(self.month()), 0),
            Element::ZeroMonth => push_padded(dst, i64::from(self.month()), 2),
            Element::Weekday => push_name(dst, &WEEKDAYS, self.weekday().into(), Some(3)),
            Element::LongWeekday => push_name(dst, &WEEKDAYS, self.weekday().into(), None),
            Element::Day => push_padded(dst, self.day().into(), 0),
            Element::UnderDay => push_spaced(dst, self.day().into(), 2),
            Element::ZeroDay => push_padded(dst, self.day().into(), 2),
            Element::UnderYearDay => push_spaced(dst, self.year_day().into(), 3),
            Element::ZeroYearDay => push_padded(dst, self.year_day().into(), 3),
            Element::Hour => push_padded(dst, hour, 2),
            Element::Hour12 => push_padded(dst, hour12, 0),
            Element::ZeroHour12 => push_padded(dst, hour12, 2),
            Element::Minute => push_padded(dst, minute, 0),
            Element::ZeroMinute => push_padded(dst, minute, 2),
            Element::Second => push_padded(dst, second, 0),
            Element::ZeroSecond => push_padded(dst, second, 2),
            Element::UpperPm => dst.extend_from_slice(if hour >= 12 { b"PM" } else { b"AM" }),
            Element::LowerPm => dst.extend_from_slice(if hour >= 12 { b"pm" } else { b"am" }),
            Element::ZoneName if self.location().name().is_empty() => {
                let shape = Offset {
                    zulu: false,
                    colon: false,
                    precision: OffsetPrecision::Minutes,
                };
                push_offset(dst, self.location().offset(), shape);
            }
            Element::ZoneName => dst.extend_from_slice(self.location().name()),
            Element::Offset(shape) => push_offset(dst, self.location().offset(), shape),
            Element::FractionZeros(fraction) => {
                push_fraction(dst, self.nanosecond(), fraction, false);
            }
            Element::FractionNines(fraction) => {
                push_fraction(dst, self.nanosecond(), fraction, true);
            }
        }
    }
}

fn push_name(dst: &mut Buffer, names: &[&str], index: usize, length: Option<usize>) {
    let name = names.get(index).copied().unwrap_or_default();
    let part = name.get(..length.unwrap_or(name.len()));
    dst.extend_from_slice(part.unwrap_or(name).as_bytes());
}

/// Pads with zeros after the sign.
fn push_padded(dst: &mut Buffer, value: i64, width: usize) {
    if value < 0 {
        dst.push(b'-');
    }
    let mut digits = Buffer::with_capacity(4);
    crate::go::strconv::push_uint(&mut digits, value.unsigned_abs());
    dst.resize(dst.len() + width.saturating_sub(digits.len()), b'0');
    dst.extend_from_slice(&digits);
}

fn push_spaced(dst: &mut Buffer, value: i64, width: u32) {
    for place in 1..width {
        if value < 10_i64.pow(place) {
            dst.push(b' ');
        }
    }
    push_int(dst, value);
}

fn push_offset(dst: &mut Buffer, offset: i32, shape: Offset) {
    if shape.zulu && offset == 0 {
        return dst.push(b'Z');
    }
    let minutes = i64::from(offset / 60);
    // Go takes the sign from the minutes, so an offset of less than a minute counts as positive and
    // keeps the sign of its seconds.
    let (sign, seconds) = if minutes < 0 {
        (b'-', -i64::from(offset))
    } else {
        (b'+', offset.into())
    };
    dst.push(sign);
    push_padded(dst, minutes.abs() / 60, 2);
    if shape.colon {
        dst.push(b':');
    }
    if shape.precision != OffsetPrecision::Hours {
        push_padded(dst, minutes.abs() % 60, 2);
    }
    if shape.precision == OffsetPrecision::Seconds {
        if shape.colon {
            dst.push(b':');
        }
        push_padded(dst, seconds % 60, 2);
    }
}

fn push_fraction(dst: &mut Buffer, nanoseconds: u32, fraction: Fraction, trim: bool) {
    if trim && (fraction.digits == 0 || nanoseconds == 0) {
        return;
    }
    let digits = format!("{nanoseconds:09}");
    let digits = digits.get(..fraction.digits.min(9)).unwrap_or_default();
    let digits = if trim {
        digits.trim_end_matches('0')
    } else {
        digits
    };
    if !trim || !digits.is_empty() {
        dst.push(fraction.separator);
        dst.extend_from_slice(digits.as_bytes());
    }
}

//! Layouts: splits `Mon Jan _2 15:04:05 2006` into the elements that Go knows.

/// The separator and number of digits of a fractional second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fraction {
    pub(super) digits: usize,
    pub(super) separator: u8,
}

/// The shape of a numeric zone offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offset {
    /// Whether `Z` represents a zero offset.
    pub(super) zulu: bool,
    pub(super) colon: bool,
    pub(super) precision: OffsetPrecision,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OffsetPrecision {
    Hours,
    Minutes,
    Seconds,
}

/// An element of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    LongMonth,
    Month,
    NumMonth,
    ZeroMonth,
    LongWeekday,
    Weekday,
    Day,
    UnderDay,
    ZeroDay,
    UnderYearDay,
    ZeroYearDay,
    Hour,
    Hour12,
    ZeroHour12,
    Minute,
    ZeroMinute,
    Second,
    ZeroSecond,
    LongYear,
    Year,
    UpperPm,
    LowerPm,
    ZoneName,
    Offset(Offset),
    /// `.000`: exactly this many digits.
    FractionZeros(Fraction),
    /// `.999`: at most this many digits, without trailing zeros.
    FractionNines(Fraction),
}

/// A layout up to and including its first element.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk<'l> {
    /// The literal text before the element.
    pub(super) prefix: &'l [u8],
    /// The element with its text; `None` if only literal text is left.
    pub(super) element: Option<(Element, &'l [u8])>,
    /// The text after the element.
    pub(super) rest: &'l [u8],
}

/// Finds the first element of a layout.
pub(super) fn next_chunk(layout: &[u8]) -> Chunk<'_> {
    for (at, _) in layout.iter().enumerate() {
        let (prefix, tail) = layout.split_at(at);
        if let Some((element, length)) = element_at(tail) {
            // In `_2006` the underscore is literal.
            let skipped = usize::from(element == Element::LongYear && tail.starts_with(b"_"));
            let (text, rest) = tail.split_at(length.min(tail.len()));
            let prefix = layout.get(..prefix.len() + skipped).unwrap_or(prefix);
            let text = text.get(skipped..).unwrap_or_default();
            return Chunk {
                prefix,
                element: Some((element, text)),
                rest,
            };
        }
    }
    Chunk {
        prefix: layout,
        element: None,
        rest: b"",
    }
}

/// Returns the element at the start of `s`, with its length.
fn element_at(s: &[u8]) -> Option<(Element, usize)> {
    use Element as E;
    let lower_follows = |at: usize| s.get(at).is_some_and(u8::is_ascii_lowercase);
    let starts = |text: &[u8]| s.starts_with(text);
    Some(match s.first()? {
        b'J' if starts(b"January") => (E::LongMonth, 7),
        b'J' if starts(b"Jan") && !lower_follows(3) => (E::Month, 3),
        b'M' if starts(b"Monday") => (E::LongWeekday, 6),
        b'M' if starts(b"Mon") && !lower_follows(3) => (E::Weekday, 3),
        b'M' if starts(b"MST") => (E::ZoneName, 3),
        b'0' => match s.get(1)? {
            b'1' => (E::ZeroMonth, 2),
            b'2' => (E::ZeroDay, 2),
            b'3' => (E::ZeroHour12, 2),
            b'4' => (E::ZeroMinute, 2),
            b'5' => (E::ZeroSecond, 2),
            b'6' => (E::Year, 2),
            b'0' if starts(b"002") => (E::ZeroYearDay, 3),
            _ => return None,
        },
        b'1' if starts(b"15") => (E::Hour, 2),
        b'1' => (E::NumMonth, 1),
        b'2' if starts(b"2006") => (E::LongYear, 4),
        b'2' => (E::Day, 1),
        b'_' if starts(b"_2006") => (E::LongYear, 5),
        b'_' if starts(b"_2") => (E::UnderDay, 2),
        b'_' if starts(b"__2") => (E::UnderYearDay, 3),
        b'3' => (E::Hour12, 1),
        b'4' => (E::Minute, 1),
        b'5' => (E::Second, 1),
        b'P' if starts(b"PM") => (E::UpperPm, 2),
        b'p' if starts(b"pm") => (E::LowerPm, 2),
        b'-' | b'Z' => return offset_at(s),
        b'.' | b',' => return fraction_at(s),
        _ => return None,
    })
}

fn offset_at(s: &[u8]) -> Option<(Element, usize)> {
    let zulu = s.first() == Some(&b'Z');
    let digits = s.get(1..)?;
    // In Go's order: the first match counts.
    let shapes: [(&[u8], bool, OffsetPrecision); 5] = [
        (b"070000", false, OffsetPrecision::Seconds),
        (b"07:00:00", true, OffsetPrecision::Seconds),
        (b"0700", false, OffsetPrecision::Minutes),
        (b"07:00", true, OffsetPrecision::Minutes),
        (b"07", false, OffsetPrecision::Hours),
    ];
    let (text, colon, precision) = shapes
        .into_iter()
        .find(|(text, ..)| digits.starts_with(text))?;
    let shape = Offset {
        zulu,
        colon,
        precision,
    };
    Some((Element::Offset(shape), 1 + text.len()))
}

fn fraction_at(s: &[u8]) -> Option<(Element, usize)> {
    let (&separator, digits) = s.split_first()?;
    let &kind = digits.first().filter(|kind| matches!(kind, b'0' | b'9'))?;
    let count = digits.iter().take_while(|&&digit| digit == kind).count();
    if digits.get(count).is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let fraction = Fraction {
        digits: count & 0xFFF,
        separator,
    };
    let element = match kind {
        b'0' => Element::FractionZeros(fraction),
        _ => Element::FractionNines(fraction),
    };
    Some((element, 1 + count))
}

pub(super) const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

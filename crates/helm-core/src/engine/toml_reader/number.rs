//! Numbers and dates.

use std::sync::Arc;

use go_template::Value;
use go_template::go::strconv::parse_float;
use go_template::go::time::{Location, Time};
use go_template::sprig::time_value;

use super::{Read, TomlReader, shown};

/// Date layouts, with the zone that Go assigns to dates without one.
const LAYOUTS: &[(&str, &str)] = &[
    ("2006-01-02T15:04:05.999999999Z07:00", ""),
    ("2006-01-02T15:04:05.999999999", "datetime-local"),
    ("2006-01-02", "date-local"),
    ("15:04:05.999999999", "time-local"),
    ("2006-01-02T15:04Z07:00", ""),
    ("2006-01-02T15:04", "datetime-local"),
    ("15:04", "time-local"),
];

impl TomlReader<'_> {
    pub(super) fn number_or_date(&mut self) -> Read<Value> {
        let start = self.at;
        let base = match self.text.get(start..start + 2) {
            Some(b"0x") => Some((16, "a hexadecimal")),
            Some(b"0o") => Some((8, "an octal")),
            Some(b"0b") => Some((2, "a binary")),
            _ => None,
        };
        if let Some((radix, kind)) = base {
            self.at += 2;
            let c = self.peek()?;
            if !c.is_some_and(|c| c.is_digit(radix)) {
                let text = format!(
                    "not {kind} number: '{}{}'",
                    String::from_utf8_lossy(self.text.get(start..self.at).unwrap_or_default()),
                    c.unwrap_or('\0')
                );
                return self.fail(text);
            }
            self.skip(|c| c.is_digit(radix) || c == '_')?;
            return self.integer(start);
        }
        self.skip(|c| c.is_ascii_digit())?;
        match self.peek()? {
            Some('-' | ':') if self.at - start > 1 || self.text.get(start) != Some(&b'0') => {
                self.date(start)
            }
            Some('_' | '.' | 'e' | 'E') => self.decimal(start),
            _ => self.integer(start),
        }
    }

    pub(super) fn signed(&mut self, sign: Option<char>) -> Read<Value> {
        let start = self.at - 1;
        for (word, value) in [(&b"inf"[..], f64::INFINITY), (b"nan", f64::NAN)] {
            if self.rest_starts(word) {
                self.at += 3;
                return Ok(Value::Float(if sign == Some('-') { -value } else { value }));
            }
        }
        let c = self.next()?;
        match c {
            Some('i' | 'n') => {
                let next = self.next()?;
                let mut seen: String = sign.into_iter().chain(c).collect();
                seen.extend(next);
                self.fail_at(next, format!("invalid float: '{seen}'"))
            }
            Some('0') if matches!(self.peek()?, Some('b' | 'o' | 'x')) => {
                let base = self.peek()?.unwrap_or_default();
                let sign = sign.unwrap_or_default();
                self.fail(format!(
                    "cannot use sign with non-decimal numbers: '{sign}0{base}'"
                ))
            }
            Some('.') => self.fail("floats must start with a digit, not '.'"),
            Some('0'..='9') => self.decimal(start),
            c => self.fail_at(c, format!("expected a digit but got {}", shown(c))),
        }
    }

    /// Parses a decimal integer or a float that began at `start`.
    fn decimal(&mut self, start: usize) -> Read<Value> {
        self.skip(|c| c.is_ascii_digit() || c == '_')?;
        if matches!(self.peek()?, Some('.' | 'e' | 'E')) {
            self.skip(|c| c.is_ascii_digit() || matches!(c, '_' | '.' | '-' | '+' | 'e' | 'E'))?;
            return self.float(start);
        }
        self.integer(start)
    }

    fn since(&self, start: usize) -> String {
        String::from_utf8_lossy(self.text.get(start..self.at).unwrap_or_default()).into_owned()
    }

    /// Checks the digits of a number between its points and exponents.
    fn check_digits<'p>(
        &self,
        kind: &str,
        text: &str,
        mut parts: impl Iterator<Item = &'p str> + Clone,
    ) -> Read {
        let why = if !parts.clone().all(underscores_fit) {
            "underscores must be surrounded by digits"
        } else if parts.next().is_some_and(leading_zero) {
            "cannot have leading zeroes"
        } else {
            return Ok(());
        };
        self.fail(format!("Invalid {kind} {text:?}: {why}"))
    }

    fn integer(&mut self, start: usize) -> Read<Value> {
        let text = self.since(start);
        self.check_digits("integer", &text, std::iter::once(text.as_str()))?;
        let plain = text.replace('_', "");
        let parsed = match plain.get(..2) {
            Some("0x") => i64::from_str_radix(&plain[2..], 16),
            Some("0o") => i64::from_str_radix(&plain[2..], 8),
            Some("0b") => i64::from_str_radix(&plain[2..], 2),
            _ => plain.parse(),
        };
        match parsed {
            Ok(number) => Ok(Value::Int64(number)),
            Err(_) => self.fail(format!("{text} is out of range for int64")),
        }
    }

    pub(super) fn float(&mut self, start: usize) -> Read<Value> {
        let text = self.since(start);
        match text.as_str() {
            "inf" => return Ok(Value::Float(f64::INFINITY)),
            "nan" => return Ok(Value::Float(f64::NAN)),
            _ => {}
        }
        let parts = text.split(['.', 'e', 'E']).filter(|part| !part.is_empty());
        self.check_digits("float", &text, parts)?;
        let digit_after = |(at, _): (usize, &str)| {
            text.get(at + 1..)
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        if !text.match_indices('.').all(digit_after) {
            return self.fail(format!(
                "Invalid float {text:?}: '.' must be followed by one or more digits"
            ));
        }
        let plain = text.replace('_', "");
        match parse_float(plain.as_bytes(), 64) {
            Ok(number) => Ok(Value::Float(number)),
            Err(error) if error.to_string().contains("out of range") => {
                self.fail(format!("{text} is out of range for float64"))
            }
            Err(_) => self.fail(format!("Invalid float value: {text:?}")),
        }
    }

    fn date(&mut self, start: usize) -> Read<Value> {
        self.skip(|c| {
            c.is_ascii_digit() || matches!(c, '-' | ':' | 'T' | 't' | ' ' | '.' | 'Z' | 'z' | '+')
        })?;
        let text = self.since(start);
        let text = text.trim().replace('z', "Z").replace(['t', ' '], "T");
        for (layout, zone) in LAYOUTS {
            let Ok(time) = Time::parse(layout.as_bytes(), text.as_bytes()) else {
                continue;
            };
            if lacks_leading_zero(&text, layout) {
                break;
            }
            let time = if zone.is_empty() {
                time
            } else {
                time.with_location(Location::Fixed {
                    name: Arc::from(zone.as_bytes()),
                    offset: 0,
                })
            };
            return Ok(time_value(time));
        }
        self.fail(format!("invalid datetime: {text:?}"))
    }
}

fn leading_zero(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let based =
        digits.len() == text.len() && matches!(digits.as_bytes().get(1), Some(b'b' | b'o' | b'x'));
    digits.len() > 1 && digits.starts_with('0') && !based
}

fn underscores_fit(text: &str) -> bool {
    let mut accept = false;
    for c in text.chars() {
        if c == '_' && !accept {
            return false;
        }
        accept = c.is_ascii_hexdigit();
    }
    accept
}

/// Go's parser accepts numbers without their leading zero; TOML does not.
fn lacks_leading_zero(text: &str, layout: &str) -> bool {
    for (index, c) in layout.bytes().enumerate() {
        if matches!(c, b'.' | b'Z') {
            return false;
        }
        if !c.is_ascii_digit() && text.as_bytes().get(index) != Some(&c) {
            return true;
        }
    }
    false
}

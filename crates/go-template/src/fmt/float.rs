//! Floats and complex numbers.

use super::Printer;
use crate::go::strconv::format_float;
use bounded::Buffer;

impl Printer<'_> {
    /// Formats a float; returns `false` if the verb does not apply to floats.
    pub(super) fn float(&mut self, value: f64, verb: char) -> bool {
        match verb {
            'v' | 'g' => self.format(value, b'g', None),
            'b' => self.format(value, b'b', None),
            'G' => self.format(value, b'G', None),
            'x' => self.format(value, b'x', None),
            'X' => self.format(value, b'X', None),
            'f' | 'F' => self.format(value, b'f', Some(6)),
            'e' => self.format(value, b'e', Some(6)),
            'E' => self.format(value, b'E', Some(6)),
            _ => return false,
        }
        true
    }

    /// Formats a complex number; returns `false` if the verb does not apply.
    pub(super) fn complex(&mut self, (real, imaginary): (f64, f64), verb: char) -> bool {
        if !"vbgGxXfFeE".contains(verb) {
            return false;
        }
        let plus = self.flags.plus;
        self.out.push(b'(');
        self.float(real, verb);
        // The imaginary part always has its sign.
        self.flags.plus = true;
        self.float(imaginary, verb);
        self.out.extend_from_slice(b"i)");
        self.flags.plus = plus;
        true
    }

    fn format(&mut self, value: f64, format: u8, default: Option<usize>) {
        let precision = self.flags.precision.or(default);
        let mut text = Buffer::from(&b"+"[..]);
        format_float(&mut text, value, format, precision, 64);
        if matches!(text.get(1), Some(b'-' | b'+')) {
            text.remove_first();
        }
        if self.flags.space && !self.flags.plus && text.first() == Some(&b'+') {
            text.remove_first();
            text.insert_slice(0, b" ");
        }
        if matches!(text.get(1), Some(b'I' | b'N')) {
            // Infinity and NaN are not padded with zeros.
            if text.get(1) == Some(&b'N') && !self.flags.space && !self.flags.plus {
                text.remove_first();
            }
            self.pad_with_spaces(&text);
            return;
        }
        if self.flags.sharp && format != b'b' {
            restore_zeros(&mut text, format, precision);
        }
        let (sign, digits) = text.split_first().unwrap_or((&b'+', &[]));
        if *sign == b'+' && !self.flags.plus {
            self.pad(digits);
            return;
        }
        match self.flags.width {
            Some(width) if self.flags.zero && !self.flags.minus && width > text.len() => {
                // The sign goes before the zeros.
                self.out.push(*sign);
                self.padding(width - text.len());
                self.out.extend_from_slice(digits);
            }
            _ => self.pad(&text),
        }
    }
}

/// Applies the sharp flag: adds a decimal point, and the zeros that %g removes.
fn restore_zeros(text: &mut Buffer, format: u8, precision: Option<usize>) {
    let is_hex = matches!(format, b'x' | b'X');
    let mut digits = match format {
        b'g' | b'G' | b'x' => precision.map_or(6, |digits| i64::try_from(digits).unwrap_or(0)),
        _ => 0,
    };
    let is_exponent = |byte: &u8| match byte {
        b'p' | b'P' => true,
        b'e' | b'E' => !is_hex,
        _ => false,
    };
    let exponent = text.iter().skip(1).position(is_exponent);
    let tail = exponent.map(|at| text.split_off(at + 1));
    let mut has_point = false;
    let mut significant = false;
    for byte in text.iter().skip(1) {
        if *byte == b'.' {
            has_point = true;
            continue;
        }
        significant |= *byte != b'0';
        digits -= i64::from(significant);
    }
    if !has_point {
        if text.get(1..) == Some(b"0") {
            digits -= 1;
        }
        text.push(b'.');
    }
    let zeros = usize::try_from(digits).unwrap_or(0);
    text.resize(text.len() + zeros, b'0');
    text.extend(tail.unwrap_or_default());
}

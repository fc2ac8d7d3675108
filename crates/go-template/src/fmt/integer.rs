//! Integers in every base, as characters and as code points.

use super::Printer;
use crate::go::strconv::push_quoted_rune;
use crate::go::unicode::is_print;
use crate::go::utf8::{RUNE_ERROR, push_rune};
use bounded::Buffer;

/// An integer with its sign.
#[derive(Clone, Copy)]
pub(super) struct Integer {
    pub(super) magnitude: u64,
    pub(super) negative: bool,
    pub(super) signed: bool,
}

impl Integer {
    pub(super) fn signed(value: i64) -> Self {
        Self {
            magnitude: value.unsigned_abs(),
            negative: value < 0,
            signed: true,
        }
    }

    pub(super) fn unsigned(value: u64) -> Self {
        Self {
            magnitude: value,
            negative: false,
            signed: false,
        }
    }

    /// Returns the bits as an unsigned number, as Go converts.
    fn bits(self) -> u64 {
        if self.negative {
            self.magnitude.wrapping_neg()
        } else {
            self.magnitude
        }
    }

    fn rune(self) -> char {
        let code = u32::try_from(self.bits()).ok();
        code.and_then(char::from_u32).unwrap_or(RUNE_ERROR)
    }
}

impl Printer<'_> {
    /// Formats an integer; returns `false` if the verb does not apply to integers.
    pub(super) fn integer(&mut self, value: Integer, verb: char) -> bool {
        match verb {
            'v' if self.flags.sharp_v && !value.signed => self.hex(value.magnitude, true),
            'v' | 'd' => self.digits(value, 10, verb),
            'b' => self.digits(value, 2, verb),
            'o' | 'O' => self.digits(value, 8, verb),
            'x' | 'X' => self.digits(value, 16, verb),
            'c' | 'q' => {
                let mut text = Buffer::new();
                match verb {
                    'c' => push_rune(&mut text, value.rune()),
                    _ => push_quoted_rune(&mut text, u32::from(value.rune()), self.flags.plus),
                }
                self.pad(&text);
            }
            'U' => self.unicode(value),
            _ => return false,
        }
        true
    }

    /// Formats an unsigned number in hexadecimal, optionally with `0x`.
    pub(super) fn hex(&mut self, value: u64, prefix: bool) {
        let sharp = std::mem::replace(&mut self.flags.sharp, prefix);
        self.digits(Integer::unsigned(value), 16, 'v');
        self.flags.sharp = sharp;
    }

    fn digits(&mut self, value: Integer, base: u64, verb: char) {
        let mut least = 0;
        match self.flags.precision {
            Some(0) if value.magnitude == 0 => {
                // Precision 0 prints 0 as nothing, but padded.
                self.pad_with_spaces(b"");
                return;
            }
            Some(precision) => least = precision,
            None if self.flags.zero && !self.flags.minus => {
                if let Some(width) = self.flags.width {
                    let sign = value.negative || self.flags.plus || self.flags.space;
                    least = width.saturating_sub(usize::from(sign));
                }
            }
            None => {}
        }
        let digits: &[u8] = if verb == 'X' {
            b"0123456789ABCDEFX"
        } else {
            b"0123456789abcdefx"
        };
        // The digits are written in reverse.
        let mut text = Buffer::with_capacity(24);
        let mut rest = value.magnitude;
        loop {
            let digit = usize::try_from(rest % base).unwrap_or_default();
            text.push(digits.get(digit).copied().unwrap_or_default());
            rest /= base;
            if rest == 0 {
                break;
            }
        }
        if text.len() < least {
            text.resize(least, b'0');
        }
        if self.flags.sharp {
            match base {
                2 => text.extend_from_slice(b"b0"),
                8 if text.last() != Some(&b'0') => text.push(b'0'),
                16 => {
                    text.push(digits.last().copied().unwrap_or_default());
                    text.push(b'0');
                }
                _ => {}
            }
        }
        if verb == 'O' {
            text.extend_from_slice(b"o0");
        }
        if value.negative {
            text.push(b'-');
        } else if self.flags.plus {
            text.push(b'+');
        } else if self.flags.space {
            text.push(b' ');
        }
        text.reverse();
        self.pad_with_spaces(&text);
    }

    fn unicode(&mut self, value: Integer) {
        let bits = value.bits();
        let least = self.flags.precision.unwrap_or(4).max(4);
        let mut text = Buffer::from(format!("U+{bits:0least$X}").as_bytes());
        let rune = u32::try_from(bits).ok().and_then(char::from_u32);
        if let Some(rune) = rune.filter(|rune| self.flags.sharp && is_print(*rune)) {
            text.extend_from_slice(b" '");
            push_rune(&mut text, rune);
            text.push(b'\'');
        }
        self.pad_with_spaces(&text);
    }
}

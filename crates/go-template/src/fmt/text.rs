//! Strings and bytes: plain, quoted and in hexadecimal.

use super::Printer;
use super::integer::Integer;
use crate::go::strconv::{can_backquote, quote, quote_to_ascii};
use crate::go::utf8::runes;

impl Printer<'_> {
    /// Formats a string; returns `false` if the verb does not apply to strings.
    pub(super) fn string(&mut self, text: &[u8], verb: char) -> bool {
        match verb {
            'v' if self.flags.sharp_v => self.quoted(text),
            'v' | 's' => self.pad(self.cut(text)),
            'x' | 'X' => self.hex_string(text, verb),
            'q' => self.quoted(text),
            _ => return false,
        }
        true
    }

    /// Formats a `[]byte` for the verbs that treat it as text or numbers; returns `false` for
    /// others.
    pub(super) fn byte_slice(&mut self, bytes: &[u8], verb: char, name: &str) -> bool {
        match verb {
            'v' | 'd' => {
                let sharp = self.flags.sharp_v;
                let [open, close] = if sharp { *b"{}" } else { *b"[]" };
                if sharp {
                    self.out.extend_from_slice(name.as_bytes());
                }
                self.out.push(open);
                for (index, byte) in bytes.iter().enumerate() {
                    if index > 0 {
                        self.separator();
                    }
                    if sharp {
                        self.hex(u64::from(*byte), true);
                    } else {
                        self.integer(Integer::unsigned(u64::from(*byte)), 'd');
                    }
                }
                self.out.push(close);
                true
            }
            's' => {
                self.pad(self.cut(bytes));
                true
            }
            'x' | 'X' | 'q' => self.string(bytes, verb),
            _ => false,
        }
    }

    /// Returns the first runes, limited by the precision.
    pub(super) fn cut<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        let Some(precision) = self.flags.precision else {
            return text;
        };
        match runes(text).nth(precision) {
            Some((end, ..)) => text.get(..end).unwrap_or(text),
            None => text,
        }
    }

    fn quoted(&mut self, text: &[u8]) {
        let text = self.cut(text);
        if self.flags.sharp && can_backquote(text) {
            self.pad(&[b"`", text, b"`"].concat());
        } else if self.flags.plus {
            self.pad(&quote_to_ascii(text));
        } else {
            self.pad(&quote(text));
        }
    }

    fn hex_string(&mut self, text: &[u8], verb: char) {
        let length = self.flags.precision.unwrap_or(text.len());
        let text = text.get(..length).unwrap_or(text);
        if text.is_empty() {
            self.padding(self.flags.width.unwrap_or(0));
            return;
        }
        let (digits, prefix): (&[u8], &[u8]) = if verb == 'X' {
            (b"0123456789ABCDEF", b"0X")
        } else {
            (b"0123456789abcdef", b"0x")
        };
        let digit = |nibble: u8| digits.get(usize::from(nibble)).copied().unwrap_or_default();
        let mut encoded = Vec::with_capacity(text.len() * 2);
        for (index, byte) in text.iter().enumerate() {
            if self.flags.space && index > 0 {
                encoded.push(b' ');
            }
            if self.flags.sharp && (self.flags.space || index == 0) {
                encoded.extend_from_slice(prefix);
            }
            encoded.push(digit(byte >> 4));
            encoded.push(digit(byte & 15));
        }
        self.pad(&encoded);
    }
}

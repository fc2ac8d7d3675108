//! Decodes UTF-8 like Go's `unicode/utf8`: a byte that does not begin a valid sequence is one
//! U+FFFD of width 1.

use bounded::Buffer;

/// Go's `utf8.RuneError`, the value of every invalid byte.
pub const RUNE_ERROR: char = '\u{FFFD}';

/// Decodes the first rune of `s` and returns its width in bytes: 0 for empty input, 1 with
/// [`RUNE_ERROR`] for an invalid byte.
#[inline]
pub fn decode_rune(s: &[u8]) -> (char, usize) {
    match s.first() {
        None => (RUNE_ERROR, 0),
        Some(&first) if first < 0x80 => (first as char, 1),
        Some(&first) => decode_multibyte(s, first),
    }
}

fn decode_multibyte(s: &[u8], first: u8) -> (char, usize) {
    let width = match first {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => return (RUNE_ERROR, 1),
    };
    s.get(..width)
        .and_then(|sequence| std::str::from_utf8(sequence).ok())
        .and_then(|text| text.chars().next())
        .map_or((RUNE_ERROR, 1), |rune| (rune, width))
}

/// Decodes the last rune of `s`, like Go's `utf8.DecodeLastRune`.
pub fn decode_last_rune(s: &[u8]) -> (char, usize) {
    if s.is_empty() {
        return (RUNE_ERROR, 0);
    }
    for width in 1..=s.len().min(4) {
        let tail = s.get(s.len() - width..).unwrap_or_default();
        let (rune, decoded) = decode_rune(tail);
        if decoded == width && (rune != RUNE_ERROR || width > 1) {
            return (rune, width);
        }
    }
    (RUNE_ERROR, 1)
}

/// Counts runes like Go's `utf8.RuneCount`: every invalid byte is one.
pub fn rune_count(s: &[u8]) -> usize {
    runes(s).count()
}

/// Returns an iterator over `(offset, rune, width)`.
pub fn runes(s: &[u8]) -> Runes<'_> {
    Runes { rest: s, offset: 0 }
}

/// The iterator behind [`runes`].
#[derive(Debug, Clone)]
pub struct Runes<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl Iterator for Runes<'_> {
    type Item = (usize, char, usize);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (rune, width) = decode_rune(self.rest);
        if width == 0 {
            return None;
        }
        let at = self.offset;
        self.offset += width;
        self.rest = self.rest.get(width..).unwrap_or_default();
        Some((at, rune, width))
    }
}

/// Appends `rune` in UTF-8.
#[inline]
pub fn push_rune(dst: &mut Buffer, rune: char) {
    if rune.is_ascii() {
        dst.push(rune as u8);
    } else {
        dst.extend_from_slice(rune.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_bytes_are_single_replacement_runes() {
        let got: Vec<_> = runes(b"a\xE4\xB8b\xED\xA0\x80\xC3\xA9").collect();
        let bad = |at| (at, RUNE_ERROR, 1);
        let want = [
            (0, 'a', 1),
            bad(1),
            bad(2),
            (3, 'b', 1),
            bad(4),
            bad(5),
            bad(6),
            (7, '\u{e9}', 2),
        ];
        assert_eq!(got, want);
    }

    #[test]
    fn last_rune_is_decoded_backwards() {
        assert_eq!(decode_last_rune("x\u{1F600}".as_bytes()), ('\u{1F600}', 4));
        assert_eq!(decode_last_rune(b"\xE4\xB8"), (RUNE_ERROR, 1));
        assert_eq!(decode_last_rune("\u{FFFD}".as_bytes()), (RUNE_ERROR, 3));
        assert_eq!(decode_last_rune(b""), (RUNE_ERROR, 0));
    }
}

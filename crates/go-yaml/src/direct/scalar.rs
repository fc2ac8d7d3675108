//! Plain and quoted scalars.

use std::borrow::Cow;

use super::DirectReader;
use crate::resolve::Scalar;
use crate::scanner::escape;

impl<'t> DirectReader<'t, '_> {
    /// Returns whether a plain scalar certainly begins here.
    pub(super) fn starts_plain(&self) -> bool {
        match self.byte(0) {
            b'-' | b'?' | b':' => !self.ends_word(1),
            b',' | b'[' | b']' | b'{' | b'}' | b'#' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\''
            | b'"' | b'%' | b'@' | b'`' | b' ' | b'\t' | b'\n' | 0 => false,
            _ => true,
        }
    }

    /// Returns whether there is a space before this character, after `start`.
    pub(super) fn follows_space(&self, start: usize) -> bool {
        self.at > start && self.bytes.get(self.at - 1) == Some(&b' ')
    }

    /// Reads the first line of a plain scalar, or all of a key, without trailing blanks; the `:` of
    /// a key, a comment or the end of the line follows.
    pub(super) fn plain_line(&mut self) -> Option<&'t str> {
        if !self.starts_plain() {
            return None;
        }
        self.rest_of_plain_line()
    }

    fn rest_of_plain_line(&mut self) -> Option<&'t str> {
        let start = self.at;
        loop {
            self.at += until_special(self.here());
            match self.byte(0) {
                b'\n' | 0 => break,
                b'\t' => return None,
                b':' if self.ends_word(1) => break,
                b'#' if self.follows_space(start) => break,
                _ => self.at += 1,
            }
        }
        let mut end = self.at;
        while end > start && self.bytes.get(end - 1) == Some(&b' ') {
            end -= 1;
        }
        self.text.get(start..end)
    }

    /// Reads the lines after the first one of a plain scalar in a collection at the column
    /// `parent`, and advances to the next node.
    pub(super) fn plain_lines(&mut self, first: &'t str, parent: isize) -> Option<()> {
        let mut folded = String::new();
        loop {
            match self.byte(0) {
                b'#' => break,
                b'\n' | 0 => {}
                _ => return None,
            }
            let breaks = self.skip_blank_lines()?;
            let ends = matches!(self.byte(0), b'#' | 0)
                || self.column_here()? <= parent
                || self.at_marker();
            if ends {
                break;
            }
            if folded.is_empty() {
                folded.push_str(first);
            }
            fold(&mut folded, breaks);
            let line = self.rest_of_plain_line()?;
            folded.push_str(line);
        }
        if folded.is_empty() {
            self.push_plain(first)?;
        } else {
            // A scalar with blanks can only be a string.
            self.push(Scalar::Str(folded.into()));
        }
        self.skip_to_next_node()
    }

    /// Reads a quoted scalar up to its end.
    pub(super) fn quoted(&mut self) -> Option<Cow<'t, str>> {
        let quote = self.byte(0);
        self.at += 1;
        let start = self.at;
        if quote == b'\'' {
            self.at += memchr::memchr2(quote, b'\n', self.here())?;
        } else {
            self.at += memchr::memchr3(quote, b'\\', b'\n', self.here())?;
        }
        let text = self.text.get(start..self.at)?;
        if self.byte(0) == quote && (quote == b'"' || self.byte(1) != quote) {
            self.at += 1;
            return Some(Cow::Borrowed(text));
        }
        self.rest_of_quoted(quote, text.to_owned()).map(Cow::Owned)
    }

    /// Reads the rest of a quoted scalar from its first character that needs processing.
    fn rest_of_quoted(&mut self, quote: u8, mut text: String) -> Option<String> {
        // Blanks after this length are removed at the end of the line.
        let mut solid = 0;
        loop {
            match self.byte(0) {
                b'\n' => {
                    let kept = text.trim_end_matches([' ', '\t']).len().max(solid);
                    text.truncate(kept);
                    let breaks = self.skip_blanks_in_quotes()?;
                    fold(&mut text, breaks);
                    solid = text.len();
                }
                b'\\' if quote == b'"' => {
                    let (c, length) = escape(self.here()).ok()?;
                    text.push(c);
                    self.at += length;
                    solid = text.len();
                }
                byte if byte == quote && quote == b'\'' && self.byte(1) == quote => {
                    text.push('\'');
                    self.at += 2;
                }
                byte if byte == quote => {
                    self.at += 1;
                    return Some(text);
                }
                0 => return None,
                _ => {}
            }
            let start = self.at;
            let rest = self.here().iter();
            self.at += rest
                .take_while(|&&byte| byte != quote && byte != b'\\' && byte != b'\n')
                .count();
            if self.byte(0) == b'\\' && quote == b'\'' {
                self.at += 1;
            }
            text.push_str(self.text.get(start..self.at)?);
        }
    }

    /// Skips line breaks and blanks within quotes. Returns the number of breaks.
    fn skip_blanks_in_quotes(&mut self) -> Option<usize> {
        let mut breaks = 0;
        loop {
            match self.byte(0) {
                b'\n' => {
                    self.at += 1;
                    self.line = self.at;
                    breaks += 1;
                    if self.at_marker() {
                        return None;
                    }
                }
                b' ' | b'\t' => self.at += 1,
                _ => return Some(breaks),
            }
        }
    }
}

/// Returns the number of bytes before the first line break, tab, `:` or `#`.
fn until_special(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    // Of eight bytes at once. The lowest mark is exact; one above it may not be.
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word & HIGH;
    let equal = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let (words, rest) = bytes.as_chunks();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // Line breaks and tabs are the only characters below a space.
        let marks = below(word, b' ') | equal(word, b':') | equal(word, b'#');
        if marks != 0 {
            return index * 8 + marks.trailing_zeros() as usize / 8;
        }
    }
    let special = |byte: &u8| matches!(byte, b'\n' | b'\t' | b':' | b'#');
    let rest_length = rest.iter().position(special).unwrap_or(rest.len());
    words.len() * 8 + rest_length
}

/// Joins lines: one break becomes a space, further ones are kept.
fn fold(text: &mut String, breaks: usize) {
    if breaks == 1 {
        text.push(' ');
    } else {
        text.extend(std::iter::repeat_n('\n', breaks.saturating_sub(1)));
    }
}

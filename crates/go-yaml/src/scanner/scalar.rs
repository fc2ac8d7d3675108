//! Scalars in their five styles.

use super::{ScalarStyle, Scanner, TokenKind, into_string};
use crate::mark::{Error, Mark};

impl Scanner<'_> {
    pub(super) fn fetch_block_scalar(&mut self, literal: bool) -> Result<(), Error> {
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        let start = self.mark;
        self.skip();
        let (keep, increment) = self.block_scalar_header()?;
        let mut text = Vec::new();
        let mut indent = increment.map_or(0, |increment| {
            if self.indent >= 0 {
                self.indent.unsigned_abs() + increment
            } else {
                increment
            }
        });
        let mut trailing = Vec::new();
        let mut leading_break = Vec::new();
        self.block_scalar_breaks(&mut indent, &mut trailing)?;
        let mut leading_blank = false;
        while self.mark.column == indent && !self.at_end() {
            let trailing_blank = self.blank(0);
            if !literal
                && !leading_blank
                && !trailing_blank
                && leading_break.first() == Some(&b'\n')
            {
                if trailing.is_empty() {
                    text.push(b' ');
                }
            } else {
                text.extend_from_slice(&leading_break);
            }
            leading_break.clear();
            text.append(&mut trailing);
            leading_blank = self.blank(0);
            while !self.end_or_break(0) {
                self.read(&mut text);
            }
            self.read_break(&mut leading_break);
            self.block_scalar_breaks(&mut indent, &mut trailing)?;
        }
        if keep != Some(false) {
            text.extend_from_slice(&leading_break);
        }
        if keep == Some(true) {
            text.extend_from_slice(&trailing);
        }
        let style = if literal {
            ScalarStyle::Literal
        } else {
            ScalarStyle::Folded
        };
        self.push_scalar(text, style, start);
        Ok(())
    }

    /// Reads chomping (`Some(true)` for `+`, `Some(false)` for `-`) and explicit indentation.
    fn block_scalar_header(&mut self) -> Result<(Option<bool>, Option<usize>), Error> {
        let mut keep = None;
        let mut increment = None;
        // One of each, in either order.
        for _ in 0..2 {
            match self.byte(0) {
                c @ (b'+' | b'-') if keep.is_none() => {
                    keep = Some(c == b'+');
                    self.skip();
                }
                b'0' if increment.is_none() => {
                    let message = "found an indentation indicator equal to 0";
                    return self.fail(message);
                }
                c if c.is_ascii_digit() && increment.is_none() => {
                    increment = Some(usize::from(c - b'0'));
                    self.skip();
                }
                _ => break,
            }
        }
        self.skip_end_of_line()?;
        Ok((keep, increment))
    }

    fn block_scalar_breaks(
        &mut self,
        indent: &mut usize,
        breaks: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let mut widest = 0;
        loop {
            while (*indent == 0 || self.mark.column < *indent) && self.byte(0) == b' ' {
                self.skip();
            }
            widest = widest.max(self.mark.column);
            if (*indent == 0 || self.mark.column < *indent) && self.byte(0) == b'\t' {
                let message = "found a tab character where an indentation space is expected";
                return self.fail(message);
            }
            if self.break_len(0) == 0 {
                break;
            }
            self.read_break(breaks);
        }
        if *indent == 0 {
            let least = usize::try_from(self.indent + 1).unwrap_or(0).max(1);
            *indent = widest.max(least);
        }
        Ok(())
    }

    pub(super) fn fetch_flow_scalar(&mut self, single: bool) -> Result<(), Error> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark;
        let quote = if single { b'\'' } else { b'"' };
        let mut text = Vec::new();
        let mut blanks = Blanks::default();
        self.skip();
        loop {
            if self.at_document_indicator() {
                return self.fail("found unexpected document indicator");
            }
            if self.at_end() {
                return self.fail("found unexpected end of stream");
            }
            while !self.blank_or_end(0) {
                let c = self.byte(0);
                if single && c == b'\'' && self.byte(1) == b'\'' {
                    text.push(b'\'');
                    self.skip_bytes(2);
                } else if c == quote {
                    break;
                } else if !single && c == b'\\' && self.break_len(1) > 0 {
                    self.skip();
                    self.skip_break();
                    blanks.has_break = true;
                    break;
                } else if !single && c == b'\\' {
                    self.escape(&mut text)?;
                } else {
                    self.read(&mut text);
                }
            }
            if self.byte(0) == quote && !self.at_end() {
                break;
            }
            self.read_blanks(&mut blanks, None)?;
            blanks.append_to(&mut text);
        }
        self.skip();
        let style = if single {
            ScalarStyle::SingleQuoted
        } else {
            ScalarStyle::DoubleQuoted
        };
        self.push_scalar(text, style, start);
        Ok(())
    }

    fn push_scalar(&mut self, text: Vec<u8>, style: ScalarStyle, start: Mark) {
        let text = into_string(text);
        self.push(TokenKind::Scalar { text, style }, start);
    }

    /// Reads an escape sequence of a double-quoted scalar.
    fn escape(&mut self, into: &mut Vec<u8>) -> Result<(), Error> {
        let here = self.text.get(self.mark.offset..).unwrap_or_default();
        match escape(here) {
            Ok((c, length)) => {
                into.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                self.skip_bytes(length);
                Ok(())
            }
            Err((length, message)) => {
                self.skip_bytes(length);
                Err(Error::scanner(message, self.mark))
            }
        }
    }

    pub(super) fn fetch_plain_scalar(&mut self) -> Result<(), Error> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark;
        let mut text = Vec::new();
        let mut blanks = Blanks::default();
        let indent = self.indent + 1;
        loop {
            if self.at_document_indicator() || self.byte(0) == b'#' {
                break;
            }
            while !self.blank_or_end(0) {
                let c = self.byte(0);
                // As in yaml.v2, which Helm reads with: in a flow collection every `?` ends a plain
                // scalar, and a `:` only before a blank. yaml.v3 differs in both.
                if (c == b':' && self.blank_or_end(1))
                    || (self.flow_level > 0 && matches!(c, b',' | b'?' | b'[' | b']' | b'{' | b'}'))
                {
                    break;
                }
                blanks.append_to(&mut text);
                self.read(&mut text);
            }
            if !(self.blank(0) || self.break_len(0) > 0) {
                break;
            }
            self.read_blanks(&mut blanks, Some(indent))?;
            let column = isize::try_from(self.mark.column).unwrap_or(isize::MAX);
            if self.flow_level == 0 && column < indent {
                break;
            }
        }
        self.push_scalar(text, ScalarStyle::Plain, start);
        if blanks.has_break {
            self.simple_key_allowed = true;
        }
        Ok(())
    }

    /// Reads blanks and line breaks; in a plain scalar, no tab may stand before the column `indent`.
    fn read_blanks(&mut self, blanks: &mut Blanks, indent: Option<isize>) -> Result<(), Error> {
        while self.blank(0) || self.break_len(0) > 0 {
            if self.blank(0) {
                let column = isize::try_from(self.mark.column).unwrap_or(isize::MAX);
                let is_indented = indent.is_none_or(|indent| column >= indent);
                if !blanks.has_break {
                    self.read(&mut blanks.whitespace);
                } else if !is_indented && self.byte(0) == b'\t' {
                    return self.fail("found a tab character that violates indentation");
                } else {
                    self.skip();
                }
            } else if blanks.has_break {
                self.read_break(&mut blanks.trailing);
            } else {
                blanks.whitespace.clear();
                self.read_break(&mut blanks.leading_break);
                blanks.has_break = true;
            }
        }
        Ok(())
    }
}

/// The blanks and line breaks after a part of a scalar.
#[derive(Default)]
struct Blanks {
    whitespace: Vec<u8>,
    leading_break: Vec<u8>,
    trailing: Vec<u8>,
    has_break: bool,
}

impl Blanks {
    /// Joins lines: one break becomes a space, further ones are kept. Nothing is left.
    fn append_to(&mut self, text: &mut Vec<u8>) {
        if !self.has_break {
            text.append(&mut self.whitespace);
            return;
        }
        let is_line_feed = self.leading_break.first() == Some(&b'\n');
        if is_line_feed && self.trailing.is_empty() {
            text.push(b' ');
        } else if !is_line_feed {
            text.append(&mut self.leading_break);
        }
        text.append(&mut self.trailing);
        self.whitespace.clear();
        self.leading_break.clear();
        self.has_break = false;
    }
}

/// Decodes the escape sequence at the start of `text` and returns its length. For an invalid one,
/// returns the length read and the error.
pub(crate) fn escape(text: &[u8]) -> Result<(char, usize), (usize, &'static str)> {
    let (simple, digits) = match text.get(1).copied().unwrap_or(0) {
        b'0' => ('\0', 0),
        b'a' => ('\x07', 0),
        b'b' => ('\x08', 0),
        b't' | b'\t' => ('\t', 0),
        b'n' => ('\n', 0),
        b'v' => ('\x0b', 0),
        b'f' => ('\x0c', 0),
        b'r' => ('\r', 0),
        b'e' => ('\x1b', 0),
        b' ' => (' ', 0),
        b'"' => ('"', 0),
        b'\'' => ('\'', 0),
        b'\\' => ('\\', 0),
        b'N' => ('\u{85}', 0),
        b'_' => ('\u{a0}', 0),
        b'L' => ('\u{2028}', 0),
        b'P' => ('\u{2029}', 0),
        b'x' => ('\0', 2),
        b'u' => ('\0', 4),
        b'U' => ('\0', 8),
        _ => return Err((0, "found unknown escape character")),
    };
    if digits == 0 {
        return Ok((simple, 2));
    }
    let mut code = 0_u32;
    for ahead in 2..2 + digits {
        let digit = text.get(ahead).and_then(|c| char::from(*c).to_digit(16));
        let digit = digit.ok_or((2, "did not find expected hexdecimal number"))?;
        code = code.wrapping_shl(4) | digit;
    }
    let c = char::from_u32(code).ok_or((2, "found invalid Unicode character escape code"))?;
    Ok((c, 2 + digits))
}

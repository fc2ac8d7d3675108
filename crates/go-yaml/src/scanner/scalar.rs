//! Scalars in their five styles.

use super::{ScalarStyle, Scanner, Token, TokenKind, into_string};
use crate::mark::Error;

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
        let token = Token {
            kind: TokenKind::Scalar {
                text: into_string(text),
                style,
            },
            start,
        };
        self.tokens.push_back(token);
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
                    return Err(Error::scanner(message, self.mark));
                }
                c if c.is_ascii_digit() && increment.is_none() => {
                    increment = Some(usize::from(c - b'0'));
                    self.skip();
                }
                _ => break,
            }
        }
        while self.blank(0) {
            self.skip();
        }
        self.skip_comment();
        if !self.end_or_break(0) {
            return Err(Error::scanner(
                "did not find expected comment or line break",
                self.mark,
            ));
        }
        self.skip_break();
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
                return Err(Error::scanner(message, self.mark));
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
        let mut text = Vec::new();
        let mut whitespace = Vec::new();
        let mut leading_break = Vec::new();
        let mut trailing = Vec::new();
        self.skip();
        loop {
            let triple = [self.byte(0), self.byte(1), self.byte(2)];
            if self.mark.column == 0
                && (triple == *b"---" || triple == *b"...")
                && self.blank_or_end(3)
            {
                return Err(Error::scanner(
                    "found unexpected document indicator",
                    self.mark,
                ));
            }
            if self.at_end() {
                return Err(Error::scanner("found unexpected end of stream", self.mark));
            }
            let mut leading_blanks = false;
            while !self.blank_or_end(0) {
                let c = self.byte(0);
                if single && c == b'\'' && self.byte(1) == b'\'' {
                    text.push(b'\'');
                    self.skip_bytes(2);
                } else if c == if single { b'\'' } else { b'"' } {
                    break;
                } else if !single && c == b'\\' && self.break_len(1) > 0 {
                    self.skip();
                    self.skip_break();
                    leading_blanks = true;
                    break;
                } else if !single && c == b'\\' {
                    self.escape(&mut text)?;
                } else {
                    self.read(&mut text);
                }
            }
            if self.byte(0) == if single { b'\'' } else { b'"' } && !self.at_end() {
                break;
            }
            while self.blank(0) || self.break_len(0) > 0 {
                if self.blank(0) {
                    if leading_blanks {
                        self.skip();
                    } else {
                        self.read(&mut whitespace);
                    }
                } else if leading_blanks {
                    self.read_break(&mut trailing);
                } else {
                    whitespace.clear();
                    self.read_break(&mut leading_break);
                    leading_blanks = true;
                }
            }
            if leading_blanks {
                fold(&mut text, &mut leading_break, &mut trailing);
            } else {
                text.append(&mut whitespace);
            }
            whitespace.clear();
        }
        self.skip();
        let style = if single {
            ScalarStyle::SingleQuoted
        } else {
            ScalarStyle::DoubleQuoted
        };
        self.push(
            TokenKind::Scalar {
                text: into_string(text),
                style,
            },
            start,
        );
        Ok(())
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
        let mut whitespace = Vec::new();
        let mut leading_break = Vec::new();
        let mut trailing = Vec::new();
        let mut leading_blanks = false;
        let indent = self.indent + 1;
        loop {
            let triple = [self.byte(0), self.byte(1), self.byte(2)];
            if self.mark.column == 0
                && (triple == *b"---" || triple == *b"...")
                && self.blank_or_end(3)
            {
                break;
            }
            if self.byte(0) == b'#' {
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
                if leading_blanks {
                    fold(&mut text, &mut leading_break, &mut trailing);
                    whitespace.clear();
                    leading_blanks = false;
                } else {
                    text.append(&mut whitespace);
                }
                self.read(&mut text);
            }
            if !(self.blank(0) || self.break_len(0) > 0) {
                break;
            }
            while self.blank(0) || self.break_len(0) > 0 {
                if self.blank(0) {
                    let column = isize::try_from(self.mark.column).unwrap_or(isize::MAX);
                    if leading_blanks && column < indent && self.byte(0) == b'\t' {
                        return Err(Error::scanner(
                            "found a tab character that violates indentation",
                            self.mark,
                        ));
                    }
                    if leading_blanks {
                        self.skip();
                    } else {
                        self.read(&mut whitespace);
                    }
                } else if leading_blanks {
                    self.read_break(&mut trailing);
                } else {
                    whitespace.clear();
                    self.read_break(&mut leading_break);
                    leading_blanks = true;
                }
            }
            let column = isize::try_from(self.mark.column).unwrap_or(isize::MAX);
            if self.flow_level == 0 && column < indent {
                break;
            }
        }
        let kind = TokenKind::Scalar {
            text: into_string(text),
            style: ScalarStyle::Plain,
        };
        self.tokens.push_back(Token { kind, start });
        if leading_blanks {
            self.simple_key_allowed = true;
        }
        Ok(())
    }
}

/// Joins lines: one break becomes a space, further ones are kept.
fn fold(text: &mut Vec<u8>, leading_break: &mut Vec<u8>, trailing: &mut Vec<u8>) {
    if leading_break.first() == Some(&b'\n') {
        if trailing.is_empty() {
            text.push(b' ');
        } else {
            text.append(trailing);
        }
        leading_break.clear();
    } else {
        text.append(leading_break);
        text.append(trailing);
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

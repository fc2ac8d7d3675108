//! Writes scalars in their styles, folding long lines like Go's packages.

use super::Emitter;
use super::scalar::{self, Analysis, Style, Version};

impl Emitter<'_> {
    fn write(&mut self, c: char) {
        self.out
            .extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        self.column += 1;
    }

    pub(super) fn scalar(&mut self, text: &str, wanted: Style, simple_key: bool) {
        if wanted == Style::SimplePlain {
            if self.fits(text) || simple_key {
                return self.indented(|e| e.write_simple_plain(text));
            }
            return self.indented(|e| e.write_plain(text, !simple_key));
        }
        let style = match wanted {
            // Double quotes can represent every text.
            Style::DoubleQuoted => wanted,
            _ => Analysis::of(text, self.version).choose(wanted, simple_key),
        };
        self.indented(|e| match style {
            Style::SimplePlain | Style::Plain => e.write_plain(text, !simple_key),
            Style::SingleQuoted => e.write_single_quoted(text, !simple_key),
            Style::DoubleQuoted => e.write_double_quoted(text, !simple_key),
            Style::Literal => e.write_literal(text),
        });
    }

    /// Returns whether a text stays within the width, so that nothing is folded.
    fn fits(&self, text: &str) -> bool {
        self.version == Version::V3 || self.column + text.len() < self.version.width()
    }

    /// Writes a whole text if it fits and all of its bytes satisfy `is_plain`. Returns whether it
    /// did.
    fn write_whole(&mut self, text: &str, is_plain: impl Fn(u8) -> bool) -> bool {
        let is_whole = self.column + text.len() < self.version.width()
            && text
                .bytes()
                .all(|byte| (b' '..=b'~').contains(&byte) && is_plain(byte));
        if is_whole {
            self.write_text(text);
        }
        is_whole
    }

    fn write_text(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
        self.column += text.len();
    }

    /// Writes the space before a plain scalar.
    fn separate(&mut self, text: &str) {
        if !self.whitespace && !text.is_empty() {
            self.write(' ');
        }
    }

    pub(super) fn write_simple_plain(&mut self, text: &str) {
        self.separate(text);
        self.write_text(text);
        self.whitespace = false;
        self.indention = false;
    }

    fn write_plain(&mut self, text: &str, allow_breaks: bool) {
        self.separate(text);
        if self.write_whole(text, |_| true) {
            self.whitespace = false;
            self.indention = false;
            return;
        }
        let width = self.version.width();
        let mut spaces = false;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if c == ' ' {
                let next_is_space = chars.peek() == Some(&' ');
                if allow_breaks && !spaces && self.column > width && !next_is_space {
                    self.write_indent();
                } else {
                    self.write(c);
                }
                spaces = true;
            } else {
                self.write(c);
                self.indention = false;
                spaces = false;
            }
        }
        self.whitespace = false;
        self.indention = false;
    }

    fn write_single_quoted(&mut self, text: &str, allow_breaks: bool) {
        self.indicator("'", true, false, false);
        if self.write_whole(text, |byte| byte != b'\'') {
            return self.indicator("'", false, false, false);
        }
        let width = self.version.width();
        let (mut spaces, mut breaks) = (false, false);
        let mut chars = text.char_indices().peekable();
        while let Some((i, c)) = chars.next() {
            let next = chars.peek().map(|(_, next)| *next);
            if c == ' ' {
                let inner = i > 0 && next.is_some() && next != Some(' ');
                if allow_breaks && !spaces && self.column > width && inner {
                    self.write_indent();
                } else {
                    self.write(c);
                }
                spaces = true;
            } else if scalar::is_break(c) {
                if !breaks && c == '\n' {
                    self.put_break();
                }
                self.write_break(c);
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                if c == '\'' {
                    self.write(c);
                }
                self.write(c);
                self.indention = false;
                (spaces, breaks) = (false, false);
            }
        }
        self.indicator("'", false, false, false);
    }

    fn write_double_quoted(&mut self, text: &str, allow_breaks: bool) {
        self.indicator("\"", true, false, false);
        if self.write_whole(text, |byte| byte != b'"' && byte != b'\\') {
            return self.indicator("\"", false, false, false);
        }
        let width = self.version.width();
        let mut spaces = false;
        // Go escapes every character of a text that begins with a byte-order mark.
        let escape_all = text.starts_with('\u{feff}');
        let mut chars = text.char_indices().peekable();
        while let Some((i, c)) = chars.next() {
            if c == ' ' && !escape_all {
                let next = chars.peek().map(|(_, next)| *next);
                if allow_breaks && !spaces && self.column > width && i > 0 && next.is_some() {
                    self.write_indent();
                    if next == Some(' ') {
                        self.write('\\');
                    }
                } else {
                    self.write(c);
                }
                spaces = true;
                continue;
            }
            spaces = false;
            if !escape_all
                && c != '"'
                && c != '\\'
                && scalar::is_printable(c)
                && !scalar::is_break(c)
            {
                self.write(c);
            } else {
                self.write_escape(c);
            }
        }
        self.indicator("\"", false, false, false);
    }

    fn write_escape(&mut self, c: char) {
        self.write_text(&scalar::escape(c));
    }

    fn write_literal(&mut self, text: &str) {
        self.indicator("|", true, false, false);
        let first = text.chars().next();
        if first.is_some_and(|c| c == ' ' || scalar::is_break(c)) {
            self.indicator("2", false, false, false);
        }
        let mut tail = text.chars().rev();
        let last_breaks = tail.next().is_some_and(scalar::is_break);
        if !last_breaks {
            self.indicator("-", false, false, false);
        } else if tail.next().is_none_or(scalar::is_break) {
            self.indicator("+", false, false, false);
        }
        self.put_break();
        self.indention = true;
        self.whitespace = true;
        if text.is_ascii() && !text.contains('\r') {
            return self.write_lines(text);
        }
        let mut breaks = true;
        for c in text.chars() {
            if scalar::is_break(c) {
                self.write_break(c);
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                self.write(c);
                self.indention = false;
                breaks = false;
            }
        }
    }

    /// Writes the lines of a literal scalar whose only line breaks are line feeds.
    fn write_lines(&mut self, text: &str) {
        for line in text.split_inclusive('\n') {
            let content = line.strip_suffix('\n');
            let (content, ends) = (content.unwrap_or(line), content.is_some());
            if !content.is_empty() {
                self.write_indent();
                self.write_text(content);
                self.indention = false;
            }
            if ends {
                self.write_break('\n');
            }
        }
    }

    fn write_break(&mut self, c: char) {
        if c == '\n' {
            self.put_break();
        } else {
            self.write(c);
            self.column = 0;
        }
        self.indention = true;
    }
}

//! Block maps, block lists and block scalars.

use super::{DirectReader, Key, MAX_KEY_LENGTH};
use crate::resolve::Scalar;

impl<'t> DirectReader<'t, '_> {
    /// Reads the node that begins here, in a collection at the column `parent`, and advances to the
    /// next node.
    pub(super) fn block_node(&mut self, parent: isize) -> Option<()> {
        self.nested(|reader| reader.block_node_at_depth(parent))
    }

    fn block_node_at_depth(&mut self, parent: isize) -> Option<()> {
        let column = self.column;
        match self.byte(0) {
            b'-' if self.ends_word(1) => self.block_list(column, false),
            b'"' | b'\'' => {
                let (start, line) = (self.at, self.line);
                let text = self.quoted()?;
                let end = self.at;
                self.skip_spaces();
                if self.byte(0) == b':' && self.ends_word(1) {
                    if self.line != line || end - start > MAX_KEY_LENGTH {
                        return None;
                    }
                    self.at += 1;
                    return self.block_map(column, Key::Quoted(text));
                }
                self.at = end;
                self.push(Scalar::Str(text));
                self.end_line()
            }
            b'[' | b'{' => {
                self.flow_node()?;
                self.end_line()
            }
            b'|' | b'>' => self.block_scalar(parent),
            _ => {
                let text = self.plain_line()?;
                if self.byte(0) == b':' {
                    if text.len() > MAX_KEY_LENGTH {
                        return None;
                    }
                    self.at += 1;
                    return self.block_map(column, Key::Plain(text));
                }
                self.plain_lines(text, parent)
            }
        }
    }

    /// Reads the map at `column` after its first key.
    fn block_map(&mut self, column: isize, first: Key<'t>) -> Option<()> {
        let map = self.begin_map();
        let mut key = first;
        loop {
            self.push_key(&map, key)?;
            self.block_value(column)?;
            if self.column < column {
                break;
            }
            if self.column > column {
                return None;
            }
            key = self.block_key()?;
        }
        self.end_map(&map);
        Some(())
    }

    /// Reads a key and the `:` after it.
    fn block_key(&mut self) -> Option<Key<'t>> {
        let (start, line) = (self.at, self.line);
        let key = match self.byte(0) {
            b'"' | b'\'' => {
                let text = self.quoted()?;
                self.skip_spaces();
                Key::Quoted(text)
            }
            b'-' if self.ends_word(1) => return None,
            _ => Key::Plain(self.plain_line()?),
        };
        let fits = self.line == line && self.at - start <= MAX_KEY_LENGTH;
        if !fits || self.byte(0) != b':' || !self.ends_word(1) {
            return None;
        }
        self.at += 1;
        Some(key)
    }

    /// Reads the value after the `:` of a key of the map at `column`.
    fn block_value(&mut self, column: isize) -> Option<()> {
        self.skip_spaces();
        match self.byte(0) {
            b'\n' | b'#' | 0 => {
                self.skip_line();
                self.skip_to_next_node()?;
                if self.column > column {
                    self.block_node(column)
                } else if self.column == column && self.byte(0) == b'-' && self.ends_word(1) {
                    self.nested(|reader| reader.block_list(column, true))
                } else {
                    self.push_null()?;
                    Some(())
                }
            }
            b'"' | b'\'' => {
                let text = self.quoted()?;
                self.push(Scalar::Str(text));
                self.end_line()
            }
            b'[' | b'{' => {
                self.flow_node()?;
                self.end_line()
            }
            b'|' | b'>' => self.block_scalar(column),
            b'-' if self.ends_word(1) => None,
            _ => {
                let text = self.plain_line()?;
                self.plain_lines(text, column)
            }
        }
    }

    /// Reads the list whose dashes are at `column`. An indentless list is the value of a key at the
    /// same column, so that another key may follow it.
    fn block_list(&mut self, column: isize, indentless: bool) -> Option<()> {
        let list = self.begin_list();
        loop {
            self.at += 1;
            self.skip_spaces();
            match self.byte(0) {
                b'\n' | b'#' | 0 => {
                    self.skip_line();
                    self.skip_to_next_node()?;
                    if self.column > column {
                        self.block_node(column)?;
                    } else {
                        self.push_null()?;
                    }
                }
                _ => {
                    self.column = self.column_here()?;
                    self.block_node(column)?;
                }
            }
            let another = self.byte(0) == b'-' && self.ends_word(1);
            if self.column > column || (self.column == column && !another && !indentless) {
                return None;
            }
            if self.column < column || !another {
                break;
            }
        }
        self.end_list(&list);
        Some(())
    }

    /// Reads a literal or folded scalar in a collection at the column `parent`.
    fn block_scalar(&mut self, parent: isize) -> Option<()> {
        let literal = self.byte(0) == b'|';
        self.at += 1;
        let (chomping, indent) = self.block_scalar_header(parent)?;
        let mut text = String::new();
        let (indent, mut breaks) = match indent {
            Some(indent) => (indent, self.block_scalar_breaks(indent)?),
            None => self.detect_indent(parent)?,
        };
        // The text is not needed if it is only checked.
        let is_kept = self.part.is_some();
        let mut broken = false;
        let mut after_blank = false;
        while self.at - self.line == indent && self.at < self.bytes.len() {
            let start = self.at;
            self.skip_line();
            if is_kept {
                let line = self.text.get(start..self.at)?;
                let blank = line.starts_with([' ', '\t']);
                if broken {
                    if literal || after_blank || blank {
                        text.push('\n');
                    } else if breaks == 0 {
                        text.push(' ');
                    }
                }
                text.extend(std::iter::repeat_n('\n', breaks));
                text.push_str(line);
                after_blank = blank;
            }
            broken = self.byte(0) == b'\n';
            self.next_line();
            breaks = self.block_scalar_breaks(indent)?;
        }
        if broken && chomping != Chomping::Strip {
            text.push('\n');
        }
        if chomping == Chomping::Keep {
            text.extend(std::iter::repeat_n('\n', breaks));
        }
        self.push(Scalar::Str(text.into()));
        self.skip_to_next_node()
    }

    /// Reads the chomping indicator and, if present, the indentation.
    fn block_scalar_header(&mut self, parent: isize) -> Option<(Chomping, Option<usize>)> {
        let mut chomping = None;
        let mut indent = None;
        loop {
            match self.byte(0) {
                b'+' if chomping.is_none() => chomping = Some(Chomping::Keep),
                b'-' if chomping.is_none() => chomping = Some(Chomping::Strip),
                digit @ b'1'..=b'9' if indent.is_none() => {
                    let outer = usize::try_from(parent).unwrap_or(0);
                    indent = Some(outer + usize::from(digit - b'0'));
                }
                _ => break,
            }
            self.at += 1;
        }
        match self.byte(0) {
            b' ' => {
                self.skip_spaces();
                if self.byte(0) == b'#' {
                    self.skip_line();
                }
            }
            b'\n' | 0 => {}
            _ => return None,
        }
        if !matches!(self.byte(0), b'\n' | 0) {
            return None;
        }
        self.next_line();
        Some((chomping.unwrap_or(Chomping::Clip), indent))
    }

    /// Skips a line break, if there is one.
    fn next_line(&mut self) {
        if self.byte(0) == b'\n' {
            self.at += 1;
            self.line = self.at;
        }
    }

    /// Skips the blank lines before a block scalar and detects its indentation. Also returns the
    /// number of lines.
    fn detect_indent(&mut self, parent: isize) -> Option<(usize, usize)> {
        let mut widest = usize::try_from(parent + 1).unwrap_or(0).max(1);
        let mut breaks = 0;
        loop {
            self.skip_spaces();
            widest = widest.max(self.at - self.line);
            match self.byte(0) {
                b'\n' => {
                    self.next_line();
                    breaks += 1;
                }
                b'\t' => return None,
                _ => return Some((widest, breaks)),
            }
        }
    }

    /// Skips blank lines and the following indentation. Returns the number of lines.
    fn block_scalar_breaks(&mut self, indent: usize) -> Option<usize> {
        let mut breaks = 0;
        loop {
            while self.at - self.line < indent && self.byte(0) == b' ' {
                self.at += 1;
            }
            match self.byte(0) {
                b'\n' => {
                    self.next_line();
                    breaks += 1;
                }
                b'\t' if self.at - self.line < indent => return None,
                _ => return Some(breaks),
            }
        }
    }
}

/// Treatment of the line breaks at the end of a block scalar.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chomping {
    /// Keeps one.
    Clip,
    /// Removes all.
    Strip,
    Keep,
}

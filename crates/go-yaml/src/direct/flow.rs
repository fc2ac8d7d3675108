//! Flow collections: `[…]` and `{…}`, including JSON.

use super::{DirectReader, Key, MAX_KEY_LENGTH};
use crate::resolve::Scalar;

impl<'t> DirectReader<'t, '_> {
    /// Reads the node that begins here, up to its end.
    pub(super) fn flow_node(&mut self) -> Option<()> {
        match self.byte(0) {
            b'[' => self.nested(Self::flow_list),
            b'{' => self.nested(Self::flow_map),
            b'"' | b'\'' => {
                let text = self.quoted()?;
                self.push(Scalar::Str(text));
                Some(())
            }
            _ => {
                let text = self.flow_plain()?;
                self.push_plain(text)
            }
        }
    }

    fn flow_list(&mut self) -> Option<()> {
        let list = self.begin_list();
        self.at += 1;
        loop {
            self.skip_flow_blanks()?;
            if self.byte(0) == b']' {
                break;
            }
            self.flow_node()?;
            self.skip_flow_blanks()?;
            match self.byte(0) {
                b',' => self.at += 1,
                b']' => break,
                _ => return None,
            }
        }
        self.at += 1;
        self.end_list(&list);
        Some(())
    }

    fn flow_map(&mut self) -> Option<()> {
        let map = self.begin_map();
        self.at += 1;
        loop {
            self.skip_flow_blanks()?;
            if self.byte(0) == b'}' {
                break;
            }
            let key = self.flow_key()?;
            self.push_key(&map, key)?;
            self.skip_flow_blanks()?;
            if matches!(self.byte(0), b',' | b'}') {
                self.push_null()?;
            } else {
                self.flow_node()?;
                self.skip_flow_blanks()?;
            }
            match self.byte(0) {
                b',' => self.at += 1,
                b'}' => break,
                _ => return None,
            }
        }
        self.at += 1;
        self.end_map(&map);
        Some(())
    }

    /// Reads a key and the `:` after it on the same line. A key without a value may have no `:`.
    fn flow_key(&mut self) -> Option<Key<'t>> {
        let (start, line) = (self.at, self.line);
        let key = match self.byte(0) {
            b'"' | b'\'' => Key::Quoted(self.quoted()?),
            _ => Key::Plain(self.flow_plain()?),
        };
        self.skip_spaces();
        if self.line != line || self.at - start > MAX_KEY_LENGTH {
            return None;
        }
        match self.byte(0) {
            b':' => self.at += 1,
            b',' | b'}' => {}
            _ => return None,
        }
        Some(key)
    }

    /// Skips spaces, line breaks and comments.
    fn skip_flow_blanks(&mut self) -> Option<()> {
        loop {
            let start = self.at;
            self.skip_blank_lines()?;
            if self.byte(0) == b'#' && self.at > start {
                self.skip_line();
                continue;
            }
            // Possibly a marker or a directive.
            let is_marker = self.at == self.line && matches!(self.byte(0), b'-' | b'.' | b'%');
            return (!is_marker).then_some(());
        }
    }

    /// Reads a plain scalar on one line, without trailing blanks.
    fn flow_plain(&mut self) -> Option<&'t str> {
        if !self.starts_plain() || matches!(self.byte(0), b'?' | b':') {
            return None;
        }
        let start = self.at;
        loop {
            let ends = |byte| matches!(byte, b',' | b'[' | b']' | b'{' | b'}');
            match self.byte(0) {
                b'\n' | 0 => break,
                b'\t' | b'?' => return None,
                b':' if self.ends_word(1) => break,
                b'#' if self.follows_space(start) => break,
                byte if ends(byte) => break,
                _ => self.at += 1,
            }
        }
        let text = self.text.get(start..self.at)?.trim_end_matches(' ');
        (!text.is_empty()).then_some(text)
    }
}

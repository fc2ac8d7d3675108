//! Splits text into tokens by the rules of libyaml, which Go's packages follow.
#![allow(
    clippy::indexing_slicing,
    reason = "every index is the end of a run of bytes that was just measured, or a simple-key level that always exists"
)]

mod property;
mod scalar;

use std::collections::VecDeque;

use crate::mark::{Error, Mark};
pub(crate) use scalar::escape;

/// The style in which a scalar was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScalarStyle {
    /// Without quotes.
    Plain,
    /// `'…'`
    SingleQuoted,
    /// `"…"`
    DoubleQuoted,
    /// `|`
    Literal,
    /// `>`
    Folded,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenKind {
    StreamEnd,
    VersionDirective { major: u32, minor: u32 },
    TagDirective { handle: String, prefix: String },
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(String),
    Anchor(String),
    Tag { handle: String, suffix: String },
    Scalar { text: String, style: ScalarStyle },
}

#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: Mark,
}

#[derive(Debug, Clone, Copy, Default)]
struct SimpleKey {
    possible: bool,
    required: bool,
    token_number: usize,
    mark: Mark,
    /// Whether the scanner no longer reads ahead until the key is certain; see
    /// [`Scanner::fetch_flow_end`].
    forgotten: bool,
}

/// Maximum nesting of blocks, and of flow collections, in Go.
const MAX_DEPTH: usize = 10_000;

/// Maximum length of the text before the `:` of a simple key.
const SIMPLE_KEY_LIMIT: usize = 1024;

pub(crate) struct Scanner<'a> {
    text: &'a [u8],
    mark: Mark,
    tokens: VecDeque<Token>,
    parsed: usize,
    indent: isize,
    indents: Vec<isize>,
    simple_key_allowed: bool,
    simple_keys: Vec<SimpleKey>,
    flow_level: usize,
    ended: bool,
    /// Limit on the nesting of blocks, and on that of flow collections.
    max_depth: usize,
}

impl<'a> Scanner<'a> {
    /// Creates a scanner whose limit of the nesting is the lower of Go's and `max_depth`; a byte-order mark
    /// at the start is skipped.
    pub(crate) fn new(text: &'a str, max_depth: usize) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self {
            text: text.as_bytes(),
            mark: Mark::default(),
            tokens: VecDeque::new(),
            parsed: 0,
            indent: -1,
            indents: Vec::new(),
            simple_key_allowed: true,
            simple_keys: vec![SimpleKey::default()],
            flow_level: 0,
            ended: false,
            max_depth: max_depth.min(MAX_DEPTH),
        }
    }

    /// Returns the offset up to which the text was read.
    pub(crate) fn position(&self) -> usize {
        self.mark.offset
    }

    /// Returns the next token without consuming it.
    pub(crate) fn peek(&mut self) -> Result<&Token, Error> {
        self.fill()?;
        self.tokens
            .front()
            .ok_or_else(|| Error::scanner("unexpected end of stream", self.mark))
    }

    /// Consumes the next token.
    pub(crate) fn take(&mut self) -> Result<Token, Error> {
        self.fill()?;
        self.parsed += 1;
        self.tokens
            .pop_front()
            .ok_or_else(|| Error::scanner("unexpected end of stream", self.mark))
    }

    fn fill(&mut self) -> Result<(), Error> {
        loop {
            let mut needed = self.tokens.is_empty();
            if !needed {
                // The first token may turn out to be a key.
                let head = self.parsed;
                needed = match self.key_at(head) {
                    Some(index) => self.is_key_possible(index)?,
                    None => false,
                };
            }
            if !needed || self.ended {
                return Ok(());
            }
            self.fetch()?;
        }
    }

    /// Returns an error at the current position.
    fn fail<T>(&self, message: impl Into<String>) -> Result<T, Error> {
        Err(Error::scanner(message, self.mark))
    }

    // === Characters ===

    fn byte(&self, ahead: usize) -> u8 {
        self.text
            .get(self.mark.offset + ahead)
            .copied()
            .unwrap_or(0)
    }

    fn at_end(&self) -> bool {
        self.mark.offset >= self.text.len()
    }

    fn blank(&self, ahead: usize) -> bool {
        matches!(self.byte(ahead), b' ' | b'\t')
    }

    /// Returns the length of the line break at `ahead`, or 0.
    fn break_len(&self, ahead: usize) -> usize {
        match (self.byte(ahead), self.byte(ahead + 1), self.byte(ahead + 2)) {
            (b'\r', b'\n', _) | (0xC2, 0x85, _) => 2,
            (b'\r' | b'\n', ..) => 1,
            (0xE2, 0x80, 0xA8 | 0xA9) => 3,
            _ => 0,
        }
    }

    fn end_or_break(&self, ahead: usize) -> bool {
        self.mark.offset + ahead >= self.text.len() || self.break_len(ahead) > 0
    }

    fn blank_or_end(&self, ahead: usize) -> bool {
        self.blank(ahead) || self.end_or_break(ahead)
    }

    fn skip(&mut self) {
        let width = char_width(self.byte(0));
        self.mark.offset += width;
        self.mark.column += 1;
    }

    fn skip_blanks(&mut self) {
        while self.blank(0) {
            self.skip();
        }
    }

    fn skip_bytes(&mut self, count: usize) {
        self.mark.offset += count;
        self.mark.column += count;
    }

    fn skip_break(&mut self) {
        let len = self.break_len(0);
        self.mark.offset += len;
        if len > 0 {
            self.mark.column = 0;
            self.mark.line += 1;
        }
    }

    /// Copies one character.
    fn read(&mut self, into: &mut Vec<u8>) {
        let width = char_width(self.byte(0));
        let start = self.mark.offset;
        let end = (start + width).min(self.text.len());
        into.extend_from_slice(&self.text[start..end]);
        self.mark.offset = end;
        self.mark.column += 1;
    }

    /// Copies one line break in normalized form.
    fn read_break(&mut self, into: &mut Vec<u8>) {
        match self.break_len(0) {
            0 => return,
            3 => into.extend_from_slice(&self.text[self.mark.offset..self.mark.offset + 3]),
            _ => into.push(b'\n'),
        }
        self.skip_break();
    }

    // === Simple keys ===

    /// Returns the level whose simple key may begin with the token of this number.
    fn key_at(&self, number: usize) -> Option<usize> {
        // A level is opened by a token after the key of the enclosing level.
        let first = self
            .simple_keys
            .partition_point(|key| key.token_number < number);
        let mut keys = self
            .simple_keys
            .get(first..)
            .unwrap_or_default()
            .iter()
            .take_while(|key| key.token_number == number);
        let index = keys.position(|key| key.possible && !key.forgotten)?;
        Some(first + index)
    }

    /// Returns whether a simple key is still possible: it must stay within a line and the length
    /// limit.
    fn is_key_possible(&mut self, index: usize) -> Result<bool, Error> {
        let mark = self.mark;
        let Some(key) = self.simple_keys.get_mut(index) else {
            return Ok(false);
        };
        let stale = key.mark.line < mark.line || key.mark.column + SIMPLE_KEY_LIMIT < mark.column;
        if key.possible && stale {
            if key.required {
                return Err(Error::scanner("could not find expected ':'", mark));
            }
            key.possible = false;
        }
        Ok(key.possible)
    }

    fn save_simple_key(&mut self) -> Result<(), Error> {
        let required = self.flow_level == 0 && usize::try_from(self.indent) == Ok(self.mark.column);
        if self.simple_key_allowed {
            self.remove_simple_key()?;
            let number = self.parsed + self.tokens.len();
            if let Some(key) = self.simple_keys.last_mut() {
                *key = SimpleKey {
                    possible: true,
                    required,
                    token_number: number,
                    mark: self.mark,
                    forgotten: false,
                };
            }
        }
        Ok(())
    }

    fn remove_simple_key(&mut self) -> Result<(), Error> {
        if let Some(key) = self.simple_keys.last_mut() {
            if key.possible && key.required {
                return Err(Error::scanner("could not find expected ':'", self.mark));
            }
            key.possible = false;
        }
        Ok(())
    }

    // === Indentation ===

    fn roll_indent(
        &mut self,
        column: usize,
        number: Option<usize>,
        kind: TokenKind,
        mark: Mark,
    ) -> Result<(), Error> {
        let column = isize::try_from(column).unwrap_or(isize::MAX);
        if self.flow_level > 0 || self.indent >= column {
            return Ok(());
        }
        self.indents.push(self.indent);
        self.indent = column;
        self.check_depth(self.indents.len())?;
        self.insert(number, Token { kind, start: mark });
        Ok(())
    }

    fn check_depth(&self, depth: usize) -> Result<(), Error> {
        if depth > self.max_depth {
            return self.fail(format!("exceeded max depth of {}", self.max_depth));
        }
        Ok(())
    }

    /// Begins a block at this column, unless it is in a flow collection; `refused` is the error where
    /// there can be none.
    fn begin_block(&mut self, kind: TokenKind, refused: &str) -> Result<(), Error> {
        if self.flow_level > 0 {
            return Ok(());
        }
        if !self.simple_key_allowed {
            return self.fail(refused);
        }
        self.roll_indent(self.mark.column, None, kind, self.mark)
    }

    /// Inserts a token before the one with this number, or at the end if there is no number or that
    /// token was consumed.
    fn insert(&mut self, number: Option<usize>, token: Token) {
        match number.and_then(|number| number.checked_sub(self.parsed)) {
            Some(index) if index <= self.tokens.len() => self.tokens.insert(index, token),
            _ => self.tokens.push_back(token),
        }
    }

    fn unroll_indent(&mut self, column: isize) {
        if self.flow_level > 0 {
            return;
        }
        while self.indent > column {
            self.push(TokenKind::BlockEnd, self.mark);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn push(&mut self, kind: TokenKind, start: Mark) {
        self.tokens.push_back(Token { kind, start });
    }

    /// Adds the token of the next character.
    fn push_indicator(&mut self, kind: TokenKind) {
        self.push(kind, self.mark);
        self.skip();
    }

    // === Tokens ===

    fn fetch(&mut self) -> Result<(), Error> {
        self.scan_to_next_token()?;
        self.unroll_indent(isize::try_from(self.mark.column).unwrap_or(isize::MAX));
        if self.at_end() {
            return self.fetch_stream_end();
        }
        let c = self.byte(0);
        if self.mark.column == 0 && c == b'%' {
            return self.fetch_directive();
        }
        if self.at_document_indicator() {
            let kind = if c == b'-' {
                TokenKind::DocumentStart
            } else {
                TokenKind::DocumentEnd
            };
            return self.fetch_document_indicator(kind);
        }
        match c {
            b'[' => self.fetch_flow_start(TokenKind::FlowSequenceStart),
            b'{' => self.fetch_flow_start(TokenKind::FlowMappingStart),
            b']' => self.fetch_flow_end(TokenKind::FlowSequenceEnd),
            b'}' => self.fetch_flow_end(TokenKind::FlowMappingEnd),
            b',' => self.fetch_flow_entry(),
            b'-' if self.blank_or_end(1) => self.fetch_block_entry(),
            b'?' if self.flow_level > 0 || self.blank_or_end(1) => self.fetch_key(),
            b':' if self.flow_level > 0 || self.blank_or_end(1) => self.fetch_value(),
            b'*' => self.fetch_anchor(true),
            b'&' => self.fetch_anchor(false),
            b'!' => self.fetch_tag(),
            b'|' if self.flow_level == 0 => self.fetch_block_scalar(true),
            b'>' if self.flow_level == 0 => self.fetch_block_scalar(false),
            b'\'' => self.fetch_flow_scalar(true),
            b'"' => self.fetch_flow_scalar(false),
            _ if self.starts_plain(c) => self.fetch_plain_scalar(),
            _ => self.fail("found character that cannot start any token"),
        }
    }

    fn at_document_indicator(&self) -> bool {
        let triple = [self.byte(0), self.byte(1), self.byte(2)];
        self.mark.column == 0 && matches!(&triple, b"---" | b"...") && self.blank_or_end(3)
    }

    fn starts_plain(&self, c: u8) -> bool {
        let indicator = b"-?:,[]{}#&*!|>'\"%@`".contains(&c);
        (!indicator && !self.blank_or_end(0))
            || (c == b'-' && !self.blank(1))
            || (self.flow_level == 0 && matches!(c, b'?' | b':') && !self.blank_or_end(1))
    }

    fn fetch_stream_end(&mut self) -> Result<(), Error> {
        if self.mark.column != 0 {
            self.mark.column = 0;
            self.mark.line += 1;
        }
        self.unroll_indent(-1);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        self.push(TokenKind::StreamEnd, self.mark);
        self.ended = true;
        Ok(())
    }

    fn fetch_document_indicator(&mut self, kind: TokenKind) -> Result<(), Error> {
        self.unroll_indent(-1);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark;
        self.skip_bytes(3);
        self.push(kind, start);
        Ok(())
    }

    fn fetch_flow_start(&mut self, kind: TokenKind) -> Result<(), Error> {
        self.save_simple_key()?;
        self.simple_keys.push(SimpleKey {
            token_number: self.parsed + self.tokens.len(),
            ..SimpleKey::default()
        });
        self.flow_level += 1;
        self.check_depth(self.flow_level)?;
        self.simple_key_allowed = true;
        self.push_indicator(kind);
        Ok(())
    }

    fn fetch_flow_end(&mut self, kind: TokenKind) -> Result<(), Error> {
        self.remove_simple_key()?;
        if self.flow_level > 0 {
            self.flow_level -= 1;
            let inner = self.simple_keys.pop();
            // yaml.v2 finds keys by the number of their token. The level of an empty collection
            // still has the number of its bracket, so closing the level also discards the possible
            // key that starts at the collection. The parser then takes `{}` before the `:` is seen,
            // and the document ends there, whatever follows.
            if let (Some(inner), Some(outer)) = (inner, self.simple_keys.last_mut())
                && inner.token_number == outer.token_number
            {
                outer.forgotten = true;
            }
        }
        self.simple_key_allowed = false;
        self.push_indicator(kind);
        Ok(())
    }

    fn fetch_flow_entry(&mut self) -> Result<(), Error> {
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        self.push_indicator(TokenKind::FlowEntry);
        Ok(())
    }

    fn fetch_block_entry(&mut self) -> Result<(), Error> {
        let refused = "block sequence entries are not allowed in this context";
        self.begin_block(TokenKind::BlockSequenceStart, refused)?;
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        self.push_indicator(TokenKind::BlockEntry);
        Ok(())
    }

    fn fetch_key(&mut self) -> Result<(), Error> {
        let refused = "mapping keys are not allowed in this context";
        self.begin_block(TokenKind::BlockMappingStart, refused)?;
        self.remove_simple_key()?;
        self.simple_key_allowed = self.flow_level == 0;
        self.push_indicator(TokenKind::Key);
        Ok(())
    }

    fn fetch_value(&mut self) -> Result<(), Error> {
        let is_key = self.is_key_possible(self.simple_keys.len().saturating_sub(1))?;
        let key = self.simple_keys.last().copied().unwrap_or_default();
        if is_key {
            let token = Token {
                kind: TokenKind::Key,
                start: key.mark,
            };
            self.insert(Some(key.token_number), token);
            self.roll_indent(
                key.mark.column,
                Some(key.token_number),
                TokenKind::BlockMappingStart,
                key.mark,
            )?;
            if let Some(key) = self.simple_keys.last_mut() {
                key.possible = false;
            }
            self.simple_key_allowed = false;
        } else {
            let refused = "mapping values are not allowed in this context";
            self.begin_block(TokenKind::BlockMappingStart, refused)?;
            self.simple_key_allowed = self.flow_level == 0;
        }
        self.push_indicator(TokenKind::Value);
        Ok(())
    }

    fn skip_comment(&mut self) {
        if self.byte(0) == b'#' {
            while !self.end_or_break(0) {
                self.skip();
            }
        }
    }

    /// Skips blanks, a comment and the line break after them.
    fn skip_end_of_line(&mut self) -> Result<(), Error> {
        self.skip_blanks();
        self.skip_comment();
        if !self.end_or_break(0) {
            return self.fail("did not find expected comment or line break");
        }
        self.skip_break();
        Ok(())
    }

    fn scan_to_next_token(&mut self) -> Result<(), Error> {
        loop {
            while self.byte(0) == b' '
                || ((self.flow_level > 0 || !self.simple_key_allowed) && self.byte(0) == b'\t')
            {
                self.skip();
            }
            self.skip_comment();
            if self.break_len(0) == 0 {
                return Ok(());
            }
            self.skip_break();
            if self.flow_level == 0 {
                self.simple_key_allowed = true;
            }
        }
    }
}

fn is_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'_' || c == b'-'
}

/// Returns the length of the character that begins with this byte.
fn char_width(first: u8) -> usize {
    match first {
        0..=0xBF => 1,
        0xC0..=0xDF => 2,
        0xE0..=0xEF => 3,
        _ => 4,
    }
}

/// Converts bytes, which are whole characters of a `str`, to a string.
fn into_string(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

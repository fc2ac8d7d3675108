//! Splits a template into tokens by Go's rules.
#![allow(
    clippy::indexing_slicing,
    reason = "positions are ends of tokens, so they never exceed the text"
)]

use crate::ast::Pos;
use crate::delimiters::Delimiters;
use crate::go::strconv::quoted;
use crate::go::unicode::{is_digit, is_letter, is_print};
use crate::go::utf8::{RUNE_ERROR, decode_rune};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// The lexer failed; [`Lexer::error`] has the message.
    Error,
    Bool,
    /// A printable ASCII character without another meaning, such as a comma.
    Char,
    CharConstant,
    Complex,
    Assign,
    Declare,
    Eof,
    Field,
    Identifier,
    LeftDelim,
    LeftParen,
    Number,
    Pipe,
    RawString,
    RightDelim,
    RightParen,
    String,
    Text,
    Variable,
    Block,
    Break,
    Continue,
    Dot,
    Define,
    Else,
    End,
    If,
    Nil,
    Range,
    Template,
    With,
}

impl TokenKind {
    pub(crate) fn is_keyword(self) -> bool {
        self as u8 >= Self::Block as u8
    }
}

/// A token: a range of the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    /// Whether white space precedes it inside its action.
    pub(crate) is_spaced: bool,
    pub(crate) start: Pos,
    pub(crate) end: Pos,
}

impl Token {
    /// Returns its bytes in `text`.
    #[inline]
    pub(crate) fn of(self, text: &[u8]) -> &[u8] {
        &text[self.start as usize..self.end as usize]
    }
}

/// Maximum number of tokens of an action that are read at once.
const MAX_TOKENS: usize = 64;

/// The longest text that offsets can address.
pub(crate) const MAX_TEXT_LENGTH: usize = Pos::MAX as usize;

/// Returns tokens one by one.
#[allow(
    clippy::struct_excessive_bools,
    reason = "they do not depend on each other"
)]
pub(crate) struct Lexer<'t> {
    text: &'t [u8],
    left: &'t [u8],
    right: &'t [u8],
    start: usize,
    pos: usize,
    paren_depth: usize,
    inside_action: bool,
    /// Whether white space precedes the next token.
    is_spaced: bool,
    error: Option<String>,
    /// Whether `break` and `continue` are keywords: they are unless functions have these names.
    pub(crate) break_is_keyword: bool,
    pub(crate) continue_is_keyword: bool,
}

const LEFT_COMMENT: &[u8] = b"/*";
const RIGHT_COMMENT: &[u8] = b"*/";
/// A trim marker and the space that separates it.
const TRIM: usize = 2;

impl<'t> Lexer<'t> {
    /// Creates a lexer that starts outside of actions and reads at most [`MAX_TEXT_LENGTH`] bytes of
    /// `text`.
    pub(crate) fn new(text: &'t [u8], delimiters: &'t Delimiters) -> Self {
        let text = text.get(..MAX_TEXT_LENGTH).unwrap_or(text);
        Self {
            text,
            left: delimiters.left.as_bytes(),
            right: delimiters.right.as_bytes(),
            start: 0,
            pos: 0,
            paren_depth: 0,
            inside_action: false,
            is_spaced: false,
            error: None,
            break_is_keyword: true,
            continue_is_keyword: true,
        }
    }

    pub(crate) fn text(&self) -> &'t [u8] {
        self.text
    }

    /// Returns the message of the last error token.
    pub(crate) fn error(&self) -> &str {
        self.error.as_deref().unwrap_or_default()
    }

    /// Adds tokens: up to the end of an action, or the text before one, and at most [`MAX_TOKENS`].
    pub(crate) fn read(&mut self, tokens: &mut Vec<Token>) {
        for _ in 0..MAX_TOKENS {
            let token = self.next_token();
            tokens.push(token);
            if !self.inside_action || self.error.is_some() {
                return;
            }
        }
    }

    /// Returns the next token. After an error, all tokens are errors.
    fn next_token(&mut self) -> Token {
        if self.error.is_some() {
            return self.token(TokenKind::Error);
        }
        if self.inside_action {
            self.action()
        } else {
            self.content()
        }
    }

    /// Returns the token from `start` to the current position.
    #[inline]
    fn token(&mut self, kind: TokenKind) -> Token {
        let token = Token {
            kind,
            is_spaced: self.is_spaced,
            start: narrow(self.start),
            end: narrow(self.pos),
        };
        self.start = self.pos;
        self.is_spaced = false;
        token
    }

    /// Drops the text from `start` to the current position.
    fn ignore(&mut self) {
        self.start = self.pos;
    }

    fn fail(&mut self, message: impl Into<String>) -> Token {
        self.error = Some(message.into());
        self.token(TokenKind::Error)
    }

    fn rest(&self) -> &'t [u8] {
        &self.text[self.pos..]
    }

    fn peek(&self) -> Option<char> {
        match decode_rune(self.rest()) {
            (_, 0) => None,
            (rune, _) => Some(rune),
        }
    }

    fn bump(&mut self) -> Option<char> {
        let (rune, size) = decode_rune(self.rest());
        self.pos += size;
        (size > 0).then_some(rune)
    }

    /// Scans text up to the next action, or the action's left delimiter.
    fn content(&mut self) -> Token {
        loop {
            let Some(found) = find(self.rest(), self.left) else {
                self.pos = self.text.len();
                let is_text = self.pos > self.start;
                return self.token(if is_text {
                    TokenKind::Text
                } else {
                    TokenKind::Eof
                });
            };
            let delimiter = self.pos + found;
            if found > 0 {
                self.pos = delimiter;
                if has_left_trim(&self.text[delimiter + self.left.len()..]) {
                    self.pos = self.start + trim_end(&self.text[self.start..delimiter]);
                }
                let text = self.token(TokenKind::Text);
                self.pos = delimiter;
                self.ignore();
                if text.end > text.start {
                    return text;
                }
            }
            self.pos = delimiter + self.left.len();
            let trims = has_left_trim(self.rest());
            let marker = if trims { TRIM } else { 0 };
            if !self.text[self.pos + marker..].starts_with(LEFT_COMMENT) {
                let token = self.token(TokenKind::LeftDelim);
                self.pos += marker;
                self.ignore();
                self.inside_action = true;
                self.paren_depth = 0;
                return token;
            }
            self.pos += marker;
            self.ignore();
            if let Some(error) = self.comment() {
                return error;
            }
        }
    }

    /// Skips a comment and the white space that it trims.
    fn comment(&mut self) -> Option<Token> {
        self.pos += LEFT_COMMENT.len();
        let Some(end) = find(self.rest(), RIGHT_COMMENT) else {
            return Some(self.fail("unclosed comment"));
        };
        self.pos += end + RIGHT_COMMENT.len();
        let Some(trims) = self.at_right_delim() else {
            return Some(self.fail("comment ends before closing delimiter"));
        };
        self.skip_right_delim(trims);
        self.ignore();
        None
    }

    /// Returns whether a right delimiter follows and, if so, whether it trims.
    fn at_right_delim(&self) -> Option<bool> {
        let rest = self.rest();
        if has_right_trim(rest) && rest[TRIM..].starts_with(self.right) {
            return Some(true);
        }
        rest.starts_with(self.right).then_some(false)
    }

    fn skip_right_delim(&mut self, trims: bool) {
        self.pos += self.right.len();
        if trims {
            self.pos += TRIM + spaces(&self.rest()[TRIM..]);
        }
    }

    fn right_delim(&mut self, trims: bool) -> Token {
        if trims {
            self.pos += TRIM;
            self.ignore();
        }
        self.pos += self.right.len();
        let token = self.token(TokenKind::RightDelim);
        if trims {
            self.pos += spaces(self.rest());
            self.ignore();
        }
        self.inside_action = false;
        token
    }

    /// Scans a token inside an action.
    fn action(&mut self) -> Token {
        let byte = loop {
            let Some(&byte) = self.text.get(self.pos) else {
                return self.fail("unclosed action");
            };
            let is_space = is_space(byte);
            if (is_space || byte == self.right[0])
                && let Some(trims) = self.at_right_delim()
            {
                if self.paren_depth == 0 {
                    return self.right_delim(trims);
                }
                return self.fail("unclosed left paren");
            }
            if !is_space {
                break byte;
            }
            self.skip_space();
        };
        if WORD[usize::from(byte)] && !byte.is_ascii_digit() {
            return self.identifier();
        }
        if !byte.is_ascii() {
            return self.letter();
        }
        self.pos += 1;
        match byte {
            b'$' => self.field_or_variable(TokenKind::Variable),
            b'.' if !self.rest().first().is_some_and(u8::is_ascii_digit)
                && self.pos < self.text.len() =>
            {
                self.field_or_variable(TokenKind::Field)
            }
            b'"' => self.quoted(b'"', TokenKind::String, "unterminated quoted string"),
            b'|' => self.token(TokenKind::Pipe),
            b'(' => {
                self.paren_depth += 1;
                self.token(TokenKind::LeftParen)
            }
            b')' if self.paren_depth == 0 => self.fail("unexpected right paren"),
            b')' => {
                self.paren_depth -= 1;
                self.token(TokenKind::RightParen)
            }
            b'=' => self.token(TokenKind::Assign),
            b':' => match self.bump() {
                Some('=') => self.token(TokenKind::Declare),
                _ => self.fail("expected :="),
            },
            b'\'' => self.quoted(
                b'\'',
                TokenKind::CharConstant,
                "unterminated character constant",
            ),
            b'`' => match memchr::memchr(b'`', self.rest()) {
                Some(length) => {
                    self.pos += length + 1;
                    self.token(TokenKind::RawString)
                }
                None => self.fail("unterminated raw quoted string"),
            },
            b'.' | b'+' | b'-' | b'0'..=b'9' => {
                self.pos = self.start;
                self.number()
            }
            b' '..=b'~' => self.token(TokenKind::Char),
            _ => self.unrecognized(char::from(byte)),
        }
    }

    /// Scans an identifier that begins with a non-ASCII character.
    fn letter(&mut self) -> Token {
        match self.bump() {
            Some(rune) if is_alphanumeric(rune) => self.identifier(),
            rune => self.unrecognized(rune.unwrap_or(RUNE_ERROR)),
        }
    }

    fn unrecognized(&mut self, rune: char) -> Token {
        let rune = unicode(rune);
        self.fail(format!("unrecognized character in action: {rune}"))
    }

    /// Skips white space inside an action, except for the last if it belongs to a right delimiter.
    fn skip_space(&mut self) {
        let spaces = spaces(self.rest());
        let last = self.pos + spaces - 1;
        let trims = spaces > 1
            && has_right_trim(&self.text[last..])
            && self.text[last + TRIM..].starts_with(self.right);
        self.pos = if trims { last } else { last + 1 };
        self.is_spaced = true;
        self.ignore();
    }

    /// Scans a string or character constant up to its closing quote, on one line.
    fn quoted(&mut self, quote: u8, kind: TokenKind, unterminated: &str) -> Token {
        loop {
            let Some(&byte) = self.rest().first() else {
                return self.fail(unterminated);
            };
            self.pos += 1;
            match byte {
                b'\\' => match self.rest().first() {
                    None | Some(b'\n') => return self.fail(unterminated),
                    Some(_) => self.pos += 1,
                },
                b'\n' => return self.fail(unterminated),
                _ if byte == quote => return self.token(kind),
                _ => {}
            }
        }
    }

    fn identifier(&mut self) -> Token {
        self.skip_alphanumeric();
        if !self.at_terminator() {
            return self.bad_character();
        }
        let kind = match &self.text[self.start..self.pos] {
            b"block" => TokenKind::Block,
            b"break" if self.break_is_keyword => TokenKind::Break,
            b"continue" if self.continue_is_keyword => TokenKind::Continue,
            b"define" => TokenKind::Define,
            b"else" => TokenKind::Else,
            b"end" => TokenKind::End,
            b"if" => TokenKind::If,
            b"nil" => TokenKind::Nil,
            b"range" => TokenKind::Range,
            b"template" => TokenKind::Template,
            b"with" => TokenKind::With,
            b"true" | b"false" => TokenKind::Bool,
            _ => TokenKind::Identifier,
        };
        self.token(kind)
    }

    /// Scans a field or variable after its first character.
    fn field_or_variable(&mut self, kind: TokenKind) -> Token {
        if self.at_terminator() {
            let is_variable = kind == TokenKind::Variable;
            return self.token(if is_variable { kind } else { TokenKind::Dot });
        }
        self.skip_alphanumeric();
        if !self.at_terminator() {
            return self.bad_character();
        }
        self.token(kind)
    }

    #[inline]
    fn skip_alphanumeric(&mut self) {
        loop {
            let rest = self.rest();
            let word = rest.iter().position(|byte| !WORD[usize::from(*byte)]);
            self.pos += word.unwrap_or(rest.len());
            let is_ascii = self.rest().first().is_none_or(u8::is_ascii);
            if is_ascii || !self.peek().is_some_and(is_alphanumeric) {
                return;
            }
            self.bump();
        }
    }

    fn bad_character(&mut self) -> Token {
        let rune = self.peek().unwrap_or(RUNE_ERROR);
        self.fail(format!("bad character {}", unicode(rune)))
    }

    /// Returns whether an identifier may end here.
    #[inline]
    fn at_terminator(&self) -> bool {
        match self.rest().first() {
            None | Some(b' ' | b'\t' | b'\r' | b'\n' | b'.' | b',' | b'|' | b':' | b')' | b'(') => {
                true
            }
            Some(_) => self.rest().starts_with(self.right),
        }
    }

    fn number(&mut self) -> Token {
        if !self.scan_number() {
            return self.bad_number();
        }
        if matches!(self.peek(), Some('+' | '-')) {
            // A complex constant, such as 1+2i, has no spaces and must end with i.
            if !self.scan_number() || self.text[self.pos - 1] != b'i' {
                return self.bad_number();
            }
            return self.token(TokenKind::Complex);
        }
        self.token(TokenKind::Number)
    }

    fn bad_number(&mut self) -> Token {
        let text = quoted(&self.text[self.start..self.pos]);
        self.fail(format!("bad number syntax: {text}"))
    }

    /// Accepts everything that could be a number; the parser rejects invalid ones.
    fn scan_number(&mut self) -> bool {
        self.accept(b"+-");
        let mut digits: &[u8] = b"0123456789_";
        if self.accept(b"0") {
            if self.accept(b"xX") {
                digits = b"0123456789abcdefABCDEF_";
            } else if self.accept(b"oO") {
                digits = b"01234567_";
            } else if self.accept(b"bB") {
                digits = b"01_";
            }
        }
        self.accept_run(digits);
        if self.accept(b".") {
            self.accept_run(digits);
        }
        let exponent: &[u8] = match digits.len() {
            11 => b"eE",
            23 => b"pP",
            _ => b"",
        };
        if self.accept(exponent) {
            self.accept(b"+-");
            self.accept_run(b"0123456789_");
        }
        self.accept(b"i");
        if self.peek().is_some_and(is_alphanumeric) {
            self.bump();
            return false;
        }
        true
    }

    fn accept(&mut self, valid: &[u8]) -> bool {
        let accepted = self.rest().first().is_some_and(|byte| valid.contains(byte));
        self.pos += usize::from(accepted);
        accepted
    }

    fn accept_run(&mut self, valid: &[u8]) {
        while self.accept(valid) {}
    }
}

/// Converts an offset for a token; texts are short enough for it to fit.
#[inline]
#[allow(
    clippy::cast_possible_truncation,
    reason = "a lexer reads at most MAX_TEXT_LENGTH bytes"
)]
fn narrow(offset: usize) -> Pos {
    offset as Pos
}

/// Finds a text that is not empty. Its first byte is rare enough to search for it alone.
fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let second = wanted.get(1);
    memchr::memchr_iter(wanted[0], text).find(|at| {
        let is_second = second.is_none() || text.get(at + 1) == second;
        is_second && (wanted.len() <= 2 || text[*at..].starts_with(wanted))
    })
}

/// The bytes of identifiers in ASCII.
static WORD: [bool; 256] = {
    let mut word = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        word[byte as usize] = byte.is_ascii_alphanumeric() || byte == b'_';
        byte += 1;
    }
    word
};

#[inline]
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Returns the number of white space characters that a text begins with.
fn spaces(text: &[u8]) -> usize {
    text.iter().take_while(|byte| is_space(**byte)).count()
}

fn is_alphanumeric(rune: char) -> bool {
    rune == '_' || is_letter(rune) || is_digit(rune)
}

fn has_left_trim(text: &[u8]) -> bool {
    matches!(text, [b'-', space, ..] if is_space(*space))
}

fn has_right_trim(text: &[u8]) -> bool {
    matches!(text, [space, b'-', ..] if is_space(*space))
}

/// Returns the length without trailing white space.
fn trim_end(text: &[u8]) -> usize {
    let last = text.iter().rposition(|byte| !is_space(*byte));
    last.map_or(0, |last| last + 1)
}

/// Formats like `%#U`: the code point, and the rune itself if it is printable.
fn unicode(rune: char) -> String {
    let code = u32::from(rune);
    if is_print(rune) {
        format!("U+{code:04X} '{rune}'")
    } else {
        format!("U+{code:04X}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(TokenKind, String)> {
        let delimiters = Delimiters::default();
        let mut lexer = Lexer::new(text.as_bytes(), &delimiters);
        let mut tokens = Vec::new();
        loop {
            let token = lexer.next_token();
            match token.kind {
                TokenKind::Eof => return tokens,
                TokenKind::Error => {
                    tokens.push((token.kind, lexer.error().to_owned()));
                    return tokens;
                }
                kind => {
                    let text = String::from_utf8_lossy(token.of(text.as_bytes()));
                    tokens.push((kind, text.into_owned()));
                }
            }
        }
    }

    #[test]
    fn trim_markers_remove_white_space_on_their_side() {
        let tokens = kinds("a \n{{- 1 -}}\n b {{/* c */ -}} d");
        let texts: Vec<_> = tokens
            .iter()
            .filter(|(kind, _)| *kind == TokenKind::Text)
            .map(|(_, text)| text.as_str())
            .collect();
        assert_eq!(texts, ["a", "b ", "d"]);
        // A minus that belongs to a number does not trim.
        assert_eq!(kinds("{{-3}}")[1], (TokenKind::Number, "-3".to_owned()));
    }

    #[test]
    fn errors_match_go() {
        for (text, message) in [
            ("{{", "unclosed action"),
            ("{{/*", "unclosed comment"),
            ("{{/* */ }}", "comment ends before closing delimiter"),
            ("{{\"a", "unterminated quoted string"),
            ("{{`a", "unterminated raw quoted string"),
            ("{{'a", "unterminated character constant"),
            ("{{(}}", "unclosed left paren"),
            ("{{)}}", "unexpected right paren"),
            ("{{$x+2}}", "bad character U+002B '+'"),
            ("{{1a}}", "bad number syntax: \"1a\""),
            ("{{\u{1}}}", "unrecognized character in action: U+0001"),
            ("{{:x}}", "expected :="),
        ] {
            let last = (TokenKind::Error, message.to_owned());
            assert_eq!(kinds(text).pop(), Some(last), "{text}");
        }
    }
}

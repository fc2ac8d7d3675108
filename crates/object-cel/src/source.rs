//! The text of an expression: its tokens, what is refused before it is parsed, and the positions of its parts.
//!
//! `cel` parses recursively, and reads some texts otherwise than CEL: it drops one of two `!`, and keeps a backslash
//! before the other kind of quote. Such texts are refused.

use std::sync::Arc;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::SourceInfo;
use kube_cel::cel::parser::{ParseErrors, Parser};

use crate::ExpressionError;

/// Limit on the text, in bytes.
const MAX_LENGTH: usize = 4096;

/// Limit on operators, brackets and fields within each other.
const MAX_NESTING: usize = 32;

/// The stack of the parser, in bytes. Unoptimised, it needs 8 MiB for the most nested text.
const STACK: usize = 32 * 1024 * 1024;

/// What is wrong at an offset of the text.
pub(crate) struct Wrong(pub(crate) usize, pub(crate) String);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    Number,
    Quoted,
    Symbol,
}

#[derive(Clone, Copy)]
struct Token<'s> {
    kind: Kind,
    start: usize,
    text: &'s str,
}

/// A text that can be parsed.
pub(crate) struct Source<'s> {
    text: &'s str,
    tokens: Vec<Token<'s>>,
    positions: Option<Arc<SourceInfo>>,
}

impl<'s> Source<'s> {
    /// Parses a text.
    pub(crate) fn parse(text: &'s str) -> Result<(Self, IdedExpr), ExpressionError> {
        if text.len() > MAX_LENGTH {
            let message = format!("an expression has at most {MAX_LENGTH} bytes");
            return Err(ExpressionError {
                message,
                line: 1,
                column: 1,
            });
        }
        let tokens = tokens(text);
        refuse_nesting(&tokens)
            .and_then(|()| refuse_misread(&tokens))
            .map_err(|wrong| locate(text, wrong))?;
        let parse = |text: &str| {
            let parser = Parser::new().enable_optional_syntax(true);
            stacker::grow(STACK, || parser.parse(text))
        };
        let tree = parse(text).map_err(|errors| first(&errors))?;
        // The parser shows the positions of its nodes only with an error. The brackets are its first node.
        let failing = format!("[{text}\n,{}]", u128::MAX);
        let failure = parse(&failing).err();
        let mut errors = failure.into_iter().flat_map(|failure| failure.errors);
        let positions = errors.find_map(|error| error.source_info);
        let source = Self {
            text,
            tokens,
            positions,
        };
        Ok((source, tree))
    }

    /// Returns the offset of the token that is the start of a node.
    pub(crate) fn offset(&self, id: u64) -> usize {
        let positions = self.positions.as_ref();
        let offset = positions.and_then(|positions| positions.offset_for(id + 1));
        offset.map_or(0, |(start, _)| (start as usize).saturating_sub(1))
    }

    /// Returns the offset of the name after the point of a selection.
    pub(crate) fn field_offset(&self, id: u64) -> usize {
        let start = self.offset(id);
        let after = self.tokens.iter().skip_while(|token| token.start < start);
        let name = after.skip(1).find(|token| token.kind == Kind::Word);
        name.map_or(start, |token| token.start)
    }

    /// Returns the offset of the name before the bracket of a call.
    pub(crate) fn name_offset(&self, id: u64) -> usize {
        let start = self.offset(id);
        let before = self.tokens.iter().take_while(|token| token.start < start);
        match before.last() {
            Some(token) if token.kind == Kind::Word && self.text_at(start) == Some("(") => {
                token.start
            }
            _ => start,
        }
    }

    /// Returns the offset of the last name within the brackets of a call, as that of `has(a.b)`.
    pub(crate) fn last_name_offset(&self, id: u64) -> usize {
        let start = self.offset(id);
        let mut depth = 0_usize;
        let within = self
            .tokens
            .iter()
            .skip_while(|token| token.start < start)
            .take_while(|token| {
                match token.text {
                    "(" => depth += 1,
                    ")" => depth = depth.saturating_sub(1),
                    _ => {}
                }
                depth > 0
            });
        let name = within.filter(|token| token.kind == Kind::Word).last();
        name.map_or(start, |token| token.start)
    }

    fn text_at(&self, offset: usize) -> Option<&'s str> {
        let token = self.tokens.iter().find(|token| token.start == offset);
        token.map(|token| token.text)
    }

    /// Returns the error with its line and column.
    pub(crate) fn locate(&self, wrong: Wrong) -> ExpressionError {
        locate(self.text, wrong)
    }
}

fn locate(text: &str, Wrong(offset, message): Wrong) -> ExpressionError {
    let before = text.get(..offset).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    ExpressionError {
        message,
        line: before.matches('\n').count() + 1,
        column: line.chars().count() + 1,
    }
}

/// Returns the first error of the parser.
fn first(errors: &ParseErrors) -> ExpressionError {
    let first = errors.errors.first();
    let message = first.map_or("syntax error", |error| &error.msg);
    let place = |number: isize| usize::try_from(number).unwrap_or(1).max(1);
    let (line, column) = first.map_or((1, 1), |error| error.pos);
    ExpressionError {
        message: message.replacen("Syntax error", "syntax error", 1),
        line: place(line),
        column: place(column),
    }
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        if rest.starts_with("//") {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
            continue;
        }
        let Some(first) = rest.chars().next() else {
            return tokens;
        };
        let (kind, length) = token(rest, first);
        let (text_of, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
        tokens.push(Token {
            kind,
            start: text.len() - rest.len(),
            text: text_of,
        });
        rest = after;
    }
}

/// Returns the kind and the length of the token at the start of a text.
fn token(rest: &str, first: char) -> (Kind, usize) {
    if let Some(length) = quoted(rest) {
        return (Kind::Quoted, length);
    }
    let length_while = |is_part: &dyn Fn(char) -> bool| {
        let end = rest.find(|c| !is_part(c));
        end.unwrap_or(rest.len())
    };
    let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    if first.is_ascii_alphabetic() || first == '_' {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        return (Kind::Word, length_while(&is_part));
    }
    if is_number(rest) || rest.strip_prefix('.').is_some_and(is_number) {
        return (Kind::Number, number(rest));
    }
    let is_pair = ["==", "!=", "<=", ">=", "&&", "||"]
        .iter()
        .any(|pair| rest.starts_with(pair));
    (Kind::Symbol, if is_pair { 2 } else { first.len_utf8() })
}

fn number(rest: &str) -> usize {
    let is_hex = rest.starts_with("0x");
    let mut before = ' ';
    let end = rest.char_indices().find(|(at, c)| {
        let is_part = match c {
            '.' => {
                let after = rest.get(at + 1..).and_then(|after| after.chars().next());
                !is_hex && after.is_some_and(|c| c.is_ascii_digit())
            }
            '+' | '-' => !is_hex && matches!(before, 'e' | 'E'),
            c => c.is_ascii_alphanumeric(),
        };
        before = *c;
        !is_part
    });
    end.map_or(rest.len(), |(at, _)| at)
}

/// Returns the length of a string or of bytes.
fn quoted(rest: &str) -> Option<usize> {
    let (prefix, quote) = parts(rest)?;
    let is_raw = prefix.contains(['r', 'R']);
    let body = rest.get(prefix.len()..)?;
    let long = quote.to_string().repeat(3);
    let (open, close) = if body.starts_with(&long) {
        (3, long)
    } else {
        (1, quote.to_string())
    };
    let mut rest_of = body.get(open..)?;
    loop {
        if rest_of.starts_with(&close) {
            return Some(rest.len() - rest_of.len() + close.len());
        }
        let mut chars = rest_of.chars();
        match chars.next() {
            Some('\\') if !is_raw => {
                chars.next();
            }
            Some('\n') if open == 1 => return Some(rest.len() - rest_of.len()),
            Some(_) => {}
            None => return Some(rest.len()),
        }
        rest_of = chars.as_str();
    }
}

/// Returns the prefix and the quote of a string or of bytes.
fn parts(text: &str) -> Option<(&str, char)> {
    let end = text.find(['\'', '"'])?;
    let (prefix, after) = text.split_at_checked(end)?;
    let is_prefix = prefix.len() <= 2 && prefix.chars().all(|c| "rRbB".contains(c));
    Some((prefix, after.chars().next()?)).filter(|_| is_prefix)
}

/// The operators around a token, within brackets.
#[derive(Clone, Copy, Default)]
struct Frame {
    start: usize,
    base: usize,
    operators: usize,
    steps: usize,
}

impl Frame {
    fn depth(self) -> usize {
        self.base + self.operators + self.steps
    }

    /// Begins another operand of an operator whose operands are all as deep.
    fn restart(&mut self, base: usize) {
        self.base = base;
        self.operators = 0;
        self.steps = 0;
    }
}

/// Refuses a text whose tree is too deep.
fn refuse_nesting(tokens: &[Token<'_>]) -> Result<(), Wrong> {
    let mut outer: Vec<Frame> = Vec::new();
    let mut frame = Frame::default();
    let mut before = "";
    for token in tokens.iter().filter(|token| token.kind != Kind::Quoted) {
        match token.text {
            "(" | "[" | "{" => {
                outer.push(frame);
                let start = frame.depth() + 1;
                frame = Frame::default();
                frame.start = start;
                frame.base = start;
            }
            ")" | "]" | "}" => {
                frame = outer.pop().unwrap_or_default();
                frame.steps += 1;
            }
            "." => frame.steps += 1,
            "+" | "-" | "*" | "/" | "%" | "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "!" => {
                frame.operators += 1;
                frame.steps = 0;
            }
            "?" if !matches!(before, "." | "[") => frame.restart(frame.base + 1),
            "&&" | "||" | ":" => frame.restart(frame.base),
            "," => frame.restart(frame.start),
            _ => {}
        }
        if frame.depth() > MAX_NESTING {
            let message = format!("more than {MAX_NESTING} levels of nesting");
            return Err(Wrong(token.start, message));
        }
        before = token.text;
    }
    Ok(())
}

/// Refuses what `cel` reads otherwise than CEL.
fn refuse_misread(tokens: &[Token<'_>]) -> Result<(), Wrong> {
    // Whether the token before is an operator, and the text of that operator if it has one operand.
    let mut is_operand_next = true;
    let mut unary = "";
    for token in tokens {
        let wrong = |message: &str| Err(Wrong(token.start, message.to_owned()));
        let is_unary = is_operand_next && matches!(token.text, "!" | "-");
        if is_unary && token.text == unary {
            return wrong("write brackets between two operators, as in !(!x)");
        }
        if token.kind == Kind::Symbol && token.text == "`" {
            return wrong("names in backquotes are not supported; write a-b as a__dash__b");
        }
        if let (Kind::Quoted, Some((prefix, quote))) = (token.kind, parts(token.text)) {
            let body = token.text.get(prefix.len()..).unwrap_or_default();
            let is_raw = prefix.contains(['r', 'R']);
            let is_bytes = prefix.contains(['b', 'B']);
            let closing = body.get(..body.len().saturating_sub(1)).unwrap_or_default();
            let slashes = closing.len() - closing.trim_end_matches('\\').len();
            if body.starts_with(&quote.to_string().repeat(3)) {
                return wrong(
                    "strings with three quotes are not supported; write \\n for a new line",
                );
            }
            if is_bytes && (is_raw || body.contains('\\')) {
                return wrong("bytes with escapes are not supported");
            }
            if is_raw && slashes % 2 == 1 {
                return wrong("a raw string that ends with a backslash is not supported");
            }
            if !is_raw && has_needless_escape(body, quote) {
                return wrong("write the other kind of quote without a backslash");
            }
        }
        unary = if is_unary { token.text } else { "" };
        is_operand_next = match token.kind {
            Kind::Symbol => !matches!(token.text, ")" | "]" | "}"),
            Kind::Word => token.text == "in",
            _ => false,
        };
    }
    Ok(())
}

/// Whether a backslash is before the kind of quote that is not around the string.
fn has_needless_escape(body: &str, quote: char) -> bool {
    let other = if quote == '"' { '\'' } else { '"' };
    let mut chars = body.chars();
    while let Some(c) = chars.next() {
        if c == '\\' && chars.next() == Some(other) {
            return true;
        }
    }
    false
}

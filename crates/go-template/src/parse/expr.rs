//! Pipelines, commands and operands.

use super::build::{Build, Word};
use super::{Parser, Result};
use crate::go::strconv::quote;
use crate::lex::{Token, TokenKind};

impl<'t, B: Build<'t>> Parser<'t, B> {
    /// Parses a pipeline up to `end`.
    pub(super) fn pipeline(&mut self, context: &str, end: TokenKind) -> Result<B::Pipe> {
        let start = self.peek_non_space().start;
        let mut pipe = self.builder.pipe(start);
        let mut variables = 0;
        while self.declaration(context, &mut pipe, &mut variables)? {}
        let mut stages = 0;
        // The first of the later commands that starts with something that takes no argument.
        let mut misplaced = None;
        loop {
            let token = self.next_non_space();
            match token.kind {
                kind if kind == end => {
                    if stages == 0 {
                        return Err(self.error(format!("missing value for {context}")));
                    }
                    if let Some(stage) = misplaced {
                        let message = format!("non executable command in pipeline stage {stage}");
                        return Err(self.error(message));
                    }
                    return Ok(self.builder.close_pipe(pipe));
                }
                TokenKind::Bool
                | TokenKind::CharConstant
                | TokenKind::Complex
                | TokenKind::Dot
                | TokenKind::Field
                | TokenKind::Identifier
                | TokenKind::Number
                | TokenKind::Nil
                | TokenKind::RawString
                | TokenKind::String
                | TokenKind::Variable
                | TokenKind::LeftParen => {
                    self.backup();
                    let (command, is_plain) = self.command()?;
                    self.builder.stage(&mut pipe, command);
                    stages += 1;
                    if is_plain && stages > 1 {
                        misplaced = misplaced.or(Some(stages));
                    }
                }
                _ => return Err(self.unexpected(token, context)),
            }
        }
    }

    /// Parses a variable that the pipeline declares or assigns, if any. Returns whether another may
    /// follow.
    fn declaration(
        &mut self,
        context: &str,
        pipe: &mut B::OpenPipe,
        variables: &mut usize,
    ) -> Result<bool> {
        let variable = self.peek_non_space();
        if variable.kind != TokenKind::Variable {
            return Ok(false);
        }
        self.next();
        // White space is a token. For `$x foo`, all three tokens are put back, and $x is an
        // argument.
        let after = self.peek();
        let next = self.peek_non_space();
        match next.kind {
            TokenKind::Assign | TokenKind::Declare => {
                self.next_non_space();
                self.declare(variable, pipe, next.kind == TokenKind::Assign);
                Ok(false)
            }
            TokenKind::Char if self.bytes(next) == b"," => {
                self.next_non_space();
                self.declare(variable, pipe, false);
                *variables += 1;
                if context != "range" || *variables >= 2 {
                    return Err(self.error(format!("too many declarations in {context}")));
                }
                match self.peek_non_space().kind {
                    TokenKind::Variable | TokenKind::RightDelim | TokenKind::RightParen => Ok(true),
                    _ => Err(self.error("range can only initialize variables")),
                }
            }
            _ => {
                if after.kind == TokenKind::Space {
                    self.backup3(variable, after);
                } else {
                    self.backup2(variable);
                }
                Ok(false)
            }
        }
    }

    fn declare(&mut self, variable: Token, pipe: &mut B::OpenPipe, is_assign: bool) {
        let name = self.bytes(variable);
        self.builder.variable(pipe, name, is_assign);
        self.scope.variables.push(name);
    }

    /// Parses operands up to a pipe, which is consumed, or the end of the pipeline, which is not.
    /// Also returns whether the first operand takes no argument.
    fn command(&mut self) -> Result<(B::Command, bool)> {
        let start = self.peek_non_space().start;
        let mut command = self.builder.command(start);
        let mut first = None;
        loop {
            self.peek_non_space();
            if let Some(is_plain) = self.operand()? {
                self.builder.argument(&mut command);
                first = first.or(Some(is_plain));
            }
            if self.skip_space() {
                continue;
            }
            let token = self.next();
            match token.kind {
                TokenKind::Space => {}
                TokenKind::RightDelim | TokenKind::RightParen => {
                    self.backup();
                    break;
                }
                TokenKind::Pipe => break,
                _ => return Err(self.unexpected(token, "operand")),
            }
        }
        match first {
            Some(is_plain) => Ok((command, is_plain)),
            None => Err(self.error("empty command")),
        }
    }

    /// Parses a term with its fields, if a term follows. Returns whether it takes no argument.
    fn operand(&mut self) -> Result<Option<bool>> {
        let Some((token, is_plain)) = self.term()? else {
            return Ok(None);
        };
        if !self.may_be_field() {
            return Ok(Some(is_plain));
        }
        let first = self.peek();
        if first.kind != TokenKind::Field {
            return Ok(Some(is_plain));
        }
        while self.may_be_field() && self.peek().kind == TokenKind::Field {
            let field = self.next();
            if !is_plain {
                let name = self.field_name(field);
                self.builder.field(first.start, name);
            }
        }
        if is_plain {
            self.peek();
            let text = quote(self.bytes(token));
            let text = String::from_utf8_lossy(&text);
            return Err(self.error(format!("unexpected . after term {text}")));
        }
        Ok(Some(false))
    }

    /// Parses a literal, function, variable, field or parenthesized pipeline, if one follows.
    /// Returns its first token, and whether it is a literal or dot, which have no fields and take
    /// no argument.
    fn term(&mut self) -> Result<Option<(Token, bool)>> {
        let token = self.next_non_space();
        let is_plain = !matches!(
            token.kind,
            TokenKind::Identifier | TokenKind::Variable | TokenKind::Field | TokenKind::LeftParen
        );
        let mut pos = token.start;
        let word = match token.kind {
            TokenKind::Identifier => {
                let name = self.bytes(token);
                let Some((id, func)) = self.funcs.find(name) else {
                    let name = quote(name);
                    let name = String::from_utf8_lossy(&name);
                    return Err(self.error(format!("function {name} not defined")));
                };
                Word::Function { name, id, func }
            }
            TokenKind::Dot => Word::Dot,
            TokenKind::Nil => Word::Nil,
            TokenKind::Variable => {
                let name = self.bytes(token);
                if name != b"$" && !self.scope.variables.contains(&name) {
                    let name = quote(name);
                    let name = String::from_utf8_lossy(&name);
                    return Err(self.error(format!("undefined variable {name}")));
                }
                Word::Variable(name)
            }
            TokenKind::Field => Word::Field(self.field_name(token)),
            TokenKind::Bool => Word::Bool(self.bytes(token) == b"true"),
            TokenKind::CharConstant | TokenKind::Complex | TokenKind::Number => {
                let number = super::number::parse(self.bytes(token), token.kind);
                Word::Number(Box::new(number.map_err(|message| self.error(message))?))
            }
            TokenKind::LeftParen => {
                let (start, pipe) = self.nest(|parser| {
                    let start = parser.peek_non_space().start;
                    let pipe = parser.pipeline("parenthesized pipeline", TokenKind::RightParen)?;
                    Ok((start, pipe))
                })?;
                pos = start;
                Word::Pipe(pipe)
            }
            TokenKind::String | TokenKind::RawString => Word::Text {
                quoted: token.start..token.end,
                text: self.text(token)?,
            },
            _ => {
                self.backup();
                return Ok(None);
            }
        };
        self.builder.operand(pos, word);
        Ok(Some((token, is_plain)))
    }
}

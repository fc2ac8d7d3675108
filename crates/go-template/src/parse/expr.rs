//! Pipelines, commands and operands.

use super::build::{Build, Word};
use super::{Parser, Result};
use crate::go::strconv::quoted;
use crate::lex::{Token, TokenKind};

impl<'t, B: Build<'t>> Parser<'t, B> {
    /// Parses a pipeline up to `end`.
    pub(super) fn pipeline(&mut self, context: &str, end: TokenKind) -> Result<B::Pipe> {
        let start = self.peek().start;
        let mut pipe = self.builder.pipe(start);
        let mut variables = 0;
        while self.declaration(context, &mut pipe, &mut variables)? {}
        let mut stages = 0;
        // The first of the later commands that starts with something that takes no argument.
        let mut misplaced = None;
        loop {
            let token = self.next();
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
                    self.backup(1);
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
        let variable = self.peek();
        if variable.kind != TokenKind::Variable {
            return Ok(false);
        }
        self.next();
        let next = self.peek();
        match next.kind {
            TokenKind::Assign | TokenKind::Declare => {
                self.next();
                self.declare(variable, pipe, next.kind == TokenKind::Assign);
                Ok(false)
            }
            TokenKind::Char if self.bytes(next) == b"," => {
                self.next();
                self.declare(variable, pipe, false);
                *variables += 1;
                if context != "range" || *variables >= 2 {
                    return Err(self.error(format!("too many declarations in {context}")));
                }
                match self.peek().kind {
                    TokenKind::Variable | TokenKind::RightDelim | TokenKind::RightParen => Ok(true),
                    _ => Err(self.error("range can only initialize variables")),
                }
            }
            // It is an operand.
            _ => {
                self.backup(1);
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
        let start = self.peek().start;
        let mut command = self.builder.command(start);
        let mut first = None;
        loop {
            let operand = self.operand()?;
            let is_operand = operand.is_some();
            if let Some((operand, is_plain)) = operand {
                self.builder.argument(&mut command, operand);
                first = first.or(Some(is_plain));
            }
            let token = self.next();
            match token.kind {
                TokenKind::RightDelim | TokenKind::RightParen => {
                    self.backup(1);
                    break;
                }
                TokenKind::Pipe => break,
                _ if token.is_spaced && is_operand => self.backup(1),
                _ => return Err(self.unexpected(token, "operand")),
            }
        }
        match first {
            Some(is_plain) => Ok((command, is_plain)),
            None => Err(self.error("empty command")),
        }
    }

    /// Parses a term with its fields, if a term follows. Also returns whether it takes no argument.
    #[inline]
    fn operand(&mut self) -> Result<Option<(B::Operand, bool)>> {
        let Some((token, is_plain, mut operand)) = self.term()? else {
            return Ok(None);
        };
        let first = self.peek();
        if first.kind != TokenKind::Field || first.is_spaced {
            return Ok(Some((operand, is_plain)));
        }
        let mut next = first;
        while next.kind == TokenKind::Field && !next.is_spaced {
            self.next();
            if !is_plain {
                let name = self.field_name(next);
                operand = self.builder.field(operand, first.start, name);
            }
            next = self.peek();
        }
        if is_plain {
            if next.is_spaced {
                // Go reports the error at the white space, which is a token there.
                self.scope.last = self.position();
            }
            let text = quoted(self.bytes(token));
            return Err(self.error(format!("unexpected . after term {text}")));
        }
        Ok(Some((operand, false)))
    }

    /// Parses a literal, function, variable, field or parenthesized pipeline, if one follows.
    /// Returns its first token, and whether it is a literal or dot, which have no fields and take
    /// no argument.
    #[inline]
    fn term(&mut self) -> Result<Option<(Token, bool, B::Operand)>> {
        let token = self.next();
        let is_plain = !matches!(
            token.kind,
            TokenKind::Identifier | TokenKind::Variable | TokenKind::Field | TokenKind::LeftParen
        );
        let mut pos = token.start;
        let word = match token.kind {
            TokenKind::Identifier => {
                let name = self.bytes(token);
                let Some((id, func)) = self.funcs.find(name) else {
                    let name = quoted(name);
                    return Err(self.error(format!("function {name} not defined")));
                };
                Word::Function { name, id, func }
            }
            TokenKind::Dot => Word::Dot,
            TokenKind::Nil => Word::Nil,
            TokenKind::Variable => {
                let name = self.bytes(token);
                if name != b"$" && !self.scope.variables.contains(&name) {
                    let name = quoted(name);
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
                    let start = parser.peek().start;
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
                self.backup(1);
                return Ok(None);
            }
        };
        Ok(Some((token, is_plain, self.builder.operand(pos, word))))
    }
}

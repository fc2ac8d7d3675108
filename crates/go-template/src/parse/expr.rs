//! Pipelines, commands and operands.

use super::{Parser, Result, pos};
use crate::ast::{Command, Operand, Pipe, Term};
use crate::go::strconv::quote;
use crate::lex::{Kind, Token};
use crate::value::Str;

impl Parser<'_> {
    /// A pipeline up to `end`.
    pub(super) fn pipeline(&mut self, context: &str, end: Kind) -> Result<Pipe> {
        let pos = pos(self.peek_non_space());
        let mut pipe = Pipe {
            pos,
            is_assign: false,
            variables: Vec::new(),
            commands: Vec::new(),
        };
        while self.declaration(context, &mut pipe)? {}
        loop {
            let token = self.next_non_space();
            match token.kind {
                kind if kind == end => {
                    self.check(&pipe, context)?;
                    return Ok(pipe);
                }
                Kind::Bool
                | Kind::CharConstant
                | Kind::Complex
                | Kind::Dot
                | Kind::Field
                | Kind::Identifier
                | Kind::Number
                | Kind::Nil
                | Kind::RawString
                | Kind::String
                | Kind::Variable
                | Kind::LeftParen => {
                    self.backup();
                    pipe.commands.push(self.command()?);
                }
                _ => return Err(self.unexpected(token, context)),
            }
        }
    }

    /// A variable that the pipeline declares or assigns, if there is one; whether another may
    /// follow it.
    fn declaration(&mut self, context: &str, pipe: &mut Pipe) -> Result<bool> {
        let variable = self.peek_non_space();
        if variable.kind != Kind::Variable {
            return Ok(false);
        }
        self.next();
        // White space is a token. In `$x foo` all three tokens go back, and $x is an argument.
        let after = self.peek();
        let next = self.peek_non_space();
        match next.kind {
            Kind::Assign | Kind::Declare => {
                pipe.is_assign = next.kind == Kind::Assign;
                self.next_non_space();
                self.declare(variable, pipe);
                Ok(false)
            }
            Kind::Char if self.bytes(next) == b"," => {
                self.next_non_space();
                self.declare(variable, pipe);
                if context != "range" || pipe.variables.len() >= 2 {
                    return Err(self.error(format!("too many declarations in {context}")));
                }
                match self.peek_non_space().kind {
                    Kind::Variable | Kind::RightDelim | Kind::RightParen => Ok(true),
                    _ => Err(self.error("range can only initialize variables")),
                }
            }
            _ => {
                if after.kind == Kind::Space {
                    self.backup3(variable, after);
                } else {
                    self.backup2(variable);
                }
                Ok(false)
            }
        }
    }

    fn declare(&mut self, variable: Token, pipe: &mut Pipe) {
        let name = self.str(variable);
        pipe.variables.push(name.clone());
        self.scope.variables.push(name);
    }

    fn check(&self, pipe: &Pipe, context: &str) -> Result<()> {
        if pipe.commands.is_empty() {
            return Err(self.error(format!("missing value for {context}")));
        }
        // Only the first command may be something that takes no argument.
        for (index, command) in pipe.commands.iter().enumerate().skip(1) {
            let first = command.args.first().map(|operand| &operand.term);
            if let Some(
                Term::Bool(_) | Term::Dot | Term::Nil | Term::Number(_) | Term::String { .. },
            ) = first
            {
                let stage = index + 1;
                return Err(self.error(format!("non executable command in pipeline stage {stage}")));
            }
        }
        Ok(())
    }

    /// Operands up to a pipe, which is read, or the end of the pipeline, which is not.
    fn command(&mut self) -> Result<Command> {
        let mut command = Command {
            pos: pos(self.peek_non_space()),
            args: Vec::new(),
        };
        loop {
            self.peek_non_space();
            command.args.extend(self.operand()?);
            let token = self.next();
            match token.kind {
                Kind::Space => {}
                Kind::RightDelim | Kind::RightParen => {
                    self.backup();
                    break;
                }
                Kind::Pipe => break,
                _ => return Err(self.unexpected(token, "operand")),
            }
        }
        if command.args.is_empty() {
            return Err(self.error("empty command"));
        }
        Ok(command)
    }

    /// A term with fields after it, if a term follows.
    fn operand(&mut self) -> Result<Option<Operand>> {
        let Some(mut operand) = self.term()? else {
            return Ok(None);
        };
        let first = self.peek();
        if first.kind != Kind::Field {
            return Ok(Some(operand));
        }
        let mut more = Vec::new();
        while self.peek().kind == Kind::Field {
            let token = self.next();
            more.push(Str::from(self.bytes(token).get(1..).unwrap_or_default()));
        }
        match &mut operand.term {
            Term::Field(fields) | Term::Variable { fields, .. } => {
                fields.append(&mut more);
                operand.pos = pos(first);
            }
            Term::Bool(_) | Term::String { .. } | Term::Number(_) | Term::Nil | Term::Dot => {
                let mut text = Vec::new();
                operand.write(self.lexer.text(), &mut text);
                let text = quote(&text);
                let text = String::from_utf8_lossy(&text);
                return Err(self.error(format!("unexpected . after term {text}")));
            }
            Term::Chain { .. } | Term::Identifier(_) | Term::Pipe(_) => {
                let term = Term::Chain {
                    inner: Box::new(operand),
                    fields: more,
                };
                operand = Operand {
                    pos: pos(first),
                    term,
                };
            }
        }
        Ok(Some(operand))
    }

    /// A literal, function, variable, field or pipeline in parentheses, if one follows.
    fn term(&mut self) -> Result<Option<Operand>> {
        let token = self.next_non_space();
        let mut position = pos(token);
        let term = match token.kind {
            Kind::Identifier => {
                let name = self.str(token);
                let known = name
                    .to_str()
                    .is_some_and(|name| self.funcs.get(name).is_some());
                if !known {
                    let name = quote(name.as_bytes());
                    let name = String::from_utf8_lossy(&name);
                    return Err(self.error(format!("function {name} not defined")));
                }
                Term::Identifier(name)
            }
            Kind::Dot => Term::Dot,
            Kind::Nil => Term::Nil,
            Kind::Variable => {
                let name = self.str(token);
                if !self.scope.variables.contains(&name) {
                    let name = quote(name.as_bytes());
                    let name = String::from_utf8_lossy(&name);
                    return Err(self.error(format!("undefined variable {name}")));
                }
                Term::Variable {
                    name,
                    fields: Vec::new(),
                }
            }
            Kind::Field => {
                let field = self.bytes(token).get(1..).unwrap_or_default();
                Term::Field(vec![Str::from(field)])
            }
            Kind::Bool => Term::Bool(self.bytes(token) == b"true"),
            Kind::CharConstant | Kind::Complex | Kind::Number => {
                let number = super::number::parse(self.bytes(token), token.kind);
                Term::Number(number.map_err(|message| self.error(message))?)
            }
            Kind::LeftParen => {
                let pipe = self
                    .nest(|parser| parser.pipeline("parenthesized pipeline", Kind::RightParen))?;
                position = pipe.pos;
                Term::Pipe(Box::new(pipe))
            }
            Kind::String | Kind::RawString => Term::String {
                quoted: token.start..token.end,
                text: self.unquote(token)?,
            },
            _ => {
                self.backup();
                return Ok(None);
            }
        };
        Ok(Some(Operand {
            pos: position,
            term,
        }))
    }
}

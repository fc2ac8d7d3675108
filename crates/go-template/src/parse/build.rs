//! The output of the parser: code, or a syntax tree for error messages.

use std::ops::Range;

use super::control::Control;
use crate::ast::{self, Number, Pos, Term};
use crate::func::{Func, FuncId};
use crate::value::Str;

/// Builds the output from the parts of templates, in the order of the text `'t` and from the inside
/// out.
pub(crate) trait Build<'t> {
    type Operand;
    type Command;
    type OpenPipe;
    type Pipe;
    type OpenList;
    type List;
    /// State saved while a nested template is built.
    type Outer;
    type Template;

    /// Begins a template.
    fn begin(&mut self) -> Self::Outer;
    /// Ends it; `depth` is the deepest nesting of control structures and parentheses.
    fn end(&mut self, outer: Self::Outer, list: Self::List, depth: usize) -> Self::Template;

    /// Begins an operand.
    fn operand(&mut self, pos: Pos, word: Word<'t, Self::Pipe>) -> Self::Operand;
    /// Adds a field to the operand that was begun last, which must be able to have one; the first field starts
    /// at `pos`.
    fn field(&mut self, operand: Self::Operand, pos: Pos, name: &'t [u8]) -> Self::Operand;

    fn command(&mut self, pos: Pos) -> Self::Command;
    /// Adds the operand that was begun last.
    fn argument(&mut self, command: &mut Self::Command, operand: Self::Operand);

    fn pipe(&mut self, pos: Pos) -> Self::OpenPipe;
    fn variable(&mut self, pipe: &mut Self::OpenPipe, name: &'t [u8], is_assign: bool);
    fn stage(&mut self, pipe: &mut Self::OpenPipe, command: Self::Command);
    fn close_pipe(&mut self, pipe: Self::OpenPipe) -> Self::Pipe;

    fn list(&mut self) -> Self::OpenList;
    fn push(&mut self, list: &mut Self::OpenList, part: Part<Self::Pipe, Self::List>);
    fn close_list(&mut self, list: Self::OpenList) -> Self::List;

    /// Begins a control structure, which ends when it is pushed as a part.
    fn enter(&mut self) {}
    /// Begins its first list, after its pipe.
    fn body(&mut self, _: Control) {}
    /// Begins its second list.
    fn otherwise(&mut self) {}
}

/// A term of a command.
pub(crate) enum Word<'t, Pipe> {
    Bool(bool),
    Dot,
    Nil,
    Function {
        name: &'t [u8],
        id: FuncId,
        func: &'t Func,
    },
    Field(&'t [u8]),
    Variable(&'t [u8]),
    Number(Box<Number>),
    Text {
        quoted: Range<Pos>,
        text: Str,
    },
    Pipe(Pipe),
}

/// A part of a template.
pub(crate) enum Part<Pipe, List> {
    Text(Range<Pos>),
    Action {
        pos: Pos,
        pipe: Pipe,
    },
    Control {
        control: Control,
        pipe: Pipe,
        list: List,
        otherwise: Option<List>,
    },
    Template {
        pos: Pos,
        name: Str,
        pipe: Option<Pipe>,
    },
    Break,
    Continue,
}

/// Builds syntax trees.
#[derive(Default)]
pub(super) struct TreeBuilder;

impl<'t> Build<'t> for TreeBuilder {
    type Operand = ast::Operand;
    type Command = ast::Command;
    type OpenPipe = ast::Pipe;
    type Pipe = ast::Pipe;
    type OpenList = ast::NodeList;
    type List = ast::NodeList;
    type Outer = ();
    type Template = ast::NodeList;

    fn begin(&mut self) {}

    fn end(&mut self, (): (), list: ast::NodeList, _: usize) -> ast::NodeList {
        list
    }

    fn operand(&mut self, pos: Pos, word: Word<'t, ast::Pipe>) -> ast::Operand {
        let term = match word {
            Word::Bool(value) => Term::Bool(value),
            Word::Dot => Term::Dot,
            Word::Nil => Term::Nil,
            Word::Function { name, .. } => Term::Identifier(Str::from(name)),
            Word::Field(name) => Term::Field(vec![Str::from(name)]),
            Word::Variable(name) => Term::Variable {
                name: Str::from(name),
                fields: Vec::new(),
            },
            Word::Number(number) => Term::Number(number.text),
            Word::Text { quoted, .. } => Term::String(quoted),
            Word::Pipe(pipe) => Term::Pipe(Box::new(pipe)),
        };
        ast::Operand { pos, term }
    }

    fn field(&mut self, mut operand: ast::Operand, pos: Pos, name: &'t [u8]) -> ast::Operand {
        let name = Str::from(name);
        match &mut operand.term {
            Term::Field(fields) | Term::Variable { fields, .. } | Term::Chain { fields, .. } => {
                fields.push(name);
                operand.pos = pos;
                operand
            }
            _ => ast::Operand {
                pos,
                term: Term::Chain {
                    inner: Box::new(operand),
                    fields: vec![name],
                },
            },
        }
    }

    fn command(&mut self, pos: Pos) -> ast::Command {
        let args = Vec::new();
        ast::Command { pos, args }
    }

    fn argument(&mut self, command: &mut ast::Command, operand: ast::Operand) {
        command.args.push(operand);
    }

    fn pipe(&mut self, pos: Pos) -> ast::Pipe {
        ast::Pipe {
            pos,
            is_assign: false,
            variables: Vec::new(),
            commands: Vec::new(),
        }
    }

    fn variable(&mut self, pipe: &mut ast::Pipe, name: &'t [u8], is_assign: bool) {
        pipe.variables.push(Str::from(name));
        pipe.is_assign = is_assign;
    }

    fn stage(&mut self, pipe: &mut ast::Pipe, command: ast::Command) {
        pipe.commands.push(command);
    }

    fn close_pipe(&mut self, pipe: ast::Pipe) -> ast::Pipe {
        pipe
    }

    fn list(&mut self) -> ast::NodeList {
        ast::NodeList::default()
    }

    fn push(&mut self, list: &mut ast::NodeList, part: Part<ast::Pipe, ast::NodeList>) {
        list.nodes.push(match part {
            Part::Text(_) | Part::Break | Part::Continue => return,
            Part::Action { pos, pipe } => ast::Node::Action { pos, pipe },
            Part::Control {
                pipe,
                list,
                otherwise,
                ..
            } => ast::Node::Control(Box::new(ast::Branch {
                pipe,
                list,
                otherwise,
            })),
            Part::Template { pos, name, pipe } => ast::Node::Template { pos, name, pipe },
        });
    }

    fn close_list(&mut self, list: ast::NodeList) -> ast::NodeList {
        list
    }
}

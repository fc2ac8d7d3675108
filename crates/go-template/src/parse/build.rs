//! What the parser makes of what it reads: syntax trees, or nothing where a text is only checked.

use std::ops::Range;

use super::control::Control;
use crate::ast::{self, Number, Pos, Term};
use crate::go::{strconv, unicode};
use crate::value::Str;

/// Makes something of the parts of a template, from the inside to the outside.
pub(super) trait Build {
    type Text;
    type Operand;
    type Command;
    type Pipe;
    type Node;
    type List: Default;

    /// The text of a literal in quotes; none when it is malformed.
    fn text(literal: &[u8]) -> Option<Self::Text>;

    fn operand(pos: Pos, word: Word<'_, Self>) -> Self::Operand;
    /// Adds a field to an operand that can have one; the first that was added stands at `pos`.
    fn field(operand: Self::Operand, pos: Pos, name: &[u8]) -> Self::Operand;

    fn command(pos: Pos) -> Self::Command;
    fn argument(command: &mut Self::Command, operand: Self::Operand);

    fn pipe(pos: Pos) -> Self::Pipe;
    fn variable(pipe: &mut Self::Pipe, name: &[u8], is_assign: bool);
    fn stage(pipe: &mut Self::Pipe, command: Self::Command);

    fn node(part: Part<Self>, text: &[u8]) -> Self::Node;
    fn push(list: &mut Self::List, node: Self::Node);
}

/// A term of a command.
pub(super) enum Word<'t, B: Build + ?Sized> {
    Bool(bool),
    Dot,
    Nil,
    Identifier(&'t [u8]),
    Field(&'t [u8]),
    Variable(&'t [u8]),
    Number(Number),
    Text { quoted: Range<Pos>, text: B::Text },
    Pipe(B::Pipe),
}

/// What stands in a template.
pub(super) enum Part<B: Build + ?Sized> {
    Text(Range<Pos>),
    Action {
        pos: Pos,
        pipe: B::Pipe,
    },
    Control {
        control: Control,
        pipe: B::Pipe,
        list: B::List,
        otherwise: Option<B::List>,
    },
    Template {
        pos: Pos,
        name: B::Text,
        pipe: Option<B::Pipe>,
    },
    Break,
    Continue,
}

/// Makes nothing, but knows whether a list has content.
pub(super) struct Check;

/// Whether there is something beside white space: a template without does not replace another.
#[derive(Clone, Copy, Default)]
pub(super) struct Content(pub(super) bool);

impl Build for Check {
    type Text = ();
    type Operand = ();
    type Command = ();
    type Pipe = ();
    type Node = Content;
    type List = Content;

    fn text(literal: &[u8]) -> Option<()> {
        // A token holds no quote or line break that would end it.
        let is_plain = match literal {
            [b'`', ..] => true,
            [b'"', plain @ .., b'"'] => !plain.contains(&b'\\'),
            _ => false,
        };
        (is_plain || strconv::unquote(literal).is_ok()).then_some(())
    }

    fn operand(_: Pos, _: Word<'_, Self>) {}
    fn field((): (), _: Pos, _: &[u8]) {}
    fn command(_: Pos) {}
    fn argument((): &mut (), (): ()) {}
    fn pipe(_: Pos) {}
    fn variable((): &mut (), _: &[u8], _: bool) {}
    fn stage((): &mut (), (): ()) {}

    fn node(part: Part<Self>, text: &[u8]) -> Content {
        let Part::Text(range) = part else {
            return Content(true);
        };
        let text = text.get(range.start as usize..range.end as usize);
        let text = text.unwrap_or_default();
        let is_plain = matches!(text.first(), Some(b'!'..=b'~'));
        Content(is_plain || !unicode::trim_start_matches(text, unicode::is_space).is_empty())
    }

    fn push(list: &mut Content, node: Content) {
        list.0 |= node.0;
    }
}

/// Makes syntax trees.
pub(super) struct Trees;

impl Build for Trees {
    type Text = Str;
    type Operand = ast::Operand;
    type Command = ast::Command;
    type Pipe = ast::Pipe;
    type Node = ast::Node;
    type List = ast::List;

    fn text(literal: &[u8]) -> Option<Str> {
        match literal {
            [b'"', plain @ .., b'"'] if !plain.contains(&b'\\') => {
                // What is not UTF-8 is read rune by rune.
                match std::str::from_utf8(plain) {
                    Ok(plain) => Some(Str::from(plain)),
                    Err(_) => strconv::unquote(literal).ok().map(Str::from),
                }
            }
            _ => strconv::unquote(literal).ok().map(Str::from),
        }
    }

    fn operand(pos: Pos, word: Word<'_, Self>) -> ast::Operand {
        let term = match word {
            Word::Bool(value) => Term::Bool(value),
            Word::Dot => Term::Dot,
            Word::Nil => Term::Nil,
            Word::Identifier(name) => Term::Identifier(Str::from(name)),
            Word::Field(name) => Term::Field(vec![Str::from(name)]),
            Word::Variable(name) => Term::Variable {
                name: Str::from(name),
                fields: Vec::new(),
            },
            Word::Number(number) => Term::Number(Box::new(number)),
            Word::Text { quoted, text } => Term::String { quoted, text },
            Word::Pipe(pipe) => Term::Pipe(Box::new(pipe)),
        };
        ast::Operand { pos, term }
    }

    fn field(mut operand: ast::Operand, pos: Pos, name: &[u8]) -> ast::Operand {
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

    fn command(pos: Pos) -> ast::Command {
        let args = Vec::new();
        ast::Command { pos, args }
    }

    fn argument(command: &mut ast::Command, operand: ast::Operand) {
        command.args.push(operand);
    }

    fn pipe(pos: Pos) -> ast::Pipe {
        ast::Pipe {
            pos,
            is_assign: false,
            variables: Vec::new(),
            commands: Vec::new(),
        }
    }

    fn variable(pipe: &mut ast::Pipe, name: &[u8], is_assign: bool) {
        pipe.variables.push(Str::from(name));
        pipe.is_assign = is_assign;
    }

    fn stage(pipe: &mut ast::Pipe, command: ast::Command) {
        pipe.commands.push(command);
    }

    fn node(part: Part<Self>, _: &[u8]) -> ast::Node {
        match part {
            Part::Text(range) => ast::Node::Text(range),
            Part::Action { pos, pipe } => ast::Node::Action { pos, pipe },
            Part::Control {
                control,
                pipe,
                list,
                otherwise,
            } => {
                let branch = Box::new(ast::Branch {
                    pipe,
                    list,
                    otherwise,
                });
                match control {
                    Control::If => ast::Node::If(branch),
                    Control::With => ast::Node::With(branch),
                    Control::Range => ast::Node::Range(branch),
                }
            }
            Part::Template { pos, name, pipe } => ast::Node::Template { pos, name, pipe },
            Part::Break => ast::Node::Break,
            Part::Continue => ast::Node::Continue,
        }
    }

    fn push(list: &mut ast::List, node: ast::Node) {
        list.nodes.push(node);
    }
}

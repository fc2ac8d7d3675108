//! The syntax tree, and Go's formatting of its nodes. It is only built for error messages, and so
//! has no text nodes.

use bounded::Buffer;
use std::ops::Range;

use crate::go::strconv;
use crate::value::Str;

/// A byte offset in the text.
pub(crate) type Pos = u32;

/// The node being executed, identified by its kind and position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) pos: Pos,
    pub(crate) kind: NodeKind,
}

impl At {
    pub(crate) fn new(pos: Pos, kind: NodeKind) -> Self {
        Self { pos, kind }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    Action,
    Bool,
    Chain,
    Command,
    Dot,
    Field,
    Identifier,
    Nil,
    Number,
    Pipe,
    String,
    Template,
    Variable,
}

/// A sequence of nodes.
#[derive(Debug, Default)]
pub(crate) struct NodeList {
    pub(crate) nodes: Vec<Node>,
}

/// A node of a template.
#[derive(Debug)]
pub(crate) enum Node {
    Action {
        pos: Pos,
        pipe: Pipe,
    },
    Control(Box<Branch>),
    Template {
        pos: Pos,
        name: Str,
        pipe: Option<Pipe>,
    },
}

/// `if`, `with` or `range`.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) pipe: Pipe,
    pub(crate) list: NodeList,
    pub(crate) otherwise: Option<NodeList>,
}

/// A pipeline: commands that each pass their result to the next.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) pos: Pos,
    pub(crate) is_assign: bool,
    /// The declared or assigned variables, with their positions.
    pub(crate) variables: Vec<Str>,
    pub(crate) commands: Vec<Command>,
}

/// An operand with its arguments.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) pos: Pos,
    pub(crate) args: Vec<Operand>,
}

/// An operand of a command.
#[derive(Debug)]
pub(crate) struct Operand {
    pub(crate) pos: Pos,
    pub(crate) term: Term,
}

#[derive(Debug)]
pub(crate) enum Term {
    Bool(bool),
    Chain {
        inner: Box<Operand>,
        fields: Vec<Str>,
    },
    Dot,
    Field(Vec<Str>),
    Identifier(Str),
    Nil,
    Number(Str),
    Pipe(Box<Pipe>),
    /// With quotes.
    String(Range<Pos>),
    Variable {
        name: Str,
        fields: Vec<Str>,
    },
}

// The deepest trees are dropped, printed and searched with enough stack, wherever that happens.

impl Drop for NodeList {
    fn drop(&mut self) {
        let nodes = std::mem::take(&mut self.nodes);
        bounded::grow(|| drop(nodes));
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let commands = std::mem::take(&mut self.commands);
        bounded::grow(|| drop(commands));
    }
}

/// A numeric constant, in every type that can represent it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Number {
    pub(crate) int: Option<i64>,
    pub(crate) uint: Option<u64>,
    pub(crate) float: Option<f64>,
    pub(crate) complex: Option<(f64, f64)>,
    pub(crate) text: Str,
}

/// Returns the bytes of a range of the text.
pub(crate) fn part<'t>(text: &'t [u8], range: &Range<Pos>) -> &'t [u8] {
    let range = range.start as usize..range.end as usize;
    text.get(range).unwrap_or_default()
}

impl Operand {
    pub(crate) fn at(&self) -> At {
        let kind = match &self.term {
            Term::Bool(_) => NodeKind::Bool,
            Term::Chain { .. } => NodeKind::Chain,
            Term::Dot => NodeKind::Dot,
            Term::Field(_) => NodeKind::Field,
            Term::Identifier(_) => NodeKind::Identifier,
            Term::Nil => NodeKind::Nil,
            Term::Number(_) => NodeKind::Number,
            Term::Pipe(_) => NodeKind::Pipe,
            Term::String(_) => NodeKind::String,
            Term::Variable { .. } => NodeKind::Variable,
        };
        At::new(self.pos, kind)
    }

    /// Writes the operand as Go prints it.
    pub(crate) fn write(&self, text: &[u8], out: &mut Buffer) {
        match &self.term {
            Term::Bool(true) => out.extend_from_slice(b"true"),
            Term::Bool(false) => out.extend_from_slice(b"false"),
            Term::Dot => out.push(b'.'),
            Term::Nil => out.extend_from_slice(b"nil"),
            Term::Field(fields) => write_fields(fields, out),
            Term::Identifier(name) => out.extend_from_slice(name.as_bytes()),
            Term::Number(number) => out.extend_from_slice(number.as_bytes()),
            Term::Pipe(pipe) => bounded::grow(|| pipe.write(text, out)),
            Term::String(quoted) => out.extend_from_slice(part(text, quoted)),
            Term::Variable { name, fields } => {
                out.extend_from_slice(name.as_bytes());
                write_fields(fields, out);
            }
            Term::Chain { inner, fields } => {
                inner.write_in_parentheses(text, out);
                write_fields(fields, out);
            }
        }
    }

    /// Writes the operand; a pipeline needs parentheses.
    fn write_in_parentheses(&self, text: &[u8], out: &mut Buffer) {
        let is_pipe = matches!(self.term, Term::Pipe(_));
        if is_pipe {
            out.push(b'(');
        }
        self.write(text, out);
        if is_pipe {
            out.push(b')');
        }
    }
}

fn write_fields(fields: &[Str], out: &mut Buffer) {
    for field in fields {
        out.push(b'.');
        out.extend_from_slice(field.as_bytes());
    }
}

impl Command {
    /// Writes the command as Go prints it.
    pub(crate) fn write(&self, text: &[u8], out: &mut Buffer) {
        for (index, arg) in self.args.iter().enumerate() {
            if index > 0 {
                out.push(b' ');
            }
            arg.write_in_parentheses(text, out);
        }
    }
}

impl Pipe {
    /// Writes the pipeline as Go prints it.
    pub(crate) fn write(&self, text: &[u8], out: &mut Buffer) {
        for (index, variable) in self.variables.iter().enumerate() {
            if index > 0 {
                out.extend_from_slice(b", ");
            }
            out.extend_from_slice(variable.as_bytes());
        }
        if !self.variables.is_empty() {
            out.extend_from_slice(if self.is_assign { b" = " } else { b" := " });
        }
        for (index, command) in self.commands.iter().enumerate() {
            if index > 0 {
                out.extend_from_slice(b" | ");
            }
            command.write(text, out);
        }
    }
}

/// Returns the node `at` of a tree as Go prints it.
pub(crate) fn describe(list: &NodeList, text: &[u8], at: At) -> Option<Buffer> {
    list.nodes.iter().find_map(|node| match node {
        Node::Action { pos, pipe } => {
            if at == At::new(*pos, NodeKind::Action) {
                let mut out = Buffer::from(&b"{{"[..]);
                pipe.write(text, &mut out);
                out.extend_from_slice(b"}}");
                return Some(out);
            }
            describe_pipe(pipe, text, at)
        }
        Node::Template { pos, name, pipe } => {
            if at == At::new(*pos, NodeKind::Template) {
                let mut out = Buffer::from(&b"{{template "[..]);
                out.extend_from_slice(&strconv::quote(name.as_bytes()));
                if let Some(pipe) = pipe {
                    out.push(b' ');
                    pipe.write(text, &mut out);
                }
                out.extend_from_slice(b"}}");
                return Some(out);
            }
            describe_pipe(pipe.as_ref()?, text, at)
        }
        Node::Control(branch) => bounded::grow(|| {
            describe_pipe(&branch.pipe, text, at)
                .or_else(|| describe(&branch.list, text, at))
                .or_else(|| describe(branch.otherwise.as_ref()?, text, at))
        }),
    })
}

fn describe_pipe(pipe: &Pipe, text: &[u8], at: At) -> Option<Buffer> {
    if at == At::new(pipe.pos, NodeKind::Pipe) {
        let mut out = Buffer::new();
        pipe.write(text, &mut out);
        return Some(out);
    }
    pipe.commands.iter().find_map(|command| {
        if at == At::new(command.pos, NodeKind::Command) {
            let mut out = Buffer::new();
            command.write(text, &mut out);
            return Some(out);
        }
        let mut args = command.args.iter();
        args.find_map(|arg| describe_operand(arg, text, at))
    })
}

fn describe_operand(operand: &Operand, text: &[u8], at: At) -> Option<Buffer> {
    match &operand.term {
        Term::Pipe(pipe) => return bounded::grow(|| describe_pipe(pipe, text, at)),
        Term::Chain { inner, .. } => {
            if let Some(found) = describe_operand(inner, text, at) {
                return Some(found);
            }
        }
        _ => {}
    }
    (operand.at() == at).then(|| {
        let mut out = Buffer::new();
        operand.write(text, &mut out);
        out
    })
}

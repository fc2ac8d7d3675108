//! Compiles syntax trees into what the evaluator runs: variables become slots, field names are
//! hashed, functions are looked up, literals get the types of the parameters they are for.

use crate::ast::{self, At, Node, NodeKind, Operand, Pipe, Term};
use crate::code::{Arg, Base, Branch, CallCode, Code, Expr, Fields, Literal, Op, PipeCode, Range};
use crate::code::{Invoke, Logic};
use crate::func::{Func, Funcs, Run};
use crate::value::{Name, Str, Type};

/// Compiles the syntax tree of a template of `text`.
pub(crate) fn compile(tree: &ast::List, text: &[u8], funcs: &Funcs) -> Code {
    let mut compiler = Compiler {
        funcs,
        text,
        variables: vec![Variable {
            name: Str::from_static("$"),
            is_element: false,
        }],
        dot_is_element: false,
        slots: 1,
    };
    Code {
        ops: compiler.list(tree),
        slots: compiler.slots,
        is_deep: depth(tree) > SHALLOW,
    }
}

/// Up to this nesting a template needs no growing stack.
const SHALLOW: usize = 24;

struct Compiler<'c> {
    funcs: &'c Funcs,
    text: &'c [u8],
    /// The variables in scope; the position of each is its slot.
    variables: Vec<Variable>,
    /// Whether dot is an element of what a range goes over.
    dot_is_element: bool,
    slots: usize,
}

#[derive(Clone, Copy)]
enum Control {
    If,
    With,
    Range,
}

#[derive(Debug)]
struct Variable {
    name: Str,
    /// Whether a range sets it to its elements.
    is_element: bool,
}

impl Compiler<'_> {
    fn list(&mut self, list: &ast::List) -> Box<[Op]> {
        list.nodes.iter().map(|node| self.node(node)).collect()
    }

    fn node(&mut self, node: &Node) -> Op {
        match node {
            Node::Text(range) => Op::Text {
                start: range.start as usize,
                end: range.end as usize,
            },
            Node::Action { pos, pipe } => {
                let at = At {
                    pos: *pos,
                    kind: NodeKind::Action,
                };
                let prints = pipe.variables.is_empty();
                let pipe = self.pipe(pipe);
                if prints {
                    Op::Print { at, pipe }
                } else {
                    Op::Run(pipe)
                }
            }
            Node::If(branch) => Op::If(Box::new(self.branch(branch, Control::If))),
            Node::With(branch) => Op::With(Box::new(self.branch(branch, Control::With))),
            Node::Range(branch) => Op::Range(Box::new(self.range(branch))),
            Node::Template { pos, name, pipe } => Op::Template(Box::new(Invoke {
                at: At {
                    pos: *pos,
                    kind: NodeKind::Template,
                },
                name: Name::new(name.clone()),
                data: pipe.as_ref().map(|pipe| self.pipe(pipe)),
            })),
            Node::Break => Op::Break,
            Node::Continue => Op::Continue,
        }
    }

    /// Compiles a body whose variables end with it.
    fn scoped(&mut self, list: &ast::List) -> Box<[Op]> {
        let outer = self.variables.len();
        let ops = crate::stack::grow(|| self.list(list));
        self.variables.truncate(outer);
        ops
    }

    fn branch(&mut self, branch: &ast::Branch, control: Control) -> Branch {
        let outer = self.variables.len();
        let pipe = self.pipe(&branch.pipe);
        let outer_dot = self.dot_is_element;
        match control {
            Control::If => {}
            Control::With => self.dot_is_element = false,
            Control::Range => {
                self.dot_is_element = true;
                if let Some(variable) = self.variables.get_mut(outer..).and_then(<[_]>::last_mut) {
                    variable.is_element = true;
                }
            }
        }
        let then = self.scoped(&branch.list);
        self.dot_is_element = outer_dot;
        let otherwise = branch.otherwise.as_ref().map(|list| self.scoped(list));
        self.variables.truncate(outer);
        Branch {
            pipe,
            then,
            otherwise: otherwise.unwrap_or_default(),
        }
    }

    fn range(&mut self, branch: &ast::Branch) -> Range {
        let Branch {
            pipe,
            then,
            otherwise,
        } = self.branch(branch, Control::Range);
        let slots = &pipe.sets;
        let (key, item) = match (slots.first(), slots.get(1)) {
            (Some(key), Some(item)) => (Some(*key), Some(*item)),
            (first, _) => (None, first.copied()),
        };
        Range {
            key,
            item,
            pipe,
            body: then,
            otherwise,
        }
    }

    fn declare(&mut self, name: &Str) -> usize {
        let slot = self.variables.len();
        self.variables.push(Variable {
            name: name.clone(),
            is_element: false,
        });
        self.slots = self.slots.max(slot + 1);
        slot
    }

    fn slot(&self, name: &Str) -> Option<usize> {
        self.variables
            .iter()
            .rposition(|variable| variable.name == *name)
    }

    fn pipe(&mut self, pipe: &Pipe) -> PipeCode {
        let at = At {
            pos: pipe.pos,
            kind: NodeKind::Pipe,
        };
        let mut commands = pipe.commands.iter().enumerate();
        let mut commands: Vec<Expr> = commands
            .by_ref()
            .map(|(index, command)| self.command(command, index > 0))
            .collect();
        let mut sets = Vec::new();
        for name in &pipe.variables {
            if !pipe.is_assign {
                sets.push(self.declare(name));
            } else if let Some(slot) = self.slot(name) {
                sets.push(slot);
            } else {
                let message = format!("undefined variable: {name}");
                commands.push(fail(None, message));
            }
        }
        PipeCode {
            at,
            commands: commands.into(),
            sets: sets.into(),
        }
    }

    /// A command; `piped` is whether it gets the result of another.
    fn command(&mut self, command: &ast::Command, piped: bool) -> Expr {
        let Some((first, args)) = command.args.split_first() else {
            return Expr::Dot {
                at: At {
                    pos: command.pos,
                    kind: NodeKind::Command,
                },
            };
        };
        let at = first.at();
        let takes_args = match &first.term {
            Term::Field(_) | Term::Chain { .. } | Term::Identifier(_) => true,
            Term::Variable { fields, .. } => !fields.is_empty(),
            _ => false,
        };
        if !takes_args && (piped || !args.is_empty()) {
            let mut shown = Vec::new();
            first.write(self.text, &mut shown);
            let shown = String::from_utf8_lossy(&shown);
            let message = format!("can't give argument to non-function {shown}");
            let at = if let Term::Pipe(_) = first.term {
                None
            } else {
                Some(at)
            };
            return fail(at, message);
        }
        match &first.term {
            Term::Identifier(name) => {
                let node = At {
                    pos: command.pos,
                    kind: NodeKind::Command,
                };
                self.call(name, at, node, args, piped)
            }
            Term::Field(fields) => self.fields(at, Base::Dot, fields, args),
            Term::Variable { name, fields } => self.variable(at, name, fields, args),
            Term::Chain { inner, fields } => self.chain(at, inner, fields, args),
            Term::Pipe(pipe) => self.nested(pipe),
            Term::Dot => Expr::Dot { at },
            Term::Nil => fail(at, "nil is not a command"),
            Term::Bool(_) | Term::Number(_) | Term::String { .. } => {
                match self.literal(first).typed(Type::ANY) {
                    Ok(value) => Expr::Const { at, value },
                    Err(message) => fail(at, message),
                }
            }
        }
    }

    fn nested(&mut self, pipe: &Pipe) -> Expr {
        crate::stack::grow(|| Expr::Pipe(Box::new(self.pipe(pipe))))
    }

    fn fields(&mut self, at: At, base: Base, fields: &[Str], args: &[Operand]) -> Expr {
        let names = fields
            .iter()
            .map(|field| Name::new(field.clone()))
            .collect();
        let is_element = match base {
            Base::Dot => self.dot_is_element,
            Base::Slot(slot) => self.variables.get(slot).is_some_and(|var| var.is_element),
            Base::Expr(_) => false,
        };
        // The receiver's type is not known, so neither are those of the parameters.
        let args = args.iter().map(|arg| self.arg(arg, None)).collect();
        Expr::Fields(Box::new(Fields {
            at,
            base,
            names,
            args,
            is_element,
        }))
    }

    fn variable(&mut self, at: At, name: &Str, fields: &[Str], args: &[Operand]) -> Expr {
        let Some(slot) = self.slot(name) else {
            return fail(at, format!("undefined variable: {name}"));
        };
        if fields.is_empty() {
            return Expr::Slot { at, slot };
        }
        self.fields(at, Base::Slot(slot), fields, args)
    }

    fn chain(&mut self, at: At, inner: &Operand, fields: &[Str], args: &[Operand]) -> Expr {
        if matches!(inner.term, Term::Nil) {
            let mut shown = Vec::new();
            let chain = Term::Chain {
                inner: Box::new(Operand {
                    pos: inner.pos,
                    term: Term::Nil,
                }),
                fields: fields.to_vec(),
            };
            Operand {
                pos: at.pos,
                term: chain,
            }
            .write(self.text, &mut shown);
            let shown = String::from_utf8_lossy(&shown);
            let message = format!("indirection through explicit nil in {shown}");
            return fail(at, message);
        }
        let base = self.operand(inner);
        self.fields(at, Base::Expr(base), fields, args)
    }

    /// An operand that is not a command of its own.
    fn operand(&mut self, operand: &Operand) -> Expr {
        let at = operand.at();
        match &operand.term {
            Term::Dot => Expr::Dot { at },
            Term::Field(fields) => self.fields(at, Base::Dot, fields, &[]),
            Term::Variable { name, fields } => self.variable(at, name, fields, &[]),
            Term::Chain { inner, fields } => self.chain(at, inner, fields, &[]),
            Term::Identifier(name) => self.call(name, at, at, &[], false),
            Term::Pipe(pipe) => self.nested(pipe),
            Term::Nil | Term::Bool(_) | Term::Number(_) | Term::String { .. } => {
                match self.literal(operand).typed(Type::ANY) {
                    Ok(value) => Expr::Const { at, value },
                    Err(message) => fail(at, message),
                }
            }
        }
    }

    fn literal(&self, operand: &Operand) -> Literal {
        match &operand.term {
            Term::Bool(value) => Literal::Bool(*value),
            Term::Number(number) => Literal::Number(number.clone()),
            Term::String { quoted, text } => Literal::String {
                quoted: ast::part(self.text, quoted).into(),
                text: text.clone(),
            },
            _ => Literal::Nil,
        }
    }

    /// An argument for a parameter of type `ty`, if that is known already.
    fn arg(&mut self, operand: &Operand, ty: Option<Type>) -> Arg {
        let at = operand.at();
        match &operand.term {
            Term::Nil | Term::Bool(_) | Term::Number(_) | Term::String { .. } => {
                let literal = self.literal(operand);
                match ty.map(|ty| literal.typed(ty)) {
                    None => Arg::Literal { at, literal },
                    Some(Ok(value)) => Arg::Const { at, value },
                    Some(Err(message)) => Arg::Fail {
                        at,
                        message: message.into(),
                    },
                }
            }
            _ => Arg::Expr {
                at,
                expr: self.operand(operand),
                ty,
            },
        }
    }

    fn call(&mut self, name: &Str, ident: At, node: At, args: &[Operand], piped: bool) -> Expr {
        let func = name.to_str().and_then(|name| self.funcs.get(name));
        let Some(func) = func.cloned() else {
            let name = crate::go::strconv::quote(name.as_bytes());
            let name = String::from_utf8_lossy(&name);
            let message = format!("{name} is not a defined function");
            return fail(ident, message);
        };
        if let Some(message) = arity_error(&func, args.len(), piped) {
            return fail(ident, message);
        }
        let callee = args.first().filter(|_| matches!(func.run, Run::Call));
        let callee = callee.map(|callee| {
            let mut shown = Vec::new();
            callee.write(self.text, &mut shown);
            Str::from(shown)
        });
        let args: Box<[Arg]> = args
            .iter()
            .enumerate()
            .map(|(index, arg)| self.arg(arg, Some(func.param(index))))
            .collect();
        match func.run {
            Run::And | Run::Or => {
                let is_or = matches!(func.run, Run::Or);
                Expr::Logic(Box::new(Logic { ident, is_or, args }))
            }
            _ => Expr::Call(Box::new(CallCode {
                ident,
                node,
                func,
                args,
                callee,
            })),
        }
    }
}

/// What fails with `message` when it is reached.
fn fail(at: impl Into<Option<At>>, message: impl Into<Box<str>>) -> Expr {
    Expr::Fail {
        at: at.into(),
        message: message.into(),
    }
}

/// Go's complaint about the number of arguments.
pub(crate) fn arity_error(func: &Func, args: usize, piped: bool) -> Option<String> {
    let given = args + usize::from(piped);
    let (name, wanted) = (func.name, func.params.len());
    match func.variadic {
        Some(_) if given < wanted => Some(format!(
            "wrong number of args for {name}: want at least {wanted} got {args}"
        )),
        None if given != wanted => Some(format!(
            "wrong number of args for {name}: want {wanted} got {given}"
        )),
        _ => None,
    }
}

/// How deep control structures and parentheses nest.
fn depth(list: &ast::List) -> usize {
    let depth_of = |node: &Node| match node {
        Node::Text(_) | Node::Break | Node::Continue => 0,
        Node::Action { pipe, .. } => pipe_depth(pipe),
        Node::Template { pipe, .. } => pipe.as_ref().map_or(0, pipe_depth),
        Node::If(branch) | Node::With(branch) | Node::Range(branch) => crate::stack::grow(|| {
            let body = depth(&branch.list).max(branch.otherwise.as_ref().map_or(0, depth));
            1 + body.max(pipe_depth(&branch.pipe))
        }),
    };
    list.nodes.iter().map(depth_of).max().unwrap_or(0)
}

fn pipe_depth(pipe: &Pipe) -> usize {
    let operands = pipe.commands.iter().flat_map(|command| &command.args);
    operands.map(operand_depth).max().unwrap_or(0)
}

fn operand_depth(operand: &Operand) -> usize {
    match &operand.term {
        Term::Pipe(pipe) => crate::stack::grow(|| 1 + pipe_depth(pipe)),
        Term::Chain { inner, .. } => operand_depth(inner),
        _ => 0,
    }
}

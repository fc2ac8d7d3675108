//! Makes what the evaluator runs, as the parser reads: variables become slots, field names are
//! hashed, functions are looked up, literals get the types of the parameters they are for.

use std::ops::Range;

use crate::ast::{At, NodeKind, Number, Pos, part};
use crate::code::{Arg, Base, Body, Branch, CallCode, Code, Const, Expr, Fields, Literal, Op};
use crate::code::{Invoke, Logic, PipeCode, Span};
use crate::func::{Func, FuncId, Run};
use crate::parse::{Build, Control, Part, Word};
use crate::value::{Name, Str, Type};

/// Up to this nesting a template needs no growing stack.
const SHALLOW: usize = 24;

/// Makes the code of the templates of a text.
///
/// What belongs to something that is not complete yet waits on a stack, above what belongs to the
/// things around it.
pub(crate) struct Compiler<'t> {
    text: &'t [u8],
    /// The variables in scope. The position of each, counted from the first of its template, is
    /// its slot.
    variables: Vec<Variable<'t>>,
    /// The first variable of the template.
    first: usize,
    /// How many slots the template needs.
    slots: usize,
    /// Whether dot is an element of what a range goes over.
    dot_is_element: bool,
    controls: Vec<Scope>,
    /// The operand in hand.
    operand: Operand<'t>,
    ops: Vec<Op>,
    commands: Vec<Expr>,
    args: Vec<Arg>,
    names: Vec<Name>,
    sets: Vec<u32>,
    /// What is complete.
    done: Code,
}

struct Variable<'t> {
    name: &'t [u8],
    /// Whether a range sets it to its elements.
    is_element: bool,
}

/// What a control structure restores.
struct Scope {
    /// How many variables there were before its pipe, and after it.
    outer: usize,
    inner: usize,
    dot_is_element: bool,
}

/// The template around another.
pub(crate) struct Outer {
    first: usize,
    slots: usize,
    dot_is_element: bool,
}

pub(crate) struct Operand<'t> {
    pos: Pos,
    term: Term<'t>,
    /// Where the names of its fields begin on the stack.
    names: usize,
}

enum Term<'t> {
    Bool(bool),
    Dot,
    Nil,
    Function(FuncId, &'t Func),
    Field,
    Variable {
        name: &'t [u8],
        slot: Option<u32>,
    },
    Number(Box<Number>),
    Text {
        quoted: Range<Pos>,
        text: Str,
    },
    Pipe(PipeCode),
    /// Fields of something else.
    Chain(Expr),
}

pub(crate) struct Command<'t> {
    pos: Pos,
    /// What is called, if it can be.
    first: Option<Operand<'t>>,
    /// Where its arguments begin on the stack.
    args: usize,
}

pub(crate) struct Pipe<'t> {
    pos: Pos,
    is_assign: bool,
    variables: Vec<&'t [u8]>,
    /// Where its commands begin on the stack.
    commands: usize,
}

impl<'t> Compiler<'t> {
    pub(crate) fn new(text: &'t [u8]) -> Self {
        Self {
            text,
            variables: Vec::new(),
            first: 0,
            slots: 0,
            dot_is_element: false,
            controls: Vec::new(),
            operand: Operand {
                pos: 0,
                term: Term::Nil,
                names: 0,
            },
            ops: Vec::new(),
            commands: Vec::new(),
            args: Vec::new(),
            names: Vec::new(),
            sets: Vec::new(),
            done: Code::default(),
        }
    }

    /// The parts of all templates.
    pub(crate) fn finish(self) -> Code {
        self.done
    }

    fn declare(&mut self, name: &'t [u8]) -> u32 {
        let slot = self.variables.len() - self.first;
        self.variables.push(Variable {
            name,
            is_element: false,
        });
        self.slots = self.slots.max(slot + 1);
        u32::try_from(slot).unwrap_or(u32::MAX)
    }

    fn slot(&self, name: &[u8]) -> Option<u32> {
        let own = self.variables.get(self.first..)?;
        let slot = own.iter().rposition(|variable| variable.name == name)?;
        u32::try_from(slot).ok()
    }

    /// A command; `piped` is whether it gets the result of another.
    fn call(&mut self, command: Command<'t>, piped: bool) -> Expr {
        let Some(first) = command.first else {
            let kind = NodeKind::Command;
            let pos = command.pos;
            return Expr::Dot {
                at: At { pos, kind },
            };
        };
        let at = first.at();
        let has_args = piped || self.args.len() > command.args;
        if has_args && !first.takes_args(self.names.len()) {
            self.args.truncate(command.args);
            return Expr::NotCallable { operand: at };
        }
        let args = Span::take(&mut self.args, command.args, &mut self.done.args);
        match first.term {
            Term::Function(id, func) => {
                let kind = NodeKind::Command;
                let pos = command.pos;
                function(id, func, (at, At { pos, kind }), args, piped)
            }
            // A value of any type may be printed, but nil is none.
            Term::Nil => fail(at, "nil is not a command"),
            _ => self.value(first, args),
        }
    }

    /// What an operand gives, which is a method or no function.
    fn value(&mut self, operand: Operand<'t>, args: Span) -> Expr {
        let at = operand.at();
        let base = match operand.term {
            Term::Field => Base::Dot,
            Term::Chain(base) => {
                let start = self.commands.len();
                self.commands.push(base);
                let base = Span::take(&mut self.commands, start, &mut self.done.exprs);
                Base::Expr(base)
            }
            Term::Variable { slot, name } => {
                let has_fields = self.names.len() > operand.names;
                match slot {
                    None => {
                        self.names.truncate(operand.names);
                        let name = String::from_utf8_lossy(name);
                        return fail(at, format!("undefined variable: {name}"));
                    }
                    Some(slot) if !has_fields => return Expr::Slot { at, slot },
                    Some(slot) => Base::Slot(slot),
                }
            }
            Term::Dot => return Expr::Dot { at },
            Term::Pipe(pipe) => return Expr::Pipe(pipe),
            Term::Function(id, func) => return function(id, func, (at, at), args, false),
            literal => {
                return match self.constant(literal, Type::ANY) {
                    Ok(value) => Expr::Const { at, value },
                    Err(message) => fail(at, message),
                };
            }
        };
        let is_element = match base {
            Base::Dot => self.dot_is_element,
            Base::Slot(slot) => self
                .variables
                .get(self.first + slot as usize)
                .is_some_and(|variable| variable.is_element),
            Base::Expr(_) => false,
        };
        Expr::Fields(Fields {
            at,
            base,
            names: Span::take(&mut self.names, operand.names, &mut self.done.names),
            args,
            is_element,
        })
    }

    /// An argument for a parameter of type `ty`, if that is known already.
    fn arg(&mut self, operand: Operand<'t>, ty: Option<Type>) -> Arg {
        let at = operand.at();
        match operand.term {
            Term::Nil | Term::Bool(_) | Term::Number(_) | Term::Text { .. } => {
                let Some(ty) = ty else {
                    let literal = Box::new(self.literal(operand.term));
                    return Arg::Literal { at, literal };
                };
                match self.constant(operand.term, ty) {
                    Ok(value) => Arg::Const { at, value },
                    Err(message) => Arg::Fail {
                        at,
                        message: message.into(),
                    },
                }
            }
            // The receiver's type is not known, so neither are those of the parameters.
            _ => Arg::Expr {
                at,
                expr: self.value(operand, Span::default()),
                ty,
            },
        }
    }

    /// A literal as a parameter of type `ty` takes it, or Go's complaint.
    fn constant(&self, literal: Term<'t>, ty: Type) -> Result<Const, String> {
        match literal {
            Term::Text { text, .. }
                if ty == Type::STRING || ty == Type::ANY || ty == Type::REFLECT =>
            {
                Ok(Const::Str(text))
            }
            literal => self.literal(literal).typed(ty),
        }
    }

    fn literal(&self, literal: Term<'t>) -> Literal {
        match literal {
            Term::Bool(value) => Literal::Bool(value),
            Term::Number(number) => Literal::Number(number),
            Term::Text { quoted, text } => Literal::String {
                quoted: part(self.text, &quoted).into(),
                text,
            },
            _ => Literal::Nil,
        }
    }

    /// Takes the operand in hand.
    fn in_hand(&mut self) -> Operand<'t> {
        Operand {
            pos: self.operand.pos,
            term: std::mem::replace(&mut self.operand.term, Term::Nil),
            names: self.operand.names,
        }
    }

    /// Leaves a list of a control structure.
    fn leave(&mut self, variables: usize, dot_is_element: bool) {
        self.variables.truncate(variables);
        self.dot_is_element = dot_is_element;
    }
}

impl Operand<'_> {
    fn at(&self) -> At {
        let kind = match &self.term {
            Term::Bool(_) => NodeKind::Bool,
            Term::Dot => NodeKind::Dot,
            Term::Nil => NodeKind::Nil,
            Term::Function(..) => NodeKind::Identifier,
            Term::Field => NodeKind::Field,
            Term::Variable { .. } => NodeKind::Variable,
            Term::Number(_) => NodeKind::Number,
            Term::Text { .. } => NodeKind::String,
            Term::Pipe(_) => NodeKind::Pipe,
            Term::Chain(_) => NodeKind::Chain,
        };
        let pos = self.pos;
        At { pos, kind }
    }

    /// Whether it may have arguments, while so many names are on the stack.
    fn takes_args(&self, names: usize) -> bool {
        match self.term {
            Term::Function(..) | Term::Field | Term::Chain(_) => true,
            Term::Variable { .. } => names > self.names,
            _ => false,
        }
    }
}

impl<'t> Build<'t> for Compiler<'t> {
    type Command = Command<'t>;
    type OpenPipe = Pipe<'t>;
    type Pipe = PipeCode;
    /// Where its nodes begin on the stack.
    type OpenList = usize;
    type List = Span;
    type Outer = Outer;
    type Template = Body;

    fn begin(&mut self) -> Outer {
        let outer = Outer {
            first: self.first,
            slots: self.slots,
            dot_is_element: self.dot_is_element,
        };
        self.first = self.variables.len();
        self.slots = 0;
        self.dot_is_element = false;
        self.declare(b"$");
        outer
    }

    fn end(&mut self, outer: Outer, ops: Span, depth: usize) -> Body {
        let body = Body {
            ops,
            slots: self.slots,
            is_deep: depth > SHALLOW,
        };
        self.leave(self.first, outer.dot_is_element);
        self.first = outer.first;
        self.slots = outer.slots;
        body
    }

    fn operand(&mut self, pos: Pos, word: Word<'t, PipeCode>) {
        let names = self.names.len();
        let term = match word {
            Word::Bool(value) => Term::Bool(value),
            Word::Dot => Term::Dot,
            Word::Nil => Term::Nil,
            Word::Function { id, func, .. } => Term::Function(id, func),
            Word::Field(name) => {
                self.names.push(Name::new(name));
                Term::Field
            }
            Word::Variable(name) => {
                let slot = self.slot(name);
                Term::Variable { name, slot }
            }
            Word::Number(number) => Term::Number(number),
            Word::Text { quoted, text } => Term::Text { quoted, text },
            Word::Pipe(pipe) => Term::Pipe(pipe),
        };
        self.operand = Operand { pos, term, names };
    }

    fn field(&mut self, pos: Pos, name: &'t [u8]) {
        if let Term::Field | Term::Variable { .. } | Term::Chain(_) = self.operand.term {
            self.operand.pos = pos;
        } else {
            let inner = self.in_hand();
            let base = self.value(inner, Span::default());
            self.operand = Operand {
                pos,
                term: Term::Chain(base),
                names: self.names.len(),
            };
        }
        self.names.push(Name::new(name));
    }

    fn command(&mut self, pos: Pos) -> Command<'t> {
        Command {
            pos,
            first: None,
            args: self.args.len(),
        }
    }

    fn argument(&mut self, command: &mut Command<'t>) {
        let operand = self.in_hand();
        let Some(first) = &command.first else {
            command.first = Some(operand);
            return;
        };
        let index = self.args.len() - command.args;
        let ty = match first.term {
            Term::Function(_, func) => Some(func.param(index)),
            _ => None,
        };
        let arg = self.arg(operand, ty);
        self.args.push(arg);
    }

    fn pipe(&mut self, pos: Pos) -> Pipe<'t> {
        Pipe {
            pos,
            is_assign: false,
            variables: Vec::new(),
            commands: self.commands.len(),
        }
    }

    fn variable(&mut self, pipe: &mut Pipe<'t>, name: &'t [u8], is_assign: bool) {
        pipe.variables.push(name);
        pipe.is_assign = is_assign;
    }

    fn stage(&mut self, pipe: &mut Pipe<'t>, command: Command<'t>) {
        let piped = self.commands.len() > pipe.commands;
        let call = self.call(command, piped);
        self.commands.push(call);
    }

    fn close_pipe(&mut self, pipe: Pipe<'t>) -> PipeCode {
        let sets = self.sets.len();
        for name in pipe.variables {
            if !pipe.is_assign {
                let slot = self.declare(name);
                self.sets.push(slot);
            } else if let Some(slot) = self.slot(name) {
                self.sets.push(slot);
            } else {
                let name = String::from_utf8_lossy(name);
                let message = format!("undefined variable: {name}");
                self.commands.push(fail(None, message));
            }
        }
        let kind = NodeKind::Pipe;
        let pos = pipe.pos;
        PipeCode {
            at: At { pos, kind },
            commands: Span::take(&mut self.commands, pipe.commands, &mut self.done.exprs),
            sets: Span::take(&mut self.sets, sets, &mut self.done.slots),
        }
    }

    fn list(&mut self) -> usize {
        self.ops.len()
    }

    fn push(&mut self, _: &mut usize, part: Part<PipeCode, Span>) {
        let op = match part {
            Part::Text(range) => Op::Text {
                start: range.start,
                end: range.end,
            },
            Part::Action { pos, pipe } if pipe.sets.is_empty() => {
                let kind = NodeKind::Action;
                let at = At { pos, kind };
                Op::Print { at, pipe }
            }
            Part::Action { pipe, .. } => Op::Run(pipe),
            Part::Control {
                control,
                pipe,
                list,
                otherwise,
            } => {
                if let Some(scope) = self.controls.pop() {
                    self.leave(scope.outer, scope.dot_is_element);
                }
                let branch = Branch {
                    pipe,
                    then: list,
                    otherwise: otherwise.unwrap_or_default(),
                };
                match control {
                    Control::If => Op::If(branch),
                    Control::With => Op::With(branch),
                    Control::Range => Op::Range(branch),
                }
            }
            Part::Template { pos, name, pipe } => {
                let kind = NodeKind::Template;
                Op::Template(Box::new(Invoke {
                    at: At { pos, kind },
                    name: Name::new(name),
                    data: pipe,
                }))
            }
            Part::Break => Op::Break,
            Part::Continue => Op::Continue,
        };
        self.ops.push(op);
    }

    fn close_list(&mut self, list: usize) -> Span {
        Span::take(&mut self.ops, list, &mut self.done.ops)
    }

    fn enter(&mut self) {
        self.controls.push(Scope {
            outer: self.variables.len(),
            inner: 0,
            dot_is_element: self.dot_is_element,
        });
    }

    fn body(&mut self, control: Control) {
        let inner = self.variables.len();
        let Some(scope) = self.controls.last_mut() else {
            return;
        };
        scope.inner = inner;
        match control {
            Control::If => {}
            Control::With => self.dot_is_element = false,
            Control::Range => {
                self.dot_is_element = true;
                let declared = self.variables.get_mut(scope.outer..);
                if let Some(variable) = declared.and_then(<[_]>::last_mut) {
                    variable.is_element = true;
                }
            }
        }
    }

    fn otherwise(&mut self) {
        if let Some(scope) = self.controls.last() {
            self.leave(scope.inner, scope.dot_is_element);
        }
    }
}

/// A call of a function, which stands at the first of the nodes and fails at the second.
fn function(id: FuncId, func: &Func, nodes: (At, At), args: Span, piped: bool) -> Expr {
    let (ident, node) = nodes;
    if let Some(message) = arity_error(func, args.len(), piped) {
        return fail(ident, message);
    }
    match func.run {
        Run::And | Run::Or => {
            let is_or = matches!(func.run, Run::Or);
            Expr::Logic(Logic { ident, is_or, args })
        }
        _ => Expr::Call(CallCode {
            ident,
            node,
            func: id,
            args,
        }),
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

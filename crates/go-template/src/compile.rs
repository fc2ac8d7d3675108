//! Builds the code for the evaluator while parsing: variables become slots, field names are hashed,
//! functions are looked up, and literals get the types of their parameters.

use std::ops::Range;

use crate::ast::{At, NodeKind, Number, Pos, part};
use crate::code::{Arg, Base, Body, Branch, CallCode, Code, Const, Expr, Fields, Literal, Op};
use crate::code::{Invoke, Logic, PipeCode, Span};
use crate::func::{Func, FuncId, Run};
use crate::parse::{Build, Control, Part, Word};
use crate::value::{Name, Str, Type};

/// Nesting up to which a template needs no growing stack.
const SHALLOW_NESTING: usize = 24;

/// Builds the code of the templates of a text.
///
/// Parts of incomplete constructs are kept on a stack, above those of the enclosing constructs.
pub(crate) struct Compiler<'t> {
    text: &'t [u8],
    /// The variables in scope. The slot of a variable is its position, counted from the first one
    /// of its template.
    variables: Vec<Variable<'t>>,
    /// Index of the template's first variable.
    first: usize,
    /// Number of slots that the template needs.
    slots: usize,
    /// Whether dot is an element of a ranged-over value.
    dot_is_element: bool,
    controls: Vec<ControlScope>,
    ops: Vec<Op>,
    commands: Vec<Expr>,
    args: Vec<Arg>,
    names: Vec<Name>,
    sets: Vec<u32>,
    /// Number of open calls of `and` and `or`, which may not evaluate their arguments.
    logic: usize,
    /// Slots of variables that these arguments declare, see [`Logic::declares`].
    declares: Vec<(u32, Option<u32>)>,
    /// The complete parts.
    done: Code,
}

struct Variable<'t> {
    name: &'t [u8],
    /// Whether a range assigns its elements to it.
    is_element: bool,
}

/// State that is restored at the end of a control structure.
struct ControlScope {
    /// Number of variables before and after its pipe.
    outer: usize,
    inner: usize,
    dot_is_element: bool,
}

/// Saved state of the enclosing template.
pub(crate) struct Outer {
    first: usize,
    slots: usize,
    dot_is_element: bool,
}

pub(crate) struct Operand<'t> {
    pos: Pos,
    term: Term<'t>,
    /// Start of its field names on the stack.
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
    /// Fields of the only expression in the span.
    Chain(Span),
}

pub(crate) struct Command<'t> {
    pos: Pos,
    /// The called operand, if any.
    first: Option<Operand<'t>>,
    /// Start of its arguments on the stack.
    args: usize,
}

pub(crate) struct Pipe<'t> {
    pos: Pos,
    is_assign: bool,
    variables: Vec<&'t [u8]>,
    /// Start of its commands on the stack.
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
            ops: Vec::new(),
            commands: Vec::new(),
            args: Vec::new(),
            names: Vec::new(),
            sets: Vec::new(),
            logic: 0,
            declares: Vec::new(),
            done: Code::default(),
        }
    }

    /// Returns the parts of all templates.
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

    /// Compiles a command; `piped` means that it receives another result.
    fn call(&mut self, command: Command<'t>, piped: bool) -> Expr {
        let Some(first) = command.first else {
            let at = At::new(command.pos, NodeKind::Command);
            return Expr::Dot { at };
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
                let node = At::new(command.pos, NodeKind::Command);
                let mut call = function(id, func, (at, node), args, piped);
                if is_logic(func) {
                    self.logic = self.logic.saturating_sub(1);
                    // The outermost call sets the slots before it evaluates anything.
                    if self.logic == 0 {
                        let declares = std::mem::take(&mut self.declares);
                        if let Expr::Logic(logic) = &mut call {
                            logic.declares = declares.into();
                        }
                    }
                }
                call
            }
            // Any value may be printed, but a bare nil is an error.
            Term::Nil => fail(at, "nil is not a command"),
            _ => self.value(first, args),
        }
    }

    /// Compiles an operand that is a method or not a function.
    fn value(&mut self, operand: Operand<'t>, args: Span) -> Expr {
        let at = operand.at();
        let base = match operand.term {
            Term::Field => Base::Dot,
            Term::Chain(base) => Base::Expr(base),
            Term::Variable { slot: None, name } => {
                self.names.truncate(operand.names);
                return fail(at, undefined(name));
            }
            Term::Variable {
                slot: Some(slot), ..
            } => {
                let has_fields = self.names.len() > operand.names;
                if !has_fields {
                    return Expr::Slot { at, slot };
                }
                Base::Slot(slot)
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
            Base::Slot(slot) => {
                let variable = self.variables.get(self.first + slot as usize);
                variable.is_some_and(|variable| variable.is_element)
            }
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

    /// Compiles an argument for a parameter of type `ty`, if known.
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
            // The receiver's type is unknown, and so are those of the parameters.
            _ => Arg::Expr {
                at,
                expr: self.value(operand, Span::default()),
                ty,
            },
        }
    }

    /// Converts a literal to the type `ty` of a parameter, or returns Go's error.
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
        At::new(self.pos, kind)
    }

    /// Returns whether the operand may have arguments, given the number of names on the stack.
    fn takes_args(&self, names: usize) -> bool {
        match self.term {
            Term::Function(..) | Term::Field | Term::Chain(_) => true,
            Term::Variable { .. } => names > self.names,
            _ => false,
        }
    }
}

impl<'t> Build<'t> for Compiler<'t> {
    type Operand = Operand<'t>;
    type Command = Command<'t>;
    type OpenPipe = Pipe<'t>;
    type Pipe = PipeCode;
    /// Start of its nodes on the stack.
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
            is_deep: depth > SHALLOW_NESTING,
        };
        self.leave(self.first, outer.dot_is_element);
        self.first = outer.first;
        self.slots = outer.slots;
        body
    }

    #[inline]
    fn operand(&mut self, pos: Pos, word: Word<'t, PipeCode>) -> Operand<'t> {
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
        Operand { pos, term, names }
    }

    #[inline]
    fn field(&mut self, mut operand: Operand<'t>, pos: Pos, name: &'t [u8]) -> Operand<'t> {
        if let Term::Field | Term::Variable { .. } | Term::Chain(_) = operand.term {
            operand.pos = pos;
        } else {
            let value = self.value(operand, Span::default());
            let start = self.commands.len();
            self.commands.push(value);
            let base = Span::take(&mut self.commands, start, &mut self.done.exprs);
            operand = Operand {
                pos,
                term: Term::Chain(base),
                names: self.names.len(),
            };
        }
        self.names.push(Name::new(name));
        operand
    }

    fn command(&mut self, pos: Pos) -> Command<'t> {
        Command {
            pos,
            first: None,
            args: self.args.len(),
        }
    }

    #[inline]
    fn argument(&mut self, command: &mut Command<'t>, operand: Operand<'t>) {
        let Some(first) = &command.first else {
            if matches!(operand.term, Term::Function(_, func) if is_logic(func)) {
                self.logic += 1;
            }
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
                let outer = self.slot(name);
                let slot = self.declare(name);
                if self.logic > 0 {
                    self.declares.push((slot, outer));
                }
                self.sets.push(slot);
            } else if let Some(slot) = self.slot(name) {
                self.sets.push(slot);
            } else {
                self.commands.push(fail(None, undefined(name)));
            }
        }
        PipeCode {
            at: At::new(pipe.pos, NodeKind::Pipe),
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
                let at = At::new(pos, NodeKind::Action);
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
            Part::Template { pos, name, pipe } => Op::Template(Box::new(Invoke {
                at: At::new(pos, NodeKind::Template),
                name: Name::new(name),
                data: pipe,
            })),
            Part::Break => Op::Break,
            Part::Continue => Op::Continue,
        };
        self.ops.push(op);
    }

    fn close_list(&mut self, list: usize) -> Span {
        Span::take(&mut self.ops, list, &mut self.done.ops)
    }

    fn enter(&mut self) {
        self.controls.push(ControlScope {
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

/// Compiles a function call; `nodes` are the position of the call and that of its errors.
fn function(id: FuncId, func: &Func, nodes: (At, At), args: Span, piped: bool) -> Expr {
    let (ident, node) = nodes;
    if let Some(message) = arity_error(func, args.len(), piped) {
        return fail(ident, message);
    }
    match func.run {
        Run::And | Run::Or => {
            let is_or = matches!(func.run, Run::Or);
            Expr::Logic(Logic {
                ident,
                is_or,
                args,
                declares: Box::default(),
            })
        }
        _ => Expr::Call(CallCode {
            ident,
            node,
            func: id,
            args,
        }),
    }
}

/// Returns whether a function may not evaluate its arguments.
fn is_logic(func: &Func) -> bool {
    matches!(func.run, Run::And | Run::Or)
}

fn undefined(name: &[u8]) -> String {
    format!("undefined variable: {}", String::from_utf8_lossy(name))
}

/// Compiles to a failure with `message` at execution.
fn fail(at: impl Into<Option<At>>, message: impl Into<Box<str>>) -> Expr {
    Expr::Fail {
        at: at.into(),
        message: message.into(),
    }
}

/// Returns Go's error about the number of arguments.
pub(crate) fn arity_error(func: &Func, args: usize, piped: bool) -> Option<String> {
    let given = args + usize::from(piped);
    let wanted = func.params.len();
    let counts = match func.variadic {
        Some(_) if given < wanted => format!("at least {wanted} got {args}"),
        None if given != wanted => format!("{wanted} got {given}"),
        _ => return None,
    };
    let name = func.name;
    Some(format!("wrong number of args for {name}: want {counts}"))
}

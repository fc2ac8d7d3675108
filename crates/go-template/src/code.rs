//! The compiled form of a template: `Send + Sync`, with only fields, methods and other templates
//! left to look up by name.
//!
//! Parts of one kind are stored in one list, and their owner has the span of its own. The templates
//! of a text therefore take few allocations and are read mostly sequentially.

use crate::ast::{At, Number};
use crate::func::FuncId;
use crate::value::{Kind, Name, Object, SmallInt, Str, Type, Unsigned, Value, predeclared};

/// The parts of the templates of a text.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) ops: Vec<Op>,
    pub(crate) exprs: Vec<Expr>,
    pub(crate) args: Vec<Arg>,
    pub(crate) names: Vec<Name>,
    pub(crate) slots: Vec<u32>,
}

/// A template.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Body {
    pub(crate) ops: Span,
    /// The number of variable slots it needs, `$` being the first.
    pub(crate) slots: usize,
    /// Whether it nests so deeply that the stack must grow.
    pub(crate) is_deep: bool,
}

/// A range of consecutive parts of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    pub(crate) fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Returns the number of parts.
    pub(crate) fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Returns the parts in the list of their kind.
    #[inline]
    pub(crate) fn of<T>(self, list: &[T]) -> &[T] {
        list.get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }

    /// Moves the end of a stack, from `start` on, to the end of a list. Neither texts nor the lists
    /// exceed 4 GiB.
    pub(crate) fn take<T>(stack: &mut Vec<T>, start: usize, list: &mut Vec<T>) -> Self {
        let position = |list: &Vec<T>| u32::try_from(list.len()).unwrap_or(u32::MAX);
        let from = position(list);
        match stack.len().saturating_sub(start) {
            0 => {}
            1 => list.extend(stack.pop()),
            _ => list.extend(stack.drain(start..)),
        }
        Self {
            start: from,
            end: position(list),
        }
    }
}

#[derive(Debug)]
pub(crate) enum Op {
    /// A part of the source text.
    Text {
        start: u32,
        end: u32,
    },
    /// An action whose result is printed.
    Print {
        at: At,
        pipe: PipeCode,
    },
    /// An action that declares or assigns.
    Run(PipeCode),
    If(Branch),
    With(Branch),
    /// The pipe sets the key and the item, or only the item, in each iteration.
    Range(Branch),
    Template(Box<Invoke>),
    Break,
    Continue,
}

#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) pipe: PipeCode,
    pub(crate) then: Span,
    pub(crate) otherwise: Span,
}

#[derive(Debug)]
pub(crate) struct Invoke {
    pub(crate) at: At,
    pub(crate) name: Name,
    pub(crate) data: Option<PipeCode>,
}

/// Commands that each receive the previous result, and the slots for the last result.
#[derive(Debug)]
pub(crate) struct PipeCode {
    pub(crate) at: At,
    pub(crate) commands: Span,
    pub(crate) sets: Span,
}

#[derive(Debug)]
pub(crate) enum Expr {
    Const {
        at: At,
        value: Const,
    },
    Dot {
        at: At,
    },
    Slot {
        at: At,
        slot: u32,
    },
    Fields(Fields),
    Call(CallCode),
    Logic(Logic),
    Pipe(PipeCode),
    /// An operand with arguments that is not a function.
    NotCallable {
        operand: At,
    },
    /// Fails when it is executed; without a node, at the previously executed one.
    Fail {
        at: Option<At>,
        message: Box<str>,
    },
}

/// The start of a chain of fields.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Base {
    Dot,
    Slot(u32),
    /// The only expression in the span.
    Expr(Span),
}

/// A chain of fields; the last may be a method with arguments.
#[derive(Debug)]
pub(crate) struct Fields {
    pub(crate) at: At,
    pub(crate) base: Base,
    pub(crate) names: Span,
    pub(crate) args: Span,
    /// Whether the base is an element of a ranged-over value, which Go's messages treat as an
    /// interface.
    pub(crate) is_element: bool,
}

#[derive(Debug)]
pub(crate) struct CallCode {
    pub(crate) ident: At,
    /// The node at which errors of the function are reported.
    pub(crate) node: At,
    pub(crate) func: FuncId,
    pub(crate) args: Span,
}

/// `and` or `or`.
#[derive(Debug)]
pub(crate) struct Logic {
    pub(crate) ident: At,
    pub(crate) is_or: bool,
    pub(crate) args: Span,
    /// Slots of variables that arguments declare, each with that of the variable of the same name
    /// whose value it has if its argument is not evaluated.
    pub(crate) declares: Box<[(u32, Option<u32>)]>,
}

#[derive(Debug)]
pub(crate) enum Arg {
    /// A literal that fits its parameter.
    Const {
        at: At,
        value: Const,
    },
    /// A literal for a parameter whose type is unknown until execution.
    Literal {
        at: At,
        literal: Box<Literal>,
    },
    /// Any other argument, with the type of its parameter if known.
    Expr {
        at: At,
        expr: Expr,
        ty: Option<Type>,
    },
    Fail {
        at: At,
        message: Box<str>,
    },
}

impl Arg {
    pub(crate) fn at(&self) -> At {
        match self {
            Self::Const { at, .. }
            | Self::Literal { at, .. }
            | Self::Expr { at, .. }
            | Self::Fail { at, .. } => *at,
        }
    }
}

/// A value that threads can share.
#[derive(Clone, Debug)]
pub(crate) enum Const {
    Invalid,
    Nil,
    NilOf(Type),
    Bool(bool),
    Int(i64),
    Int64(i64),
    SmallInt(SmallInt, i64),
    Uint(Unsigned, u64),
    Float(f64),
    Complex(f64, f64),
    Str(Str),
    /// A number of a declared type.
    Scalar(Type, Box<Const>),
}

impl Const {
    /// Writes the value to `to`.
    #[inline]
    pub(crate) fn write(&self, to: &mut Value) {
        match self {
            Self::Str(text) => to.put(Value::Str(text.clone())),
            Self::Int(value) => to.put(Value::Int(*value)),
            Self::Bool(value) => to.put(Value::Bool(*value)),
            other => to.put(other.value()),
        }
    }

    fn value(&self) -> Value {
        match self {
            Self::Str(text) => Value::Str(text.clone()),
            Self::Int(value) => Value::Int(*value),
            Self::Bool(value) => Value::Bool(*value),
            Self::Float(value) => Value::Float(*value),
            Self::Nil => Value::Nil,
            Self::Invalid => Value::Invalid,
            Self::NilOf(ty) => Value::NilOf(*ty),
            Self::Int64(value) => Value::Int64(*value),
            Self::SmallInt(kind, value) => Value::SmallInt(*kind, *value),
            Self::Uint(kind, value) => Value::Uint(*kind, *value),
            Self::Complex(real, imaginary) => Value::Complex(std::rc::Rc::new((*real, *imaginary))),
            Self::Scalar(ty, inner) => Value::Object(Object::scalar(*ty, inner.value())),
        }
    }
}

/// A literal in its source form.
#[derive(Clone, Debug)]
pub(crate) enum Literal {
    Nil,
    Bool(bool),
    Number(Box<Number>),
    String { quoted: Str, text: Str },
}

impl Literal {
    /// Returns the value for a parameter of type `ty`, or Go's error.
    pub(crate) fn typed(&self, ty: Type) -> Result<Const, String> {
        let kind = ty.kind();
        if let Self::Nil = self {
            return match kind {
                _ if ty == Type::ANY => Ok(Const::Nil),
                _ if ty == Type::REFLECT => Ok(Const::Invalid),
                _ if kind == Kind::Interface => Ok(Const::Nil),
                _ if kind.can_be_nil() => Ok(Const::NilOf(ty)),
                _ => Err(format!("cannot assign nil to {ty}")),
            };
        }
        let typed = match kind {
            _ if ty == Type::ANY || ty == Type::REFLECT => return self.ideal(),
            Kind::Bool => self.bool().ok_or("expected bool"),
            Kind::String => self.string().ok_or("expected string"),
            kind if kind.is_int() => self.int(kind).ok_or("expected integer"),
            kind if kind.is_uint() => self.uint(kind).ok_or("expected unsigned integer"),
            Kind::Float32 | Kind::Float64 => self.float().ok_or("expected float"),
            Kind::Complex128 => self.complex().ok_or("expected complex"),
            _ => {
                return Err(format!(
                    "can't handle {} for arg of type {ty}",
                    self.shown()
                ));
            }
        };
        let value = typed.map_err(|wanted| format!("{wanted}; found {}", self.shown()))?;
        let declared = ty != predeclared(kind);
        Ok(if declared {
            Const::Scalar(ty, Box::new(value))
        } else {
            value
        })
    }

    /// Returns the value if no type is given: the form of a number decides.
    fn ideal(&self) -> Result<Const, String> {
        let number = match self {
            Self::Number(number) => number,
            Self::Bool(value) => return Ok(Const::Bool(*value)),
            Self::String { text, .. } => return Ok(Const::Str(text.clone())),
            Self::Nil => return Ok(Const::Nil),
        };
        if let Some((real, imaginary)) = number.complex {
            return Ok(Const::Complex(real, imaginary));
        }
        let text = number.text.as_bytes();
        let has = |wanted: &[u8]| text.iter().any(|byte| wanted.contains(byte));
        let is_hex = matches!(text, [b'0', b'x' | b'X', _, ..]) && !has(b"pP");
        let is_rune = text.first() == Some(&b'\'');
        match (number.float, number.int) {
            (Some(float), _) if !is_hex && !is_rune && has(b".eEpP") => Ok(Const::Float(float)),
            (_, Some(int)) => Ok(Const::Int(int)),
            _ => Err(format!("{} overflows int", number.text)),
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Nil => "nil".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Number(number) => number.text.to_string(),
            Self::String { quoted, .. } => quoted.to_string(),
        }
    }

    fn bool(&self) -> Option<Const> {
        match self {
            Self::Bool(value) => Some(Const::Bool(*value)),
            _ => None,
        }
    }

    fn string(&self) -> Option<Const> {
        match self {
            Self::String { text, .. } => Some(Const::Str(text.clone())),
            _ => None,
        }
    }

    fn number(&self) -> Option<&Number> {
        match self {
            Self::Number(number) => Some(number),
            _ => None,
        }
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "reflect's SetInt truncates too"
    )]
    fn int(&self, kind: Kind) -> Option<Const> {
        let int = self.number()?.int?;
        Some(match kind {
            Kind::Int8 => Const::SmallInt(SmallInt::Int8, i64::from(int as i8)),
            Kind::Int16 => Const::SmallInt(SmallInt::Int16, i64::from(int as i16)),
            Kind::Int32 => Const::SmallInt(SmallInt::Int32, i64::from(int as i32)),
            Kind::Int64 => Const::Int64(int),
            _ => Const::Int(int),
        })
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "reflect's SetUint truncates too"
    )]
    fn uint(&self, kind: Kind) -> Option<Const> {
        let uint = self.number()?.uint?;
        Some(match kind {
            Kind::Uint8 => Const::Uint(Unsigned::Uint8, u64::from(uint as u8)),
            Kind::Uint16 => Const::Uint(Unsigned::Uint16, u64::from(uint as u16)),
            Kind::Uint32 => Const::Uint(Unsigned::Uint32, u64::from(uint as u32)),
            Kind::Uint64 => Const::Uint(Unsigned::Uint64, uint),
            _ => Const::Uint(Unsigned::Uint, uint),
        })
    }

    fn float(&self) -> Option<Const> {
        Some(Const::Float(self.number()?.float?))
    }

    fn complex(&self) -> Option<Const> {
        let (real, imaginary) = self.number()?.complex?;
        Some(Const::Complex(real, imaginary))
    }
}

//! Actions and control structures.

use std::rc::Rc;

use super::{Eval, Result};
use crate::ast::At;
use crate::code::{Branch, Expr, Invoke, Op, PipeCode, Span};
use crate::func::{Args, Run};
use crate::go::strconv::quoted;
use crate::value::{Kind, List, Number, Object, Str, Value};
use bounded::{BudgetError, Buffer};

/// Outcome of a list of nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Next,
    Break,
    Continue,
}

/// The values that a range iterates over.
enum Items {
    List(List),
    Bytes(Rc<Str>),
    Int(Value, u64),
    Pairs(Vec<(Value, Value)>),
    None,
}

impl Eval<'_> {
    pub(super) fn list(&mut self, ops: Span, dot: &Value, out: &mut Buffer) -> Result<Flow> {
        for op in ops.of(&self.code.ops) {
            let flow = match op {
                Op::Text { start, end } => {
                    let text = self.template.source.text.as_bytes();
                    out.extend_from_slice(
                        text.get(*start as usize..*end as usize).unwrap_or_default(),
                    );
                    continue;
                }
                Op::Print { at, pipe } => {
                    let start = out.len();
                    self.print(*at, pipe, dot, out)?;
                    self.session.note_printed(start, out.len());
                    continue;
                }
                Op::Run(pipe) => {
                    self.pipe(pipe, dot, &mut Value::Invalid)?;
                    continue;
                }
                Op::If(branch) => self.branch(branch, dot, false, out)?,
                Op::With(branch) => self.branch(branch, dot, true, out)?,
                Op::Range(range) => self.range(range, dot, out)?,
                Op::Template(invoke) => {
                    self.template(invoke, dot, out)?;
                    continue;
                }
                Op::Break => Flow::Break,
                Op::Continue => Flow::Continue,
            };
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    /// Executes a body inside a control structure.
    fn body(&mut self, ops: Span, dot: &Value, out: &mut Buffer) -> Result<Flow> {
        self.nested(|eval| eval.list(ops, dot, out))
    }

    fn branch(
        &mut self,
        branch: &Branch,
        dot: &Value,
        is_with: bool,
        out: &mut Buffer,
    ) -> Result<Flow> {
        let mut value = Value::Invalid;
        self.pipe(&branch.pipe, dot, &mut value)?;
        if !value.is_true() {
            return self.body(branch.otherwise, dot, out);
        }
        self.body(branch.then, if is_with { &value } else { dot }, out)
    }

    fn print(&mut self, at: At, pipe: &PipeCode, dot: &Value, out: &mut Buffer) -> Result<()> {
        self.step()?;
        self.at = pipe.at;
        let Some((last, before)) = pipe.commands.of(&self.code.exprs).split_last() else {
            return Ok(());
        };
        let mut piped = self.piped(before, dot)?;
        // A function that returns a string writes it to the output directly.
        if let Expr::Call(call) = last
            && let Run::Text(run) = &self.func(call).run
        {
            return self.with_args(call, dot, piped.as_mut(), |eval, func, args| {
                let result = run(&mut eval.call_context(), &mut Args::new(args), out);
                let result = result.and_then(|()| Ok(out.check()?));
                result.map_err(|error| eval.failed_call(call.node, func.name, error))
            });
        }
        let mut value = Value::Invalid;
        self.command(last, dot, piped.as_mut(), &mut value)?;
        self.at = at;
        if let Value::Str(text) = &value {
            out.extend_from_slice(text.as_bytes());
            return out.check().map_err(|error| self.over(error));
        }
        self.print_value(&value, out)
    }

    fn print_value(&mut self, value: &Value, out: &mut Buffer) -> Result<()> {
        match value {
            Value::Invalid | Value::Nil => out.extend_from_slice(b"<no value>"),
            Value::Func(_) => {
                let node = self.template.describe(self.at);
                return Err(self.fail(format!("can't print {node} of type {}", value.type_name())));
            }
            _ => {
                let printed = crate::fmt::print_action(value, self.session.budget(), out);
                let printed = printed.and_then(|()| out.check());
                printed.map_err(|error| self.over(error))?;
            }
        }
        Ok(())
    }

    fn template(&mut self, invoke: &Invoke, dot: &Value, out: &mut Buffer) -> Result<()> {
        self.step()?;
        self.at = invoke.at;
        let Some(template) = self.set.find(&invoke.name) else {
            let name = quoted(invoke.name.key().as_bytes());
            return Err(self.fail(format!("template {name} not defined")));
        };
        let mut data = Value::Invalid;
        if let Some(pipe) = &invoke.data {
            self.pipe(pipe, dot, &mut data)?;
        }
        // Go's error has only the location in the called template.
        super::execute_or_recall(self.session, self.set, template, &data, out).map_err(|error| {
            if error.0.at.is_some() {
                return error;
            }
            match error.0.cause {
                crate::error::Cause::Budget(over) => self.over(over),
                _ => error,
            }
        })
    }

    fn range(&mut self, range: &Branch, dot: &Value, out: &mut Buffer) -> Result<Flow> {
        let mut value = Value::Invalid;
        self.pipe(&range.pipe, dot, &mut value)?;
        match self.items(range, &value)? {
            Items::None => self.body(range.otherwise, dot, out),
            Items::List(list) => {
                let item = |index| (key_of(index), list.get(index).unwrap_or(Value::Invalid));
                self.rounds(range, (0..list.len()).map(item), out)
            }
            Items::Bytes(bytes) => {
                let bytes = bytes.as_bytes().iter().enumerate();
                let items = bytes.map(|(index, byte)| (key_of(index), Value::byte(*byte)));
                self.rounds(range, items, out)
            }
            Items::Int(value, count) => {
                let item = |index| (Value::Invalid, with_number(&value, index));
                self.rounds(range, (0..count).map(item), out)
            }
            Items::Pairs(pairs) => self.rounds(range, pairs.into_iter(), out),
        }
    }

    fn rounds(
        &mut self,
        range: &Branch,
        items: impl Iterator<Item = (Value, Value)>,
        out: &mut Buffer,
    ) -> Result<Flow> {
        for (key, item) in items {
            if self.round(range, &key, &item, out)? == Flow::Break {
                break;
            }
        }
        Ok(Flow::Next)
    }

    fn round(
        &mut self,
        range: &Branch,
        key: &Value,
        item: &Value,
        out: &mut Buffer,
    ) -> Result<Flow> {
        self.step()?;
        out.check().map_err(|error| self.over(error))?;
        let limit = self.session.budget().limits().output;
        if out.len() > limit {
            return Err(self.over(BudgetError::Output { limit }));
        }
        match range.pipe.sets.of(&self.code.slots) {
            [] => {}
            [only] => self.set_slot(*only, item),
            [first, second, ..] => {
                self.set_slot(*first, key);
                self.set_slot(*second, item);
            }
        }
        self.body(range.then, item, out)
    }

    fn items(&mut self, range: &Branch, value: &Value) -> Result<Items> {
        Ok(match value {
            Value::Invalid | Value::Nil => Items::None,
            Value::List(list) if list.is_empty() => Items::None,
            Value::List(list) => Items::List(list.clone()),
            Value::Bytes(bytes) if bytes.is_empty() => Items::None,
            Value::Bytes(bytes) => Items::Bytes(Rc::clone(bytes)),
            Value::Map(map) if map.is_empty() => Items::None,
            Value::Map(map) => {
                let pairs = map.iter().map(|(key, item)| (Value::Str(key), item));
                Items::Pairs(pairs.collect())
            }
            Value::NilOf(ty) if matches!(ty.kind(), Kind::Map | Kind::Slice) => Items::None,
            _ => return self.count(range, value),
        })
    }

    /// Returns the iterations of a range over an integer.
    fn count(&mut self, range: &Branch, value: &Value) -> Result<Items> {
        let count = match value.number() {
            Some(Number::Int(count)) => u64::try_from(count).unwrap_or(0),
            Some(Number::Uint(count)) => count,
            Some(Number::Float(_)) | None => {
                let shown = self.shown(value);
                return Err(self.fail_with("range can't iterate over ", shown, value, ""));
            }
        };
        if range.pipe.sets.len() > 1 {
            let shown = self.shown(value);
            let what = " to iterate over more than one variable";
            return Err(self.fail_with("can't use ", shown, value, what));
        }
        let limit = self.session.budget().limits().range;
        match usize::try_from(count) {
            Ok(0) => Ok(Items::None),
            Ok(length) if length <= limit => Ok(Items::Int(value.clone(), count)),
            length => {
                let length = length.unwrap_or(usize::MAX);
                Err(self.over(BudgetError::Range { length, limit }))
            }
        }
    }

    /// Formats the value with `%v` for messages.
    fn shown(&mut self, value: &Value) -> String {
        let mut text = Buffer::new();
        // A value nested too deeply is shown partially.
        let _ = crate::fmt::print_value(value, self.session.budget(), &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn key_of(index: usize) -> Value {
    Value::Int(i64::try_from(index).unwrap_or(i64::MAX))
}

/// Returns `number` in the type of `like`.
fn with_number(like: &Value, number: u64) -> Value {
    let signed = i64::try_from(number).unwrap_or(i64::MAX);
    match like {
        Value::Int64(_) => Value::Int64(signed),
        Value::SmallInt(kind, _) => Value::SmallInt(*kind, signed),
        Value::Uint(kind, _) => Value::Uint(*kind, number),
        Value::Object(object) => {
            let inner = with_number(object.underlying(), number);
            Value::Object(Object::scalar(object.go_type(), inner))
        }
        _ => Value::Int(signed),
    }
}

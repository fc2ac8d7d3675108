//! Executes compiled templates.
//!
//! The evaluator walks the compiled form. It writes to one buffer, keeps variables in slots of the
//! session, and tracks the current node. The text of the node is derived from the source only for
//! errors.

mod call;
mod control;
mod expr;
mod field;

use std::sync::Arc;

use crate::ast::{At, NodeKind};
use crate::code::{CallCode, Code};
use crate::error::{Cause, Failure, FuncError, Location, RenderError};
use crate::func::{Call, Func};
use crate::session::Session;
use crate::set::{Template, TemplateSet};
use crate::value::Value;
use bounded::{BudgetError, Buffer};

pub(crate) use call::{invoke, prepare};

/// Executes a template that another one names, unless it is known what it prints.
pub(crate) fn execute_or_recall(
    session: &mut Session,
    set: &TemplateSet,
    template: &Arc<Template>,
    data: &Value,
    out: &mut Buffer,
) -> Result<(), RenderError> {
    let Some(key) = session.memo.key(set, template, data) else {
        return execute(session, set, template, data, out);
    };
    let (memo, budget) = session.memo_and_budget();
    if let Some(remembered) = memo.get(key, template, data, budget) {
        out.extend_from_slice(remembered.text());
        let fits = remembered.spend(budget).and_then(|()| out.check());
        return fits.map_err(|error| over(template, error));
    }
    let watch = memo.watch(key, data, budget);
    let start = out.len();
    let result = execute(session, set, template, data, out);
    let text = out.as_slice().get(start..).filter(|_| result.is_ok());
    let (memo, budget) = session.memo_and_budget();
    memo.keep(watch, template, data, text, budget);
    result
}

/// Returns the error for a limit that is exceeded before the first action.
#[cold]
fn over(template: &Template, error: BudgetError) -> RenderError {
    let failure = Failure::new(template.name.to_string(), None, Cause::Budget(error));
    RenderError(Box::new(failure))
}

/// Executes `template` with `data` as dot, appending to `out`.
pub(crate) fn execute(
    session: &mut Session,
    set: &TemplateSet,
    template: &Template,
    data: &Value,
    out: &mut Buffer,
) -> Result<(), RenderError> {
    let entered = session.budget().enter();
    entered.map_err(|error| over(template, error))?;
    let depth = session.budget().depth();
    session.memo.nest(depth);
    let base = session.slots.len();
    // A nil interface becomes an invalid reflect.Value.
    let dot = match data {
        Value::Nil => &Value::Invalid,
        _ => data,
    };
    let body = template.body;
    session
        .slots
        .resize_with(base + body.slots, || Value::Invalid);
    if let Some(root) = session.slots.get_mut(base) {
        root.put_copy(dot);
    }
    let start = out.len();
    let mut eval = Eval::new(session, set, template, base);
    let flow = bounded::grow(|| eval.list(body.ops, dot, out));
    let result = flow.and_then(|_| {
        let budget = eval.session.budget();
        let fits = budget.output(out.len().saturating_sub(start));
        let fits = fits.and_then(|()| out.check());
        fits.map_err(|error| eval.over(error))
    });
    session.slots.truncate(base);
    session.budget().leave();
    result
}

/// Number of templates that an error names at each end of a deep recursion.
const FRAMES_KEPT: usize = 16;

/// The state of one template execution.
pub(crate) struct Eval<'r> {
    session: &'r mut Session,
    set: &'r TemplateSet,
    template: &'r Template,
    code: &'r Code,
    /// The slot of `$`.
    base: usize,
    at: At,
}

type Result<T, E = RenderError> = std::result::Result<T, E>;

impl<'r> Eval<'r> {
    fn new(
        session: &'r mut Session,
        set: &'r TemplateSet,
        template: &'r Template,
        base: usize,
    ) -> Self {
        Self {
            session,
            set,
            template,
            code: &template.source.code,
            base,
            at: At::new(0, NodeKind::Action),
        }
    }

    /// Returns the context that functions receive.
    fn call_context(&mut self) -> Call<'_> {
        Call {
            session: self.session,
            set: self.set,
            template: self.template,
        }
    }

    /// Runs what is nested in the template, with enough stack.
    fn nested<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T {
        if self.template.body.is_deep {
            bounded::grow(|| run(self))
        } else {
            run(self)
        }
    }

    #[inline]
    fn func(&self, call: &CallCode) -> &'r Func {
        self.template.funcs.at(call.func)
    }

    #[inline]
    fn slot(&self, slot: u32) -> &Value {
        let value = self.session.slots.get(self.base + slot as usize);
        value.unwrap_or(&Value::Invalid)
    }

    #[inline]
    fn set_slot(&mut self, slot: u32, value: &Value) {
        if let Some(slot) = self.session.slots.get_mut(self.base + slot as usize) {
            slot.put_copy(value);
        }
    }

    #[inline]
    fn step(&mut self) -> Result<()> {
        let step = self.session.budget().step(1);
        step.map_err(|error| self.over(error))
    }

    /// Returns an error at the current node.
    #[cold]
    fn fail(&self, message: impl Into<String>) -> RenderError {
        self.failure(Cause::Message(message.into()))
    }

    /// Returns an error at the current node whose message shows a value.
    #[cold]
    fn fail_with(
        &self,
        before: &'static str,
        shown: String,
        value: &Value,
        after: &'static str,
    ) -> RenderError {
        self.failure(Cause::Value {
            before,
            value: shown,
            type_name: value.type_name().to_string(),
            after,
        })
    }

    /// Returns an exceeded limit as an error at the current node.
    #[cold]
    fn over(&self, error: BudgetError) -> RenderError {
        self.failure(Cause::Budget(error))
    }

    /// Returns an error of the function `name` at the node `at`.
    #[cold]
    fn failed_call(&mut self, at: At, name: &str, error: FuncError) -> RenderError {
        self.at = at;
        let is_deep = self.session.budget().depth() > FRAMES_KEPT;
        let error = match error.render() {
            Some(inner) if is_deep && inner.0.levels >= FRAMES_KEPT => match error.into_render() {
                Ok(mut inner) => {
                    inner.0.left_out += 1;
                    return inner;
                }
                Err(error) => error,
            },
            _ => error,
        };
        self.failure(Cause::Function {
            name: name.to_owned(),
            error,
        })
    }

    #[cold]
    fn failure(&self, cause: Cause) -> RenderError {
        let source = &self.template.source;
        let text = source.text.as_bytes();
        let offset = usize::try_from(self.at.pos).unwrap_or(usize::MAX);
        let location = Location::new(&source.name.to_string_lossy(), text, offset);
        let template = self.template.name.to_string();
        let at = Some((location, self.template.describe(self.at)));
        let mut failure = Failure::new(template, at, cause);
        failure.given = source.is_given.then_some(text.len());
        RenderError(Box::new(failure))
    }
}

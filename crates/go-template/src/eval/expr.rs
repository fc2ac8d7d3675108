//! Pipelines and commands.
//!
//! Results are written directly to their destination, because moving a value costs more than most
//! operations on it.

use super::{Eval, Result};
use crate::ast::NodeKind;
use crate::code::{Expr, Logic, PipeCode};
use crate::value::{Type, Value};

impl Eval<'_> {
    /// Evaluates a pipeline, and declares and assigns its variables.
    pub(super) fn pipe(&mut self, pipe: &PipeCode, dot: &Value, to: &mut Value) -> Result<()> {
        self.step()?;
        self.at = pipe.at;
        self.commands(pipe.commands.of(&self.code.exprs), dot, to)?;
        for slot in pipe.sets.of(&self.code.slots) {
            self.set_slot(*slot, to);
        }
        Ok(())
    }

    /// Evaluates the commands and returns the last result.
    #[inline]
    fn commands(&mut self, commands: &[Expr], dot: &Value, to: &mut Value) -> Result<()> {
        match commands {
            [] => to.put(Value::Invalid),
            [only] => self.command(only, dot, None, to)?,
            [before @ .., last] => {
                let mut piped = self.piped(before, dot)?;
                self.command(last, dot, piped.as_mut(), to)?;
            }
        }
        unbox(to);
        Ok(())
    }

    /// Evaluates commands and returns what they pass to the next one.
    pub(super) fn piped(&mut self, commands: &[Expr], dot: &Value) -> Result<Option<Value>> {
        let Some((first, rest)) = commands.split_first() else {
            return Ok(None);
        };
        let mut piped = Value::Invalid;
        self.command(first, dot, None, &mut piped)?;
        unbox(&mut piped);
        for command in rest {
            let mut next = Value::Invalid;
            self.command(command, dot, Some(&mut piped), &mut next)?;
            unbox(&mut next);
            piped = next;
        }
        Ok(Some(piped))
    }

    /// Evaluates a command. A piped value is consumed.
    pub(super) fn command(
        &mut self,
        command: &Expr,
        dot: &Value,
        piped: Option<&mut Value>,
        to: &mut Value,
    ) -> Result<()> {
        match command {
            Expr::Fields(fields) => return self.fields(fields, dot, piped, to),
            Expr::Call(call) => return self.call(call, dot, piped, to),
            Expr::Slot { at, slot } => {
                self.at = *at;
                to.put_copy(self.slot(*slot));
            }
            Expr::Const { at, value } => {
                self.at = *at;
                value.write(to);
            }
            Expr::Dot { at } => {
                self.at = *at;
                to.put_copy(dot);
            }
            Expr::Logic(logic) => return self.logic(logic, dot, piped, to),
            Expr::Pipe(pipe) => return self.nested(|eval| eval.pipe(pipe, dot, to)),
            Expr::NotCallable { operand } => {
                if operand.kind != NodeKind::Pipe {
                    self.at = *operand;
                }
                let shown = self.template.describe(*operand);
                return Err(self.fail(format!("can't give argument to non-function {shown}")));
            }
            Expr::Fail { at, message } => {
                self.at = at.unwrap_or(self.at);
                return Err(self.fail(&**message));
            }
        }
        Ok(())
    }

    /// `and` and `or`: returns the first argument that decides, or the last one.
    fn logic(
        &mut self,
        logic: &Logic,
        dot: &Value,
        piped: Option<&mut Value>,
        to: &mut Value,
    ) -> Result<()> {
        self.at = logic.ident;
        for (slot, outer) in &logic.declares {
            let value = outer.map(|outer| self.slot(outer).clone());
            self.set_slot(*slot, &value.unwrap_or(Value::Invalid));
        }
        to.put(Value::Invalid);
        for arg in logic.args.of(&self.code.args) {
            self.arg(arg, || Type::REFLECT, dot, to)?;
            if to.is_true() == logic.is_or {
                return Ok(());
            }
        }
        if let Some(piped) = piped {
            std::mem::swap(to, piped);
        }
        Ok(())
    }
}

/// Unwraps an interface; a nil interface becomes no value.
#[inline]
fn unbox(value: &mut Value) {
    if let Value::Nil = value {
        *value = Value::Invalid;
    }
}

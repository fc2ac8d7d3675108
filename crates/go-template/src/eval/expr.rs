//! Pipelines and commands.

use super::{Eval, Result};
use crate::code::{Expr, Logic, PipeCode};
use crate::value::{Type, Value};

impl Eval<'_> {
    /// The result of a pipeline; declares and assigns its variables.
    pub(super) fn pipe(&mut self, pipe: &PipeCode, dot: &Value) -> Result<Value> {
        self.step()?;
        self.at = pipe.at;
        let value = self
            .commands(&pipe.commands, dot)?
            .unwrap_or(Value::Invalid);
        if let Some((last, others)) = pipe.sets.split_last() {
            for slot in others {
                self.set_slot(*slot, value.clone());
            }
            self.set_slot(*last, value.clone());
        }
        Ok(value)
    }

    /// The result of the last of the commands, if there are any.
    #[inline]
    pub(super) fn commands(&mut self, commands: &[Expr], dot: &Value) -> Result<Option<Value>> {
        let mut piped = None;
        for command in commands {
            let value = self.command(command, dot, piped)?;
            // What was in an interface is taken out of it, so that a nil one leaves nothing.
            piped = Some(if let Value::Nil = value {
                Value::Invalid
            } else {
                value
            });
        }
        Ok(piped)
    }

    pub(super) fn command(
        &mut self,
        command: &Expr,
        dot: &Value,
        piped: Option<Value>,
    ) -> Result<Value> {
        match command {
            Expr::Fields(fields) => self.fields(fields, dot, piped),
            Expr::Call(call) => self.call(call, dot, piped),
            Expr::Slot { at, slot } => {
                self.at = *at;
                Ok(self.slot(*slot))
            }
            Expr::Const { at, value } => {
                self.at = *at;
                Ok(value.value())
            }
            Expr::Dot { at } => {
                self.at = *at;
                Ok(dot.clone())
            }
            Expr::Logic(logic) => self.logic(logic, dot, piped),
            Expr::Pipe(pipe) => self.nested(pipe, dot),
            Expr::Fail { at, message } => {
                self.at = at.unwrap_or(self.at);
                Err(self.fail(&**message))
            }
        }
    }

    fn nested(&mut self, pipe: &PipeCode, dot: &Value) -> Result<Value> {
        if self.template.code.is_deep {
            crate::stack::grow(|| self.pipe(pipe, dot))
        } else {
            self.pipe(pipe, dot)
        }
    }

    /// `and` and `or`: the first argument that decides, or the last one.
    fn logic(&mut self, logic: &Logic, dot: &Value, piped: Option<Value>) -> Result<Value> {
        self.at = logic.ident;
        let mut value = Value::Invalid;
        for arg in &logic.args {
            value = self.arg(arg, Type::REFLECT, dot)?;
            if value.is_true() == logic.is_or {
                return Ok(value);
            }
        }
        Ok(piped.unwrap_or(value))
    }
}

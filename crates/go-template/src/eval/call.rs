//! Calls: evaluates arguments, checks them against parameters by Go's rules, and passes them on.

use super::{Eval, Result};
use crate::ast::At;
use crate::code::{Arg, CallCode};
use crate::error::FuncError;
use crate::func::{Args, Call, Func, Run};
use crate::value::{Kind, Method, Type, Value, is_integer};

impl<'r> Eval<'r> {
    pub(super) fn call(
        &mut self,
        call: &CallCode,
        dot: &Value,
        piped: Option<&mut Value>,
        to: &mut Value,
    ) -> Result<()> {
        self.with_args(call, dot, piped, |eval, func, args| {
            let (template, code) = (eval.template, eval.code);
            let mut context = eval.call_context();
            let result = match &func.run {
                Run::Value(run) => run(&mut context, &mut Args::new(args)),
                Run::Call => call_value(&mut context, args, || {
                    Some(template.describe(call.args.of(&code.args).first()?.at()))
                }),
                _ => run_checked(&mut context, func, args),
            };
            to.put(result.map_err(|error| eval.failed_call(call.node, func.name, error))?);
            Ok(())
        })
    }

    /// Evaluates the arguments of a call and passes them to `run`. A few are kept on the stack.
    #[inline]
    pub(super) fn with_args(
        &mut self,
        call: &CallCode,
        dot: &Value,
        piped: Option<&mut Value>,
        run: impl FnOnce(&mut Self, &'r Func, &mut [Value]) -> Result<()>,
    ) -> Result<()> {
        const NIL: Value = Value::Nil;
        self.at = call.ident;
        let func = self.func(call);
        match call.args.len() + usize::from(piped.is_some()) {
            0 => run(self, func, &mut []),
            1 => {
                let mut args = [NIL];
                self.fill(call, func, dot, piped, &mut args)?;
                run(self, func, &mut args)
            }
            2 => {
                let mut args = [NIL; 2];
                self.fill(call, func, dot, piped, &mut args)?;
                run(self, func, &mut args)
            }
            3 => {
                let mut args = [NIL; 3];
                self.fill(call, func, dot, piped, &mut args)?;
                run(self, func, &mut args)
            }
            count => {
                let mut args = self.session.arguments();
                args.resize(count, Value::Nil);
                let filled = self.fill(call, func, dot, piped, &mut args);
                let result = filled.and_then(|()| run(self, func, &mut args));
                self.session.recycle_arguments(args);
                result
            }
        }
    }

    fn fill(
        &mut self,
        call: &CallCode,
        func: &Func,
        dot: &Value,
        piped: Option<&mut Value>,
        values: &mut [Value],
    ) -> Result<()> {
        let mut values = values.iter_mut();
        let args = call.args.of(&self.code.args);
        for (index, (arg, value)) in args.iter().zip(values.by_ref()).enumerate() {
            self.arg(arg, || func.param(index), dot, value)?;
        }
        if let (Some(piped), Some(value)) = (piped, values.next()) {
            std::mem::swap(value, piped);
            self.check(value, func.param(args.len()))?;
        }
        Ok(())
    }

    /// Evaluates an argument for a parameter; `ty` returns its type if the argument does not know
    /// it.
    #[inline]
    pub(super) fn arg(
        &mut self,
        arg: &Arg,
        ty: impl Fn() -> Type,
        dot: &Value,
        to: &mut Value,
    ) -> Result<()> {
        match arg {
            Arg::Expr {
                at,
                expr,
                ty: known,
            } => {
                self.at = *at;
                self.command(expr, dot, None, to)?;
                self.check(to, known.unwrap_or_else(ty))
            }
            Arg::Const { at, value } => {
                self.at = *at;
                value.write(to);
                Ok(())
            }
            Arg::Literal { at, literal } => {
                self.at = *at;
                let value = literal.typed(ty());
                value.map_err(|message| self.fail(message))?.write(to);
                Ok(())
            }
            Arg::Fail { at, message } => {
                self.at = *at;
                Err(self.fail(&**message))
            }
        }
    }

    /// Converts the value to the type `ty` of a parameter.
    #[inline]
    fn check(&mut self, value: &mut Value, ty: Type) -> Result<()> {
        if ty == Type::REFLECT {
            return Ok(());
        }
        if ty == Type::ANY {
            match value {
                Value::Invalid => *value = Value::Nil,
                Value::Object(object) => object.forget_address(),
                _ => {}
            }
            return Ok(());
        }
        if let (Value::Str(_), true) = (&*value, ty == Type::STRING) {
            return Ok(());
        }
        let assigned = assign(std::mem::take(value), ty);
        *value = assigned.map_err(|message| self.fail(message))?;
        Ok(())
    }

    pub(super) fn method(
        &mut self,
        method: &'static Method,
        receiver: &Value,
        at: At,
        args: &[Arg],
        dot: &Value,
        piped: Option<&mut Value>,
    ) -> Result<Value> {
        let signature = Func {
            name: method.name,
            params: method.params,
            variadic: method.variadic,
            run: Run::Call,
        };
        let arity = crate::compile::arity_error(&signature, args.len(), piped.is_some());
        if let Some(message) = arity {
            return Err(self.fail(message));
        }
        let mut values = Vec::with_capacity(args.len() + 1);
        for (index, arg) in args.iter().enumerate() {
            let mut value = Value::Nil;
            self.arg(arg, || signature.param(index), dot, &mut value)?;
            values.push(value);
        }
        if let Some(piped) = piped {
            let mut value = std::mem::take(piped);
            self.check(&mut value, signature.param(args.len()))?;
            values.push(value);
        }
        let mut context = self.call_context();
        let result = (method.run)(&mut context, receiver, &mut Args::new(&mut values));
        result.map_err(|error| match error.wrong_signature() {
            Some(message) => self.fail(message),
            None => self.failed_call(at, method.name, error),
        })
    }
}

/// Converts `value` for a parameter of type `ty`, or returns Go's error (`validateType`).
fn assign(value: Value, ty: Type) -> Result<Value, String> {
    match &value {
        Value::Invalid if ty.kind().can_be_nil() => Ok(Value::zero(ty)),
        Value::Invalid => Err(format!("invalid value; expected {ty}")),
        Value::Nil if ty.kind() == Kind::Interface => Ok(value),
        _ => match value.go_type() {
            Some(own) if own.assignable_to(ty) => Ok(converted(value, own, ty)),
            own => {
                let own = own.map_or("interface {}", Type::name);
                Err(format!("wrong type for value; expected {ty}; got {own}"))
            }
        },
    }
}

/// Converts a map of a named type to the parameter's type.
fn converted(value: Value, own: Type, ty: Type) -> Value {
    match value {
        Value::Map(map) if own != ty && ty.kind() == Kind::Map => Value::Map(map.as_type(ty)),
        value => value,
    }
}

/// Calls a function with checked arguments.
fn run_checked(call: &mut Call<'_>, func: &Func, args: &mut [Value]) -> Result<Value, FuncError> {
    match &func.run {
        Run::Value(run) => run(call, &mut Args::new(args)),
        Run::Closure(run) => run(call, &mut Args::new(args)),
        Run::Text(run) => {
            let mut out = call.session.buffer();
            let written = run(call, &mut Args::new(args), &mut out);
            let result = written.and_then(|()| {
                out.check()?;
                call.budget().string(out.len())?;
                Ok(Value::Str(out.as_slice().into()))
            });
            call.session.recycle(out);
            result
        }
        Run::Call => call_value(call, args, || None),
        Run::And | Run::Or => {
            // Without short-circuiting, all arguments are evaluated.
            let is_or = matches!(func.run, Run::Or);
            let decides = args.iter().position(|arg| arg.is_true() == is_or);
            let at = decides.unwrap_or(args.len().saturating_sub(1));
            Ok(Args::new(args).take(at))
        }
    }
}

/// Calls the builtin `call`: its first argument is the function; `written` returns its source text.
fn call_value(
    call: &mut Call<'_>,
    args: &mut [Value],
    written: impl Fn() -> Option<String>,
) -> Result<Value, FuncError> {
    let Some((func, args)) = args.split_first_mut() else {
        return Err(FuncError::new("call of nil"));
    };
    match func {
        Value::Func(func) => {
            let func = std::rc::Rc::clone(func);
            let ty = Value::Func(std::rc::Rc::clone(&func)).type_name();
            // What reflect prints for a piped value.
            let name = || written().unwrap_or_else(|| format!("<{ty} Value>"));
            invoke_as(call, &func, name, args)
        }
        Value::Invalid | Value::Nil => Err(FuncError::new("call of nil")),
        _ => {
            let ty = func.type_name();
            let piped = || match func.as_str() {
                Some(text) => text.to_string(),
                None => format!("<{ty} Value>"),
            };
            let name = written().unwrap_or_else(piped);
            Err(FuncError::new(format!("non-function {name} of type {ty}")))
        }
    }
}

/// Calls a function after checking arguments against its parameters.
pub(crate) fn invoke(
    call: &mut Call<'_>,
    func: &Func,
    args: &mut [Value],
) -> Result<Value, FuncError> {
    invoke_as(call, func, || func.name.to_owned(), args)
}

fn invoke_as(
    call: &mut Call<'_>,
    func: &Func,
    name: impl Fn() -> String,
    args: &mut [Value],
) -> Result<Value, FuncError> {
    let (given, wanted) = (args.len(), func.params.len());
    let message = match func.variadic {
        Some(_) if given < wanted => Some(format!("got {given} want at least {wanted}")),
        None if given != wanted => Some(format!("got {given} want {wanted}")),
        _ => None,
    };
    if let Some(message) = message {
        let message = format!("wrong number of args for {}: {message}", name());
        return Err(FuncError::new(message));
    }
    for (index, arg) in args.iter_mut().enumerate() {
        let value = std::mem::take(arg);
        *arg = prepare(value, func.param(index))
            .map_err(|message| FuncError::new(format!("arg {index}: {message}")))?;
    }
    run_checked(call, func, args)
}

/// Converts `value` for a parameter of type `ty`, including Go's conversion between integers
/// (`prepareArg`).
pub(crate) fn prepare(value: Value, ty: Type) -> Result<Value, String> {
    let Some(own) = value.go_type() else {
        return if ty.kind().can_be_nil() {
            Ok(Value::zero(ty))
        } else if ty == Type::REFLECT {
            Ok(Value::Invalid)
        } else {
            Err(format!("value is nil; should be of type {ty}"))
        };
    };
    if own.assignable_to(ty) {
        return Ok(converted(value, own, ty));
    }
    if is_integer(own.kind()) && is_integer(ty.kind()) {
        return Ok(value.convert_integer(ty));
    }
    Err(format!("value has type {own}; should be {ty}"))
}

//! Calls: arguments are evaluated, checked against parameters by Go's rules, and handed over.

use super::{Eval, Result};
use crate::ast::At;
use crate::code::{Arg, CallCode};
use crate::error::FuncError;
use crate::func::{Args, Call, Func, Run};
use crate::value::{Kind, Method, Type, Value, is_integer};

/// Up to this many arguments are kept on the stack.
const FEW: usize = 4;

impl Eval<'_> {
    pub(super) fn call(
        &mut self,
        call: &CallCode,
        dot: &Value,
        piped: Option<Value>,
    ) -> Result<Value> {
        self.with_args(call, dot, piped, |eval, args| {
            let mut context = eval.call_context();
            let result = match &call.func.run {
                Run::Value(run) => run(&mut context, &mut Args::new(args)),
                Run::Call => call_value(&mut context, call.callee.as_ref(), args),
                _ => run_checked(&mut context, &call.func, args),
            };
            result.map_err(|error| eval.failed_call(call.node, call.func.name, error))
        })
    }

    /// Evaluates the arguments of a call and gives them to `run`.
    #[inline]
    pub(super) fn with_args<T>(
        &mut self,
        call: &CallCode,
        dot: &Value,
        piped: Option<Value>,
        run: impl FnOnce(&mut Self, &mut [Value]) -> Result<T>,
    ) -> Result<T> {
        self.at = call.ident;
        let count = call.args.len() + usize::from(piped.is_some());
        if count <= FEW {
            let mut few: [Value; FEW] = [Value::Nil, Value::Nil, Value::Nil, Value::Nil];
            let few = few.get_mut(..count).unwrap_or_default();
            self.fill(call, dot, piped, few)?;
            return run(self, few);
        }
        let mut many = self.session.arguments();
        many.resize(count, Value::Nil);
        let result = self
            .fill(call, dot, piped, &mut many)
            .and_then(|()| run(self, &mut many));
        self.session.give_back_arguments(many);
        result
    }

    #[inline]
    fn fill(
        &mut self,
        call: &CallCode,
        dot: &Value,
        piped: Option<Value>,
        values: &mut [Value],
    ) -> Result<()> {
        let mut values = values.iter_mut();
        for (index, (arg, value)) in call.args.iter().zip(values.by_ref()).enumerate() {
            *value = self.arg(arg, call.func.param(index), dot)?;
        }
        if let (Some(piped), Some(value)) = (piped, values.next()) {
            *value = self.check(piped, call.func.param(call.args.len()))?;
        }
        Ok(())
    }

    /// The value of an argument for a parameter of type `ty`.
    #[inline]
    pub(super) fn arg(&mut self, arg: &Arg, ty: Type, dot: &Value) -> Result<Value> {
        match arg {
            Arg::Expr { at, expr } => {
                self.at = *at;
                let value = self.command(expr, dot, None)?;
                self.check(value, ty)
            }
            Arg::Const { at, value } => {
                self.at = *at;
                Ok(value.value())
            }
            Arg::Literal { at, literal } => {
                self.at = *at;
                match literal.typed(ty) {
                    Ok(value) => Ok(value.value()),
                    Err(message) => Err(self.fail(message)),
                }
            }
            Arg::Fail { at, message } => {
                self.at = *at;
                Err(self.fail(&**message))
            }
        }
    }

    /// The value as a parameter of type `ty` takes it.
    #[inline]
    fn check(&mut self, mut value: Value, ty: Type) -> Result<Value> {
        if ty == Type::REFLECT {
            return Ok(value);
        }
        if ty == Type::ANY {
            return Ok(match &mut value {
                Value::Invalid => Value::Nil,
                Value::Object(object) => {
                    object.forget_address();
                    value
                }
                _ => value,
            });
        }
        if let (Value::Str(_), true) = (&value, ty == Type::STRING) {
            return Ok(value);
        }
        match assign(value, ty) {
            Ok(value) => Ok(value),
            Err(message) => Err(self.fail(message)),
        }
    }

    pub(super) fn method(
        &mut self,
        method: &'static Method,
        receiver: &Value,
        at: At,
        args: &[Arg],
        dot: &Value,
        piped: Option<Value>,
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
            values.push(self.arg(arg, signature.param(index), dot)?);
        }
        if let Some(piped) = piped {
            values.push(self.check(piped, signature.param(args.len()))?);
        }
        let mut context = self.call_context();
        let result = (method.run)(&mut context, receiver, &mut Args::new(&mut values));
        result.map_err(|error| self.failed_call(at, method.name, error))
    }
}

/// `value` as a parameter of type `ty` takes it, or Go's complaint (`validateType`).
fn assign(value: Value, ty: Type) -> Result<Value, String> {
    match &value {
        Value::Invalid if ty.kind().can_be_nil() => Ok(Value::zero(ty)),
        Value::Invalid => Err(format!("invalid value; expected {ty}")),
        Value::Nil if ty.kind() == Kind::Interface => Ok(value),
        Value::Nil => Err(format!(
            "wrong type for value; expected {ty}; got interface {{}}"
        )),
        _ => match value.go_type() {
            Some(own) if own.assignable_to(ty) => Ok(value),
            _ => {
                let own = value.type_name();
                Err(format!("wrong type for value; expected {ty}; got {own}"))
            }
        },
    }
}

/// Calls a function with arguments that were checked.
fn run_checked(call: &mut Call<'_>, func: &Func, args: &mut [Value]) -> Result<Value, FuncError> {
    match &func.run {
        Run::Value(run) => run(call, &mut Args::new(args)),
        Run::Closure(run) => run(call, &mut Args::new(args)),
        Run::Text(run) => {
            let mut out = call.session.buffer();
            let result = run(call, &mut Args::new(args), &mut out);
            let result = result.and_then(|()| {
                call.budget().string(out.len())?;
                Ok(Value::Str(out.as_slice().into()))
            });
            call.session.give_back(out);
            result
        }
        Run::Call => call_value(call, None, args),
        Run::And | Run::Or => {
            // Without short circuit all arguments are there.
            let is_or = matches!(func.run, Run::Or);
            let decides = args.iter().position(|arg| arg.is_true() == is_or);
            let at = decides.unwrap_or(args.len().saturating_sub(1));
            Ok(Args::new(args).take(at))
        }
    }
}

/// The builtin `call`: its first argument is the function.
fn call_value(
    call: &mut Call<'_>,
    callee: Option<&crate::Str>,
    args: &mut [Value],
) -> Result<Value, FuncError> {
    let Some((func, args)) = args.split_first_mut() else {
        return Err(FuncError::new("call of nil"));
    };
    let name = callee.map_or_else(|| func.type_name().to_owned(), ToString::to_string);
    match func {
        Value::Func(func) => {
            let func = std::rc::Rc::clone(func);
            invoke_as(call, &func, &name, args)
        }
        Value::Invalid | Value::Nil => Err(FuncError::new("call of nil")),
        _ => {
            let ty = func.type_name();
            Err(FuncError::new(format!("non-function {name} of type {ty}")))
        }
    }
}

/// Calls a function with arguments that are checked against its parameters.
pub(crate) fn invoke(
    call: &mut Call<'_>,
    func: &Func,
    args: &mut [Value],
) -> Result<Value, FuncError> {
    invoke_as(call, func, func.name, args)
}

fn invoke_as(
    call: &mut Call<'_>,
    func: &Func,
    name: &str,
    args: &mut [Value],
) -> Result<Value, FuncError> {
    let (given, wanted) = (args.len(), func.params.len());
    let message = match func.variadic {
        Some(_) if given < wanted => Some(format!("got {given} want at least {wanted}")),
        None if given != wanted => Some(format!("got {given} want {wanted}")),
        _ => None,
    };
    if let Some(message) = message {
        return Err(FuncError::new(format!(
            "wrong number of args for {name}: {message}"
        )));
    }
    for (index, arg) in args.iter_mut().enumerate() {
        let value = std::mem::take(arg);
        *arg = prepare(value, func.param(index))
            .map_err(|message| FuncError::new(format!("arg {index}: {message}")))?;
    }
    run_checked(call, func, args)
}

/// `value` as a parameter of type `ty` takes it, with Go's conversion between integers
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
        return Ok(value);
    }
    if is_integer(own.kind()) && is_integer(ty.kind()) {
        return Ok(value.convert_integer(ty));
    }
    Err(format!("value has type {own}; should be {ty}"))
}

//! Executes compiled templates.

use crate::error::{FuncError, RenderError};
use crate::func::{Args, Call, Func, Run};
use crate::session::Session;
use crate::set::{Template, TemplateSet};
use crate::value::Value;

/// Executes `template` with `data` as dot, appending to `out`.
pub(crate) fn execute(
    _: &mut Session,
    _: &TemplateSet,
    template: &Template,
    _: &Value,
    out: &mut Vec<u8>,
) -> Result<(), RenderError> {
    out.extend_from_slice(template.code.text.as_bytes());
    Ok(())
}

/// Calls a function from Rust.
pub(crate) fn invoke(
    call: &mut Call<'_>,
    func: &Func,
    args: &mut [Value],
) -> Result<Value, FuncError> {
    match &func.run {
        Run::Value(run) => run(call, &mut Args::new(args)),
        Run::Closure(run) => run(call, &mut Args::new(args)),
        Run::Text(run) => {
            let mut out = call.session.buffer();
            let result = run(call, &mut Args::new(args), &mut out);
            let value = Value::Str(out.as_slice().into());
            call.session.give_back(out);
            result.map(|()| value)
        }
        Run::And | Run::Or | Run::Call => Err(FuncError::new("not callable")),
    }
}

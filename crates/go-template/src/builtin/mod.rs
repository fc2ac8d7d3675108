//! The functions that text/template itself has.

use crate::func::{Func, Run};
use crate::value::Type;

/// Go's builtin functions.
pub(crate) static FUNCS: &[Func] = &[
    Func::special("and", &[Type::REFLECT], Run::And),
    Func::special("or", &[Type::REFLECT], Run::Or),
    Func::special("call", &[Type::REFLECT], Run::Call),
    Func::text("printf", &[Type::STRING], printf).variadic(Type::ANY),
];

fn printf(
    _: &mut crate::Call<'_>,
    args: &mut crate::Args<'_>,
    out: &mut Vec<u8>,
) -> Result<(), crate::FuncError> {
    out.extend_from_slice(args.str(0).as_bytes());
    Ok(())
}

//! `print`, `printf`, `println`.

use crate::error::FuncError;
use crate::fmt;
use crate::func::{Args, Call};
use bounded::Buffer;

type Result = std::result::Result<(), FuncError>;

pub(super) fn print(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Result {
    Ok(fmt::sprint(args.all(), call.budget(), out)?)
}

pub(super) fn printf(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Result {
    let format = args.str(0).as_bytes();
    Ok(fmt::sprintf(format, args.rest(1), call.budget(), out)?)
}

pub(super) fn println(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Result {
    Ok(fmt::sprintln(args.all(), call.budget(), out)?)
}

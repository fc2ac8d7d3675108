//! The predefined functions of text/template.

mod compare;
mod escape;
mod index;
mod print;

use crate::func::{Func, Run};
use crate::value::Type;

/// Go's builtin functions.
pub(crate) static FUNCS: &[Func] = &[
    Func::special("and", &[Type::REFLECT], Run::And),
    Func::special("call", &[Type::REFLECT], Run::Call),
    Func::special("or", &[Type::REFLECT], Run::Or),
    Func::text("html", &[], escape::html).variadic(Type::ANY),
    Func::text("js", &[], escape::js).variadic(Type::ANY),
    Func::text("urlquery", &[], escape::urlquery).variadic(Type::ANY),
    Func::value("index", &[Type::REFLECT], index::index).variadic(Type::REFLECT),
    Func::value("len", &[Type::REFLECT], index::len),
    Func::value("not", &[Type::REFLECT], compare::not),
    Func::value("slice", &[Type::REFLECT], index::slice).variadic(Type::REFLECT),
    Func::text("print", &[], print::print).variadic(Type::ANY),
    Func::text("printf", &[Type::STRING], print::printf).variadic(Type::ANY),
    Func::text("println", &[], print::println).variadic(Type::ANY),
    Func::value("eq", &[Type::REFLECT], compare::eq).variadic(Type::REFLECT),
    Func::value("ge", &[Type::REFLECT, Type::REFLECT], compare::ge),
    Func::value("gt", &[Type::REFLECT, Type::REFLECT], compare::gt),
    Func::value("le", &[Type::REFLECT, Type::REFLECT], compare::le),
    Func::value("lt", &[Type::REFLECT, Type::REFLECT], compare::lt),
    Func::value("ne", &[Type::REFLECT, Type::REFLECT], compare::ne),
];

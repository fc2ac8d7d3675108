//! Defaults: `default`, `coalesce`, `empty`, `ternary`, `all`, `any`, and `fail`.

use super::{ANY, Answer};
use crate::error::FuncError;
use crate::func::{Args, Call, Func};
use crate::value::{Kind, Type, Value};

pub(super) static FUNCS: &[Func] = &[
    Func::value("all", &[], all).variadic(ANY),
    Func::value("any", &[], any).variadic(ANY),
    Func::value("coalesce", &[], coalesce).variadic(ANY),
    Func::value("default", &[ANY], default).variadic(ANY),
    Func::value("empty", &[ANY], |_, args| Ok(is_empty(args.get(0)).into())),
    Func::value("fail", &[Type::STRING], fail),
    Func::value("ternary", &[ANY, ANY, Type::BOOL], ternary),
];

/// Returns whether a value is the zero value of its kind. Structs never are; pointers and functions
/// are if they are nil.
pub(super) fn is_empty(value: &Value) -> bool {
    let is_object = matches!(value, Value::Object(_));
    let may_be_empty = !is_object || !matches!(value.kind(), Kind::Ptr | Kind::Struct);
    may_be_empty && !value.is_true()
}

fn default(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let given = args.len() > 1 && !is_empty(args.get(1));
    Ok(args.take(usize::from(given)))
}

fn coalesce(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let found = args.all().iter().position(|value| !is_empty(value));
    Ok(found.map(|index| args.take(index)).unwrap_or_default())
}

fn all(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    Ok(Value::Bool(!args.all().iter().any(is_empty)))
}

fn any(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    Ok(Value::Bool(!args.all().iter().all(is_empty)))
}

fn ternary(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let chosen = usize::from(!args.bool(2));
    Ok(args.take(chosen))
}

fn fail(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    Err(FuncError::new(args.str(0).to_string_lossy()))
}

//! Names of types and kinds, and Go's `reflect.DeepEqual`.

use super::{ANY, Answer, STRING};
use crate::func::{Args, Call, Func};
use crate::go::semver::Version;
use crate::go::time::Time;
use crate::value::{Object, Value};
use bounded::{Budget, BudgetError};

pub(super) static FUNCS: &[Func] = &[
    Func::value("deepEqual", &[ANY, ANY], deep_equal_values),
    Func::value("kindIs", &[STRING, ANY], kind_is),
    Func::value("kindOf", &[ANY], |_, args| {
        Ok(args.get(0).kind().name().into())
    }),
    Func::value("typeIs", &[STRING, ANY], type_is),
    Func::value("typeIsLike", &[STRING, ANY], type_is_like),
    Func::value("typeOf", &[ANY], |_, args| {
        Ok(args.get(0).type_name().into())
    }),
];

fn kind_is(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    Ok(Value::Bool(*args.str(0) == args.get(1).kind().name()))
}

fn type_is(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    Ok(Value::Bool(*args.str(0) == args.get(1).type_name()))
}

/// Like `typeIs`, but also accepts a pointer to the type.
fn type_is_like(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let (wanted, name) = (args.str(0), args.get(1).type_name());
    let pointer = name.strip_prefix('*').is_some_and(|name| *wanted == name);
    Ok(Value::Bool(pointer || *wanted == name))
}

fn deep_equal_values(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let budget = call.budget();
    Ok(Value::Bool(deep_equal(args.get(0), args.get(1), budget)?))
}

/// Go's `reflect.DeepEqual`: same types, same contents; nil equals only nil.
#[allow(clippy::float_cmp, reason = "Go's == on floats is meant")]
pub(super) fn deep_equal(a: &Value, b: &Value, budget: &Budget) -> Result<bool, BudgetError> {
    let nested = |a: &Value, b: &Value| {
        if a.is_container() {
            budget.descend(|| deep_equal(a, b, budget))
        } else {
            budget.step(1)?;
            deep_equal(a, b, budget)
        }
    };
    Ok(match (a, b) {
        (Value::Invalid | Value::Nil, Value::Invalid | Value::Nil) => true,
        (Value::NilOf(a), Value::NilOf(b)) => a == b,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) | (Value::Int64(a), Value::Int64(b)) => a == b,
        (Value::SmallInt(kind, a), Value::SmallInt(other, b)) => kind == other && a == b,
        (Value::Uint(kind, a), Value::Uint(other, b)) => kind == other && a == b,
        (Value::Float(a), Value::Float(b)) => a == b,
        (Value::Complex(a), Value::Complex(b)) => a == b,
        (Value::Str(a), Value::Str(b)) => a == b,
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::List(a), Value::List(b)) => {
            if a.go_type() != b.go_type() || a.len() != b.len() {
                return Ok(false);
            }
            if a.is_same(b) {
                return Ok(true);
            }
            for (a, b) in a.iter().zip(b.iter()) {
                if !nested(&a, &b)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Map(a), Value::Map(b)) => {
            if a.go_type() != b.go_type() || a.len() != b.len() {
                return Ok(false);
            }
            if a.is_same(b) {
                return Ok(true);
            }
            for (key, value) in a {
                match b.get(key) {
                    Some(other) if nested(&value, &other)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (Value::Object(a), Value::Object(b)) => return equal_objects(a, b, &nested),
        _ => false,
    })
}

fn equal_objects(
    a: &Object,
    b: &Object,
    nested: &impl Fn(&Value, &Value) -> Result<bool, BudgetError>,
) -> Result<bool, BudgetError> {
    if a.go_type() != b.go_type() {
        return Ok(false);
    }
    if a.is_same(b) {
        return Ok(true);
    }
    if let (Some(a), Some(b)) = (a.data::<Time>(), b.data::<Time>()) {
        return Ok(a == b);
    }
    if let (Some(a), Some(b)) = (a.data::<Version>(), b.data::<Version>()) {
        return Ok(a == b);
    }
    if !matches!(a.underlying(), Value::Invalid) {
        return nested(a.underlying(), b.underlying());
    }
    if a.fields().is_empty() || a.fields().len() != b.fields().len() {
        return Ok(false);
    }
    for (a, b) in a.fields().iter().zip(b.fields()) {
        if !nested(a, b)? {
            return Ok(false);
        }
    }
    Ok(true)
}

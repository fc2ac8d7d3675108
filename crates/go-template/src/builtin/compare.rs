//! `eq`, `ne`, `lt`, `le`, `gt`, `ge`, `not`.
#![allow(
    clippy::unnecessary_wraps,
    reason = "functions of templates have one signature"
)]

use bounded::Buffer;
use std::cmp::Ordering;

use crate::error::FuncError;
use crate::func::{Args, Call};
use crate::value::{Kind, Value};

type Result<T = Value> = std::result::Result<T, FuncError>;

pub(super) fn not(_: &mut Call<'_>, args: &mut Args<'_>) -> Result {
    Ok(Value::Bool(!args.get(0).is_true()))
}

pub(super) fn eq(call: &mut Call<'_>, args: &mut Args<'_>) -> Result {
    let (first, others) = (args.get(0), args.rest(1));
    if others.is_empty() {
        return Err(FuncError::new("missing argument for comparison"));
    }
    for other in others {
        if equal(call, first, other)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

pub(super) fn ne(call: &mut Call<'_>, args: &mut Args<'_>) -> Result {
    Ok(Value::Bool(!equal(call, args.get(0), args.get(1))?))
}

pub(super) fn lt(_: &mut Call<'_>, args: &mut Args<'_>) -> Result {
    Ok(Value::Bool(less(args.get(0), args.get(1))?))
}

pub(super) fn le(call: &mut Call<'_>, args: &mut Args<'_>) -> Result {
    Ok(Value::Bool(less_or_equal(call, args.get(0), args.get(1))?))
}

pub(super) fn gt(call: &mut Call<'_>, args: &mut Args<'_>) -> Result {
    Ok(Value::Bool(!less_or_equal(call, args.get(0), args.get(1))?))
}

pub(super) fn ge(_: &mut Call<'_>, args: &mut Args<'_>) -> Result {
    Ok(Value::Bool(!less(args.get(0), args.get(1))?))
}

fn less_or_equal(call: &mut Call<'_>, a: &Value, b: &Value) -> Result<bool> {
    Ok(less(a, b)? || equal(call, a, b)?)
}

/// A value in one of the families within which Go compares.
#[derive(Clone, Copy)]
enum Basic<'v> {
    Bool(bool),
    Complex(f64, f64),
    Int(i64),
    Float(f64),
    Str(&'v [u8]),
    Uint(u64),
}

fn basic(value: &Value) -> Option<Basic<'_>> {
    Some(match value {
        Value::Str(text) => Basic::Str(text.as_bytes()),
        Value::Int(value) | Value::Int64(value) | Value::SmallInt(_, value) => Basic::Int(*value),
        Value::Uint(_, value) => Basic::Uint(*value),
        Value::Float(value) => Basic::Float(*value),
        Value::Bool(value) => Basic::Bool(*value),
        Value::Complex(value) => Basic::Complex(value.0, value.1),
        Value::Object(object) => return basic(object.underlying()),
        _ => return None,
    })
}

fn incompatible(a: &Value, b: &Value) -> FuncError {
    let (a, b) = (a.type_name(), b.type_name());
    FuncError::new(format!("incompatible types for comparison: {a} and {b}"))
}

#[allow(clippy::float_cmp, reason = "Go's == on floats is meant")]
fn equal(call: &mut Call<'_>, a: &Value, b: &Value) -> Result<bool> {
    Ok(match (basic(a), basic(b)) {
        (Some(Basic::Str(a)), Some(Basic::Str(b))) => a == b,
        (Some(Basic::Int(a)), Some(Basic::Int(b))) => a == b,
        (Some(Basic::Uint(a)), Some(Basic::Uint(b))) => a == b,
        (Some(Basic::Int(int)), Some(Basic::Uint(uint)))
        | (Some(Basic::Uint(uint)), Some(Basic::Int(int))) => u64::try_from(int) == Ok(uint),
        (Some(Basic::Float(a)), Some(Basic::Float(b))) => a == b,
        (Some(Basic::Bool(a)), Some(Basic::Bool(b))) => a == b,
        (Some(Basic::Complex(a, b)), Some(Basic::Complex(c, d))) => a == c && b == d,
        (None, None) => equal_others(call, a, b)?,
        // A missing value is comparable to everything and equal to no basic value.
        _ if a.go_type().is_none() || b.go_type().is_none() => false,
        _ => return Err(incompatible(a, b)),
    })
}

/// Go's `==` for other values: nil, and what interfaces can compare.
fn equal_others(call: &mut Call<'_>, a: &Value, b: &Value) -> Result<bool> {
    let (kind_a, kind_b) = (a.kind(), b.kind());
    if kind_a != kind_b && kind_a != Kind::Invalid && kind_b != Kind::Invalid {
        // Go prints the values in place of the types, and vice versa.
        let args = [
            a.clone(),
            a.type_name().into(),
            b.type_name().into(),
            b.clone(),
        ];
        return Err(error_with_values(
            call,
            "non-comparable types %s: %v, %s: %v",
            &args,
        ));
    }
    if a.is_nil() || b.is_nil() {
        return Ok(a.is_nil() && b.is_nil());
    }
    match (a, b) {
        (Value::Object(a), Value::Object(b)) if b.go_type().kind() == Kind::Ptr => {
            Ok(a.go_type() == b.go_type() && a.is_same(b))
        }
        (Value::Object(a), Value::Object(b)) => {
            if a.go_type() != b.go_type() {
                return Ok(false);
            }
            if a.is_same(b) {
                return Ok(true);
            }
            let fields = a.fields().iter().zip(b.fields());
            let mut same = !a.fields().is_empty();
            for (a, b) in fields {
                same &= equal(call, a, b)?;
            }
            Ok(same)
        }
        _ => {
            let args = [b.clone(), b.type_name().into()];
            Err(error_with_values(call, "non-comparable type %s: %v", &args))
        }
    }
}

/// Returns an error whose text contains values.
fn error_with_values(call: &mut Call<'_>, format: &str, args: &[Value]) -> FuncError {
    let mut text = Buffer::new();
    match crate::fmt::sprintf(format.as_bytes(), args, call.budget(), &mut text) {
        Ok(()) => FuncError::new(String::from_utf8_lossy(&text)),
        Err(error) => error.into(),
    }
}

fn less(a: &Value, b: &Value) -> Result<bool> {
    const BAD: &str = "invalid type for comparison";
    let (Some(left), Some(right)) = (basic(a), basic(b)) else {
        return Err(FuncError::new(BAD));
    };
    Ok(match (left, right) {
        (Basic::Str(a), Basic::Str(b)) => a < b,
        (Basic::Int(a), Basic::Int(b)) => a < b,
        (Basic::Uint(a), Basic::Uint(b)) => a < b,
        (Basic::Float(a), Basic::Float(b)) => a.partial_cmp(&b) == Some(Ordering::Less),
        (Basic::Int(a), Basic::Uint(b)) => u64::try_from(a).is_ok_and(|a| a < b) || a < 0,
        (Basic::Uint(a), Basic::Int(b)) => u64::try_from(b).is_ok_and(|b| a < b),
        (Basic::Bool(_), Basic::Bool(_)) | (Basic::Complex(..), Basic::Complex(..)) => {
            return Err(FuncError::new(BAD));
        }
        _ => return Err(incompatible(a, b)),
    })
}

//! `index`, `slice`, `len`.
#![allow(
    clippy::unnecessary_wraps,
    reason = "functions of templates have one signature"
)]

use crate::error::FuncError;
use crate::eval::prepare;
use crate::func::{Args, Call};
use crate::value::{Kind, Type, Value};

type Result<T = Value> = std::result::Result<T, FuncError>;

fn error<T>(message: impl Into<String>) -> Result<T> {
    Err(FuncError::new(message))
}

pub(super) fn len(_: &mut Call<'_>, args: &mut Args<'_>) -> Result {
    let value = args.get(0);
    if let Some(length) = value.length() {
        return Ok(Value::Int(i64::try_from(length).unwrap_or(i64::MAX)));
    }
    match value {
        Value::Invalid => error("reflect: call of reflect.Value.Type on zero Value"),
        Value::Nil => error("len of nil pointer"),
        Value::NilOf(ty) if ty.kind() == Kind::Ptr => error("len of nil pointer"),
        _ => {
            let ty = value.go_type().map_or("", |ty| match ty.kind() {
                Kind::Ptr => ty.elem().name(),
                _ => ty.name(),
            });
            error(format!("len of type {ty}"))
        }
    }
}

pub(super) fn index(_: &mut Call<'_>, args: &mut Args<'_>) -> Result {
    let mut item = args.take(0);
    if item.go_type().is_none() {
        return error("index of untyped nil");
    }
    for index in args.rest(1) {
        item = element(&item, index)?;
    }
    Ok(item)
}

/// Performs one step of `index`.
fn element(item: &Value, index: &Value) -> Result {
    match item {
        Value::Map(map) => {
            let key = prepare(index.clone(), Type::STRING).map_err(FuncError::new)?;
            let found = key.as_str().and_then(|key| map.get(key));
            Ok(found.unwrap_or_else(|| Value::zero(map.go_type().elem())))
        }
        Value::NilOf(ty) if ty.kind() == Kind::Map => {
            prepare(index.clone(), Type::STRING).map_err(FuncError::new)?;
            Ok(Value::zero(ty.elem()))
        }
        Value::List(list) => {
            let at = position(index, list.len())?;
            list.get(at)
                .map_or_else(|| error("reflect: slice index out of range"), Ok)
        }
        Value::NilOf(ty) if ty.kind() == Kind::Slice => {
            position(index, 0)?;
            error("reflect: slice index out of range")
        }
        Value::Bytes(bytes) => byte(bytes.as_bytes(), index, "slice"),
        Value::Str(text) => byte(text.as_bytes(), index, "string"),
        Value::Nil | Value::Invalid => error("index of nil pointer"),
        Value::NilOf(ty) if ty.kind() == Kind::Ptr => error("index of nil pointer"),
        _ => match item.as_str() {
            Some(text) => byte(text.as_bytes(), index, "string"),
            None => error(format!("can't index item of type {}", item.type_name())),
        },
    }
}

fn byte(bytes: &[u8], index: &Value, what: &str) -> Result {
    match bytes.get(position(index, bytes.len())?) {
        Some(byte) => Ok(Value::byte(*byte)),
        None => error(format!("reflect: {what} index out of range")),
    }
}

/// Converts an index into something of length or capacity `cap`; `cap` itself is allowed.
fn position(index: &Value, cap: usize) -> Result<usize> {
    let number = match index.kind() {
        Kind::Invalid => return error("cannot index slice/array with nil"),
        kind if crate::value::is_integer(kind) => {
            let int = index.convert_integer(Type::INT).number();
            int.and_then(crate::value::Number::to_i64).unwrap_or(-1)
        }
        _ => {
            let ty = index.type_name();
            return error(format!("cannot index slice/array with type {ty}"));
        }
    };
    match usize::try_from(number) {
        Ok(number) if number <= cap => Ok(number),
        _ => error(format!("index out of range: {number}")),
    }
}

pub(super) fn slice(_: &mut Call<'_>, args: &mut Args<'_>) -> Result {
    let (item, indexes) = (args.get(0), args.rest(1));
    if item.go_type().is_none() {
        return error("slice of untyped nil");
    }
    if matches!(item, Value::NilOf(ty) if ty.kind() == Kind::Ptr) {
        return error("slice of nil pointer");
    }
    if indexes.len() > 3 {
        return error(format!("too many slice indexes: {}", indexes.len()));
    }
    let (length, cap) = match item {
        Value::Str(_) if indexes.len() == 3 => return error("cannot 3-index slice a string"),
        Value::Str(text) => (text.len(), text.len()),
        Value::Bytes(bytes) => (bytes.len(), bytes.len()),
        Value::List(list) => (list.len(), list.capacity()),
        Value::NilOf(ty) if ty.kind() == Kind::Slice => (0, 0),
        _ => return error(format!("can't slice item of type {}", item.type_name())),
    };
    let mut bounds = [0, length, cap];
    for (bound, index) in bounds.iter_mut().zip(indexes) {
        *bound = position(index, cap)?;
    }
    let [start, end, most] = bounds;
    if start > end {
        return error(format!("invalid slice index: {start} > {end}"));
    }
    if indexes.len() == 3 && end > most {
        return error(format!("invalid slice index: {end} > {most}"));
    }
    Ok(match item {
        Value::Str(text) => Value::Str(text.slice(start, end)),
        Value::Bytes(bytes) => Value::bytes(bytes.slice(start, end)),
        Value::List(list) => Value::List(list.slice(start, end)),
        _ => item.clone(),
    })
}

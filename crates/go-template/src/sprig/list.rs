//! Lists: creating, splitting, searching. Functions return new lists and do not modify arguments.

use super::convert::to_int;
use super::default::is_empty;
use super::reflect::deep_equal;
use super::text::is_slice;
use super::{ANY, Answer, NIL_DEREFERENCE};
use crate::error::FuncError;
use crate::func::{Args, Call, Func};
use crate::value::{List, Type, Value};
use bounded::{Budget, BudgetError};

pub(super) static FUNCS: &[Func] = &[
    Func::value("append", &[ANY, ANY], push),
    Func::value("chunk", &[Type::INT, ANY], chunk),
    Func::value("compact", &[ANY], compact),
    Func::value("concat", &[], concat).variadic(ANY),
    Func::value("first", &[ANY], first),
    Func::value("has", &[ANY, ANY], has),
    Func::value("initial", &[ANY], initial),
    Func::value("last", &[ANY], last),
    Func::value("list", &[], list).variadic(ANY),
    Func::value("mustAppend", &[ANY, ANY], push),
    Func::value("mustChunk", &[Type::INT, ANY], chunk),
    Func::value("mustCompact", &[ANY], compact),
    Func::value("mustFirst", &[ANY], first),
    Func::value("mustHas", &[ANY, ANY], has),
    Func::value("mustInitial", &[ANY], initial),
    Func::value("mustLast", &[ANY], last),
    Func::value("mustPrepend", &[ANY, ANY], prepend),
    Func::value("mustPush", &[ANY, ANY], push),
    Func::value("mustRest", &[ANY], rest),
    Func::value("mustReverse", &[ANY], reverse),
    Func::value("mustSlice", &[ANY], slice).variadic(ANY),
    Func::value("mustUniq", &[ANY], uniq),
    Func::value("mustWithout", &[ANY], without).variadic(ANY),
    Func::value("prepend", &[ANY, ANY], prepend),
    Func::value("push", &[ANY, ANY], push),
    Func::value("rest", &[ANY], rest),
    Func::value("reverse", &[ANY], reverse),
    Func::value("slice", &[ANY], slice).variadic(ANY),
    Func::value("tuple", &[], list).variadic(ANY),
    Func::value("uniq", &[ANY], uniq),
    Func::value("without", &[ANY], without).variadic(ANY),
];

/// Returns the argument as a list, or Sprig's error if it is not one.
fn list_of(value: &Value, message: &str) -> Result<List, FuncError> {
    if is_slice(value)
        && let Some(list) = value.as_list()
    {
        return Ok(list);
    }
    match value {
        Value::Nil | Value::Invalid => Err(FuncError::new(NIL_DEREFERENCE)),
        _ => Err(FuncError::new(format!("{message} {}", value.kind().name()))),
    }
}

/// Returns a list that Go makes by appending its elements.
fn appended(items: Vec<Value>) -> Value {
    Value::List(List::from(items).appended_to(0))
}

fn list(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    Ok(Value::list(args.take_rest(0)))
}

fn push(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let list = list_of(args.get(0), "Cannot push on type")?;
    call.budget().range(list.len() + 1)?;
    let mut items = Vec::with_capacity(list.len() + 1);
    items.extend(list.iter());
    items.push(args.take(1));
    Ok(Value::List(List::from(items).extended_from(list.len())))
}

fn prepend(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let list = list_of(args.get(0), "Cannot prepend on type")?;
    call.budget().range(list.len() + 1)?;
    let mut items = Vec::with_capacity(list.len() + 1);
    items.push(args.take(1));
    items.extend(list.iter());
    let items = List::from(items);
    Ok(Value::List(match list.len() {
        0 => items,
        _ => items.extended_from(1),
    }))
}

fn chunk(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let list = list_of(args.get(1), "Cannot chunk type")?;
    let (size, length) = (args.int(0), list.len());
    let items = list.to_vec();
    let chunks = match usize::try_from(size) {
        Ok(size @ 1..) => {
            call.budget().range(length)?;
            items
                .chunks(size)
                .map(|chunk| Value::list(chunk.to_vec()))
                .collect()
        }
        // Results of Go's arithmetic for invalid sizes.
        _ if length > 1 && size.unsigned_abs() >= length as u64 - 1 && size < 0 => Vec::new(),
        _ if length == 1 && size < -1 => vec![Value::list(items)],
        _ => return Err(FuncError::new("runtime error: makeslice: len out of range")),
    };
    Ok(Value::List(List::new(Type::LISTS, chunks)))
}

fn first(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let list = list_of(args.get(0), "Cannot find first on type")?;
    Ok(list.get(0).unwrap_or_default())
}

fn last(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let list = list_of(args.get(0), "Cannot find last on type")?;
    Ok(list.get(list.len().wrapping_sub(1)).unwrap_or_default())
}

fn rest(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let list = list_of(args.get(0), "Cannot find rest on type")?;
    if list.is_empty() {
        return Ok(Value::NilOf(Type::LIST));
    }
    call.budget().range(list.len())?;
    Ok(Value::list(list.iter().skip(1).collect()))
}

fn initial(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let list = list_of(args.get(0), "Cannot find initial on type")?;
    if list.is_empty() {
        return Ok(Value::NilOf(Type::LIST));
    }
    call.budget().range(list.len())?;
    Ok(Value::list(list.iter().take(list.len() - 1).collect()))
}

fn reverse(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let list = list_of(args.get(0), "Cannot find reverse on type")?;
    call.budget().range(list.len())?;
    let mut items = list.to_vec();
    items.reverse();
    Ok(Value::list(items))
}

fn compact(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let list = list_of(args.get(0), "Cannot compact on type")?;
    call.budget().range(list.len())?;
    let kept: Vec<Value> = list.iter().filter(|item| !is_empty(item)).collect();
    Ok(appended(kept))
}

fn is_in(items: &[Value], wanted: &Value, budget: &Budget) -> Result<bool, BudgetError> {
    for item in items {
        if deep_equal(wanted, item, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn uniq(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let list = list_of(args.get(0), "Cannot find uniq on type")?;
    let mut kept = Vec::new();
    for item in &list {
        call.budget().step(1 + kept.len() as u64 / 8)?;
        if !is_in(&kept, &item, call.budget())? {
            kept.push(item);
        }
    }
    Ok(appended(kept))
}

fn without(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let list = list_of(args.get(0), "Cannot find without on type")?;
    let omitted = args.rest(1);
    let mut kept = Vec::new();
    for item in &list {
        call.budget().step(1 + omitted.len() as u64 / 8)?;
        if !is_in(omitted, &item, call.budget())? {
            kept.push(item);
        }
    }
    Ok(appended(kept))
}

fn has(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    if matches!(args.get(1), Value::Nil) {
        return Ok(Value::Bool(false));
    }
    let list = list_of(args.get(1), "Cannot find has on type")?;
    call.budget().step(list.len() as u64 / 8)?;
    let budget = call.budget();
    for item in &list {
        if deep_equal(args.get(0), &item, budget)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

/// Returns a part of a list that shares its elements.
fn slice(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let list = list_of(args.get(0), "list should be type of slice or array but")?;
    if list.is_empty() {
        return Ok(Value::Nil);
    }
    let bound = |index: usize, missing: usize| match args.len() {
        length if length > index => usize::try_from(to_int(args.get(index))).ok(),
        _ => Some(missing),
    };
    let range = bound(1, 0).zip(bound(2, list.len()));
    match range.filter(|&(start, end)| start <= end && end <= list.capacity()) {
        None => Err(FuncError::new(
            "reflect.Value.Slice: slice index out of bounds",
        )),
        Some((start, end)) => match args.get(0) {
            Value::Bytes(bytes) => Ok(Value::bytes(bytes.slice(start, end))),
            _ => Ok(Value::List(list.slice(start, end))),
        },
    }
}

fn concat(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let mut items = Vec::new();
    for value in args.all() {
        if !is_slice(value) && !value.is_nil() {
            let kind = value.kind().name();
            return Err(FuncError::new(format!("Cannot concat type {kind} as list")));
        }
        let list = list_of(value, "Cannot concat type")?;
        call.budget().range(items.len() + list.len())?;
        items.extend(list.iter());
    }
    Ok(if items.is_empty() {
        Value::NilOf(Type::LIST)
    } else {
        appended(items)
    })
}

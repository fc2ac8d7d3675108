//! Dictionaries: creating, reading, modifying in place, picking, digging, copying.

use std::collections::HashSet;

use super::text::strval;
use super::{Answer, MAP, STRING};
use crate::error::FuncError;
use crate::func::{Args, Call, Func};
use crate::value::{List, Map, Str, Type, Value};
use bounded::{Budget, BudgetError};

pub(super) static FUNCS: &[Func] = &[
    Func::value("deepCopy", &[Type::ANY], deep_copy),
    Func::value("dict", &[], dict).variadic(Type::ANY),
    Func::value("dig", &[], dig).variadic(Type::ANY),
    Func::value("get", &[MAP, STRING], get),
    Func::value("hasKey", &[MAP, STRING], has_key),
    Func::value("keys", &[], keys).variadic(MAP),
    Func::value("mustDeepCopy", &[Type::ANY], deep_copy),
    Func::value("omit", &[MAP], omit).variadic(STRING),
    Func::value("pick", &[MAP], pick).variadic(STRING),
    Func::value("pluck", &[STRING], pluck).variadic(MAP),
    Func::value("set", &[MAP, STRING, Type::ANY], set),
    Func::value("unset", &[MAP, STRING], unset),
    Func::value("values", &[MAP], values),
];

fn dict(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let map = Map::with_capacity(args.len().div_ceil(2));
    for index in (0..args.len()).step_by(2) {
        let key = match args.take(index) {
            Value::Str(key) => key,
            other => Str::from(&*strval(&other, call.budget())?),
        };
        let value = if index + 1 < args.len() {
            args.take(index + 1)
        } else {
            Value::from("")
        };
        map.insert(key, value);
    }
    Ok(Value::Map(map))
}

fn get(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let value = args.map(0).and_then(|map| map.get(args.str(1)));
    Ok(value.unwrap_or_else(|| Value::Str(Str::EMPTY)))
}

fn set(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let value = args.take(2);
    let Some(map) = args.map(0) else {
        return Err(FuncError::new("assignment to entry in nil map"));
    };
    map.insert(args.str(1).clone(), value);
    Ok(args.take(0))
}

fn unset(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    if let Some(map) = args.map(0)
        && map.contains_key(args.str(1))
    {
        map.remove(args.str(1));
    }
    Ok(args.take(0))
}

fn has_key(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let found = args.map(0).is_some_and(|map| map.contains_key(args.str(1)));
    Ok(Value::Bool(found))
}

fn pluck(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let key = args.str(0);
    let maps = args.rest(1).iter().filter_map(Value::as_map);
    let found: Vec<Value> = maps.filter_map(|map| map.get(key)).collect();
    Ok(Value::List(List::from(found).appended_to(0)))
}

/// Returns the keys, ordered within each dictionary; Go's order is random.
fn keys(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let mut keys = Vec::new();
    for map in args.all().iter().filter_map(Value::as_map) {
        call.budget().step(map.len() as u64)?;
        keys.extend(map.keys());
    }
    Ok(Value::List(List::strings(keys).appended_to(0)))
}

/// Returns the values in the order of their keys; Go's order is random.
fn values(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let Some(map) = args.map(0) else {
        return Ok(Value::list(Vec::new()));
    };
    call.budget().step(map.len() as u64)?;
    let values: Vec<Value> = map.iter().map(|(_, value)| value).collect();
    Ok(Value::List(List::from(values).appended_to(0)))
}

fn pick(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let picked = Map::with_capacity(args.len());
    if let Some(map) = args.map(0) {
        for key in args.rest(1).iter().filter_map(Value::as_str) {
            if let Some(value) = map.get(key) {
                picked.insert(key.clone(), value);
            }
        }
    }
    Ok(Value::Map(picked))
}

fn omit(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let kept = Map::new();
    if let Some(map) = args.map(0) {
        call.budget().step(map.len() as u64)?;
        let omitted: HashSet<&Str> = args.rest(1).iter().filter_map(Value::as_str).collect();
        for (key, value) in map {
            if !omitted.contains(&key) {
                kept.insert(key, value);
            }
        }
    }
    Ok(Value::Map(kept))
}

/// Returns the error of Go's type assertion `value.(T)`.
fn not_a(value: &Value, wanted: &str) -> FuncError {
    let found = match value {
        Value::Nil | Value::Invalid => "nil",
        _ => value.type_name(),
    };
    FuncError::new(format!(
        "interface conversion: interface {{}} is {found}, not {wanted}"
    ))
}

/// Follows keys through nested dictionaries; if one is missing, returns the second to last
/// argument.
fn dig(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let Some((mut current, default, keys)) = args.all().split_last().and_then(|(dict, rest)| {
        let (default, keys) = rest.split_last()?;
        (!keys.is_empty()).then(|| (dict.clone(), default.clone(), keys))
    }) else {
        return Err(FuncError::new("dig needs at least three arguments"));
    };
    if current.go_type() != Some(MAP) {
        return Err(not_a(&current, MAP.name()));
    }
    if let Some(key) = keys.iter().find(|key| !matches!(key, Value::Str(_))) {
        return Err(not_a(key, "string"));
    }
    for key in keys.iter().filter_map(Value::as_str) {
        if current.go_type() != Some(MAP) {
            return Err(not_a(&current, MAP.name()));
        }
        match current.as_map().and_then(|map| map.get(key)) {
            Some(value) => current = value,
            None => return Ok(default),
        }
    }
    Ok(current)
}

fn deep_copy(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    if matches!(args.get(0), Value::Nil) {
        return Err(FuncError::new(
            "reflect: call of reflect.Value.Type on zero Value",
        ));
    }
    Ok(copy(args.get(0), call.budget())?)
}

/// Copies a value with all nested maps and lists.
fn copy(value: &Value, budget: &Budget) -> Result<Value, BudgetError> {
    let nested = |value: &Value| -> Result<Value, BudgetError> {
        if value.is_container() {
            budget.descend(|| copy(value, budget))
        } else {
            budget.step(1)?;
            Ok(value.clone())
        }
    };
    Ok(match value {
        Value::List(list) => {
            let items = list
                .iter()
                .map(|item| nested(&item))
                .collect::<Result<_, _>>()?;
            Value::List(List::new(list.go_type(), items).with_capacity(list.capacity()))
        }
        Value::Map(map) => {
            let entries = map.iter().map(|(key, value)| Ok((key, nested(&value)?)));
            let entries = entries.collect::<Result<Vec<_>, BudgetError>>()?;
            Value::Map(Map::from_entries(map.go_type(), entries))
        }
        // Templates cannot modify structs, so sharing them is safe.
        _ => value.clone(),
    })
}

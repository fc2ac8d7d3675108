//! Operators and functions of values.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::format;
use crate::libraries;
use crate::text;
use crate::time::{Time, parse_duration};
use crate::value::{Budget, Stop, Value, compare, equal};

type Called = Result<Value, Stop>;

/// Calls a function of the table with arguments that the checker has accepted, unless their type is not known.
pub(crate) fn call(function: &'static str, arguments: &[Value], budget: &mut Budget) -> Called {
    budget.charge(arguments.len() + 1)?;
    let no_overload = || {
        let types: Vec<_> = arguments.iter().map(Value::type_name).collect();
        let name = function.trim_matches(['.', '_', '@']);
        Stop::failed(format!("{name} cannot take {}", types.join(" and ")))
    };
    match (function, arguments) {
        ("dyn", [value]) => Ok(value.clone()),
        ("_==_", [a, b]) => equal(a, b, budget).map(Value::Bool),
        ("_!=_", [a, b]) => equal(a, b, budget).map(|equal| Value::Bool(!equal)),
        ("_<_", [a, b]) => compare(a, b, budget).map(|order| Value::Bool(order.is_lt())),
        ("_<=_", [a, b]) => compare(a, b, budget).map(|order| Value::Bool(order.is_le())),
        ("_>_", [a, b]) => compare(a, b, budget).map(|order| Value::Bool(order.is_gt())),
        ("_>=_", [a, b]) => compare(a, b, budget).map(|order| Value::Bool(order.is_ge())),
        ("!_", [Value::Bool(value)]) => Ok(Value::Bool(!value)),
        ("-_" | "_+_" | "_-_" | "_*_" | "_/_" | "_%_", _) => {
            let result = arithmetic(function, arguments, budget)?;
            result.ok_or_else(no_overload)?
        }
        ("@in", [value, Value::List(list)]) => Ok(Value::Bool(contains(list, value, budget)?)),
        ("@in", [Value::String(key), Value::Map(map)]) => Ok(Value::Bool(map.contains_key(key))),
        ("@in", [_, Value::Map(_)]) => Ok(Value::Bool(false)),
        ("size" | ".size", [value]) => {
            let size = match value {
                Value::String(text) => {
                    budget.charge_text(text.len())?;
                    text.chars().count()
                }
                Value::Bytes(bytes) => bytes.len(),
                Value::List(list) => list.len(),
                Value::Map(map) => map.len(),
                _ => return Err(no_overload()),
            };
            Ok(integer(size))
        }
        (
            "bool" | "bytes" | "double" | "duration" | "int" | "string" | "timestamp" | "uint",
            [value],
        ) => {
            if let Value::String(text) = value {
                budget.charge_text(text.len())?;
            }
            let to_text = matches!((function, value), ("string", Value::Library(_)));
            if to_text {
                return libraries::call(function, arguments);
            }
            let cannot = || {
                Stop::failed(format!(
                    "this {} cannot be converted to {function}",
                    value.type_name()
                ))
            };
            convert(function, value).ok_or_else(cannot)
        }
        (".format", [Value::String(text), Value::List(values)]) => {
            let sizes = values.iter().map(|value| match value {
                Value::String(text) => text.len(),
                Value::Bytes(bytes) => bytes.len() * 2,
                _ => 64,
            });
            budget.charge_text(text.len() + sizes.sum::<usize>())?;
            format::format(text, values)
                .map(Value::from)
                .map_err(Stop::failed)
        }
        ("optional.none" | "optional.of" | "optional.ofNonZeroValue", _)
        | (".hasValue" | ".value", [Value::Optional(_)]) => {
            optional(function, arguments).ok_or_else(no_overload)?
        }
        (_, [Value::Timestamp(time)]) if function.starts_with(".get") => {
            time_part(function, *time).ok_or_else(no_overload)
        }
        (_, [Value::Duration(nanoseconds)]) if function.starts_with(".get") => {
            duration_part(function, *nanoseconds).ok_or_else(no_overload)
        }
        (_, [Value::String(text), others @ ..])
            if function.starts_with('.') || function == "strings.quote" =>
        {
            text::call(function, text, others, budget)?.ok_or_else(no_overload)
        }
        ("lists.range", [Value::Int(count)]) => {
            budget.charge(usize::try_from(*count).unwrap_or(0))?;
            Ok(Value::list((0..*count).map(Value::Int).collect()))
        }
        (
            "sets.contains" | "sets.equivalent" | "sets.intersects",
            [Value::List(a), Value::List(b)],
        ) => sets(function, a, b, budget).map(Value::Bool),
        (_, [Value::List(list), others @ ..]) if function.starts_with('.') => {
            list_call(function, list, others, budget)?.ok_or_else(no_overload)
        }
        _ => {
            let texts = arguments.iter().map(|value| match value {
                Value::String(text) => text.len(),
                _ => 10,
            });
            budget.charge_text(texts.sum())?;
            libraries::call(function, arguments)
        }
    }
}

fn integer(size: usize) -> Value {
    Value::Int(i64::try_from(size).unwrap_or(i64::MAX))
}

/// Returns `None` if the operator does not take the types of the operands.
fn arithmetic(
    operator: &str,
    operands: &[Value],
    budget: &mut Budget,
) -> Result<Option<Called>, Stop> {
    let overflow = || Stop::failed(format!("overflow in {}", operator.trim_matches('_')));
    let by_zero = || Stop::failed("division by zero");
    let checked = |result: Option<Value>| Some(result.ok_or_else(overflow));
    let int = |result: Option<i64>| checked(result.map(Value::Int));
    let uint = |result: Option<u64>| checked(result.map(Value::Uint));
    let duration = |result: Option<i64>| checked(result.map(Value::Duration));
    let time = |result: Option<Time>| checked(result.map(Value::Timestamp));
    Ok(match (operator, operands) {
        ("_/_" | "_%_", [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)]) => {
            Some(Err(by_zero()))
        }
        ("_+_", [Value::Int(a), Value::Int(b)]) => int(a.checked_add(*b)),
        ("_-_", [Value::Int(a), Value::Int(b)]) => int(a.checked_sub(*b)),
        ("_*_", [Value::Int(a), Value::Int(b)]) => int(a.checked_mul(*b)),
        ("_/_", [Value::Int(a), Value::Int(b)]) => int(a.checked_div(*b)),
        ("_%_", [Value::Int(a), Value::Int(b)]) => int(a.checked_rem(*b)),
        ("-_", [Value::Int(a)]) => int(a.checked_neg()),
        ("_+_", [Value::Uint(a), Value::Uint(b)]) => uint(a.checked_add(*b)),
        ("_-_", [Value::Uint(a), Value::Uint(b)]) => uint(a.checked_sub(*b)),
        ("_*_", [Value::Uint(a), Value::Uint(b)]) => uint(a.checked_mul(*b)),
        ("_/_", [Value::Uint(a), Value::Uint(b)]) => uint(a.checked_div(*b)),
        ("_%_", [Value::Uint(a), Value::Uint(b)]) => uint(a.checked_rem(*b)),
        ("_+_", [Value::Double(a), Value::Double(b)]) => Some(Ok(Value::Double(a + b))),
        ("_-_", [Value::Double(a), Value::Double(b)]) => Some(Ok(Value::Double(a - b))),
        ("_*_", [Value::Double(a), Value::Double(b)]) => Some(Ok(Value::Double(a * b))),
        ("_/_", [Value::Double(a), Value::Double(b)]) => Some(Ok(Value::Double(a / b))),
        ("-_", [Value::Double(a)]) => Some(Ok(Value::Double(-a))),
        ("_+_", [Value::Duration(a), Value::Duration(b)]) => duration(a.checked_add(*b)),
        ("_-_", [Value::Duration(a), Value::Duration(b)]) => duration(a.checked_sub(*b)),
        (
            "_+_",
            [Value::Timestamp(a), Value::Duration(b)] | [Value::Duration(b), Value::Timestamp(a)],
        ) => time(a.checked_add(*b)),
        ("_-_", [Value::Timestamp(a), Value::Duration(b)]) => time(a.checked_sub(*b)),
        ("_-_", [Value::Timestamp(a), Value::Timestamp(b)]) => duration(a.since(*b)),
        ("_+_", [Value::String(a), Value::String(b)]) => {
            budget.charge_text(a.len() + b.len())?;
            Some(Ok([&**a, &**b].concat().into()))
        }
        ("_+_", [Value::Bytes(a), Value::Bytes(b)]) => {
            budget.charge_text(a.len() + b.len())?;
            Some(Ok(Value::Bytes([&**a, &**b].concat().into())))
        }
        ("_+_", [Value::List(a), Value::List(b)]) => {
            budget.charge(a.len() + b.len())?;
            Some(Ok(Value::list([a.as_slice(), b.as_slice()].concat())))
        }
        _ => None,
    })
}

/// Converts a value as the function with the name of a type does, if it can be converted.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "the ranges are checked, and integers become the nearest floating-point number in CEL"
)]
pub(crate) fn convert(to: &str, value: &Value) -> Option<Value> {
    let below = |number: f64, limit: f64| number.is_finite() && number < limit;
    Some(match (to, value) {
        ("bool", Value::Bool(_))
        | ("bytes", Value::Bytes(_))
        | ("double", Value::Double(_))
        | ("duration", Value::Duration(_))
        | ("int", Value::Int(_))
        | ("timestamp", Value::Timestamp(_))
        | ("uint", Value::Uint(_)) => value.clone(),
        ("bool", Value::String(text)) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Value::Bool(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Value::Bool(false),
            _ => return None,
        },
        ("bytes", Value::String(text)) => Value::Bytes(text.as_bytes().into()),
        ("double", Value::Int(number)) => Value::Double(*number as f64),
        ("double", Value::Uint(number)) => Value::Double(*number as f64),
        ("double", Value::String(text)) => {
            let number: f64 = text.parse().ok()?;
            let is_named = text.contains(['n', 'N']);
            Value::Double(Some(number).filter(|number| number.is_finite() || is_named)?)
        }
        ("duration", Value::String(text)) => Value::Duration(parse_duration(text)?),
        ("int", Value::Double(number)) if below(number.abs(), 9_223_372_036_854_775_808.0) => {
            Value::Int(*number as i64)
        }
        ("int", Value::Duration(nanoseconds)) => Value::Int(*nanoseconds),
        ("int", Value::String(text)) => Value::Int(text.parse().ok()?),
        ("int", Value::Timestamp(time)) => Value::Int(time.seconds()),
        ("int", Value::Uint(number)) => Value::Int(i64::try_from(*number).ok()?),
        ("timestamp", Value::Int(seconds)) => Value::Timestamp(Time::of_seconds(*seconds)?),
        ("timestamp", Value::String(text)) => Value::Timestamp(Time::parse(text)?),
        ("uint", Value::Double(number))
            if *number >= 0.0 && below(*number, 18_446_744_073_709_551_616.0) =>
        {
            Value::Uint(*number as u64)
        }
        ("uint", Value::Int(number)) => Value::Uint(u64::try_from(*number).ok()?),
        ("uint", Value::String(text)) if !text.starts_with('+') => Value::Uint(text.parse().ok()?),
        ("string", value) => format::string(value)?.into(),
        _ => return None,
    })
}

/// Makes or takes an optional value.
fn optional(function: &str, arguments: &[Value]) -> Option<Called> {
    Some(match (function, arguments) {
        ("optional.none", []) => Ok(Value::Optional(None)),
        ("optional.of", [value]) => Ok(Value::Optional(Some(Arc::new(value.clone())))),
        ("optional.ofNonZeroValue", [value]) => Ok(Value::Optional(
            (!value.is_zero()).then(|| Arc::new(value.clone())),
        )),
        (".hasValue", [Value::Optional(value)]) => Ok(Value::Bool(value.is_some())),
        (".value", [Value::Optional(value)]) => {
            let value = value.as_ref().map(|value| Value::clone(value));
            value.ok_or_else(|| Stop::failed("an optional value is none"))
        }
        _ => return None,
    })
}

fn duration_part(function: &str, nanoseconds: i64) -> Option<Value> {
    let unit = match function {
        ".getHours" => 3_600_000_000_000,
        ".getMinutes" => 60_000_000_000,
        ".getSeconds" => 1_000_000_000,
        ".getMilliseconds" => 1_000_000,
        _ => return None,
    };
    Some(Value::Int(nanoseconds / unit))
}

/// Returns a part of a point in time, in UTC.
fn time_part(function: &str, time: Time) -> Option<Value> {
    let utc = time.utc();
    Some(Value::Int(match function {
        ".getFullYear" => utc.year().into(),
        ".getMonth" => i64::from(utc.month()) - 1,
        ".getDayOfYear" => i64::from(utc.day_of_year()) - 1,
        ".getDayOfMonth" => i64::from(utc.day()) - 1,
        ".getDate" => utc.day().into(),
        ".getDayOfWeek" => utc.weekday().to_sunday_zero_offset().into(),
        ".getHours" => utc.hour().into(),
        ".getMinutes" => utc.minute().into(),
        ".getSeconds" => utc.second().into(),
        ".getMilliseconds" => utc.millisecond().into(),
        _ => return None,
    }))
}

fn contains(list: &[Value], value: &Value, budget: &mut Budget) -> Result<bool, Stop> {
    for element in list {
        if equal(element, value, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn sets(function: &str, a: &[Value], b: &[Value], budget: &mut Budget) -> Result<bool, Stop> {
    let mut all_in = |list: &[Value], others: &[Value]| {
        for element in others {
            if !contains(list, element, budget)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    match function {
        "sets.contains" => all_in(a, b),
        "sets.equivalent" => Ok(all_in(a, b)? && all_in(b, a)?),
        _ => {
            for element in a {
                if contains(b, element, budget)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}

/// Calls a method of a list. Returns `None` if it does not take the types of the arguments.
fn list_call(
    function: &str,
    list: &[Value],
    others: &[Value],
    budget: &mut Budget,
) -> Result<Option<Value>, Stop> {
    budget.charge(list.len())?;
    Ok(Some(match (function, others) {
        (".join", separator) => {
            let separator = match separator {
                [Value::String(separator)] => separator,
                _ => "",
            };
            let mut parts = Vec::with_capacity(list.len());
            for element in list {
                let Value::String(text) = element else {
                    return Ok(None);
                };
                budget.charge_text(text.len() + separator.len())?;
                parts.push(&**text);
            }
            parts.join(separator).into()
        }
        (".isSorted", []) => {
            for pair in list.windows(2) {
                if let [a, b] = pair
                    && compare(a, b, budget)?.is_gt()
                {
                    return Ok(Some(Value::Bool(false)));
                }
            }
            Value::Bool(true)
        }
        (".sum", [zero]) => {
            let mut sum = zero.clone();
            for element in list {
                if let (Value::Int(0), Value::Uint(_) | Value::Double(_) | Value::Duration(_)) =
                    (&sum, element)
                {
                    // The type was not known.
                    sum = element.clone();
                    continue;
                }
                let added = arithmetic("_+_", &[sum, element.clone()], budget)?;
                sum = added.ok_or_else(|| Stop::failed("sum cannot take this list"))??;
            }
            sum
        }
        (".min" | ".max", []) => {
            let wanted = if function == ".min" {
                Ordering::Less
            } else {
                Ordering::Greater
            };
            let mut elements = list.iter();
            let empty = || {
                Stop::failed(format!(
                    "{} of an empty list",
                    function.trim_start_matches('.')
                ))
            };
            let mut best = elements.next().ok_or_else(empty)?;
            for element in elements {
                if compare(element, best, budget)? == wanted {
                    best = element;
                }
            }
            best.clone()
        }
        (".indexOf", [value]) => index_of(list.iter().enumerate(), value, budget)?,
        (".lastIndexOf", [value]) => index_of(list.iter().enumerate().rev(), value, budget)?,
        (".slice", [Value::Int(start), Value::Int(end)]) => {
            let range = usize::try_from(*start).ok().zip(usize::try_from(*end).ok());
            let slice = range.and_then(|(start, end)| list.get(start..end));
            let message = || {
                Stop::failed(format!(
                    "a list of {} has no slice({start}, {end})",
                    list.len()
                ))
            };
            Value::list(slice.ok_or_else(message)?.to_vec())
        }
        (".flatten", depth) => {
            let depth = match depth {
                [Value::Int(depth)] => *depth,
                _ => 1,
            };
            if depth < 0 {
                return Err(Stop::failed("the depth of flatten is negative"));
            }
            let mut flat = Vec::new();
            flatten(list, depth, &mut flat, budget)?;
            Value::list(flat)
        }
        (".sort", []) => sort(list, budget)?,
        (".reverse", []) => Value::list(list.iter().rev().cloned().collect()),
        (".distinct", []) => {
            let mut kept: Vec<Value> = Vec::new();
            for element in list {
                if !contains(&kept, element, budget)? {
                    kept.push(element.clone());
                }
            }
            Value::list(kept)
        }
        _ => return Ok(None),
    }))
}

fn index_of<'l>(
    elements: impl Iterator<Item = (usize, &'l Value)>,
    value: &Value,
    budget: &mut Budget,
) -> Result<Value, Stop> {
    for (at, element) in elements {
        if equal(element, value, budget)? {
            return Ok(integer(at));
        }
    }
    Ok(Value::Int(-1))
}

fn flatten(
    list: &[Value],
    depth: i64,
    flat: &mut Vec<Value>,
    budget: &mut Budget,
) -> Result<(), Stop> {
    for element in list {
        budget.charge(1)?;
        match element {
            Value::List(inner) if depth > 0 => flatten(inner, depth - 1, flat, budget)?,
            other => flat.push(other.clone()),
        }
    }
    Ok(())
}

fn sort(list: &[Value], budget: &mut Budget) -> Result<Value, Stop> {
    let mut sorted = list.to_vec();
    let mut ended = None;
    sorted.sort_by(|a, b| match (&ended, compare(a, b, budget)) {
        (None, Ok(order)) => order,
        (None, Err(stop)) => {
            ended = Some(stop);
            Ordering::Equal
        }
        (Some(_), _) => Ordering::Equal,
    });
    ended.map_or_else(|| Ok(Value::list(sorted)), Err)
}

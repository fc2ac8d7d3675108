//! Methods of strings. Positions are in characters.

use std::sync::Arc;

use crate::value::{Budget, Stop, Value};

/// Calls a method of a string. Returns `None` if it does not take the types of the arguments.
pub(crate) fn call(
    function: &str,
    text: &Arc<str>,
    others: &[Value],
    budget: &mut Budget,
) -> Result<Option<Value>, Stop> {
    budget.charge_text(text.len())?;
    Ok(Some(match (function, others) {
        (".contains", [Value::String(part)]) => Value::Bool(text.contains(&**part)),
        (".startsWith", [Value::String(part)]) => Value::Bool(text.starts_with(&**part)),
        (".endsWith", [Value::String(part)]) => Value::Bool(text.ends_with(&**part)),
        (".lowerAscii", []) => text.to_ascii_lowercase().into(),
        (".upperAscii", []) => text.to_ascii_uppercase().into(),
        (".trim", []) => text.trim().into(),
        ("strings.quote", []) => quote(text).into(),
        (".charAt", [Value::Int(at)]) => {
            let after = usize::try_from(*at).ok().and_then(|at| skip(text, at));
            let after = after.ok_or_else(|| Stop::failed(format!("there is no index {at}")))?;
            after
                .chars()
                .next()
                .map_or_else(|| "".into(), |c| c.to_string().into())
        }
        (".substring", [Value::Int(start), end @ ..]) => {
            let missing = || Stop::failed("a substring is outside of the string");
            let position = |at: i64| usize::try_from(at).map_err(|_| missing());
            let after = skip(text, position(*start)?).ok_or_else(missing)?;
            let part = match end {
                [Value::Int(end)] if end < start => return Err(missing()),
                [Value::Int(end)] => {
                    let rest = skip(after, position(end - start)?).ok_or_else(missing)?;
                    after.strip_suffix(rest).unwrap_or(after)
                }
                _ => after,
            };
            part.into()
        }
        (".indexOf" | ".lastIndexOf", [Value::String(part), from @ ..]) => {
            let from = match from {
                [] => None,
                [Value::Int(from)] => Some(*from),
                _ => return Ok(None),
            };
            // Each position may be compared with the whole part.
            budget.charge_text(text.len())?;
            Value::Int(position_of(function == ".lastIndexOf", text, part, from)?)
        }
        (".replace", [Value::String(old), Value::String(new), limit @ ..]) => {
            let limit = limit_of(limit).unwrap_or(usize::MAX);
            let count = text.matches(&**old).count().min(limit);
            budget.charge_text(count.saturating_mul(new.len()))?;
            text.replacen(&**old, new, limit).into()
        }
        (".split", [Value::String(separator), limit @ ..]) => {
            let parts = split(text, separator, limit_of(limit));
            budget.charge(parts.len())?;
            Value::list(parts)
        }
        _ => return Ok(None),
    }))
}

/// Returns a limit, of which negative ones are none.
fn limit_of(arguments: &[Value]) -> Option<usize> {
    match arguments {
        [Value::Int(limit)] => usize::try_from(*limit).ok(),
        _ => None,
    }
}

/// Returns the text after a number of characters, if it has as many.
fn skip(text: &str, count: usize) -> Option<&str> {
    let ends = std::iter::once(text.len());
    let mut starts = text.char_indices().map(|(at, _)| at).chain(ends);
    starts.nth(count).and_then(|at| text.get(at..))
}

/// Returns the position of a part in a text, or -1, with the results of cel-go for offsets outside of it.
fn position_of(is_last: bool, text: &str, part: &str, from: Option<i64>) -> Result<i64, Stop> {
    let length = text.chars().count();
    let signed = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    if part.is_empty() {
        return Ok(from.unwrap_or(if is_last { signed(length) } else { 0 }));
    }
    let start = match from {
        Some(from) if from < 0 => return Err(Stop::failed(format!("there is no index {from}"))),
        Some(from) if from >= signed(length) => return Ok(-1),
        Some(from) => usize::try_from(from).unwrap_or(0),
        None if is_last => length,
        None => 0,
    };
    let at = |bytes: usize| signed(text.get(..bytes).unwrap_or_default().chars().count());
    Ok(if is_last {
        // A match may begin at the offset, and end after it.
        let end = skip(text, start.saturating_add(part.chars().count()))
            .map_or(text.len(), |rest| text.len() - rest.len());
        text.get(..end)
            .and_then(|before| before.rfind(part))
            .map_or(-1, at)
    } else {
        let skipped = text.len() - skip(text, start).unwrap_or_default().len();
        let after = text.get(skipped..).unwrap_or_default();
        after.find(part).map_or(-1, |found| at(skipped + found))
    })
}

fn split(text: &str, separator: &str, limit: Option<usize>) -> Vec<Value> {
    let limit = limit.unwrap_or(usize::MAX);
    if limit == 0 {
        return Vec::new();
    }
    if !separator.is_empty() {
        return text.splitn(limit, separator).map(Value::from).collect();
    }
    // Go splits into characters, the last of which has the rest.
    let mut parts = Vec::new();
    let mut chars = text.chars();
    while parts.len() + 1 < limit
        && let Some(c) = chars.next()
    {
        parts.push(c.to_string().into());
    }
    if !chars.as_str().is_empty() {
        parts.push(chars.as_str().into());
    }
    parts
}

fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' | '"' => {
                quoted.push('\\');
                quoted.push(c);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

//! Strings: trimming, cutting, searching, repeating, quoting, indenting, joining.

use super::text::{contains, is_slice, push_replaced, push_strval, split, strval};
use super::{Answer, INT, STRING, Text};
use crate::error::FuncError;
use crate::func::{Args, Call, Func};
use crate::go::strconv::{atoi as parse_atoi, push_quoted};
use crate::go::unicode;
use crate::go::utf8::{push_rune, runes};
use crate::value::{List, Map, Str, Type, Value};
use bounded::{Budget, BudgetError, Buffer};

pub(super) static FUNCS: &[Func] = &[
    Func::value("atoi", &[STRING], atoi),
    Func::text("cat", &[], cat).variadic(Type::ANY),
    Func::value("contains", &[STRING, STRING], |_, args| has(args, contains)),
    Func::value("hasPrefix", &[STRING, STRING], |_, args| {
        has(args, <[u8]>::starts_with)
    }),
    Func::value("hasSuffix", &[STRING, STRING], |_, args| {
        has(args, <[u8]>::ends_with)
    }),
    Func::text("hello", &[], hello),
    Func::text("indent", &[INT, STRING], indent),
    Func::text("join", &[STRING, Type::ANY], join),
    Func::text("lower", &[STRING], lower),
    Func::text("nindent", &[INT, STRING], nindent),
    Func::text("nospace", &[STRING], nospace),
    Func::text("plural", &[STRING, STRING, INT], plural),
    Func::text("quote", &[], quote).variadic(Type::ANY),
    Func::text("repeat", &[INT, STRING], repeat),
    Func::text("replace", &[STRING, STRING, STRING], replace),
    Func::value("sortAlpha", &[Type::ANY], sort_alpha),
    Func::value("split", &[STRING, STRING], split_map),
    Func::value("splitList", &[STRING, STRING], split_list),
    Func::value("splitn", &[STRING, INT, STRING], split_n),
    Func::text("squote", &[], squote).variadic(Type::ANY),
    Func::value("substr", &[INT, INT, STRING], substr),
    Func::text("title", &[STRING], title),
    Func::text("toString", &[Type::ANY], to_string),
    Func::value("toStrings", &[Type::ANY], to_strings),
    Func::value("trim", &[STRING], trim),
    Func::value("trimAll", &[STRING, STRING], trim_all),
    Func::value("trimPrefix", &[STRING, STRING], trim_prefix),
    Func::value("trimSuffix", &[STRING, STRING], trim_suffix),
    Func::value("trimall", &[STRING, STRING], trim_all),
    Func::value("trunc", &[INT, STRING], trunc),
    Func::text("upper", &[STRING], upper),
];

fn hello(_: &mut Call<'_>, _: &mut Args<'_>, out: &mut Buffer) -> Text {
    out.extend_from_slice(b"Hello!");
    Ok(())
}

fn atoi(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    // Errors are dropped, and the value returned with them is used.
    let value = parse_atoi(args.str(0).as_bytes()).unwrap_or_else(|error| error.value);
    Ok(Value::Int(value))
}

/// Returns the part of a string argument selected by `piece`, without copying if it is the whole.
fn part(args: &mut Args<'_>, index: usize, piece: impl Fn(&[u8]) -> &[u8]) -> Value {
    let text = args.str(index);
    let piece = piece(text.as_bytes());
    if piece.len() == text.len() {
        return Value::Str(text.clone());
    }
    Value::from(piece)
}

fn trim(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    Ok(part(args, 0, unicode::trim_space))
}

fn trim_all(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let cutset = args.str(0).clone();
    Ok(part(args, 1, |text| unicode::trim(text, cutset.as_bytes())))
}

fn trim_prefix(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let prefix = args.str(0).clone();
    Ok(part(args, 1, |text| {
        text.strip_prefix(prefix.as_bytes()).unwrap_or(text)
    }))
}

fn trim_suffix(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let suffix = args.str(0).clone();
    Ok(part(args, 1, |text| {
        text.strip_suffix(suffix.as_bytes()).unwrap_or(text)
    }))
}

/// Cuts to a number of bytes, from the end if it is negative.
fn trunc(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let count = args.int(0);
    let length = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    Ok(part(args, 1, |text| {
        if count >= 0 {
            text.get(..length).unwrap_or(text)
        } else {
            let start = text.len().saturating_sub(length);
            text.get(start..).unwrap_or(text)
        }
    }))
}

fn substr(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let (start, end) = (args.int(0), args.int(1));
    let text = args.str(2);
    let length = text.len();
    let out_of_range =
        |what: String| FuncError::new(format!("runtime error: slice bounds out of range {what}"));
    let end = if start < 0 {
        // Here Go does not check against the length of the text.
        usize::try_from(end)
            .ok()
            .filter(|&end| end <= length)
            .ok_or_else(|| match end {
                0.. => out_of_range(format!("[:{end}] with length {length}")),
                _ => out_of_range(format!("[:{end}]")),
            })?
    } else {
        usize::try_from(end).map_or(length, |end| end.min(length))
    };
    let start = usize::try_from(start).unwrap_or(0);
    if start > end {
        return Err(out_of_range(format!("[{start}:{end}]")));
    }
    Ok(Value::Str(text.slice(start, end)))
}

fn upper(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let text = args.str(0).as_bytes();
    if text.is_ascii() {
        out.extend(text.iter().map(u8::to_ascii_uppercase));
    } else {
        out.extend_from_slice(&unicode::upper(text));
    }
    Ok(())
}

fn lower(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let text = args.str(0).as_bytes();
    if text.is_ascii() {
        out.extend(text.iter().map(u8::to_ascii_lowercase));
    } else {
        out.extend_from_slice(&unicode::lower(text));
    }
    Ok(())
}

fn title(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    out.extend_from_slice(&unicode::title(args.str(0).as_bytes()));
    Ok(())
}

/// Removes white space. If there is any, every byte is treated as a Latin-1 rune, as in goutils.
fn nospace(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let text = args.str(0).as_bytes();
    let is_space = |byte: u8| unicode::is_space(byte as char);
    if text.iter().any(|byte| is_space(*byte)) {
        for byte in text.iter().filter(|byte| !is_space(**byte)) {
            push_rune(out, *byte as char);
        }
    } else {
        out.extend_from_slice(text);
    }
    Ok(())
}

/// Returns whether the second text has the first one as a part that `holds` looks for.
fn has(args: &Args<'_>, holds: fn(&[u8], &[u8]) -> bool) -> Answer {
    let [part, text] = [args.str(0), args.str(1)].map(Str::as_bytes);
    Ok(Value::Bool(holds(text, part)))
}

fn repetitions(args: &Args<'_>) -> Result<usize, FuncError> {
    let count = usize::try_from(args.int(0));
    count.map_err(|_| FuncError::new("strings: negative Repeat count"))
}

fn repeat(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let text = args.str(1).as_bytes();
    let count = repetitions(args)?;
    if text.is_empty() {
        return Ok(());
    }
    call.budget().string(text.len().saturating_mul(count))?;
    for _ in 0..count {
        out.extend_from_slice(text);
    }
    Ok(())
}

fn replace(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let [old, new, text] = [args.str(0), args.str(1), args.str(2)].map(Str::as_bytes);
    Ok(push_replaced(out, text, old, new, call.budget())?)
}

fn plural(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let chosen = usize::from(args.int(2) != 1);
    out.extend_from_slice(args.str(chosen).as_bytes());
    Ok(())
}

fn nindent(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    out.push(b'\n');
    indent(call, args, out)
}

fn indent(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let spaces = repetitions(args)?;
    let text = args.str(1).as_bytes();
    let lines = memchr::memchr_iter(b'\n', text).count() + 1;
    let length = text.len().saturating_add(spaces.saturating_mul(lines));
    call.budget().string(length)?;
    out.reserve(length);
    out.resize(out.len() + spaces, b' ');
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\n', rest) {
        let (line, after) = rest.split_at(at + 1);
        out.extend_from_slice(line);
        out.resize(out.len() + spaces, b' ');
        rest = after;
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// Returns the arguments that are not nil.
fn given<'a>(args: &'a Args<'_>) -> impl Iterator<Item = &'a Value> {
    let args = args.all().iter();
    args.filter(|value| !matches!(value, Value::Nil))
}

fn quote(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let budget = call.budget();
    for (index, value) in given(args).enumerate() {
        if index > 0 {
            out.push(b' ');
        }
        match value {
            Value::Str(text) => push_quoted(out, text.as_bytes()),
            _ => push_quoted(out, &strval(value, budget)?),
        }
    }
    Ok(())
}

fn squote(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let budget = call.budget();
    for (index, value) in given(args).enumerate() {
        out.extend_from_slice(if index == 0 { b"'" } else { b" '" });
        crate::fmt::print_value(value, budget, out)?;
        out.push(b'\'');
    }
    Ok(())
}

fn cat(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let budget = call.budget();
    for (index, value) in given(args).enumerate() {
        if index > 0 {
            out.push(b' ');
        }
        crate::fmt::print_value(value, budget, out)?;
    }
    Ok(())
}

fn to_string(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    Ok(push_strval(out, args.get(0), call.budget())?)
}

fn join(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let separator = args.str(0).as_bytes();
    let value = args.get(1);
    let budget = call.budget();
    if !is_slice(value) {
        if !matches!(value, Value::Nil) {
            push_strval(out, value, budget)?;
        }
        return Ok(());
    }
    let before = out.len();
    let mut first = true;
    let items = value.as_list().unwrap_or_else(|| List::from(Vec::new()));
    for item in items.iter().filter(|item| !matches!(item, Value::Nil)) {
        if !std::mem::take(&mut first) {
            out.extend_from_slice(separator);
        }
        push_strval(out, &item, budget)?;
        budget.step(1)?;
        if out.len() - before > budget.limits().string {
            budget.string(out.len() - before)?;
        }
        out.check()?;
    }
    Ok(call.budget().string(out.len() - before)?)
}

/// Returns the texts of a list's elements without nils, or of a single value.
fn texts(call: &mut Call<'_>, value: &Value) -> Result<List, FuncError> {
    if let Value::List(list) = value
        && list.go_type() == Type::STRINGS
    {
        return Ok(list.clone());
    }
    let budget = call.budget();
    let text = |value: &Value| -> Result<Value, FuncError> {
        match value {
            Value::Str(_) => Ok(value.clone()),
            _ => Ok(Value::from(&*strval(value, budget)?)),
        }
    };
    // Go makes room for the nils, too.
    let mut room = 0;
    let items = if is_slice(value) {
        let items = value.as_list().unwrap_or_else(|| List::from(Vec::new()));
        room = items.len();
        let present = items.iter().filter(|item| !matches!(item, Value::Nil));
        present.map(|item| text(&item)).collect::<Result<_, _>>()?
    } else if matches!(value, Value::Nil) {
        Vec::new()
    } else {
        vec![text(value)?]
    };
    Ok(List::new(Type::STRINGS, items).with_capacity(room))
}

fn to_strings(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let value = args.take(0);
    match value {
        Value::NilOf(ty) if ty == Type::STRINGS => Ok(value),
        _ => Ok(Value::List(texts(call, &value)?)),
    }
}

/// Sorts texts. A `[]string` is sorted in place, as in Go.
fn sort_alpha(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let value = args.take(0);
    if !is_slice(&value) {
        let text = strval(&value, call.budget())?;
        return Ok(Value::List(List::strings([&*text])));
    }
    if let Value::NilOf(ty) = value
        && ty == Type::STRINGS
    {
        return Ok(value);
    }
    let list = texts(call, &value)?;
    list.sort_strings();
    Ok(Value::List(list))
}

fn split_list(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let (separator, text) = (args.str(0).as_bytes(), args.str(1).as_bytes());
    let pieces = split(text, separator, usize::MAX, call.budget())?;
    Ok(Value::List(List::strings(pieces)))
}

fn split_map(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let (separator, text) = (args.str(0).as_bytes(), args.str(1).as_bytes());
    let pieces = split(text, separator, usize::MAX, call.budget())?;
    Ok(numbered(&pieces))
}

fn split_n(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let (separator, text) = (args.str(0).as_bytes(), args.str(2).as_bytes());
    let limit = usize::try_from(args.int(1)).unwrap_or(usize::MAX);
    Ok(numbered(&split(text, separator, limit, call.budget())?))
}

/// Returns a map with the keys `_0`, `_1` and so on.
fn numbered(pieces: &[&[u8]]) -> Value {
    let entries = pieces
        .iter()
        .enumerate()
        .map(|(index, piece)| (format!("_{index}"), Value::from(*piece)));
    Value::Map(Map::from_entries(Type::STRING_MAP, entries))
}

/// Decodes the runes, for functions that work on runes.
pub(super) fn decoded(text: &[u8], budget: &Budget) -> Result<Vec<char>, BudgetError> {
    let count = runes(text).count();
    budget.memory(count.saturating_mul(size_of::<char>()))?;
    let mut decoded = Vec::with_capacity(count);
    decoded.extend(runes(text).map(|(_, rune, _)| rune));
    Ok(decoded)
}

//! Regular expressions.

use std::rc::Rc;

use super::{Answer, INT, STRING, Text};
use crate::error::FuncError;
use crate::func::{Args, Call, Func};
use crate::go::regexp::{Error, Regexp, cached, must_compile_message, quote_meta};
use crate::value::{List, Type, Value};
use bounded::Buffer;

pub(super) static FUNCS: &[Func] = &[
    Func::value("mustRegexFind", &[STRING, STRING], must_find),
    Func::value("mustRegexFindAll", &[STRING, STRING, INT], must_find_all),
    Func::value("mustRegexMatch", &[STRING, STRING], must_match),
    Func::text(
        "mustRegexReplaceAll",
        &[STRING, STRING, STRING],
        must_replace,
    ),
    Func::text(
        "mustRegexReplaceAllLiteral",
        &[STRING, STRING, STRING],
        must_replace_literal,
    ),
    Func::value("mustRegexSplit", &[STRING, STRING, INT], must_split),
    Func::value("regexFind", &[STRING, STRING], find),
    Func::value("regexFindAll", &[STRING, STRING, INT], find_all),
    Func::value("regexMatch", &[STRING, STRING], is_match),
    Func::text("regexQuoteMeta", &[STRING], quote),
    Func::text("regexReplaceAll", &[STRING, STRING, STRING], replace),
    Func::text(
        "regexReplaceAllLiteral",
        &[STRING, STRING, STRING],
        replace_literal,
    ),
    Func::value("regexSplit", &[STRING, STRING, INT], split),
];

/// Report of an invalid pattern.
#[derive(Clone, Copy)]
enum OnError {
    /// As the error of `regexp.Compile`.
    Return,
    /// As the panic of `regexp.MustCompile`.
    Panic,
}

/// Compiles the pattern in argument 0, after checking the budget for searching argument 1.
fn compiled(call: &mut Call<'_>, args: &Args<'_>, how: OnError) -> Result<Rc<Regexp>, FuncError> {
    let pattern = args.str(0).as_bytes();
    let regexp = cached(pattern, call.budget())?;
    let regexp = regexp.map_err(|error| pattern_error(pattern, &error, how))?;
    call.budget().regex(regexp.memory())?;
    call.budget().step(regexp.cost(args.str(1).len()))?;
    Ok(regexp)
}

fn pattern_error(pattern: &[u8], error: &Error, how: OnError) -> FuncError {
    FuncError::new(match how {
        OnError::Return => error.to_string(),
        OnError::Panic => must_compile_message(pattern, error),
    })
}

fn is_match(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let Ok(regexp) = cached(args.str(0).as_bytes(), call.budget())? else {
        return Ok(Value::Bool(false));
    };
    call.budget().regex(regexp.memory())?;
    call.budget().step(regexp.cost(args.str(1).len()))?;
    Ok(Value::Bool(
        regexp.is_match(args.str(1).as_bytes(), call.budget())?,
    ))
}

fn must_match(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let regexp = compiled(call, args, OnError::Return)?;
    Ok(Value::Bool(
        regexp.is_match(args.str(1).as_bytes(), call.budget())?,
    ))
}

fn find(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let regexp = compiled(call, args, OnError::Panic)?;
    Ok(Value::from(
        regexp
            .find(args.str(1).as_bytes(), call.budget())?
            .unwrap_or_default(),
    ))
}

fn must_find(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let regexp = compiled(call, args, OnError::Return)?;
    Ok(Value::from(
        regexp
            .find(args.str(1).as_bytes(), call.budget())?
            .unwrap_or_default(),
    ))
}

/// Elements for which Go makes room before it collects matches.
const FIRST_MATCHES: usize = 10;

/// Returns matches as a `[]string`, or nil for `None`.
fn matches(found: Option<Vec<&[u8]>>) -> Value {
    match strings(found) {
        Value::List(list) => Value::List(list.appended_to(FIRST_MATCHES)),
        nil => nil,
    }
}

/// Returns a `[]string`, or nil for `None`.
fn strings(found: Option<Vec<&[u8]>>) -> Value {
    found.map_or(Value::NilOf(Type::STRINGS), |found| {
        Value::List(List::strings(found))
    })
}

fn find_all(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let regexp = compiled(call, args, OnError::Panic)?;
    let found = regexp.find_all(args.str(1).as_bytes(), args.int(2), call.budget())?;
    Ok(matches(found))
}

fn must_find_all(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let regexp = compiled(call, args, OnError::Return)?;
    let found = regexp.find_all(args.str(1).as_bytes(), args.int(2), call.budget())?;
    Ok(matches(found))
}

fn split(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let regexp = compiled(call, args, OnError::Panic)?;
    Ok(strings(regexp.split(
        args.str(1).as_bytes(),
        args.int(2),
        call.budget(),
    )?))
}

fn must_split(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let regexp = compiled(call, args, OnError::Return)?;
    Ok(strings(regexp.split(
        args.str(1).as_bytes(),
        args.int(2),
        call.budget(),
    )?))
}

fn replace(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let regexp = compiled(call, args, OnError::Panic)?;
    push_replaced(call, &regexp, args, out)
}

fn must_replace(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let regexp = compiled(call, args, OnError::Return)?;
    push_replaced(call, &regexp, args, out)
}

fn push_replaced(call: &mut Call<'_>, regexp: &Regexp, args: &Args<'_>, out: &mut Buffer) -> Text {
    let (text, template) = (args.str(1).as_bytes(), args.str(2).as_bytes());
    Ok(regexp.replace_all(text, template, out, call.budget())?)
}

fn replace_literal(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let regexp = compiled(call, args, OnError::Panic)?;
    push_literal(call, &regexp, args, out)
}

fn must_replace_literal(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let regexp = compiled(call, args, OnError::Return)?;
    push_literal(call, &regexp, args, out)
}

fn push_literal(call: &mut Call<'_>, regexp: &Regexp, args: &Args<'_>, out: &mut Buffer) -> Text {
    let (text, replacement) = (args.str(1).as_bytes(), args.str(2).as_bytes());
    Ok(regexp.replace_all_literal(text, replacement, out, call.budget())?)
}

fn quote(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    out.extend_from_slice(&quote_meta(args.str(0).as_bytes()));
    Ok(())
}

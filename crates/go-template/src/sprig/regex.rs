//! Regular expressions.

use std::rc::Rc;

use super::{Answer, INT, STRING, Text};
use crate::error::FuncError;
use crate::func::{Args, Call, Func};
use crate::go::regexp::{Regexp, cached, must_compile_message, quote_meta};
use crate::value::{List, Type, Value};
use bounded::Buffer;

pub(super) static FUNCS: &[Func] = &[
    Func::value("mustRegexFind", &[STRING, STRING], find::<MUST>),
    Func::value("mustRegexFindAll", &[STRING, STRING, INT], find_all::<MUST>),
    Func::value("mustRegexMatch", &[STRING, STRING], must_match),
    Func::text("mustRegexReplaceAll", PATTERN_AND_TEXTS, replace::<MUST>),
    Func::text(
        "mustRegexReplaceAllLiteral",
        PATTERN_AND_TEXTS,
        replace_literal::<MUST>,
    ),
    Func::value("mustRegexSplit", &[STRING, STRING, INT], split::<MUST>),
    Func::value("regexFind", &[STRING, STRING], find::<false>),
    Func::value("regexFindAll", &[STRING, STRING, INT], find_all::<false>),
    Func::value("regexMatch", &[STRING, STRING], is_match),
    Func::text("regexQuoteMeta", &[STRING], quote),
    Func::text("regexReplaceAll", PATTERN_AND_TEXTS, replace::<false>),
    Func::text(
        "regexReplaceAllLiteral",
        PATTERN_AND_TEXTS,
        replace_literal::<false>,
    ),
    Func::value("regexSplit", &[STRING, STRING, INT], split::<false>),
];

const PATTERN_AND_TEXTS: &[Type] = &[STRING, STRING, STRING];

/// An invalid pattern is the error of `regexp.Compile`; of the other functions, the panic of `regexp.MustCompile`.
const MUST: bool = true;

/// Compiles the pattern in argument 0, after checking the budget for searching argument 1.
fn compiled<const IS_MUST: bool>(
    call: &mut Call<'_>,
    args: &Args<'_>,
) -> Result<Rc<Regexp>, FuncError> {
    let pattern = args.str(0).as_bytes();
    let regexp = cached(pattern, call.budget())?.map_err(|error| {
        FuncError::new(if IS_MUST {
            error.to_string()
        } else {
            must_compile_message(pattern, &error)
        })
    })?;
    call.budget().regex(regexp.memory())?;
    call.budget().step(regexp.cost(args.str(1).len()))?;
    Ok(regexp)
}

fn is_match(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let Ok(regexp) = cached(args.str(0).as_bytes(), call.budget())? else {
        return Ok(Value::Bool(false));
    };
    call.budget().regex(regexp.memory())?;
    call.budget().step(regexp.cost(args.str(1).len()))?;
    let found = regexp.is_match(args.str(1).as_bytes(), call.budget())?;
    Ok(Value::Bool(found))
}

fn must_match(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let regexp = compiled::<MUST>(call, args)?;
    let found = regexp.is_match(args.str(1).as_bytes(), call.budget())?;
    Ok(Value::Bool(found))
}

fn find<const IS_MUST: bool>(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let regexp = compiled::<IS_MUST>(call, args)?;
    let found = regexp.find(args.str(1).as_bytes(), call.budget())?;
    Ok(Value::from(found.unwrap_or_default()))
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

fn find_all<const IS_MUST: bool>(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let regexp = compiled::<IS_MUST>(call, args)?;
    let found = regexp.find_all(args.str(1).as_bytes(), args.int(2), call.budget())?;
    Ok(matches(found))
}

fn split<const IS_MUST: bool>(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let regexp = compiled::<IS_MUST>(call, args)?;
    let pieces = regexp.split(args.str(1).as_bytes(), args.int(2), call.budget())?;
    Ok(strings(pieces))
}

fn replace<const IS_MUST: bool>(
    call: &mut Call<'_>,
    args: &mut Args<'_>,
    out: &mut Buffer,
) -> Text {
    let regexp = compiled::<IS_MUST>(call, args)?;
    let (text, template) = (args.str(1).as_bytes(), args.str(2).as_bytes());
    Ok(regexp.replace_all(text, template, out, call.budget())?)
}

fn replace_literal<const IS_MUST: bool>(
    call: &mut Call<'_>,
    args: &mut Args<'_>,
    out: &mut Buffer,
) -> Text {
    let regexp = compiled::<IS_MUST>(call, args)?;
    let (text, replacement) = (args.str(1).as_bytes(), args.str(2).as_bytes());
    Ok(regexp.replace_all_literal(text, replacement, out, call.budget())?)
}

fn quote(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    out.extend_from_slice(&quote_meta(args.str(0).as_bytes()));
    Ok(())
}

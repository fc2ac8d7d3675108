//! Conversions between kinds with the rules of `spf13/cast` 1.7: failed conversions return zero.

use super::Answer;
use super::date::{MONTH, WEEKDAY};
use super::text::strval;
use crate::func::{Args, Call, Func};
use crate::go::strconv::{parse_float, parse_int};
use crate::value::{Type, Value};

pub(super) static FUNCS: &[Func] = &[
    Func::value("float64", &[Type::ANY], |_, args| {
        Ok(Value::Float(to_float(args.get(0))))
    }),
    Func::value("int", &[Type::ANY], |_, args| {
        Ok(Value::Int(to_int(args.get(0))))
    }),
    Func::value("int64", &[Type::ANY], |_, args| {
        Ok(Value::Int64(to_int(args.get(0))))
    }),
    Func::value("toDecimal", &[Type::ANY], to_decimal),
];

/// Parses a value's text as an octal number, despite the name.
fn to_decimal(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let text = match args.get(0) {
        // Unlike `strval`, `fmt.Sprint` prints bytes as numbers.
        Value::Bytes(_) => return Ok(Value::Int64(0)),
        value => strval(value, call.budget())?,
    };
    Ok(Value::Int64(parse_int(&text, 8, 64).unwrap_or(0)))
}

/// `cast.ToInt64`, which is also `cast.ToInt`.
pub(super) fn to_int(value: &Value) -> i64 {
    match value {
        Value::Int(number) | Value::Int64(number) | Value::SmallInt(_, number) => *number,
        Value::Uint(_, number) => number.cast_signed(),
        Value::Float(number) => truncated(*number),
        Value::Bool(truth) => i64::from(*truth),
        Value::Str(text) => parse_int(without_zero_decimals(text.as_bytes()), 0, 64).unwrap_or(0),
        Value::Object(_) => named_int(value).unwrap_or(0),
        _ => 0,
    }
}

/// `cast.ToFloat64`.
#[allow(clippy::cast_precision_loss, reason = "so does Go")]
pub(super) fn to_float(value: &Value) -> f64 {
    match value {
        Value::Int(number) | Value::Int64(number) | Value::SmallInt(_, number) => *number as f64,
        Value::Uint(_, number) => *number as f64,
        Value::Float(number) => *number,
        Value::Bool(truth) => f64::from(u8::from(*truth)),
        Value::Str(text) => parse_float(text.as_bytes(), 64).unwrap_or(0.0),
        Value::Object(_) => named_int(value).unwrap_or(0) as f64,
        _ => 0.0,
    }
}

/// Returns the number of a month or weekday, the only named types that the library knows.
fn named_int(value: &Value) -> Option<i64> {
    let object = value.as_object()?;
    let known = [MONTH, WEEKDAY].contains(&object.go_type());
    let number = object.underlying().number().filter(|_| known);
    number?.to_i64()
}

/// Truncates a float. A value that does not fit becomes the smallest integer, as on amd64.
#[allow(clippy::cast_possible_truncation, reason = "checked to fit")]
pub(super) fn truncated(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) {
        number as i64
    } else {
        i64::MIN
    }
}

/// Removes a trailing point and zeros, if there is at least one zero.
fn without_zero_decimals(text: &[u8]) -> &[u8] {
    let zeros = text.iter().rev().take_while(|&&c| c == b'0').count();
    match text.split_at(text.len() - zeros) {
        ([whole @ .., b'.'], [_, ..]) => whole,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_converted_to_numbers_as_in_cast() {
        let int = |text: &str| to_int(&Value::from(text));
        assert_eq!(["010", "08", "0x10", "1.9"].map(int), [8, 0, 16, 0]);
        assert_eq!(["12.0", "12.", "1_000", ""].map(int), [12, 0, 1000, 0]);
        assert_eq!(["0.0", "00", ".0", " 1"].map(int), [0, 0, 0, 0]);
        assert_eq!(to_int(&Value::Float(1e30)), i64::MIN);
        assert_eq!(to_int(&Value::Float(-1.9)), -1);
        assert_eq!(to_int(&Value::Uint(crate::Unsigned::Uint64, u64::MAX)), -1);
        assert!((to_float(&Value::from("1_000.5")) - 1000.5).abs() < f64::EPSILON);
    }
}

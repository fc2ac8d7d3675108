//! Functions over durations that Helm adds to Sprig's (`engine/funcs.go`).

use go_template::go::duration::{Duration, SECOND};
use go_template::go::strconv::parse_float;
use go_template::go::unicode;
use go_template::sprig::{DURATION, duration_value};
use go_template::{Args, Call, Func, FuncError, Number, Type, Value};

pub(crate) static FUNCS: &[Func] = &[
    Func::value("mustToDuration", &[Type::ANY], must_to_duration),
    Func::value("durationSeconds", &[Type::ANY], |_, args| {
        float(args, Duration::seconds)
    }),
    Func::value("durationMilliseconds", &[Type::ANY], |_, args| {
        whole(args, 1_000_000)
    }),
    Func::value("durationMicroseconds", &[Type::ANY], |_, args| {
        whole(args, 1_000)
    }),
    Func::value("durationNanoseconds", &[Type::ANY], |_, args| {
        whole(args, 1)
    }),
    Func::value("durationMinutes", &[Type::ANY], |_, args| {
        float(args, Duration::minutes)
    }),
    Func::value("durationHours", &[Type::ANY], |_, args| {
        float(args, Duration::hours)
    }),
    Func::value("durationDays", &[Type::ANY], |_, args| {
        float(args, |d| d.hours() / 24.0)
    }),
    Func::value("durationWeeks", &[Type::ANY], |_, args| {
        float(args, |d| d.hours() / 24.0 / 7.0)
    }),
    Func::value("durationRoundTo", &[Type::ANY, Type::ANY], |_, args| {
        to_multiple(args, Duration::round)
    }),
    Func::value("durationTruncateTo", &[Type::ANY, Type::ANY], |_, args| {
        to_multiple(args, Duration::truncate)
    }),
];

type Answer = Result<Value, FuncError>;

fn must_to_duration(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    read(args.get(0))
        .map(duration_value)
        .map_err(FuncError::new)
}

/// Converts a duration to a float with `unit`; invalid durations give 0.
fn float(args: &Args<'_>, unit: impl Fn(Duration) -> f64) -> Answer {
    Ok(Value::Float(read(args.get(0)).map_or(0.0, unit)))
}

/// Converts a duration to whole units of that many nanoseconds; invalid durations give 0.
fn whole(args: &Args<'_>, nanoseconds: i64) -> Answer {
    Ok(Value::Int64(
        read(args.get(0)).map_or(0, |duration| duration.0 / nanoseconds),
    ))
}

fn to_multiple(args: &Args<'_>, change: impl Fn(Duration, Duration) -> Duration) -> Answer {
    let Ok(duration) = read(args.get(0)) else {
        return Ok(duration_value(Duration(0)));
    };
    let changed = read(args.get(1)).map_or(duration, |multiple| change(duration, multiple));
    Ok(duration_value(changed))
}

/// Converts a duration, its text, or a number of seconds.
fn read(value: &Value) -> Result<Duration, String> {
    if let Value::Str(text) = value {
        return read_text(text.as_bytes());
    }
    if matches!(value, Value::Nil | Value::Invalid) {
        return Err("invalid duration".to_owned());
    }
    match value.number() {
        Some(Number::Int(nanoseconds)) if value.go_type() == Some(DURATION) => {
            Ok(Duration(nanoseconds))
        }
        Some(Number::Int(seconds)) => seconds
            .checked_mul(SECOND)
            .map(Duration)
            .ok_or_else(|| format!("duration seconds overflow: {seconds}")),
        Some(Number::Uint(seconds)) => i64::try_from(seconds)
            .ok()
            .and_then(|seconds| seconds.checked_mul(SECOND))
            .map(Duration)
            .ok_or_else(|| format!("duration seconds overflow: {seconds}")),
        Some(Number::Float(seconds)) => from_float(seconds),
        None => Err(format!(
            "unsupported duration type {}",
            value.go_type().map_or("interface {}", Type::name)
        )),
    }
}

fn read_text(text: &[u8]) -> Result<Duration, String> {
    let text = unicode::trim_space(text);
    if text.is_empty() {
        return Err("empty duration".to_owned());
    }
    if let Ok(duration) = Duration::parse(text) {
        return Ok(duration);
    }
    match parse_float(text, 64) {
        Ok(seconds) => from_float(seconds),
        Err(_) => Err(format!(
            "could not parse duration {:?}",
            String::from_utf8_lossy(text)
        )),
    }
}

fn from_float(seconds: f64) -> Result<Duration, String> {
    /// The first float greater than the largest `int64`.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if !seconds.is_finite() {
        return Err(format!("invalid duration seconds: {seconds}"));
    }
    if seconds.abs() > LIMIT / 1e9 {
        return Err(format!("duration seconds overflow: {seconds}"));
    }
    let nanoseconds = seconds * 1e9;
    if nanoseconds.abs() > LIMIT {
        return Err(format!("duration nanoseconds overflow: {nanoseconds}"));
    }
    #[allow(clippy::cast_possible_truncation, reason = "in range, and Go cuts too")]
    let whole = nanoseconds as i64;
    // Go's conversion of a value just too large gives the smallest number.
    Ok(Duration(if nanoseconds >= LIMIT {
        i64::MIN
    } else {
        whole
    }))
}

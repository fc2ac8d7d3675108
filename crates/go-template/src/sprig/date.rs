//! Dates and durations, and the methods that templates can call on them.

use std::sync::LazyLock;
use std::time::{Instant, UNIX_EPOCH};

use bounded::Buffer;

use super::{ANY, Answer, INT, STRING, Text};
use crate::error::FuncError;
use crate::func::{Args, Call, Func};
use crate::go::duration::{Duration, HOUR, MINUTE, SECOND};
use crate::go::strconv::{self, parse_int, push_int, push_uint};
use crate::go::time::{Location, RFC3339_NANO, Time, Zone, month_name, weekday_name};
use crate::value::{
    Field, Kind, Method, Number, Object, SmallInt, Str, Type, TypeInfo, Unsigned, Value,
};

/// Go's `time.Time`.
pub const TIME: Type = Type::new(&TIME_INFO);
/// Go's `time.Duration`.
pub const DURATION: Type = Type::new(&DURATION_INFO);
/// Go's `time.Month`.
pub const MONTH: Type = Type::new(&MONTH_INFO);
/// Go's `time.Weekday`.
pub const WEEKDAY: Type = Type::new(&WEEKDAY_INFO);

static TIME_INFO: TypeInfo = TypeInfo {
    methods: TIME_METHODS,
    text: Some(|value| Str::from(time_of(value).text())),
    go_text: Some(|value| Str::from(go_syntax(&time_of(value)))),
    encode: Some(|value| Value::from(formatted(value, RFC3339_NANO))),
    ..TypeInfo::structure("time.Time", TIME_FIELDS)
};

/// The fields of Go's struct, which are visible in comparisons.
const TIME_FIELDS: &[Field] = &[Field::new("wall"), Field::new("ext"), Field::new("loc")];

static DURATION_INFO: TypeInfo = TypeInfo {
    named: true,
    methods: DURATION_METHODS,
    text: Some(|value| Str::from(duration_of(value).to_string())),
    ..TypeInfo::new("time.Duration", Kind::Int64)
};

static MONTH_INFO: TypeInfo = TypeInfo {
    named: true,
    methods: &[Method::new("String", &[], |_, month, _| {
        Ok(Value::from(month_name(integer(month))))
    })],
    text: Some(|month| Str::from(month_name(integer(month)))),
    ..TypeInfo::new("time.Month", Kind::Int)
};

static WEEKDAY_INFO: TypeInfo = TypeInfo {
    named: true,
    methods: &[Method::new("String", &[], |_, day, _| {
        Ok(Value::from(weekday_name(integer(day))))
    })],
    text: Some(|day| Str::from(weekday_name(integer(day)))),
    ..TypeInfo::new("time.Weekday", Kind::Int)
};

static LOCATION_INFO: TypeInfo = TypeInfo::structure("time.Location", &[]);

/// Go's `*time.Location`.
const LOCATION: Type = Type::new(&LOCATION_POINTER_INFO);

static LOCATION_POINTER_INFO: TypeInfo = TypeInfo {
    methods: &[Method::new("String", &[], |_, location, _| {
        Ok(Value::Str(location_name(location)))
    })],
    text: Some(location_name),
    ..TypeInfo::pointer("*time.Location", Type::new(&LOCATION_INFO))
};

/// Parameter lists are statics, because they may refer to a type whose methods refer to them.
static TIME_PARAM: [Type; 1] = [Type::new(&TIME_INFO)];
static LOCATION_PARAM: [Type; 1] = [Type::new(&LOCATION_POINTER_INFO)];
static DURATION_PARAM: [Type; 1] = [Type::new(&DURATION_INFO)];

static TIME_METHODS: &[Method] = &[
    Method::new("Add", &DURATION_PARAM, |_, time, args| {
        Ok(time_value(time_of(time).add(duration_of(args.get(0)))))
    }),
    Method::new("AddDate", &[INT, INT, INT], |_, time, args| {
        let (years, months, days) = (args.int(0), args.int(1), args.int(2));
        Ok(time_value(time_of(time).add_date(years, months, days)))
    }),
    Method::new("After", &TIME_PARAM, |_, time, args| {
        compare(time, args, std::cmp::Ordering::is_gt)
    }),
    Method::new("AppendBinary", &[Type::BYTES], |_, time, args| {
        appended(args.get(0), &binary(&time_of(time))?)
    }),
    Method::new("AppendFormat", &[Type::BYTES, STRING], |_, time, args| {
        appended(args.get(0), &formatted(time, args.str(1).as_bytes()))
    }),
    Method::new("AppendText", &[Type::BYTES], |_, time, args| {
        appended(args.get(0), &formatted(time, RFC3339_NANO))
    }),
    Method::new("Before", &TIME_PARAM, |_, time, args| {
        compare(time, args, std::cmp::Ordering::is_lt)
    }),
    Method::new("Clock", &[], |_, _, _| {
        refused("function Clock has 3 return values; should be 1 or 2")
    }),
    Method::new("Compare", &TIME_PARAM, |_, time, args| {
        let order = time_of(time).compare(&time_of(args.get(0)));
        Ok(Value::Int(order as i64))
    }),
    Method::new("Date", &[], |_, _, _| {
        refused("function Date has 3 return values; should be 1 or 2")
    }),
    Method::new("Day", &[], |_, time, _| {
        Ok(Value::Int(time_of(time).day().into()))
    }),
    Method::new("Equal", &TIME_PARAM, |_, time, args| {
        compare(time, args, std::cmp::Ordering::is_eq)
    }),
    Method::new("Format", &[STRING], |_, time, args| {
        Ok(Value::from(formatted(time, args.str(0).as_bytes())))
    }),
    Method::new("GoString", &[], |_, time, _| {
        Ok(Value::from(go_syntax(&time_of(time))))
    }),
    Method::new("GobEncode", &[], |_, time, _| {
        Ok(Value::bytes(binary(&time_of(time))?))
    }),
    Method::new("Hour", &[], |_, time, _| Ok(clock(time, 0))),
    Method::new("ISOWeek", &[], |_, _, _| {
        refused(
            "invalid function signature for ISOWeek: second return value should be error; is int",
        )
    }),
    Method::new("In", &LOCATION_PARAM, |_, time, args| {
        let location = match args.get(0) {
            Value::Object(object) => object.data::<Location>().cloned(),
            _ => None,
        };
        let missing = || FuncError::new("time: missing Location in call to Time.In");
        let location = location.ok_or_else(missing)?;
        Ok(time_value(time_of(time).with_location(location)))
    }),
    Method::new("IsDST", &[], |_, _, _| Ok(Value::Bool(false))),
    Method::new("IsZero", &[], |_, time, _| {
        Ok(Value::Bool(time_of(time).is_zero()))
    }),
    Method::new("Local", &[], |_, time, _| in_utc(time)),
    Method::new("Location", &[], |_, time, _| {
        let location = time_of(time).location().clone();
        Ok(Value::Object(Object::opaque(LOCATION, location)))
    }),
    Method::new("MarshalBinary", &[], |_, time, _| {
        Ok(Value::bytes(binary(&time_of(time))?))
    }),
    Method::new("MarshalJSON", &[], |_, time, _| {
        let mut out = Buffer::from(&b"\""[..]);
        time_of(time).format(RFC3339_NANO, &mut out);
        out.push(b'"');
        Ok(Value::bytes(out))
    }),
    Method::new("MarshalText", &[], |_, time, _| {
        Ok(Value::bytes(formatted(time, RFC3339_NANO)))
    }),
    Method::new("Minute", &[], |_, time, _| Ok(clock(time, 1))),
    Method::new("Month", &[], |_, time, _| {
        let month = Value::Int(time_of(time).month().into());
        Ok(Value::Object(Object::scalar(MONTH, month)))
    }),
    Method::new("Nanosecond", &[], |_, time, _| {
        Ok(Value::Int(time_of(time).nanosecond().into()))
    }),
    Method::new("Round", &DURATION_PARAM, |_, time, args| {
        Ok(time_value(time_of(time).round(duration_of(args.get(0)))))
    }),
    Method::new("Second", &[], |_, time, _| Ok(clock(time, 2))),
    Method::new("String", &[], |_, time, _| {
        Ok(Value::from(time_of(time).text()))
    }),
    Method::new("Sub", &TIME_PARAM, |_, time, args| {
        Ok(duration_value(time_of(time).since(&time_of(args.get(0)))))
    }),
    Method::new("Truncate", &DURATION_PARAM, |_, time, args| {
        Ok(time_value(time_of(time).truncate(duration_of(args.get(0)))))
    }),
    Method::new("UTC", &[], |_, time, _| in_utc(time)),
    Method::new("Unix", &[], |_, time, _| {
        Ok(Value::Int64(time_of(time).unix_seconds()))
    }),
    Method::new("UnixMicro", &[], |_, time, _| {
        Ok(Value::Int64(unix_units(time, 1_000_000)))
    }),
    Method::new("UnixMilli", &[], |_, time, _| {
        Ok(Value::Int64(unix_units(time, 1_000)))
    }),
    Method::new("UnixNano", &[], |_, time, _| {
        Ok(Value::Int64(time_of(time).unix_nanoseconds()))
    }),
    Method::new("Weekday", &[], |_, time, _| {
        let day = Value::Int(time_of(time).weekday().into());
        Ok(Value::Object(Object::scalar(WEEKDAY, day)))
    }),
    Method::new("Year", &[], |_, time, _| {
        Ok(Value::Int(time_of(time).year()))
    }),
    Method::new("YearDay", &[], |_, time, _| {
        Ok(Value::Int(time_of(time).year_day().into()))
    }),
    Method::new("Zone", &[], |_, _, _| {
        refused("invalid function signature for Zone: second return value should be error; is int")
    }),
    Method::new("ZoneBounds", &[], |_, _, _| {
        refused(
            "invalid function signature for ZoneBounds: second return value should be error; is \
             time.Time",
        )
    }),
];

fn formatted(time: &Value, layout: &[u8]) -> Buffer {
    let mut out = Buffer::new();
    time_of(time).format(layout, &mut out);
    out
}

/// Returns the error for a method that templates cannot call because of its results.
fn refused(message: &'static str) -> Answer {
    Err(FuncError::signature(message))
}

/// Adds bytes to a `[]byte`.
fn appended(before: &Value, more: &[u8]) -> Answer {
    let mut bytes = match before {
        Value::Bytes(bytes) => bytes.as_bytes().to_vec(),
        _ => Vec::new(),
    };
    bytes.extend_from_slice(more);
    Ok(Value::bytes(bytes))
}

/// Encodes a time like Go's `MarshalBinary`: a version, seconds since year 1, nanoseconds, and the
/// minutes of the offset, to which the second version adds seconds.
fn binary(time: &Time) -> Result<Vec<u8>, FuncError> {
    let (minutes, seconds) = match time.location() {
        Location::Utc => (-1, 0),
        fixed @ Location::Fixed { .. } => (fixed.offset() / 60, fixed.offset() % 60),
    };
    let is_fixed = *time.location() != Location::Utc;
    let unexpected = || FuncError::new("Time.MarshalBinary: unexpected zone offset");
    let offset = i16::try_from(minutes).map_err(|_| unexpected())?;
    if is_fixed && offset == -1 {
        return Err(unexpected());
    }
    let mut out = vec![if seconds == 0 { 1 } else { 2 }];
    let since_year_one = time.unix_seconds().wrapping_add(62_135_596_800);
    out.extend_from_slice(&since_year_one.to_be_bytes());
    out.extend_from_slice(&time.nanosecond().to_be_bytes());
    out.extend_from_slice(&offset.to_be_bytes());
    if let Ok(seconds) = i8::try_from(seconds)
        && seconds != 0
    {
        out.extend_from_slice(&seconds.to_be_bytes());
    }
    Ok(out)
}

static DURATION_METHODS: &[Method] = &[
    Method::new("Abs", &[], |_, span, _| {
        Ok(duration_value(duration_of(span).abs()))
    }),
    Method::new("Hours", &[], |_, span, _| {
        Ok(Value::Float(duration_of(span).hours()))
    }),
    Method::new("Microseconds", &[], |_, span, _| {
        Ok(Value::Int64(duration_of(span).0 / 1_000))
    }),
    Method::new("Milliseconds", &[], |_, span, _| {
        Ok(Value::Int64(duration_of(span).0 / 1_000_000))
    }),
    Method::new("Minutes", &[], |_, span, _| {
        Ok(Value::Float(duration_of(span).minutes()))
    }),
    Method::new("Nanoseconds", &[], |_, span, _| {
        Ok(Value::Int64(duration_of(span).0))
    }),
    Method::new("Round", &DURATION_PARAM, |_, span, args| {
        let unit = duration_of(args.get(0));
        Ok(duration_value(duration_of(span).round(unit)))
    }),
    Method::new("Seconds", &[], |_, span, _| {
        Ok(Value::Float(duration_of(span).seconds()))
    }),
    Method::new("String", &[], |_, span, _| {
        Ok(Value::from(duration_of(span).to_string()))
    }),
    Method::new("Truncate", &DURATION_PARAM, |_, span, args| {
        let unit = duration_of(args.get(0));
        Ok(duration_value(duration_of(span).truncate(unit)))
    }),
];

pub(super) static FUNCS: &[Func] = &[
    Func::text("ago", &[ANY], ago),
    Func::text("date", &[STRING, ANY], date),
    Func::text("dateInZone", &[STRING, ANY, STRING], date_in_zone),
    Func::value("dateModify", &[STRING, TIME], date_modify),
    Func::text("date_in_zone", &[STRING, ANY, STRING], date_in_zone),
    Func::value("date_modify", &[STRING, TIME], date_modify),
    Func::text("duration", &[ANY], duration),
    Func::text("durationRound", &[ANY], duration_round),
    Func::text("htmlDate", &[ANY], html_date),
    Func::text("htmlDateInZone", &[ANY, STRING], html_date_in_zone),
    Func::value("mustDateModify", &[STRING, TIME], must_date_modify),
    Func::value("mustToDate", &[STRING, STRING], must_to_date),
    Func::value("must_date_modify", &[STRING, TIME], must_date_modify),
    Func::value("now", &[], now),
    Func::value("toDate", &[STRING, STRING], to_date),
    Func::text("unixEpoch", &[TIME], unix_epoch),
];

/// Creates a `time.Time`.
pub fn time_value(time: Time) -> Value {
    let location = match time.location() {
        Location::Utc => Value::NilOf(LOCATION),
        fixed @ Location::Fixed { .. } => Value::Object(Object::opaque(LOCATION, fixed.clone())),
    };
    let fields = vec![
        Value::Uint(Unsigned::Uint64, time.nanosecond().into()),
        // Go counts from year 1.
        Value::Int64(time.unix_seconds().wrapping_add(62_135_596_800)),
        location,
    ];
    Value::Object(Object::with_data(TIME, fields, time))
}

/// Formats a time as the Go code that creates it.
fn go_syntax(time: &Time) -> Vec<u8> {
    let [hour, minute, second] = time.clock();
    let mut out = format!(
        "time.Date({}, time.{}, {}, {hour}, {minute}, {second}, {}, ",
        time.year(),
        month_name(time.month().into()),
        time.day(),
        time.nanosecond(),
    )
    .into_bytes();
    match time.location() {
        Location::Utc => out.extend_from_slice(b"time.UTC"),
        fixed @ Location::Fixed { .. } => {
            out.extend_from_slice(b"time.Location(");
            out.extend_from_slice(&strconv::quote(fixed.name()));
            out.push(b')');
        }
    }
    out.push(b')');
    out
}

/// Creates a `time.Duration`.
pub fn duration_value(span: Duration) -> Value {
    Value::Object(Object::scalar(DURATION, Value::Int64(span.0)))
}

/// Returns the time of a `time.Time`, or the zero time for other values.
fn time_of(value: &Value) -> Time {
    let time = value.as_object().and_then(Object::data::<Time>);
    time.cloned().unwrap_or_default()
}

/// Returns the span of a `time.Duration` or of a plain number.
fn duration_of(value: &Value) -> Duration {
    Duration(integer(value))
}

fn integer(value: &Value) -> i64 {
    value.number().and_then(Number::to_i64).unwrap_or(0)
}

fn location_name(value: &Value) -> Str {
    let location = value.as_object().and_then(Object::data::<Location>);
    location.map_or(Str::EMPTY, |location| Str::from(location.name()))
}

fn compare(time: &Value, args: &Args<'_>, holds: impl Fn(std::cmp::Ordering) -> bool) -> Answer {
    let order = time_of(time).compare(&time_of(args.get(0)));
    Ok(Value::Bool(holds(order)))
}

fn clock(time: &Value, part: usize) -> Value {
    Value::Int(time_of(time).clock().get(part).copied().unwrap_or(0))
}

fn in_utc(time: &Value) -> Answer {
    Ok(time_value(time_of(time).with_location(Location::Utc)))
}

fn unix_units(time: &Value, per_second: i64) -> i64 {
    let time = time_of(time);
    let fraction = i64::from(time.nanosecond()) / (SECOND / per_second);
    time.unix_seconds()
        .wrapping_mul(per_second)
        .wrapping_add(fraction)
}

/// Whether the platform has clocks. Reading those of the standard library panics where there is none.
const HAS_CLOCK: bool = !cfg!(all(target_family = "wasm", target_os = "unknown"));

/// Returns the time of the session, or that of the system's clock.
pub(super) fn current_time(call: &Call<'_>) -> Result<Time, FuncError> {
    crate::value::vary();
    let now = match call.time() {
        Some(time) => time,
        None if HAS_CLOCK => host::now(),
        None => {
            let message = "this platform has no clock; set the time of the session";
            return Err(FuncError::new(message));
        }
    };
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Ok(Time::unix(seconds, since.subsec_nanos()))
}

/// Returns the current time. Like Go's, it also has a reading of the clock that counts from the start
/// of the program, which is part of its text.
fn now(call: &mut Call<'_>, _: &mut Args<'_>) -> Answer {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let now = current_time(call)?;
    if call.time().is_some() || host::is_simulated() {
        return Ok(time_value(now));
    }
    let running = START.elapsed().as_nanos();
    // Go's clock begins at 1.
    let running = i64::try_from(running).unwrap_or(i64::MAX).saturating_add(1);
    Ok(time_value(now.with_monotonic(running)))
}

/// Returns a time, or that of seconds since 1970; other values mean the current time.
fn any_time(call: &Call<'_>, value: &Value) -> Result<Time, FuncError> {
    Ok(match value {
        Value::Int(seconds) | Value::Int64(seconds) | Value::SmallInt(SmallInt::Int32, seconds) => {
            Time::unix(*seconds, 0)
        }
        Value::Object(object) if object.go_type() == TIME => time_of(value),
        _ => current_time(call)?,
    })
}

fn push_date(call: &Call<'_>, out: &mut Buffer, layout: &[u8], value: &Value, zone: &[u8]) -> Text {
    let time = any_time(call, value)?;
    match Zone::load(zone) {
        Some(zone) => time.format_in(&zone, layout, out),
        None if cfg!(feature = "time-zones") => {
            time.with_location(Location::Utc).format(layout, out);
        }
        None => {
            return Err(FuncError::new(format!(
                "the time zone {} needs the feature time-zones of the crate go-template",
                strconv::quoted(zone)
            )));
        }
    }
    Ok(())
}

fn date(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    push_date(call, out, args.str(0).as_bytes(), args.get(1), b"Local")
}

fn date_in_zone(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let (layout, zone) = (args.str(0).as_bytes(), args.str(2).as_bytes());
    push_date(call, out, layout, args.get(1), zone)
}

fn html_date(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    push_date(call, out, b"2006-01-02", args.get(0), b"Local")
}

fn html_date_in_zone(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let zone = args.str(1).as_bytes();
    push_date(call, out, b"2006-01-02", args.get(0), zone)
}

fn date_modify(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    match Duration::parse(args.str(0).as_bytes()) {
        Ok(span) => Ok(time_value(time_of(args.get(1)).add(span))),
        Err(_) => Ok(args.take(1)),
    }
}

fn must_date_modify(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let span = Duration::parse(args.str(0).as_bytes());
    let span = span.map_err(|error| FuncError::new(error.to_string()))?;
    Ok(time_value(time_of(args.get(1)).add(span)))
}

fn to_date(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let time = Time::parse(args.str(0).as_bytes(), args.str(1).as_bytes());
    Ok(time_value(time.unwrap_or_default()))
}

fn must_to_date(_: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    let time = Time::parse(args.str(0).as_bytes(), args.str(1).as_bytes());
    time.map(time_value)
        .map_err(|error| FuncError::new(error.to_string()))
}

fn unix_epoch(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    push_int(out, time_of(args.get(0)).unix_seconds());
    Ok(())
}

fn ago(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let then = match args.get(0) {
        // Of the integers, only these two are treated as times here.
        Value::SmallInt(..) => current_time(call)?,
        value => any_time(call, value)?,
    };
    let span = current_time(call)?.since(&then);
    span.round(Duration(SECOND)).push_text(out);
    Ok(())
}

/// Formats seconds as a duration. Only texts and `int64` count as seconds, `int` does not.
fn duration(_: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let seconds = match args.get(0) {
        Value::Str(text) => parse_int(text.as_bytes(), 10, 64).unwrap_or_else(|error| error.value),
        Value::Int64(seconds) => *seconds,
        _ => 0,
    };
    Duration(seconds.wrapping_mul(SECOND)).push_text(out);
    Ok(())
}

/// Formats the largest unit of a span, such as `3d`.
fn duration_round(call: &mut Call<'_>, args: &mut Args<'_>, out: &mut Buffer) -> Text {
    let span = match args.get(0) {
        Value::Str(text) => Duration::parse(text.as_bytes()).unwrap_or_default(),
        Value::Int64(nanoseconds) => Duration(*nanoseconds),
        value @ Value::Object(object) if object.go_type() == TIME => {
            current_time(call)?.since(&time_of(value))
        }
        _ => Duration(0),
    };
    let units = [
        (365 * 24 * HOUR, "y"),
        (30 * 24 * HOUR, "mo"),
        (24 * HOUR, "d"),
        (HOUR, "h"),
        (MINUTE, "m"),
        (SECOND, "s"),
    ];
    let span = span.0.unsigned_abs();
    let found = units.iter().find(|(unit, _)| span > unit.unsigned_abs());
    let Some((unit, name)) = found else {
        out.extend_from_slice(b"0s");
        return Ok(());
    };
    push_uint(out, span / unit.unsigned_abs());
    out.extend_from_slice(name.as_bytes());
    Ok(())
}

//! Values of an evaluation, and the steps that it may take.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use data_encoding::BASE64;
use kube_cel::cel;
use serde_json::{Number, Value as Json};

use crate::time::{Time, duration_text, parse_duration};
use crate::{EvaluationError, Type};

/// Limit on the steps of an evaluation.
pub(crate) const MAX_STEPS: u64 = 1_000_000;

/// Limit on the JSON of a result, in bytes.
const MAX_RESULT: usize = 64 * 1024;

/// Limit on lists and maps within each other in a given value.
const MAX_DEPTH: usize = 100;

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    /// Nanoseconds.
    Duration(i64),
    Timestamp(Time),
    List(Arc<Vec<Value>>),
    Map(Arc<BTreeMap<Arc<str>, Value>>),
    Optional(Option<Arc<Value>>),
    Library(cel::Value),
}

/// Why an evaluation ends early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// What is at this path is not there.
    Missing(String),
    Failed(EvaluationError),
}

impl Stop {
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::Failed(EvaluationError::Operation(message.into()))
    }

    /// Whether `&&` and `||` may go on after it.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Failed(EvaluationError::TooManySteps { .. }))
    }
}

/// The steps that an evaluation has taken. Ten bytes of text are a step, as in Kubernetes.
pub(crate) struct Budget {
    steps: u64,
    max: u64,
    /// The paths and lengths of the lists that the loops around the current step are over.
    pub(crate) loops: Vec<(String, usize)>,
}

impl Budget {
    pub(crate) fn new(max: u64) -> Self {
        Self {
            steps: 0,
            max,
            loops: Vec::new(),
        }
    }

    pub(crate) fn charge(&mut self, steps: usize) -> Result<(), Stop> {
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        self.steps = self.steps.saturating_add(steps);
        if self.steps <= self.max {
            return Ok(());
        }
        let longest = self.loops.iter().max_by_key(|(_, length)| *length);
        Err(Stop::Failed(EvaluationError::TooManySteps {
            max: self.max,
            list: longest.cloned(),
        }))
    }

    pub(crate) fn charge_text(&mut self, bytes: usize) -> Result<(), Stop> {
        self.charge(bytes / 10 + 1)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl Value {
    pub(crate) fn list(elements: Vec<Value>) -> Self {
        Self::List(Arc::new(elements))
    }

    /// Returns the name of its type, for messages.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "duration",
            Self::Timestamp(_) => "timestamp",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional",
            Self::Library(_) => "a value of a library",
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null | Self::Bool(false) | Self::Int(0) | Self::Uint(0) | Self::Duration(0) => {
                true
            }
            Self::Double(number) => *number == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(list) => list.is_empty(),
            Self::Map(map) => map.is_empty(),
            Self::Optional(value) => value.is_none(),
            _ => false,
        }
    }
}

/// Whether a field is there: a `null` is not, unless its type is not known.
pub(crate) fn is_there(value: &Json, type_: &Type) -> bool {
    !value.is_null() || *type_ == Type::Dyn
}

/// Reads a value of a declared type. `path` returns where it is, for messages.
pub(crate) fn read(
    value: &Json,
    type_: &Type,
    budget: &mut Budget,
    path: &dyn Fn() -> String,
) -> Result<Value, Stop> {
    read_within(value, type_, budget, path, 0)
}

fn read_within(
    value: &Json,
    type_: &Type,
    budget: &mut Budget,
    path: &dyn Fn() -> String,
    depth: usize,
) -> Result<Value, Stop> {
    budget.charge(1)?;
    if depth > MAX_DEPTH {
        return Err(Stop::failed(format!(
            "{} has more than {MAX_DEPTH} levels",
            path()
        )));
    }
    let text = value.as_str();
    if let Some(text) = text {
        budget.charge_text(text.len())?;
    }
    let read = match (type_, value) {
        (_, Json::Null) => Some(Value::Null),
        (Type::Bool | Type::Dyn, Json::Bool(value)) => Some(Value::Bool(*value)),
        (Type::String | Type::IntOrString | Type::Dyn, Json::String(text)) => {
            Some(text.as_str().into())
        }
        (Type::Int | Type::IntOrString, Json::Number(number)) => integer(number).map(Value::Int),
        (Type::Uint, Json::Number(number)) => number.as_u64().map(Value::Uint),
        (Type::Double, Json::Number(number)) => number.as_f64().map(Value::Double),
        (Type::Dyn, Json::Number(number)) => match number.as_i64() {
            Some(integer) => Some(Value::Int(integer)),
            None => number.as_f64().map(Value::Double),
        },
        (Type::Bytes, Json::String(text)) => BASE64
            .decode(text.as_bytes())
            .ok()
            .map(|bytes| Value::Bytes(bytes.into())),
        (Type::Duration, Json::String(text)) => parse_duration(text).map(Value::Duration),
        (Type::Timestamp, Json::String(text)) => {
            let midnight = (text.len() == 10).then(|| format!("{text}T00:00:00Z"));
            Time::parse(midnight.as_deref().unwrap_or(text)).map(Value::Timestamp)
        }
        (Type::List(_) | Type::Dyn, Json::Array(items)) => {
            let below = if let Type::List(below) = type_ {
                below
            } else {
                type_
            };
            let mut elements = Vec::with_capacity(items.len());
            for (at, item) in items.iter().enumerate() {
                let path: &dyn Fn() -> String = &|| format!("{}[{at}]", path());
                elements.push(read_within(item, below, budget, path, depth + 1)?);
            }
            Some(Value::list(elements))
        }
        (Type::Map(_) | Type::Object(_) | Type::Dyn, Json::Object(fields)) => {
            let mut map = BTreeMap::new();
            for (name, value) in fields {
                let below = match type_ {
                    Type::Map(values) => values,
                    Type::Object(object) => object.fields.get(name).unwrap_or(&Type::Dyn),
                    other => other,
                };
                if is_there(value, below) {
                    budget.charge_text(name.len())?;
                    let path: &dyn Fn() -> String = &|| format!("{}.{name}", path());
                    let value = read_within(value, below, budget, path, depth + 1)?;
                    map.insert(name.as_str().into(), value);
                }
            }
            Some(Value::Map(Arc::new(map)))
        }
        _ => None,
    };
    read.ok_or_else(|| {
        Stop::Failed(EvaluationError::Value {
            path: path(),
            type_: type_.to_string(),
        })
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the range is that in which it is exact"
)]
fn integer(number: &Number) -> Option<i64> {
    let exact = |number: &f64| number.fract() == 0.0 && number.abs() < 9e15;
    let whole = || number.as_f64().filter(exact).map(|number| number as i64);
    number.as_i64().or_else(whole)
}

/// Writes a result.
pub(crate) fn write(value: &Value, budget: &mut Budget) -> Result<Json, Stop> {
    let mut left = MAX_RESULT;
    write_within(value, budget, &mut left)
}

fn write_within(value: &Value, budget: &mut Budget, left: &mut usize) -> Result<Json, Stop> {
    budget.charge(1)?;
    let mut take = |bytes: usize| {
        *left = left
            .checked_sub(bytes)
            .ok_or(Stop::Failed(EvaluationError::TooLarge { max: MAX_RESULT }))?;
        Ok(())
    };
    // Brackets and commas, or quotes.
    take(2)?;
    let json: Json = match value {
        Value::Null => Json::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(number) => (*number).into(),
        Value::Uint(number) => (*number).into(),
        Value::Double(number) => {
            let finite = Number::from_f64(*number);
            finite
                .ok_or_else(|| Stop::Failed(EvaluationError::NotFinite(number.to_string())))?
                .into()
        }
        Value::String(text) => {
            take(text.len())?;
            Json::from(&**text)
        }
        Value::Bytes(bytes) => {
            take(bytes.len() / 3 * 4)?;
            BASE64.encode(bytes).into()
        }
        Value::Duration(nanoseconds) => duration_text(*nanoseconds).into(),
        Value::Timestamp(time) => time.at.to_string().into(),
        Value::List(elements) => {
            let elements = elements.iter();
            let json = elements.map(|element| write_within(element, budget, left));
            json.collect::<Result<Vec<_>, _>>()?.into()
        }
        Value::Map(map) => {
            let mut fields = serde_json::Map::new();
            for (name, value) in map.iter() {
                let mut json = write_within(value, budget, left)?;
                *left = left.saturating_sub(name.len() + 3);
                fields.insert(name.to_string(), json.take());
            }
            fields.into()
        }
        Value::Optional(_) | Value::Library(_) => {
            let message = format!("{} cannot be a result", value.type_name());
            return Err(Stop::failed(message));
        }
    };
    Ok(json)
}

/// Returns whether values are equal. Numbers of different types are equal if they are the same number.
#[expect(
    clippy::cast_precision_loss,
    clippy::float_cmp,
    reason = "CEL compares integers with floating-point numbers in this way"
)]
pub(crate) fn equal(a: &Value, b: &Value, budget: &mut Budget) -> Result<bool, Stop> {
    budget.charge(1)?;
    Ok(match (a, b) {
        (Value::Null, Value::Null) | (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) | (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Uint(a), Value::Uint(b)) => a == b,
        (Value::Double(a), Value::Double(b)) => a == b,
        (Value::Int(a), Value::Uint(b)) | (Value::Uint(b), Value::Int(a)) => {
            u64::try_from(*a) == Ok(*b)
        }
        (Value::Int(a), Value::Double(b)) | (Value::Double(b), Value::Int(a)) => *a as f64 == *b,
        (Value::Uint(a), Value::Double(b)) | (Value::Double(b), Value::Uint(a)) => *a as f64 == *b,
        (Value::String(a), Value::String(b)) => {
            budget.charge_text(a.len().min(b.len()))?;
            a == b
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            budget.charge_text(a.len().min(b.len()))?;
            a == b
        }
        (Value::Timestamp(a), Value::Timestamp(b)) => a.at == b.at,
        (Value::List(a), Value::List(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal(a, b, budget)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Map(a), Value::Map(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for ((key, a), (other, b)) in a.iter().zip(b.iter()) {
                if key != other || !equal(a, b, budget)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => equal(a, b, budget)?,
        (Value::Library(a), Value::Library(b)) => a == b,
        _ => false,
    })
}

/// Returns the order of two values that have one.
#[expect(
    clippy::cast_precision_loss,
    reason = "CEL compares integers with floating-point numbers in this way"
)]
pub(crate) fn compare(a: &Value, b: &Value, budget: &mut Budget) -> Result<Ordering, Stop> {
    let nan = || Stop::failed("NaN has no order");
    let of_doubles = |a: f64, b: f64| a.partial_cmp(&b).ok_or_else(nan);
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Ok(a.cmp(b)),
        (Value::Int(a), Value::Int(b)) | (Value::Duration(a), Value::Duration(b)) => Ok(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Ok(a.cmp(b)),
        (Value::Int(a), Value::Uint(b)) => Ok(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Int(b)) => Ok(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Double(a), Value::Double(b)) => of_doubles(*a, *b),
        (Value::Int(a), Value::Double(b)) => of_doubles(*a as f64, *b),
        (Value::Double(a), Value::Int(b)) => of_doubles(*a, *b as f64),
        (Value::Uint(a), Value::Double(b)) => of_doubles(*a as f64, *b),
        (Value::Double(a), Value::Uint(b)) => of_doubles(*a, *b as f64),
        (Value::String(a), Value::String(b)) => {
            budget.charge_text(a.len().min(b.len()))?;
            Ok(a.cmp(b))
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            budget.charge_text(a.len().min(b.len()))?;
            Ok(a.cmp(b))
        }
        (Value::Timestamp(a), Value::Timestamp(b)) => Ok(a.at.cmp(&b.at)),
        _ => Err(Stop::failed(format!(
            "{} and {} have no order",
            a.type_name(),
            b.type_name()
        ))),
    }
}

/// Formats a number as Go's `%g` does.
pub(crate) fn double_text(number: f64) -> String {
    if !number.is_finite() {
        let infinite = if number < 0.0 { "-Inf" } else { "+Inf" };
        return if number.is_nan() { "NaN" } else { infinite }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return number.to_string();
    }
    let mut text = digits.to_owned();
    let sign = if exponent < 0 { '-' } else { '+' };
    let _ = write!(text, "e{sign}{:02}", exponent.unsigned_abs());
    text
}

//! Elements of the paths of fields: their order, text and form in `fieldsV1`.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::go_text;

/// The step from an object, map or list to one of its children.
#[derive(Debug, Clone)]
pub(super) enum PathElement {
    /// A field of an object or a key of a map: `f:`.
    Field(Arc<str>),
    /// The item of a list that has these values, sorted by name: `k:`.
    Key(Arc<[(String, Value)]>),
    /// The item of a set: `v:`.
    Value(Value),
    /// The item of a list by its position: `i:`.
    Index(i64),
}

/// The path from an object to one of its fields.
pub(super) type Path = Vec<PathElement>;

impl PathElement {
    pub(super) fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }

    /// Returns the key of `fieldsV1`.
    pub(super) fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let fields = go_text::joined(fields.iter(), ",", |(name, value)| {
                    format!("{}:{}", go_text::json_string(name), go_text::json(value))
                });
                format!("k:{{{fields}}}")
            }
            Self::Value(value) => format!("v:{}", go_text::json(value)),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    /// Reads a key of `fieldsV1`. Returns `None` for a type of element that this version does not know, which the
    /// server drops.
    ///
    /// # Errors
    ///
    /// The text is no element of a path.
    pub(super) fn decode(text: &str) -> Result<Option<Self>, String> {
        let Some((kind, rest)) = text.split_once(':') else {
            return Err(format!("missing colon: {text}"));
        };
        let value = |text: &str| {
            serde_json::from_str::<Value>(text).map_err(|error| format!("{text}: {error}"))
        };
        Ok(Some(match kind {
            "f" => Self::field(rest),
            "v" => Self::Value(value(rest)?),
            "k" => match value(rest)? {
                // Maps of serde_json are sorted.
                Value::Object(fields) => Self::Key(fields.into_iter().collect()),
                _ => return Err(format!("expected an object: {text}")),
            },
            "i" => Self::Index(rest.parse().map_err(|_| format!("not an index: {text}"))?),
            _ if kind.len() == 1 => return Ok(None),
            _ => return Err(format!("missing colon: {text}")),
        }))
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(one), Self::Field(two)) => one.cmp(two),
            (Self::Key(one), Self::Key(two)) => compare_keys(one, two),
            (Self::Value(one), Self::Value(two)) => compare(one, two),
            (Self::Index(one), Self::Index(two)) => one.cmp(two),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                let fields = go_text::joined(fields.iter(), ",", |(name, value)| {
                    format!("{name}={}", go_text::readable(value))
                });
                write!(f, "[{fields}]")
            }
            Self::Value(value) => write!(f, "[={}]", go_text::readable(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// Returns the text of a path, such as `.spec.containers[name="web"].image`.
pub(super) fn text(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

fn compare_keys(one: &[(String, Value)], two: &[(String, Value)]) -> Ordering {
    for ((name, value), (other_name, other_value)) in one.iter().zip(two) {
        let order = name.cmp(other_name);
        let order = order.then_with(|| compare(value, other_value));
        if order != Ordering::Equal {
            return order;
        }
    }
    one.len().cmp(&two.len())
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// Orders values of any type. Numbers are compared by value: `1` equals `1.0`.
pub(super) fn compare(one: &Value, two: &Value) -> Ordering {
    match (one, two) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a
                .as_f64()
                .unwrap_or_default()
                .total_cmp(&b.as_f64().unwrap_or_default()),
        },
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let mut orders = a.iter().zip(b).map(|(a, b)| compare(a, b));
            let order = orders.find(|order| order.is_ne());
            order.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let compare = |(a, b): ((&String, &Value), (&String, &Value))| {
                a.0.cmp(b.0).then_with(|| compare(a.1, b.1))
            };
            let mut orders = a.iter().zip(b).map(compare);
            let order = orders.find(|order| order.is_ne());
            order.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        _ => rank(one).cmp(&rank(two)),
    }
}

/// Returns whether two values are equal, comparing numbers by value.
pub(super) fn equal(one: &Value, two: &Value) -> bool {
    compare(one, two) == Ordering::Equal
}

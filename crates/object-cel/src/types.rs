//! Types of expressions and of the values that they read.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The type of an expression or of a value that it reads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Type {
    /// `true` or `false`.
    Bool,
    /// A signed integer of 64 bits.
    Int,
    /// An unsigned integer of 64 bits. No schema has it.
    Uint,
    /// A floating-point number.
    Double,
    /// Text.
    String,
    /// Bytes, in base64 in JSON.
    Bytes,
    /// A length of time, such as `1h30m0s`.
    Duration,
    /// A point in time, such as `2026-01-31T12:00:00Z`.
    Timestamp,
    /// `null`.
    Null,
    /// A list of elements of one type.
    List(Arc<Type>),
    /// A map from strings to values of one type.
    Map(Arc<Type>),
    /// An object with named fields.
    Object(Arc<ObjectType>),
    /// An integer or a string, as the port of a probe.
    IntOrString,
    /// Any type: whether an operation fits is known when it is evaluated.
    Dyn,
    /// What `a.?b` is: a value, or none. No schema has it, and no result.
    Optional(Arc<Type>),
    /// A value that exists only within an expression. No schema has it, and no result.
    Library(Library),
    /// A type that is not known yet while an expression is checked. No result has it.
    #[doc(hidden)]
    Parameter(u32),
}

/// Types of Kubernetes' libraries for CEL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// `quantity('500Mi')`
    Quantity,
    /// `ip('10.0.0.1')`
    Ip,
    /// `cidr('10.0.0.0/8')`
    Cidr,
    /// `semver('1.36.0')`
    Semver,
}

/// The fields of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectType {
    /// The name in messages, such as `StatefulSetStatus`.
    pub name: String,
    /// The types of its fields.
    pub fields: BTreeMap<String, Type>,
    /// Whether it may have other fields, of any type.
    pub open: bool,
}

impl Type {
    /// Returns the type of a list.
    pub fn list(elements: Type) -> Self {
        Self::List(Arc::new(elements))
    }

    /// Returns the type of a map from strings.
    pub fn map(values: Type) -> Self {
        Self::Map(Arc::new(values))
    }

    /// Returns the type of an object with these fields alone.
    pub fn object(name: &str, fields: impl IntoIterator<Item = (String, Type)>) -> Self {
        Self::Object(Arc::new(ObjectType {
            name: name.to_owned(),
            fields: fields.into_iter().collect(),
            open: false,
        }))
    }

    pub(crate) fn optional(value: Type) -> Self {
        Self::Optional(Arc::new(value))
    }

    /// Returns the name of a type within this one that no value of JSON has.
    pub(crate) fn without_json(&self) -> Option<&Type> {
        match self {
            Self::Library(_) | Self::Optional(_) => Some(self),
            Self::List(inner) | Self::Map(inner) => inner.without_json(),
            _ => None,
        }
    }
}

/// Formats as in messages of CEL: `map(string, int)`.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "duration",
            Self::Timestamp => "timestamp",
            Self::Null => "null",
            Self::IntOrString => "int or string",
            Self::Dyn | Self::Parameter(_) => "dyn",
            Self::Object(object) => &object.name,
            Self::Library(Library::Quantity) => "quantity",
            Self::Library(Library::Ip) => "IP",
            Self::Library(Library::Cidr) => "CIDR",
            Self::Library(Library::Semver) => "semver",
            Self::List(elements) => return write!(f, "list({elements})"),
            Self::Map(values) => return write!(f, "map(string, {values})"),
            Self::Optional(value) => return write!(f, "optional({value})"),
        })
    }
}

/// Names that CEL reserves.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// Returns how an expression writes the name of a field, as in Kubernetes: `namespace` is `__namespace__`, and
/// `foo-bar` is `foo__dash__bar`.
pub(crate) fn escaped(name: &str) -> String {
    if is_reserved(name) {
        return format!("__{name}__");
    }
    let name = name.replace("__", "__underscores__");
    let name = name.replace('.', "__dot__").replace('-', "__dash__");
    name.replace('/', "__slash__")
}

impl ObjectType {
    /// Returns the field that an expression calls `written`. As in Kubernetes, a reserved name needs no escape after a
    /// point.
    pub(crate) fn field(&self, written: &str) -> Option<(&str, &Type)> {
        let direct = self.fields.get_key_value(written);
        let is_plain = is_reserved(written) || escaped(written) == written;
        let found = match direct.filter(|_| is_plain) {
            None if written.contains("__") => self
                .fields
                .iter()
                .find(|(name, _)| escaped(name) == written),
            found => found,
        };
        found.map(|(name, type_)| (name.as_str(), type_))
    }
}

/// Returns the name that `name` was probably meant to be.
pub(crate) fn nearest<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let near = names
        .into_iter()
        .map(|other| (distance(name, other), other));
    let limit = (name.len() / 3).max(2);
    near.filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, other)| other)
}

/// Returns the number of characters to insert, remove, replace or change the case of.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(100).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(100).enumerate() {
        let mut next = vec![i + 1];
        for ((y, above), diagonal) in b.iter().zip(row.iter().skip(1)).zip(&row) {
            let left = next.last().copied().unwrap_or(0);
            next.push(
                (left + 1)
                    .min(above + 1)
                    .min(diagonal + usize::from(x != *y)),
            );
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_fields_are_escaped_as_in_kubernetes() {
        for (name, written) in [
            ("replicas", "replicas"),
            ("namespace", "__namespace__"),
            ("foo-bar", "foo__dash__bar"),
            ("a.b/c", "a__dot__b__slash__c"),
            ("a__b", "a__underscores__b"),
        ] {
            assert_eq!(escaped(name), written);
            let type_ = ObjectType {
                fields: [(name.to_owned(), Type::Int)].into(),
                ..ObjectType::default()
            };
            assert_eq!(type_.field(written), Some((name, &Type::Int)));
            let is_plain = name == written || is_reserved(name);
            assert_eq!(type_.field(name).is_some(), is_plain, "{name}");
        }
    }

    #[test]
    fn nearest_name_is_similar() {
        let names = ["readyReplicas", "replicas", "updatedReplicas"];
        assert_eq!(nearest("readyReplica", names), Some("readyReplicas"));
        assert_eq!(nearest("Replicas", names), Some("replicas"));
        assert_eq!(nearest("phase", names), None);
    }
}

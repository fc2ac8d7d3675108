//! Types for merging: the schema of structured-merge-diff, with the text of `types.json`.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name of the type of anything, of which maps are merged key by key.
pub(super) const DEDUCED: &str = "__untyped_deduced_";

/// Name of the type of anything, which is replaced as a whole.
pub(super) const UNTYPED: &str = "__untyped_atomic_";

/// Named types. They may be recursive.
#[derive(Debug)]
pub(super) struct Schema {
    /// Only looked up.
    types: HashMap<String, Atom>,
}

/// The possible forms of a value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Atom {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) scalar: Option<Scalar>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) list: Option<List>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) map: Option<Map>,
}

/// Returns the type of any value, with maps of the type `others`.
pub(super) fn anything(others: &str, relationship: Relationship) -> Atom {
    Atom {
        scalar: Some(Scalar::Untyped),
        list: Some(List {
            of: Ref::named(UNTYPED),
            relationship: Relationship::Atomic,
            keys: Vec::new(),
        }),
        map: Some(Map {
            others: Some(Ref::named(others)),
            relationship,
            ..Map::default()
        }),
    }
}

/// A value without parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Scalar {
    Numeric,
    String,
    Boolean,
    Untyped,
}

/// Whether the parts of a value are merged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Relationship {
    /// The value is replaced as a whole.
    Atomic,
    /// Items of a list are merged by their keys, or by their values if there are no keys.
    Associative,
    /// Fields of a map are merged.
    #[default]
    Separable,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    pub(super) of: Ref,
    pub(super) relationship: Relationship,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) keys: Vec<String>,
}

/// An object with named fields, or a map, or both.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Map {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) fields: BTreeMap<String, Ref>,
    /// Defaults of fields, for those that are keys of lists.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) defaults: BTreeMap<String, Value>,
    /// Type of the fields that have no name here. Without it there must be none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) others: Option<Ref>,
    #[serde(default, skip_serializing_if = "is_separable")]
    pub(super) relationship: Relationship,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn is_separable(relationship: &Relationship) -> bool {
    *relationship == Relationship::Separable
}

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Ref {
    Scalar(Scalar),
    Named {
        #[serde(rename = "ref")]
        name: String,
        /// Overrides that of the type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        relationship: Option<Relationship>,
    },
    Inline(Box<Atom>),
}

/// The possible forms of a value, with their relationships. One of a known value has only one form.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Resolved<'a> {
    pub(super) scalar: Option<Scalar>,
    pub(super) list: Option<(&'a List, Relationship)>,
    pub(super) map: Option<(&'a Map, Relationship)>,
}

/// The form as which a value is handled.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form<'a> {
    Map(&'a Map, Relationship),
    Scalar(Scalar),
    List(&'a List, Relationship),
}

impl Schema {
    /// Returns a schema of these types and the two of anything.
    pub(super) fn new(mut types: BTreeMap<String, Atom>) -> Self {
        types.insert(UNTYPED.to_owned(), anything(UNTYPED, Relationship::Atomic));
        types.insert(
            DEDUCED.to_owned(),
            anything(DEDUCED, Relationship::Separable),
        );
        Self {
            types: types.into_iter().collect(),
        }
    }

    /// Returns the forms of a type, or `None` if a name is unknown.
    pub(super) fn resolve<'a>(&'a self, type_: &'a Ref) -> Option<Resolved<'a>> {
        let (atom, relationship) = match type_ {
            Ref::Scalar(scalar) => {
                return Some(Resolved {
                    scalar: Some(*scalar),
                    ..Resolved::default()
                });
            }
            Ref::Named { name, relationship } => (self.types.get(name)?, *relationship),
            Ref::Inline(atom) => (&**atom, None),
        };
        let list = atom.list.as_ref();
        let map = atom.map.as_ref();
        Some(Resolved {
            scalar: atom.scalar,
            list: list.map(|list| (list, relationship.unwrap_or(list.relationship))),
            map: map.map(|map| (map, relationship.unwrap_or(map.relationship))),
        })
    }
}

impl Ref {
    pub(super) fn named(name: &str) -> Self {
        Self::Named {
            name: name.to_owned(),
            relationship: None,
        }
    }

    /// Returns a type that has no name.
    pub(super) fn inline(atom: Atom) -> Self {
        match atom {
            Atom {
                scalar: Some(scalar),
                list: None,
                map: None,
            } => Self::Scalar(scalar),
            atom => Self::Inline(Box::new(atom)),
        }
    }
}

impl Map {
    /// Returns the type of a field, or `None` if there is no such field.
    pub(super) fn field_type(&self, name: &str) -> Option<&Ref> {
        self.fields.get(name).or(self.others.as_ref())
    }

    /// Returns whether this is a map of anything, whose relationships cannot change.
    pub(super) fn is_of_anything(&self) -> bool {
        self.fields.is_empty()
            && match &self.others {
                Some(Ref::Named { name, .. }) => name == DEDUCED,
                Some(Ref::Scalar(scalar)) => *scalar == Scalar::Untyped,
                Some(Ref::Inline(atom)) => atom.scalar == Some(Scalar::Untyped),
                None => false,
            }
    }
}

impl<'a> Resolved<'a> {
    /// Returns the form of a value. A value that is absent or null, or has no allowed form, keeps all forms.
    pub(super) fn of(self, value: Option<&Value>) -> Self {
        let only = |scalar, list, map| Self { scalar, list, map };
        match value {
            Some(Value::Array(_)) if self.list.is_some() => only(None, self.list, None),
            Some(Value::Object(_)) if self.map.is_some() => only(None, None, self.map),
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) if self.scalar.is_some() => {
                only(self.scalar, None, None)
            }
            _ => self,
        }
    }

    /// Returns whether two results of [`Self::of`] for the same type are equal.
    pub(super) fn same(self, other: Self) -> bool {
        self.scalar.is_some() == other.scalar.is_some()
            && self.list.is_some() == other.list.is_some()
            && self.map.is_some() == other.map.is_some()
    }

    /// Returns the form as which a value of these is handled.
    pub(super) fn form(self) -> Option<Form<'a>> {
        match (self.map, self.scalar, self.list) {
            (Some((map, relationship)), _, _) => Some(Form::Map(map, relationship)),
            (None, Some(scalar), _) => Some(Form::Scalar(scalar)),
            (None, None, Some((list, relationship))) => Some(Form::List(list, relationship)),
            (None, None, None) => None,
        }
    }
}

//! Facts about a value of a chart: the common form of JSON schemas and of defaults with
//! comments.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Number, Value};

/// A kind of JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Null,
    /// `true` or `false`
    Boolean,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    String,
    /// A list.
    Array,
    /// A map.
    Object,
}

impl Kind {
    /// Returns the kind of this name in JSON Schema.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "null" => Self::Null,
            "boolean" => Self::Boolean,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "string" => Self::String,
            "array" => Self::Array,
            "object" => Self::Object,
            _ => return None,
        })
    }

    /// Returns the name in JSON Schema.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::String => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }

    /// Returns the kind of a value. Numbers without a fraction are integers, as in JSON Schema.
    pub(crate) fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Boolean,
            Value::Number(number) => match number.as_f64() {
                Some(float) if float.fract() == 0.0 => Self::Integer,
                _ => Self::Number,
            },
            Value::String(_) => Self::String,
            Value::Array(_) => Self::Array,
            Value::Object(_) => Self::Object,
        }
    }
}

/// Kinds of values; none means all.
pub(crate) type Kinds = BTreeSet<Kind>;

/// Fields that a map may have besides its known ones.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum Others {
    /// All.
    #[default]
    Any,
    None,
    /// Fields with values of this form.
    Like(Box<Node>),
}

/// Restrictions of scalars and lists.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Bounds {
    /// Smallest number, and whether it is excluded.
    pub(crate) minimum: Option<(Number, bool)>,
    /// Largest number, and whether it is excluded.
    pub(crate) maximum: Option<(Number, bool)>,
    /// Divisor of whole numbers.
    pub(crate) multiple_of: Option<u64>,
    /// Length of strings, in characters.
    pub(crate) min_length: Option<u64>,
    /// Length of strings, in characters.
    pub(crate) max_length: Option<u64>,
    /// Length of lists.
    pub(crate) min_items: Option<u64>,
    /// Length of lists.
    pub(crate) max_items: Option<u64>,
    /// Regular expression that a part of a string matches.
    pub(crate) pattern: Option<String>,
}

/// Facts about a value.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Node {
    /// Description in the chart's words.
    pub(crate) text: Option<String>,
    /// The chart's default, as text.
    pub(crate) default: Option<String>,
    /// Whether Helm refuses other values. Otherwise all of this is documentation.
    pub(crate) binding: bool,
    /// Kinds of the value; all if empty.
    pub(crate) kinds: Kinds,
    /// Known fields of a map.
    pub(crate) properties: BTreeMap<String, Node>,
    /// Other fields of a map.
    pub(crate) others: Others,
    /// Fields that a map must have.
    pub(crate) required: BTreeSet<String>,
    pub(crate) items: Option<Box<Node>>,
    /// The only scalars that are allowed; all if empty.
    pub(crate) allowed: Vec<Value>,
    pub(crate) bounds: Bounds,
    /// Format of a string. Helm and the API server do not agree on formats, so this is only
    /// documentation.
    pub(crate) format: Option<String>,
}

impl Node {
    /// Any value.
    pub(crate) fn any() -> Self {
        Self {
            binding: true,
            ..Self::default()
        }
    }

    /// Returns whether values of a kind are possible.
    pub(crate) fn may_be(&self, kind: Kind) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }

    /// Returns the kind if there is only one, `null` aside.
    pub(crate) fn only_kind(&self) -> Option<Kind> {
        let mut kinds = self.kinds.iter().filter(|kind| **kind != Kind::Null);
        match (kinds.next(), kinds.next(), kinds.next()) {
            (Some(kind), None, _) | (Some(Kind::Integer), Some(kind @ Kind::Number), None) => {
                Some(*kind)
            }
            _ => None,
        }
    }

    /// Makes all of it documentation.
    pub(crate) fn relaxed(mut self) -> Self {
        self.binding = false;
        self.properties = std::mem::take(&mut self.properties)
            .into_iter()
            .map(|(name, node)| (name, node.relaxed()))
            .collect();
        self.items = self.items.map(|items| Box::new(items.relaxed()));
        if let Others::Like(node) = self.others {
            self.others = Others::Like(Box::new(node.relaxed()));
        }
        self
    }

    /// Returns what holds for a value for which both hold. If that cannot be expressed, it holds for
    /// more values.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self.binding, other.binding) {
            (true, true) => self.and_binding(other),
            (false, true) => other.documented(self),
            (true | false, false) => self.documented(other),
        }
    }

    fn and_binding(mut self, other: Self) -> Self {
        self.kinds = common_kinds(&self.kinds, &other.kinds);
        self.text = self.text.or(other.text);
        self.default = self.default.or(other.default);
        self.format = self.format.or(other.format);
        for (name, node) in other.properties {
            let both = match self.properties.remove(&name) {
                Some(present) => present.and(node),
                None => node,
            };
            self.properties.insert(name, both);
        }
        self.others = match (self.others, other.others) {
            (Others::None, _) | (_, Others::None) => Others::None,
            (Others::Any, others) | (others, Others::Any) => others,
            (Others::Like(one), Others::Like(two)) => Others::Like(Box::new(one.and(*two))),
        };
        self.required.extend(other.required);
        self.items = match (self.items, other.items) {
            (Some(one), Some(two)) => Some(Box::new(one.and(*two))),
            (one, two) => one.or(two),
        };
        if self.allowed.is_empty() {
            self.allowed = other.allowed;
        }
        let (one, two) = (self.bounds, other.bounds);
        self.bounds = Bounds {
            minimum: one.minimum.or(two.minimum),
            maximum: one.maximum.or(two.maximum),
            multiple_of: one.multiple_of.or(two.multiple_of),
            min_length: one.min_length.max(two.min_length),
            max_length: one.max_length.or(two.max_length),
            min_items: one.min_items.max(two.min_items),
            max_items: one.max_items.or(two.max_items),
            pattern: one.pattern.or(two.pattern),
        };
        self
    }

    /// Adds documentation: descriptions, defaults, and fields that are not known yet.
    fn documented(mut self, other: Self) -> Self {
        self.text = self.text.or(other.text);
        self.default = self.default.or(other.default);
        if !self.may_be(Kind::Object) && !self.may_be(Kind::Array) {
            return self;
        }
        for (name, node) in other.properties {
            match self.properties.remove(&name) {
                Some(present) => {
                    self.properties.insert(name, present.and(node));
                }
                // A field that the chart's schema refuses.
                None if self.binding && self.others != Others::Any => {}
                None if !self.may_be(Kind::Object) => {}
                None => {
                    self.properties.insert(name, node.relaxed());
                }
            }
        }
        if self.items.is_none() && self.may_be(Kind::Array) {
            self.items = other.items.map(|items| Box::new(items.relaxed()));
        }
        self
    }

    /// Returns what holds for a value for which at least one holds. If that cannot be expressed, it
    /// holds for more values.
    pub(crate) fn or(self, other: Self) -> Self {
        let kinds = if self.kinds.is_empty() || other.kinds.is_empty() {
            Kinds::new()
        } else {
            &self.kinds | &other.kinds
        };
        // What one branch says of maps holds for all maps if the other has none.
        let (maps, other_maps) = (self.may_be(Kind::Object), other.may_be(Kind::Object));
        let (lists, other_lists) = (self.may_be(Kind::Array), other.may_be(Kind::Array));
        let both = maps && other_maps;
        let closed = |node: &Self| node.others == Others::None;
        let (first_closed, second_closed) = (closed(&self), closed(&other));
        let mut properties = BTreeMap::new();
        let mut rest = other.properties;
        for (name, node) in self.properties {
            let joined = match rest.remove(&name) {
                Some(second) if both => node.or(second),
                // A map with this field is not of the other form.
                None if !other_maps || second_closed => node,
                Some(_) | None => node.relaxed(),
            };
            properties.insert(name, joined);
        }
        for (name, node) in rest {
            let strict = !maps || first_closed;
            properties.insert(name, if strict { node } else { node.relaxed() });
        }
        let others = match (self.others, other.others) {
            (others, _) if !other_maps => others,
            (_, others) if !maps => others,
            (Others::None, Others::None) => Others::None,
            (Others::Like(one), Others::Like(two)) => Others::Like(Box::new(one.or(*two))),
            _ => Others::Any,
        };
        let items = match (self.items, other.items) {
            (Some(one), Some(two)) if lists && other_lists => Some(Box::new(one.or(*two))),
            (Some(one), _) if !other_lists => Some(one),
            (_, Some(two)) if !lists => Some(two),
            (one, two) => one.or(two).map(|items| Box::new(items.relaxed())),
        };
        let allowed = if self.allowed.is_empty() || other.allowed.is_empty() {
            Vec::new()
        } else {
            let mut allowed = self.allowed;
            allowed.extend(other.allowed);
            let mut unique = Vec::new();
            for value in allowed {
                if !unique.contains(&value) {
                    unique.push(value);
                }
            }
            unique
        };
        let required = match (maps, other_maps) {
            (true, true) => &self.required & &other.required,
            (true, false) => self.required,
            (false, _) => other.required,
        };
        Self {
            text: self.text.or(other.text),
            default: self.default.or(other.default),
            binding: self.binding && other.binding,
            kinds,
            properties,
            others,
            required,
            items,
            allowed,
            bounds: if self.bounds == other.bounds {
                self.bounds
            } else {
                Bounds::default()
            },
            format: if self.format == other.format {
                self.format
            } else {
                None
            },
        }
    }
}

/// Returns the kinds in both sets; all if there are none, which no chart wants.
fn common_kinds(one: &Kinds, two: &Kinds) -> Kinds {
    if one.is_empty() || two.is_empty() {
        return one | two;
    }
    let has = |kinds: &Kinds, kind: Kind| {
        kinds.contains(&kind) || kind == Kind::Integer && kinds.contains(&Kind::Number)
    };
    let all = one | two;
    all.into_iter()
        .filter(|kind| has(one, *kind) && has(two, *kind))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kinds: &[Kind]) -> Node {
        Node {
            kinds: kinds.iter().copied().collect(),
            ..Node::any()
        }
    }

    fn map(fields: &[(&str, Kind)], others: Others) -> Node {
        let fields = fields.iter();
        Node {
            properties: fields
                .map(|(name, kind)| ((*name).to_owned(), of(&[*kind])))
                .collect(),
            others,
            ..of(&[Kind::Object])
        }
    }

    #[test]
    fn a_whole_number_is_a_number() {
        let both = of(&[Kind::Integer, Kind::String]).and(of(&[Kind::Number]));
        assert_eq!(both, of(&[Kind::Integer]));
        assert_eq!(
            of(&[Kind::Integer]).or(of(&[Kind::Number])).only_kind(),
            Some(Kind::Number)
        );
    }

    #[test]
    fn a_field_of_one_alternative_binds_only_if_the_other_cannot_have_it() {
        let one = map(&[("a", Kind::String), ("b", Kind::String)], Others::None);
        let open = map(&[("a", Kind::Integer)], Others::Any);
        let closed = map(&[("a", Kind::Integer)], Others::None);
        let either = one.clone().or(open);
        assert!(!either.properties["b"].binding);
        assert!(either.properties["a"].binding);
        assert_eq!(either.others, Others::Any);
        let either = one.or(closed);
        assert!(either.properties["b"].binding);
        assert_eq!(either.others, Others::None);
    }

    #[test]
    fn documentation_adds_no_field_to_a_closed_map() {
        let closed = map(&[("a", Kind::String)], Others::None);
        let documented = closed.and(map(&[("b", Kind::String)], Others::Any).relaxed());
        assert_eq!(documented.properties.len(), 1);
    }
}

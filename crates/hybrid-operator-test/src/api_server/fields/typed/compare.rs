//! The differences between two values of a type.

use std::collections::BTreeMap;

use serde_json::Value;

use super::validate::{Violations, scalar_violation};
use super::{items, object};
use crate::api_server::fields::path::{Path, PathElement, equal};
use crate::api_server::fields::schema::{Form, List, Map, Ref, Relationship, Resolved, Schema};
use crate::api_server::fields::set::FieldSet;

/// Fields in which two objects differ.
#[derive(Debug, Clone, Default)]
pub(in crate::api_server::fields) struct Comparison {
    pub(in crate::api_server::fields) removed: FieldSet,
    pub(in crate::api_server::fields) modified: FieldSet,
    pub(in crate::api_server::fields) added: FieldSet,
}

impl Comparison {
    /// Returns this without the fields and all that is below them.
    pub(in crate::api_server::fields) fn without(&self, fields: &FieldSet) -> Self {
        Self {
            removed: self.removed.without_subtrees(fields),
            modified: self.modified.without_subtrees(fields),
            added: self.added.without_subtrees(fields),
        }
    }
}

/// Compares two values. Absent, `None`, and null are different.
///
/// # Errors
///
/// Both values have not their type.
pub(in crate::api_server::fields) fn compare(
    schema: &Schema,
    type_: &Ref,
    old: &Value,
    new: &Value,
) -> Result<Comparison, Violations> {
    let mut walk = Walk {
        schema,
        path: Path::new(),
        found: Comparison::default(),
        violations: Violations::default(),
    };
    walk.value(type_, Some(old), Some(new));
    if walk.violations.is_empty() {
        Ok(walk.found)
    } else {
        Err(walk.violations)
    }
}

struct Walk<'a> {
    schema: &'a Schema,
    path: Path,
    found: Comparison,
    violations: Violations,
}

impl Walk<'_> {
    fn value(&mut self, type_: &Ref, old: Option<&Value>, new: Option<&Value>) {
        if old == new {
            return;
        }
        let Some(forms) = self.schema.resolve(type_) else {
            let message = format!("schema error: no type found matching: {type_:?}");
            return self.violations.add(&self.path, message);
        };
        let (old_forms, new_forms) = (forms.of(old), forms.of(new));
        let is_leaf = if new.is_none() {
            self.form(old_forms, old, new)
        } else {
            // The form changes, from a scalar to a map for example.
            if old.is_some() && !old_forms.same(new_forms) {
                self.form(old_forms, old, new);
            }
            self.form(new_forms, old, new)
        };
        if !is_leaf {
            self.presence(old, new);
        }
    }

    /// Notes that a value came or went.
    fn presence(&mut self, old: Option<&Value>, new: Option<&Value>) {
        if old.is_none() {
            self.found.added.insert(&self.path);
        } else if new.is_none() {
            self.found.removed.insert(&self.path);
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) -> bool {
        match (old, new) {
            (Some(old), Some(new)) if !equal(old, new) => self.found.modified.insert(&self.path),
            _ => self.presence(old, new),
        }
        true
    }

    /// Compares values of one form. Returns whether it was done as a whole.
    fn form(&mut self, forms: Resolved<'_>, old: Option<&Value>, new: Option<&Value>) -> bool {
        match forms.form() {
            None => {
                self.violations
                    .add(&self.path, "schema error: invalid atom");
                false
            }
            Some(Form::Scalar(scalar)) => {
                let violation = |value: Option<&Value>| scalar_violation(scalar, value?);
                if let (Some(old), Some(new)) = (violation(old), violation(new)) {
                    self.violations.add(&self.path, format!("lhs: {old}"));
                    self.violations.add(&self.path, format!("rhs: {new}"));
                    return false;
                }
                self.leaf(old, new)
            }
            Some(Form::Map(map, relationship)) => {
                let (fields, new_fields) = (object(old), object(new));
                let empty = fields.is_none_or(serde_json::Map::is_empty)
                    && new_fields.is_none_or(serde_json::Map::is_empty);
                if relationship == Relationship::Atomic || empty {
                    return self.leaf(old, new);
                }
                self.map(map, fields, new_fields);
                false
            }
            Some(Form::List(list, relationship)) => {
                let (values, new_values) = (super::items(old), super::items(new));
                let empty =
                    values.is_none_or(Vec::is_empty) && new_values.is_none_or(Vec::is_empty);
                if relationship == Relationship::Atomic || empty {
                    return self.leaf(old, new);
                }
                self.list(
                    list,
                    values.map(Vec::as_slice).unwrap_or_default(),
                    new_values.map(Vec::as_slice).unwrap_or_default(),
                );
                false
            }
        }
    }

    fn map(
        &mut self,
        map: &Map,
        old: Option<&serde_json::Map<String, Value>>,
        new: Option<&serde_json::Map<String, Value>>,
    ) {
        let old_names = old.into_iter().flat_map(serde_json::Map::keys);
        let new_names = new
            .into_iter()
            .flat_map(serde_json::Map::keys)
            .filter(|name| old.is_none_or(|old| !old.contains_key(*name)));
        for name in old_names.chain(new_names) {
            self.path.push(PathElement::field(name));
            if let Some(type_) = map.field_type(name) {
                self.value(
                    type_,
                    old.and_then(|old| old.get(name)),
                    new.and_then(|new| new.get(name)),
                );
            }
            self.path.pop();
        }
    }

    fn list(&mut self, list: &List, old: &[Value], new: &[Value]) {
        let old = self.by_element(list, old);
        let new = self.by_element(list, new);
        let more = new.keys().filter(|element| !old.contains_key(*element));
        for element in old.keys().chain(more) {
            let olds = old.get(element).map(Vec::as_slice).unwrap_or_default();
            let news = new.get(element).map(Vec::as_slice).unwrap_or_default();
            self.path.push(element.clone());
            match (olds, news) {
                ([] | [_], [] | [_]) => {
                    self.value(&list.of, olds.first().copied(), news.first().copied());
                }
                ([_, _, ..], [_, _, ..]) => {
                    let same = olds.len() == news.len()
                        && olds.iter().zip(news).all(|(old, new)| equal(old, new));
                    if !same {
                        self.found.modified.insert(&self.path);
                    }
                }
                ([_, _, ..], _) => {
                    if let Some(new) = news.first() {
                        self.value(&list.of, None, Some(new));
                    }
                    self.found.removed.insert(&self.path);
                }
                (_, [_, _, ..]) => {
                    if let Some(old) = olds.first() {
                        self.value(&list.of, Some(old), None);
                    }
                    self.found.added.insert(&self.path);
                }
            }
            self.path.pop();
        }
    }

    fn by_element<'v>(
        &mut self,
        list: &List,
        values: &'v [Value],
    ) -> BTreeMap<PathElement, Vec<&'v Value>> {
        let mut elements: BTreeMap<_, Vec<&Value>> = BTreeMap::new();
        for (index, value) in values.iter().enumerate() {
            match items::element(self.schema, list, value) {
                Ok(element) => elements.entry(element).or_default().push(value),
                Err(message) => self
                    .violations
                    .add(&self.path, format!("element {index}: {message}")),
            }
        }
        elements
    }
}

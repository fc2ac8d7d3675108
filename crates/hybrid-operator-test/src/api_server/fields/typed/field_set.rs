//! The set of the fields of a value.

use std::collections::BTreeSet;

use serde_json::Value;

use super::items;
use crate::api_server::fields::path::{Path, PathElement};
use crate::api_server::fields::schema::{Form, List, Map, Ref, Relationship, Schema};
use crate::api_server::fields::set::FieldSet;

/// Returns every leaf, item and key that a valid value mentions.
pub(in crate::api_server::fields) fn field_set(
    schema: &Schema,
    type_: &Ref,
    value: &Value,
) -> FieldSet {
    let mut walk = Walk {
        schema,
        path: Path::new(),
        set: FieldSet::default(),
    };
    walk.value(type_, value);
    walk.set
}

struct Walk<'a> {
    schema: &'a Schema,
    path: Path,
    set: FieldSet,
}

impl Walk<'_> {
    fn value(&mut self, type_: &Ref, value: &Value) {
        let forms = self.schema.resolve(type_);
        match forms.and_then(|forms| forms.of(Some(value)).form()) {
            None => {}
            Some(
                Form::Scalar(_)
                | Form::Map(_, Relationship::Atomic)
                | Form::List(_, Relationship::Atomic),
            ) => self.set.insert(&self.path),
            Some(Form::Map(map, _)) => self.map(map, value),
            Some(Form::List(list, _)) => self.list(list, value),
        }
    }

    fn map(&mut self, map: &Map, value: &Value) {
        for (name, value) in value.as_object().into_iter().flatten() {
            self.path.push(PathElement::field(name));
            if let Some(type_) = map.field_type(name) {
                self.value(type_, value);
            }
            let is_empty =
                value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
            if is_empty || !map.fields.contains_key(name) {
                self.set.insert(&self.path);
            }
            self.path.pop();
        }
    }

    fn list(&mut self, list: &List, value: &Value) {
        let values = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let elements: Vec<_> = values
            .iter()
            .map(|value| items::element(self.schema, list, value))
            .collect();
        let mut seen = BTreeSet::new();
        let several: BTreeSet<_> = elements
            .iter()
            .flatten()
            .filter(|element| !seen.insert(*element))
            .collect();
        for (element, value) in elements.iter().zip(values) {
            let Ok(element) = element else { continue };
            self.path.push(element.clone());
            self.set.insert(&self.path);
            // Of several items with one key, nobody owns parts.
            if !several.contains(element) {
                self.value(&list.of, value);
            }
            self.path.pop();
        }
    }
}

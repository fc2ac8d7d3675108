//! Merges an applied value into a stored one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map as Object, Value};

use super::validate::{Violations, scalar_violation};
use super::{items, object};
use crate::api_server::fields::path::{Path, PathElement};
use crate::api_server::fields::schema::{Form, List, Map, Ref, Relationship, Resolved, Schema};

/// Returns `live` with the values of `applied`. Nothing is removed. A list keeps the order of `live` where `applied`
/// does not say otherwise.
///
/// # Errors
///
/// Both values have not their type.
pub(in crate::api_server::fields) fn merge(
    schema: &Schema,
    type_: &Ref,
    live: &Value,
    applied: &Value,
) -> Result<Value, Violations> {
    let mut walk = Walk {
        schema,
        path: Path::new(),
        violations: Violations::default(),
    };
    let merged = walk.value(type_, Some(live), Some(applied));
    if walk.violations.is_empty() {
        Ok(merged.unwrap_or_default())
    } else {
        Err(walk.violations)
    }
}

struct Walk<'a> {
    schema: &'a Schema,
    path: Path,
    violations: Violations,
}

/// A list with the elements that name its items.
#[derive(Default)]
struct Indexed<'v> {
    elements: Vec<(PathElement, &'v Value)>,
    /// The item of each element; null if there are several.
    items: BTreeMap<PathElement, &'v Value>,
}

impl Walk<'_> {
    fn value(
        &mut self,
        type_: &Ref,
        live: Option<&Value>,
        applied: Option<&Value>,
    ) -> Option<Value> {
        let Some(forms) = self.schema.resolve(type_) else {
            let message = format!("schema error: no type found matching: {type_:?}");
            self.violations.add(&self.path, message);
            return None;
        };
        if applied.is_none() {
            return self.form(forms.of(live), live, applied);
        }
        self.form(forms.of(applied), live, applied)
    }

    fn form(
        &mut self,
        forms: Resolved<'_>,
        live: Option<&Value>,
        applied: Option<&Value>,
    ) -> Option<Value> {
        let leaf = || applied.or(live).cloned();
        match forms.form() {
            None => {
                self.violations
                    .add(&self.path, "schema error: invalid atom");
                None
            }
            Some(Form::Scalar(scalar)) => {
                let violation = |value: Option<&Value>| scalar_violation(scalar, value?);
                if let (Some(live), Some(applied)) = (violation(live), violation(applied)) {
                    self.violations.add(&self.path, format!("lhs: {live}"));
                    self.violations.add(&self.path, format!("rhs: {applied}"));
                    return None;
                }
                leaf()
            }
            Some(Form::Map(map, relationship)) => {
                let (live, applied) = (object(live), object(applied));
                let empty =
                    live.is_none_or(Object::is_empty) && applied.is_none_or(Object::is_empty);
                if relationship == Relationship::Atomic || empty {
                    return leaf();
                }
                self.map(map, live, applied)
            }
            Some(Form::List(list, relationship)) => {
                let (live, applied) = (super::items(live), super::items(applied));
                let empty = live.is_none_or(Vec::is_empty) && applied.is_none_or(Vec::is_empty);
                if relationship == Relationship::Atomic || empty {
                    return leaf();
                }
                self.list(
                    list,
                    live.map(Vec::as_slice).unwrap_or_default(),
                    applied.map(Vec::as_slice).unwrap_or_default(),
                )
            }
        }
    }

    fn map(
        &mut self,
        map: &Map,
        live: Option<&Object<String, Value>>,
        applied: Option<&Object<String, Value>>,
    ) -> Option<Value> {
        let keys = |object: Option<&Object<String, Value>>| {
            object
                .into_iter()
                .flat_map(Object::keys)
                .cloned()
                .collect::<BTreeSet<_>>()
        };
        let mut merged = Object::new();
        for name in keys(live).union(&keys(applied)) {
            self.path.push(PathElement::field(name));
            let value = map.field_type(name).and_then(|type_| {
                self.value(
                    type_,
                    live.and_then(|live| live.get(name)),
                    applied.and_then(|applied| applied.get(name)),
                )
            });
            self.path.pop();
            if let Some(value) = value {
                merged.insert(name.clone(), value);
            }
        }
        (!merged.is_empty()).then_some(Value::Object(merged))
    }

    /// Takes items of `live` until the next one that both have is due, and items of `applied` in their order.
    fn list(&mut self, list: &List, live: &[Value], applied: &[Value]) -> Option<Value> {
        let applied = self.index(list, applied, false);
        let live = self.index(list, live, true);
        if !self.violations.is_empty() {
            return None;
        }
        let mut shared: VecDeque<&PathElement> = applied
            .elements
            .iter()
            .map(|(element, _)| element)
            .filter(|element| live.items.contains_key(*element))
            .collect();
        let mut next_shared = shared.pop_front();
        let mut done = BTreeSet::new();
        let mut merged = Vec::new();
        let (mut l, mut a) = (0, 0);
        while l < live.elements.len() || a < applied.elements.len() {
            let ours = live.elements.get(l);
            let theirs = applied.elements.get(a);
            if let (Some((ours, _)), Some((theirs, _))) = (ours, theirs) {
                if ours == theirs {
                    done.insert(ours);
                    merged.extend(self.shared_item(list, ours, &live, &applied));
                    (l, a) = (l + 1, a + 1);
                    next_shared = shared.pop_front();
                    continue;
                }
                if applied.items.contains_key(ours) && next_shared.is_some_and(|next| next != ours)
                {
                    // Its turn comes with the applied item.
                    l += 1;
                    continue;
                }
            }
            if let Some((element, value)) = ours {
                if !applied.items.contains_key(element) {
                    merged.extend(self.item(list, element, Some(*value), None));
                    l += 1;
                    continue;
                }
                if done.contains(element) {
                    l += 1;
                }
            }
            if let Some((element, _)) = theirs {
                done.insert(element);
                merged.extend(self.shared_item(list, element, &live, &applied));
                a += 1;
                if next_shared == Some(element) {
                    next_shared = shared.pop_front();
                }
            }
        }
        (!merged.is_empty()).then_some(Value::Array(merged))
    }

    fn shared_item(
        &mut self,
        list: &List,
        element: &PathElement,
        live: &Indexed<'_>,
        applied: &Indexed<'_>,
    ) -> Option<Value> {
        let (live, applied) = (live.items.get(element), applied.items.get(element));
        self.item(list, element, live.copied(), applied.copied())
    }

    fn item(
        &mut self,
        list: &List,
        element: &PathElement,
        live: Option<&Value>,
        applied: Option<&Value>,
    ) -> Option<Value> {
        self.path.push(element.clone());
        let merged = self.value(&list.of, live, applied);
        self.path.pop();
        merged
    }

    fn index<'v>(&mut self, list: &List, values: &'v [Value], duplicates: bool) -> Indexed<'v> {
        let mut indexed = Indexed::default();
        for (index, value) in values.iter().enumerate() {
            let element = match items::element(self.schema, list, value) {
                Ok(element) => element,
                Err(message) => {
                    let message = format!("element {index}: {message}");
                    self.violations.add(&self.path, message);
                    continue;
                }
            };
            if !indexed.items.contains_key(&element) {
                indexed.items.insert(element.clone(), value);
            } else if duplicates {
                // Items of which there are several are replaced, not merged.
                indexed.items.insert(element.clone(), &Value::Null);
            } else {
                let message = format!("duplicate entries for key {element}");
                self.violations.add(&self.path, message);
                continue;
            }
            indexed.elements.push((element, value));
        }
        indexed
    }
}

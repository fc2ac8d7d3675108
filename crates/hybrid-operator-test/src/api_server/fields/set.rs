//! Sets of fields, as trees of path elements: `fieldpath.Set` of structured-merge-diff.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::path::{Path, PathElement};
use super::schema::{Ref, Schema};

/// A set of fields. Membership of a field does not imply that of its parent or children.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    members: BTreeSet<PathElement>,
    children: BTreeMap<PathElement, Arc<FieldSet>>,
}

impl FieldSet {
    /// Returns the set of these paths of field names.
    pub(super) fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Path = path.iter().map(|name| PathElement::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    /// Adds a field. The empty path, the whole object, belongs to nobody.
    pub(super) fn insert(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => {
                let child = self.children.entry(first.clone()).or_default();
                Arc::make_mut(child).insert(rest);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(|child| child.is_empty())
    }

    /// Returns whether a field is a member.
    pub(super) fn contains(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.child(first).is_some_and(|child| child.contains(rest)),
        }
    }

    /// Returns whether a child of the root is a member.
    pub(super) fn has(&self, element: &PathElement) -> bool {
        self.members.contains(element)
    }

    /// Returns what is below a child of the root.
    pub(super) fn child(&self, element: &PathElement) -> Option<&Self> {
        self.children.get(element).map(|child| &**child)
    }

    /// Returns the children of the root that are members or have members below.
    pub(super) fn elements(&self) -> BTreeSet<&PathElement> {
        self.members.iter().chain(self.children.keys()).collect()
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        let mut children = self.children.clone();
        for (element, theirs) in &other.children {
            children
                .entry(element.clone())
                .and_modify(|ours| *ours = Arc::new(ours.union(theirs)))
                .or_insert_with(|| Arc::clone(theirs));
        }
        Self {
            members: self.members.union(&other.members).cloned().collect(),
            children,
        }
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let children = self.children.iter().filter_map(|(element, ours)| {
            let both = ours.intersection(other.children.get(element)?);
            (!both.is_empty()).then(|| (element.clone(), Arc::new(both)))
        });
        Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: children.collect(),
        }
    }

    /// Returns this set without the members of another. A field that is a member of the other does not take those
    /// below it with it.
    pub(super) fn difference(&self, other: &Self) -> Self {
        self.without(other, false)
    }

    /// Returns this set without the members of another, and without all that is below them.
    pub(super) fn without_subtrees(&self, other: &Self) -> Self {
        self.without(other, true)
    }

    fn without(&self, other: &Self, subtrees: bool) -> Self {
        let children = self.children.iter().filter_map(|(element, ours)| {
            if subtrees && other.members.contains(element) {
                return None;
            }
            let Some(theirs) = other.children.get(element) else {
                return Some((element.clone(), Arc::clone(ours)));
            };
            let rest = ours.without(theirs, subtrees);
            (!rest.is_empty()).then(|| (element.clone(), Arc::new(rest)))
        });
        Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: children.collect(),
        }
    }

    /// Returns this set with the fields of objects that have members below them: of `a.b.c` also `a`, but not `a.b` if
    /// `a` is a map.
    pub(super) fn with_named_fields(&self, schema: &Schema, type_: Option<&Ref>) -> Self {
        let atom = type_
            .and_then(|type_| schema.resolve(type_))
            .unwrap_or_default();
        let mut members = self.members.clone();
        let mut children = BTreeMap::new();
        for (element, set) in &self.children {
            let mut below = None;
            match (element, atom.map, atom.list) {
                (PathElement::Field(name), Some((map, _)), _) => {
                    below = map.field_type(name);
                    if map.fields.contains_key(&**name) {
                        members.insert(element.clone());
                    }
                }
                (PathElement::Key(_), _, Some((list, _))) => below = Some(&list.of),
                _ => {}
            }
            let set = set.with_named_fields(schema, below);
            children.insert(element.clone(), Arc::new(set));
        }
        Self { members, children }
    }

    /// Returns the paths of the members, parents first among the members of one level.
    pub(super) fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        self.collect_paths(&mut Path::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &mut Path, paths: &mut Vec<Path>) {
        for member in &self.members {
            prefix.push(member.clone());
            paths.push(prefix.clone());
            prefix.pop();
        }
        for (element, set) in &self.children {
            prefix.push(element.clone());
            set.collect_paths(prefix, paths);
            prefix.pop();
        }
    }

    /// Returns `fieldsV1`.
    pub(super) fn encode(&self) -> Value {
        let mut fields = Map::new();
        for element in &self.members {
            fields.insert(element.encode(), json!({}));
        }
        for (element, set) in &self.children {
            let mut below = set.encode();
            if let (true, Value::Object(below)) = (self.members.contains(element), &mut below)
                && !below.is_empty()
            {
                below.insert(".".to_owned(), json!({}));
            }
            fields.insert(element.encode(), below);
        }
        Value::Object(fields)
    }

    /// Reads `fieldsV1`.
    ///
    /// # Errors
    ///
    /// A key is no element of a path.
    pub(super) fn decode(fields: &Value) -> Result<Self, String> {
        Ok(Self::decode_node(fields)?.0.unwrap_or_default())
    }

    /// Reads a node. Returns what is below it, and whether it is a member itself.
    fn decode_node(fields: &Value) -> Result<(Option<Self>, bool), String> {
        let Value::Object(fields) = fields else {
            return Err(format!("expected an object, got {fields}"));
        };
        let mut is_member = false;
        let mut set: Option<Self> = None;
        for (key, below) in fields {
            if key == "." {
                is_member = true;
                continue;
            }
            let Some(element) = PathElement::decode(key)? else {
                continue;
            };
            let (children, child_is_member) = Self::decode_node(below)?;
            let set = set.get_or_insert_default();
            if child_is_member {
                set.members.insert(element.clone());
            }
            if let Some(children) = children {
                set.children.insert(element, Arc::new(children));
            }
        }
        is_member |= set.is_none();
        Ok((set, is_member))
    }
}

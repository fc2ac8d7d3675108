//! Applies the patches of an owner to rendered objects. A patch changes exactly one object, and only fields that a list
//! names. No I/O.
//!
//! The fields that a patch writes and reads are checked before it is applied, so that neither its success nor its failure tells what
//! other fields contain; and all differences of the patched object are checked afterwards.

use std::convert::Infallible;
use std::fmt;

use helm_core::Rendered;
use helm_core::manifest::ObjectKey;
use json_patch::PatchOperation;
use json_patch::jsonptr::Pointer;
use kube_objects::ownership::is_reserved_key;
use serde_json::{Map, Value};

use super::patches::{directive, merge, merge_key};
use crate::policy::{Patch, PatchBody};

/// Deepest nesting of what a patch adds, in levels.
pub const MAX_NESTING: usize = 64;
/// Size of everything that the patches of an owner copy, in bytes.
const MAX_COPIED: usize = 256 * 1024;
/// Number of objects that a message names.
const MAX_NAMED: usize = 10;

/// A field of a kind, as `kubectl explain` writes it: `Deployment.spec.template.spec.containers.resources`. The elements of
/// a list have no name. A dot within a name is written as `\.`. One of hooks begins with `hook.`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindField {
    /// Whether objects with the field are hooks; otherwise, they are the other objects of the kind.
    pub hook: bool,
    /// Kind, of any group.
    pub kind: String,
    /// Names of the fields that lead to it.
    pub path: Vec<String>,
}

impl fmt::Display for KindField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.hook { "hook." } else { "" })?;
        f.write_str(&self.kind)?;
        for name in &self.path {
            write!(f, ".{}", name.replace('\\', "\\\\").replace('.', "\\."))?;
        }
        Ok(())
    }
}

/// Patches of an owner.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OwnPatches {
    /// Place of their list in the owner, for messages: `spec.patches`.
    pub place: String,
    /// The patches, in their order.
    pub patches: Vec<Patch>,
    /// Fields that they may read and change, with all below them.
    pub allowed: Vec<KindField>,
}

/// Error in the patches of an owner.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum OwnPatchError {
    /// They cannot be read.
    #[error("{0}")]
    Malformed(String),
    #[error("{patch} matches no object of the release; a patch must match exactly one")]
    MatchesNone { patch: String },
    #[error(
        "{patch} matches {count} objects ({objects}); a patch must match exactly one, so narrow its target"
    )]
    MatchesSeveral {
        patch: String,
        count: usize,
        objects: String,
    },
    #[error("cannot apply {patch} to {object}")]
    Misfit {
        patch: String,
        object: String,
        #[source]
        source: Box<json_patch::PatchError>,
    },
    #[error("{touched}; allowed are only {allowed}")]
    Outside {
        touched: Box<Touched>,
        allowed: String,
    },
    #[error("{0}; no patch may touch what identifies an object or belongs to Helm or the operator")]
    Reserved(Box<Touched>),
    #[error("{patch} nests fields of {object} more than {MAX_NESTING} levels deep")]
    TooDeep { patch: String, object: String },
    #[error("{patch} copies too much: more than {} KiB in all patches", MAX_COPIED / 1024)]
    TooLarge { patch: String },
}

/// A field that a patch changes or reads.
#[derive(Debug)]
pub struct Touched {
    patch: String,
    /// `changes` or `reads`.
    does: &'static str,
    field: KindField,
    object: String,
}

impl fmt::Display for Touched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            patch,
            does,
            field,
            object,
        } = self;
        write!(f, "{patch} {does} {field} of {object}")
    }
}

/// Applies the patches in their order.
pub(super) fn apply(mut rendered: Rendered, own: &OwnPatches) -> Result<Rendered, OwnPatchError> {
    if own.patches.is_empty() {
        return Ok(rendered);
    }
    let selected = own.selected(&mut rendered)?;
    let (mut position, mut copied) = (0, 0);
    let mut change = |object: &mut Value, hook: bool| {
        let here = position;
        position += 1;
        let mut changed = false;
        for (index, (patch, selected)) in own.patches.iter().zip(&selected).enumerate() {
            if *selected == here {
                own.change(index, patch, object, hook, &mut copied)?;
                changed = true;
            }
        }
        Ok::<_, OwnPatchError>(changed)
    };
    rendered.change_objects(|object| change(object, false))?;
    rendered.change_hooks(|object| change(object, true))?;
    Ok(rendered)
}

impl OwnPatches {
    /// Returns the position of the object that each patch is for. Hooks count only if a field of their kind is allowed.
    fn selected(&self, rendered: &mut Rendered) -> Result<Vec<usize>, OwnPatchError> {
        let mut matches: Vec<Vec<(usize, ObjectKey)>> = vec![Vec::new(); self.patches.len()];
        let mut position = 0;
        let mut find = |object: &mut Value, hook: bool| {
            let is_for = |key: &ObjectKey| {
                let mut fields = self.allowed.iter().filter(|field| field.hook);
                !hook || fields.any(|field| field.kind == key.kind)
            };
            if let Some(key) = ObjectKey::of(object).filter(is_for) {
                for (patch, matches) in self.patches.iter().zip(&mut matches) {
                    if patch.target.matches(&key, object) {
                        matches.push((position, key.clone()));
                    }
                }
            }
            position += 1;
            Ok::<_, Infallible>(false)
        };
        let Ok(()) = rendered.change_objects(|object| find(object, false));
        let Ok(()) = rendered.change_hooks(|object| find(object, true));
        let one = |(index, matches): (usize, &Vec<(usize, ObjectKey)>)| match matches.as_slice() {
            [(position, _)] => Ok(*position),
            [] => Err(OwnPatchError::MatchesNone {
                patch: self.name(index),
            }),
            several => {
                let named = several.iter().take(MAX_NAMED);
                let mut objects: Vec<String> = named.map(|(_, key)| key.to_string()).collect();
                if several.len() > MAX_NAMED {
                    objects.push("...".to_owned());
                }
                Err(OwnPatchError::MatchesSeveral {
                    patch: self.name(index),
                    count: several.len(),
                    objects: objects.join(", "),
                })
            }
        };
        matches.iter().enumerate().map(one).collect()
    }

    fn name(&self, index: usize) -> String {
        format!("{}[{index}]", self.place)
    }

    /// Applies a patch to its object. `copied` is the size of what all patches have copied.
    fn change(
        &self,
        index: usize,
        patch: &Patch,
        object: &mut Value,
        hook: bool,
        copied: &mut usize,
    ) -> Result<(), OwnPatchError> {
        let Some(key) = ObjectKey::of(object) else {
            return Ok(());
        };
        let before = object.clone();
        let check = Check {
            own: self,
            patch: self.name(index),
            hook,
            key: &key,
        };
        match &patch.patch {
            PatchBody::Json(operations) => {
                for operation in &operations.0 {
                    check.operation(object, operation, copied)?;
                    // An operation that fails leaves the object to be dropped.
                    let one = std::slice::from_ref(operation);
                    json_patch::patch_unsafe(object, one).map_err(|source| check.misfit(source))?;
                }
            }
            PatchBody::StrategicMerge(body) => {
                check.merge(body, &mut Vec::new())?;
                merge(object, body);
            }
        }
        check.differences(Some(&before), Some(object), &mut Vec::new())
    }
}

/// The bounds of one patch.
struct Check<'a> {
    own: &'a OwnPatches,
    /// Place of the patch, for messages.
    patch: String,
    /// Whether the object is a hook.
    hook: bool,
    key: &'a ObjectKey,
}

impl Check<'_> {
    /// Checks what an operation of a JSON Patch reads and writes in an object.
    fn operation(
        &self,
        object: &Value,
        operation: &PatchOperation,
        copied: &mut usize,
    ) -> Result<(), OwnPatchError> {
        let path = operation.path();
        let names = names(object, path);
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        let value = match operation {
            PatchOperation::Test(_) => return self.may("reads", &names),
            PatchOperation::Remove(_) => return self.may("changes", &names),
            PatchOperation::Add(operation) => Some(&operation.value),
            PatchOperation::Replace(operation) => Some(&operation.value),
            PatchOperation::Move(operation) => self.taken("changes", object, &operation.from)?,
            PatchOperation::Copy(operation) => {
                let value = self.taken("reads", object, &operation.from)?;
                *copied += value.map_or(0, size);
                if *copied > MAX_COPIED {
                    return Err(OwnPatchError::TooLarge {
                        patch: self.patch.clone(),
                    });
                }
                value
            }
        };
        if path.count() + value.map_or(0, depth) > MAX_NESTING {
            return Err(OwnPatchError::TooDeep {
                patch: self.patch.clone(),
                object: self.key.to_string(),
            });
        }
        match value {
            Some(value) => self.differences(None, Some(value), &mut names),
            // The operation fails.
            None => self.may("changes", &names),
        }
    }

    /// Returns the value that an operation copies or moves, if it is there.
    fn taken<'o>(
        &self,
        does: &'static str,
        object: &'o Value,
        from: &Pointer,
    ) -> Result<Option<&'o Value>, OwnPatchError> {
        let names = names(object, from);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.may(does, &names)?;
        Ok(object.pointer(from.as_str()))
    }

    /// Checks what a strategic merge patch writes. The key of an element that it merges is not written.
    fn merge<'v>(&self, body: &'v Value, path: &mut Vec<&'v str>) -> Result<(), OwnPatchError> {
        match body {
            Value::Object(fields) if directive(fields) != Some("delete") => {
                let mut fields = fields.iter().filter(|(name, _)| *name != "$patch");
                let mut is_empty = true;
                fields.try_for_each(|(name, value)| {
                    is_empty = false;
                    self.merge_field(name, value, path)
                })?;
                if is_empty {
                    self.may("changes", path)?;
                }
                Ok(())
            }
            Value::Array(items) => match merge_key(items) {
                Some(key) => (items.iter()).try_for_each(|item| self.merge_item(item, key, path)),
                None => self.may("changes", path),
            },
            _ => self.may("changes", path),
        }
    }

    fn merge_field<'v>(
        &self,
        name: &'v str,
        value: &'v Value,
        path: &mut Vec<&'v str>,
    ) -> Result<(), OwnPatchError> {
        path.push(name);
        self.merge(value, path)?;
        path.pop();
        Ok(())
    }

    /// Checks an element of a list. One that has only its key adds it to the list, or deletes it.
    fn merge_item<'v>(
        &self,
        item: &'v Value,
        key: &str,
        path: &mut Vec<&'v str>,
    ) -> Result<(), OwnPatchError> {
        let fields = item.as_object().filter(|item| directive(item).is_none());
        let fields = fields.into_iter().flatten();
        let mut fields = fields.filter(|(name, _)| *name != key).peekable();
        if fields.peek().is_none() {
            return self.may("changes", path);
        }
        fields.try_for_each(|(name, value)| self.merge_field(name, value, path))
    }

    /// Checks all fields that differ. A list whose length differs is one field.
    fn differences<'v>(
        &self,
        before: Option<&'v Value>,
        after: Option<&'v Value>,
        path: &mut Vec<&'v str>,
    ) -> Result<(), OwnPatchError> {
        if before == after {
            return Ok(());
        }
        if let (Some(Value::Array(before)), Some(Value::Array(after))) = (before, after)
            && before.len() == after.len()
        {
            let mut items = before.iter().zip(after);
            return items
                .try_for_each(|(before, after)| self.differences(Some(before), Some(after), path));
        }
        let map = |value: Option<&'v Value>| value.and_then(Value::as_object);
        let (old, new) = (map(before), map(after));
        let is_leaf = |value: Option<&Value>| match value {
            Some(Value::Object(fields)) => fields.is_empty(),
            Some(_) => true,
            None => false,
        };
        if is_leaf(before) || is_leaf(after) {
            self.may("changes", path)?;
        }
        let is_old = |name: &str| old.is_some_and(|old| old.contains_key(name));
        let added = new.into_iter().flat_map(Map::keys);
        let added = added.filter(|name| !is_old(name));
        for name in old.into_iter().flat_map(Map::keys).chain(added) {
            let of = |map: Option<&'v Map<String, Value>>| map?.get(name);
            path.push(name);
            self.differences(of(old), of(new), path)?;
            path.pop();
        }
        Ok(())
    }

    /// Checks that a field is allowed.
    fn may(&self, does: &'static str, path: &[&str]) -> Result<(), OwnPatchError> {
        let allowed = &self.own.allowed;
        let covers = |field: &KindField| {
            field.hook == self.hook
                && field.kind == self.key.kind
                && path.len() >= field.path.len()
                && field.path.iter().zip(path).all(|(one, other)| one == other)
        };
        let is_allowed = allowed.iter().any(covers);
        if is_allowed && !is_reserved(path) {
            return Ok(());
        }
        let touched = Box::new(Touched {
            patch: self.patch.clone(),
            does,
            field: KindField {
                hook: self.hook,
                kind: self.key.kind.clone(),
                path: path.iter().map(|name| (*name).to_owned()).collect(),
            },
            object: self.key.to_string(),
        });
        if is_reserved(path) {
            return Err(OwnPatchError::Reserved(touched));
        }
        let allowed: Vec<String> = allowed.iter().map(KindField::to_string).collect();
        Err(OwnPatchError::Outside {
            touched,
            allowed: allowed.join(", "),
        })
    }

    fn misfit(&self, source: json_patch::PatchError) -> OwnPatchError {
        OwnPatchError::Misfit {
            patch: self.patch.clone(),
            object: self.key.to_string(),
            source: Box::new(source),
        }
    }
}

/// Returns whether no patch of an owner may change a field: of the metadata, only labels and annotations can be allowed,
/// except those of Helm and of the operator.
pub fn is_reserved(path: &[&str]) -> bool {
    match path {
        ["metadata", "labels" | "annotations"] => false,
        ["metadata", "labels" | "annotations", key, ..] => is_reserved_key(key),
        ["apiVersion" | "kind" | "metadata", ..] => true,
        _ => false,
    }
}

/// Returns the names of the fields that a pointer leads through. Elements of lists have none.
fn names(object: &Value, pointer: &Pointer) -> Vec<String> {
    let mut here = Some(object);
    let mut names = Vec::new();
    for token in pointer.tokens() {
        let token = token.decoded();
        here = match here {
            Some(Value::Array(items)) => token.parse().ok().and_then(|at: usize| items.get(at)),
            other => {
                let below = other.and_then(|value| value.get(&*token));
                names.push(token.into_owned());
                below
            }
        };
    }
    names
}

/// Returns the size of a value, about that of its text.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(size).sum::<usize>() + 2,
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| name.len() + 4 + size(value));
            fields.sum::<usize>() + 2
        }
        _ => 8,
    }
}

/// Returns the number of levels of a value; one without fields or elements has one.
pub fn depth(value: &Value) -> usize {
    let below = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(fields) => fields.values().map(depth).max(),
        _ => None,
    };
    1 + below.unwrap_or(0)
}

#[cfg(test)]
mod tests;

//! Ownership of fields across writes: the package `merge` of structured-merge-diff.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Writer;
use super::managed::{ManagerId, Owned};
use super::path::{Path, equal};
use super::schema::Ref;
use super::set::FieldSet;
use super::typed::{self, Comparison, Duplicates, Violations};
use super::types::TypeRef;

/// The owners of the fields of an object.
pub(super) type Owners = BTreeMap<ManagerId, Owned>;

/// A field that an applied object would take from its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) manager: ManagerId,
    pub(super) path: Path,
}

/// Reason why an object cannot be applied.
#[derive(Debug)]
pub(super) enum Refused {
    Conflicts(Vec<Conflict>),
    /// An object has not its type. The text comes before the violations.
    Violations(String, Violations),
    /// The kind has not the version of an owner.
    Version(String),
}

/// One write of an object, in a version of its kind.
pub(super) struct Updater<'a> {
    type_: &'a TypeRef,
    api_version: &'a str,
    /// Fields that this kind of write does not change, and that are not owned therefore.
    reset: &'a FieldSet,
    /// Whether changes of these fields leave managers in other versions alone, too. With the server this is so for
    /// the status only.
    resets_other_versions: bool,
}

impl<'a> Updater<'a> {
    pub(super) fn new(type_: &'a TypeRef, writer: &Writer<'a>, reset: &'a FieldSet) -> Self {
        Self {
            type_,
            api_version: writer.api_version,
            reset,
            resets_other_versions: writer.subresource == Some("status"),
        }
    }
}

impl Updater<'_> {
    /// Returns the owners after an update, in which `manager` takes all fields that it changes.
    pub(super) fn update(
        &self,
        live: &Value,
        new: &Value,
        owners: Owners,
        manager: &ManagerId,
    ) -> Result<Owners, Refused> {
        let owners = self.reconciled(live, owners)?;
        let (mut owners, compared) = self.transfer(live, new, owners, manager, true)?;
        let before = owners.remove(manager).map(|owned| owned.set);
        let set = before
            .unwrap_or_default()
            .difference(&compared.removed)
            .union(&compared.modified)
            .union(&compared.added)
            .without_subtrees(self.reset);
        if !set.is_empty() {
            owners.insert(manager.clone(), self.owned(set, false));
        }
        Ok(owners)
    }

    /// Merges an applied object. Returns the object, or `None` if it does not change, and the owners.
    pub(super) fn apply(
        &self,
        live: &Value,
        applied: &Value,
        owners: Owners,
        manager: &ManagerId,
        force: bool,
    ) -> Result<(Option<Value>, Owners), Refused> {
        let mut owners = self.reconciled(live, owners)?;
        let root = &self.type_.root;
        let merged =
            typed::merge(&self.type_.schema, root, live, applied).map_err(|violations| {
                Refused::Violations("failed to merge config: ".to_owned(), violations)
            })?;
        let last = owners.remove(manager);
        let set = self.field_set(root, applied).without_subtrees(self.reset);
        // Nothing goes if the manager applies all that it applied last.
        let drops = |last: &Owned| {
            !last.set.is_empty()
                && (last.api_version != self.api_version || !last.set.difference(&set).is_empty())
        };
        let last = last.filter(drops);
        owners.insert(manager.clone(), self.owned(set, true));
        let new = match last {
            Some(last) => self.pruned(merged, &owners, &last)?,
            None => merged,
        };
        let (owners, _) = self.transfer(live, &new, owners, manager, force)?;
        Ok(((!equal(live, &new)).then_some(new), owners))
    }

    fn owned(&self, set: FieldSet, applied: bool) -> Owned {
        Owned {
            set,
            api_version: self.api_version.to_owned(),
            applied,
        }
    }

    fn field_set(&self, root: &Ref, object: &Value) -> FieldSet {
        typed::field_set(&self.type_.schema, root, object)
    }

    fn named(&self, root: &Ref, set: &FieldSet) -> FieldSet {
        set.with_named_fields(&self.type_.schema, Some(root))
    }

    fn without(&self, root: &Ref, object: &Value, fields: &FieldSet) -> Value {
        typed::remove(&self.type_.schema, Some(root), object, fields)
    }

    /// Returns the type in a version, to which an object is converted from another. Versions of a definition differ in
    /// their schemas only. The server converts without the leave to have several items with one key, so that objects
    /// that have them cannot be written in another version than that of their owners.
    fn convert(
        &self,
        object: &Value,
        from: &str,
        to: &str,
        what: impl FnOnce() -> String,
    ) -> Result<&Ref, Refused> {
        let root = if to == self.api_version {
            &self.type_.root
        } else {
            let Some(version) = self.type_.versions.get(to) else {
                let what = what();
                let message = format!("request to convert CR to an invalid group/version: {to}");
                return Err(Refused::Version(format!("{what}{message}")));
            };
            &version.root
        };
        if from == to {
            return Ok(root);
        }
        let violations = typed::validate(&self.type_.schema, root, object, Duplicates::Forbidden);
        if violations.is_empty() {
            Ok(root)
        } else {
            Err(Refused::Violations(what(), violations))
        }
    }

    fn reconciled(&self, live: &Value, mut owners: Owners) -> Result<Owners, Refused> {
        for owned in owners.values_mut() {
            let root = self.convert(live, self.api_version, &owned.api_version, String::new)?;
            owned.set = typed::reconcile(&self.type_.schema, root, &owned.set);
        }
        Ok(owners)
    }

    fn compare(&self, root: &Ref, live: &Value, new: &Value) -> Result<Comparison, Refused> {
        typed::compare(&self.type_.schema, root, live, new).map_err(|violations| {
            Refused::Violations("failed to compare objects: ".to_owned(), violations)
        })
    }

    /// Returns the differences of two objects in the version of an owner, without what this write resets there.
    fn compare_in(&self, version: &str, live: &Value, new: &Value) -> Result<Comparison, Refused> {
        let convert = |object, what: &str| {
            self.convert(object, self.api_version, version, || {
                format!("failed to convert {what} object: ")
            })
        };
        convert(live, "old")?;
        let root = convert(new, "new")?;
        let compared = self.compare(root, live, new)?;
        let version = self.type_.versions.get(version);
        let resets =
            self.resets_other_versions && version.is_some_and(|version| version.has_status);
        Ok(if resets {
            compared.without(self.reset)
        } else {
            compared
        })
    }

    /// Takes from all other managers what changes and what goes.
    fn transfer(
        &self,
        live: &Value,
        new: &Value,
        mut owners: Owners,
        manager: &ManagerId,
        force: bool,
    ) -> Result<(Owners, Comparison), Refused> {
        let own = self
            .compare(&self.type_.root, live, new)?
            .without(self.reset);
        let mut others: BTreeMap<String, Comparison> = BTreeMap::new();
        let mut conflicts = Vec::new();
        for (other, owned) in owners.iter_mut().filter(|(other, _)| *other != manager) {
            let version = owned.api_version.as_str();
            if version != self.api_version && !others.contains_key(version) {
                let compared = self.compare_in(version, live, new)?;
                others.insert(version.to_owned(), compared);
            }
            let compared = others.get(version).unwrap_or(&own);
            let changed = compared.modified.union(&compared.added);
            let taken = owned.set.intersection(&changed);
            conflicts.extend(taken.paths().into_iter().map(|path| Conflict {
                manager: other.clone(),
                path,
            }));
            owned.set = owned.set.difference(&taken).difference(&compared.removed);
        }
        if !force && !conflicts.is_empty() {
            return Err(Refused::Conflicts(conflicts));
        }
        owners.retain(|_, owned| !owned.set.is_empty());
        Ok((owners, own))
    }

    /// Returns the merged object without what the manager applied last, does not apply now, and nobody else owns.
    fn pruned(&self, merged: Value, owners: &Owners, last: &Owned) -> Result<Value, Refused> {
        let version = last.api_version.as_str();
        let root = self.convert(&merged, self.api_version, version, || {
            "failed to prune fields: failed to convert merged object to last applied version: "
                .to_owned()
        })?;
        let last_set = self.named(root, &last.set);
        let mut pruned = self.without(root, &merged, &last_set);
        let mut owned: BTreeMap<&str, FieldSet> = BTreeMap::new();
        for owner in owners.values() {
            let set = owned.entry(&owner.api_version).or_default();
            *set = set.union(&owner.set);
        }
        // Owners in the version of the last write come first.
        let first = owned.remove_entry(version);
        let mut at = version;
        for (to, owned) in first.into_iter().chain(owned) {
            let what = |object: &str| {
                format!(
                    "failed to prune fields: failed add back owned items: failed to convert {object} object at version {to}: "
                )
            };
            self.convert(&merged, at, to, || what("merged"))?;
            let target = self.convert(&pruned, at, to, || what("pruned"))?;
            at = to;
            let kept = self
                .named(target, &self.field_set(target, &pruned))
                .union(&self.named(target, &owned));
            let all = self.named(target, &self.field_set(target, &merged));
            pruned = self.without(root, &merged, &all.difference(&kept));
        }
        // What the manager did not own before stays.
        self.convert(&pruned, at, version, || {
            "failed to prune fields: failed add back dangling items: failed to convert pruned object to last applied version: "
                .to_owned()
        })?;
        let kept = self.named(root, &self.field_set(root, &pruned));
        let all = self.named(root, &self.field_set(root, &merged));
        let gone = all.difference(&kept).intersection(&last_set);
        let result = if gone.is_empty() {
            merged
        } else {
            self.without(root, &merged, &gone)
        };
        self.convert(&result, version, self.api_version, || {
            "failed to prune fields: ".to_owned()
        })?;
        Ok(result)
    }
}

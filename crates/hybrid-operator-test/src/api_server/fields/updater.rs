//! Ownership of fields across writes: the package `merge` of structured-merge-diff.

use std::collections::BTreeMap;

use serde_json::Value;

use super::managed::{ManagerId, Owned};
use super::path::{Path, equal};
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

/// Why an object cannot be applied.
#[derive(Debug)]
pub(super) enum Refused {
    Conflicts(Vec<Conflict>),
    /// An object has not its type. The text comes before the violations.
    Violations(&'static str, Violations),
}

/// One write of an object, in a version of its kind.
pub(super) struct Updater<'a> {
    pub(super) type_: &'a TypeRef,
    pub(super) api_version: &'a str,
    /// Fields that this kind of write does not change, and that are not owned therefore.
    pub(super) reset: &'a FieldSet,
    /// Whether changes of these fields leave managers in other versions alone, too. With the server this is so for
    /// subresources only.
    pub(super) resets_all_versions: bool,
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
        let merged = typed::merge(&self.type_.schema, &self.type_.root, live, applied)
            .map_err(|violations| Refused::Violations("failed to merge config: ", violations))?;
        let last = owners.remove(manager);
        let set = self.field_set(applied).without_subtrees(self.reset);
        owners.insert(manager.clone(), self.owned(set, true));
        let new = match last {
            Some(last) if !last.set.is_empty() => self.pruned(merged, &owners, &last),
            _ => merged,
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

    fn field_set(&self, object: &Value) -> FieldSet {
        typed::field_set(&self.type_.schema, &self.type_.root, object)
    }

    fn named(&self, set: &FieldSet) -> FieldSet {
        set.with_named_fields(&self.type_.schema, Some(&self.type_.root))
    }

    fn without(&self, object: &Value, fields: &FieldSet) -> Value {
        typed::remove(&self.type_.schema, Some(&self.type_.root), object, fields)
    }

    /// Converts an object to the version of an owner. The server does it without the leave to have several items with one
    /// key, so that objects that have them cannot be written in another version than that of their owners.
    fn convert(&self, object: &Value, owned: &Owned, what: &'static str) -> Result<(), Refused> {
        if owned.api_version == self.api_version {
            return Ok(());
        }
        let (schema, root) = (&self.type_.schema, &self.type_.root);
        let violations = typed::validate(schema, root, object, Duplicates::Forbidden);
        if violations.is_empty() {
            Ok(())
        } else {
            Err(Refused::Violations(what, violations))
        }
    }

    fn reconciled(&self, live: &Value, mut owners: Owners) -> Result<Owners, Refused> {
        for owned in owners.values_mut() {
            self.convert(live, owned, "")?;
            owned.set = typed::reconcile(&self.type_.schema, &self.type_.root, &owned.set);
        }
        Ok(owners)
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
        let compared = typed::compare(&self.type_.schema, &self.type_.root, live, new)
            .map_err(|violations| Refused::Violations("failed to compare objects: ", violations))?;
        let visible = compared.without(self.reset);
        let mut conflicts = Vec::new();
        for (other, owned) in owners.iter_mut().filter(|(other, _)| *other != manager) {
            self.convert(new, owned, "failed to convert new object: ")?;
            let resets = self.resets_all_versions || owned.api_version == self.api_version;
            let visible = if resets { &visible } else { &compared };
            let changed = visible.modified.union(&visible.added);
            let taken = owned.set.intersection(&changed);
            conflicts.extend(taken.paths().into_iter().map(|path| Conflict {
                manager: other.clone(),
                path,
            }));
            owned.set = owned.set.difference(&taken).difference(&visible.removed);
        }
        if !force && !conflicts.is_empty() {
            return Err(Refused::Conflicts(conflicts));
        }
        owners.retain(|_, owned| !owned.set.is_empty());
        Ok((owners, visible))
    }

    /// Returns the merged object without what the manager applied last, does not apply now, and nobody else owns.
    fn pruned(&self, merged: Value, owners: &Owners, last: &Owned) -> Value {
        let last_set = self.named(&last.set);
        let merged_set = self.named(&self.field_set(&merged));
        let mut pruned = self.without(&merged, &last_set);
        let mut owned: BTreeMap<&str, FieldSet> = BTreeMap::new();
        for owner in owners.values() {
            let set = owned.entry(&owner.api_version).or_default();
            *set = set.union(&owner.set);
        }
        // Owners in the version of the last write come first.
        let first = owned.remove(last.api_version.as_str());
        for owned in first.into_iter().chain(owned.into_values()) {
            let kept = self.named(&self.field_set(&pruned));
            let kept = kept.union(&self.named(&owned));
            pruned = self.without(&merged, &merged_set.difference(&kept));
        }
        // What the manager did not own before stays.
        let kept = self.named(&self.field_set(&pruned));
        let gone = merged_set.difference(&kept).intersection(&last_set);
        if gone.is_empty() {
            return merged;
        }
        self.without(&merged, &gone)
    }
}

//! `Table`: a map with Go's reference semantics, used while values are coalesced.
//!
//! Helm coalesces in place, and charts come to share tables: a write to a nested table of `global`
//! by one is visible to all others. Tables here are therefore shared as well. Tables that are not
//! written to remain the original tree.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use go_template::{Str, Tree, TreeMap, Type};

/// A table; clones are handles to the same table.
#[derive(Clone, Debug)]
pub(crate) struct Table(Rc<RefCell<State>>);

#[derive(Debug)]
enum State {
    Frozen(Arc<TreeMap>),
    Changed(Changed),
}

/// A tree with the entries that were set, or returned for writing; removed entries are `None`.
#[derive(Clone, Debug)]
struct Changed {
    base: Arc<TreeMap>,
    over: BTreeMap<Str, Option<TableValue>>,
}

static EMPTY: LazyLock<Arc<TreeMap>> = LazyLock::new(|| Arc::new(TreeMap::new(Type::MAP, [])));

#[derive(Clone, Debug)]
pub(crate) enum TableValue {
    Table(Table),
    /// Any other value.
    Leaf(Tree),
}

impl TableValue {
    /// Wraps a value of a tree without copying it.
    pub(crate) fn of(tree: &Tree) -> Self {
        match tree {
            Tree::Map(map) => Self::Table(Table::of(map)),
            other => Self::Leaf(other.clone()),
        }
    }

    /// Returns whether it is null.
    pub(crate) fn is_nil(&self) -> bool {
        matches!(self, Self::Leaf(Tree::Nil))
    }

    /// Returns the value as a tree.
    pub(crate) fn freeze(&self) -> Tree {
        match self {
            Self::Table(table) => Tree::Map(table.freeze()),
            Self::Leaf(tree) => tree.clone(),
        }
    }
}

impl Changed {
    fn of(base: &Arc<TreeMap>) -> Self {
        Self {
            base: Arc::clone(base),
            over: BTreeMap::new(),
        }
    }

    fn get(&mut self, key: &Str) -> Option<TableValue> {
        if let Some(node) = self.over.get(key) {
            return node.clone();
        }
        let node = TableValue::of(self.base.get(key.as_bytes())?);
        if let TableValue::Table(_) = &node {
            self.over.insert(key.clone(), Some(node.clone()));
        }
        Some(node)
    }

    /// Returns the entries of the tree that are not overridden, and the overriding ones.
    fn parts(
        &self,
    ) -> (
        impl Iterator<Item = (&Str, &Tree)>,
        impl Iterator<Item = (&Str, &TableValue)>,
    ) {
        let base = self
            .base
            .iter()
            .filter(|(key, _)| self.over.is_empty() || !self.over.contains_key(*key));
        let over = self.over.iter();
        (
            base,
            over.filter_map(|(key, node)| Some((key, node.as_ref()?))),
        )
    }

    fn freeze(&self) -> Arc<TreeMap> {
        let changes = self.over.iter().filter_map(|(key, node)| {
            let before = self.base.get(key.as_bytes());
            let now = node.as_ref().map(TableValue::freeze);
            let same = match (&now, before) {
                (Some(Tree::Map(now)), Some(Tree::Map(before))) => Arc::ptr_eq(now, before),
                (now, before) => now.is_none() && before.is_none(),
            };
            (!same).then(|| (key.clone(), now))
        });
        let mut changes = changes.peekable();
        if changes.peek().is_none() {
            return Arc::clone(&self.base);
        }
        Arc::new(self.base.with(changes))
    }
}

impl Table {
    /// Creates an empty table.
    pub(crate) fn new() -> Self {
        Self::of(&EMPTY)
    }

    /// Creates a table that reads this tree until it is written to.
    pub(crate) fn of(tree: &Arc<TreeMap>) -> Self {
        Self(Rc::new(RefCell::new(State::Frozen(Arc::clone(tree)))))
    }

    /// Returns the tree that this table reads, unless it was written to.
    pub(crate) fn as_tree(&self) -> Option<Arc<TreeMap>> {
        match &*self.0.borrow() {
            State::Frozen(tree) => Some(Arc::clone(tree)),
            State::Changed(_) => None,
        }
    }

    /// Replaces all entries by those of a tree.
    pub(crate) fn replace(&self, tree: Arc<TreeMap>) {
        *self.0.borrow_mut() = State::Frozen(tree);
    }

    /// Puts this table's entries on top of a tree: missing keys are read from there. Returns the
    /// previous entries.
    pub(crate) fn lay_over(&self, tree: &Arc<TreeMap>) -> Vec<(Str, TableValue)> {
        self.change(|changed| {
            let (base, over) = changed.parts();
            let base = base.map(|(key, value)| (key.clone(), TableValue::of(value)));
            let over = over.map(|(key, node)| (key.clone(), node.clone()));
            let own: Vec<_> = base.chain(over).collect();
            let set = own.iter().cloned().map(|(key, node)| (key, Some(node)));
            *changed = Changed {
                base: Arc::clone(tree),
                over: set.collect(),
            };
            own
        })
    }

    /// Runs `change` on this table, detaching it from its tree.
    fn change<T>(&self, change: impl FnOnce(&mut Changed) -> T) -> T {
        let mut state = self.0.borrow_mut();
        if let State::Frozen(tree) = &*state {
            *state = State::Changed(Changed::of(tree));
        }
        match &mut *state {
            State::Changed(changed) => change(changed),
            // The state was made `Changed` above.
            State::Frozen(tree) => change(&mut Changed::of(tree)),
        }
    }

    /// Returns whether it has no keys.
    pub(crate) fn is_empty(&self) -> bool {
        match &*self.0.borrow() {
            State::Frozen(tree) => tree.is_empty(),
            State::Changed(changed) => {
                let (mut base, mut over) = changed.parts();
                base.next().is_none() && over.next().is_none()
            }
        }
    }

    /// Returns the value of `key`. Writing to a returned table changes this table.
    pub(crate) fn get(&self, key: &Str) -> Option<TableValue> {
        if let State::Frozen(tree) = &*self.0.borrow() {
            match tree.get(key.as_bytes()) {
                None => return None,
                Some(Tree::Map(_)) => {}
                Some(leaf) => return Some(TableValue::Leaf(leaf.clone())),
            }
        }
        self.change(|changed| changed.get(key))
    }

    /// Returns the table at `key`.
    pub(crate) fn table(&self, key: &Str) -> Option<Self> {
        match self.get(key)? {
            TableValue::Table(table) => Some(table),
            TableValue::Leaf(_) => None,
        }
    }

    /// Returns the table at the path `keys`.
    pub(crate) fn path<'k>(&self, keys: impl IntoIterator<Item = &'k str>) -> Option<Self> {
        keys.into_iter()
            .try_fold(self.clone(), |table, key| table.table(&Str::from(key)))
    }

    /// Sets `key`.
    pub(crate) fn insert(&self, key: Str, value: TableValue) {
        self.change(|changed| changed.over.insert(key, Some(value)));
    }

    /// Removes `key`.
    pub(crate) fn remove(&self, key: &Str) {
        self.change(|changed| changed.over.insert(key.clone(), None));
    }

    /// Returns the current keys.
    pub(crate) fn keys(&self) -> Vec<Str> {
        match &*self.0.borrow() {
            State::Frozen(tree) => tree.iter().map(|(key, _)| key.clone()).collect(),
            State::Changed(changed) => {
                let (base, over) = changed.parts();
                let base = base.map(|(key, _)| key);
                base.chain(over.map(|(key, _)| key)).cloned().collect()
            }
        }
    }

    /// Returns the keys whose values are null.
    pub(crate) fn nil_keys(&self) -> Vec<Str> {
        let is_nil = |tree: &Tree| matches!(tree, Tree::Nil);
        match &*self.0.borrow() {
            State::Frozen(tree) => {
                let nil = tree.iter().filter(|(_, value)| is_nil(value));
                nil.map(|(key, _)| key.clone()).collect()
            }
            State::Changed(changed) => {
                let (base, over) = changed.parts();
                let base = base.filter(|(_, value)| is_nil(value)).map(|(key, _)| key);
                let over = over.filter(|(_, node)| node.is_nil()).map(|(key, _)| key);
                base.chain(over).cloned().collect()
            }
        }
    }

    /// Returns a copy that shares nested tables.
    pub(crate) fn shallow_copy(&self) -> Self {
        let copy = self.change(|changed| {
            let below = changed.base.iter();
            let tables = below.filter(|(_, value)| matches!(value, Tree::Map(_)));
            let keys: Vec<Str> = tables.map(|(key, _)| key.clone()).collect();
            for key in &keys {
                changed.get(key);
            }
            changed.clone()
        });
        Self(Rc::new(RefCell::new(State::Changed(copy))))
    }

    /// Returns the table as a tree, which this table then reads as well, so that shared tables
    /// become shared trees.
    pub(crate) fn freeze(&self) -> Arc<TreeMap> {
        let tree = match &*self.0.borrow() {
            State::Frozen(tree) => return Arc::clone(tree),
            State::Changed(changed) => changed.freeze(),
        };
        *self.0.borrow_mut() = State::Frozen(Arc::clone(&tree));
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::tree;

    fn table(json: &str) -> Table {
        let values = serde_json::from_str(json).unwrap();
        Table::of(&Arc::new(tree::from_map(&values)))
    }

    #[test]
    fn handles_share_changes_and_unchanged_trees_are_reused() {
        let root = table(r#"{"a":{"b":{"c":1}},"untouched":{"x":1}}"#);
        let before = root.freeze();
        let b = root.path(["a", "b"]).unwrap();
        b.insert("d".into(), TableValue::Leaf(Tree::Nil));
        let copy = root.shallow_copy();
        copy.insert("e".into(), TableValue::Leaf(Tree::Bool(true)));
        b.remove(&"c".into());
        let frozen = root.freeze();
        assert_eq!(
            serde_json::Value::Object(tree::to_map(&frozen)).to_string(),
            r#"{"a":{"b":{"d":null}},"untouched":{"x":1}}"#
        );
        let (Some(Tree::Map(old)), Some(Tree::Map(new))) =
            (before.get("untouched"), frozen.get("untouched"))
        else {
            panic!()
        };
        assert!(Arc::ptr_eq(old, new));
    }

    #[test]
    fn shared_tables_freeze_to_one_tree() {
        let root = Table::new();
        let shared = table(r#"{"x":1}"#);
        shared.insert("y".into(), TableValue::Leaf(Tree::Nil));
        root.insert("a".into(), TableValue::Table(shared.clone()));
        root.insert("b".into(), TableValue::Table(shared));
        let frozen = root.freeze();
        let (Some(Tree::Map(a)), Some(Tree::Map(b))) = (frozen.get("a"), frozen.get("b")) else {
            panic!()
        };
        assert!(Arc::ptr_eq(a, b));
        assert_eq!(root.nil_keys(), Vec::<Str>::new());
    }
}

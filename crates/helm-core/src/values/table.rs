//! `Table`: a map with Go's reference semantics, for as long as values are coalesced.
//!
//! Helm coalesces in place, and charts come to share tables: what one writes to a table within a
//! table of `global` shows in all others. So tables are shared here too. What nobody writes to
//! stays the tree that it was.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use go_template::{Str, Tree, TreeMap, Type};

/// A table; clones are handles to the same one.
#[derive(Clone, Debug)]
pub(crate) struct Table(Rc<RefCell<State>>);

#[derive(Debug)]
enum State {
    Frozen(Arc<TreeMap>),
    Owned(BTreeMap<Str, Node>),
}

/// A value in a table.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// A table.
    Table(Table),
    /// Anything else.
    Leaf(Tree),
}

impl Node {
    /// A value of a tree, of which nothing is copied.
    pub(crate) fn of(tree: &Tree) -> Self {
        match tree {
            Tree::Map(map) => Self::Table(Table::of(map)),
            other => Self::Leaf(other.clone()),
        }
    }

    /// Whether it is null.
    pub(crate) fn is_nil(&self) -> bool {
        matches!(self, Self::Leaf(Tree::Nil))
    }

    /// The value as a tree.
    pub(crate) fn freeze(&self) -> Tree {
        match self {
            Self::Table(table) => Tree::Map(table.freeze()),
            Self::Leaf(tree) => tree.clone(),
        }
    }
}

impl Table {
    /// An empty table.
    pub(crate) fn new() -> Self {
        Self(Rc::new(RefCell::new(State::Owned(BTreeMap::new()))))
    }

    /// A table that is this tree until it is written to.
    pub(crate) fn of(tree: &Arc<TreeMap>) -> Self {
        Self(Rc::new(RefCell::new(State::Frozen(Arc::clone(tree)))))
    }

    /// Runs `change` on the entries, which become this table's own.
    fn own<T>(&self, change: impl FnOnce(&mut BTreeMap<Str, Node>) -> T) -> T {
        let mut state = self.0.borrow_mut();
        if let State::Frozen(tree) = &*state {
            let entries = tree
                .iter()
                .map(|(key, value)| (key.clone(), Node::of(value)));
            *state = State::Owned(entries.collect());
        }
        match &mut *state {
            State::Owned(entries) => change(entries),
            // The branch above leaves owned entries.
            State::Frozen(_) => change(&mut BTreeMap::new()),
        }
    }

    /// The value of `key`. A table is the one that this table holds: writing to it shows here.
    pub(crate) fn get(&self, key: &Str) -> Option<Node> {
        match &*self.0.borrow() {
            State::Owned(entries) => return entries.get(key).cloned(),
            State::Frozen(tree) => match tree.get(key.as_bytes()) {
                None => return None,
                Some(Tree::Map(_)) => {}
                Some(leaf) => return Some(Node::Leaf(leaf.clone())),
            },
        }
        self.own(|entries| entries.get(key).cloned())
    }

    /// The table at `key`.
    pub(crate) fn table(&self, key: &Str) -> Option<Self> {
        match self.get(key)? {
            Node::Table(table) => Some(table),
            Node::Leaf(_) => None,
        }
    }

    /// The table below all `keys`.
    pub(crate) fn path<'k>(&self, keys: impl IntoIterator<Item = &'k str>) -> Option<Self> {
        keys.into_iter()
            .try_fold(self.clone(), |table, key| table.table(&Str::from(key)))
    }

    /// Sets `key`.
    pub(crate) fn insert(&self, key: Str, value: Node) {
        self.own(|entries| entries.insert(key, value));
    }

    /// Removes `key`.
    pub(crate) fn remove(&self, key: &Str) {
        self.own(|entries| entries.remove(key));
    }

    /// The keys as they are now.
    pub(crate) fn keys(&self) -> Vec<Str> {
        match &*self.0.borrow() {
            State::Owned(entries) => entries.keys().cloned().collect(),
            State::Frozen(tree) => tree.iter().map(|(key, _)| key.clone()).collect(),
        }
    }

    /// The keys whose values are null.
    pub(crate) fn nil_keys(&self) -> Vec<Str> {
        match &*self.0.borrow() {
            State::Owned(entries) => {
                let nil = entries.iter().filter(|(_, value)| value.is_nil());
                nil.map(|(key, _)| key.clone()).collect()
            }
            State::Frozen(tree) => {
                let nil = tree.iter().filter(|(_, value)| matches!(value, Tree::Nil));
                nil.map(|(key, _)| key.clone()).collect()
            }
        }
    }

    /// A table with the same values: tables below are shared.
    pub(crate) fn shallow_copy(&self) -> Self {
        let entries = self.own(|entries| entries.clone());
        Self(Rc::new(RefCell::new(State::Owned(entries))))
    }

    /// The table as a tree, which this table then reads too: tables that were shared become trees
    /// that are shared.
    pub(crate) fn freeze(&self) -> Arc<TreeMap> {
        let tree = match &*self.0.borrow() {
            State::Frozen(tree) => return Arc::clone(tree),
            State::Owned(entries) => {
                let entries = entries
                    .iter()
                    .map(|(key, value)| (key.clone(), value.freeze()));
                Arc::new(TreeMap::new(Type::MAP, entries))
            }
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
    fn handles_share_and_untouched_trees_stay() {
        let root = table(r#"{"a":{"b":{"c":1}},"untouched":{"x":1}}"#);
        let before = root.freeze();
        let b = root.path(["a", "b"]).unwrap();
        b.insert("d".into(), Node::Leaf(Tree::Nil));
        let copy = root.shallow_copy();
        copy.insert("e".into(), Node::Leaf(Tree::Bool(true)));
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
        shared.insert("y".into(), Node::Leaf(Tree::Nil));
        root.insert("a".into(), Node::Table(shared.clone()));
        root.insert("b".into(), Node::Table(shared));
        let frozen = root.freeze();
        let (Some(Tree::Map(a)), Some(Tree::Map(b))) = (frozen.get("a"), frozen.get("b")) else {
            panic!()
        };
        assert!(Arc::ptr_eq(a, b));
        assert_eq!(root.nil_keys(), Vec::<Str>::new());
    }
}

//! `Map`: Go's map with string keys; handles share one map, as in Go.

use std::cell::{Cell, Ref, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::changes;
use super::deep_drop;
use super::table::{Entry, Table, hash};
use super::tree::{Tree, TreeMap};
use super::{Name, Str, Type, Value};

/// A map from strings to values with Go's reference semantics: a clone is another handle to the
/// same map, and changes are visible through all handles.
///
/// A map made from a [`Tree`](super::Tree) reads the tree in place. Nested maps are wrapped when
/// they are first accessed, and the entries are copied when the map is first written to.
///
/// ```
/// use go_template::{Map, Value};
/// let map = Map::new();
/// let alias = map.clone();
/// map.insert("port", Value::Int(80));
/// assert!(matches!(alias.get("port"), Some(Value::Int(80))));
/// ```
#[derive(Clone)]
pub struct Map {
    pub(super) cell: Rc<MapCell>,
    /// Handles to one map can have different types, as after a conversion in Go.
    ty: Type,
}

pub(super) struct MapCell {
    state: RefCell<State>,
    /// Whether the content is not the same for each template.
    varies: Cell<bool>,
    /// Whether a remembered text may depend on the map. Those that read a tree are always watched.
    watched: Cell<bool>,
}

pub(super) enum State {
    Frozen {
        tree: Arc<TreeMap>,
        nested: Vec<Value>,
    },
    Owned(Table<Value>),
}

/// A reference to a value in a map, or in the tree that a map reads.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// In a map.
    Value(&'a Value),
    /// In a tree.
    Tree(&'a Tree),
}

impl Map {
    /// Creates an empty `map[string]interface {}`.
    pub fn new() -> Self {
        Self::with_type(Type::MAP)
    }

    /// Creates an empty map of the given type, which must be a map with string keys.
    pub fn with_type(ty: Type) -> Self {
        Self::owned(ty, Table::default())
    }

    /// Creates an empty `map[string]interface {}` with room for `capacity` entries.
    pub fn with_capacity(capacity: usize) -> Self {
        Self::owned(Type::MAP, Table::with_capacity(capacity))
    }

    /// Creates a map of the given type with these entries; a later key replaces an earlier one.
    pub fn from_entries<K: Into<Str>>(
        ty: Type,
        entries: impl IntoIterator<Item = (K, Value)>,
    ) -> Self {
        let entries = entries.into_iter();
        let table = entries.map(|(key, value)| (key.into(), value)).collect();
        Self::owned(ty, table)
    }

    /// Creates a map that reads `tree` until it is written to.
    pub fn from_tree(tree: Arc<TreeMap>) -> Self {
        let ty = tree.go_type();
        let state = State::Frozen {
            tree,
            nested: Vec::new(),
        };
        Self::with_state(ty, state)
    }

    fn owned(ty: Type, table: Table<Value>) -> Self {
        Self::with_state(ty, State::Owned(table))
    }

    fn with_state(ty: Type, state: State) -> Self {
        Self {
            cell: Rc::new(MapCell {
                watched: Cell::new(matches!(state, State::Frozen { .. })),
                varies: Cell::new(false),
                state: RefCell::new(state),
            }),
            ty,
        }
    }

    #[inline]
    pub(super) fn read(&self) -> Ref<'_, State> {
        if self.cell.varies.get() {
            changes::vary();
        }
        self.cell.state.borrow()
    }

    /// Returns the Go type.
    pub fn go_type(&self) -> Type {
        self.ty
    }

    /// Returns a handle to the same map with another type.
    #[must_use]
    pub fn as_type(&self, ty: Type) -> Self {
        Self {
            cell: Rc::clone(&self.cell),
            ty,
        }
    }

    /// Returns whether both are handles to the same map.
    pub fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.cell, &other.cell)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        match &*self.read() {
            State::Frozen { tree, .. } => tree.len(),
            State::Owned(table) => table.len(),
        }
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Value> {
        self.get_name(&Name::new(key.as_ref()))
    }

    /// Like [`Map::get`], with a precomputed hash of the key.
    pub fn get_name(&self, name: &Name) -> Option<Value> {
        let mut value = Value::Invalid;
        self.find(name, &mut value).then_some(value)
    }

    /// Writes the value of `name` to `to`; returns `false` if there is none.
    #[inline]
    pub(crate) fn find(&self, name: &Name, to: &mut Value) -> bool {
        let position = match &*self.read() {
            State::Owned(table) => {
                let position = table.find_name(name);
                let entry = position.and_then(|position| table.entry(position));
                if let Some(entry) = entry {
                    to.put_copy(&entry.value);
                }
                return entry.is_some();
            }
            State::Frozen { tree, nested } => {
                let Some(position) = tree.table().find_name(name) else {
                    return false;
                };
                let Some(entry) = tree.table().entry(position) else {
                    return false;
                };
                if entry.value.write_leaf(to) {
                    return true;
                }
                match nested.get(position) {
                    None | Some(Value::Invalid) => position,
                    Some(value) => {
                        to.put_copy(value);
                        return true;
                    }
                }
            }
        };
        // First access to a nested value.
        if let Some((_, value)) = self.entry(position) {
            to.put(value);
        }
        true
    }

    fn position(&self, hash: u32, key: &[u8]) -> Option<usize> {
        match &*self.read() {
            State::Owned(table) => table.find(hash, key),
            State::Frozen { tree, .. } => tree.table().find(hash, key),
        }
    }

    /// Returns whether there is an entry for `key`.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> bool {
        let key = key.as_ref();
        self.position(hash(key), key).is_some()
    }

    /// Sets `key` and returns its previous value. All handles see the change.
    pub fn insert(&self, key: impl Into<Str>, value: Value) -> Option<Value> {
        if value.is_container() {
            deep_drop::track(self);
            if self.cell.watched.get() {
                value.watch();
            }
        }
        let key = key.into();
        self.change(|table| table.insert(key, value))
    }

    /// Sets `key` to a map that is another one for each template that is executed. Texts that depend on the
    /// content of that map are not remembered ([`Session::remembering`](crate::Session::remembering)), and
    /// those that do not stay.
    pub fn insert_varying(&self, key: impl Into<Str>, map: Self) {
        map.cell.varies.set(true);
        let key = key.into();
        self.change_unseen(|table| table.insert(key, Value::Map(map)));
    }

    /// Removes `key` and returns its value. All handles see the change.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Option<Value> {
        self.change(|table| table.remove(key.as_ref()))
    }

    /// Removes all entries.
    pub fn clear(&self) {
        let old = self.change(std::mem::take);
        deep_drop::drop_deep(old.into_entries().into_iter().map(|entry| entry.value));
    }

    fn change<T>(&self, change: impl FnOnce(&mut Table<Value>) -> T) -> T {
        if self.cell.watched.get() || changes::watches_all() {
            changes::write();
        }
        self.change_unseen(change)
    }

    fn change_unseen<T>(&self, change: impl FnOnce(&mut Table<Value>) -> T) -> T {
        let mut state = self.cell.state.borrow_mut();
        if let State::Frozen { tree, nested } = &mut *state {
            let table =
                tree.table()
                    .with_values(|position, value| match nested.get_mut(position) {
                        None | Some(Value::Invalid) => value.wrap(),
                        Some(value) => std::mem::take(value),
                    });
            *state = State::Owned(table);
        }
        match &mut *state {
            State::Owned(table) => change(table),
            // The state was made `Owned` above.
            State::Frozen { .. } => change(&mut Table::default()),
        }
    }

    /// Returns the entry at `position` of the key order established by [`Map::iter`].
    fn entry(&self, position: usize) -> Option<(Str, Value)> {
        if self.cell.varies.get() {
            changes::vary();
        }
        let mut state = self.cell.state.borrow_mut();
        match &mut *state {
            State::Owned(table) => table
                .entry(position)
                .map(|entry| (entry.key.clone(), entry.value.clone())),
            State::Frozen { tree, nested } => {
                let entry = tree.table().entry(position)?;
                let value = match (entry.value.leaf(), nested.get(position)) {
                    (Some(leaf), _) => leaf,
                    (None, Some(value)) if !matches!(value, Value::Invalid) => value.clone(),
                    _ => {
                        nested.resize(tree.len(), Value::Invalid);
                        let wrapped = entry.value.wrap();
                        if let Some(slot) = nested.get_mut(position) {
                            slot.clone_from(&wrapped);
                        }
                        wrapped
                    }
                };
                Some((entry.key.clone(), value))
            }
        }
    }

    /// Iterates over the entries in key order, as Go prints and ranges. If the map changes
    /// meanwhile, remaining entries are yielded in their current state. [`Map::entries`] takes a
    /// snapshot.
    pub fn iter(&self) -> Iter<'_> {
        self.sort();
        Iter { map: self, next: 0 }
    }

    /// Sorts the entries by key. A map that is being read is sorted already, as when it contains
    /// itself.
    fn sort(&self) {
        let is_sorted = match &*self.read() {
            State::Owned(table) => table.is_sorted(),
            State::Frozen { .. } => true,
        };
        if !is_sorted && let State::Owned(table) = &mut *self.cell.state.borrow_mut() {
            table.sort();
        }
    }

    /// Passes the entries in key order to `read`, which must not modify any map. Nothing is copied,
    /// and values in a tree stay there.
    ///
    /// ```
    /// use go_template::{Map, Value};
    /// let map: Map = [("b", Value::Int(2)), ("a", Value::Int(1))].into_iter().collect();
    /// let keys = map.with_entries(|entries| entries.map(|(key, _)| key.clone()).collect::<Vec<_>>());
    /// assert_eq!(keys, ["a", "b"].map(go_template::Str::from));
    /// ```
    pub fn with_entries<T>(
        &self,
        read: impl FnOnce(&mut dyn Iterator<Item = (&Str, Seen<'_>)>) -> T,
    ) -> T {
        self.sort();
        match &*self.read() {
            State::Owned(table) => {
                let entries = table.entries().iter();
                read(&mut entries.map(|entry| (&entry.key, Seen::Value(&entry.value))))
            }
            State::Frozen { tree, nested } => {
                let entries = tree.table().entries().iter().enumerate();
                read(&mut entries.map(|(position, entry)| {
                    let seen = match nested.get(position) {
                        None | Some(Value::Invalid) => Seen::Tree(&entry.value),
                        Some(value) => Seen::Value(value),
                    };
                    (&entry.key, seen)
                }))
            }
        }
    }

    /// Returns a copy of the entries in key order.
    pub fn entries(&self) -> Vec<(Str, Value)> {
        self.iter().collect()
    }

    /// Returns the keys in order.
    pub fn keys(&self) -> Vec<Str> {
        self.iter().map(|(key, _)| key).collect()
    }

    /// Makes changes of this map, and of the maps in it, count as writes.
    pub(super) fn watch(&self, left: &mut usize) {
        if self.cell.watched.replace(true) {
            return;
        }
        if let State::Owned(table) = &*self.cell.state.borrow() {
            let entries = table.entries().iter();
            entries.for_each(|entry| entry.value.watch_some(left));
        }
    }

    /// Passes the entries of a map with at most `most` that reads no tree to `read`, in their order.
    pub(crate) fn with_few<T>(
        &self,
        most: usize,
        read: impl FnOnce(&[Entry<Value>]) -> T,
    ) -> Option<T> {
        match &*self.read() {
            State::Owned(table) if table.len() <= most => Some(read(table.entries())),
            _ => None,
        }
    }

    pub(crate) fn downgrade(&self) -> WeakMap {
        WeakMap(Rc::downgrade(&self.cell), self.ty)
    }

    /// Returns the number of handles.
    pub(crate) fn handles(&self) -> usize {
        Rc::strong_count(&self.cell)
    }

    /// Returns the address, for `%p`.
    pub(crate) fn address(&self) -> usize {
        Rc::as_ptr(&self.cell).addr()
    }
}

impl Default for Map {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for MapCell {
    fn drop(&mut self) {
        match self.state.get_mut() {
            State::Owned(table) => {
                let count = table.len();
                let mut entries = table.entries().iter();
                if entries.any(|entry| entry.value.has_at_most(count)) {
                    let taken = std::mem::take(table).into_entries();
                    deep_drop::drop_deep(taken.into_iter().map(|entry| entry.value));
                }
            }
            State::Frozen { nested, .. } => {
                let count = nested.len();
                if nested.iter().any(|value| value.has_at_most(count)) {
                    deep_drop::drop_deep(std::mem::take(nested).into_iter());
                }
            }
        }
    }
}

/// A weak handle to a map.
pub(crate) struct WeakMap(Weak<MapCell>, Type);

impl WeakMap {
    pub(crate) fn upgrade(&self) -> Option<Map> {
        let cell = self.0.upgrade()?;
        Some(Map { cell, ty: self.1 })
    }
}

/// An iterator over the entries of a map in key order.
pub struct Iter<'a> {
    map: &'a Map,
    next: usize,
}

impl Iterator for Iter<'_> {
    type Item = (Str, Value);

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.map.entry(self.next)?;
        self.next += 1;
        Some(entry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.map.len().saturating_sub(self.next), None)
    }
}

impl<'a> IntoIterator for &'a Map {
    type Item = (Str, Value);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<K: Into<Str>> FromIterator<(K, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, Value)>>(entries: I) -> Self {
        Self::from_entries(Type::MAP, entries)
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Maps can contain themselves, so the entries are not printed.
        write!(f, "{}({} entries)", self.ty, self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Arc<TreeMap> {
        let inner = TreeMap::new(Type::MAP, [(Str::from("x"), Tree::Int(1))]);
        Arc::new(TreeMap::new(
            Type::MAP,
            [
                (Str::from("b"), Tree::Map(Arc::new(inner))),
                (Str::from("a"), Tree::Str(Str::from("s"))),
            ],
        ))
    }

    fn nested(map: &Map) -> Map {
        map.get("b").unwrap().as_map().unwrap().clone()
    }

    #[test]
    fn writing_to_a_map_over_a_tree_does_not_change_the_tree() {
        let shared = tree();
        let map = Map::from_tree(Arc::clone(&shared));
        let inner = nested(&map);
        inner.insert("x", Value::Int(2));
        map.insert("c", Value::Bool(true));
        let again = nested(&map);
        assert!(again.is_same(&inner));
        assert!(matches!(again.get("x"), Some(Value::Int(2))));
        assert_eq!(map.keys(), ["a", "b", "c"].map(Str::from));
        let fresh = Map::from_tree(shared);
        assert!(matches!(nested(&fresh).get("x"), Some(Value::Int(1))));
    }

    #[test]
    fn iteration_is_in_key_order() {
        let entries = [("b", 1), ("a", 2), ("c", 3)].map(|(k, v)| (k, Value::Int(v)));
        let map: Map = entries.into_iter().collect();
        assert_eq!(map.keys(), ["a", "b", "c"].map(Str::from));
        map.remove("b");
        assert_eq!(map.keys(), ["a", "c"].map(Str::from));
        assert!(map.get("b").is_none());
    }
}

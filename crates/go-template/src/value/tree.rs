//! `Tree`: immutable values that threads share; renders read them in place.

use std::sync::Arc;

use bounded::memory::Held;

use super::table::Table;
use super::{List, Map, Str, Type, Value};

/// An immutable value, `Send` and `Sync`. Build one from a values file once, then create a
/// [`Value`] from it for every render: nothing is copied until a template writes to a map.
///
/// ```
/// use go_template::{Str, Tree, TreeMap, Type, Value};
/// let image = TreeMap::new(Type::MAP, [("tag".into(), Tree::Str("1.2".into()))]);
/// let values = Tree::from(TreeMap::new(Type::MAP, [("image".into(), Tree::from(image))]));
/// let Value::Map(map) = Value::from(&values) else { unreachable!() };
/// assert!(map.get("image").is_some());
/// ```
#[derive(Clone, Debug, Default)]
pub enum Tree {
    /// A nil interface.
    #[default]
    Nil,
    /// A nil map or slice of a type.
    NilOf(Type),
    /// A `bool`.
    Bool(bool),
    /// An `int`.
    Int(i64),
    /// An `int64`.
    Int64(i64),
    /// A `float64`, the type of every number in a values file.
    Float(f64),
    /// A `string`.
    Str(Str),
    /// A `[]uint8`.
    Bytes(Arc<Str>),
    /// A slice with its own type.
    List(Arc<TreeList>),
    /// A map with its own type.
    Map(Arc<TreeMap>),
}

impl Tree {
    /// Returns the value, if it needs no allocation.
    pub(crate) fn leaf(&self) -> Option<Value> {
        let mut value = Value::Nil;
        self.write_leaf(&mut value).then_some(value)
    }

    /// Writes the value to `to`, if it needs no allocation; returns whether it did.
    #[inline]
    pub(crate) fn write_leaf(&self, to: &mut Value) -> bool {
        match self {
            Self::Str(text) => to.put(Value::Str(text.clone())),
            Self::Nil => to.put(Value::Nil),
            Self::NilOf(ty) => to.put(Value::NilOf(*ty)),
            Self::Bool(value) => to.put(Value::Bool(*value)),
            Self::Int(value) => to.put(Value::Int(*value)),
            Self::Int64(value) => to.put(Value::Int64(*value)),
            Self::Float(value) => to.put(Value::Float(*value)),
            Self::Bytes(_) | Self::List(..) | Self::Map(_) => return false,
        }
        true
    }

    /// Returns the value; maps read this tree, lists are copied up to the next map.
    pub(crate) fn wrap(&self) -> Value {
        match self {
            Self::Bytes(bytes) => Value::bytes(Str::clone(bytes)),
            // Lists come from JSON, which Go decodes by appending.
            Self::List(list) => {
                let items = bounded::grow(|| list.items.iter().map(Self::wrap).collect());
                Value::List(List::new(list.ty, items).appended_to(0))
            }
            Self::Map(map) => Value::Map(Map::from_tree(Arc::clone(map))),
            _ => self.leaf().unwrap_or_default(),
        }
    }
}

impl From<&Tree> for Value {
    fn from(tree: &Tree) -> Self {
        tree.wrap()
    }
}

impl From<TreeMap> for Tree {
    fn from(map: TreeMap) -> Self {
        Self::Map(Arc::new(map))
    }
}

/// An immutable slice of trees.
#[derive(Clone, Debug)]
pub struct TreeList {
    ty: Type,
    items: Vec<Tree>,
    /// The memory of the elements without what they refer to.
    _held: Held,
}

impl TreeList {
    /// Creates a slice of the given Go type with these elements.
    pub fn new(ty: Type, items: Vec<Tree>) -> Self {
        let memory = size_of::<Self>() + items.capacity() * size_of::<Tree>();
        Self {
            ty,
            items,
            _held: Held::new(memory),
        }
    }

    /// Returns the Go type.
    pub fn go_type(&self) -> Type {
        self.ty
    }

    /// Returns the elements.
    pub fn items(&self) -> &[Tree] {
        &self.items
    }
}

/// A `[]interface {}`.
impl From<Vec<Tree>> for Tree {
    fn from(items: Vec<Tree>) -> Self {
        Self::List(Arc::new(TreeList::new(Type::LIST, items)))
    }
}

/// An immutable map from strings to trees.
#[derive(Clone, Debug)]
pub struct TreeMap {
    ty: Type,
    table: Table<Tree>,
}

impl TreeMap {
    /// Creates a map of the given Go type with these entries; a later key replaces an earlier one.
    pub fn new(ty: Type, entries: impl IntoIterator<Item = (Str, Tree)>) -> Self {
        let mut table: Table<Tree> = entries.into_iter().collect();
        table.sort();
        Self { ty, table }
    }

    /// Returns the map with other values for some keys, and without the keys whose change is
    /// `None`.
    #[must_use]
    pub fn with(&self, changes: impl IntoIterator<Item = (Str, Option<Tree>)>) -> Self {
        let mut copy = self.clone();
        let table = &mut copy.table;
        for (key, value) in changes {
            match value {
                Some(value) => drop(table.insert(key, value)),
                None => drop(table.remove(key.as_bytes())),
            }
        }
        table.sort();
        copy
    }

    /// Returns the Go type.
    pub fn go_type(&self) -> Type {
        self.ty
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<&Tree> {
        let key = key.as_ref();
        let position = self.table.find(super::table::hash(key), key)?;
        self.table.entry(position).map(|entry| &entry.value)
    }

    /// Iterates over the entries in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&Str, &Tree)> {
        let entries = self.table.entries().iter();
        entries.map(|entry| (&entry.key, &entry.value))
    }

    pub(crate) fn table(&self) -> &Table<Tree> {
        &self.table
    }
}

// Deep trees are dropped with enough stack, wherever that happens.

impl Drop for TreeList {
    fn drop(&mut self) {
        let items = std::mem::take(&mut self.items);
        bounded::grow(|| drop(items));
    }
}

impl Drop for TreeMap {
    fn drop(&mut self) {
        let table = std::mem::take(&mut self.table);
        bounded::grow(|| drop(table));
    }
}

//! `List`: Go's slice; handles and sub-slices share one array, as in Go.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use super::bury;
use super::{Str, Type, Value};

/// A slice of values. A clone, and what [`List::slice`] answers, share the elements: sorting one
/// in place shows in the others, as in Go.
///
/// ```
/// use go_template::{List, Type, Value};
/// let list = List::new(Type::INTS, vec![Value::Int(3), Value::Int(1)]);
/// assert_eq!(list.len(), 2);
/// assert!(matches!(list.slice(1, 2).get(0), Some(Value::Int(1))));
/// ```
#[derive(Clone)]
pub struct List {
    cell: Rc<Cell>,
    start: u32,
    len: u32,
}

struct Cell {
    ty: Type,
    items: RefCell<Vec<Value>>,
}

impl List {
    /// A slice of the given type, which must be a slice type. Beyond 4,294,967,295 elements,
    /// which no budget allows, the rest is not seen.
    pub fn new(ty: Type, items: Vec<Value>) -> Self {
        let len = u32::try_from(items.len()).unwrap_or(u32::MAX);
        Self {
            cell: Rc::new(Cell {
                ty,
                items: RefCell::new(items),
            }),
            start: 0,
            len,
        }
    }

    /// A `[]string`.
    pub fn strings<S: Into<Str>>(items: impl IntoIterator<Item = S>) -> Self {
        Self::new(
            Type::STRINGS,
            items
                .into_iter()
                .map(|item| Value::Str(item.into()))
                .collect(),
        )
    }

    /// The Go type.
    pub fn go_type(&self) -> Type {
        self.cell.ty
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Go's `cap`: the elements from the first of this slice to the end of the array.
    pub fn capacity(&self) -> usize {
        self.cell
            .items
            .borrow()
            .len()
            .saturating_sub(self.start as usize)
    }

    /// The element at `index`.
    pub fn get(&self, index: usize) -> Option<Value> {
        if index >= self.len() {
            return None;
        }
        self.cell
            .items
            .borrow()
            .get(self.start as usize + index)
            .cloned()
    }

    /// The slice from `start` to before `end`, which may reach up to the capacity; both are cut
    /// to that. It shares the elements.
    #[must_use]
    pub fn slice(&self, start: usize, end: usize) -> Self {
        let end = end.min(self.capacity());
        let start = start.min(end);
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            cell: Rc::clone(&self.cell),
            start: self.start.saturating_add(narrow(start)),
            len: narrow(end - start),
        }
    }

    /// The elements, copied.
    pub fn to_vec(&self) -> Vec<Value> {
        self.with(<[Value]>::to_vec)
    }

    /// The elements one by one, as they are when each is reached.
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            list: self,
            next: 0,
        }
    }

    /// Gives the elements to `read`, which must not change any list.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&[Value]) -> T) -> T {
        let items = self.cell.items.borrow();
        let start = self.start as usize;
        read(items.get(start..start + self.len()).unwrap_or_default())
    }

    /// Sorts the elements in place by their bytes, where every handle sees it (`sort.Strings`).
    /// Elements that are not strings count as empty.
    pub fn sort_strings(&self) {
        let mut items = self.cell.items.borrow_mut();
        let start = self.start as usize;
        if let Some(items) = items.get_mut(start..start + self.len()) {
            items.sort_by(|a, b| {
                let key = |value: &Value| value.as_str().cloned().unwrap_or_default();
                key(a).cmp(&key(b))
            });
        }
    }

    /// Whether both are the same part of the same array.
    pub fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.cell, &other.cell) && self.start == other.start && self.len == other.len
    }

    /// How many handles there are.
    pub(super) fn handles(&self) -> usize {
        Rc::strong_count(&self.cell)
    }

    /// The address, for `%p`.
    pub(crate) fn address(&self) -> usize {
        Rc::as_ptr(&self.cell).addr()
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        let items = self.items.get_mut();
        let count = items.len();
        if items.iter().any(|item| item.has_at_most(count)) {
            bury::bury(std::mem::take(items).into_iter());
        }
    }
}

/// The elements of a list.
pub struct Iter<'a> {
    list: &'a List,
    next: usize,
}

impl Iterator for Iter<'_> {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        let item = self.list.get(self.next)?;
        self.next += 1;
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.list.len().saturating_sub(self.next);
        (left, Some(left))
    }
}

impl<'a> IntoIterator for &'a List {
    type Item = Value;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl From<Vec<Value>> for List {
    fn from(items: Vec<Value>) -> Self {
        Self::new(Type::LIST, items)
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Lists can hold themselves through maps, so the elements are not shown.
        write!(f, "{}({} elements)", self.cell.ty, self.len)
    }
}

//! `List`: Go's slice; handles and sub-slices share one array, as in Go.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use bounded::memory::Held;

use super::changes;
use super::deep_drop;
use super::growth;
use super::{Str, Type, Value};

/// A slice of values. Clones and the results of [`List::slice`] share the elements: sorting one in
/// place affects the others, as in Go.
///
/// ```
/// use go_template::{List, Type, Value};
/// let list = List::new(Type::INTS, vec![Value::Int(3), Value::Int(1)]);
/// assert_eq!(list.len(), 2);
/// assert!(matches!(list.slice(1, 2).get(0), Some(Value::Int(1))));
/// ```
#[derive(Clone)]
pub struct List {
    cell: Rc<ListCell>,
    start: u32,
    len: u32,
}

struct ListCell {
    ty: Type,
    items: RefCell<Vec<Value>>,
    /// Length of the array: there are zero values behind the items.
    capacity: Cell<u32>,
    /// The memory of the elements without what they refer to.
    held: RefCell<Held>,
}

/// Returns the memory of a list with room for this many elements.
fn memory(room: usize) -> usize {
    size_of::<ListCell>() + room * size_of::<Value>()
}

impl List {
    /// Creates a slice of the given type, which must be a slice type. Elements beyond
    /// 4,294,967,295, which no budget allows, are ignored.
    pub fn new(ty: Type, items: Vec<Value>) -> Self {
        let len = u32::try_from(items.len()).unwrap_or(u32::MAX);
        Self {
            cell: Rc::new(ListCell {
                ty,
                held: RefCell::new(Held::new(memory(items.capacity()))),
                items: RefCell::new(items),
                capacity: Cell::new(len),
            }),
            start: 0,
            len,
        }
    }

    /// Gives a new list the capacity that Go's `append` leaves when it adds the elements one by one,
    /// to an array of `first` elements.
    #[must_use]
    pub fn appended_to(self, first: usize) -> Self {
        let capacity = growth::appended(self.cell.ty, first, self.len());
        self.with_capacity(capacity)
    }

    /// Gives a new list the capacity that Go's `append` leaves when it adds all elements but the
    /// first `old` at once.
    #[must_use]
    #[cfg(feature = "sprig")]
    pub(crate) fn extended_from(self, old: usize) -> Self {
        let capacity = growth::grown(self.cell.ty, old, self.len());
        self.with_capacity(capacity)
    }

    /// Gives a new list a capacity, which is at least its length.
    #[must_use]
    pub(crate) fn with_capacity(self, capacity: usize) -> Self {
        let capacity = u32::try_from(capacity).unwrap_or(u32::MAX);
        self.cell.capacity.set(capacity.max(self.len));
        self
    }

    /// Creates a `[]string`.
    pub fn strings<S: Into<Str>>(items: impl IntoIterator<Item = S>) -> Self {
        let items = items.into_iter().map(|item| Value::Str(item.into()));
        Self::new(Type::STRINGS, items.collect())
    }

    /// Returns the Go type.
    pub fn go_type(&self) -> Type {
        self.cell.ty
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Go's `cap`: the number of elements from the first of this slice to the end of the array.
    pub fn capacity(&self) -> usize {
        let capacity = self.cell.capacity.get();
        capacity.saturating_sub(self.start) as usize
    }

    /// Returns the element at `index`.
    pub fn get(&self, index: usize) -> Option<Value> {
        if index >= self.len() {
            return None;
        }
        let items = self.cell.items.borrow();
        items.get(self.start as usize + index).cloned()
    }

    /// Returns the slice from `start` up to `end`, both clamped to the capacity. It shares the
    /// elements.
    #[must_use]
    pub fn slice(&self, start: usize, end: usize) -> Self {
        let end = end.min(self.capacity());
        let start = start.min(end);
        // What is behind the elements is created only if it is asked for.
        let last = self.start as usize + end;
        let mut items = self.cell.items.borrow_mut();
        if last > items.len() {
            items.resize_with(last, || Value::zero(self.cell.ty.elem()));
            self.cell.held.borrow_mut().set(memory(items.capacity()));
        }
        drop(items);
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            cell: Rc::clone(&self.cell),
            start: self.start.saturating_add(narrow(start)),
            len: narrow(end - start),
        }
    }

    /// Returns a copy of the elements.
    pub fn to_vec(&self) -> Vec<Value> {
        self.with(<[Value]>::to_vec)
    }

    /// Iterates over the elements, each in its state when it is reached.
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            list: self,
            next: 0,
        }
    }

    /// Passes the elements to `read`, which must not modify any list.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&[Value]) -> T) -> T {
        let items = self.cell.items.borrow();
        let start = self.start as usize;
        read(items.get(start..start + self.len()).unwrap_or_default())
    }

    /// Sorts the elements in place by their bytes, visible to every handle (`sort.Strings`).
    /// Elements that are not strings count as empty.
    pub fn sort_strings(&self) {
        // Nobody else sees a list with one handle.
        if self.handles() > 1 {
            changes::write();
        }
        let mut items = self.cell.items.borrow_mut();
        let start = self.start as usize;
        if let Some(items) = items.get_mut(start..start + self.len()) {
            items.sort_by(|a, b| {
                let key = |value: &Value| value.as_str().cloned().unwrap_or_default();
                key(a).cmp(&key(b))
            });
        }
    }

    /// Returns whether both are the same part of the same array.
    pub fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.cell, &other.cell) && self.start == other.start && self.len == other.len
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

impl Drop for ListCell {
    fn drop(&mut self) {
        let items = self.items.get_mut();
        let count = items.len();
        if items.iter().any(|item| item.has_at_most(count)) {
            deep_drop::drop_deep(std::mem::take(items).into_iter());
        }
    }
}

/// An iterator over the elements of a list.
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
        // Lists can contain themselves through maps, so the elements are not printed.
        write!(f, "{}({} elements)", self.cell.ty, self.len)
    }
}

//! Drops deeply nested values without recursion, and breaks the cycles that templates can make.

use std::cell::RefCell;

use super::map::WeakMap;
use super::{Map, Value};

#[derive(Default)]
struct Yard {
    digging: bool,
    graves: Vec<Value>,
}

thread_local! {
    static YARD: RefCell<Yard> = RefCell::default();
    /// Maps that had a container set into them: only these can close a cycle.
    static WATCHED: RefCell<Vec<WeakMap>> = const { RefCell::new(Vec::new()) };
}

/// Drops `values` so that however deep they nest, the stack holds one level at a time. Of use
/// only where some [`Value::has_at_most`] as many handles as there are values.
pub(super) fn bury(values: impl Iterator<Item = Value>) {
    let mut values = values.filter(Value::is_container);
    let digs = YARD.try_with(|yard| match yard.try_borrow_mut() {
        Ok(mut yard) => {
            yard.graves.extend(&mut values);
            !std::mem::replace(&mut yard.digging, true)
        }
        Err(_) => false,
    });
    if !digs.unwrap_or(false) {
        return;
    }
    loop {
        let next = YARD.try_with(|yard| yard.try_borrow_mut().ok()?.graves.pop());
        match next {
            // Dropping it may bury what it held, which only adds graves.
            Ok(Some(value)) => drop(value),
            _ => break,
        }
    }
    let _ = YARD.try_with(|yard| yard.try_borrow_mut().map(|mut yard| yard.digging = false));
}

/// Remembers that `map` was given a container.
pub(super) fn watch(map: &Map) {
    WATCHED.with(|watched| {
        let mut watched = watched.borrow_mut();
        // Most maps die soon; their entries go whenever the list would grow.
        if watched.len() == watched.capacity() {
            watched.retain(|map| map.upgrade().is_some());
        }
        watched.push(map.downgrade());
    });
}

/// Empties every watched map that is still alive, so that none keeps itself alive.
pub(crate) fn break_cycles() {
    let watched = WATCHED.with(|watched| std::mem::take(&mut *watched.borrow_mut()));
    for map in watched.iter().filter_map(WeakMap::upgrade) {
        map.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{List, Type};

    #[test]
    fn a_million_nested_lists_are_dropped() {
        let mut value = Value::Nil;
        for _ in 0..1_000_000 {
            value = Value::List(List::new(Type::LIST, vec![value]));
        }
        drop(value);
    }

    #[test]
    fn a_million_lists_that_hold_one_another_twice_are_dropped() {
        let mut value = Value::Nil;
        for _ in 0..1_000_000 {
            value = Value::List(List::new(Type::LIST, vec![value.clone(), value]));
        }
        drop(value);
    }

    #[test]
    fn a_map_that_holds_itself_is_freed() {
        let map = Map::new();
        let weak = map.downgrade();
        map.insert("self", Value::Map(map.clone()));
        drop(map);
        assert!(weak.upgrade().is_some());
        break_cycles();
        assert!(weak.upgrade().is_none());
    }
}

//! Drops deeply nested values without recursion, and breaks the cycles that templates can make.

use std::cell::RefCell;

use super::map::WeakMap;
use super::{Map, Value};

#[derive(Default)]
struct DropQueue {
    is_draining: bool,
    pending: Vec<Value>,
}

thread_local! {
    static QUEUE: RefCell<DropQueue> = RefCell::default();
    /// Maps that a container was inserted into: only these can be part of a cycle.
    static TRACKED: RefCell<Vec<WeakMap>> = const { RefCell::new(Vec::new()) };
}

/// Drops `values` iteratively, so that the stack holds only one level regardless of their depth.
/// Only useful if some value [`Value::has_at_most`] as many handles as there are values.
pub(super) fn drop_deep(values: impl Iterator<Item = Value>) {
    let mut values = values.filter(Value::is_container);
    let drains = QUEUE.try_with(|queue| match queue.try_borrow_mut() {
        Ok(mut queue) => {
            queue.pending.extend(&mut values);
            !std::mem::replace(&mut queue.is_draining, true)
        }
        Err(_) => false,
    });
    if !drains.unwrap_or(false) {
        return;
    }
    loop {
        let next = QUEUE.try_with(|queue| queue.try_borrow_mut().ok()?.pending.pop());
        match next {
            // Dropping it may queue its content.
            Ok(Some(value)) => drop(value),
            _ => break,
        }
    }
    let _ = QUEUE.try_with(|queue| {
        let queue = queue.try_borrow_mut();
        queue.map(|mut queue| queue.is_draining = false)
    });
}

/// Records that a container was inserted into `map`.
pub(super) fn track(map: &Map) {
    TRACKED.with(|tracked| {
        let mut tracked = tracked.borrow_mut();
        // Most maps are short-lived; their entries are removed whenever the list would grow.
        if tracked.len() == tracked.capacity() {
            tracked.retain(|map| map.upgrade().is_some());
        }
        tracked.push(map.downgrade());
    });
}

/// Empties every tracked map that is still alive, so that none keeps itself alive.
pub(crate) fn break_cycles() {
    let tracked = TRACKED.with(|tracked| std::mem::take(&mut *tracked.borrow_mut()));
    for map in tracked.iter().filter_map(WeakMap::upgrade) {
        map.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_nested_lists_are_dropped() {
        let mut value = Value::Nil;
        for _ in 0..1_000_000 {
            value = Value::list(vec![value]);
        }
        drop(value);
    }

    #[test]
    fn a_million_lists_with_two_references_each_are_dropped() {
        let mut value = Value::Nil;
        for _ in 0..1_000_000 {
            value = Value::list(vec![value.clone(), value]);
        }
        drop(value);
    }

    #[test]
    fn map_that_contains_itself_is_freed() {
        let map = Map::new();
        let weak = map.downgrade();
        map.insert("self", Value::Map(map.clone()));
        drop(map);
        assert!(weak.upgrade().is_some());
        break_cycles();
        assert!(weak.upgrade().is_none());
    }
}

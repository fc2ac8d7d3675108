//! Keys of one priority, in turns of their namespaces.

use std::collections::VecDeque;
use std::sync::Arc;

use host::HashMap;

use super::Key;

/// The namespace of a key; `None` for all cluster-scoped ones.
pub(super) type Namespace = Option<Arc<str>>;

/// Keys that wait, each namespace's in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Lane {
    waiting: HashMap<Namespace, VecDeque<Key>>,
    /// The namespaces with keys, the next one first.
    turns: VecDeque<Namespace>,
}

impl Lane {
    pub(super) fn push(&mut self, key: Key) {
        let keys = self.waiting.entry(key.namespace.clone()).or_default();
        if keys.is_empty() {
            self.turns.push_back(key.namespace.clone());
        }
        keys.push_back(key);
    }

    /// Takes a key of the next namespace that is accepted, which is last then.
    pub(super) fn pop(&mut self, accepts: impl Fn(&Namespace) -> bool) -> Option<Key> {
        let at = self.turns.iter().position(accepts)?;
        let namespace = self.turns.remove(at)?;
        let keys = self.waiting.get_mut(&namespace)?;
        let key = keys.pop_front();
        if keys.is_empty() {
            self.waiting.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        key
    }
}

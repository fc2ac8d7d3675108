//! Knowledge of a process about the owners of releases, by their keys.
//!
//! Knowledge belongs to a uid: an owner that replaces another one of its name starts with nothing.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use host::HashMap;
use kube_objects::Key;
use parking_lot::Mutex;

/// Knowledge about each owner. Cheap to clone; clones share it.
#[derive(Default)]
pub struct Memories<M>(Arc<Mutex<HashMap<Key, Known<M>>>>);

/// The uid of an owner, and what is known of it.
type Known<M> = (String, Box<M>);

impl<M> Clone for Memories<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Knowledge about an owner during a pass. Dropping it, also because the pass is cancelled, remembers what is known
/// then. After a panic nothing is remembered.
pub struct Remembered<'a, M: Default> {
    memories: &'a Memories<M>,
    key: Key,
    uid: String,
    memory: Box<M>,
}

impl<M: Default> Memories<M> {
    /// Takes what is known of the owner with this uid: nothing if there is none, or only one of a former object of its
    /// name. `forget` is called for the latter.
    pub fn take(&self, key: &Key, uid: &str, forget: impl FnOnce()) -> Remembered<'_, M> {
        let known = self.0.lock().remove(key);
        let memory = match known {
            Some((known, memory)) if known == uid => memory,
            Some(_) => {
                forget();
                Box::default()
            }
            None => Box::default(),
        };
        Remembered {
            memories: self,
            key: key.clone(),
            uid: uid.to_owned(),
            memory,
        }
    }

    /// Forgets an owner that is gone. Returns whether others are known.
    pub fn forget(&self, key: &Key) -> bool {
        let mut memories = self.0.lock();
        memories.remove(key);
        !memories.is_empty()
    }

    /// Returns what is known of an owner, unless it is in a pass.
    pub fn of<T>(&self, key: &Key, read: impl FnOnce(&M) -> T) -> Option<T> {
        self.0.lock().get(key).map(|(_, memory)| read(memory))
    }
}

impl<M: Default> Deref for Remembered<'_, M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.memory
    }
}

impl<M: Default> DerefMut for Remembered<'_, M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.memory
    }
}

impl<M: Default> Drop for Remembered<'_, M> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let known = (
                std::mem::take(&mut self.uid),
                std::mem::take(&mut self.memory),
            );
            self.memories.0.lock().insert(self.key.clone(), known);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn memory_belongs_to_a_uid_and_outlives_a_cancelled_reconcile_but_no_panic() {
        let (memories, key) = (Memories::<u64>::default(), Key::new(Some("ns"), "one"));
        let forgotten = Cell::new(0);
        let take = |uid: &str| memories.take(&key, uid, || forgotten.set(forgotten.get() + 1));
        *take("a") = 7;
        assert_eq!((*take("a"), forgotten.get()), (7, 0));
        assert_eq!((*take("b"), forgotten.get()), (0, 1));
        assert_eq!((*take("b"), forgotten.get()), (0, 1));

        *take("b") = 8;
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _memory = take("b");
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(panicked.is_err());
        assert_eq!(*take("b"), 0);
        assert!(!memories.forget(&key));
        assert_eq!(memories.of(&key, |known| *known), None);
    }
}

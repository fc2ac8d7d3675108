//! A small cache that threads read and fill without locks.

use std::sync::{Arc, OnceLock};

const SLOTS: usize = 8;

/// Caches the first few values by key; values for further keys are made on every call.
pub(crate) struct Slots<K, V>([OnceLock<(K, Arc<V>)>; SLOTS]);

impl<K: PartialEq, V> Slots<K, V> {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| OnceLock::new()))
    }

    /// Returns the value of `key`, creating it if necessary. Threads that create it concurrently
    /// may each get their own.
    pub(crate) fn get_or_make<E>(
        &self,
        key: K,
        make: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, E> {
        let found = self
            .0
            .iter()
            .map_while(OnceLock::get)
            .find(|(known, _)| *known == key);
        if let Some((_, value)) = found {
            return Ok(Arc::clone(value));
        }
        let value = Arc::new(make()?);
        let mut entry = (key, Arc::clone(&value));
        for slot in &self.0 {
            match slot.set(entry) {
                Ok(()) => break,
                Err(back) => entry = back,
            }
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::Slots;

    #[test]
    fn values_are_kept_while_there_is_room() {
        let slots = Slots::new();
        let mut made = 0;
        for round in 0..2 {
            for key in 0..10 {
                let value = slots.get_or_make(key, || {
                    made += 1;
                    Ok::<_, ()>(key * 2)
                });
                assert_eq!(*value.unwrap(), key * 2);
            }
            assert_eq!(made, if round == 0 { 10 } else { 12 });
        }
    }
}

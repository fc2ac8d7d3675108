//! The hash table of maps and trees: entries in one vector, found by precomputed hashes.
#![allow(
    clippy::indexing_slicing,
    reason = "slots contain positions of entries, and masks keep probes within the slots"
)]

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use bounded::memory::Held;

use super::Str;

/// Number of entries up to which scanning the hashes is faster than probing.
const SCAN: usize = 8;
const EMPTY: u32 = u32::MAX;

/// A key with its hash, computed once for names that templates use repeatedly.
#[derive(Clone, Debug)]
pub struct Name {
    key: Str,
    hash: u32,
    /// Whether it could be the name of a method.
    is_exported: bool,
}

impl Name {
    /// Hashes `key`.
    pub fn new(key: impl Into<Str>) -> Self {
        let key = key.into();
        let first = key.as_bytes().first();
        Self {
            hash: hash(key.as_bytes()),
            is_exported: first.is_some_and(|first| !first.is_ascii_lowercase()),
            key,
        }
    }

    /// Returns the key.
    pub fn key(&self) -> &Str {
        &self.key
    }

    pub(crate) fn hash(&self) -> u32 {
        self.hash
    }

    /// Returns whether it could be the name of a method: only exported methods can be called.
    #[inline]
    pub(crate) fn is_exported(&self) -> bool {
        self.is_exported
    }
}

impl From<&[u8]> for Name {
    fn from(key: &[u8]) -> Self {
        Self::new(key)
    }
}

impl From<&str> for Name {
    fn from(key: &str) -> Self {
        Self::new(key)
    }
}

/// Hashes bytes with a per-process seed, so that no document can be crafted with colliding keys.
pub(crate) fn hash(bytes: &[u8]) -> u32 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    static SEED: OnceLock<u64> = OnceLock::new();
    let seed = *SEED.get_or_init(|| RandomState::new().hash_one(0_u8));
    let fold = |state: u64, word: u64| {
        let wide = u128::from(state ^ word) * u128::from(MULTIPLIER ^ seed.rotate_left(32) | 1);
        #[allow(
            clippy::cast_possible_truncation,
            reason = "both halves are folded together"
        )]
        let folded = wide as u64 ^ (wide >> 64) as u64;
        folded
    };
    let (words, _) = bytes.as_chunks::<8>();
    let mut state = seed ^ (bytes.len() as u64);
    for word in words {
        state = fold(state, u64::from_le_bytes(*word));
    }
    // The last bytes, or all if there are few; some may be hashed twice.
    let last = match bytes {
        [.., _, _, _, _, _, _, _, _] => bytes.last_chunk().copied().map(u64::from_le_bytes),
        [_, _, _, _, ..] => {
            let chunks = bytes.first_chunk().zip(bytes.last_chunk());
            chunks.map(|(low, high)| {
                let (low, high) = (u32::from_le_bytes(*low), u32::from_le_bytes(*high));
                u64::from(low) | u64::from(high) << 32
            })
        }
        [first, .., last] => {
            let middle = bytes.get(1).copied().unwrap_or_default();
            Some(u64::from(*first) | u64::from(middle) << 8 | u64::from(*last) << 16)
        }
        [only] => Some(u64::from(*only)),
        [] => None,
    };
    state = fold(state, last.unwrap_or_default());
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the upper half is folded in"
    )]
    let short = (state ^ (state >> 32)) as u32;
    short
}

#[derive(Clone, Debug)]
pub(crate) struct Entry<V> {
    hash: u32,
    pub(crate) key: Str,
    pub(crate) value: V,
}

impl<V> Entry<V> {
    pub(crate) fn hash(&self) -> u32 {
        self.hash
    }
}

/// A map from string keys to values that tracks whether its entries are in key order.
#[derive(Clone, Debug)]
pub(crate) struct Table<V> {
    entries: Vec<Entry<V>>,
    slots: Vec<u32>,
    sorted: bool,
    /// The memory of the table without what the values refer to.
    held: Held,
}

/// The memory of an empty map.
const EMPTY_MAP: usize = 128;

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            slots: Vec::new(),
            sorted: true,
            held: Held::new(EMPTY_MAP),
        }
    }
}

impl<V> Table<V> {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let mut table = Self {
            entries: Vec::with_capacity(capacity),
            ..Self::default()
        };
        table.count_memory();
        table
    }

    /// Counts the memory after the capacity changed.
    fn count_memory(&mut self) {
        let entries = self.entries.capacity() * size_of::<Entry<V>>();
        self.held
            .set(EMPTY_MAP + entries + self.slots.capacity() * size_of::<u32>());
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn entry(&self, position: usize) -> Option<&Entry<V>> {
        self.entries.get(position)
    }

    pub(crate) fn entries(&self) -> &[Entry<V>] {
        &self.entries
    }

    pub(crate) fn into_entries(self) -> Vec<Entry<V>> {
        self.entries
    }

    /// Returns the position of `key`, given its hash.
    pub(crate) fn find(&self, hash: u32, key: &[u8]) -> Option<usize> {
        self.locate(hash, |other| other.as_bytes() == key)
    }

    /// Returns the position of a key with a precomputed hash.
    #[inline]
    pub(crate) fn find_name(&self, name: &Name) -> Option<usize> {
        self.locate(name.hash, |other| *other == name.key)
    }

    #[inline]
    fn locate(&self, hash: u32, is_key: impl Fn(&Str) -> bool) -> Option<usize> {
        if self.slots.is_empty() {
            let mut entries = self.entries.iter();
            return entries.position(|entry| entry.hash == hash && is_key(&entry.key));
        }
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let position = self.slots[slot];
            if position == EMPTY {
                return None;
            }
            let entry = &self.entries[position as usize];
            if entry.hash == hash && is_key(&entry.key) {
                return Some(position as usize);
            }
            slot = (slot + 1) & mask;
        }
    }

    /// Returns a table with the same keys and other values; `make` receives the position of each.
    pub(crate) fn with_values<W>(&self, mut make: impl FnMut(usize, &V) -> W) -> Table<W> {
        let entries = self.entries.iter().enumerate();
        let mut table = Table {
            entries: entries
                .map(|(position, entry)| Entry {
                    hash: entry.hash,
                    key: entry.key.clone(),
                    value: make(position, &entry.value),
                })
                .collect(),
            slots: self.slots.clone(),
            sorted: self.sorted,
            held: Held::default(),
        };
        table.count_memory();
        table
    }

    /// Sets `key` and returns its previous value.
    pub(crate) fn insert(&mut self, key: Str, value: V) -> Option<V> {
        let hash = hash(key.as_bytes());
        self.insert_hashed(hash, key, value)
    }

    pub(crate) fn insert_hashed(&mut self, hash: u32, key: Str, value: V) -> Option<V> {
        if let Some(position) = self.find(hash, key.as_bytes()) {
            return Some(std::mem::replace(&mut self.entries[position].value, value));
        }
        if let Some(last) = self.entries.last() {
            self.sorted &= last.key < key;
        }
        let grows = self.entries.len() == self.entries.capacity();
        self.entries.push(Entry { hash, key, value });
        let count = self.entries.len();
        // A table that has shrunk keeps its slots, so they must contain every entry.
        if count > SCAN || !self.slots.is_empty() {
            // Slots are at most half full.
            if self.slots.len() < 2 * count {
                self.build_slots();
            } else {
                self.place(count - 1);
            }
        }
        if grows {
            self.count_memory();
        }
        None
    }

    /// Removes `key`, keeping the order of the others, and returns its value.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<V> {
        let position = self.find(hash(key), key)?;
        if !self.slots.is_empty() {
            self.unplace(position);
        }
        Some(self.entries.remove(position).value)
    }

    /// Returns whether the entries are in key order.
    pub(crate) fn is_sorted(&self) -> bool {
        self.sorted
    }

    /// Sorts the entries by key.
    pub(crate) fn sort(&mut self) {
        if !self.sorted {
            self.entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
            self.sorted = true;
            if !self.slots.is_empty() {
                self.build_slots();
            }
        }
    }

    fn build_slots(&mut self) {
        let size = (self.entries.len() * 4).next_power_of_two();
        self.slots.clear();
        self.slots.resize(size, EMPTY);
        for position in 0..self.entries.len() {
            self.place(position);
        }
        self.count_memory();
    }

    fn place(&mut self, position: usize) {
        let mask = self.slots.len() - 1;
        let mut slot = self.entries[position].hash as usize & mask;
        while self.slots[slot] != EMPTY {
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = u32::try_from(position).unwrap_or(EMPTY - 1);
    }

    /// Removes the slot of an entry before the entry is removed, and counts the positions behind it down.
    fn unplace(&mut self, position: usize) {
        let mask = self.slots.len() - 1;
        let removed = u32::try_from(position).unwrap_or(EMPTY - 1);
        let home = |slot: u32| self.entries[slot as usize].hash as usize & mask;
        let mut gap = home(removed);
        while self.slots[gap] != removed {
            gap = (gap + 1) & mask;
        }
        // An entry moves into the gap if a search for it would end there.
        let mut slot = gap;
        loop {
            slot = (slot + 1) & mask;
            let other = self.slots[slot];
            if other == EMPTY {
                break;
            }
            if slot.wrapping_sub(home(other)) & mask >= slot.wrapping_sub(gap) & mask {
                self.slots[gap] = other;
                gap = slot;
            }
        }
        self.slots[gap] = EMPTY;
        for slot in &mut self.slots {
            if *slot != EMPTY && *slot > removed {
                *slot -= 1;
            }
        }
    }
}

impl<V> FromIterator<(Str, V)> for Table<V> {
    fn from_iter<I: IntoIterator<Item = (Str, V)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter();
        let mut table = Self::with_capacity(pairs.size_hint().0);
        for (key, value) in pairs {
            table.insert(key, value);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_after_growth_removal_and_sorting() {
        let mut table = Table::default();
        for i in (0..100).rev() {
            table.insert(Str::from(format!("key{i:03}")), i);
        }
        assert_eq!(table.len(), 100);
        table.sort();
        assert_eq!(table.entry(7).unwrap().value, 7);
        for i in (0..100).step_by(2) {
            assert_eq!(table.remove(format!("key{i:03}").as_bytes()), Some(i));
            assert_eq!(table.remove(format!("key{i:03}").as_bytes()), None);
        }
        for i in 0..100 {
            let key = format!("key{i:03}");
            let found = table.find(hash(key.as_bytes()), key.as_bytes());
            assert_eq!(
                found.map(|at| table.entry(at).unwrap().value),
                (i % 2 == 1).then_some(i)
            );
        }
        assert_eq!(table.insert(Str::from("key001"), 500), Some(1));
    }

    #[test]
    fn entries_are_found_whichever_others_are_removed() {
        let found = |table: &Table<usize>, i: usize| {
            let key = i.to_string();
            let position = table.find(hash(key.as_bytes()), key.as_bytes())?;
            Some(table.entry(position).unwrap().value)
        };
        // More rounds than there are slots, so that chains begin everywhere, also at the end.
        for first in 0..64 {
            let mut table: Table<usize> = (0..20)
                .map(|i| (Str::from((first + i).to_string()), first + i))
                .collect();
            for removed in 0..20 {
                let i = first + removed * 7 % 20;
                assert_eq!(table.remove(i.to_string().as_bytes()), Some(i));
                assert_eq!(found(&table, i), None);
                let kept = table.entries().iter().map(|entry| entry.value);
                let kept: Vec<usize> = kept.collect();
                assert_eq!(kept.len(), 19 - removed);
                assert!(kept.iter().all(|&i| found(&table, i) == Some(i)));
            }
        }
    }

    #[test]
    fn entries_inserted_after_shrinking_are_found() {
        let mut table = Table::default();
        for i in 0..=SCAN {
            table.insert(Str::from(format!("key{i}")), i);
        }
        table.remove(b"key0");
        table.remove(b"key1");
        table.insert(Str::from("new"), 100);
        let found = table.find(hash(b"new"), b"new");
        assert_eq!(found.map(|at| table.entry(at).unwrap().value), Some(100));
        table.insert(Str::from("new"), 101);
        assert_eq!(table.len(), SCAN);
    }
}

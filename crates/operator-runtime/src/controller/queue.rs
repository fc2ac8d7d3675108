//! The work queue of a controller. Pure: the time is an argument.
//!
//! The rules are those of client-go: a waiting key is not added twice, a key that is added while it
//! is processed is queued again when that is done, and the earlier of two delays counts.

use host::HashMap;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::Key;

/// The priority of a ready key; lower values come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// Something changed.
    Event,
    /// Nothing is known to have changed: the first list, a resync.
    Background,
}

/// Keys that are ready, delayed or being processed.
#[derive(Debug, Default)]
pub struct Queue {
    urgent: VecDeque<Key>,
    background: VecDeque<Key>,
    /// Ready keys, and those that become ready when their processing is done.
    dirty: HashMap<Key, Ready>,
    processing: HashMap<Key, Taken>,
    delayed: BTreeMap<(Instant, u64), Key>,
    due: HashMap<Key, (Instant, u64)>,
    sequence: u64,
    /// Number of keys that became ready and were not counted yet.
    added: u64,
}

/// A key that waits.
#[derive(Debug, Clone, Copy)]
struct Ready {
    priority: Priority,
    since: Instant,
}

/// A key that is processed.
#[derive(Debug, Clone, Copy)]
struct Taken {
    waited: Duration,
    since: Instant,
}

impl Queue {
    /// Makes a key ready, which it is since `now`.
    pub fn add(&mut self, key: Key, priority: Priority, now: Instant) {
        self.forget_delay(&key);
        match self.dirty.get_mut(&key) {
            Some(present) if present.priority <= priority => {}
            Some(present) => {
                // `take` skips the entry in the lower lane.
                present.priority = priority;
                if !self.processing.contains_key(&key) {
                    self.urgent.push_back(key);
                }
            }
            None => {
                self.added += 1;
                let since = now;
                self.dirty.insert(key.clone(), Ready { priority, since });
                if !self.processing.contains_key(&key) {
                    self.lane(priority).push_back(key);
                }
            }
        }
    }

    /// Makes a key ready at `at`, or earlier if it is already delayed to an earlier time.
    pub fn add_at(&mut self, key: Key, at: Instant) {
        if self.dirty.contains_key(&key) {
            return;
        }
        if let Some((present, sequence)) = self.due.get(&key).copied() {
            if present <= at {
                return;
            }
            self.delayed.remove(&(present, sequence));
        }
        self.sequence += 1;
        self.due.insert(key.clone(), (at, self.sequence));
        self.delayed.insert((at, self.sequence), key);
    }

    /// Takes the next key that is ready at `now`. The caller must call [`done`](Self::done)
    /// afterwards.
    pub fn take(&mut self, now: Instant) -> Option<Key> {
        while let Some(entry) = self.delayed.first_entry() {
            let due = entry.key().0;
            if due > now {
                break;
            }
            let key = entry.remove();
            self.add(key, Priority::Background, due);
        }
        loop {
            let (key, lane) = match self.urgent.pop_front() {
                Some(key) => (key, Priority::Event),
                None => (self.background.pop_front()?, Priority::Background),
            };
            // A key that moved to the other lane leaves its old entry behind.
            let ready = self.dirty.get(&key).copied();
            if let Some(ready) = ready
                && ready.priority == lane
                && !self.processing.contains_key(&key)
            {
                self.dirty.remove(&key);
                self.forget_delay(&key);
                let waited = now.saturating_duration_since(ready.since);
                self.processing
                    .insert(key.clone(), Taken { waited, since: now });
                return Some(key);
            }
        }
    }

    /// Ends the processing of a key, which becomes ready again if it was added meanwhile.
    pub fn done(&mut self, key: &Key) {
        self.processing.remove(key);
        if let Some(ready) = self.dirty.get(key).copied() {
            self.lane(ready.priority).push_back(key.clone());
        }
    }

    /// Returns how long a key that is processed has waited before.
    pub(crate) fn waited(&self, key: &Key) -> Duration {
        self.processing
            .get(key)
            .map_or(Duration::ZERO, |taken| taken.waited)
    }

    /// Returns for how long each key has been processed.
    pub(crate) fn running(&self, now: Instant) -> impl Iterator<Item = Duration> {
        self.processing
            .values()
            .map(move |taken| now.saturating_duration_since(taken.since))
    }

    /// Returns the number of keys that became ready since the last call.
    pub(crate) fn take_added(&mut self) -> u64 {
        std::mem::take(&mut self.added)
    }

    /// Returns the time at which the next delayed key becomes ready.
    pub fn next_due(&self) -> Option<Instant> {
        self.delayed.first_key_value().map(|((at, _), _)| *at)
    }

    /// Returns the number of keys that are ready, or will be when their processing is done.
    pub(crate) fn len(&self) -> usize {
        self.dirty.len()
    }

    /// Returns the number of keys that are being processed.
    #[cfg(test)]
    pub(crate) fn in_progress(&self) -> usize {
        self.processing.len()
    }

    fn lane(&mut self, priority: Priority) -> &mut VecDeque<Key> {
        match priority {
            Priority::Event => &mut self.urgent,
            Priority::Background => &mut self.background,
        }
    }

    fn forget_delay(&mut self, key: &Key) {
        if let Some(at) = self.due.remove(key) {
            self.delayed.remove(&at);
        }
    }
}

#[cfg(test)]
mod tests {
    use host::HashSet;
    use std::time::Duration;

    use tokio::time::Instant;

    use proptest::prelude::*;

    use super::{Priority, Queue};
    use crate::controller::Key;

    fn key(n: u8) -> Key {
        Key::new(None, &n.to_string())
    }

    #[test]
    fn a_key_added_twice_is_taken_once_and_again_if_added_during_processing() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.add(key(1), Priority::Event, now);
        queue.add(key(1), Priority::Event, now);
        assert_eq!(queue.take(now), Some(key(1)));
        assert_eq!(queue.take(now), None);
        queue.add(key(1), Priority::Event, now);
        assert_eq!(queue.take(now), None, "never concurrently");
        queue.done(&key(1));
        assert_eq!(queue.take(now), Some(key(1)));
        queue.done(&key(1));
        assert_eq!(queue.take(now), None);
    }

    #[test]
    fn events_come_before_background_keys_and_the_earlier_delay_counts() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut queue = Queue::default();
        queue.add(key(1), Priority::Background, now);
        queue.add(key(2), Priority::Event, now);
        queue.add(key(1), Priority::Event, now);
        assert_eq!(queue.take(now), Some(key(2)));
        assert_eq!(queue.take(now), Some(key(1)));
        assert_eq!(queue.take(now), None);

        queue.add_at(key(3), now + 5 * second);
        queue.add_at(key(3), now + 9 * second);
        queue.add_at(key(3), now + 2 * second);
        assert_eq!(queue.next_due(), Some(now + 2 * second));
        assert_eq!(queue.take(now + second), None);
        assert_eq!(queue.take(now + 2 * second), Some(key(3)));
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn the_time_that_keys_wait_and_are_processed_is_measured_from_when_they_are_due() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut queue = Queue::default();
        queue.add(key(1), Priority::Event, at(0));
        queue.add(key(1), Priority::Event, at(1));
        queue.add_at(key(2), at(3));
        assert_eq!(queue.take_added(), 1, "a key that waits is not added twice");
        assert_eq!(queue.take(at(5)), Some(key(1)));
        assert_eq!(queue.take(at(6)), Some(key(2)));
        assert_eq!(queue.take_added(), 1);
        assert_eq!(queue.waited(&key(1)), Duration::from_secs(5));
        assert_eq!(queue.waited(&key(2)), Duration::from_secs(3));
        let mut running: Vec<u64> = queue.running(at(9)).map(|d| d.as_secs()).collect();
        running.sort_unstable();
        assert_eq!(running, [3, 4]);
    }

    #[derive(Debug, Clone)]
    enum Op {
        Add(u8, bool),
        AddAt(u8, u64),
        Take,
        Done(u8),
        Pass(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0_u8..5, any::<bool>()).prop_map(|(k, event)| Op::Add(k, event)),
            (0_u8..5, 0_u64..20).prop_map(|(k, at)| Op::AddAt(k, at)),
            Just(Op::Take),
            (0_u8..5).prop_map(Op::Done),
            (0_u64..10).prop_map(Op::Pass),
        ]
    }

    proptest! {
        /// No key is lost or taken concurrently: every key that was added and not taken since is
        /// taken after all processing is done and all delays have passed.
        #[test]
        fn every_added_key_is_taken_and_none_is_processed_concurrently(ops in prop::collection::vec(op(), 0..80)) {
            let start = Instant::now();
            let mut clock = 0;
            let mut queue = Queue::default();
            let mut owed: HashSet<Key> = HashSet::default();
            let mut working: HashSet<Key> = HashSet::default();
            for op in ops {
                match op {
                    Op::Add(k, event) => {
                        let priority = if event { Priority::Event } else { Priority::Background };
                        queue.add(key(k), priority, start + Duration::from_secs(clock));
                        owed.insert(key(k));
                    }
                    Op::AddAt(k, at) => {
                        queue.add_at(key(k), start + Duration::from_secs(clock + at));
                        owed.insert(key(k));
                    }
                    Op::Take => {
                        if let Some(k) = queue.take(start + Duration::from_secs(clock)) {
                            prop_assert!(owed.remove(&k), "{k} was not added");
                            prop_assert!(working.insert(k), "processed concurrently");
                        }
                    }
                    Op::Done(k) => {
                        if working.remove(&key(k)) {
                            queue.done(&key(k));
                        }
                    }
                    Op::Pass(seconds) => clock += seconds,
                }
                prop_assert_eq!(queue.in_progress(), working.len());
            }
            for k in working {
                queue.done(&k);
            }
            while let Some(k) = queue.take(start + Duration::from_secs(clock + 1000)) {
                prop_assert!(owed.remove(&k));
                queue.done(&k);
            }
            prop_assert!(owed.is_empty(), "lost: {owed:?}");
        }
    }
}

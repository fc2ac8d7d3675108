//! The work queue of a controller. Pure: the time is an argument.
//!
//! The rules are those of client-go: a waiting key is not added twice, a key that is added while it
//! is processed is queued again when that is done, and the earlier of two delays counts.
//!
//! Namespaces take turns, and while others wait, one has no more than its [`Share`] of the workers. If it had more
//! before they came, what it does for long is not counted, so that they need not wait for its end.

use host::HashMap;
use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Key;
use super::lane::{Lane, Namespace};

/// Time after which the work on a key takes long.
const LONG: Duration = Duration::from_secs(1);

/// The priority of a ready key; lower values come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// Something changed.
    Event,
    /// Nothing is known to have changed: the first list, a resync.
    Background,
}

/// The next time that a key is processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It is processed.
    Now,
    /// As soon as a worker is free.
    Ready,
    /// At this time, unless something changes before.
    At(Instant),
    /// When something changes.
    None,
}

/// Workers of a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    /// Number of keys that are processed concurrently.
    pub(crate) workers: usize,
    /// Number of these that may be of one namespace while others wait.
    pub(crate) of_namespace: usize,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            workers: usize::MAX,
            of_namespace: usize::MAX,
        }
    }
}

/// Keys that are ready, delayed or being processed.
#[derive(Debug, Default)]
pub struct Queue {
    share: Share,
    urgent: Lane,
    background: Lane,
    /// Ready keys, and those that become ready when their processing is done.
    dirty: HashMap<Key, Ready>,
    processing: HashMap<Key, Taken>,
    /// Number of keys of each namespace that are processed.
    busy: HashMap<Namespace, usize>,
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
    /// Whether only its delay has passed.
    delayed: bool,
}

/// A key that is processed.
#[derive(Debug, Clone, Copy)]
struct Taken {
    waited: Duration,
    since: Instant,
    delayed: bool,
}

impl Queue {
    /// Sets the workers.
    pub(crate) fn set_share(&mut self, share: Share) {
        self.share = share;
    }

    /// Makes a key ready, which it is since `now`.
    pub fn add(&mut self, key: Key, priority: Priority, now: Instant) {
        self.make_ready(key, priority, now, false);
    }

    fn make_ready(&mut self, key: Key, priority: Priority, since: Instant, delayed: bool) {
        self.forget_delay(&key);
        let mut present = self.dirty.get_mut(&key);
        if let Some(present) = &mut present {
            present.delayed &= delayed;
        }
        match present {
            Some(present) if present.priority <= priority => {}
            Some(present) => {
                // `take` skips the entry in the lower lane.
                present.priority = priority;
                if !self.processing.contains_key(&key) {
                    self.urgent.push(key);
                }
            }
            None => {
                self.added += 1;
                let ready = Ready {
                    priority,
                    since,
                    delayed,
                };
                self.dirty.insert(key.clone(), ready);
                if !self.processing.contains_key(&key) {
                    self.lane(priority).push(key);
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

    /// Takes the next key that is ready at `now`, if there is a worker for it. The caller must call
    /// [`done`](Self::done) afterwards.
    pub fn take(&mut self, now: Instant) -> Option<Key> {
        while let Some(entry) = self.delayed.first_entry() {
            let due = entry.key().0;
            if due > now {
                break;
            }
            let key = entry.remove();
            self.make_ready(key, Priority::Background, due, true);
        }
        let Share {
            workers,
            of_namespace,
        } = self.share;
        let key = if self.processing.len() < workers {
            // Without others that wait, a namespace has all workers.
            self.next(of_namespace).or_else(|| self.next(usize::MAX))?
        } else if self.processing.len() < workers.saturating_add(self.uncounted(now)) {
            self.next(of_namespace)?
        } else {
            return None;
        };
        let Ready { since, delayed, .. } = self.dirty.remove(&key)?;
        self.forget_delay(&key);
        *self.busy.entry(key.namespace.clone()).or_default() += 1;
        let taken = Taken {
            waited: now.saturating_duration_since(since),
            since: now,
            delayed,
        };
        self.processing.insert(key.clone(), taken);
        Some(key)
    }

    /// Removes the next key of a namespace of which fewer than `most` are processed.
    fn next(&mut self, most: usize) -> Option<Key> {
        let busy = &self.busy;
        let has_share = |namespace: &Namespace| busy.get(namespace).copied().unwrap_or(0) < most;
        loop {
            let (key, lane) = match self.urgent.pop(has_share) {
                Some(key) => (key, Priority::Event),
                None => (self.background.pop(has_share)?, Priority::Background),
            };
            // A key that moved to the other lane leaves its old entry behind.
            let ready = self.dirty.get(&key);
            if ready.is_some_and(|ready| ready.priority == lane)
                && !self.processing.contains_key(&key)
            {
                return Some(key);
            }
        }
    }

    /// Returns since when keys are processed that are more than the share of their namespaces, the oldest of each
    /// namespace first.
    fn beyond_share(&self) -> impl Iterator<Item = Instant> {
        let most = self.share.of_namespace;
        let over = self.busy.iter().filter(move |(_, count)| **count > most);
        over.flat_map(move |(namespace, count)| {
            let of = self.processing.iter();
            let of = of.filter(|(key, _)| key.namespace == *namespace);
            let mut since: Vec<Instant> = of.map(|(_, taken)| taken.since).collect();
            since.sort_unstable();
            since.truncate(count - most);
            since
        })
    }

    /// Returns the number of keys beyond shares that are processed for long.
    fn uncounted(&self, now: Instant) -> usize {
        let long = |since: &Instant| now.saturating_duration_since(*since) >= LONG;
        self.beyond_share().filter(long).count()
    }

    /// Ends the processing of a key, which becomes ready again if it was added meanwhile.
    pub fn done(&mut self, key: &Key) {
        if self.processing.remove(key).is_some()
            && let Some(busy) = self.busy.get_mut(&key.namespace)
        {
            *busy -= 1;
            if *busy == 0 {
                self.busy.remove(&key.namespace);
            }
        }
        if let Some(ready) = self.dirty.get(key).copied() {
            self.lane(ready.priority).push(key.clone());
        }
    }

    /// Returns how long a key that is processed has waited before.
    pub(crate) fn waited(&self, key: &Key) -> Duration {
        self.processing
            .get(key)
            .map_or(Duration::ZERO, |taken| taken.waited)
    }

    /// Returns whether a key is processed because only its delay has passed.
    pub(crate) fn is_delayed(&self, key: &Key) -> bool {
        self.processing.get(key).is_some_and(|taken| taken.delayed)
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

    /// Returns the time at which a key may be taken without another change: a delayed one, or one that waits for
    /// work of another namespace that takes long.
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        let delayed = self.delayed.first_key_value().map(|((at, _), _)| *at);
        let waits = !self.dirty.is_empty() && self.processing.len() >= self.share.workers;
        let long = waits.then(|| {
            let ends = self.beyond_share().map(|since| since + LONG);
            ends.filter(|end| *end > now).min()
        });
        delayed.into_iter().chain(long.flatten()).min()
    }

    /// Returns when a key is processed next.
    pub(crate) fn turn(&self, key: &Key) -> Turn {
        if self.processing.contains_key(key) {
            return Turn::Now;
        }
        if self.dirty.contains_key(key) {
            return Turn::Ready;
        }
        self.due
            .get(key)
            .map_or(Turn::None, |(at, _)| Turn::At(*at))
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

    fn lane(&mut self, priority: Priority) -> &mut Lane {
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

    use super::{Priority, Queue, Share, Turn};
    use crate::controller::Key;

    fn key(n: u8) -> Key {
        let namespace = if n < 3 { "a" } else { "b" };
        Key::new(Some(namespace), &n.to_string())
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
        assert_eq!(queue.turn(&key(1)), Turn::Now);
        queue.done(&key(1));
        assert_eq!(queue.turn(&key(1)), Turn::Ready);
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
        assert_eq!(queue.next_due(now), Some(now + 2 * second));
        assert_eq!(queue.turn(&key(3)), Turn::At(now + 2 * second));
        assert_eq!(queue.turn(&key(4)), Turn::None);
        assert_eq!(queue.take(now + second), None);
        assert_eq!(queue.take(now + 2 * second), Some(key(3)));
        assert!(queue.is_delayed(&key(3)));
        assert_eq!(queue.next_due(now), None);

        // Something has happened meanwhile, before or after the delay has passed.
        queue.done(&key(3));
        queue.add_at(key(3), now + 3 * second);
        queue.add(key(3), Priority::Background, now);
        assert_eq!(queue.take(now + 3 * second), Some(key(3)));
        assert!(!queue.is_delayed(&key(3)));
        queue.done(&key(3));
        queue.add_at(key(3), now + 4 * second);
        queue.add_at(key(4), now + 4 * second);
        assert_eq!(queue.take(now + 4 * second), Some(key(3)));
        queue.add(key(4), Priority::Background, now + 4 * second);
        assert_eq!(queue.take(now + 4 * second), Some(key(4)));
        assert!(!queue.is_delayed(&key(4)));
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

    fn of(namespace: &str, n: usize) -> Key {
        Key::new(Some(namespace), &n.to_string())
    }

    /// Takes all keys that may be taken, and returns their namespaces.
    fn taken(queue: &mut Queue, now: Instant) -> String {
        let keys = std::iter::from_fn(|| queue.take(now));
        keys.map(|key| key.namespace.unwrap().to_string()).collect()
    }

    #[test]
    fn namespaces_take_turns_and_have_no_more_than_their_share_while_others_wait() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut queue = Queue::default();
        queue.set_share(Share {
            workers: 4,
            of_namespace: 2,
        });
        for n in 0..9 {
            queue.add(of("a", n), Priority::Event, now);
        }
        queue.add(of("b", 0), Priority::Background, now);
        queue.add(of("c", 0), Priority::Event, now);
        // The second key of `b` comes when all workers are busy.
        assert_eq!(taken(&mut queue, now), "acab");
        queue.add(of("b", 1), Priority::Background, now);
        assert_eq!(taken(&mut queue, now), "");
        queue.done(&of("c", 0));
        assert_eq!(taken(&mut queue, now), "b");
        queue.done(&of("b", 0));
        queue.done(&of("b", 1));
        // Nobody else waits.
        assert_eq!(taken(&mut queue, now), "aa");

        // What `a` does for long beyond its share is not counted any more.
        queue.add(of("c", 0), Priority::Background, now);
        queue.add(of("c", 1), Priority::Background, now);
        queue.add(of("c", 2), Priority::Background, now);
        assert_eq!(taken(&mut queue, now), "");
        assert_eq!(queue.next_due(now), Some(now + second));
        assert_eq!(taken(&mut queue, now + second), "cc");
        assert_eq!(queue.next_due(now + second), None);
        assert_eq!(taken(&mut queue, now + 9 * second), "");
        queue.done(&of("a", 0));
        assert_eq!(taken(&mut queue, now + 9 * second), "");
        queue.done(&of("c", 0));
        assert_eq!(taken(&mut queue, now + 9 * second), "c");
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
            queue.set_share(Share { workers: 3, of_namespace: 1 });
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

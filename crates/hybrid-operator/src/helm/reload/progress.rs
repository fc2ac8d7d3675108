//! The order and the limits of a roll-out: which custom resources are reconciled with a changed chart
//! or changed options, and which still with those before. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use operator_runtime::controller::Key;

/// Number of releases whose upgrade may be in progress, and of upgrades that fail in a row before
/// the roll-out halts: a bad chart changes no more releases than that.
pub(super) const LIMIT: usize = 3;

/// The state of a roll-out of `S` over the custom resources of a controller.
pub(super) struct Progress<S> {
    current: Arc<S>,
    /// Custom resources that are still reconciled with an earlier `S`.
    waiting: BTreeMap<Key, Waiting<S>>,
    /// Custom resources whose reconcile with the current `S` has no result yet.
    started: BTreeSet<Key>,
    /// Number of failures since the last success.
    failures: usize,
}

struct Waiting<S> {
    earlier: Arc<S>,
    edition: Edition,
}

/// Identifies a state of what people write into a custom resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edition(pub(super) u64);

/// The result of a reconcile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::helm) enum Verdict {
    /// The inputs of the custom resource are deployed.
    Succeeded,
    /// The release cannot be upgraded.
    Failed,
    /// The upgrade waits, is in progress, or was interrupted.
    #[default]
    Unknown,
    /// There will be no upgrade, whatever the chart is: the custom resource is being deleted, is
    /// paused, or was not reconciled before either.
    Skipped,
}

impl<S> Progress<S> {
    pub(super) fn new(current: Arc<S>) -> Self {
        Self {
            current,
            waiting: BTreeMap::new(),
            started: BTreeSet::new(),
            failures: 0,
        }
    }

    pub(super) fn current(&self) -> &Arc<S> {
        &self.current
    }

    /// Begins a roll-out over the `known` custom resources. Those that still wait in an earlier one
    /// skip that one.
    pub(super) fn replace(&mut self, new: Arc<S>, known: impl IntoIterator<Item = (Key, Edition)>) {
        let before = std::mem::replace(&mut self.current, new);
        let mut earlier = std::mem::take(&mut self.waiting);
        self.waiting = known
            .into_iter()
            .map(|(key, edition)| {
                let waiting = earlier.remove(&key).unwrap_or_else(|| Waiting {
                    earlier: Arc::clone(&before),
                    edition,
                });
                (key, waiting)
            })
            .collect();
        self.started.clear();
        self.failures = 0;
    }

    /// Returns what a custom resource is reconciled with. One that somebody has edited does not wait.
    pub(super) fn of(&mut self, key: &Key, edition: Edition) -> Arc<S> {
        match self.waiting.get(key) {
            Some(waiting) if waiting.edition == edition => Arc::clone(&waiting.earlier),
            Some(_) => {
                self.waiting.remove(key);
                Arc::clone(&self.current)
            }
            None => Arc::clone(&self.current),
        }
    }

    /// Forgets a custom resource that is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        self.waiting.remove(key);
        self.started.remove(key);
    }

    /// Takes the custom resource whose turn it is, if the limits allow another one.
    pub(super) fn next(&mut self) -> Option<Key> {
        // Those in progress may all fail.
        if self.failures + self.started.len() >= LIMIT {
            return None;
        }
        let (key, _) = self.waiting.pop_first()?;
        self.started.insert(key.clone());
        Some(key)
    }

    /// Records the result of a reconcile. Returns whether it halts the roll-out.
    pub(super) fn ended(&mut self, key: &Key, verdict: Verdict) -> bool {
        if verdict == Verdict::Unknown || !self.started.remove(key) {
            return false;
        }
        match verdict {
            Verdict::Unknown | Verdict::Skipped => false,
            Verdict::Succeeded => {
                self.failures = 0;
                false
            }
            Verdict::Failed => {
                self.failures += 1;
                self.failures == LIMIT && !self.waiting.is_empty()
            }
        }
    }

    /// Iterates over the custom resources that were given their turn and have no result yet.
    pub(super) fn started(&self) -> impl Iterator<Item = &Key> {
        self.started.iter()
    }

    /// Iterates over the custom resources that wait, in the order of their turns.
    pub(super) fn waiting_keys(&self) -> impl Iterator<Item = &Key> {
        self.waiting.keys()
    }

    /// Returns whether custom resources wait that get no turn any more.
    pub(super) fn is_halted(&self) -> bool {
        self.failures >= LIMIT && !self.waiting.is_empty()
    }

    /// Returns whether a custom resource was given its turn and has no result yet.
    pub(super) fn is_started(&self, key: &Key) -> bool {
        self.started.contains(key)
    }

    /// Returns the number of custom resources that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Edition, LIMIT, Progress, Verdict};
    use operator_runtime::controller::Key;

    const UNEDITED: Edition = Edition(0);

    fn key(name: &str) -> Key {
        Key::new(Some("ns"), name)
    }

    fn known(names: &[&str]) -> Vec<(Key, Edition)> {
        names.iter().map(|name| (key(name), UNEDITED)).collect()
    }

    /// A roll-out of version 2 over these custom resources, which had version 1.
    fn rollout(names: &[&str]) -> Progress<u8> {
        let mut progress = Progress::new(Arc::new(1));
        progress.replace(Arc::new(2), known(names));
        progress
    }

    fn version(progress: &mut Progress<u8>, name: &str) -> u8 {
        *progress.of(&key(name), UNEDITED)
    }

    /// Ends the reconcile whose turn it is. Returns whether that halts the roll-out.
    fn end(progress: &mut Progress<u8>, verdict: Verdict) -> bool {
        let key = progress.next().unwrap();
        progress.ended(&key, verdict)
    }

    #[test]
    fn each_waits_for_its_turn_in_the_order_of_their_names() {
        let mut progress = rollout(&["b", "a", "c"]);
        let versions = |progress: &mut Progress<u8>| ["a", "b", "c"].map(|n| version(progress, n));
        assert_eq!(versions(&mut progress), [1, 1, 1]);
        assert_eq!(progress.next(), Some(key("a")));
        assert_eq!(versions(&mut progress), [2, 1, 1]);
        assert_eq!(version(&mut progress, "new"), 2, "created meanwhile");
        assert_eq!(progress.next(), Some(key("b")));
        assert_eq!(progress.next(), Some(key("c")));
        assert_eq!((progress.next(), progress.waiting()), (None, 0));
    }

    #[test]
    fn an_edited_custom_resource_does_not_wait() {
        let mut progress = rollout(&["a", "b"]);
        assert_eq!(*progress.of(&key("b"), Edition(7)), 2);
        assert_eq!(version(&mut progress, "b"), 2, "from then on");
        assert_eq!(progress.next(), Some(key("a")));
        assert_eq!(progress.next(), None);
    }

    #[test]
    fn no_more_than_the_limit_are_in_progress() {
        let mut progress = rollout(&["a", "b", "c", "d"]);
        for _ in 0..LIMIT {
            assert!(progress.next().is_some());
        }
        assert_eq!(progress.next(), None);
        assert!(!progress.ended(&key("a"), Verdict::Unknown));
        assert_eq!(progress.next(), None);
        assert!(!progress.ended(&key("b"), Verdict::Failed));
        assert_eq!(progress.next(), None, "the others may fail, too");
        assert!(!progress.ended(&key("c"), Verdict::Succeeded));
        assert_eq!(progress.next(), Some(key("d")));
        progress.forget(&key("a"));
        assert!(!progress.is_started(&key("a")));
    }

    #[test]
    fn those_that_are_not_upgraded_hold_no_place_and_count_neither_way() {
        let mut progress = rollout(&["a", "b", "c", "d", "e", "f", "g", "h"]);
        for _ in 0..LIMIT {
            assert!(!end(&mut progress, Verdict::Skipped));
        }
        assert!(!end(&mut progress, Verdict::Failed));
        assert!(!end(&mut progress, Verdict::Failed));
        assert!(!end(&mut progress, Verdict::Skipped));
        let third = end(&mut progress, Verdict::Failed);
        assert!(third, "the third failure in a row");
        assert_eq!((progress.next(), progress.waiting()), (None, 1));
        assert!(progress.is_halted());
    }

    #[test]
    fn failures_in_a_row_halt_it_until_the_next_change() {
        let mut progress = rollout(&["a", "b", "c", "d", "e", "f"]);
        assert!(!end(&mut progress, Verdict::Failed));
        assert!(!end(&mut progress, Verdict::Succeeded));
        assert!(!end(&mut progress, Verdict::Failed));
        assert!(!end(&mut progress, Verdict::Failed));
        assert!(end(&mut progress, Verdict::Failed));
        assert_eq!((progress.next(), progress.waiting()), (None, 1));
        assert_eq!(version(&mut progress, "f"), 1);
        progress.replace(Arc::new(3), known(&["a", "f"]));
        assert_eq!(version(&mut progress, "a"), 2);
        assert_eq!(version(&mut progress, "f"), 1, "skips the bad version");
        assert_eq!(progress.next(), Some(key("a")));
        assert_eq!(version(&mut progress, "a"), 3);
    }
}

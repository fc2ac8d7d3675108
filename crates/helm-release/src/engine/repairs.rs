//! Counts the repairs of each object, to stop repairing fields that another client keeps changing
//! while others are still repaired. No I/O.
//!
//! Repairs are counted per object and hash of the operator's fields left on it when it was repaired
//! (`Live::drifted_states`). A client that changes the same fields again leaves the same hash, so a
//! conflict over one field has one counter, and repairs of other fields and objects are counted
//! separately.

use std::collections::BTreeMap;
use std::time::Duration;

use helm_core::manifest::ObjectKey;
use jiff::Timestamp;

/// Maximum number of repairs of an object in the same state within [`WINDOW`].
const MAX_REPAIRS: usize = 5;

/// Time that a repair counts.
const WINDOW: Duration = Duration::from_mins(10);

/// Maximum number of remembered objects and states. Beyond it, the one with the oldest last repair
/// is dropped.
const MAX_ENTRIES: usize = 2_000;

/// Repairs of the objects of one release.
#[derive(Debug, Clone, Default)]
pub(super) struct RepairBudget {
    repairs: BTreeMap<(ObjectKey, Option<u64>), Vec<Timestamp>>,
}

impl RepairBudget {
    /// Counts a repair of an object that was in this state; `None` if it was deleted.
    pub(super) fn record(&mut self, key: &ObjectKey, state: Option<u64>, now: Timestamp) {
        self.repairs.retain(|_, times| {
            times.retain(|at| counts(*at, now));
            !times.is_empty()
        });
        let times = self.repairs.entry((key.clone(), state)).or_default();
        times.push(now);
        // Older times do not matter once the limit is reached.
        if times.len() > MAX_REPAIRS {
            times.remove(0);
        }
        if self.repairs.len() > MAX_ENTRIES {
            let last = |times: &Vec<Timestamp>| times.last().copied();
            let oldest = self.repairs.iter().min_by_key(|(_, times)| last(times));
            if let Some(oldest) = oldest.map(|(entry, _)| entry.clone()) {
                self.repairs.remove(&oldest);
            }
        }
    }

    /// Returns whether an object in this state has reached the limit of repairs.
    pub(super) fn exhausted(&self, key: &ObjectKey, state: Option<u64>, now: Timestamp) -> bool {
        self.repairs
            .get(&(key.clone(), state))
            .is_some_and(|times| times.iter().filter(|at| counts(**at, now)).count() >= MAX_REPAIRS)
    }
}

/// Returns whether a repair is recent enough to count. One in the future, from a clock that was set
/// back, counts likewise.
fn counts(at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(at).unsigned_abs() < WINDOW
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(name: &str) -> ObjectKey {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                            "metadata": {"name": name, "namespace": "n"}});
        ObjectKey::of(&object).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    /// Returns a budget after repairs, given as object, state and time in seconds.
    fn after(repairs: &[(&str, Option<u64>, i64)]) -> RepairBudget {
        let mut budget = RepairBudget::default();
        for (name, state, seconds) in repairs {
            budget.record(&key(name), *state, at(*seconds));
        }
        budget
    }

    #[test]
    fn same_fields_of_an_object_are_repaired_at_most_five_times_in_ten_minutes() {
        let same: Vec<_> = (0..5).map(|n| ("a", Some(7), n * 60)).collect();
        let gone: Vec<_> = (0..5).map(|n| ("a", None, n)).collect();
        let other_fields: Vec<_> = (0..12).map(|n| ("a", Some(n), 0)).collect();
        let slow: Vec<_> = (0..12).map(|n| ("a", Some(7), n * 151)).collect();
        let late: Vec<_> = (0..9).map(|n| ("a", Some(7), n)).collect();
        for (what, repairs, asked, now, exhausted) in [
            ("nothing yet", &[][..], ("a", Some(7)), 0, false),
            ("four times", &same[..4], ("a", Some(7)), 240, false),
            ("five times", &same, ("a", Some(7)), 240, true),
            ("just within ten minutes", &same, ("a", Some(7)), 599, true),
            (
                "the first is ten minutes ago",
                &same,
                ("a", Some(7)),
                600,
                false,
            ),
            ("other fields of it", &same, ("a", Some(8)), 240, false),
            ("it is gone", &same, ("a", None), 240, false),
            ("another object", &same, ("b", Some(7)), 240, false),
            ("gone each time", &gone, ("a", None), 5, true),
            (
                "twelve different fields",
                &other_fields,
                ("a", Some(3)),
                1,
                false,
            ),
            (
                "twelve times, but slowly",
                &slow,
                ("a", Some(7)),
                1661,
                false,
            ),
            ("all the time", &late, ("a", Some(7)), 602, true),
            ("the clock was set back", &same, ("a", Some(7)), -60, true),
        ] {
            let (name, state) = asked;
            let found = after(repairs).exhausted(&key(name), state, at(now));
            assert_eq!(found, exhausted, "{what}");
        }
    }

    #[test]
    fn expired_repairs_are_dropped() {
        let mut budget = after(&[("a", None, 0), ("b", None, 1)]);
        budget.record(&key("c"), None, at(600));
        let names: Vec<&str> = budget.repairs.keys().map(|(key, _)| &*key.name).collect();
        assert_eq!(names, ["b", "c"]);
    }

    #[test]
    fn memory_is_bounded_and_latest_repairs_are_kept() {
        let mut budget = RepairBudget::default();
        for n in 0..5 {
            budget.record(&key("fought"), Some(1), at(n));
        }
        for n in 0..MAX_ENTRIES {
            let state = u64::try_from(n).unwrap();
            budget.record(&key("quiet"), Some(state), at(5));
        }
        assert_eq!(budget.repairs.len(), MAX_ENTRIES);
        assert!(!budget.exhausted(&key("fought"), Some(1), at(6)));
        for n in 0..20 {
            budget.record(&key("fought"), Some(1), at(6 + n));
        }
        assert_eq!(budget.repairs.len(), MAX_ENTRIES);
        assert!(budget.exhausted(&key("fought"), Some(1), at(26)));
        assert!(
            budget
                .repairs
                .values()
                .all(|times| times.len() <= MAX_REPAIRS)
        );
    }
}

//! Tells a permanent failure from one that passes, where the answer of the API server does not: what
//! comes back the same [`TIMES`] times with pauses between is permanent. Pure.
//!
//! The count belongs to the memory of an owner: after a restart the failure has to come back as
//! often again.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

/// Number of times an unexplained failure must come back until it is permanent.
const TIMES: u32 = 3;
/// The least time between two failures that count. A change of the leader of etcd takes a few seconds,
/// and events trigger further attempts in between.
const BETWEEN: SignedDuration = SignedDuration::from_secs(5);

/// The last unexplained failure of a release.
#[derive(Debug, Clone, Default)]
pub(super) struct Repetition(Option<Failed>);

#[derive(Debug, Clone)]
struct Failed {
    /// The words of the message. Their order and numbers vary: the API server goes through the fields of
    /// an object in a random order.
    words: BTreeSet<String>,
    times: u32,
    counted: Timestamp,
}

impl Repetition {
    /// Records an unexplained failure. Returns whether it is permanent.
    pub(super) fn failed(&mut self, message: &str, now: Timestamp) -> bool {
        let words: BTreeSet<String> = words(message).map(ToOwned::to_owned).collect();
        match &mut self.0 {
            Some(known) if known.words == words => {
                if now.duration_since(known.counted) >= BETWEEN {
                    known.times = known.times.saturating_add(1);
                    known.counted = now;
                }
                known.times >= TIMES
            }
            other => {
                *other = Some(Failed {
                    words,
                    times: 1,
                    counted: now,
                });
                false
            }
        }
    }

    /// Forgets the failure, because something else happened since.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }
}

/// Returns whether two messages are about the same failure.
pub fn is_same(message: &str, other: &str) -> bool {
    let set = |message| words(message).collect::<BTreeSet<_>>();
    set(message) == set(other)
}

fn words(message: &str) -> impl Iterator<Item = &str> {
    message.split(|c: char| !c.is_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn failure_is_permanent_when_it_has_come_back_three_times_with_pauses() {
        let mut known = Repetition::default();
        let seen = |second| known.failed("etcd", at(second));
        let permanent: Vec<bool> = [0, 1, 2, 5, 6, 9, 10].map(seen).to_vec();
        let expected = [false, false, false, false, false, false, true];
        assert_eq!(permanent, expected);
    }

    #[test]
    fn numbers_and_the_order_of_the_errors_do_not_tell_failures_apart() {
        let mut known = Repetition::default();
        let messages = [
            ".a: byte 3; .b: byte 19",
            ".b: byte 19; .a: byte 3",
            ".a: byte 4; .b: byte 3",
        ];
        let seen = |(message, second)| known.failed(message, at(second));
        let permanent = messages.into_iter().zip([0, 5, 10]).map(seen).last();
        assert_eq!(permanent, Some(true));
    }

    #[test]
    fn another_failure_or_a_success_begins_anew() {
        let mut known = Repetition::default();
        for (second, what) in [(0, "a"), (5, "a"), (10, "b"), (15, "a"), (20, "a")] {
            assert!(!known.failed(what, at(second)), "{second}");
        }
        known.forget();
        assert!(!known.failed("a", at(25)));
    }
}

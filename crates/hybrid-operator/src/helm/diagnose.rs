//! When to find out why a release is not ready: once it has been unready for a while, and then less
//! and less often. In between nothing is read.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::memory::Memory;
use super::status::Status;
use super::subject::Subject;
use crate::diagnosis::{self, Cause};

/// How long a release may be unready before its Pods and events are read.
const PATIENCE: SignedDuration = SignedDuration::from_secs(10);
/// Maximum time between two diagnoses.
const MAX_INTERVAL: SignedDuration = SignedDuration::from_mins(5);

/// Why a release is not ready, as last found.
#[derive(Debug, Clone, Default)]
pub(super) struct Diagnosis {
    /// Revision that is not ready.
    revision: Option<u32>,
    /// Number of diagnoses of this revision since it became unready.
    runs: u32,
    /// When to look next; `None` if the release is ready.
    next: Option<Timestamp>,
    /// The result of the last one.
    pub(super) cause: Option<Cause>,
}

impl Diagnosis {
    /// Begins with a revision that is not ready, or continues with it. `since` is when the status
    /// says it became unready, which a restart of the operator does not change.
    fn observe(
        &mut self,
        revision: Option<u32>,
        since: Option<Timestamp>,
        now: Timestamp,
    ) -> Timestamp {
        match self.next {
            Some(next) if self.revision == revision => next,
            known => {
                // The condition may have been false before this revision began.
                let since = since.filter(|_| known.is_none()).unwrap_or(now);
                let next = since + PATIENCE;
                *self = Self {
                    revision,
                    runs: 0,
                    next: Some(next),
                    cause: None,
                };
                next
            }
        }
    }

    /// Records the result of a diagnosis. The next one is due after 10 s, 20 s, 40 s and so on.
    fn found(&mut self, cause: Option<Cause>, now: Timestamp) -> Timestamp {
        let interval = PATIENCE
            .saturating_mul(1 << self.runs.min(8))
            .min(MAX_INTERVAL);
        let next = now + interval;
        self.runs = self.runs.saturating_add(1);
        self.next = Some(next);
        self.cause = cause;
        next
    }
}

/// Finds out why the release is not ready, if that is due. `logs` tells
/// whether the logs of crashed containers may be shown. Returns in which time it is due next;
/// `None` if the release waits for no object.
pub(super) async fn update(
    subject: &Subject,
    memory: &mut Memory,
    status: &Status,
    logs: bool,
) -> Option<Duration> {
    let awaited = memory.live.awaited();
    if awaited.is_empty() {
        memory.diagnosis = Diagnosis::default();
        return None;
    }
    let now = subject.now;
    let (revision, since) = (memory.live.revision, status.unready_since());
    let mut next = memory.diagnosis.observe(revision, since, now);
    if next <= now {
        let cause = diagnosis::cause(&subject.cluster, &awaited, logs).await;
        next = memory.diagnosis.found(cause, now);
    }
    Some(next.duration_since(now).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_release_is_examined_after_ten_seconds_and_then_less_and_less_often() {
        let mut diagnosis = Diagnosis::default();
        assert_eq!(diagnosis.observe(Some(1), None, at(100)), at(110));
        // Events in between do not postpone it.
        assert_eq!(diagnosis.observe(Some(1), Some(at(100)), at(105)), at(110));
        let mut now = at(110);
        for interval in [10, 20, 40, 80, 160, 300, 300] {
            let next = diagnosis.found(None, now);
            assert_eq!(next, now + SignedDuration::from_secs(interval));
            now = next;
        }
    }

    #[test]
    fn after_a_restart_the_time_that_the_status_tells_counts() {
        let mut diagnosis = Diagnosis::default();
        assert_eq!(diagnosis.observe(Some(1), Some(at(50)), at(100)), at(60));
    }

    #[test]
    fn another_revision_gets_its_own_time() {
        let mut diagnosis = Diagnosis::default();
        diagnosis.observe(Some(1), None, at(100));
        let cause = Cause {
            reason: crate::reasons::Reason::CrashLoop,
            message: String::new(),
        };
        diagnosis.found(Some(cause), at(110));
        assert_eq!(diagnosis.observe(Some(2), Some(at(100)), at(111)), at(121));
        assert_eq!(diagnosis.cause, None);
    }
}

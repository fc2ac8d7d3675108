//! The events that this process has published, for people who look. The API server keeps the others.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use kube::runtime::events::{Event, EventType};
use parking_lot::Mutex;
use serde::Serialize;

/// Number of events that are kept for all custom resources together.
const MAX: usize = 2000;

/// The newest events of a process. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct RecentEvents(Arc<Mutex<VecDeque<Published>>>);

/// An event, and its repetitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Published {
    #[serde(skip)]
    uid: String,
    warning: bool,
    reason: String,
    note: String,
    count: u32,
    last: Timestamp,
}

impl RecentEvents {
    /// Adds an event about the object with this uid, or counts it in the newest one of the object if they are equal.
    pub(in crate::helm) fn add(&self, uid: &str, event: &Event, now: Timestamp) {
        let mut events = self.0.lock();
        let published = Published {
            uid: uid.to_owned(),
            warning: matches!(event.type_, EventType::Warning),
            reason: event.reason.clone(),
            note: event.note.clone().unwrap_or_default(),
            count: 1,
            last: now,
        };
        let newest = events.iter_mut().rev().find(|known| known.uid == uid);
        if let Some(newest) = newest
            && (&newest.reason, &newest.note) == (&published.reason, &published.note)
        {
            newest.count += 1;
            newest.last = now;
            return;
        }
        if events.len() == MAX {
            events.pop_front();
        }
        events.push_back(published);
    }

    /// Returns the events about an object, the newest first.
    pub(super) fn of(&self, uid: &str) -> Vec<Published> {
        let events = self.0.lock();
        let mut found: Vec<_> = events.iter().filter(|event| event.uid == uid).collect();
        found.sort_by_key(|event| std::cmp::Reverse(event.last));
        found.into_iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use kube::runtime::events::{Event, EventType};

    use super::{MAX, RecentEvents};

    #[test]
    fn repeated_events_are_counted_and_the_oldest_are_dropped() {
        let events = RecentEvents::default();
        let add = |uid: &str, note: &str, second: i64| {
            let event = Event {
                type_: EventType::Warning,
                reason: "Reason".to_owned(),
                note: Some(note.to_owned()),
                action: String::new(),
                secondary: None,
            };
            events.add(uid, &event, Timestamp::from_second(second).unwrap());
        };
        add("a", "first", 1);
        add("b", "other", 2);
        add("a", "first", 3);
        add("a", "second", 4);
        let notes = |uid: &str| -> Vec<(String, u32)> {
            let found = events.of(uid).into_iter();
            found.map(|event| (event.note, event.count)).collect()
        };
        let expected = [("second".to_owned(), 1), ("first".to_owned(), 2)];
        assert_eq!(notes("a"), expected);
        for number in 0..MAX {
            add("c", &number.to_string(), 5);
        }
        assert_eq!(notes("a"), []);
        assert_eq!(notes("c").len(), MAX);
    }
}

//! Small LRU cache of encoded records, which saves reading records that were just written.

use std::collections::VecDeque;
use std::sync::Arc;

/// LRU cache of records with a limit in bytes.
#[derive(Debug)]
pub(super) struct Lru {
    /// Ordered from least to most recently used.
    records: VecDeque<(Key, Arc<str>)>,
    bytes: usize,
    limit: usize,
}

/// Uid and resource version; the content for a key never changes.
type Key = (String, String);

impl Lru {
    /// Returns an empty cache for at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            records: VecDeque::new(),
            bytes: 0,
            limit,
        }
    }

    /// Adds a record, evicting the least recently used ones beyond the limit.
    pub(super) fn put(&mut self, uid: &str, version: &str, record: Arc<str>) {
        self.forget(uid);
        if record.len() > self.limit {
            return;
        }
        self.bytes += record.len();
        self.records
            .push_back(((uid.to_owned(), version.to_owned()), record));
        while self.bytes > self.limit {
            let Some((_, oldest)) = self.records.pop_front() else {
                return;
            };
            self.bytes -= oldest.len();
        }
    }

    /// Returns a record and marks it as used.
    pub(super) fn get(&mut self, uid: &str, version: &str) -> Option<Arc<str>> {
        let at = self
            .records
            .iter()
            .position(|((u, v), _)| u == uid && v == version)?;
        let found = self.records.remove(at)?;
        let record = Arc::clone(&found.1);
        self.records.push_back(found);
        Some(record)
    }

    /// Removes all versions of a record.
    pub(super) fn forget(&mut self, uid: &str) {
        let bytes = &mut self.bytes;
        self.records.retain(|((known, _), record)| {
            let keep = known != uid;
            if !keep {
                *bytes -= record.len();
            }
            keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_record_is_evicted_first() {
        let mut lru = Lru::new(10);
        lru.put("a", "1", "aaaa".into());
        lru.put("b", "1", "bbbb".into());
        assert!(lru.get("a", "1").is_some());
        lru.put("c", "1", "cccc".into());
        assert!(lru.get("b", "1").is_none());
        assert!(lru.get("a", "1").is_some());
        assert_eq!(lru.bytes, 8);
    }

    #[test]
    fn only_the_last_version_of_a_record_is_kept() {
        let mut lru = Lru::new(10);
        lru.put("a", "1", "aaaa".into());
        lru.put("a", "2", "aaaaaa".into());
        assert!(lru.get("a", "1").is_none());
        assert_eq!(lru.get("a", "2").as_deref(), Some("aaaaaa"));
        lru.forget("a");
        assert_eq!((lru.bytes, lru.records.len()), (0, 0));
    }

    #[test]
    fn records_larger_than_the_cache_are_not_kept() {
        let mut lru = Lru::new(3);
        lru.put("a", "1", "aaaa".into());
        assert!(lru.get("a", "1").is_none());
        assert_eq!(lru.bytes, 0);
    }
}

//! Per-thread cache of the most recently used compiled patterns, so that loops in templates do not
//! compile them again and threads do not contend.

use std::cell::RefCell;
use std::rc::Rc;

use super::{Error, Regexp};

/// Number of patterns per thread.
const CAPACITY: usize = 32;
/// Longer patterns are not cached, to bound the memory; they are rare.
const MAX_PATTERN_LENGTH: usize = 1024;

/// The most recently used pattern is last.
type Entries = Vec<(Box<[u8]>, Rc<Regexp>)>;

thread_local! {
    static CACHE: RefCell<Entries> = const { RefCell::new(Vec::new()) };
}

/// Returns the compiled pattern, from this thread's cache if possible.
pub fn cached(pattern: &[u8]) -> Result<Rc<Regexp>, Error> {
    let known = CACHE.with_borrow_mut(|kept| {
        let at = kept
            .iter()
            .rposition(|(known, _)| known.as_ref() == pattern)?;
        let entry = kept.remove(at);
        let regexp = Rc::clone(&entry.1);
        kept.push(entry);
        Some(regexp)
    });
    if let Some(regexp) = known {
        return Ok(regexp);
    }
    let regexp = Rc::new(Regexp::new(pattern)?);
    if pattern.len() <= MAX_PATTERN_LENGTH {
        CACHE.with_borrow_mut(|kept| {
            if kept.len() >= CAPACITY {
                kept.remove(0);
            }
            kept.push((pattern.into(), Rc::clone(&regexp)));
        });
    }
    Ok(regexp)
}

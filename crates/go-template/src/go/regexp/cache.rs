//! Keeps the compiled patterns that a thread used last, so that loops over templates do not compile
//! them again. Each thread has its own, so that none waits for another.

use std::cell::RefCell;
use std::rc::Rc;

use super::{Error, Regexp};

/// How many patterns a thread keeps.
const KEPT: usize = 32;
/// Longer patterns are compiled each time: they are rare, and must not fill the memory.
const LONGEST: usize = 1024;

/// The most recently used pattern is the last.
type Kept = Vec<(Box<[u8]>, Rc<Regexp>)>;

thread_local! {
    static CACHE: RefCell<Kept> = const { RefCell::new(Vec::new()) };
}

/// The compiled pattern, from the cache of this thread if it is there.
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
    if pattern.len() <= LONGEST {
        CACHE.with_borrow_mut(|kept| {
            if kept.len() >= KEPT {
                kept.remove(0);
            }
            kept.push((pattern.into(), Rc::clone(&regexp)));
        });
    }
    Ok(regexp)
}

//! Per-thread cache of the most recently used compiled patterns, so that loops in templates do not
//! compile them again and threads do not contend.

use std::cell::RefCell;
use std::rc::Rc;

use bounded::{Budget, BudgetError};

use super::{Error, Regexp};

/// Number of patterns per thread.
const CAPACITY: usize = 32;
/// Longer patterns are not cached, to bound the memory; they are rare.
const MAX_PATTERN_LENGTH: usize = 1024;
/// Larger automata are not cached, in bytes.
const MAX_MEMORY: usize = 256 << 10;
/// Compiling a byte of a pattern takes about as long as this many steps.
const STEPS_PER_BYTE: u64 = 16;
/// Compiling an automaton of this many bytes takes about as long as a step.
const BYTES_PER_STEP: u64 = 16;

/// The most recently used pattern is last.
type Entries = Vec<(Box<[u8]>, Rc<Regexp>)>;

thread_local! {
    static CACHE: RefCell<Entries> = const { RefCell::new(Vec::new()) };
}

/// Returns the compiled pattern, from this thread's cache if possible. Compiling counts as work,
/// and so does failing.
///
/// # Errors
/// The outer error is an exceeded limit.
pub fn cached(pattern: &[u8], budget: &Budget) -> Result<Result<Rc<Regexp>, Error>, BudgetError> {
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
        return Ok(Ok(regexp));
    }
    budget.slow((pattern.len() as u64).saturating_mul(STEPS_PER_BYTE))?;
    let regexp = match Regexp::new(pattern) {
        Ok(regexp) => Rc::new(regexp),
        Err(error) => return Ok(Err(error)),
    };
    let memory = regexp.memory();
    budget.regex(memory)?;
    budget.memory(memory)?;
    budget.slow(memory as u64 / BYTES_PER_STEP)?;
    if pattern.len() <= MAX_PATTERN_LENGTH && memory <= MAX_MEMORY {
        CACHE.with_borrow_mut(|kept| {
            if kept.len() >= CAPACITY {
                kept.remove(0);
            }
            kept.push((pattern.into(), Rc::clone(&regexp)));
        });
    }
    Ok(Ok(regexp))
}

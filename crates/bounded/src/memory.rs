//! Counts the bytes that the values of a thread hold.
//!
//! Values report what they allocate and what they free: [`hold`] and [`release`], or a [`Held`]
//! that does both. A [`Scope`], which every [`Budget`](crate::Budget) opens, limits what is held
//! in addition to what was held before.
//!
//! The count belongs to a thread. A value that is freed by another thread than it was created by
//! distorts the counts of both; since a scope only counts from its start, this does not matter as
//! long as no scope is open.

use std::cell::Cell;

use crate::budget::BudgetError;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(i64::MAX) };
    /// The limit of the strictest scope.
    static LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Counts `bytes` as allocated.
#[inline]
pub fn hold(bytes: usize) {
    HELD.set(HELD.get().saturating_add(signed(bytes)));
}

/// Counts `bytes` as freed.
#[inline]
pub fn release(bytes: usize) {
    // Values may outlive the counters at the end of a thread.
    let _ = HELD.try_with(|held| held.set(held.get().saturating_sub(signed(bytes))));
}

/// Returns whether `bytes` more may be allocated.
#[inline]
pub fn fits(bytes: usize) -> bool {
    HELD.get().saturating_add(signed(bytes)) <= MOST.get()
}

/// Returns the error for memory that does not fit.
#[cold]
pub fn exceeded() -> BudgetError {
    BudgetError::Memory { limit: LIMIT.get() }
}

/// A limit on what a thread holds. When it is dropped, the limit before it applies again; scopes
/// must be dropped in the reverse order of their creation.
#[derive(Debug)]
pub struct Scope {
    before: (i64, usize),
}

impl Scope {
    /// Limits the memory to `bytes` more than what is held now. A stricter limit stays.
    pub fn open(bytes: usize) -> Self {
        let before = (MOST.get(), LIMIT.get());
        let most = HELD.get().saturating_add(signed(bytes));
        if most < before.0 {
            MOST.set(most);
            LIMIT.set(bytes);
        }
        Self { before }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        MOST.set(self.before.0);
        LIMIT.set(self.before.1);
    }
}

/// Memory that is counted until it is dropped.
#[derive(Debug, Default)]
pub struct Held(usize);

impl Held {
    /// Counts `bytes` as allocated.
    pub fn new(bytes: usize) -> Self {
        hold(bytes);
        Self(bytes)
    }

    /// Counts `bytes` more.
    #[inline]
    pub fn add(&mut self, bytes: usize) {
        hold(bytes);
        self.0 = self.0.saturating_add(bytes);
    }

    /// Changes the count to `bytes`.
    #[inline]
    pub fn set(&mut self, bytes: usize) {
        if bytes >= self.0 {
            hold(bytes - self.0);
        } else {
            release(self.0 - bytes);
        }
        self.0 = bytes;
    }
}

/// A copy of a value needs memory of its own.
impl Clone for Held {
    fn clone(&self) -> Self {
        Self::new(self.0)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        release(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_limits_what_is_held_after_its_start() {
        let before = Held::new(1_000);
        let scope = Scope::open(100);
        assert!(fits(100) && !fits(101));
        let held = Held::new(60);
        assert!(fits(40) && !fits(41));
        drop(held);
        assert!(fits(100));
        drop(scope);
        assert!(fits(1 << 40));
        drop(before);
    }

    #[test]
    fn inner_scope_does_not_raise_the_limit() {
        let outer = Scope::open(100);
        let inner = Scope::open(1_000);
        assert!(!fits(101));
        drop(inner);
        let inner = Scope::open(10);
        assert!(!fits(11));
        drop(inner);
        assert!(fits(100));
        drop(outer);
    }
}

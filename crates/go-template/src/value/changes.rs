//! Counts what makes a template print something else for the same data: maps that are written to, and
//! results that vary.

use std::cell::Cell;

thread_local! {
    static CHANGES: Cell<Changes> = const { Cell::new(Changes { writes: 0, variations: 0 }) };
    /// Whether all maps are watched.
    static ALL: Cell<bool> = const { Cell::new(false) };
}

/// The counts of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Number of changes of maps and lists that others can see.
    pub(crate) writes: u64,
    /// Number of reads of something that is not the same each time.
    pub(crate) variations: u64,
}

/// Returns the current counts.
#[inline]
pub(crate) fn changes() -> Changes {
    CHANGES.get()
}

/// Counts a write.
pub(super) fn write() {
    let now = CHANGES.get();
    CHANGES.set(Changes {
        writes: now.writes + 1,
        ..now
    });
}

/// Counts something that is not the same each time.
pub(crate) fn vary() {
    let now = CHANGES.get();
    CHANGES.set(Changes {
        variations: now.variations + 1,
        ..now
    });
}

/// Makes the changes of all maps count as writes.
pub(super) fn watch_all() {
    ALL.set(true);
}

/// Makes only the changes of watched maps count as writes.
pub(crate) fn watch_none() {
    ALL.set(false);
}

/// Returns whether the changes of all maps count as writes.
pub(super) fn watches_all() -> bool {
    ALL.get()
}

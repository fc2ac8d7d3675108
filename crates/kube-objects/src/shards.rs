//! Shares the objects of a cluster among processes, by ranges of the hash of their namespaces.
//!
//! ```text
//! join ──> its objects are listed ──> held ──> leave ──> work in progress ends ──> its objects are dropped
//! ```
//!
//! The API server selects the objects that it sends (KEP-5866). One without that feature sends all, so that each object
//! is checked in any case.

mod select;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fnv::FnvHasher;
use host::watch;
use parking_lot::Mutex;
use tokio::sync::Notify;

pub use select::{By, Share};

/// The ranges of this process. Clones share them.
#[derive(Clone, Default)]
pub struct Shards(Option<Arc<Inner>>);

struct Inner {
    count: u32,
    state: Mutex<State>,
    selection: watch::Sender<Selection>,
    /// Notified when work on a range ends that this process leaves.
    idle: Notify,
    /// Whether it is logged that the API server selects nothing.
    is_told: AtomicBool,
}

#[derive(Default)]
struct State {
    ranges: BTreeMap<u32, Range>,
    /// Open watches, by number.
    watches: BTreeMap<u64, Listing>,
    opened: u64,
    listeners: Vec<Listener>,
}

type Listener = Arc<dyn Fn() + Send + Sync>;

/// A range of this process.
struct Range {
    phase: Phase,
    /// Number of keys that are processed.
    running: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Not all watches have listed the selection of this version, or a later one.
    Joining(u64),
    Held,
    Leaving,
}

/// Progress of a watch.
struct Listing {
    version: u64,
    is_failing: bool,
    /// Whether nothing of a range is handled before the watch has listed it.
    is_required: bool,
}

impl Listing {
    fn has_listed(&self, version: u64) -> bool {
        self.version >= version || (self.is_failing && !self.is_required)
    }
}

/// The ranges whose objects are watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Selection {
    version: u64,
    count: u32,
    ranges: BTreeSet<u32>,
}

impl Selection {
    /// Returns whether the objects of a namespace are selected; `None` is that of cluster-scoped objects.
    fn has(&self, namespace: Option<&str>) -> bool {
        self.ranges.contains(&range_of(self.count, namespace))
    }

    /// Returns the value of `shardSelector`.
    fn selector(&self) -> String {
        let ranges = self.ranges.iter().map(|index| {
            let start = start_of(self.count, *index);
            let end = start_of(self.count, *index + 1);
            format!("shardRange(object.metadata.namespace, '0x{start:016x}', '0x{end:016x}')")
        });
        ranges.collect::<Vec<_>>().join(" || ")
    }
}

/// Returns the range of a namespace, of this number of ranges; `None` is that of cluster-scoped objects.
pub fn range_of(count: u32, namespace: Option<&str>) -> u32 {
    let mut hasher = FnvHasher::default();
    hasher.write(namespace.unwrap_or_default().as_bytes());
    let index = (u128::from(hasher.finish()) * u128::from(count)) >> 64;
    u32::try_from(index).unwrap_or_default()
}

/// Returns the first hash of a range.
fn start_of(count: u32, index: u32) -> u128 {
    (u128::from(index) << 64).div_ceil(u128::from(count.max(1)))
}

/// The right to process a key: a range is not left before it is dropped.
#[derive(Debug)]
pub struct Permit(Option<(Shards, u32)>);

impl Drop for Permit {
    fn drop(&mut self) {
        let Some((shards, index)) = self.0.take() else {
            return;
        };
        let Some(inner) = &shards.0 else { return };
        if let Some(range) = inner.state.lock().ranges.get_mut(&index) {
            range.running -= 1;
        }
        inner.idle.notify_one();
    }
}

impl Shards {
    /// Creates the share of one of several processes, which has no range yet. `Shards::default()` is the whole cluster.
    pub fn of(count: u32) -> Self {
        let selection = Selection {
            count,
            ..Selection::default()
        };
        Self(Some(Arc::new(Inner {
            count,
            state: Mutex::default(),
            selection: watch::Sender::new(selection),
            idle: Notify::new(),
            is_told: AtomicBool::new(false),
        })))
    }

    /// Returns whether the share is the whole cluster.
    pub fn is_whole(&self) -> bool {
        self.0.is_none()
    }

    /// Begins to process a key of a namespace, unless it is another process's.
    pub fn begin(&self, namespace: Option<&str>) -> Option<Permit> {
        let Some(inner) = &self.0 else {
            return Some(Permit(None));
        };
        let index = range_of(inner.count, namespace);
        let mut state = inner.state.lock();
        let range = state.ranges.get_mut(&index)?;
        if range.phase != Phase::Held {
            return None;
        }
        range.running += 1;
        Some(Permit(Some((self.clone(), index))))
    }

    /// Calls `listener` whenever a range is held from now on.
    pub fn on_held(&self, listener: impl Fn() + Send + Sync + 'static) {
        if let Some(inner) = &self.0 {
            inner.state.lock().listeners.push(Arc::new(listener));
        }
    }

    /// Adds a range. It is held once its objects are listed.
    pub fn join(&self, index: u32) {
        let Some(inner) = &self.0 else { return };
        let version = inner.selection.borrow().version + 1;
        let range = Range {
            phase: Phase::Joining(version),
            running: 0,
        };
        inner.state.lock().ranges.insert(index, range);
        inner.select();
        inner.settle();
    }

    /// Removes a range. Returns when nothing of it is processed any more.
    pub async fn leave(&self, index: u32) {
        let Some(inner) = &self.0 else { return };
        loop {
            let ended = inner.idle.notified();
            match inner.state.lock().ranges.get_mut(&index) {
                None => return,
                Some(range) => {
                    range.phase = Phase::Leaving;
                    if range.running == 0 {
                        break;
                    }
                }
            }
            ended.await;
        }
        inner.state.lock().ranges.remove(&index);
        inner.select();
    }

    /// Returns the ranges whose objects are not listed yet.
    pub fn joining(&self) -> Vec<u32> {
        let Some(inner) = &self.0 else {
            return Vec::new();
        };
        let state = inner.state.lock();
        let joining = state.ranges.iter();
        joining
            .filter(|(_, range)| matches!(range.phase, Phase::Joining(_)))
            .map(|(index, _)| *index)
            .collect()
    }
}

impl Inner {
    /// Tells the watches which objects to select.
    fn select(&self) {
        let ranges = self.state.lock().ranges.keys().copied().collect();
        self.selection.send_modify(|selection| {
            selection.version += 1;
            selection.ranges = ranges;
        });
    }

    /// Holds the ranges that are listed.
    fn settle(&self) {
        let mut state = self.state.lock();
        let State {
            ranges, watches, ..
        } = &mut *state;
        let mut is_changed = false;
        for range in ranges.values_mut() {
            if let Phase::Joining(version) = range.phase
                && watches.values().all(|watch| watch.has_listed(version))
            {
                range.phase = Phase::Held;
                is_changed = true;
            }
        }
        let listeners = state.listeners.clone();
        drop(state);
        if is_changed {
            for listener in listeners {
                listener();
            }
        }
    }

    fn open(&self, is_required: bool) -> u64 {
        let mut state = self.state.lock();
        state.opened += 1;
        let listing = Listing {
            version: 0,
            is_failing: false,
            is_required,
        };
        let id = state.opened;
        state.watches.insert(id, listing);
        id
    }

    fn progress(&self, id: u64, change: impl FnOnce(&mut Listing)) {
        if let Some(listing) = self.state.lock().watches.get_mut(&id) {
            change(listing);
        }
        self.settle();
    }

    fn close(&self, id: u64) {
        self.state.lock().watches.remove(&id);
        self.settle();
    }

    /// Logs once that the API server sends what is not selected.
    fn tell_of_foreign(&self) {
        if !self.is_told.swap(true, Ordering::Relaxed) {
            tracing::info!(
                "the API server does not select objects by shard (feature gate ShardedListAndWatch): this process is sent all objects, and keeps its share"
            );
        }
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let selection = self
            .0
            .as_ref()
            .map(|inner| inner.selection.borrow().clone());
        f.debug_tuple("Shards").field(&selection).finish()
    }
}

impl PartialEq for Shards {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Eq for Shards {}

#[cfg(test)]
mod tests;

//! The history of all releases in memory: metadata of the records, kept up to date by a watch and
//! by this process's own writes, which are seen at once.
//!
//! A watch tells of a write some time after it has been answered, and a list may have been made
//! before it. So a write of our own counts until the watch has caught up with it: older events do
//! not undo it, nor does a list that began before it. A watch may also tell of a write before it
//! is answered: what it tells of a record that is being written is kept back until then, so that
//! listeners hear of the changes of others alone.
//!
//! The same watch shows the parts of large records, so that those that no record refers to are
//! known without a request.

mod table;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use futures::StreamExt;
use helm_core::release::ReleaseName;
use k8s_openapi::api::core::v1::Secret;
use kube::core::{ApiResource, PartialObjectMeta};
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::watch;

use super::meta::RecordMeta;
use super::side::PartMeta;
use crate::cluster::CrIdentity;
use crate::controller::WatchState;
use crate::controller::follow::{self, Follower, WatchTarget};
use crate::telemetry::metrics::WatchMetrics;
use table::{Id, Inner, id_of};

/// Selects Helm's records, and the parts of large ones.
const SELECTOR: &str = "owner in (helm,hybrid-operator)";

/// Whether the index can be relied upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexState {
    /// It has not been listed yet.
    Starting,
    /// It is complete and follows the cluster.
    Synced,
    /// Listing or watching Secrets is not permitted: the permission that is missing.
    Forbidden(String),
    /// It has not been listed yet, and listing fails.
    Failing(String),
}

impl IndexState {
    /// Whether the history is complete.
    pub fn is_synced(&self) -> bool {
        *self == Self::Synced
    }
}

/// A record that somebody else has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordChange {
    /// The record as it is, or was.
    pub record: RecordMeta,
    /// Whether it is gone.
    pub gone: bool,
}

/// Told of every change by somebody else, after the index knows it.
type ChangeListener = Arc<dyn Fn(&RecordChange) + Send + Sync>;

/// The index. Cheap to clone; all clones are one index.
#[derive(Clone, Default)]
pub struct ReleaseIndex(Arc<Shared>);

struct Shared {
    inner: RwLock<Inner>,
    state: watch::Sender<IndexState>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            inner: RwLock::default(),
            state: watch::Sender::new(IndexState::Starting),
        }
    }
}

/// Keeps back what a watch tells of a record while this process writes or deletes it. When it is
/// dropped, what was not our own doing is told.
pub(super) struct OwnWrite {
    index: ReleaseIndex,
    ids: Vec<Id>,
}

impl Drop for OwnWrite {
    fn drop(&mut self) {
        let kept_back: Vec<RecordChange> = self.index.write(|inner| {
            let ids = self.ids.iter();
            ids.filter_map(|id| inner.under_way.remove(id)?).collect()
        });
        self.index.tell(&kept_back);
    }
}

impl ReleaseIndex {
    /// An empty index that nothing feeds yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds somebody who is told of changes of records by others, after the index knows them. This
    /// process's own writes are not told of.
    pub fn on_change(&self, listener: impl Fn(&RecordChange) + Send + Sync + 'static) {
        self.write(|inner| inner.listeners.push(Arc::new(listener)));
    }

    /// Feeds the index from the Secrets of a namespace, or of all, until it is dropped. Failures
    /// are retried for ever, with growing pauses, and shown in [`ReleaseIndex::state`].
    ///
    /// RBAC: `list` and `watch` on `secrets`.
    pub async fn watch(self, client: Client, namespace: Option<String>, metrics: WatchMetrics) {
        self.expect(namespace.as_deref());
        let subject = WatchTarget::new(ApiResource::erase::<Secret>(&()), namespace.as_deref());
        let open = move |lists| {
            let api: Api<PartialObjectMeta<Secret>> = match &namespace {
                Some(namespace) => Api::namespaced(client.clone(), namespace),
                None => Api::all(client.clone()),
            };
            watcher::watcher(api, follow::config(lists, Some(SELECTOR))).boxed()
        };
        let reader = Reader {
            scope: subject.namespace.clone(),
            index: self,
        };
        // A streaming list may be answered from a cache that lacks our own last write; a list is
        // as new as its answer.
        follow::follow(subject, metrics, follow::Lists::Paged, open, reader).await;
    }

    /// Announces a scope, so that the index is not complete before its first list.
    pub fn expect(&self, namespace: Option<&str>) {
        self.write(|inner| {
            inner.scope(namespace);
        });
    }

    /// Whether the index is complete: the worst state of all scopes.
    pub fn state(&self) -> IndexState {
        self.0.state.borrow().clone()
    }

    /// Tells when that changes.
    pub fn states(&self) -> watch::Receiver<IndexState> {
        self.0.state.subscribe()
    }

    /// The records of a release, oldest first.
    pub fn history(&self, namespace: &str, name: &ReleaseName) -> Vec<RecordMeta> {
        self.read(|inner| {
            let ids = inner.releases.get(&(namespace.to_owned(), name.clone()));
            let ids = ids.iter().flat_map(|ids| ids.values());
            ids.filter_map(|id| Some(inner.entries.get(id)?.meta.clone()))
                .collect()
        })
    }

    /// The records that carry the label of a custom resource, by release and age.
    pub fn records_of(&self, cr: &CrIdentity) -> Vec<RecordMeta> {
        let mut records: Vec<RecordMeta> = self.read(|inner| {
            let ids = inner.by_cr.get(cr).into_iter().flatten();
            ids.filter_map(|id| Some(inner.entries.get(id)?.meta.clone()))
                .collect()
        });
        records.sort_by(|a, b| {
            (&a.namespace, &a.name, a.revision).cmp(&(&b.namespace, &b.name, b.revision))
        });
        records
    }

    /// How long this process has known this very state of a record, by its own clock: zero for a
    /// state that it does not know. Another clock never makes a record look older than it is, and
    /// after a restart the time begins anew.
    pub fn seen_for(&self, meta: &RecordMeta, now: Instant) -> Duration {
        let since = self.read(|inner| {
            let entry = inner.entries.get(&id_of(meta))?;
            entry.meta.is_same_state(meta).then_some(entry.since)
        });
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Begins to write or delete records; to be dropped when the answers are noted.
    pub(super) fn writing(&self, namespace: &str, secrets: Vec<String>) -> OwnWrite {
        let ids: Vec<Id> = secrets
            .into_iter()
            .map(|secret| (namespace.to_owned(), secret))
            .collect();
        self.write(|inner| {
            for id in &ids {
                inner.under_way.insert(id.clone(), None);
            }
        });
        let index = self.clone();
        OwnWrite { index, ids }
    }

    /// Takes note of a record that this process has written.
    pub(super) fn written(&self, meta: RecordMeta) {
        self.write(|inner| {
            if let Some(kept_back) = inner.under_way.get_mut(&id_of(&meta)) {
                let newer = |change: &RecordChange| change.record.is_newer_than(&meta);
                *kept_back = kept_back.take().filter(newer);
            }
            let written = Some(inner.clock);
            inner.insert(meta, written, Instant::now());
        });
    }

    /// Takes note of a record that this process has deleted.
    pub(super) fn removed(&self, meta: &RecordMeta) {
        self.write(|inner| {
            let id = id_of(meta);
            if let Some(kept_back) = inner.under_way.get_mut(&id) {
                let other = |change: &RecordChange| change.record.uid != meta.uid;
                *kept_back = kept_back.take().filter(other);
            }
            if inner
                .entries
                .get(&id)
                .is_some_and(|entry| entry.meta.uid == meta.uid)
            {
                inner.remove(&id);
            }
            inner.mark_deleted(&meta.uid, &meta.namespace);
        });
    }

    /// The parts of a release.
    pub(super) fn parts(&self, namespace: &str, name: &ReleaseName) -> Vec<PartMeta> {
        self.read(|inner| {
            let parts = inner.parts.get(&(namespace.to_owned(), name.clone()));
            let parts = parts.into_iter().flat_map(BTreeMap::values);
            parts.map(|part| part.meta.clone()).collect()
        })
    }

    /// The parts that carry the label of a custom resource.
    pub(super) fn parts_of(&self, cr: &CrIdentity) -> Vec<PartMeta> {
        self.read(|inner| {
            let parts = inner.parts.values().flat_map(BTreeMap::values);
            parts
                .filter(|part| part.meta.cr == *cr)
                .map(|part| part.meta.clone())
                .collect()
        })
    }

    /// Takes note of a part that this process has written.
    pub(super) fn part_written(&self, meta: PartMeta) {
        self.write(|inner| {
            let written = Some(inner.clock);
            inner.insert_part(meta, written);
        });
    }

    /// Takes note of a part that this process has deleted.
    pub(super) fn part_removed(&self, meta: &PartMeta) {
        self.write(|inner| {
            inner.remove_part(meta);
            inner.mark_deleted(&meta.uid, &meta.namespace);
        });
    }

    /// Applies an event of the watch of a scope.
    pub(crate) fn apply(
        &self,
        scope: Option<&str>,
        event: watcher::Event<PartialObjectMeta<Secret>>,
    ) {
        self.apply_at(scope, event, Instant::now());
    }

    fn apply_at(
        &self,
        scope: Option<&str>,
        event: watcher::Event<PartialObjectMeta<Secret>>,
        now: Instant,
    ) {
        let changes = self.write(|inner| {
            let mut changes = inner.apply(scope, event, now);
            changes.retain(
                |change| match inner.under_way.get_mut(&id_of(&change.record)) {
                    Some(kept_back) => {
                        *kept_back = Some(change.clone());
                        false
                    }
                    None => true,
                },
            );
            changes
        });
        self.tell(&changes);
    }

    /// Tells the listeners. They may ask the index, so they are called without the lock.
    fn tell(&self, changes: &[RecordChange]) {
        if changes.is_empty() {
            return;
        }
        let listeners = self.read(|inner| inner.listeners.clone());
        for change in changes {
            for listener in &listeners {
                listener(change);
            }
        }
    }

    /// Takes in that the watch of a scope fails. Of one that merely breaks off and resumes nothing
    /// is told: what was complete stays usable.
    fn fail(&self, scope: Option<&str>, state: &WatchState) {
        let state = match state {
            WatchState::Starting | WatchState::Synced => return,
            WatchState::Forbidden(permission) => IndexState::Forbidden(permission.clone()),
            WatchState::Missing => IndexState::Failing("Secrets are not served".to_owned()),
            WatchState::Failing(message) => IndexState::Failing(message.clone()),
        };
        self.write(|inner| inner.scope(scope).state = state);
    }

    fn read<T>(&self, f: impl FnOnce(&Inner) -> T) -> T {
        f(&self.0.inner.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.0.inner.write().unwrap_or_else(PoisonError::into_inner);
        let answer = f(&mut inner);
        let state = inner.state();
        self.0.state.send_if_modified(|known| {
            let changed = *known != state;
            *known = state;
            changed
        });
        answer
    }
}

/// Feeds an index from the watch of one scope.
struct Reader {
    index: ReleaseIndex,
    scope: Option<String>,
}

impl Follower for Reader {
    type Object = PartialObjectMeta<Secret>;

    fn event(&mut self, event: watcher::Event<Self::Object>) {
        self.index.apply(self.scope.as_deref(), event);
    }

    fn state(&mut self, state: &WatchState) {
        self.index.fail(self.scope.as_deref(), state);
    }
}

#[cfg(test)]
mod tests;

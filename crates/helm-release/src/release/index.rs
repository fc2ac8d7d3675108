//! In-memory index of the records of all releases: metadata kept up to date by a watch and by this
//! process's own writes, which are visible at once.
//!
//! A watch reports a write with a delay, and a list may be older than it. An own write therefore
//! takes precedence until the watch has caught up: older events and lists that began before it do
//! not undo it. A watch may also report a write before its response arrives. Events for a record
//! that is being written are held back until then, so that listeners are only notified of changes
//! by others.
//!
//! The same watch covers the parts of large records, so that unreferenced parts are found without a
//! request.

mod table;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube_objects::CrIdentity;
use kube_objects::shards::{By, Shards, Share};
use kube_objects::watch::Restarts;
use kube_objects::watch::WatchState;
use kube_objects::watch::follow::{self, Follower, WatchTarget};
use parking_lot::RwLock;
use tokio::time::Instant;

use helm_core::release::ReleaseName;
use host::watch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::runtime::watcher;

use super::meta::RecordMeta;
use super::side::PartMeta;
use super::storage::Storage;
use table::{Id, Inner, id_of};

/// Selects Helm's records and the parts of large ones.
const SELECTOR: &str = "owner in (helm,hybrid-operator)";

/// Sync state of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexState {
    /// The first list has not completed.
    Starting,
    /// The index is complete and watched.
    Synced,
    /// Listing or watching Secrets is forbidden; contains the missing permission.
    Forbidden(String),
    /// The first list fails; contains the error.
    Failing(String),
}

/// Change of a record by another client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordChange {
    /// Current state, or last state if deleted.
    pub record: RecordMeta,
    /// Whether the record was deleted.
    pub gone: bool,
}

/// Called for each change by another client, after the index is updated.
type ChangeListener = Arc<dyn Fn(&RecordChange) + Send + Sync>;

/// Index of release records. Cheap to clone; clones share the index.
#[derive(Clone, Default)]
pub struct ReleaseIndex(Arc<Shared>);

struct Shared {
    storage: Storage,
    inner: RwLock<Inner>,
    state: watch::Sender<IndexState>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            storage: Storage::default(),
            inner: RwLock::default(),
            state: watch::Sender::new(IndexState::Starting),
        }
    }
}

/// Holds back watch events of records that this process is writing or deleting. On drop, notifies
/// listeners of changes by others.
pub(super) struct OwnWrite {
    index: ReleaseIndex,
    ids: Vec<Id>,
}

impl Drop for OwnWrite {
    fn drop(&mut self) {
        let held_back: Vec<RecordChange> = self.index.write(|inner| {
            let ids = self.ids.iter();
            ids.filter_map(|id| inner.in_progress.remove(id)?).collect()
        });
        self.index.notify(&held_back);
    }
}

impl ReleaseIndex {
    /// Returns an empty index of Secrets.
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Returns an empty index of the records in a storage.
    pub(crate) fn of(storage: Storage) -> Self {
        Self(Arc::new(Shared {
            storage,
            ..Shared::default()
        }))
    }

    /// Returns where the records are stored.
    pub fn storage(&self) -> Storage {
        self.0.storage
    }

    /// Adds a listener for changes of records by other clients. It is called after the index is
    /// updated, and not for this process's own writes.
    pub fn on_change(&self, listener: impl Fn(&RecordChange) + Send + Sync + 'static) {
        self.write(|inner| inner.listeners.push(Arc::new(listener)));
    }

    /// Watches the records of a namespace, or of all namespaces, until the future is dropped.
    /// Failures are retried with backoff and reported in [`ReleaseIndex::state`].
    ///
    /// RBAC: `list` and `watch` on `secrets`, or `configmaps`.
    pub(crate) async fn watch(
        self,
        client: Client,
        namespace: Option<String>,
        restarts: Restarts,
        shards: Shards,
    ) {
        self.expect(namespace.as_deref());
        let resource = self.storage().resource();
        // With an incomplete history an existing release would be installed again.
        let subject = WatchTarget::new(resource, namespace.as_deref()).sharing(Share {
            shards,
            by: By::Release,
            is_required: true,
        });
        let of = subject.clone();
        let open = move |lists| follow::metadata(&client, &of, lists, Some(SELECTOR));
        let reader = Reader {
            scope: subject.namespace.clone(),
            index: self,
        };
        // A streaming list may be served from a cache without this process's last write; a paged
        // list is consistent.
        follow::follow(subject, restarts, follow::Lists::Paged, open, reader).await;
    }

    /// Registers a scope, so that the index is not synced before the first list of the scope.
    pub(crate) fn expect(&self, namespace: Option<&str>) {
        self.write(|inner| {
            inner.scope(namespace);
        });
    }

    /// Returns the worst state of all scopes.
    #[cfg(test)]
    pub(crate) fn state(&self) -> IndexState {
        self.0.state.borrow().clone()
    }

    /// Returns a receiver for changes of the state.
    pub fn states(&self) -> watch::Receiver<IndexState> {
        self.0.state.subscribe()
    }

    /// Returns the records of a release, oldest first.
    pub(crate) fn history(&self, namespace: &str, name: &ReleaseName) -> Vec<RecordMeta> {
        self.read(|inner| {
            let ids = inner.releases.get(&(namespace.to_owned(), name.clone()));
            let ids = ids.iter().flat_map(|ids| ids.values());
            ids.filter_map(|id| Some(inner.entries.get(id)?.meta.clone()))
                .collect()
        })
    }

    /// Returns the records with the label of an owner, sorted by release and revision.
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

    /// Returns the names of the components of an owner that have records, or parts of
    /// records.
    pub(crate) fn components_of(&self, whole: &CrIdentity) -> Vec<String> {
        self.read(|inner| {
            let parts = inner.parts.values().flat_map(BTreeMap::values);
            let labels = inner.by_cr.keys().chain(parts.map(|part| &part.meta.cr));
            let components = labels.filter_map(|label| label.component_of(whole));
            components.map(ToOwned::to_owned).collect()
        })
    }

    /// Returns how long this process has known this state of a record, by its own clock; zero for
    /// an unknown state. Not affected by clock skew; restarts from zero with the process.
    pub(crate) fn seen_for(&self, meta: &RecordMeta, now: Instant) -> Duration {
        let since = self.read(|inner| {
            let entry = inner.entries.get(&id_of(meta))?;
            entry.meta.is_same_state(meta).then_some(entry.since)
        });
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Starts writing, deleting or reading records. Drop the guard after the responses are indexed.
    pub(super) fn writing(&self, namespace: &str, secrets: Vec<String>) -> OwnWrite {
        let ids: Vec<Id> = secrets
            .into_iter()
            .map(|secret| Arc::new((namespace.to_owned(), secret)))
            .collect();
        self.write(|inner| {
            for id in &ids {
                inner.in_progress.insert(id.clone(), None);
            }
        });
        let index = self.clone();
        OwnWrite { index, ids }
    }

    /// Indexes a record that this process has written, or read, unless it is being deleted by this process.
    pub(super) fn written(&self, meta: RecordMeta) {
        self.write(|inner| {
            if inner.deleted.contains_key(&meta.uid) {
                return;
            }
            if let Some(held_back) = inner.in_progress.get_mut(&id_of(&meta)) {
                let is_gone = |change: &RecordChange| change.gone && change.record.uid == meta.uid;
                if held_back.as_ref().is_some_and(is_gone) {
                    // The answer is older than the deletion, however late it arrives.
                    return;
                }
                let newer = |change: &RecordChange| change.record.is_newer_than(&meta);
                *held_back = held_back.take().filter(newer);
            }
            let written = Some(inner.clock);
            inner.insert(meta, written, Instant::now());
        });
    }

    /// Records that the proof of this state of a record is wrong.
    pub(super) fn disprove(&self, meta: &RecordMeta) {
        self.write(|inner| {
            if let Some(known) = inner.entries.get_mut(&id_of(meta))
                && known.meta.is_same_state(meta)
            {
                known.meta.proof = None;
            }
        });
    }

    /// Removes a record that this process has deleted.
    pub(super) fn removed(&self, meta: &RecordMeta) {
        self.write(|inner| {
            let id = id_of(meta);
            if let Some(held_back) = inner.in_progress.get_mut(&id) {
                let other = |change: &RecordChange| change.record.uid != meta.uid;
                *held_back = held_back.take().filter(other);
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

    pub(super) fn parts(&self, namespace: &str, name: &ReleaseName) -> Vec<PartMeta> {
        self.read(|inner| {
            let parts = inner.parts.get(&(namespace.to_owned(), name.clone()));
            let parts = parts.into_iter().flat_map(BTreeMap::values);
            parts.map(|part| part.meta.clone()).collect()
        })
    }

    /// Returns the parts with the label of an owner.
    pub(super) fn parts_of(&self, cr: &CrIdentity) -> Vec<PartMeta> {
        self.read(|inner| {
            let parts = inner.parts.values().flat_map(BTreeMap::values);
            parts
                .filter(|part| part.meta.cr == *cr)
                .map(|part| part.meta.clone())
                .collect()
        })
    }

    /// Indexes a part that this process has written.
    pub(super) fn part_written(&self, meta: PartMeta) {
        self.write(|inner| {
            let written = Some(inner.clock);
            inner.insert_part(meta, written);
        });
    }

    /// Removes a part that this process has deleted.
    pub(super) fn part_removed(&self, meta: &PartMeta) {
        self.write(|inner| {
            inner.remove_part(meta);
            inner.mark_deleted(&meta.uid, &meta.namespace);
        });
    }

    /// Applies an event of the watch of a scope.
    pub(crate) fn apply(&self, scope: Option<&str>, event: watcher::Event<ObjectMeta>) {
        self.apply_at(scope, event, Instant::now());
    }

    fn apply_at(&self, scope: Option<&str>, event: watcher::Event<ObjectMeta>, now: Instant) {
        let changes = self.write(|inner| {
            let mut changes = inner.apply(scope, event, now);
            changes.retain(
                |change| match inner.in_progress.get_mut(&id_of(&change.record)) {
                    Some(held_back) => {
                        *held_back = Some(change.clone());
                        false
                    }
                    None => true,
                },
            );
            changes
        });
        self.notify(&changes);
    }

    /// Notifies the listeners without holding the lock, since they may query the index.
    fn notify(&self, changes: &[RecordChange]) {
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

    /// Records that the watch of a scope fails.
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
        f(&self.0.inner.read())
    }

    fn write<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.0.inner.write();
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

/// Applies the events of the watch of one scope to the index.
struct Reader {
    index: ReleaseIndex,
    scope: Option<String>,
}

impl Follower for Reader {
    type Object = ObjectMeta;

    fn event(&mut self, event: watcher::Event<Self::Object>) {
        self.index.apply(self.scope.as_deref(), event);
    }

    fn state(&mut self, state: &WatchState) {
        self.index.fail(self.scope.as_deref(), state);
    }

    /// An index that was complete stays usable: a write that is based on an old record conflicts.
    fn broken(&mut self, _: &WatchState) {}
}

#[cfg(test)]
mod tests;

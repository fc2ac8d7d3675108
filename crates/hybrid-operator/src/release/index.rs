//! The history of all releases in memory: metadata of the records, kept up to date by a watch and
//! by this process's own writes, which are seen at once.
//!
//! A watch tells of a write some time after it has been answered, and a list may have been made
//! before it. So a write of our own counts until the watch has caught up with it: older events do
//! not undo it, nor does a list that began before it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use futures::StreamExt;
use helm_core::release::ReleaseName;
use k8s_openapi::api::core::v1::Secret;
use kube::core::{ApiResource, PartialObjectMeta};
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::watch;

use super::meta::{Format, RecordMeta, version_number};
use crate::cluster::CrIdentity;
use crate::controller::WatchState;
use crate::controller::follow::{self, Follower, Subject};
use crate::telemetry::metrics::WatchMetrics;

/// Selects Helm's records.
const SELECTOR: &str = "owner=helm";

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
pub type ChangeListener = Arc<dyn Fn(&RecordChange) + Send + Sync>;

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

#[derive(Default)]
struct Inner {
    entries: HashMap<Id, Entry>,
    /// By release, for `history`.
    releases: HashMap<(String, ReleaseName), BTreeMap<u32, Id>>,
    by_cr: HashMap<CrIdentity, HashSet<Id>>,
    /// Records that we have deleted and that a watch may still tell of, by uid: their namespace,
    /// and when.
    deleted: HashMap<String, (String, u64)>,
    scopes: HashMap<Option<String>, ScopeState>,
    /// Counts lists, so that writes can be told from lists that began later.
    clock: u64,
    listener: Option<ChangeListener>,
}

/// Namespace and name of a Secret.
type Id = (String, String);

struct Entry {
    meta: RecordMeta,
    /// When we wrote it ourselves, as long as no watch has told of that.
    written: Option<u64>,
}

struct ScopeState {
    state: IndexState,
    /// When the list that is going on began, and what it has shown so far.
    listing: Option<(u64, HashSet<Id>)>,
}

impl Default for ScopeState {
    fn default() -> Self {
        Self {
            state: IndexState::Starting,
            listing: None,
        }
    }
}

impl ReleaseIndex {
    /// An empty index that nothing feeds yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets who is told of changes by others.
    pub fn on_change(&self, listener: ChangeListener) {
        self.write(|inner| inner.listener = Some(listener));
    }

    /// Feeds the index from the Secrets of a namespace, or of all, until it is dropped. Failures
    /// are retried for ever, with growing pauses, and shown in [`ReleaseIndex::state`].
    ///
    /// RBAC: `list` and `watch` on `secrets`.
    pub async fn watch(self, client: Client, namespace: Option<String>, metrics: WatchMetrics) {
        self.expect(namespace.as_deref());
        let subject = Subject::new(ApiResource::erase::<Secret>(&()), namespace.as_deref());
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

    /// How many records are known.
    pub fn len(&self) -> usize {
        self.read(|inner| inner.entries.len())
    }

    /// Whether no record is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes note of a record that this process has written.
    pub(crate) fn written(&self, meta: RecordMeta) {
        self.write(|inner| {
            let clock = inner.clock;
            inner.insert(Entry {
                meta,
                written: Some(clock),
            });
        });
    }

    /// Takes note of a record that this process has deleted.
    pub(crate) fn removed(&self, meta: &RecordMeta) {
        self.write(|inner| {
            let id = id_of(meta);
            if inner
                .entries
                .get(&id)
                .is_some_and(|entry| entry.meta.uid == meta.uid)
            {
                inner.remove(&id);
            }
            inner
                .deleted
                .insert(meta.uid.clone(), (meta.namespace.clone(), inner.clock));
        });
    }

    /// Applies an event of the watch of a scope.
    pub(crate) fn apply(
        &self,
        scope: Option<&str>,
        event: watcher::Event<PartialObjectMeta<Secret>>,
    ) {
        let changes = self.write(|inner| inner.apply(scope, event));
        if changes.is_empty() {
            return;
        }
        // The listener may ask the index, so it is called without the lock.
        if let Some(listener) = self.read(|inner| inner.listener.clone()) {
            for change in &changes {
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

impl Inner {
    /// The worst state of all scopes.
    fn state(&self) -> IndexState {
        let states = self.scopes.values().map(|scope| &scope.state);
        let rank = |state: &&IndexState| match state {
            IndexState::Synced => 0,
            IndexState::Starting => 1,
            IndexState::Failing(_) => 2,
            IndexState::Forbidden(_) => 3,
        };
        states
            .max_by_key(rank)
            .cloned()
            .unwrap_or(IndexState::Starting)
    }

    fn apply(
        &mut self,
        scope: Option<&str>,
        event: watcher::Event<PartialObjectMeta<Secret>>,
    ) -> Vec<RecordChange> {
        match event {
            watcher::Event::Init => {
                self.clock += 1;
                self.scope(scope).listing = Some((self.clock, HashSet::new()));
                Vec::new()
            }
            watcher::Event::InitApply(secret) => {
                let Some(meta) = RecordMeta::of(&secret.metadata, Format::Helm) else {
                    return Vec::new();
                };
                if let Some((_, listed)) = &mut self.scope(scope).listing {
                    listed.insert(id_of(&meta));
                }
                self.seen(meta).into_iter().collect()
            }
            watcher::Event::InitDone => self.listed(scope),
            watcher::Event::Apply(secret) => {
                self.scope(scope).state = IndexState::Synced;
                let meta = RecordMeta::of(&secret.metadata, Format::Helm);
                meta.and_then(|meta| self.seen(meta)).into_iter().collect()
            }
            watcher::Event::Delete(secret) => {
                self.scope(scope).state = IndexState::Synced;
                let meta = RecordMeta::of(&secret.metadata, Format::Helm);
                meta.and_then(|meta| self.gone(&meta)).into_iter().collect()
            }
        }
    }

    /// A record as a watch or a list has it.
    fn seen(&mut self, meta: RecordMeta) -> Option<RecordChange> {
        if self.deleted.contains_key(&meta.uid) {
            return None;
        }
        if let Some(entry) = self.entries.get_mut(&id_of(&meta)) {
            if entry.meta.uid == meta.uid && entry.meta.resource_version == meta.resource_version {
                entry.written = None;
                return None;
            }
            if !meta.is_newer_than(&entry.meta) {
                return None;
            }
        }
        self.insert(Entry {
            meta: meta.clone(),
            written: None,
        });
        Some(RecordChange {
            record: meta,
            gone: false,
        })
    }

    /// A record that a watch says is gone.
    fn gone(&mut self, meta: &RecordMeta) -> Option<RecordChange> {
        if self.deleted.remove(&meta.uid).is_some() {
            return None;
        }
        let id = id_of(meta);
        if self.entries.get(&id)?.meta.uid != meta.uid {
            return None;
        }
        let record = self.remove(&id)?.meta;
        Some(RecordChange { record, gone: true })
    }

    /// The end of a list: what it has not shown is gone, unless we wrote it after it began.
    fn listed(&mut self, scope: Option<&str>) -> Vec<RecordChange> {
        let state = self.scope(scope);
        state.state = IndexState::Synced;
        let Some((began, listed)) = state.listing.take() else {
            return Vec::new();
        };
        let in_scope = |namespace: &str| scope.is_none_or(|scope| scope == namespace);
        self.deleted
            .retain(|_, (namespace, deleted)| !in_scope(namespace) || *deleted >= began);
        let vanished: Vec<Id> = self
            .entries
            .iter()
            .filter(|(id, entry)| {
                in_scope(&id.0)
                    && !listed.contains(*id)
                    && entry.written.is_none_or(|written| written < began)
            })
            .map(|(id, _)| id.clone())
            .collect();
        let gone = vanished.iter().filter_map(|id| self.remove(id));
        gone.map(|entry| RecordChange {
            record: entry.meta,
            gone: true,
        })
        .collect()
    }

    fn insert(&mut self, entry: Entry) {
        let id = id_of(&entry.meta);
        if let Some(known) = self.entries.get(&id)
            && known.meta.uid == entry.meta.uid
            && version_number(&known.meta.resource_version)
                > version_number(&entry.meta.resource_version)
        {
            return;
        }
        self.remove(&id);
        let meta = &entry.meta;
        let release = (meta.namespace.clone(), meta.name.clone());
        self.releases
            .entry(release)
            .or_default()
            .insert(meta.revision.0, id.clone());
        if let Some(cr) = &meta.cr {
            self.by_cr.entry(cr.clone()).or_default().insert(id.clone());
        }
        self.entries.insert(id, entry);
    }

    fn remove(&mut self, id: &Id) -> Option<Entry> {
        let entry = self.entries.remove(id)?;
        let meta = &entry.meta;
        let release = (meta.namespace.clone(), meta.name.clone());
        if let Some(ids) = self.releases.get_mut(&release) {
            ids.remove(&meta.revision.0);
            if ids.is_empty() {
                self.releases.remove(&release);
            }
        }
        if let Some(cr) = &meta.cr
            && let Some(ids) = self.by_cr.get_mut(cr)
        {
            ids.remove(id);
            if ids.is_empty() {
                self.by_cr.remove(cr);
            }
        }
        Some(entry)
    }

    fn scope(&mut self, scope: Option<&str>) -> &mut ScopeState {
        self.scopes.entry(scope.map(str::to_owned)).or_default()
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

fn id_of(meta: &RecordMeta) -> Id {
    (meta.namespace.clone(), meta.secret.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use helm_core::release::Status;
    use kube::runtime::watcher::Event;
    use serde_json::json;
    use std::sync::Mutex;

    fn record(revision: u32, status: &str, version: u64) -> PartialObjectMeta<Secret> {
        serde_json::from_value(json!({"metadata": {
            "name": format!("sh.helm.release.v1.web.v{revision}"), "namespace": "prod",
            "uid": format!("uid-{revision}"), "resourceVersion": version.to_string(),
            "labels": {"owner": "helm", "status": status,
                       "helm.sdk.operatorframework.io/cr": "me"}}}))
        .unwrap()
    }

    fn meta(revision: u32, status: &str, version: u64) -> RecordMeta {
        RecordMeta::of(&record(revision, status, version).metadata, Format::Helm).unwrap()
    }

    /// Revisions that a listener was told of, and whether they are gone.
    type Told = Arc<Mutex<Vec<(u32, bool)>>>;

    fn index() -> (ReleaseIndex, Told) {
        let index = ReleaseIndex::new();
        let told = Told::default();
        let heard = Arc::clone(&told);
        index.on_change(Arc::new(move |change| {
            heard
                .lock()
                .unwrap()
                .push((change.record.revision.0, change.gone));
        }));
        (index, told)
    }

    fn list(index: &ReleaseIndex, records: &[PartialObjectMeta<Secret>]) {
        index.apply(None, Event::Init);
        for record in records {
            index.apply(None, Event::InitApply(record.clone()));
        }
        index.apply(None, Event::InitDone);
    }

    fn shown(index: &ReleaseIndex) -> Vec<(u32, Status)> {
        let history = index.history("prod", &"web".parse().unwrap());
        history
            .iter()
            .map(|meta| (meta.revision.0, meta.status))
            .collect()
    }

    #[test]
    fn the_history_is_what_lists_and_events_tell() {
        let (index, told) = index();
        assert_eq!(index.state(), IndexState::Starting);
        list(
            &index,
            &[record(10, "deployed", 5), record(9, "superseded", 4)],
        );
        assert!(index.state().is_synced());
        assert_eq!(
            shown(&index),
            [(9, Status::Superseded), (10, Status::Deployed)]
        );
        assert_eq!(index.records_of(&CrIdentity::from_label("me")).len(), 2);
        index.apply(None, Event::Apply(record(10, "superseded", 6)));
        index.apply(None, Event::Apply(record(11, "deployed", 7)));
        index.apply(None, Event::Delete(record(9, "superseded", 8)));
        assert_eq!(
            shown(&index),
            [(10, Status::Superseded), (11, Status::Deployed)]
        );
        let told = told.lock().unwrap();
        assert_eq!(
            *told,
            [(10, false), (9, false), (10, false), (11, false), (9, true)]
        );
    }

    #[test]
    fn our_own_writes_are_seen_at_once_and_not_announced() {
        let (index, told) = index();
        list(&index, &[]);
        index.written(meta(1, "pending-install", 5));
        assert_eq!(shown(&index), [(1, Status::PendingInstall)]);
        index.written(meta(1, "deployed", 7));
        index.apply(None, Event::Apply(record(1, "pending-install", 5)));
        assert_eq!(shown(&index), [(1, Status::Deployed)]);
        index.apply(None, Event::Apply(record(1, "deployed", 7)));
        index.removed(&meta(1, "deployed", 7));
        index.apply(None, Event::Apply(record(1, "deployed", 7)));
        assert_eq!(shown(&index), []);
        index.apply(None, Event::Delete(record(1, "deployed", 8)));
        assert_eq!(shown(&index), []);
        assert!(told.lock().unwrap().is_empty());
        assert!(index.is_empty());
    }

    #[test]
    fn a_list_that_began_before_our_write_does_not_undo_it() {
        let (index, _) = index();
        list(&index, &[]);
        index.apply(None, Event::Init);
        index.written(meta(1, "pending-install", 5));
        index.apply(None, Event::InitDone);
        assert_eq!(shown(&index), [(1, Status::PendingInstall)]);
        // The next list began after the write, so what it does not show is gone.
        list(&index, &[]);
        assert_eq!(shown(&index), []);
    }

    #[test]
    fn a_list_that_began_before_our_deletion_does_not_bring_the_record_back() {
        let (index, _) = index();
        list(&index, &[record(1, "deployed", 5)]);
        index.apply(None, Event::Init);
        index.removed(&meta(1, "deployed", 5));
        index.apply(None, Event::InitApply(record(1, "deployed", 5)));
        index.apply(None, Event::InitDone);
        assert_eq!(shown(&index), []);
        index.apply(None, Event::Delete(record(1, "deployed", 6)));
        list(&index, &[]);
        assert!(index.read(|inner| inner.deleted.is_empty()));
    }

    #[test]
    fn a_relist_forgets_what_has_vanished_meanwhile() {
        let (index, told) = index();
        list(
            &index,
            &[record(1, "superseded", 1), record(2, "deployed", 2)],
        );
        told.lock().unwrap().clear();
        list(&index, &[record(2, "deployed", 2)]);
        assert_eq!(shown(&index), [(2, Status::Deployed)]);
        assert_eq!(*told.lock().unwrap(), [(1, true)]);
    }

    #[test]
    fn a_record_that_was_made_anew_replaces_the_old_one() {
        let (index, _) = index();
        list(&index, &[record(1, "deployed", 5)]);
        let mut anew = record(1, "pending-install", 9);
        anew.metadata.uid = Some("other".to_owned());
        index.apply(None, Event::Apply(anew));
        index.apply(None, Event::Delete(record(1, "deployed", 8)));
        assert_eq!(shown(&index), [(1, Status::PendingInstall)]);
    }

    #[test]
    fn scopes_are_complete_when_all_of_them_are() {
        let (index, _) = index();
        index.expect(Some("a"));
        index.expect(Some("b"));
        index.apply(Some("a"), Event::Init);
        index.apply(Some("a"), Event::InitDone);
        assert_eq!(index.state(), IndexState::Starting);
        index.fail(Some("b"), &WatchState::Forbidden("no".to_owned()));
        assert_eq!(index.state(), IndexState::Forbidden("no".to_owned()));
        index.apply(Some("b"), Event::Init);
        index.apply(Some("b"), Event::InitDone);
        assert!(index.state().is_synced());
    }

    #[test]
    fn a_list_of_one_namespace_does_not_touch_the_records_of_others() {
        let (index, _) = index();
        index.apply(Some("prod"), Event::Init);
        index.apply(Some("prod"), Event::InitApply(record(1, "deployed", 5)));
        index.apply(Some("prod"), Event::InitDone);
        index.apply(Some("test"), Event::Init);
        index.apply(Some("test"), Event::InitDone);
        assert_eq!(shown(&index), [(1, Status::Deployed)]);
    }
}

//! State of the index, and its changes by watch events and own writes. Times are passed in;
//! listeners are called by the parent module.

use host::{HashMap, HashSet};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;

use helm_core::release::ReleaseName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher;
use kube_objects::CrIdentity;

use super::{ChangeListener, IndexState, RecordChange};
use crate::release::meta::{Format, RecordMeta};
use crate::release::side::PartMeta;

#[derive(Default)]
pub(super) struct Inner {
    pub(super) entries: HashMap<Id, Box<RecordEntry>>,
    /// Record ids by release, for `history`.
    pub(super) releases: HashMap<(String, ReleaseName), BTreeMap<u32, Id>>,
    pub(super) by_cr: HashMap<CrIdentity, HashSet<Id>>,
    /// Parts of large records, by release and name.
    pub(super) parts: HashMap<(String, ReleaseName), BTreeMap<String, Part>>,
    /// Records that this process is writing or deleting, and the last change of each that a watch
    /// has reported meanwhile.
    pub(super) in_progress: HashMap<Id, Option<RecordChange>>,
    /// Secrets deleted by this process that a watch may still report: namespace and clock by uid.
    pub(super) deleted: HashMap<String, (String, u64)>,
    scopes: HashMap<Option<String>, ScopeState>,
    /// Number of lists started, to order own writes and lists.
    pub(super) clock: u64,
    pub(super) listeners: Vec<ChangeListener>,
}

/// Namespace and name of a Secret.
pub(super) type Id = Arc<(String, String)>;

pub(super) struct RecordEntry {
    pub(super) meta: RecordMeta,
    /// Clock of an own write that no watch has reported yet.
    written: Option<u64>,
    /// Time when this process first saw this state.
    pub(super) since: Instant,
}

pub(super) struct Part {
    pub(super) meta: PartMeta,
    /// Clock of an own write that no watch has reported yet.
    written: Option<u64>,
}

pub(super) struct ScopeState {
    pub(super) state: IndexState,
    /// Clock at the start of the current list, and the Secrets listed so far.
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

impl Inner {
    /// Returns the worst state of all scopes.
    pub(super) fn state(&self) -> IndexState {
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

    pub(super) fn apply(
        &mut self,
        scope: Option<&str>,
        event: watcher::Event<ObjectMeta>,
        now: Instant,
    ) -> Vec<RecordChange> {
        let change = match event {
            watcher::Event::Init => {
                self.clock += 1;
                self.scope(scope).listing = Some((self.clock, HashSet::default()));
                None
            }
            watcher::Event::InitApply(secret) => {
                let metadata = &secret;
                if let Some((_, listed)) = &mut self.scope(scope).listing {
                    let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
                    let id = (namespace.unwrap_or_default(), name.unwrap_or_default());
                    listed.insert(Arc::new(id));
                }
                self.apply_object(metadata, now)
            }
            watcher::Event::InitDone => return self.finish_list(scope),
            watcher::Event::Apply(secret) => {
                self.scope(scope).state = IndexState::Synced;
                self.apply_object(&secret, now)
            }
            watcher::Event::Delete(secret) => {
                self.scope(scope).state = IndexState::Synced;
                if let Some(part) = PartMeta::of(&secret) {
                    self.remove_part(&part);
                    self.deleted.remove(&part.uid);
                }
                let meta = RecordMeta::of(&secret, Format::Helm);
                meta.and_then(|meta| self.delete(&meta))
            }
        };
        change.into_iter().collect()
    }

    /// Applies a Secret from a watch or a list.
    fn apply_object(&mut self, metadata: &ObjectMeta, now: Instant) -> Option<RecordChange> {
        if let Some(meta) = RecordMeta::of(metadata, Format::Helm) {
            return self.update(meta, now);
        }
        let part = PartMeta::of(metadata)?;
        if !self.deleted.contains_key(&part.uid) {
            self.insert_part(part, None);
        }
        None
    }

    /// Applies a record from a watch or a list.
    fn update(&mut self, meta: RecordMeta, now: Instant) -> Option<RecordChange> {
        if self.deleted.contains_key(&meta.uid) {
            return None;
        }
        if let Some(entry) = self.entries.get_mut(&id_of(&meta)) {
            if entry.meta.is_same_state(&meta) {
                entry.written = None;
                return None;
            }
            if !meta.is_newer_than(&entry.meta) {
                return None;
            }
        }
        self.insert(meta.clone(), None, now);
        Some(RecordChange {
            record: meta,
            gone: false,
        })
    }

    /// Applies the deletion of a record reported by a watch.
    fn delete(&mut self, meta: &RecordMeta) -> Option<RecordChange> {
        let id = id_of(meta);
        if self.deleted.remove(&meta.uid).is_some() {
            // Others had held it. An answer that shows it may still arrive.
            if let Some(held_back) = self.in_progress.get_mut(&id) {
                let record = meta.clone();
                *held_back = Some(RecordChange { record, gone: true });
            }
            return None;
        }
        if self.entries.get(&id)?.meta.uid != meta.uid {
            return None;
        }
        let record = self.remove(&id)?.meta;
        Some(RecordChange { record, gone: true })
    }

    /// Handles the end of a list: removes what it does not contain, except own writes since it
    /// began.
    fn finish_list(&mut self, scope: Option<&str>) -> Vec<RecordChange> {
        let state = self.scope(scope);
        state.state = IndexState::Synced;
        let Some((began, listed)) = state.listing.take() else {
            return Vec::new();
        };
        let in_scope = |namespace: &str| scope.is_none_or(|scope| scope == namespace);
        self.deleted
            .retain(|_, (namespace, deleted)| !in_scope(namespace) || *deleted >= began);
        self.parts.retain(|(namespace, _), parts| {
            if in_scope(namespace) {
                parts.retain(|secret, part| {
                    listed.contains(&(namespace.clone(), secret.clone()))
                        || part.written.is_some_and(|written| written >= began)
                });
            }
            !parts.is_empty()
        });
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

    pub(super) fn insert(&mut self, meta: RecordMeta, written: Option<u64>, now: Instant) {
        let id = id_of(&meta);
        let mut since = now;
        if let Some(known) = self.entries.get(&id) {
            let same_record = known.meta.uid == meta.uid;
            if same_record && known.meta.is_newer_than(&meta) {
                return;
            }
            if known.meta.is_same_state(&meta) {
                since = known.since;
            }
        }
        let entry = Box::new(RecordEntry {
            meta,
            written,
            since,
        });
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

    pub(super) fn remove(&mut self, id: &Id) -> Option<Box<RecordEntry>> {
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

    pub(super) fn insert_part(&mut self, meta: PartMeta, written: Option<u64>) {
        let release = (meta.namespace.clone(), meta.release.clone());
        let parts = self.parts.entry(release).or_default();
        parts.insert(meta.secret.clone(), Part { meta, written });
    }

    pub(super) fn remove_part(&mut self, meta: &PartMeta) {
        let release = (meta.namespace.clone(), meta.release.clone());
        if let Some(parts) = self.parts.get_mut(&release) {
            let same = |part: &Part| part.meta.uid == meta.uid;
            if parts.get(&meta.secret).is_some_and(same) {
                parts.remove(&meta.secret);
            }
            if parts.is_empty() {
                self.parts.remove(&release);
            }
        }
    }

    /// Remembers a deleted Secret that a watch may still report.
    pub(super) fn mark_deleted(&mut self, uid: &str, namespace: &str) {
        self.deleted
            .insert(uid.to_owned(), (namespace.to_owned(), self.clock));
    }

    pub(super) fn scope(&mut self, scope: Option<&str>) -> &mut ScopeState {
        self.scopes.entry(scope.map(str::to_owned)).or_default()
    }
}

pub(super) fn id_of(meta: &RecordMeta) -> Id {
    Arc::new((meta.namespace.clone(), meta.secret.clone()))
}

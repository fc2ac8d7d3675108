//! The objects of a release as this process last applied them, and their current state.
//!
//! The state of an object comes from a watch. Objects that cannot be watched (a permission is
//! missing, or the API does not serve watches) are read by [`read_unwatched`] once per reconcile
//! period, and keep that state until the next read.
//!
//! An object that its watch does not show may be gone, or the watch may be late: an object that is
//! deleted before the first list is in no list and no event, and a list may come from a cache that
//! is behind. Such an object is read by [`read_unseen`] a little later.
//!
//! This state is lost with the process. [`super::recognise`] restores it if the objects still match
//! the hash in the status.

mod reading;
mod shown;

use host::HashSet;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use helm_core::manifest::{ManifestObject, ObjectIdentity, ObjectKey};
use kube::core::GroupVersionKind;
use kube_objects::apply::{Applied, Merged, is_generated};
use kube_objects::ownership::CrIdentity;
use kube_objects::readiness::{HookOutcome, Readiness, depends_on_status};
use kube_objects::watch::{Fields, WatchGuard, WatchState};
use litemap::LiteMap;
use serde_json::Value;
use tokio::time::Instant;

use super::context::{ActionContext, generated_run};
use super::hooks::memory::HookMemory;
use super::names::{ManifestIndex, identities};
use crate::event::EventReason;

pub(super) use reading::{Read, Reading, read_one};
pub(crate) use reading::{read_unseen, read_unwatched};

/// Longest wait for a watch to start.
const SETTLE: Duration = Duration::from_secs(10);

/// Longest delay of a watch before an object that it does not show is read.
const UNSEEN: Duration = Duration::from_secs(5);

/// Time after a failed read until the object is read again.
const RETRY: Duration = Duration::from_secs(30);

/// Maximum number of times a drifted object is applied again while its revision is being deployed.
const MAX_REAPPLIES: u8 = 5;

/// The knowledge of the content of an object in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Content of the deployed record: the object was recognised after a restart.
    Recorded,
    /// Hash of the content that this process applied.
    Applied(u64),
    /// Unknown: something was sent that may not have been answered, or somebody else has deployed a
    /// revision. The fields that the operator owns may be the same, and only their values differ.
    Unknown,
}

pub(super) struct AppliedObject {
    pub(super) applied: Applied,
    /// Hash of what was applied.
    pub(super) content: u64,
    /// Whether it has lost its autoscaler, so that the chart's number of replicas was applied.
    pub(super) unscaled: bool,
    /// Whether the object was replaced, not applied.
    pub(super) replaced: bool,
    /// The run that created it, if the API server generated its name.
    pub(super) run: Option<String>,
    /// Whether it is a Job with `ttlSecondsAfterFinished`.
    pub(super) expires: bool,
    /// Sizes of volumes that stay larger than the manifest says.
    pub(super) kept_size: Option<String>,
    /// The watch that shows it.
    pub(super) guard: WatchGuard,
}

/// The last applied state of an object.
#[derive(Clone)]
pub(super) struct LiveObject {
    pub(super) uid: Box<str>,
    /// Hash of the fields that the operator owns, after the apply.
    pub(super) ours: u64,
    /// Resource version of the object after the apply.
    pub(super) version: u64,
    pub(super) content: Content,
    /// Whether it has lost its autoscaler with this revision.
    pub(super) unscaled: bool,
    /// Whether the object was replaced for this revision.
    pub(super) replaced: bool,
    /// A note about a difference from the manifest.
    pub(super) note: Option<Box<str>>,
    pub(super) run: Option<Box<str>>,
    pub(super) expires: bool,
    /// Number of times the object was applied again while its revision was deployed.
    pub(super) reapplied: u8,
    pub(super) guard: WatchGuard,
    /// Time when the object was applied or recognised.
    pub(super) since: Instant,
    /// Result of the last read, if the watch does not show it.
    pub(super) reading: Option<Box<Read>>,
}

/// The objects of one release.
#[derive(Clone, Default)]
pub struct Live {
    /// The revision that the objects belong to.
    pub revision: Option<u32>,
    /// Time when this process began to apply the objects of the revision.
    pub(super) began: Option<Timestamp>,
    /// Whether every object of the revision has been applied, or recognised.
    pub complete: bool,
    /// A tree would take twice as much memory for the few objects of most releases.
    pub(super) objects: LiteMap<ObjectKey, LiveObject>,
    /// Watches of objects whose state is not known yet.
    held: Vec<WatchGuard>,
    /// State of the running hooks.
    pub(super) hooks: HookMemory,
    /// Remarks that users should know of and that were not reported yet.
    remarks: BTreeSet<Remark>,
    /// Remarks reported since the beginning of the revision; a step may be repeated.
    reported: BTreeSet<Remark>,
}

/// Something that was done otherwise than a manifest says, or left out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remark {
    /// Reason of the event.
    pub reason: EventReason,
    /// The object, and what happened to it.
    pub note: String,
}

/// The state of an object, compared to how it was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ObjectState {
    /// Unchanged, with this readiness.
    Same(Readiness),
    /// The watch does not show the apply yet, or the object cannot be watched, and it has not been
    /// read yet.
    Unknown,
    /// Somebody changed a field that the operator owns.
    Changed {
        /// Hash of the fields that the operator still owns. Changing the same fields again results
        /// in the same hash.
        ours: u64,
    },
    /// The object does not exist.
    Missing,
    /// A Job that `ttlSecondsAfterFinished` has removed. It has run and is not created again.
    Expired,
}

/// Requirement on the Jobs of a release for its readiness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobReadiness {
    /// Jobs do not count.
    Ignored,
    /// Jobs have started and not failed.
    Started,
    /// Jobs are complete.
    Complete,
}

impl LiveObject {
    fn new(applied: &Applied, guard: WatchGuard) -> Self {
        Self {
            uid: applied.uid.as_str().into(),
            ours: applied.ours,
            version: applied.resource_version.parse().unwrap_or(0),
            content: Content::Unknown,
            unscaled: false,
            replaced: false,
            note: None,
            run: None,
            expires: false,
            reapplied: 0,
            guard,
            since: Instant::now(),
            reading: None,
        }
    }

    fn state(&self, key: &ObjectKey) -> ObjectState {
        let state = match self.guard.state() {
            WatchState::Starting => ObjectState::Unknown,
            WatchState::Synced => {
                match self
                    .guard
                    .get_since(key.namespace.as_deref(), &key.name, self.version)
                {
                    Some(seen) => self.compare(&seen.uid, seen.version, seen.ours, seen.readiness),
                    None if self.guard.version() < self.version => self.read_state(true),
                    None => ObjectState::Missing,
                }
            }
            WatchState::Forbidden(_) | WatchState::Missing | WatchState::Failing(_) => {
                self.read_state(false)
            }
        };
        match state {
            ObjectState::Missing if self.expires => ObjectState::Expired,
            state => state,
        }
    }

    /// Returns the state by the last read, if the watch was as it is now: `synced` or not.
    fn read_state(&self, synced: bool) -> ObjectState {
        match self.reading(synced) {
            Some(Reading::Present {
                uid,
                version,
                ours,
                readiness,
                ..
            }) => self.compare(uid, *version, *ours, readiness.clone()),
            Some(Reading::Absent) => ObjectState::Missing,
            Some(Reading::Refused { .. }) | None => ObjectState::Unknown,
        }
    }

    /// Returns the kept fields of the object; `None` if it is not there, or is not shown yet.
    fn fields(&self, key: &ObjectKey) -> Option<Arc<Value>> {
        let (namespace, name) = (key.namespace.as_deref(), &key.name);
        let seen = self.guard.get_since(namespace, name, self.version)?;
        let is_current = *seen.uid == *self.uid && seen.version >= self.version;
        seen.fields.filter(|_| is_current)
    }

    /// Returns the uid of the controller of an object that somebody has annotated to be kept, as the
    /// watch or the last read shows it; `None` if neither shows the last write.
    pub(super) fn holder(&self, key: &ObjectKey) -> Option<String> {
        if self.guard.state() == WatchState::Synced {
            let seen = self.guard.get(key.namespace.as_deref(), &key.name)?;
            let is_current = *seen.uid == *self.uid && seen.version >= self.version;
            return seen
                .holder
                .filter(|_| is_current)
                .map(|uid| uid.to_string());
        }
        match self.reading(false)? {
            Reading::Present {
                uid,
                version,
                holder,
                ..
            } if **uid == *self.uid && *version >= self.version => holder.clone(),
            _ => None,
        }
    }

    fn reading(&self, synced: bool) -> Option<&Reading> {
        let list = synced.then(|| self.guard.lists());
        let read = self.reading.as_ref().filter(|read| read.after == list)?;
        Some(&read.result)
    }

    /// Returns after which time the object is to be read if the watch lists every object but not this one, which may
    /// be gone. It is read once, and again as long as that is refused.
    fn unseen_for(&self, key: &ObjectKey) -> Option<Duration> {
        let wait = match self.reading(true) {
            None => UNSEEN.saturating_sub(self.since.elapsed()),
            Some(Reading::Refused { at, .. }) => RETRY.saturating_sub(at.elapsed()),
            Some(_) => return None,
        };
        let is_unseen = self.guard.state() == WatchState::Synced
            && self.guard.version() < self.version
            && self
                .guard
                .get(key.namespace.as_deref(), &key.name)
                .is_none();
        is_unseen.then_some(wait)
    }

    fn compare(&self, uid: &str, version: u64, ours: u64, readiness: Readiness) -> ObjectState {
        if version < self.version {
            ObjectState::Unknown
        } else if *uid != *self.uid || ours != self.ours {
            ObjectState::Changed { ours }
        } else {
            ObjectState::Same(readiness)
        }
    }

    /// Returns whether the object cannot be watched and has not been read since.
    fn is_unread(&self) -> bool {
        self.reading(false).is_none()
            && !matches!(
                self.guard.state(),
                WatchState::Starting | WatchState::Synced
            )
    }

    /// Returns why the object is not watched; `None` if it is, or the watch is starting.
    fn unwatched(&self) -> Option<String> {
        let reason = match self.guard.state() {
            WatchState::Starting | WatchState::Synced => return None,
            WatchState::Forbidden(permission) => format!("missing permission to {permission}"),
            WatchState::Missing => "the kind is not served".to_owned(),
            WatchState::Failing(message) => message,
        };
        Some(match self.reading(false) {
            Some(Reading::Refused { why, .. }) => {
                format!("{reason}; it cannot be read either: {why}")
            }
            _ => reason,
        })
    }
}

impl Live {
    /// Prepares for a revision whose record has just been written. What is known of another one with its number does
    /// not count: others have deleted the record of that one.
    pub(crate) fn prepare(&mut self, revision: u32) {
        self.complete = false;
        if self.revision == Some(revision) {
            self.revision = revision.checked_sub(1);
            self.hooks = HookMemory::default();
        }
    }

    /// Returns whether these are the objects of a later revision. If so, others have deleted its record.
    pub(crate) fn is_later_than(&self, revision: u32) -> bool {
        self.revision > Some(revision)
    }

    /// Starts a revision: none of its objects count as applied yet. The state of objects that it
    /// shares with another revision is kept.
    pub(super) fn begin(&mut self, revision: u32, now: Timestamp) {
        let same = self.revision == Some(revision);
        self.began = self.began.filter(|_| same).or(Some(now));
        // In a revision between the two, somebody else may have applied other values.
        let follows = same || self.revision.map(|known| known + 1) == Some(revision);
        if !same {
            self.reported.clear();
            self.hooks.forget_running();
        }
        self.revision = Some(revision);
        self.complete = false;
        for (_, object) in self.objects.iter_mut() {
            object.reapplied = 0;
            object.unscaled &= same;
            object.replaced &= same;
            if !follows {
                object.content = Content::Unknown;
            }
        }
    }

    /// Forgets the content of an object, and of the same object in another API version, before
    /// something is sent: an answer may be lost, and the process may be stopped or the reconcile be
    /// cancelled before it comes.
    pub(super) fn sending(&mut self, key: &ObjectKey) {
        if let Some(object) = self.objects.get_mut(key) {
            object.content = Content::Unknown;
            return;
        }
        let identity = ObjectIdentity::in_cluster(key);
        for (known, object) in self.objects.iter_mut() {
            if ObjectIdentity::in_cluster(known) == identity {
                object.content = Content::Unknown;
            }
        }
    }

    /// Completes a revision, all objects of which are applied.
    pub(super) fn finish(&mut self, manifest: &[ManifestObject], context: &ActionContext<'_>) {
        self.complete(manifest, context);
        // An object that did not have to be applied again is as it was applied before.
        let notes = self
            .objects
            .values()
            .filter_map(|object| object.note.clone());
        self.reported.extend(notes.map(|note| Remark {
            reason: EventReason::ListEntriesMerged,
            note: note.into(),
        }));
    }

    /// Completes a revision, all objects of which are known. Objects that are not in its manifest are
    /// dropped, and with them the watches that only they needed.
    pub(super) fn complete(&mut self, manifest: &[ManifestObject], context: &ActionContext<'_>) {
        let of = ManifestIndex::of(manifest, self.revision.unwrap_or(0), context);
        self.objects
            .retain(|key, object| of.has(key, object.run.as_deref()));
        let mut objects = std::mem::take(&mut self.objects).into_tuple_vec();
        objects.shrink_to_fit();
        self.objects = LiteMap::from_sorted_store_unchecked(objects);
        self.held.clear();
        self.complete = true;
    }

    /// Records an applied object. An earlier object of the same run is dropped.
    pub(super) fn applied(&mut self, one: AppliedObject) {
        let key = one.applied.key.clone();
        let note = merged_note(&key, &one.applied.merged);
        if let Some(note) = &note {
            self.remark(EventReason::ListEntriesMerged, note.clone());
        }
        if let Some(note) = one.kept_size {
            self.remark(EventReason::VolumeSizeKept, note);
        }
        if !self.objects.contains_key(&key) {
            // The same object in another API version, or an earlier one of its name.
            let identity = ObjectIdentity::in_cluster(&key);
            self.objects.retain(|known, object| {
                *object.uid != *one.applied.uid && ObjectIdentity::in_cluster(known) != identity
            });
        }
        let reapplied = self.objects.get(&key).map_or(0, |object| object.reapplied);
        if let Some(run) = &one.run {
            self.forget_run(run);
        }
        let object = LiveObject {
            content: Content::Applied(one.content),
            unscaled: one.unscaled,
            replaced: one.replaced,
            note: note.map(Into::into),
            run: one.run.map(Into::into),
            expires: one.expires,
            reapplied,
            ..LiveObject::new(&one.applied, one.guard)
        };
        self.objects.insert(key, object);
    }

    /// Keeps these watches open in place of the ones held before, although the state of their
    /// objects is not known. A watch that closes and opens again reports every object to its custom
    /// resource, which would wake it again and again.
    pub(crate) fn hold(&mut self, guards: impl IntoIterator<Item = WatchGuard>) {
        self.held = guards.into_iter().collect();
    }

    /// Adds something to report.
    pub(crate) fn remark(&mut self, reason: EventReason, note: String) {
        let remark = Remark { reason, note };
        if !self.reported.contains(&remark) {
            self.remarks.insert(remark);
        }
    }

    /// Takes what is to be reported.
    pub fn take_remarks(&mut self) -> BTreeSet<Remark> {
        self.reported.extend(self.remarks.iter().cloned());
        std::mem::take(&mut self.remarks)
    }

    /// Returns everything that was remarked since the beginning of the revision.
    pub fn reported(&self) -> &BTreeSet<Remark> {
        &self.reported
    }

    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        self.objects.remove(key);
    }

    /// Drops the objects that a run has created.
    pub(super) fn forget_run(&mut self, run: &str) {
        self.objects
            .retain(|_, object| object.run.as_deref() != Some(run));
    }

    /// Returns the uid of an object, whatever API version it was applied in.
    pub(crate) fn uid(&self, key: &ObjectKey) -> Option<&str> {
        if let Some(object) = self.objects.get(key) {
            return Some(&object.uid);
        }
        let identity = ObjectIdentity::in_cluster(key);
        let mut objects = self.objects.iter();
        let same = objects.find(|(known, _)| ObjectIdentity::in_cluster(known) == identity);
        same.map(|(_, object)| &*object.uid)
    }

    /// Returns the uid of an object that this process has applied. Without the answer, or by a watch after a
    /// restart, it may be that of a former object.
    pub(super) fn applied_uid(&self, key: &ObjectKey) -> Option<&str> {
        let is_applied = matches!(self.content(key), Some(Content::Applied(_)));
        self.uid(key).filter(|_| is_applied)
    }

    pub(super) fn uids_of(&self, identities: &HashSet<ObjectIdentity<'_>>) -> HashSet<String> {
        let objects = self
            .objects
            .iter()
            .filter(|(key, _)| identities.contains(&ObjectIdentity::in_cluster(key)));
        objects.map(|(_, object)| object.uid.to_string()).collect()
    }

    /// Returns whether an object is known to be unchanged, and not being deleted.
    pub(crate) fn is_clean(&self, key: &ObjectKey) -> bool {
        self.objects.get(key).is_some_and(|object| {
            matches!(object.state(key), ObjectState::Same(readiness) if readiness != Readiness::Terminating)
        })
    }

    /// Returns whether watches show all objects of the revision as applied, and ready.
    pub(crate) fn is_at_rest(&self) -> bool {
        let at_rest = |key: &ObjectKey, object: &LiveObject| {
            object.guard.state() == WatchState::Synced
                && match object.state(key) {
                    ObjectState::Same(readiness) => readiness.is_ready(),
                    ObjectState::Expired => true,
                    _ => false,
                }
        };
        self.complete && (self.objects.iter()).all(|(key, object)| at_rest(key, object))
    }

    /// Returns what is known of the content of an object; `None` if the object itself is unknown.
    pub(super) fn content(&self, key: &ObjectKey) -> Option<Content> {
        Some(self.objects.get(key)?.content)
    }

    /// Forgets the hooks that were running: those of an action that others have ended, by deleting its record.
    pub(crate) fn forget_running_hooks(&mut self) {
        self.hooks.forget_running();
    }

    /// Returns whether an object was replaced for this revision.
    pub(super) fn is_replaced(&self, key: &ObjectKey) -> bool {
        self.objects.get(key).is_some_and(|object| object.replaced)
    }

    /// Returns whether an object has lost its autoscaler with this revision.
    pub(super) fn is_unscaled(&self, key: &ObjectKey) -> bool {
        self.objects.get(key).is_some_and(|object| object.unscaled)
    }

    pub(crate) fn states(&self) -> impl Iterator<Item = (&ObjectKey, ObjectState)> {
        self.objects
            .iter()
            .map(|(key, object)| (key, object.state(key)))
    }

    /// Returns the objects that somebody changed or removed, each with the hash of the fields that
    /// the operator still owns, or `None` if the object is gone. Changing the same fields again
    /// results in the same hash, so that key and hash identify a conflict.
    pub(crate) fn drifted_states(&self) -> Vec<(ObjectKey, Option<u64>)> {
        self.states()
            .filter_map(|(key, state)| match state {
                ObjectState::Changed { ours } => Some((key.clone(), Some(ours))),
                ObjectState::Missing => Some((key.clone(), None)),
                ObjectState::Same(_) | ObjectState::Unknown | ObjectState::Expired => None,
            })
            .collect()
    }

    /// Returns the keys of the objects that somebody changed or removed.
    pub(crate) fn drifted(&self) -> Vec<ObjectKey> {
        let states = self.drifted_states().into_iter();
        states.map(|(key, _)| key).collect()
    }

    /// Returns the objects that cannot be watched, and why. They are read once per reconcile
    /// period.
    pub fn unwatched(&self) -> Vec<(ObjectKey, String)> {
        self.objects
            .iter()
            .filter_map(|(key, object)| Some((key.clone(), object.unwatched()?)))
            .collect()
    }

    /// Returns after which time an object is to be read of which neither a watch nor a read has
    /// told; `None` if there is none.
    pub fn read_in(&self) -> Option<Duration> {
        let delays = self.objects.iter().filter_map(|(key, object)| {
            if object.is_unread() {
                Some(RETRY)
            } else {
                object.unseen_for(key)
            }
        });
        delays.min()
    }

    /// Drops what was read while a watch was synced and is not any more, or the other way round, or before it has
    /// listed all objects again: it is out of date.
    pub(crate) fn drop_outdated_reads(&mut self) {
        for (_, object) in self.objects.iter_mut() {
            let is_synced = object.guard.state() == WatchState::Synced;
            let list = is_synced.then(|| object.guard.lists());
            object.reading.take_if(|read| read.after != list);
        }
    }

    /// Returns whether an object that was applied does not exist any more.
    pub(crate) fn has_missing(&self) -> bool {
        self.states()
            .any(|(_, state)| state == ObjectState::Missing)
    }

    /// Returns whether an object that cannot be watched has not been read since.
    pub(crate) fn has_unread(&self) -> bool {
        self.objects.values().any(LiveObject::is_unread)
    }

    /// Wakes the owner when the state of a watch changes that does not show every object.
    pub fn wake_when_known(&self, owner: &CrIdentity) {
        for object in self.objects.values() {
            object.guard.wake_when_known(owner);
        }
    }

    /// Returns a Job that failed, and why. A Job that `ttlSecondsAfterFinished` has removed counts
    /// if a watch saw it fail.
    pub(crate) fn failed_job(&self) -> Option<(&ObjectKey, String)> {
        let mut jobs = self.objects.iter().filter(|(key, _)| is_job(key));
        jobs.find_map(|(key, object)| match object.state(key) {
            ObjectState::Same(Readiness::Failed(why)) => Some((key, why)),
            ObjectState::Expired => match object.guard.outcome(&object.uid)? {
                HookOutcome::Failed(why) => Some((key, why)),
                HookOutcome::Running | HookOutcome::Succeeded => None,
            },
            _ => None,
        })
    }

    /// Returns the objects that a release waits for: those of running hooks, and those that exist as
    /// applied and are not ready.
    pub fn awaited(&self) -> Vec<ObjectKey> {
        let unready = self.states().filter_map(|(key, state)| match state {
            ObjectState::Same(readiness) if !readiness.is_ready() => Some(key),
            _ => None,
        });
        self.hooks.keys().chain(unready).cloned().collect()
    }

    /// Returns the objects that are not ready, each with the reason.
    pub(crate) fn unready(&self, jobs: JobReadiness) -> Vec<(&ObjectKey, String)> {
        let why = |key: &ObjectKey, object: &LiveObject| match object.state(key) {
            ObjectState::Same(Readiness::Started) if jobs == JobReadiness::Complete => {
                Some("not complete".to_owned())
            }
            ObjectState::Same(readiness) if readiness.is_ready() => None,
            ObjectState::Same(readiness) => {
                Some(readiness.message().unwrap_or("not ready").to_owned())
            }
            // An object without a status is ready as soon as it exists.
            ObjectState::Unknown if !depends_on_status(&gvk_of(key)) => None,
            ObjectState::Unknown => Some(match object.unwatched() {
                Some(why) => format!("cannot be watched ({why})"),
                None => "not seen yet".to_owned(),
            }),
            ObjectState::Changed { .. } => Some("changed by somebody else".to_owned()),
            ObjectState::Missing => Some("missing".to_owned()),
            ObjectState::Expired => None,
        };
        let objects = self.objects.iter();
        objects
            .filter(|(key, _)| jobs != JobReadiness::Ignored || !is_job(key))
            .filter_map(|(key, object)| Some((key, why(key, object)?)))
            .collect()
    }

    /// Returns the kept fields of the objects of these kinds that exist; `None` if a watch does not show all of them.
    pub fn fields(
        &self,
        kinds: &BTreeMap<String, Arc<Fields>>,
    ) -> Option<Vec<(&ObjectKey, Arc<Value>)>> {
        let objects = self.objects.iter();
        let kept = objects.filter(|(key, _)| kinds.contains_key(&key.kind));
        let mut shown = Vec::new();
        for (key, object) in kept {
            if object.guard.state() != WatchState::Synced
                || object.state(key) == ObjectState::Unknown
            {
                return None;
            }
            shown.extend(object.fields(key).map(|fields| (key, fields)));
        }
        Some(shown)
    }

    /// Returns the hash over all objects that is stored in the status. Jobs with
    /// `ttlSecondsAfterFinished` are left out, because their removal is not a change.
    pub(crate) fn aggregate(&self) -> String {
        let objects = self.objects.iter().filter(|(_, object)| !object.expires);
        kube_objects::drift::aggregate(objects.map(|(key, object)| (key, object.ours))).to_string()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.objects.keys()
    }

    /// Returns the objects of a manifest that drifted and that `only` accepts.
    pub(super) fn drifted_of<'m>(
        &self,
        manifest: &'m [ManifestObject],
        context: &ActionContext<'_>,
        only: &(dyn Fn(&ObjectKey) -> bool + Sync),
    ) -> Vec<&'m ManifestObject> {
        let drifted: Vec<ObjectKey> = self.drifted().into_iter().filter(|key| only(key)).collect();
        let runs: HashSet<&str> = drifted
            .iter()
            .filter_map(|key| self.objects.get(key)?.run.as_deref())
            .collect();
        let places: HashSet<ObjectIdentity<'_>> =
            drifted.iter().map(ObjectIdentity::in_cluster).collect();
        let revision = self.revision.unwrap_or(0);
        let wanted = |object: &&ManifestObject| {
            if is_generated(object.object()) {
                let run = generated_run(&context.primary.uid, revision, object);
                return runs.contains(run.as_str());
            }
            let key = object.key();
            let mut possible = identities(key, context.namespace).into_iter();
            possible.any(|identity| places.contains(&identity))
        };
        manifest.iter().filter(wanted).collect()
    }

    /// Returns the drifted objects to apply again while their revision is being deployed, and
    /// counts that. Objects that keep changing are left out after [`MAX_REAPPLIES`] times.
    pub(super) fn take_reapplicable(&mut self) -> HashSet<ObjectKey> {
        let mut accepted = HashSet::default();
        for key in self.drifted() {
            if let Some(object) = self.objects.get_mut(&key)
                && object.reapplied < MAX_REAPPLIES
            {
                object.reapplied += 1;
                accepted.insert(key);
            }
        }
        accepted
    }
}

/// Returns the remark about lists of which entries were merged before they were applied.
pub(super) fn merged_note(key: &ObjectKey, merged: &[Merged]) -> Option<String> {
    if merged.is_empty() {
        return None;
    }
    let lists = merged
        .iter()
        .map(|merged| format!("{} ({})", merged.path, merged.key))
        .collect::<Vec<_>>()
        .join(", ");
    Some(format!(
        "{key} has list entries with the same key, of which the last one was applied: {lists}"
    ))
}

/// Waits up to [`SETTLE`] for a watch to start, and returns its state.
pub(super) async fn settled(guard: &WatchGuard) -> WatchState {
    let settled = tokio::time::timeout(SETTLE, guard.settled()).await;
    settled.unwrap_or(WatchState::Starting)
}

/// Returns whether an object of a manifest is a Job with `ttlSecondsAfterFinished`.
pub(super) fn expires(object: &ManifestObject) -> bool {
    is_job(object.key())
        && object
            .object()
            .pointer("/spec/ttlSecondsAfterFinished")
            .is_some_and(Value::is_number)
}

fn is_job(key: &ObjectKey) -> bool {
    key.group == "batch" && key.kind == "Job"
}

fn gvk_of(key: &ObjectKey) -> GroupVersionKind {
    GroupVersionKind::gvk(&key.group, &key.version, &key.kind)
}

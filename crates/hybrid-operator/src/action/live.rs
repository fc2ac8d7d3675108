//! The objects of a release as this process last applied them, and how they are now.
//!
//! A watch tells how an object is. What cannot be watched (a permission is missing, or the API does
//! not serve watches) is read by [`read_unwatched`] once every period, and counts as it was read
//! until the next time.
//!
//! What is known is lost with the process. [`super::recognise`] finds it again where the objects
//! still are as the status says.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use helm_core::manifest::{ManifestObject, ObjectKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::GroupVersionKind;
use serde_json::Value;

use super::hooks::HookMemory;
use super::names::{Named, Names};
use super::{ActionContext, generated_run};
use crate::cluster::apply::{Applied, is_generated};
use crate::cluster::drift::ours_hash;
use crate::cluster::ownership::{operator_selector, placed};
use crate::cluster::read::{self, ReadError};
use crate::cluster::{ApiKind, Cluster, DiscoveryError, OperatorId, Scope};
use crate::controller::{Registry, Seen, WatchGuard, WatchKey, WatchState};
use crate::readiness::{Readiness, depends_on_status, readiness_of};

/// How many objects that cannot be watched are read at once.
const READS_AT_ONCE: usize = 8;

/// How long a watch may take to begin before it is gone on without it.
const SETTLE: Duration = Duration::from_secs(10);

/// How often an object is applied again while its revision is being deployed and waited for.
const AGAIN: u8 = 5;

/// An object that was applied.
pub(super) struct One {
    pub(super) applied: Applied,
    /// Hash of what was applied.
    pub(super) content: u64,
    /// The run that has created it, where the API server has given it its name.
    pub(super) run: Option<String>,
    /// Whether it is a Job that its time to live removes.
    pub(super) expires: bool,
    /// The watch that shows it.
    pub(super) guard: WatchGuard,
}

/// An object as it was applied.
#[derive(Clone)]
pub(super) struct LiveObject {
    pub(super) uid: String,
    /// Hash of what is ours on it, as applied.
    pub(super) ours: u64,
    /// Its resource version after the apply.
    pub(super) version: u64,
    /// Hash of what was applied; `None` for what was recognised after a restart.
    pub(super) content: Option<u64>,
    pub(super) run: Option<String>,
    pub(super) expires: bool,
    /// How often it was applied again while its revision was being deployed.
    pub(super) again: u8,
    pub(super) guard: WatchGuard,
    /// What was read of it last, if it cannot be watched.
    pub(super) reading: Option<Reading>,
}

/// What was read of an object that cannot be watched.
#[derive(Clone)]
pub(super) enum Reading {
    Present {
        uid: String,
        version: u64,
        ours: u64,
        readiness: Readiness,
    },
    Absent,
    /// It cannot be read either; the text says why.
    Refused(String),
}

/// The objects of one release.
#[derive(Clone, Default)]
pub struct Live {
    /// The revision whose objects these are.
    pub revision: Option<u32>,
    /// Whether every object of the revision has been applied, or recognised.
    pub complete: bool,
    pub(super) objects: BTreeMap<ObjectKey, LiveObject>,
    /// Watches of objects of which nothing is known yet.
    held: Vec<WatchGuard>,
    /// What is known of the hooks that run.
    pub(super) hooks: HookMemory,
}

/// How an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectState {
    /// As it was applied, and this ready.
    Same(Readiness),
    /// The watch has not caught up with our apply, or cannot be had and it was not read yet.
    Unknown,
    /// Somebody changed what is ours.
    Changed {
        /// Hash of what is left of ours. Whoever takes the same fields again leaves the same hash.
        ours: u64,
    },
    /// It is gone.
    Missing,
    /// A Job that is gone, as its `ttlSecondsAfterFinished` says: it ran, and is not made again.
    Expired,
}

impl LiveObject {
    fn new(applied: &Applied, guard: WatchGuard) -> Self {
        Self {
            uid: applied.uid.clone(),
            ours: applied.ours,
            version: applied.resource_version.parse().unwrap_or(0),
            content: None,
            run: None,
            expires: false,
            again: 0,
            guard,
            reading: None,
        }
    }

    fn state(&self, key: &ObjectKey) -> ObjectState {
        let state = match self.guard.state() {
            WatchState::Starting => ObjectState::Unknown,
            WatchState::Synced => match self.guard.get(key.namespace.as_deref(), &key.name) {
                Some(seen) => self.compare(&seen.uid, seen.version, seen.ours, seen.readiness),
                None if self.guard.version() < self.version => ObjectState::Unknown,
                None => ObjectState::Missing,
            },
            WatchState::Forbidden(_) | WatchState::Missing | WatchState::Failing(_) => {
                match &self.reading {
                    Some(Reading::Present {
                        uid,
                        version,
                        ours,
                        readiness,
                    }) => self.compare(uid, *version, *ours, readiness.clone()),
                    Some(Reading::Absent) => ObjectState::Missing,
                    Some(Reading::Refused(_)) | None => ObjectState::Unknown,
                }
            }
        };
        match state {
            ObjectState::Missing if self.expires => ObjectState::Expired,
            state => state,
        }
    }

    fn compare(&self, uid: &str, version: u64, ours: u64, readiness: Readiness) -> ObjectState {
        if version < self.version {
            ObjectState::Unknown
        } else if uid != self.uid || ours != self.ours {
            ObjectState::Changed { ours }
        } else {
            ObjectState::Same(readiness)
        }
    }

    /// Why no watch tells of the object; `None` if one does, or is about to.
    fn unwatched(&self) -> Option<String> {
        let reason = match self.guard.state() {
            WatchState::Starting | WatchState::Synced => return None,
            WatchState::Forbidden(permission) => format!("missing permission to {permission}"),
            WatchState::Missing => "the kind is not served".to_owned(),
            WatchState::Failing(message) => message,
        };
        Some(match &self.reading {
            Some(Reading::Refused(why)) => format!("{reason}; it cannot be read either: {why}"),
            _ => reason,
        })
    }
}

impl Live {
    /// Begins to apply a revision: nothing of it counts as applied yet. What is known of objects
    /// that it shares with another revision stays known.
    pub(super) fn begin(&mut self, revision: u32) {
        self.revision = Some(revision);
        self.complete = false;
        for object in self.objects.values_mut() {
            object.again = 0;
        }
    }

    /// Every object of the revision is applied: what is not of its manifest is forgotten, and with
    /// it the watches that only it needed.
    pub(super) fn finish(&mut self, manifest: &[ManifestObject], context: &ActionContext<'_>) {
        let of = Names::of(manifest, self.revision.unwrap_or(0), context);
        self.objects
            .retain(|key, object| of.has(key, object.run.as_deref()));
        self.held.clear();
        self.complete = true;
    }

    /// Remembers an object that was applied. The name that an earlier object of its run had is
    /// forgotten.
    pub(super) fn applied(&mut self, one: One) {
        let key = one.applied.key.clone();
        let again = self.objects.get(&key).map_or(0, |object| object.again);
        if let Some(run) = &one.run {
            self.forget_run(run);
        }
        let object = LiveObject {
            content: Some(one.content),
            run: one.run,
            expires: one.expires,
            again,
            ..LiveObject::new(&one.applied, one.guard)
        };
        self.objects.insert(key, object);
    }

    /// Takes an object over from what a watch shows of it.
    pub fn adopt(&mut self, key: ObjectKey, seen: &Seen, guard: WatchGuard) {
        let object = LiveObject {
            uid: seen.uid.to_string(),
            ours: seen.ours,
            version: seen.version,
            content: None,
            run: None,
            expires: false,
            again: 0,
            guard,
            reading: None,
        };
        self.objects.insert(key, object);
    }

    /// Keeps these watches open, in the place of those that were held before, although nothing is
    /// known of their objects: a watch that closes and opens again tells its custom resources of
    /// every object anew, and so would wake them for ever.
    pub fn hold(&mut self, guards: impl IntoIterator<Item = WatchGuard>) {
        self.held = guards.into_iter().collect();
    }

    /// Forgets an object.
    pub fn forget(&mut self, key: &ObjectKey) {
        self.objects.remove(key);
    }

    /// Forgets the objects that a run has made.
    pub(super) fn forget_run(&mut self, run: &str) {
        self.objects
            .retain(|_, object| object.run.as_deref() != Some(run));
    }

    /// The uid of an object.
    pub fn uid(&self, key: &ObjectKey) -> Option<&str> {
        self.objects.get(key).map(|object| object.uid.as_str())
    }

    /// Whether an object is known to be as it was applied.
    pub fn is_clean(&self, key: &ObjectKey) -> bool {
        self.objects
            .get(key)
            .is_some_and(|object| matches!(object.state(key), ObjectState::Same(_)))
    }

    /// Hash of what was applied of an object, where this process knows it.
    pub fn content(&self, key: &ObjectKey) -> Option<u64> {
        self.objects.get(key)?.content
    }

    /// Every object and how it is.
    pub fn states(&self) -> impl Iterator<Item = (&ObjectKey, ObjectState)> {
        self.objects
            .iter()
            .map(|(key, object)| (key, object.state(key)))
    }

    /// Objects that somebody changed or removed, and what is left of ours on each: the hash of the
    /// fields that are still ours, or `None` if the object is gone. Whoever takes the same fields
    /// again leaves the same hash, so that both together say what is fought over.
    pub fn drifted_states(&self) -> Vec<(ObjectKey, Option<u64>)> {
        self.states()
            .filter_map(|(key, state)| match state {
                ObjectState::Changed { ours } => Some((key.clone(), Some(ours))),
                ObjectState::Missing => Some((key.clone(), None)),
                ObjectState::Same(_) | ObjectState::Unknown | ObjectState::Expired => None,
            })
            .collect()
    }

    /// Objects that somebody changed or removed.
    pub fn drifted(&self) -> Vec<ObjectKey> {
        let states = self.drifted_states().into_iter();
        states.map(|(key, _)| key).collect()
    }

    /// Objects that no watch tells of, and why. They are read every period.
    pub fn unwatched(&self) -> Vec<(ObjectKey, String)> {
        self.objects
            .iter()
            .filter_map(|(key, object)| Some((key.clone(), object.unwatched()?)))
            .collect()
    }

    /// What is not ready yet; empty when everything is. Jobs count only when asked for.
    pub fn unready(&self, jobs: bool) -> Vec<String> {
        self.objects
            .iter()
            .filter(|(key, _)| jobs || key.kind != "Job" || key.group != "batch")
            .filter_map(|(key, object)| match object.state(key) {
                ObjectState::Same(readiness) if readiness.is_ready() => None,
                ObjectState::Same(readiness) => Some(format!(
                    "{key}: {}",
                    readiness.message().unwrap_or("not ready")
                )),
                // What has no status is ready as soon as it is there.
                ObjectState::Unknown if !depends_on_status(&gvk_of(key)) => None,
                ObjectState::Unknown => Some(match object.unwatched() {
                    Some(why) => format!("{key}: cannot be watched ({why})"),
                    None => format!("{key}: not seen yet"),
                }),
                ObjectState::Changed { .. } => Some(format!("{key}: changed by somebody else")),
                ObjectState::Missing => Some(format!("{key}: missing")),
                ObjectState::Expired => None,
            })
            .collect()
    }

    /// The hash over all objects that the status keeps. Jobs that their time to live removes are
    /// left out: their going is no change.
    pub fn aggregate(&self) -> String {
        let objects = self.objects.iter().filter(|(_, object)| !object.expires);
        crate::cluster::drift::aggregate(objects.map(|(key, object)| (key, object.ours)))
            .to_string()
    }

    /// Keys of all objects.
    pub fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.objects.keys()
    }

    /// Chooses objects of a manifest: those that drifted and that `only` accepts.
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
        let places: HashSet<Named<'_>> = drifted.iter().map(Named::in_cluster).collect();
        let revision = self.revision.unwrap_or(0);
        let wanted = |object: &&ManifestObject| {
            if is_generated(object.object()) {
                let run = generated_run(&context.primary.uid, revision, object);
                return runs.contains(run.as_str());
            }
            let key = object.key();
            places.contains(&Named::of(key, context.namespace))
                || places.contains(&Named::without_namespace(key))
        };
        manifest.iter().filter(wanted).collect()
    }

    /// Counts that drifted objects are applied again while their revision is being deployed, and
    /// tells those that may be: not those that somebody keeps changing.
    pub(super) fn apply_again(&mut self) -> HashSet<ObjectKey> {
        let mut accepted = HashSet::new();
        for key in self.drifted() {
            if let Some(object) = self.objects.get_mut(&key)
                && object.again < AGAIN
            {
                object.again += 1;
                accepted.insert(key);
            }
        }
        accepted
    }
}

/// How far a watch is, once it has begun; in bounded time.
pub(super) async fn settled(guard: &WatchGuard) -> WatchState {
    let settled = tokio::time::timeout(SETTLE, guard.settled()).await;
    settled.unwrap_or(WatchState::Starting)
}

/// Whether an object of a manifest is a Job that its time to live removes when it has ended.
pub(super) fn expires(object: &ManifestObject) -> bool {
    object.key().group == "batch"
        && object.key().kind == "Job"
        && object
            .object()
            .pointer("/spec/ttlSecondsAfterFinished")
            .is_some_and(Value::is_number)
}

/// Reads the objects that no watch tells of, and remembers how they are. For each period.
///
/// Watches that are still starting are not waited for. An object that may not be read stays
/// unknown, and [`Live::unwatched`] says why.
///
/// # Errors
/// The first failure that may pass by itself; all other objects have been read, and what was known
/// of those that failed stays.
pub async fn read_unwatched(cluster: &Cluster, live: &mut Live) -> Result<(), ReadError> {
    let unwatched: Vec<ObjectKey> = live.unwatched().into_iter().map(|(key, _)| key).collect();
    let mut readings = futures::stream::iter(unwatched)
        .map(|key| async move {
            let reading = read_one(cluster, &key).await;
            (key, reading)
        })
        .buffer_unordered(READS_AT_ONCE);
    let mut failed = None;
    while let Some((key, reading)) = readings.next().await {
        let reading = match reading {
            Ok(reading) => reading,
            Err(error) if error.is_transient() => {
                failed.get_or_insert(error);
                continue;
            }
            Err(error) => Reading::Refused(error.to_string()),
        };
        if let Some(object) = live.objects.get_mut(&key) {
            object.reading = Some(reading);
        }
    }
    failed.map_or(Ok(()), Err)
}

pub(super) async fn read_one(cluster: &Cluster, key: &ObjectKey) -> Result<Reading, ReadError> {
    let gvk = gvk_of(key);
    let (metadata, readiness) = if depends_on_status(&gvk) {
        let Some(mut object) = read::get(cluster, key).await? else {
            return Ok(Reading::Absent);
        };
        let readiness = readiness_of(&gvk, &object);
        let metadata = object.get_mut("metadata").map(Value::take);
        let metadata = serde_json::from_value(metadata.unwrap_or_default());
        (metadata.unwrap_or_default(), readiness)
    } else {
        let Some(metadata) = read::get_metadata(cluster, key).await? else {
            return Ok(Reading::Absent);
        };
        let readiness = match metadata.deletion_timestamp {
            Some(_) => Readiness::Terminating,
            None => Readiness::Ready,
        };
        (metadata, readiness)
    };
    let ours = ours_hash(&metadata);
    let ObjectMeta {
        uid,
        resource_version,
        ..
    } = metadata;
    Ok(Reading::Present {
        uid: uid.unwrap_or_default(),
        version: resource_version
            .and_then(|version| version.parse().ok())
            .unwrap_or(0),
        ours,
        readiness,
    })
}

fn gvk_of(key: &ObjectKey) -> GroupVersionKind {
    GroupVersionKind::gvk(&key.group, &key.version, &key.kind)
}

/// Where an object of a manifest is, and the watch that shows it.
pub(crate) struct Place {
    pub(crate) key: ObjectKey,
    pub(crate) kind: Arc<ApiKind>,
    pub(crate) guard: WatchGuard,
}

/// Finds where an object of the release is.
pub(super) async fn place_of(
    context: &ActionContext<'_>,
    key: &ObjectKey,
) -> Result<Place, DiscoveryError> {
    place(
        context.cluster,
        context.registry,
        context.operator,
        context.namespaces,
        key,
        context.namespace,
    )
    .await
}

/// Finds where an object is.
pub(crate) async fn place(
    cluster: &Cluster,
    registry: &Registry,
    operator: &OperatorId,
    namespaces: &[String],
    key: &ObjectKey,
    release_namespace: &str,
) -> Result<Place, DiscoveryError> {
    let gvk = gvk_of(key);
    let kind = cluster.resolve(&gvk).await?;
    let key = placed(key, kind.scope, release_namespace);
    // With a list of namespaces the operator may read there alone.
    let namespace = match (&key.namespace, kind.scope) {
        (Some(namespace), Scope::Namespaced) if !namespaces.is_empty() => Some(namespace.clone()),
        _ => None,
    };
    let watch = WatchKey {
        resource: kind.resource.clone(),
        namespace,
        selector: operator_selector(operator),
    };
    Ok(Place {
        key,
        kind,
        guard: registry.acquire(watch),
    })
}

//! One custom resource in full: conditions, objects, history, events and the next attempt.

use std::time::Duration;

use helm_core::manifest::ObjectKey;
use helm_release::ObjectHealth;
use helm_release::release::RecordMeta;
use jiff::Timestamp;
use kube_objects::AccountName;
use operator_runtime::controller::{Key, Turn};
use serde::Serialize;
use tokio::time::Instant;

use super::recent::{Published, RecentEvents};
use super::row::{Row, ShownCondition};
use super::{ShownKind, View};

/// One custom resource in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Details {
    #[serde(flatten)]
    kind: ShownKind,
    row: Row,
    generation: Option<i64>,
    observed_generation: Option<i64>,
    conditions: Vec<ShownCondition>,
    /// The objects of the release; `None` while a reconcile is in progress, or if it is not known yet.
    objects: Option<Vec<Object>>,
    history: Vec<PastRevision>,
    attempts: Attempts,
    events: Vec<Published>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Object {
    group: String,
    kind: String,
    namespace: Option<String>,
    name: String,
    ready: bool,
    state: &'static str,
    message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct PastRevision {
    revision: u32,
    status: String,
    written: Option<Timestamp>,
    /// Name of the Secret or `ConfigMap`.
    record: String,
    /// Service account as which its objects were applied, if not as the operator itself.
    account: Option<String>,
}

/// The attempts to bring the release to what the custom resource asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Attempts {
    /// Number of failed attempts of the newest revision.
    failed: u32,
    /// Whether one is in progress or waits for a worker.
    running: bool,
    /// Time of the next one, if nothing changes before.
    next: Option<Timestamp>,
}

impl View {
    /// Returns a custom resource in full; `None` if it does not exist.
    pub(crate) fn details(&self, key: &Key, events: &RecentEvents) -> Option<Details> {
        let resource = self.get(key)?.read();
        let history = self.history(key);
        let failures = history.last().and_then(|latest| latest.failures);
        let written = history.last().and_then(RecordMeta::written_at);
        let turn = self.queue.turn(key);
        let known = self.releases().and_then(|releases| {
            releases.memories.of(key, |memory| {
                let live = &memory.release.live;
                live.revision.map(|_| live.shown())
            })
        });
        Some(Details {
            kind: self.kind(),
            generation: resource.metadata.generation,
            observed_generation: resource.status.observed_generation,
            conditions: resource.status.conditions.clone(),
            objects: known
                .flatten()
                .map(|all| all.into_iter().map(Object::of).collect()),
            history: history.iter().rev().map(PastRevision::of).collect(),
            attempts: Attempts {
                failed: failures.map_or(0, |failures| failures.attempts),
                running: matches!(turn, Turn::Now | Turn::Ready),
                next: match turn {
                    Turn::At(at) => Some(time_of(at)),
                    Turn::Now | Turn::Ready | Turn::None => None,
                },
            },
            events: events.of(&resource.metadata.uid),
            row: resource.row(key.namespace.as_deref(), &key.name, written),
        })
    }
}

impl Details {
    /// Takes over the objects that were known before, if they are not known during a reconcile.
    pub(crate) fn keep_objects(&mut self, before: Option<&Self>) {
        if self.objects.is_none() && self.attempts.running {
            self.objects = before.and_then(|before| before.objects.clone());
        }
    }
}

/// Returns the time of day, in whole seconds, so that it stays the same while it comes closer.
fn time_of(at: Instant) -> Timestamp {
    let until = at.saturating_duration_since(Instant::now());
    let time = host::timestamp() + until;
    let rounded = time + Duration::from_millis(500);
    Timestamp::from_second(rounded.as_second()).unwrap_or(time)
}

impl Object {
    fn of((key, health): (ObjectKey, ObjectHealth)) -> Self {
        Self {
            group: key.group,
            kind: key.kind,
            namespace: key.namespace,
            name: key.name,
            ready: health.ready,
            state: health.state,
            message: health.message.unwrap_or_default(),
        }
    }
}

impl PastRevision {
    fn of(meta: &RecordMeta) -> Self {
        Self {
            revision: meta.revision.0,
            status: meta.status.to_string(),
            written: meta.written_at(),
            record: meta.secret.clone(),
            account: meta.account.as_ref().map(AccountName::user),
        }
    }
}

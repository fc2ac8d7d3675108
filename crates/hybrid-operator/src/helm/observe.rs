//! What is: the custom resource, its records and its objects, all from caches.

use std::sync::Arc;

use helm_core::release::{Revision, Status as ReleaseStatus};
use serde_json::Value;

use super::access::Access;
use super::act::{action_context, definitions_are_wanted};
use super::desired::{Desired, objects_of};
use super::finalizer;
use super::kind::Kind;
use super::memory::Memory;
use super::plan::{Adoption, Drift, Observed, Record};
use super::setup::Setup;
use super::subject::Subject;
use crate::action::{ActionError, live, recognise};
use crate::cluster::OperatorId;
use crate::release::{RecordMeta, StoreError};

/// The shortest time between two reads of what cannot be watched.
const UNWATCHED: std::time::Duration = std::time::Duration::from_secs(30);

/// The facts, and the records behind them.
pub(super) struct Observation {
    pub(super) facts: Observed,
    /// The records of the release, oldest first.
    pub(super) history: Vec<RecordMeta>,
    /// The operator that looks after the release.
    pub(super) keeper: OperatorId,
}

/// Looks at the custom resource and its records. Sends a request only for a custom resource of
/// helm-operator-plugins without records.
pub(super) async fn observe(
    setup: &Setup,
    access: &Access,
    subject: &Subject,
    memory: &Memory,
) -> Result<Observation, StoreError> {
    let history = access.store.history(&subject.namespace, &subject.name);
    let keeper = keeper(setup, access, subject, memory);
    let identity = subject.primary.identity();
    let belongs = |meta: &RecordMeta| meta.cr.as_ref().is_none_or(|cr| *cr == identity);
    let adopts = subject.annotations.adopts(&setup.operator);
    let mine = history.iter().any(|meta| subject.owns(meta)) || adopts;
    let foreign = !history.is_empty() && (!mine || !history.iter().all(belongs));
    let latest = history.last().map_or(Revision(0), |meta| meta.revision);
    let contested =
        keeper != setup.operator && !subject.annotations.adopts_from_operators(&setup.operator);
    let wants_chunks = history.is_empty()
        && !contested
        && !subject.annotations.paused
        && finalizer::is_legacy(&subject.resource);
    let chunked = wants_chunks
        && !access
            .store
            .chunked(&subject.namespace, &subject.name)
            .await?
            .is_empty();
    let facts = Observed {
        contested,
        deleting: subject.deleting,
        finalizer: subject.finalizer,
        paused: subject.annotations.paused,
        impossible: subject.error.is_some(),
        foreign,
        chunked,
        history: history
            .iter()
            .map(|meta| record(meta, setup, access, subject))
            .collect(),
        adoption: match history.last() {
            Some(latest) if !foreign && !contested => adoption(setup, access, latest).await?,
            _ => Adoption::None,
        },
        drift: Drift::Unknown,
        awaits_dependency: false,
        awaits_definitions: false,
        obstacle_changed: obstacle_changed(access, memory),
        forgiven: subject.forgiven(latest),
        forced: subject.is_forced(),
        tested: latest.0 > 0 && subject.number("/status/release/tested") == Some(latest.0),
    };
    Ok(Observation {
        facts,
        history,
        keeper,
    })
}

/// Adds the facts that depend on what should be.
pub(super) async fn complete(
    observation: &mut Observation,
    setup: &Arc<Setup>,
    access: &Access,
    subject: &Subject,
    desired: Option<&Desired>,
    memory: &mut Memory,
) -> Result<(), ActionError> {
    let deployed = observation.history.last().map(|meta| meta.revision.0);
    if memory.live.revision != deployed || !memory.live.complete {
        recognise(setup, access, subject, desired, memory, deployed).await?;
    }
    read_unwatched(setup, subject, memory).await?;
    let facts = &mut observation.facts;
    facts.drift = drift(memory, subject, deployed);
    if let Some(desired) = desired {
        facts.awaits_dependency = desired.dependency.is_some();
        let upgrade = observation.history.iter().any(|meta| {
            matches!(
                meta.status,
                ReleaseStatus::Deployed | ReleaseStatus::Superseded
            )
        });
        facts.awaits_definitions = definitions_are_wanted(setup, desired, upgrade)
            && memory.definitions_served.as_ref() != Some(&desired.inputs.digest);
    }
    Ok(())
}

/// Reads what cannot be watched, once a period.
async fn read_unwatched(
    setup: &Setup,
    subject: &Subject,
    memory: &mut Memory,
) -> Result<(), ActionError> {
    if memory.live.unwatched().is_empty() {
        return Ok(());
    }
    let asked = subject.annotations.reconcile_period;
    let period = asked.unwrap_or(setup.period).max(UNWATCHED);
    let due = memory.read_at.is_none_or(|at| {
        let age = std::time::Duration::try_from(subject.now.duration_since(at));
        age.is_ok_and(|age| age >= period)
    });
    if due {
        memory.read_at = Some(subject.now);
        live::read_unwatched(&subject.cluster, &mut memory.live).await?;
    }
    Ok(())
}

/// Whether what stood in the way of the last attempt has changed since.
fn obstacle_changed(access: &Access, memory: &Memory) -> bool {
    let obstacles = &memory.obstacles;
    let epoch = access.cluster.capabilities_epoch();
    let mut objects = obstacles.objects.iter();
    objects.any(|(named, seen)| !access.interests.is_current(named, *seen))
        || obstacles.epoch.is_some_and(|known| known != epoch)
}

/// The operator that looks after a custom resource: whoever wrote the newest record.
fn keeper(setup: &Setup, access: &Access, subject: &Subject, memory: &Memory) -> OperatorId {
    let records = access.store.records_of(&subject.primary.identity());
    let newest = records.into_iter().max_by_key(|meta| meta.revision);
    newest
        .map_or_else(|| memory.keeper.clone(), |meta| meta.operator)
        .unwrap_or_else(|| setup.operator.clone())
}

/// Whether the newest record is one that somebody else deployed, and that is to be taken over.
async fn adoption(
    setup: &Setup,
    access: &Access,
    latest: &RecordMeta,
) -> Result<Adoption, StoreError> {
    let other = latest.operator.as_ref();
    let theirs = latest.cr.is_none() || other.is_some_and(|other| *other != setup.operator);
    if !theirs || latest.status != ReleaseStatus::Deployed {
        return Ok(Adoption::None);
    }
    let record = match access.store.load(latest).await {
        Ok(record) => record,
        // The step that needs the record says what is wrong with it.
        Err(error) if error.is_corrupt() => return Ok(Adoption::Wanted),
        Err(error) => return Err(error),
    };
    let chart = record.chart.as_ref();
    let name = chart.and_then(|chart| chart.name_and_version());
    let same = name.is_none_or(|(name, _)| name == setup.chart.chart().name());
    Ok(if same {
        Adoption::Wanted
    } else {
        Adoption::OtherChart
    })
}

fn record(meta: &RecordMeta, setup: &Setup, access: &Access, subject: &Subject) -> Record {
    let written = meta
        .written_at()
        .map(|at| subject.now.duration_since(at))
        .and_then(|age| std::time::Duration::try_from(age).ok())
        .unwrap_or_default();
    let failed = matches!(
        meta.status,
        ReleaseStatus::Failed | ReleaseStatus::Uninstalled
    );
    Record {
        revision: meta.revision,
        status: meta.status,
        digest: meta.digest.as_ref().map(ToString::to_string),
        // While a lease makes sure that we alone write, whatever an instance of this operator
        // began and this process does not know of was cut off; else only what this very instance
        // began. Helm copies our label to the revisions that it makes, with its own number.
        ours: meta.writer.as_ref().is_some_and(|writer| {
            *writer == setup.instance
                || (setup.elected && meta.cr.as_ref() == Some(&subject.primary.identity()))
        }),
        attempts: meta
            .failures
            .map_or(u32::from(failed), |failures| failures.attempts),
        hook_failed: meta.failures.is_some_and(|failures| failures.hook),
        unchanged_for: access.store.seen_for(meta, std::time::Instant::now()),
        written,
    }
}

fn drift(memory: &Memory, subject: &Subject, deployed: Option<u32>) -> Drift {
    if memory.live.revision != deployed || !memory.live.complete {
        return Drift::Unknown;
    }
    let drifted = memory.live.drifted_states();
    if drifted.is_empty() {
        Drift::None
    } else if drifted
        .iter()
        .all(|(key, state)| memory.repairs.exhausted(key, *state, subject.now))
    {
        Drift::Exhausted
    } else {
        Drift::Some
    }
}

/// After a restart: if what the watches show has the hash that the status kept of this very
/// revision, it is what was applied, and nothing need be read.
async fn recognise(
    setup: &Arc<Setup>,
    access: &Access,
    subject: &Subject,
    desired: Option<&Desired>,
    memory: &mut Memory,
    deployed: Option<u32>,
) -> Result<(), ActionError> {
    let stored = subject
        .object
        .pointer("/status/release/baseline")
        .and_then(Value::as_str);
    let (Some(stored), Some(revision), Some(desired)) = (stored, deployed, desired) else {
        return Ok(());
    };
    // A record that was only begun is not yet what the objects are.
    if subject.number("/status/release/revision") != Some(revision) {
        return Ok(());
    }
    let objects = match &desired.objects {
        Some(objects) => Some(objects.clone()),
        None => objects_of(setup, access, subject, &desired.inputs).await,
    };
    if let Some(objects) = objects {
        let context = action_context(setup, access, subject, Kind::Upgrade, &[]);
        let live = &mut memory.live;
        recognise::recognise(&context, live, revision, &objects, stored).await?;
    }
    Ok(())
}

//! Observes the actual state: the owner, its records and its objects, from caches.

use std::sync::Arc;
use std::time::Duration;

use helm_core::Coalesced;
use helm_core::manifest::ManifestObject;
use helm_core::release::Status as ReleaseStatus;
use kube_objects::{OperatorId, cut_off};

use super::access::Access;
use super::act::error::ActError;
use super::action_context::action_context;
use super::desired::{Desired, objects_of};
use super::desired_error::DesiredError;
use super::kind::ActionKind;
use super::memory::KnownRelease;
use super::plan::{Adoption, Drift, ObservedFacts, RecordFacts};
use super::setup::Setup;
use super::subject::Subject;
use crate::action::{ActionError, live, recognise};
use crate::policy::CrdPolicy;
use crate::release::{RecordMeta, StoreError};

/// Minimum time between two reads of objects that cannot be watched.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(30);

/// Observed facts and the records they are derived from.
pub struct Observation {
    pub(crate) facts: ObservedFacts,
    /// Whether the facts include those that depend on the desired state.
    pub(crate) is_complete: bool,
    /// Records of the release, oldest first.
    pub(super) history: Vec<RecordMeta>,
    /// Operator that manages the release.
    pub managing_operator: OperatorId,
    /// Reason why the facts are incomplete.
    pub(super) error: Option<ActError>,
}

impl Observation {
    /// Returns whether another operator manages the release.
    pub fn is_contested(&self) -> bool {
        self.facts.contested
    }

    /// Returns whether the facts include those that depend on the desired state.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns whether the release is paused.
    pub fn is_paused(&self) -> bool {
        self.facts.paused
    }
}

/// Observes the owner and its records. Sends a request only for an owner of
/// helm-operator-plugins without records, and reads a record that may be adopted, for no longer than
/// `limit`.
pub(super) async fn observe(
    setup: &Setup,
    access: &Access,
    subject: &Subject,
    memory: &KnownRelease,
    limit: Duration,
) -> Observation {
    let history = subject.target.history(access);
    let managing_operator = managing_operator(setup, access, subject, memory);
    let identity = subject.target.primary.identity();
    let belongs = |meta: &RecordMeta| meta.cr.as_ref().is_none_or(|cr| *cr == identity);
    let adopts = subject.instructions.adopts(&setup.identity.operator);
    let mine = history.iter().any(|meta| subject.target.owns(meta)) || adopts;
    let foreign = !history.is_empty() && (!mine || !history.iter().all(belongs));
    let contested = managing_operator != setup.identity.operator
        && !subject
            .instructions
            .adopts_from_operators(&setup.identity.operator);
    let wants_chunks =
        history.is_empty() && !contested && !subject.instructions.paused && subject.legacy;
    let read = async {
        let store = &access.store;
        let chunked = wants_chunks
            && !store
                .chunked(&subject.target.namespace, &subject.target.name)
                .await?
                .is_empty();
        let adoption = match history.last() {
            Some(latest) if !foreign && !contested => {
                adoption(setup, access, subject, latest).await?
            }
            _ => Adoption::None,
        };
        // The namespace takes everything with it.
        let protected = subject.deleting
            && subject.is_protected(&setup.policy)
            && match &subject.target.primary.namespace {
                Some(namespace) => !store.is_ending(namespace).await?,
                None => true,
            };
        Ok((chunked, adoption, protected))
    };
    let read = match cut_off::within(limit, read).await {
        Ok(read) => read.map_err(|error: StoreError| error.into()),
        Err(source) => Err(ActError::CutOff { step: None, source }),
    };
    let (read, error) = match read {
        Ok(read) => (read, None),
        Err(error) => ((false, Adoption::None, true), Some(error)),
    };
    let (chunked, adoption, protected) = read;
    let facts = ObservedFacts {
        contested,
        deleting: subject.deleting,
        finalizer: subject.held,
        protected,
        orphans: subject.orphans(&setup.policy),
        unheld: !subject.held && has_release(access, subject, &history),
        paused: subject.instructions.paused,
        impossible: subject.error.is_some(),
        foreign,
        chunked,
        history: history
            .iter()
            .map(|meta| record(meta, setup, access, subject))
            .collect(),
        adoption,
        drift: Drift::Unknown,
        // Of what is not paused, it is known once all objects are.
        bound: subject.instructions.paused && is_bound(setup, subject, &history, memory),
        awaits_dependency: false,
        awaits_crds: false,
        unreported: history.last().is_some_and(|latest| {
            latest.status == ReleaseStatus::Failed
                && memory.reported != Some(latest.revision)
                && !subject.reported.is_failure_of(latest)
        }),
        obstacle_changed: obstacle_changed(access, memory),
        forgiven: subject.forgiven(&history),
        forced: subject.is_forced(&history),
        tested: setup.policy.test.is_some()
            && (history.last()).is_some_and(|latest| subject.reported.is_test_of(latest)),
    };
    Observation {
        facts,
        is_complete: false,
        history,
        managing_operator,
        error,
    }
}

/// Adds the facts that depend on the desired state.
pub(super) async fn complete(
    observation: &mut Observation,
    setup: &Arc<Setup>,
    access: &Access,
    subject: &Subject,
    wanted: &mut Result<Desired, DesiredError>,
    memory: &mut KnownRelease,
) -> Result<(), ActionError> {
    observation.is_complete = true;
    // They are of use for nothing else, and may be large.
    let objects = (wanted.as_mut().ok()).and_then(|desired| desired.objects.take());
    let desired = wanted.as_ref().ok();
    let latest = observation.history.last();
    let deployed = latest.map(|meta| meta.revision.0);
    // Of a revision that is not deployed, it is not known what was sent and what was not, nor if this process has
    // begun a later one, whose record others have deleted.
    if let Some(latest) = latest.filter(|latest| latest.status == ReleaseStatus::Deployed)
        && (memory.live.revision < deployed
            || memory.live.revision == deployed && !memory.live.complete)
    {
        let known = desired.map(|desired| (desired, objects));
        recognise(setup, access, subject, known, memory, latest).await?;
    }
    read_unwatched(setup, subject, memory).await;
    live::read_unseen(&subject.target.cluster, &mut memory.live).await?;
    let facts = &mut observation.facts;
    facts.drift = drift(memory, subject, deployed);
    facts.bound = is_bound(setup, subject, &observation.history, memory);
    facts.awaits_dependency = desired.is_some_and(|desired| desired.dependency.is_some());
    let upgrade = observation.history.iter().any(|meta| {
        matches!(
            meta.status,
            ReleaseStatus::Deployed | ReleaseStatus::Superseded
        )
    });
    facts.awaits_crds = awaits_crds(setup, subject.generation, wanted, memory, upgrade);
    Ok(())
}

/// Returns whether CRDs must be installed before a new revision, or before the inputs can be computed.
/// As in Helm, an upgrade does not create CRDs unless it replaces them.
fn awaits_crds(
    setup: &Setup,
    generation: Option<i64>,
    desired: &Result<Desired, DesiredError>,
    memory: &mut KnownRelease,
    upgrade: bool,
) -> bool {
    let policy = match setup.policy.crds {
        CrdPolicy::Skip => false,
        CrdPolicy::Create => !upgrade,
        CrdPolicy::CreateReplace => true,
    };
    let has_crds = |coalesced: &Coalesced| !coalesced.chart().crds().is_empty();
    let installed = &mut memory.installed_crds;
    match desired {
        _ if !policy => false,
        Ok(desired) => {
            let replaces = setup.policy.crds == CrdPolicy::CreateReplace;
            let digest = &desired.inputs.digest;
            if let Some(installed) = installed
                && (installed.replaced || !replaces)
                && installed
                    .digest
                    .as_ref()
                    .is_none_or(|known| known == digest)
            {
                // These inputs were computed with the definitions.
                installed.digest = Some(digest.clone());
                return false;
            }
            has_crds(&desired.inputs.sources.coalesced)
        }
        Err(error) => {
            let tried = installed
                .as_ref()
                .is_some_and(|installed| installed.generation == generation);
            let rendered = memory.rendered.as_deref();
            error.is_render() && !error.is_transient() && !tried && rendered.is_some_and(has_crds)
        }
    }
}

/// Returns whether an object that is annotated to be kept still has the owner reference, or the newest record says
/// something else of all objects than is asked for.
fn is_bound(
    setup: &Setup,
    subject: &Subject,
    history: &[RecordMeta],
    memory: &KnownRelease,
) -> bool {
    let latest = history.last().filter(|meta| subject.target.owns(meta));
    latest.is_some_and(|meta| meta.unowned != subject.is_unowned(&setup.policy))
        || !memory.live.bound(&subject.target.primary.uid).is_empty()
}

/// Reads the objects that cannot be watched, once per period and as soon as a watch fails.
async fn read_unwatched(setup: &Setup, subject: &Subject, memory: &mut KnownRelease) {
    memory.live.drop_outdated_reads();
    if memory.live.unwatched().is_empty() {
        return;
    }
    let asked = subject.instructions.options.reconcile_period;
    let period = asked.unwrap_or(setup.period).max(MIN_READ_INTERVAL);
    let due = memory.live.has_unread()
        || memory.read_at.is_none_or(|at| {
            let age = Duration::try_from(subject.target.now.duration_since(at));
            // The first reconcile without a change comes within the period.
            age.is_ok_and(|age| age >= period / 2)
        });
    if due {
        memory.read_at = Some(subject.target.now);
        // What could not be read is unknown, which the status says.
        if let Err(error) = live::read_unwatched(&subject.target.cluster, &mut memory.live).await {
            let error: &dyn std::error::Error = &error;
            tracing::debug!(error, "cannot read objects that cannot be watched");
        }
    }
}

/// Returns whether what blocked the last attempt has changed.
fn obstacle_changed(access: &Access, memory: &KnownRelease) -> bool {
    let obstacles = &memory.obstacles;
    let epoch = access.cluster.capabilities_epoch();
    let mut objects = obstacles.objects.iter();
    objects.any(|(target, seen)| !access.interests.is_current(target, *seen))
        || obstacles.epoch.is_some_and(|known| known != epoch)
}

/// Returns the operator that manages a release: the one that wrote its newest record.
fn managing_operator(
    setup: &Setup,
    access: &Access,
    subject: &Subject,
    memory: &KnownRelease,
) -> OperatorId {
    let mut records = access.store.records_of(&subject.target.primary.identity());
    // Whoever may write Secrets in another namespace has no say.
    records.retain(|meta| meta.namespace == subject.target.namespace);
    let newest = records.into_iter().max_by_key(|meta| meta.revision);
    newest
        .map_or_else(|| memory.managing_operator.clone(), |meta| meta.operator)
        .unwrap_or_else(|| setup.identity.operator.clone())
}

/// Returns whether the owner has a release, also one that it should not have at this place.
fn has_release(access: &Access, subject: &Subject, history: &[RecordMeta]) -> bool {
    let primary = &subject.target.primary;
    let records = access.store.records_of(&primary.identity());
    let mut records = records.iter();
    // Whoever may write Secrets in another namespace has no say.
    let counts = |meta: &RecordMeta| {
        primary.namespace.is_none() || meta.namespace == subject.target.namespace
    };
    records.any(counts) || history.iter().any(|meta| subject.target.owns(meta))
}

/// Returns whether the newest record was deployed by someone else and should be adopted.
async fn adoption(
    setup: &Setup,
    access: &Access,
    subject: &Subject,
    latest: &RecordMeta,
) -> Result<Adoption, StoreError> {
    let other = latest.operator.as_ref();
    // Helm copies the operator's labels from the revision before, and the Go operators add an owner reference.
    let theirs = latest.cr.is_none()
        || other.is_some_and(|other| *other != setup.identity.operator)
        || (latest.digest.is_none() && latest.owners.contains(&subject.target.primary.uid));
    if !theirs || latest.status != ReleaseStatus::Deployed {
        return Ok(Adoption::None);
    }
    let record = match access.store.load(latest).await {
        Ok(record) => record,
        // The step that loads the record reports the error.
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

fn record(meta: &RecordMeta, setup: &Setup, access: &Access, subject: &Subject) -> RecordFacts {
    let written = meta
        .written_at()
        .map(|at| subject.target.now.duration_since(at))
        .and_then(|age| Duration::try_from(age).ok())
        .unwrap_or_default();
    let failed = matches!(
        meta.status,
        ReleaseStatus::Failed | ReleaseStatus::Uninstalled
    );
    RecordFacts {
        revision: meta.revision,
        status: meta.status,
        digest: meta.digest.as_ref().map(ToString::to_string),
        // With leader election no other instance writes, so any pending record of this operator was
        // interrupted. Without it, only this instance's own records are known to be. Helm copies
        // the operator's labels to the revisions that it creates.
        ours: meta.writer.as_ref().is_some_and(|writer| {
            *writer == setup.identity.instance
                || (setup.identity.elected
                    && meta.cr.as_ref() == Some(&subject.target.primary.identity()))
        }),
        proven: meta.proof.is_some(),
        attempts: meta
            .failures
            .map_or(u32::from(failed), |failures| failures.attempts),
        hook_failed: meta.failures.is_some_and(|failures| failures.hook),
        unchanged_for: access.store.seen_for(meta, tokio::time::Instant::now()),
        written,
    }
}

fn drift(memory: &KnownRelease, subject: &Subject, deployed: Option<u32>) -> Drift {
    if memory.live.revision != deployed || !memory.live.complete {
        return Drift::Unknown;
    }
    let drifted = memory.live.drifted_states();
    if drifted.is_empty() {
        Drift::None
    } else if drifted
        .iter()
        .all(|(key, state)| memory.repairs.exhausted(key, *state, subject.target.now))
    {
        Drift::Exhausted
    } else {
        Drift::Some
    }
}

/// After a restart, compares the hash of the watched objects with the one that the status has for the deployed
/// revision, or else its record. If they are equal, the objects are as applied and need not be read.
async fn recognise(
    setup: &Arc<Setup>,
    access: &Access,
    subject: &Subject,
    desired: Option<(&Desired, Option<Vec<ManifestObject>>)>,
    memory: &mut KnownRelease,
    deployed: &RecordMeta,
) -> Result<(), ActionError> {
    let revision = deployed.revision.0;
    let reported = subject.reported.release.as_ref();
    // The objects may not match a record whose deployment has not completed.
    let reported = reported.filter(|reported| reported.revision == revision);
    let baseline = reported.and_then(|reported| reported.baseline.as_ref());
    let baseline = baseline.or(deployed.baseline.as_ref());
    let (Some(baseline), Some((desired, objects))) = (baseline, desired) else {
        return Ok(());
    };
    let objects = match objects {
        Some(objects) => Some(objects),
        None => objects_of(setup, access, subject, &desired.inputs).await,
    };
    if let Some(objects) = objects {
        let context = action_context(setup, access, subject, ActionKind::Upgrade, &[]);
        let live = &mut memory.live;
        recognise::recognise(&context, live, revision, &objects, baseline).await?;
    }
    Ok(())
}

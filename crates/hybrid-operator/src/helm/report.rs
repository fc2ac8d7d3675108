//! What came of a reconcile: the only place that writes the status and publishes events.
//!
//! A [`Report`] holds facts; [`apply`] turns them into conditions and is pure.

use std::collections::BTreeSet;
use std::time::Duration;

use helm_core::release::Revision;
use jiff::Timestamp;

use super::access::Access;
use super::act::ActError;
use super::events::{Notice, Notices};
use super::finalizer;
use super::kind::Kind;
use super::memory::Memory;
use super::observe::Observation;
use super::setup::Setup;
use super::status::{HistoryEntry, ReleaseStatus, Status, Written, chain};
use super::subject::Subject;
use crate::action::deploy::StoredRelease;
use crate::action::live::Live;
use crate::cluster::ApiError;
use crate::controller::{self, ReconcileError};
use crate::release::InputsDigest;
use crate::watches::DriftMode;

/// How many revisions the status tells of.
const RECENT: usize = 5;
/// Bytes of a manifest that a status holds.
const MANIFEST_MAX: usize = 32 * 1024;
/// When a status is written again that somebody else has changed meanwhile.
const STATUS_CONFLICT: Duration = Duration::from_secs(1);

/// What came of a step.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) outcome: Outcome,
    pub(super) next: Next,
    /// The revision that has acted upon one-time annotations.
    pub(super) handled: Option<Revision>,
    /// Why this reconcile counts as failed.
    pub(super) error: Option<String>,
    /// What a hook in code said after the step was done.
    pub(super) objection: Option<String>,
}

/// When the custom resource is looked at again, if nothing changes before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// After the period.
    Period,
    /// After this time.
    After(Duration),
    /// At once: the step has changed what the plan looks at.
    Now,
    /// Never: the custom resource is gone.
    Gone,
}

/// What is so after a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A revision is deployed.
    Deployed(Box<Deployed>),
    /// The deployed revision is as it should be, and the status says so already.
    AsBefore,
    /// An earlier revision is deployed again, and what failed is still wanted.
    RolledBack(Box<Deployed>),
    /// Something goes on.
    Progressing {
        why: String,
        release: Option<Box<ReleaseStatus>>,
    },
    /// An attempt failed.
    Failed(Box<Failure>),
    /// Another attempt would do harm.
    Stalled {
        message: String,
        failure: Option<Box<Failure>>,
    },
    /// Objects were repaired too often.
    Contended { message: String },
    /// The custom resource cannot be brought to what it says.
    Irreconcilable {
        reason: &'static str,
        message: String,
        /// What could not be begun, where it is the chart that fails.
        kind: Option<Kind>,
    },
    /// The custom resource is paused.
    Paused,
    /// Another operator looks after the release.
    Contested { message: String },
    /// The chart's tests ran.
    Tested {
        revision: Revision,
        failure: Option<String>,
    },
    /// Nothing is to be said.
    Silent,
}

/// A revision that is deployed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Deployed {
    pub(super) kind: Kind,
    pub(super) notes: String,
    pub(super) manifest: Option<String>,
    pub(super) release: ReleaseStatus,
}

impl Deployed {
    pub(super) fn of(kind: Kind, stored: &StoredRelease) -> Box<Self> {
        Box::new(Self {
            kind,
            notes: stored.release.info.notes.trim().to_owned(),
            manifest: redacted(&stored.release.manifest),
            release: describe(stored),
        })
    }
}

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) kind: Kind,
    pub(super) message: String,
    pub(super) release: ReleaseStatus,
    /// When it is tried again; `None` where something else follows.
    pub(super) next: Option<Timestamp>,
}

impl Report {
    pub(super) fn new(outcome: Outcome, next: Next) -> Self {
        Self {
            outcome,
            next,
            handled: None,
            error: None,
            objection: None,
        }
    }

    /// Everything is done that can be done now.
    pub(super) fn settle(outcome: Outcome) -> Self {
        Self::new(outcome, Next::Period)
    }

    /// The plan has something else to look at now.
    pub(super) fn go_on() -> Self {
        Self::new(Outcome::Silent, Next::Now)
    }

    /// The custom resource is gone.
    pub(super) fn gone() -> Self {
        Self::new(Outcome::Silent, Next::Gone)
    }

    /// Something is waited for.
    pub(super) fn wait(why: impl Into<String>, delay: Duration) -> Self {
        let outcome = Outcome::Progressing {
            why: why.into(),
            release: None,
        };
        Self::new(outcome, Next::After(delay))
    }

    /// Whether nothing is left to do.
    pub(super) fn is_settled(&self) -> bool {
        self.next == Next::Period && self.error.is_none()
    }
}

/// What the status says of a record.
pub(super) fn describe(stored: &StoredRelease) -> ReleaseStatus {
    let metadata = stored.release.chart.as_ref();
    let metadata = metadata.and_then(|chart| chart.metadata.as_ref());
    ReleaseStatus {
        name: stored.release.name.to_string(),
        revision: stored.release.revision.0,
        status: stored.release.info.status.to_string(),
        chart_version: metadata.map(|m| format!("{}-{}", m.name, m.version)),
        app_version: metadata
            .map(|m| m.app_version.clone())
            .filter(|version| !version.is_empty()),
        digest: stored.meta.digest.as_ref().map(ToString::to_string),
        baseline: None,
        tested: None,
    }
}

/// What is known of the objects.
#[derive(Debug, Clone, Default)]
pub(super) struct Objects {
    /// What is not ready.
    pub(super) unready: Vec<String>,
    /// Objects that differ from what was applied and are left so.
    pub(super) drifted: Vec<String>,
    /// The hash over all of them; `None` where they are not known.
    pub(super) baseline: Option<String>,
}

impl Objects {
    fn of(live: &Live, mode: DriftMode) -> Self {
        let mut unready = live.unready(true);
        let mut drifted = Vec::new();
        if mode != DriftMode::Repair {
            // A change that is left alone on purpose does not make the release unready; what is
            // gone does.
            let changed = live.drifted_states().into_iter();
            let changed: Vec<String> = changed
                .filter(|(_, left)| left.is_some())
                .map(|(key, _)| format!("{key}: "))
                .collect();
            unready.retain(|text| !changed.iter().any(|key| text.starts_with(key)));
        }
        if mode == DriftMode::Warn {
            drifted.extend(live.drifted().iter().map(ToString::to_string));
        }
        Self {
            unready,
            drifted,
            baseline: live.complete.then(|| live.aggregate()),
        }
    }
}

/// Turns what came of a step into conditions. Pure.
pub(super) fn apply(outcome: &Outcome, objects: &Objects, status: &mut Status) {
    match outcome {
        Outcome::Deployed(deployed) => {
            deploy(deployed, objects, status);
            reconciled(objects, status);
        }
        Outcome::AsBefore => reconciled(objects, status),
        Outcome::RolledBack(deployed) => {
            set_release(&deployed.release, objects, status);
            status.manifest.clone_from(&deployed.manifest);
        }
        Outcome::Progressing { why, release } => {
            if let Some(release) = release {
                status.release = Some(ReleaseStatus::clone(release));
            }
            status.progressing(why);
        }
        Outcome::Failed(failure) => fail(failure, status),
        Outcome::Stalled { message, failure } => {
            if let Some(failure) = failure {
                fail(failure, status);
            }
            status.stalled(message);
        }
        Outcome::Contended { message } => {
            status.drifted(message);
            ready(objects, status);
        }
        Outcome::Irreconcilable {
            reason,
            message,
            kind,
        } => {
            match kind {
                Some(kind) => status.failed(kind.error_reason(), message),
                None => status.unknown(reason),
            }
            status.irreconcilable(reason, message);
        }
        Outcome::Paused => status.paused(),
        Outcome::Contested { message } => status.contested(message),
        Outcome::Tested { revision, failure } => {
            status.tested(failure.as_deref());
            if let Some(release) = &mut status.release {
                release.tested = Some(revision.0);
            }
            reconciled(objects, status);
        }
        Outcome::Silent => {}
    }
}

fn deploy(deployed: &Deployed, objects: &Objects, status: &mut Status) {
    let message = if deployed.notes.is_empty() {
        deployed.kind.success()
    } else {
        &deployed.notes
    };
    status.deployed(deployed.kind.success_reason(), message);
    set_release(&deployed.release, objects, status);
    status.manifest.clone_from(&deployed.manifest);
}

/// Says which release there is. Tests of another revision do not count for this one.
fn set_release(release: &ReleaseStatus, objects: &Objects, status: &mut Status) {
    let known = status.release.take().unwrap_or_default();
    let tested = known.tested.filter(|_| known.revision == release.revision);
    if tested.is_none() {
        status.untested();
    }
    status.release = Some(ReleaseStatus {
        tested,
        baseline: objects.baseline.clone(),
        ..release.clone()
    });
}

/// The custom resource is what it says, but for objects that are left drifted.
fn reconciled(objects: &Objects, status: &mut Status) {
    status.reconciled();
    if objects.drifted.is_empty() {
        status.undrifted();
    } else {
        status.drifted(&objects.drifted.join(", "));
    }
    ready(objects, status);
}

fn ready(objects: &Objects, status: &mut Status) {
    status.ready(&objects.unready);
    if let Some(release) = &mut status.release {
        release.baseline.clone_from(&objects.baseline);
    }
}

fn fail(failure: &Failure, status: &mut Status) {
    status.release = Some(failure.release.clone());
    status.failed(failure.kind.error_reason(), &failure.message);
    let message = match failure.next {
        Some(at) => format!("{}; the next attempt is at {at}", failure.message),
        None => failure.message.clone(),
    };
    status.irreconcilable("ReconcileError", &message);
}

/// Writes the status if it has changed, publishes what is worth an event, and says when the custom
/// resource comes again.
pub(super) async fn publish(
    setup: &Setup,
    access: &Access,
    subject: &Subject,
    observation: &Observation,
    memory: &mut Memory,
    notices: &Notices,
    result: Result<Report, ActError>,
) -> Result<controller::Outcome, ReconcileError> {
    let mut status = subject.status();
    let own = Some(setup.operator.clone());
    let keeper = Some(observation.keeper.clone());
    if !observation.facts.contested {
        status.uncontested(memory.keeper != own && memory.keeper.is_some());
    }
    memory.keeper = if observation.facts.contested {
        keeper
    } else {
        own
    };
    let objects = Objects::of(&memory.live, setup.watch.drift_detection.mode);
    let ended = match result {
        Ok(report) => {
            apply(&report.outcome, &objects, &mut status);
            if let Some(revision) = report.handled {
                status.handle(&subject.annotations, revision);
            }
            if let Some(objection) = &report.objection {
                status.irreconcilable("ReconcileError", objection);
            }
            match report.error.or(report.objection) {
                Some(error) => Err(error.into()),
                None => Ok(report.next),
            }
        }
        Err(error) => {
            // What may succeed in a moment is not worth a condition.
            if !error.is_transient() {
                status.irreconcilable("ReconcileError", &chain(&error));
            }
            Err(ReconcileError::from(error))
        }
    };
    let mut written = true;
    if !matches!(ended, Ok(Next::Gone)) {
        problems(subject, memory, notices);
        if !observation.facts.contested {
            unwatched(access, subject, memory, notices);
            status.history = Some(recent(access, subject));
        }
        written = write(access, subject, memory, notices, &status).await?;
    }
    for notice in notices.take() {
        access.events.publish(&subject.primary, notice).await;
    }
    if !written {
        return Ok(controller::Outcome::After(STATUS_CONFLICT));
    }
    Ok(match ended? {
        Next::Gone => controller::Outcome::Done,
        Next::Now => controller::Outcome::After(Duration::ZERO),
        Next::After(delay) => controller::Outcome::After(delay),
        Next::Period => {
            let asked = subject.annotations.reconcile_period;
            match asked.unwrap_or(setup.period) {
                Duration::ZERO => controller::Outcome::Done,
                period => controller::Outcome::After(period),
            }
        }
    })
}

/// Writes the status if it has changed; whether nobody else was faster.
async fn write(
    access: &Access,
    subject: &Subject,
    memory: &mut Memory,
    notices: &Notices,
    status: &Status,
) -> Result<bool, ApiError> {
    if let Some(patch) = status.patch(&memory.written) {
        let kept = match finalizer::patch_status(access, subject, &patch).await {
            Err(ApiError::Conflict { .. }) => return Ok(false),
            answer => answer?,
        };
        memory.written = Written::new(&patch, kept.as_ref());
        for field in Written::pruned(&patch, kept.as_ref()) {
            let note = format!(
                "the definition of {} has no status.{field}, so it is not kept; add it, or x-kubernetes-preserve-unknown-fields",
                subject.primary.gvk.kind
            );
            notices.add(Notice::warning("StatusPruned", "Status", note));
        }
    }
    for transition in &status.transitions {
        notices.add(Notice {
            warning: transition.warning,
            reason: transition.reason.clone(),
            action: "Reconcile",
            note: transition.message.clone(),
        });
    }
    Ok(true)
}

/// Tells of annotations that were not understood, once.
fn problems(subject: &Subject, memory: &mut Memory, notices: &Notices) {
    let problems = &subject.annotations.problems;
    if memory.problems != *problems {
        for problem in problems {
            notices.add(Notice::warning(
                "InvalidAnnotation",
                "Read",
                problem.as_str(),
            ));
        }
        memory.problems.clone_from(problems);
    }
}

/// Tells of watches that are refused, once.
fn unwatched(access: &Access, subject: &Subject, memory: &mut Memory, notices: &Notices) {
    let unwatched = memory.live.unwatched().into_iter();
    let found: BTreeSet<String> = unwatched
        .map(|(key, reason)| format!("{key} cannot be watched: {reason}"))
        .chain(access.interests.problem(&subject.key()))
        .collect();
    for reason in found.difference(&memory.unwatched) {
        notices.add(Notice::warning("WatchRefused", "Watch", reason.as_str()));
    }
    memory.unwatched = found;
}

/// The newest revisions.
fn recent(access: &Access, subject: &Subject) -> Vec<HistoryEntry> {
    let history = access.store.history(&subject.namespace, &subject.name);
    let newest = history.iter().rev().take(RECENT);
    newest
        .map(|meta| HistoryEntry {
            revision: meta.revision.0,
            status: meta.status.to_string(),
            digest: meta.digest.as_ref().map(InputsDigest::to_string),
        })
        .collect()
}

/// The manifest without the content of Secrets; `None` when it is too large for a status.
fn redacted(manifest: &str) -> Option<String> {
    if manifest.len() > MANIFEST_MAX {
        return None;
    }
    let mut text = String::with_capacity(manifest.len());
    for document in helm_core::manifest::split(manifest) {
        text.push_str("---\n");
        let object: serde_json::Value = go_yaml::from_str(document).ok()?;
        let secret = |object: &serde_json::Value| {
            object.get("kind").and_then(|kind| kind.as_str()) == Some("Secret")
        };
        let items = object.get("items").and_then(|items| items.as_array());
        if secret(&object) || items.is_some_and(|items| items.iter().any(secret)) {
            let source = document.lines().take_while(|line| line.starts_with('#'));
            for line in source {
                text.push_str(line);
                text.push('\n');
            }
            let name = object
                .pointer("/metadata/name")
                .and_then(|name| name.as_str());
            text.push_str("# Secret ");
            text.push_str(name.unwrap_or_default());
            text.push_str(": its content is not shown\n");
        } else {
            text.push_str(document);
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::{Objects, Outcome, apply, redacted};
    use crate::helm::status::{Status, Written};

    #[test]
    fn drift_that_stays_is_written_once() {
        let objects = Objects {
            drifted: vec!["ConfigMap a/b".to_owned()],
            ..Objects::default()
        };
        let mut written = None;
        for second in [1_000, 2_000] {
            let now = Timestamp::from_second(second).unwrap();
            let mut status = Status::read(written.as_ref(), now, Some(1));
            apply(&Outcome::AsBefore, &objects, &mut status);
            let patch = status.patch(&Written::default());
            assert_eq!(patch.is_some(), written.is_none());
            written = written.or(patch);
        }
        let drifted = |status: &Status| status.conditions.iter().any(|c| c.type_ == "Drifted");
        let mut status = Status::read(written.as_ref(), Timestamp::UNIX_EPOCH, Some(1));
        assert!(drifted(&status));
        apply(&Outcome::AsBefore, &Objects::default(), &mut status);
        assert!(!drifted(&status), "{}", json!(status.conditions));
    }

    #[test]
    fn secrets_do_not_appear_in_a_redacted_manifest() {
        let manifest = "---\n# Source: c/a.yaml\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: hidden}\n---\n# Source: c/b.yaml\nkind: ConfigMap\nmetadata: {name: c}\n";
        let text = redacted(manifest).unwrap();
        assert!(!text.contains("hidden"), "{text}");
        assert!(text.contains("# Secret s: its content is not shown\n---\n# Source: c/b.yaml\n"));
        assert_eq!(redacted(&"x".repeat(100_000)), None);
    }
}

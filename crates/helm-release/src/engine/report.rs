//! Result of a step, as facts.

use std::time::Duration;

use helm_core::manifest::{ObjectKey, list_items};
use helm_core::release::Revision;
use jiff::Timestamp;
use kube_objects::diagnosis::Cause;

use super::error_kind::ErrorKind;
use super::kind::ActionKind;
use super::message::Message;
use super::reported::ReleaseStatus;
use crate::action::StoredRelease;
use crate::action::live::{JobReadiness, Live};
use crate::policy::DriftMode;

/// Maximum size of a manifest in the status, in bytes.
const MAX_MANIFEST: usize = 32 * 1024;

/// Result of a step.
#[derive(Debug)]
pub struct Report {
    /// Outcome of a former step that the status does not report.
    pub former: Option<StepOutcome>,
    /// State after the step.
    pub outcome: StepOutcome,
    /// Time of the next pass.
    pub next: Next,
    /// Revision that has handled the one-time annotations.
    pub handled: Option<Revision>,
    /// Error message if the reconcile counts as failed.
    pub error: Option<Message>,
    /// Whether the error may pass without a change.
    pub retried: bool,
    /// Error of a post hook of the extensions.
    pub hook_error: Option<Message>,
}

/// Time of the next reconcile of the owner if nothing changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// After the reconcile period.
    Period,
    /// After this time.
    After(Duration),
    /// At once: the step has changed the facts.
    Now,
    /// Never: the owner is gone.
    Gone,
}

/// State after a step.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named for what they are")]
pub enum StepOutcome {
    /// A revision is deployed.
    Deployed(Box<Deployed>),
    /// The deployed revision is reconciled, and the status already reports it.
    Unchanged,
    /// An earlier revision is deployed again, but the failed inputs are still desired.
    RolledBack(Box<Deployed>),
    /// An action is in progress.
    Progressing {
        why: String,
        release: Option<Box<ReleaseStatus>>,
    },
    /// An attempt failed.
    Failed(Box<Failure>),
    /// The release failed and is not retried automatically.
    Stalled {
        message: String,
        failure: Option<Box<Failure>>,
    },
    /// Objects were repaired too often.
    Contended { message: String },
    /// The owner cannot be reconciled.
    Irreconcilable {
        reason: ErrorKind,
        message: Message,
        /// Action that could not be started, if the chart is the cause.
        kind: Option<ActionKind>,
    },
    /// The owner is paused.
    Paused,
    /// Another operator manages the release.
    Contested { message: String },
    /// The chart's tests ran.
    Tested {
        revision: Revision,
        failure: Option<Message>,
    },
    /// Nothing to report.
    Silent,
}

/// Deployed revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployed {
    /// The action that deployed it.
    pub kind: ActionKind,
    /// Whether the objects were those of another revision before this step.
    pub(super) is_new: bool,
    pub(super) notes: String,
    /// Manifest without the content of Secrets; `None` if it is too large.
    pub manifest: Option<String>,
    /// The release.
    pub release: ReleaseStatus,
}

impl Deployed {
    pub(super) fn of(kind: ActionKind, stored: &StoredRelease) -> Self {
        Self {
            kind,
            is_new: true,
            notes: stored.release.info.notes.trim().to_owned(),
            manifest: redacted(&stored.release.manifest),
            release: describe(stored),
        }
    }

    /// Returns the message of the condition `Deployed`.
    pub fn message(&self) -> &str {
        if self.notes.is_empty() {
            self.kind.success_message()
        } else {
            &self.notes
        }
    }
}

/// Failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The action that failed.
    pub kind: ActionKind,
    /// Reason of the failure.
    pub message: Message,
    /// The release.
    pub release: ReleaseStatus,
    /// Time of the next attempt; `None` if it is not retried.
    pub next: Option<Timestamp>,
}

impl StepOutcome {
    fn deploys(&self) -> bool {
        match self {
            Self::Deployed(_) => true,
            Self::RolledBack(deployed) => deployed.is_new,
            _ => false,
        }
    }

    /// Returns whether the release may be waiting for its objects to become ready.
    pub fn waits_for_objects(&self) -> bool {
        match self {
            Self::Deployed(_)
            | Self::Unchanged
            | Self::Progressing { .. }
            | Self::Contended { .. }
            | Self::Tested { .. } => true,
            Self::RolledBack(_)
            | Self::Failed(_)
            | Self::Stalled { .. }
            | Self::Irreconcilable { .. }
            | Self::Paused
            | Self::Contested { .. }
            | Self::Silent => false,
        }
    }
}

impl Report {
    pub(super) fn new(outcome: StepOutcome, next: Next) -> Self {
        Self {
            former: None,
            outcome,
            next,
            handled: None,
            error: None,
            retried: false,
            hook_error: None,
        }
    }

    /// Returns a report that nothing is left to do until the next period.
    pub(super) fn settle(outcome: StepOutcome) -> Self {
        Self::new(outcome, Next::Period)
    }

    /// Returns a report without an outcome that requests a new plan at once.
    pub(super) fn replan() -> Self {
        Self::new(StepOutcome::Silent, Next::Now)
    }

    /// Returns a report that the owner is gone.
    pub(super) fn gone() -> Self {
        Self::new(StepOutcome::Silent, Next::Gone)
    }

    /// Returns a report that an action on a release failed.
    pub(super) fn failed(
        kind: ActionKind,
        stored: &StoredRelease,
        message: Message,
        next: Next,
    ) -> Self {
        let failure = Failure {
            kind,
            message: message.clone(),
            release: describe(stored),
            next: None,
        };
        Self {
            error: Some(message),
            ..Self::new(StepOutcome::Failed(Box::new(failure)), next)
        }
    }

    /// Returns a report that the release waits for something.
    pub(super) fn wait(why: impl Into<String>, delay: Duration) -> Self {
        let outcome = StepOutcome::Progressing {
            why: why.into(),
            release: None,
        };
        Self::new(outcome, Next::After(delay))
    }

    /// Returns whether a revision has just been deployed, also by a rollback.
    pub fn deploys(&self) -> bool {
        self.former
            .iter()
            .chain([&self.outcome])
            .any(StepOutcome::deploys)
    }

    /// Returns whether nothing is left to do.
    pub(super) fn is_settled(&self) -> bool {
        self.next == Next::Period && self.error.is_none()
    }
}

/// Returns the release status of a record.
pub(super) fn describe(stored: &StoredRelease) -> ReleaseStatus {
    let chart = stored.release.chart.as_ref();
    let metadata = chart.and_then(|chart| chart.metadata.as_ref());
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

/// State of the objects of a release.
#[derive(Debug, Clone, Default)]
pub struct ObjectsState {
    /// Objects that are not ready, with the reason.
    pub unready: Vec<(ObjectKey, String)>,
    /// Objects that differ from what was applied and are not repaired.
    pub drifted: Vec<String>,
    /// Hash of all objects; `None` if they are unknown.
    pub baseline: Option<String>,
    /// Reason why objects are not ready, if it was looked for and found.
    pub cause: Option<Cause>,
    /// Something else that the owner waits for, although all objects are ready.
    pub awaited: Option<String>,
}

impl ObjectsState {
    /// Returns the state of objects as last seen.
    pub fn of(live: &Live, mode: DriftMode) -> Self {
        // A change that is not repaired does not make the release unready; a deleted object does.
        let changed = if mode == DriftMode::Repair {
            Vec::new()
        } else {
            live.drifted_states()
        };
        let is_left_alone = |key: &ObjectKey| {
            let mut changed = changed.iter();
            changed.any(|(changed, left)| changed == key && left.is_some())
        };
        let unready = live.unready(JobReadiness::Started).into_iter();
        let unready = unready.filter(|(key, _)| !is_left_alone(key));
        let mut drifted = Vec::new();
        if mode == DriftMode::Warn {
            drifted.extend(live.drifted().iter().map(ToString::to_string));
        }
        Self {
            unready: unready.map(|(key, why)| (key.clone(), why)).collect(),
            drifted,
            baseline: live.complete.then(|| live.aggregate()),
            cause: None,
            awaited: None,
        }
    }
}

/// Returns the manifest without the content of Secrets; `None` if it is too large for a status.
fn redacted(manifest: &str) -> Option<String> {
    if manifest.len() > MAX_MANIFEST {
        return None;
    }
    let mut text = String::with_capacity(manifest.len());
    for document in helm_core::manifest::split(manifest) {
        text.push_str("---\n");
        let mut object: serde_json::Value = go_yaml::from_str(document).ok()?;
        if has_secret(&mut object) {
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

/// Returns whether an object is a Secret, or a list with one.
fn has_secret(object: &mut serde_json::Value) -> bool {
    match list_items(object) {
        Some(items) => items.iter_mut().any(has_secret),
        None => object.get("kind").and_then(|kind| kind.as_str()) == Some("Secret"),
    }
}

#[cfg(test)]
mod tests {
    use super::redacted;

    #[test]
    fn secrets_do_not_appear_in_a_redacted_manifest() {
        let manifest = "---\n# Source: c/a.yaml\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: hidden}\n---\n# Source: c/b.yaml\nkind: ConfigMap\nmetadata: {name: c}\n";
        let text = redacted(manifest).unwrap();
        assert!(!text.contains("hidden"), "{text}");
        assert!(text.contains("# Secret s: its content is not shown\n---\n# Source: c/b.yaml\n"));
        for list in [
            "kind: List\nitems: [{kind: ConfigMap}, {kind: Secret, data: {k: hidden}}]\n",
            "apiVersion: v1\nkind: SecretList\nitems: [{metadata: {name: s}, data: {k: hidden}}]\n",
        ] {
            let text = redacted(list).unwrap();
            assert!(!text.contains("hidden"), "{text}");
        }
        assert_eq!(redacted(&"x".repeat(100_000)), None);
    }
}

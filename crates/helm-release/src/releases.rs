//! Releases that a program asks for itself, without a custom resource that says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use helm_core::chart::File;
use helm_core::engine::OpenError;
use helm_core::release::Status;
use helm_core::{Chart, CompiledChart, Digest, Values};
use jiff::Timestamp;
use kube_objects::diagnosis::Rounds;
use kube_objects::{ApiError, Key, Primary};
use serde_json::Value;
use tokio::time::Instant;

use crate::engine::access::Access;
use crate::engine::advance::{Engine, Outcome};
use crate::engine::desired_error::DesiredError;
use crate::engine::diagnose::Diagnosis;
use crate::engine::error_kind::ErrorKind;
use crate::engine::instructions::Instructions;
use crate::engine::memory::KnownRelease;
use crate::engine::message::{Message, Reader, Redactor};
use crate::engine::own_patches::OwnPatches;
use crate::engine::owner::{OwnValues, Owner, Present, Remedy};
use crate::engine::report::{Deployed, Next, ObjectsState, Report, StepOutcome};
use crate::engine::reported::{ReleaseStatus, Reported};
use crate::engine::setup::{Identity, Setup};
use crate::engine::subject::Subject;
use crate::engine::target::{ReleaseLocation, Target};
use crate::event::{Notice, Notices};
use crate::memories::Memories;
use crate::policy::ReleasePolicy;

/// Number of steps that one call takes before it lets others run.
const MAX_STEPS: usize = 16;
/// Shortest pause before another attempt that a message tells of.
const TOLD_PAUSE: Duration = Duration::from_secs(4);

/// Chart, values and options of a release.
#[derive(Clone)]
pub struct Wanted {
    /// The chart.
    pub chart: Arc<CompiledChart>,
    /// Values that are laid over those of the chart.
    pub values: Values,
    /// Options of the actions.
    pub policy: ReleasePolicy,
    /// A higher number for each change of the chart, the values or the options.
    pub generation: i64,
}

impl Wanted {
    /// Returns a release with these values and with Helm's options.
    pub fn new(chart: Arc<CompiledChart>, values: Values) -> Self {
        Self {
            chart,
            values,
            policy: ReleasePolicy::default(),
            generation: 0,
        }
    }
}

/// State of a release.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReleaseState {
    /// Newest revision; 0 without one.
    pub revision: u32,
    /// Whether the release is as wanted, and all of its objects are ready.
    pub is_ready: bool,
    /// Whether the release is uninstalled.
    pub is_gone: bool,
    /// Whether something has failed, or can only go on after a change.
    pub has_failed: bool,
    /// Description of what is missing until the release is ready, or of what has failed.
    pub message: String,
}

/// The end of a call of [`Releases::advance`].
#[derive(Debug)]
pub struct Advanced {
    /// State of the release.
    pub state: ReleaseState,
    /// Events about it.
    pub events: Vec<Notice>,
    /// Time until the next call if nothing changes, or why the call failed.
    pub next: Result<Option<Duration>, String>,
}

impl Advanced {
    /// Returns the end of a call that can do nothing until something changes.
    pub fn failed(why: String) -> Self {
        Self {
            state: ReleaseState {
                has_failed: true,
                message: why,
                ..ReleaseState::default()
            },
            events: Vec::new(),
            next: Ok(None),
        }
    }
}

/// Releases of a program.
pub struct Releases {
    access: Arc<Access>,
    rounds: Rounds,
    identity: Identity,
    known: Memories<Known>,
}

/// Knowledge about a release.
#[derive(Default)]
struct Known {
    memory: KnownRelease,
    generation: i64,
    reported: Reported,
    is_ready: bool,
    /// Manifest of the deployed revision.
    manifest: String,
    /// Reason of the last failure.
    failure: Option<String>,
    /// Description of what is missing.
    missing: Option<String>,
    /// The problem of which an event was sent last.
    told: Option<String>,
    diagnosis: Diagnosis,
}

impl Releases {
    /// Creates the releases of a program; nothing is known of them yet.
    pub fn new(access: Arc<Access>, rounds: Rounds, identity: Identity) -> Self {
        Self {
            access,
            rounds,
            identity,
            known: Memories::default(),
        }
    }

    /// Forgets the release of an owner. Returns whether others are known.
    pub fn forget(&self, key: &Key) -> bool {
        self.access.forget(key);
        self.known.forget(key)
    }

    /// Takes steps before `until` until nothing can be done at once: towards what is wanted, or towards the uninstall.
    /// `pause` is the longest time until the next call if this one fails.
    ///
    /// Calls for one release must not overlap.
    pub async fn advance(
        &self,
        owner: &Primary,
        location: &ReleaseLocation,
        wanted: Option<&Wanted>,
        pause: Duration,
        until: Instant,
    ) -> Advanced {
        let key = Key::from(owner);
        let forget = || self.access.forget(&key);
        let mut known = self.known.take(&key, &owner.uid, forget);
        let setup = match self.setup(wanted) {
            Ok(setup) => Arc::new(setup),
            Err(error) => return known.advanced(Vec::new(), Err(error.to_string())),
        };
        let program = Arc::new(Program {
            values: wanted.map(|wanted| Value::Object(wanted.values.clone())),
            generation: wanted.map_or(0, |wanted| wanted.generation),
            deleted: wanted.is_none().then(host::timestamp),
            is_released: AtomicBool::new(false),
            manifest: known.manifest.clone(),
        });
        known.wants(program.generation);
        let mut events = Vec::new();
        let mut next = Ok(Some(Duration::from_secs(1)));
        for _ in 0..MAX_STEPS {
            let account = self.access.own_account();
            let target = Target::new(owner.clone(), location.clone(), account, &self.access);
            known.recall(&target, &self.access);
            let subject = Subject {
                target,
                owner: Arc::clone(&program) as Arc<dyn Owner>,
                generation: Some(program.generation),
                deleting: wanted.is_none(),
                held: true,
                foreground: false,
                legacy: false,
                instructions: Instructions::default(),
                reported: known.reported.clone(),
                error: None,
            };
            let engine = Engine {
                setup: Arc::clone(&setup),
                access: Arc::clone(&self.access),
                // The caller needs time to tell of a release that is cut off.
                limit: until.saturating_duration_since(Instant::now()) * 9 / 10,
            };
            let outcome = Box::pin(engine.advance(&subject, &mut known.memory)).await;
            let is_complete = outcome.observation.is_complete();
            let ended = known.conclude(self, &setup, &subject, outcome, pause);
            events.append(&mut ended.0.take());
            next = match ended.1 {
                Ok(Next::Now) => continue,
                Ok(Next::After(delay)) => Ok(Some(delay)),
                Ok(Next::Gone) => Ok(None),
                // An object that no watch shows wakes nobody.
                Ok(Next::Period) => {
                    let read = known.memory.live.read_in();
                    Ok(read.filter(|_| is_complete))
                }
                Err(error) => Err(error),
            };
            break;
        }
        let mut advanced = known.advanced(events, next);
        advanced.state.is_gone = program.is_released.load(Ordering::Relaxed);
        let records = self
            .access
            .store
            .history(&location.namespace, &location.name);
        advanced.state.revision = records.last().map_or(0, |meta| meta.revision.0);
        advanced
    }

    fn setup(&self, wanted: Option<&Wanted>) -> Result<Setup, OpenError> {
        let (chart, policy) = match wanted {
            Some(wanted) => (Arc::clone(&wanted.chart), wanted.policy.clone()),
            // To uninstall takes the records alone.
            None => (Arc::new(no_chart()?), ReleasePolicy::default()),
        };
        Ok(Setup {
            chart,
            policy,
            period: Duration::ZERO,
            identity: self.identity.clone(),
        })
    }
}

/// Returns a chart without templates.
fn no_chart() -> Result<CompiledChart, OpenError> {
    let metadata = "apiVersion: v2\nname: empty\nversion: 0.0.0\n";
    let chart = Chart::from_files([File::new("Chart.yaml", metadata)])?;
    Ok(CompiledChart::compile(&chart)?)
}

impl Known {
    /// Notes the generation of what is wanted.
    fn wants(&mut self, generation: i64) {
        self.reported.was_ready = self.is_ready;
        if self.generation != generation {
            self.generation = generation;
            self.reported.is_failed_now = false;
            self.is_ready = false;
            // What failed is not wanted any more.
            (self.failure, self.missing) = (None, None);
        }
    }

    /// Takes what the newest record says of a deployed release as reported, if this process knows nothing of it.
    fn recall(&mut self, target: &Target, access: &Access) {
        let latest = target.history(access).pop();
        let deployed = latest.filter(|latest| latest.status == Status::Deployed);
        if let (None, Some(latest)) = (&self.reported.release, deployed) {
            self.reported.release = Some(ReleaseStatus {
                revision: latest.revision.0,
                status: latest.status.to_string(),
                digest: latest.digest.as_ref().map(ToString::to_string),
                ..ReleaseStatus::default()
            });
            (self.reported.is_deployed, self.reported.is_sound) = (true, true);
        }
    }

    fn advanced(&self, events: Vec<Notice>, next: Result<Option<Duration>, String>) -> Advanced {
        let problem = self.failure.as_ref().or(self.missing.as_ref());
        Advanced {
            state: ReleaseState {
                is_ready: self.is_ready,
                has_failed: self.failure.is_some(),
                message: problem.cloned().unwrap_or_default(),
                ..ReleaseState::default()
            },
            events,
            next,
        }
    }

    /// Notes the end of a pass. Returns its events, and what follows.
    fn conclude(
        &mut self,
        releases: &Releases,
        setup: &Setup,
        subject: &Subject,
        outcome: Outcome,
        pause: Duration,
    ) -> (Notices, Result<Next, String>) {
        let Outcome {
            observation,
            notices,
            result,
            ..
        } = outcome;
        let target = &subject.target;
        let manager = if observation.is_contested() {
            observation.managing_operator
        } else {
            setup.identity.operator.clone()
        };
        self.memory.managing_operator = Some(manager);
        let mode = setup.policy.drift_detection.mode;
        let mut objects = ObjectsState::of(&self.memory.live, mode);
        let waits = |report: &Report| report.outcome.waits_for_objects();
        if result.as_ref().is_ok_and(waits) {
            let (wake, key) = (releases.access.wake(), target.key());
            let (rounds, live) = (&releases.rounds, &self.memory.live);
            let logs = setup.policy.crash_logs;
            let diagnosis = &mut self.diagnosis;
            objects.cause = diagnosis.update(rounds, target, live, logs, None, move || wake(&key));
        }
        let redactor = self.memory.redactor.clone();
        let text = |message: &Message| redactor.text(message, Reader::Anybody);
        let ended = match result {
            Ok(report) => {
                for outcome in report.former.iter().chain([&report.outcome]) {
                    self.apply(outcome, &objects, &text, &notices);
                }
                if let Some(error) = report.error.as_ref().filter(|_| report.retried) {
                    self.retries(error, pause, &text);
                }
                match report.error {
                    Some(error) => Err(text(&error)),
                    None => Ok(report.next),
                }
            }
            Err(error) => {
                let message = error.message(&self.memory.values(subject.owner.quoted()));
                if error.is_cut_off() {
                    self.retries(&message, pause.max(TOLD_PAUSE), &text);
                } else if error.is_transient() {
                    self.retries(&message, pause, &text);
                } else {
                    let why = text(&message);
                    self.tell(&notices, ErrorKind::Chart.as_str(), &why);
                    self.fails(why);
                }
                Err(text(&message))
            }
        };
        for remark in self.memory.live.take_remarks() {
            notices.tell(remark.reason, "Reconcile", remark.note);
        }
        let identity = target.primary.identity();
        self.memory.live.wake_when_known(&identity);
        self.memory.redactor.forget_record();
        self.reported.was_ready = self.is_ready;
        (notices.cleaned(&redactor), ended)
    }

    /// Notes the outcome of a step.
    fn apply(
        &mut self,
        outcome: &StepOutcome,
        objects: &ObjectsState,
        text: &impl Fn(&Message) -> String,
        notices: &Notices,
    ) {
        match outcome {
            StepOutcome::Deployed(deployed) => {
                let note = deployed.kind.success_message().to_owned();
                notices.add(notice(false, deployed.kind.success(), note));
                self.told = None;
                self.deployed(deployed, objects);
                (self.reported.is_sound, self.reported.is_failed) = (true, false);
                self.ready(objects);
            }
            StepOutcome::Unchanged | StepOutcome::Tested { .. } => self.ready(objects),
            // The inputs that failed are still wanted.
            StepOutcome::RolledBack(deployed) => self.deployed(deployed, objects),
            StepOutcome::Progressing { why, release } => {
                if let Some(release) = release {
                    self.reported.release = Some(ReleaseStatus::clone(release));
                }
                let cause = objects.cause.as_ref().map(|cause| cause.message.clone());
                self.lacks(cause.unwrap_or_else(|| format!("waiting for {why}")));
            }
            StepOutcome::Failed(failure) => {
                let why = text(&failure.message);
                self.tell(notices, failure.kind.failure(), &why);
                self.reported.release = Some(failure.release.clone());
                self.fails(match failure.next {
                    Some(at) => format!("{why}{}the next attempt is at {at}", behind(&why)),
                    None => why,
                });
                (self.reported.is_sound, self.reported.is_failed) = (false, true);
                self.reported.is_failed_now = true;
            }
            StepOutcome::Stalled { message, failure } => {
                if let Some(failure) = failure {
                    // The revision that failed may be older than the one that runs.
                    let runs = self.reported.release.take();
                    let failed = StepOutcome::Failed(failure.clone());
                    self.apply(&failed, objects, text, notices);
                    let runs = runs.filter(|runs| runs.revision > failure.release.revision);
                    self.reported.release = runs.or(self.reported.release.take());
                }
                self.tell(notices, "RetriesExhausted", message);
                self.lacks(message.clone());
            }
            StepOutcome::Contended { message } => {
                self.ready(objects);
                if !self.is_ready {
                    self.lacks(message.clone());
                }
            }
            StepOutcome::Irreconcilable {
                reason, message, ..
            } => {
                let why = text(message);
                self.tell(notices, reason.as_str(), &why);
                self.fails(why);
            }
            StepOutcome::Contested { message } => {
                self.tell(notices, "OtherOperator", message);
                self.fails(message.clone());
            }
            StepOutcome::Paused | StepOutcome::Silent => {}
        }
    }

    fn deployed(&mut self, deployed: &Deployed, objects: &ObjectsState) {
        self.manifest = deployed.manifest.clone().unwrap_or_default();
        self.reported.release = Some(ReleaseStatus {
            baseline: objects.baseline.clone(),
            ..deployed.release.clone()
        });
        self.reported.is_deployed = true;
    }

    /// Notes whether the objects of the wanted revision are ready.
    fn ready(&mut self, objects: &ObjectsState) {
        self.failure = None;
        self.missing = None;
        self.is_ready = objects.unready.is_empty();
        if let Some((first, why)) = objects.unready.first() {
            self.lacks(match (&objects.cause, objects.unready.len() - 1) {
                (Some(cause), _) => cause.message.clone(),
                (None, 0) => format!("{first}: {why}"),
                (None, more) => format!("{first}: {why} (and {more} more)"),
            });
        }
    }

    /// Adds an event about a problem, once.
    fn tell(&mut self, notices: &Notices, reason: &'static str, why: &str) {
        if self.told.as_deref() != Some(why) {
            notices.add(notice(true, reason, why.to_owned()));
            self.told = Some(why.to_owned());
        }
    }

    fn lacks(&mut self, what: String) {
        self.is_ready = false;
        self.missing = Some(what);
    }

    fn fails(&mut self, why: String) {
        self.is_ready = false;
        self.failure = Some(why);
    }

    /// Notes that an attempt has failed for a reason that may pass.
    fn retries(&mut self, cause: &Message, pause: Duration, text: &impl Fn(&Message) -> String) {
        if pause >= TOLD_PAUSE {
            let (why, pause) = (text(cause), pause.as_secs());
            let separator = behind(&why);
            self.lacks(format!(
                "{why}{separator}the next attempt is within {pause} s"
            ));
        }
    }
}

/// Returns what separates a text from what follows: not behind the last line of a log.
fn behind(text: &str) -> &'static str {
    if text.contains('\n') { "\n" } else { "; " }
}

fn notice(warning: bool, reason: &'static str, note: String) -> Notice {
    Notice {
        warning,
        reason,
        action: "Reconcile",
        note,
        namespace: None,
    }
}

/// A program as the owner of a release, during a call.
struct Program {
    /// The values; `None` if the release is not wanted.
    values: Option<Value>,
    generation: i64,
    /// Start of the uninstall, if the release is not wanted.
    deleted: Option<Timestamp>,
    is_released: AtomicBool,
    /// Manifest that was deployed before the call.
    manifest: String,
}

impl Owner for Program {
    fn read(&self) -> BoxFuture<'_, Result<Option<Present>, ApiError>> {
        let present = Present {
            generation: Some(self.generation),
            deleted: self.deleted,
            is_held: !self.is_released.load(Ordering::Relaxed),
            others: Vec::new(),
        };
        Box::pin(std::future::ready(Ok(Some(present))))
    }

    fn hold(&self) -> BoxFuture<'_, Result<bool, ApiError>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    fn release<'a>(&'a self, _: &'a Present) -> BoxFuture<'a, Result<(), ApiError>> {
        self.is_released.store(true, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(())))
    }

    fn is_wanted(&self) -> bool {
        self.deleted.is_none()
    }

    fn state(&self) -> Option<Digest> {
        Some(Digest::of(""))
    }

    fn values<'a>(
        &'a self,
        _: &'a Access,
        _: &'a Target,
        redactor: &'a mut Redactor,
        _: &'a Notices,
    ) -> BoxFuture<'a, Result<OwnValues, DesiredError>> {
        *redactor = Redactor::default();
        let values = self.values.as_ref().and_then(Value::as_object);
        Box::pin(std::future::ready(Ok(OwnValues {
            values: values.cloned().unwrap_or_default(),
            patches: OwnPatches::default(),
            note: None,
            kept: None,
            read: Vec::new(),
        })))
    }

    fn remedy(&self, remedy: Remedy<'_>) -> String {
        match remedy {
            Remedy::Adopt | Remedy::AdoptBy(_) => "uninstall it, or choose another release name",
            Remedy::Retry => "the chart",
            Remedy::NameAccount => "correct the account",
            Remedy::LetGo => "delete its records",
            Remedy::Unprotect => "let its policy not protect it",
        }
        .to_owned()
    }

    fn reported_manifest(&self) -> String {
        self.manifest.clone()
    }

    fn quoted(&self) -> Option<&Value> {
        self.values.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_forgotten_when_something_else_is_wanted() {
        let mut known = Known::default();
        known.wants(1);
        known.fails("size is required".to_owned());
        known.wants(1);
        let state = |known: &Known| known.advanced(Vec::new(), Ok(None)).state;
        assert!(state(&known).has_failed);
        known.wants(2);
        assert_eq!(state(&known), ReleaseState::default());
    }
}

//! Phases of an attempt, which are recorded until it ends.
//!
//! Work of any depth describes itself: [`span`], [`changed`], [`waits_for`], [`ended`]. Outside of
//! [`Recording::run`] nothing is recorded. Attributes are names and numbers; errors are named by their reason, because
//! their messages may quote values.

use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

/// Maximum number of phases of an attempt. A chart with more hooks than that loses some.
const MAX_PHASES: usize = 256;
/// Maximum length of an attribute, in bytes.
const MAX_TEXT: usize = 512;

/// An error that has a name.
pub trait Reason {
    /// Names the cause, without any value.
    fn reason(&self) -> &'static str;
}

/// Outcome of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Success: all that the attempt had to do is done.
    Done,
    /// The release waits for something.
    Waiting,
    /// Failure, for this reason.
    Failed(&'static str),
    /// No attempt: the next one is due later.
    Idle,
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attribute {
    /// A name.
    Text(String),
    /// A number.
    Number(i64),
}

/// Names of attributes and their values.
pub type Attributes = Vec<(&'static str, Attribute)>;

/// A phase that has ended.
#[derive(Debug)]
pub struct Phase {
    /// Name of the phase.
    pub name: &'static str,
    /// Id of the phase, and that of the phase or attempt that it is part of.
    pub ids: (u64, u64),
    /// Start and end.
    pub timing: (SystemTime, SystemTime),
    /// Attributes in the order in which they were added.
    pub attributes: Attributes,
    /// Reason why it failed.
    pub error: Option<&'static str>,
}

/// Attempt and phase in progress.
#[derive(Clone)]
struct Scope {
    recording: Arc<Recording>,
    /// Id of the present phase.
    id: u64,
    /// Reason why the phase failed.
    error: Arc<OnceLock<&'static str>>,
}

tokio::task_local! {
    static CURRENT: Scope;
}

/// Records an attempt.
#[derive(Debug, Default)]
pub struct Recording(Mutex<Recorded>);

/// Facts about an attempt.
#[derive(Debug, Default)]
pub struct Recorded {
    /// Phases that have ended.
    pub phases: Vec<Phase>,
    /// Number of phases beyond the limit.
    pub lost: usize,
    /// Attributes of the attempt.
    pub attributes: Attributes,
    /// Whether anything was written.
    pub changed: bool,
    /// Type and name of what the release waits for.
    pub waits_for: Option<(&'static str, String)>,
    /// The step, and how it ended.
    pub end: Option<(&'static str, End)>,
}

impl Recording {
    /// Takes what was recorded.
    pub fn take(&self) -> Recorded {
        mem::take(&mut self.state())
    }

    /// Runs a future, whose phases are parts of `id`.
    pub async fn run<F: Future>(self: Arc<Self>, id: u64, future: F) -> F::Output {
        let scope = Scope {
            recording: self,
            id,
            error: Arc::default(),
        };
        CURRENT.scope(scope, future).await
    }

    fn state(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, phase: Phase) {
        let mut state = self.state();
        if state.phases.len() < MAX_PHASES {
            state.phases.push(phase);
        } else {
            state.lost += 1;
        }
    }
}

fn current() -> Option<Scope> {
    CURRENT.try_with(Scope::clone).ok()
}

fn with_state(change: impl FnOnce(&mut Recorded)) {
    let _ = CURRENT.try_with(|scope| change(&mut scope.recording.state()));
}

/// Adds attributes to the present attempt.
pub fn about(attributes: &[(&'static str, &str)]) {
    with_state(|state| {
        let attributes = attributes
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| (*key, Attribute::Text(short(value))));
        state.attributes.extend(attributes);
    });
}

/// Notes that the present attempt has written something.
pub fn changed() {
    with_state(|state| state.changed = true);
}

/// Notes that the present phase has failed although its future returns no error.
pub fn failed(reason: &'static str) {
    let _ = CURRENT.try_with(|scope| scope.error.set(reason));
}

/// Notes what the release waits for.
pub fn waits_for(what: &'static str, name: &str) {
    with_state(|state| state.waits_for = Some((what, short(name))));
}

/// Notes the step of the present attempt, the latest revision, and how the step ended.
pub fn ended(step: &'static str, revision: Option<u32>, end: End) {
    with_state(|state| {
        state.end = Some((step, end));
        if let Some(revision) = revision {
            let revision = Attribute::Number(i64::from(revision));
            state.attributes.push(("helm.release.revision", revision));
        }
    });
}

/// A phase of an attempt.
pub struct Span {
    name: &'static str,
    attributes: Attributes,
}

/// Describes a phase of the present attempt.
pub fn span(name: &'static str) -> Span {
    Span {
        name,
        attributes: Vec::new(),
    }
}

impl Span {
    /// Adds a name.
    #[must_use]
    pub fn text(mut self, key: &'static str, value: &str) -> Self {
        self.attributes.push((key, Attribute::Text(short(value))));
        self
    }

    /// Adds a number.
    #[must_use]
    pub fn number(mut self, key: &'static str, value: usize) -> Self {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.attributes.push((key, Attribute::Number(value)));
        self
    }

    /// Runs the phase. The future is boxed, so that those of the callers stay small.
    pub fn run<'f, F, T, E>(
        self,
        future: F,
    ) -> Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'f>>
    where
        F: Future<Output = Result<T, E>> + Send + 'f,
        E: Reason,
    {
        Box::pin(async move {
            let Some(parent) = current() else {
                return future.await;
            };
            let (id, start) = (random_id(), crate::now());
            let scope = Scope {
                recording: Arc::clone(&parent.recording),
                id,
                error: Arc::default(),
            };
            let error = Arc::clone(&scope.error);
            let result = CURRENT.scope(scope, future).await;
            let reason = result.as_ref().err().map(Reason::reason);
            parent.recording.end(Phase {
                name: self.name,
                ids: (id, parent.id),
                timing: (start, crate::now()),
                attributes: self.attributes,
                error: reason.or(error.get().copied()),
            });
            result
        })
    }
}

/// Returns the id of a new phase, which is never zero.
pub fn random_id() -> u64 {
    let mut bytes = [0_u8; 8];
    let _ = crate::fill(&mut bytes);
    u64::from_ne_bytes(bytes) | 1
}

/// Cuts a text that is too long.
fn short(text: &str) -> String {
    let mut texts = (0..=text.len().min(MAX_TEXT)).rev();
    let cut = texts.find_map(|end| text.get(..end));
    cut.unwrap_or_default().to_owned()
}

//! The loop behind every watch: it opens the stream, hands each event to the [`Follower`] that keeps
//! what is seen, and mends what breaks.
//!
//! ```text
//! open: list, then watch ──> event ──> Follower::event
//!        ^                     | an error, an end or a panic
//!        └────── back-off <────┴──> Follower::state
//! ```
//!
//! - A watch that breaks off goes on from the last version that it has seen. What the follower
//!   knows stays valid until then.
//! - A watch that is refused begins anew: only a list tells that it is allowed again.
//! - A follower that panics may have lost an event. It is told so, and a fresh list tells it
//!   everything again.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, DynamicResourceScope, PartialObjectMeta};
use kube::runtime::watcher;
use kube::{Client, Resource};
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::backoff::Retry;
use super::worker::panic_text;
use crate::telemetry::metrics::WatchMetrics;

/// The waits between two attempts.
const RETRY: Retry = Retry::new(Duration::from_millis(250), Duration::from_secs(30));

/// How far a watch is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchState {
    /// The first list is under way.
    Starting,
    /// Every object is known.
    Synced,
    /// It may not be watched: the permission that is missing.
    Forbidden(String),
    /// The kind does not exist.
    Missing,
    /// It fails for another reason and is tried again.
    Failing(String),
}

/// What is watched, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) resource: ApiResource,
    /// One namespace, or all.
    pub(crate) namespace: Option<String>,
    /// Whether the operator also works without this watch: then it is not a warning that it is
    /// refused.
    pub(crate) optional: bool,
}

/// How the objects that exist already are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lists {
    /// As events of the watch: one request instead of two, and no list that is held whole. The
    /// answer may be older than our own last write. Where a server refuses it, they are listed.
    Streaming,
    /// By a list of their own, which is as new as its answer.
    Paged,
}

/// The events of a watch.
pub(crate) type Events<O> = BoxStream<'static, Result<watcher::Event<O>, watcher::Error>>;

/// Keeps what a watch shows.
pub(crate) trait Follower: Send {
    /// What is kept of an object.
    type Object;

    /// Takes an event in.
    fn event(&mut self, event: watcher::Event<Self::Object>);

    /// Takes in that the watch is in another state than before. What was known stays valid, except
    /// in [`WatchState::Missing`].
    fn state(&mut self, state: &WatchState);

    /// Takes in that this follower panicked, so that it may not have told of what it took in. The
    /// list that follows is to be told of as if nothing had been.
    fn distrust(&mut self) {}
}

/// Why a stream must be opened anew.
enum Trouble {
    Error(watcher::Error),
    Ended,
    Panicked(String),
}

/// What [`follow`] remembers from one attempt to the next.
struct Health {
    retry: Retry,
    /// Since when the list is complete and nothing has failed.
    well_since: Option<Instant>,
    /// What the follower was told.
    told: WatchState,
    /// What was logged since the watch was well.
    logged: Option<WatchState>,
}

impl Subject {
    /// A subject that the operator cannot do without.
    pub(crate) fn new(resource: ApiResource, namespace: Option<&str>) -> Self {
        Self {
            resource,
            namespace: namespace.map(ToOwned::to_owned),
            optional: false,
        }
    }

    /// The API of these objects.
    pub(crate) fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        let client = client.clone();
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
            None => Api::all_with(client, &self.resource),
        }
    }

    /// Plural and group: `deployments.apps`.
    fn plural(&self) -> String {
        let ApiResource { group, plural, .. } = &self.resource;
        if group.is_empty() {
            plural.clone()
        } else {
            format!("{plural}.{group}")
        }
    }

    fn place(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("in namespace {namespace}"),
            None => "in all namespaces".to_owned(),
        }
    }

    /// The state that an error means.
    fn state_after(&self, error: &watcher::Error) -> WatchState {
        let (verb, status) = match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status)) => ("list", status),
            watcher::Error::WatchStartFailed(kube::Error::Api(status))
            | watcher::Error::WatchFailed(kube::Error::Api(status))
            | watcher::Error::WatchError(status) => ("watch", status),
            _ => return WatchState::Failing(error.to_string()),
        };
        match status.code {
            403 => WatchState::Forbidden(format!("{verb} {} {}", self.plural(), self.place())),
            404 => WatchState::Missing,
            _ => WatchState::Failing(error.to_string()),
        }
    }

    /// What keeps these objects from being watched and what to do about it, as a sentence; `None`
    /// while they are.
    pub(crate) fn problem(&self, state: &WatchState) -> Option<String> {
        let why = match state {
            WatchState::Starting | WatchState::Synced => return None,
            WatchState::Forbidden(permission) => format!(
                "the operator's service account has no permission to {permission}; grant it the verbs list and watch"
            ),
            WatchState::Missing => format!(
                "the API server does not serve {} in {} (404); install its CustomResourceDefinition",
                self.resource.kind, self.resource.api_version
            ),
            WatchState::Failing(message) => format!("{message}; the operator keeps trying"),
        };
        Some(format!(
            "cannot watch {} {}: {why}",
            self.plural(),
            self.place()
        ))
    }
}

impl Trouble {
    fn state(&self, subject: &Subject) -> WatchState {
        match self {
            Self::Error(error) => subject.state_after(error),
            Self::Ended => WatchState::Failing("the stream of events ended".to_owned()),
            Self::Panicked(message) => WatchState::Failing(format!("internal error: {message}")),
        }
    }

    /// Why the stream cannot go on as it is, as a label; `None` if it can.
    fn restart(&self, state: &WatchState) -> Option<&'static str> {
        match (self, state) {
            (Self::Panicked(_), _) => Some("panic"),
            (Self::Ended, _) => Some("end"),
            (Self::Error(_), WatchState::Forbidden(_)) => Some("forbidden"),
            (Self::Error(_), WatchState::Missing) => Some("missing"),
            (Self::Error(_), _) => None,
        }
    }
}

impl Health {
    fn new() -> Self {
        Self {
            retry: RETRY,
            well_since: None,
            told: WatchState::Starting,
            logged: None,
        }
    }

    /// Takes in that an event was handled. A list proves that there is nothing wrong only if the
    /// watch that follows it does not fail at once: one may be permitted without the other.
    fn went_well(&mut self, subject: &Subject, progress: Progress) {
        match progress {
            Progress::None => {}
            Progress::Listed => self.well_since = Some(Instant::now()),
            Progress::Watched => self.recovered(subject),
        }
    }

    fn recovered(&mut self, subject: &Subject) {
        self.retry.reset();
        if self.logged.take().is_some() {
            info!(kind = %subject.resource.kind, namespace = subject.namespace, "watching again");
        }
    }

    /// The wait after a failure.
    fn wait(&mut self, subject: &Subject) -> Duration {
        if let Some(since) = self.well_since.take()
            && since.elapsed() >= self.retry.longest()
        {
            self.recovered(subject);
        }
        let mut noise = [0_u8];
        let _ = getrandom::fill(&mut noise);
        self.retry.failed(noise[0])
    }

    /// Logs a failure, once for each state.
    fn log(&mut self, subject: &Subject, trouble: &Trouble, state: &WatchState, wait: Duration) {
        let kind = &subject.resource.kind;
        let problem = subject.problem(state);
        if matches!(trouble, Trouble::Panicked(_)) {
            error!(%kind, problem, retry_in = ?wait, "what follows a watch panicked; listing anew");
        } else if self.logged.as_ref() != Some(state) {
            if subject.optional && matches!(state, WatchState::Forbidden(_)) {
                debug!(%kind, problem, retry_in = ?wait, "cannot watch; trying again");
            } else {
                warn!(%kind, problem, retry_in = ?wait, "cannot watch; trying again");
            }
        }
        self.logged = Some(state.clone());
    }
}

/// How far an event brings a watch.
#[derive(Clone, Copy)]
enum Progress {
    None,
    Listed,
    Watched,
}

impl Progress {
    fn of<O>(event: &watcher::Event<O>) -> Self {
        match event {
            watcher::Event::Init | watcher::Event::InitApply(_) => Self::None,
            watcher::Event::InitDone => Self::Listed,
            watcher::Event::Apply(_) | watcher::Event::Delete(_) => Self::Watched,
        }
    }
}

/// Follows a watch until the future is dropped. `open` makes the stream of a fresh list and of what
/// comes after it.
pub(crate) async fn follow<F: Follower>(
    subject: Subject,
    metrics: WatchMetrics,
    lists: Lists,
    open: impl Fn(Lists) -> Events<F::Object> + Send,
    mut follower: F,
) {
    let mut lists = lists;
    let mut events = open(lists);
    let mut health = Health::new();
    loop {
        // What decodes an object may panic as well as what takes it in.
        let next = AssertUnwindSafe(events.next()).catch_unwind().await;
        let trouble = match next {
            Ok(Some(Ok(event))) => {
                let progress = Progress::of(&event);
                let handled = guarded(|| {
                    let listed = matches!(progress, Progress::Listed);
                    follower.event(event);
                    if listed {
                        tell(&mut follower, &mut health.told, &WatchState::Synced);
                    }
                });
                match handled {
                    Ok(()) => {
                        health.went_well(&subject, progress);
                        continue;
                    }
                    Err(panic) => Trouble::Panicked(panic),
                }
            }
            Ok(Some(Err(error))) if lists == Lists::Streaming && is_refused(&error) => {
                lists = Lists::Paged;
                events = open(lists);
                continue;
            }
            Ok(Some(Err(error))) => Trouble::Error(error),
            Ok(None) => Trouble::Ended,
            Err(panic) => Trouble::Panicked(panic_text(panic.as_ref()).to_owned()),
        };
        let state = trouble.state(&subject);
        let wait = health.wait(&subject);
        health.log(&subject, &trouble, &state, wait);
        let restart = trouble.restart(&state);
        // A watch that merely broke off goes on where it was.
        if restart.is_some() || health.told != WatchState::Synced {
            let panicked = matches!(trouble, Trouble::Panicked(_));
            let told = guarded(|| {
                if panicked {
                    follower.distrust();
                }
                tell(&mut follower, &mut health.told, &state);
            });
            if let Err(panic) = told {
                error!(kind = %subject.resource.kind, panic, "what follows a watch panicked");
            }
        }
        tokio::time::sleep(wait).await;
        if let Some(cause) = restart {
            metrics.restarted(&subject.resource.kind, cause);
            events = open(lists);
        }
    }
}

fn tell<F: Follower>(follower: &mut F, told: &mut WatchState, state: &WatchState) {
    if told != state {
        told.clone_from(state);
        follower.state(state);
    }
}

/// Runs what may panic; its message if it does.
fn guarded(work: impl FnOnce()) -> Result<(), String> {
    let caught: Result<(), Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(work));
    caught.map_err(|panic| panic_text(panic.as_ref()).to_owned())
}

/// Whether the server does not know streaming lists.
fn is_refused(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status))
        if matches!(status.code, 400 | 422))
}

/// What a watch is to ask for.
pub(crate) fn config(lists: Lists, selector: Option<&str>) -> watcher::Config {
    let config = match lists {
        Lists::Streaming => watcher::Config::default().streaming_lists(),
        Lists::Paged => watcher::Config::default().page_size(500),
    };
    match selector {
        Some(selector) => config.labels(selector),
        None => config,
    }
}

/// Whole objects, whatever their kind.
pub(crate) fn whole(
    client: &Client,
    subject: &Subject,
    lists: Lists,
    selector: Option<&str>,
) -> Events<DynamicObject> {
    watcher(subject.api(client), config(lists, selector)).boxed()
}

/// Metadata of objects, whatever their kind: nothing else is asked for.
pub(crate) fn metadata(
    client: &Client,
    subject: &Subject,
    lists: Lists,
    selector: Option<&str>,
) -> Events<ObjectMeta> {
    let api: Api<PartialObjectMeta<DynamicObject>> = subject.api(client);
    watcher(api, config(lists, selector))
        .map_ok(|event| map_event(event, |object| object.metadata))
        .boxed()
}

/// An event with something else made of its objects.
pub(crate) fn map_event<A, B>(event: watcher::Event<A>, map: impl Fn(A) -> B) -> watcher::Event<B> {
    match event {
        watcher::Event::Apply(object) => watcher::Event::Apply(map(object)),
        watcher::Event::Delete(object) => watcher::Event::Delete(map(object)),
        watcher::Event::InitApply(object) => watcher::Event::InitApply(map(object)),
        watcher::Event::Init => watcher::Event::Init,
        watcher::Event::InitDone => watcher::Event::InitDone,
    }
}

#[cfg(test)]
mod tests;

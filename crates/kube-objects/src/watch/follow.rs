//! The loop behind every watch: opens the stream, passes each event to the [`Follower`], and
//! recovers from failures.
//!
//! ```text
//! open: list, then watch ──> event ──> Follower::event
//!        ^                     | an error, an end or a panic
//!        └────── back-off <────┴──> Follower::state
//! ```
//!
//! - A watch that is interrupted resumes from the last resource version. The state of the follower
//!   stays valid for half a minute. A watch that is broken for longer is reported, and then starts with
//!   a fresh list, because a quiet watch does not show that it works again.
//! - A watch that is forbidden restarts: only a list shows that it is permitted again.
//! - A follower that panics may have lost an event. It is notified of that, and gets every object
//!   again from a fresh list.

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

use super::{Restarts, Retry};
use crate::AnyObject;
use crate::shards::Share;

/// Backoff between two attempts.
const RETRY: Retry = Retry::new(Duration::from_millis(250), Duration::from_secs(30));

/// Time that a watch may be broken until the known objects count as out of date.
const GRACE: Duration = Duration::from_secs(30);

/// A watch that does not fail again for this long has worked meanwhile, even if it had no events: a
/// request that is not answered fails earlier; see [`crate::client::Deadlines`].
const QUIET: Duration = Duration::from_secs(40);

/// State of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchState {
    /// The first list is in progress.
    Starting,
    /// Every object is known.
    Synced,
    /// The watch is forbidden, because this permission is missing.
    Forbidden(String),
    /// The kind does not exist.
    Missing,
    /// The watch fails for another reason and is retried.
    Failing(String),
}

/// The objects that a watch shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchTarget {
    /// The kind.
    pub resource: ApiResource,
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// Whether the operator works without this watch, so that a missing permission is not logged as
    /// a warning.
    pub optional: bool,
    /// The objects that this process handles; `None` means all.
    pub share: Option<Share>,
}

/// Method of listing existing objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lists {
    /// As events of the watch: one request instead of two, and no complete list in memory. The
    /// result may be older than our own last write. If the server does not support it, `Paged` is
    /// used.
    Streaming,
    /// With a separate list, which is up to date.
    Paged,
}

/// Events of a watch.
pub type Events<O> = BoxStream<'static, Result<watcher::Event<O>, watcher::Error>>;

/// Receives the events of a watch.
pub trait Follower: Send {
    /// Part of an object that the events contain.
    type Object;

    /// Handles an event.
    fn event(&mut self, event: watcher::Event<Self::Object>);

    /// Handles a change of the watch's state. Known objects stay valid, except in
    /// [`WatchState::Missing`].
    fn state(&mut self, state: &WatchState);

    /// Handles that a watch whose objects are known has been broken for half a minute. They may be out
    /// of date until the state is [`WatchState::Synced`] again.
    fn broken(&mut self, state: &WatchState) {
        self.state(state);
    }

    /// Called after this follower panicked and may not have reported a change. It must report all
    /// objects of the list that follows.
    fn invalidate(&mut self) {}
}

/// Failure of a stream.
enum WatchFailure {
    Error(watcher::Error),
    Ended,
    Panicked(String),
}

/// The state of [`follow`] across attempts.
struct Health {
    retry: Retry,
    /// Time since which the list is complete and nothing has failed.
    working_since: Option<Instant>,
    /// Time since which a complete list is not updated; `None` while the watch works.
    broken_since: Option<Instant>,
    /// Time of the last attempt after a failure.
    retried: Option<Instant>,
    /// Whether a list was complete.
    listed: bool,
    /// State that was last reported to the follower.
    reported: WatchState,
    /// State that was last logged since the watch worked.
    logged: Option<WatchState>,
}

impl WatchTarget {
    /// Creates a target that the operator cannot work without.
    pub fn new(resource: ApiResource, namespace: Option<&str>) -> Self {
        Self {
            resource,
            namespace: namespace.map(ToOwned::to_owned),
            optional: false,
            share: None,
        }
    }

    /// Limits the target to a share of the objects.
    #[must_use]
    pub fn sharing(mut self, share: Share) -> Self {
        self.share = Some(share);
        self
    }

    /// Opens a watch of the objects in the share.
    fn events<O: Send + 'static>(
        &self,
        client: &Client,
        open: impl Fn(&Client) -> Events<O> + Send + 'static,
        metadata_of: fn(&O) -> &ObjectMeta,
    ) -> Events<O> {
        match &self.share {
            Some(share) => share.events(client, open, metadata_of),
            None => open(client),
        }
    }

    /// Returns the API of the objects.
    pub fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        let client = client.clone();
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource),
            None => Api::all_with(client, &self.resource),
        }
    }

    /// Returns plural and group, such as `deployments.apps`.
    fn plural(&self) -> String {
        let ApiResource { group, plural, .. } = &self.resource;
        if group.is_empty() {
            plural.clone()
        } else {
            format!("{plural}.{group}")
        }
    }

    fn scope_text(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("in namespace {namespace}"),
            None => "in all namespaces".to_owned(),
        }
    }

    fn state_after(&self, error: &watcher::Error) -> WatchState {
        let (verb, status) = match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status)) => ("list", status),
            watcher::Error::WatchStartFailed(kube::Error::Api(status))
            | watcher::Error::WatchFailed(kube::Error::Api(status))
            | watcher::Error::WatchError(status) => ("watch", status),
            _ => return WatchState::Failing(error.to_string()),
        };
        match status.code {
            403 => WatchState::Forbidden(format!("{verb} {} {}", self.plural(), self.scope_text())),
            404 => WatchState::Missing,
            _ => WatchState::Failing(error.to_string()),
        }
    }

    /// Describes why these objects cannot be watched and what to do about it; `None` while they
    /// are.
    pub fn problem(&self, state: &WatchState) -> Option<String> {
        let why = match state {
            WatchState::Starting | WatchState::Synced => return None,
            WatchState::Forbidden(permission) => format!(
                "no permission to {permission}; grant the operator's service account, or that of serviceAccountName, the verbs list and watch"
            ),
            WatchState::Missing => format!(
                "the API server does not serve {} in {} (404); install its CustomResourceDefinition (those of a project are in config/crd/bases); the operator keeps trying",
                self.resource.kind, self.resource.api_version
            ),
            WatchState::Failing(message) => format!("{message}; the operator keeps trying"),
        };
        Some(format!(
            "cannot watch {} {}: {why}",
            self.plural(),
            self.scope_text()
        ))
    }
}

impl WatchFailure {
    fn state(&self, target: &WatchTarget) -> WatchState {
        match self {
            Self::Error(error) => target.state_after(error),
            Self::Ended => WatchState::Failing("the stream of events ended".to_owned()),
            Self::Panicked(message) => WatchState::Failing(format!("internal error: {message}")),
        }
    }

    /// Returns whether the known objects stay valid for a while.
    fn is_interruption(&self, state: &WatchState) -> bool {
        !matches!(self, Self::Panicked(_)) && matches!(state, WatchState::Failing(_))
    }

    /// Returns why the stream has to be reopened, as a label; `None` if it resumes by itself.
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
            working_since: None,
            broken_since: None,
            retried: None,
            listed: false,
            reported: WatchState::Starting,
            logged: None,
        }
    }

    /// Records that an event was handled. A list alone does not prove that the watch works, because
    /// the verb `list` may be permitted without `watch`.
    fn handled(&mut self, target: &WatchTarget, progress: WatchProgress) {
        match progress {
            WatchProgress::None => {}
            WatchProgress::Listed => {
                self.listed = true;
                self.working_since = Some(Instant::now());
                self.broken_since = None;
            }
            WatchProgress::Watched => {
                self.broken_since = None;
                self.recovered(target);
            }
        }
    }

    /// Returns how long a watch that has just failed may stay broken until that is reported.
    fn grace(&mut self) -> Duration {
        let since = *self.broken_since.get_or_insert_with(Instant::now);
        GRACE.saturating_sub(since.elapsed())
    }

    fn recovered(&mut self, target: &WatchTarget) {
        self.retry.reset();
        if self.logged.take().is_some() {
            info!(kind = %target.resource.kind, namespace = target.namespace, "watching again");
        }
    }

    fn wait(&mut self, target: &WatchTarget) -> Duration {
        if let Some(since) = self.working_since.take()
            && since.elapsed() >= self.retry.longest()
        {
            self.recovered(target);
        }
        if self.retried.is_some_and(|at| at.elapsed() >= QUIET) {
            self.broken_since = None;
            self.recovered(target);
        }
        let mut noise = [0_u8];
        let _ = host::fill(&mut noise);
        self.retry.failed(noise[0])
    }

    /// Logs a failure once per state.
    fn log(
        &mut self,
        target: &WatchTarget,
        failure: &WatchFailure,
        state: &WatchState,
        wait: Duration,
    ) {
        let kind = &target.resource.kind;
        let problem = target.problem(state);
        if matches!(failure, WatchFailure::Panicked(_)) {
            error!(%kind, problem, retry_in = ?wait, "the follower of a watch panicked; listing again");
        } else if self.logged.as_ref() != Some(state) {
            if target.optional && matches!(state, WatchState::Forbidden(_)) {
                debug!(%kind, problem, retry_in = ?wait, "cannot watch; retrying");
            } else {
                warn!(%kind, problem, retry_in = ?wait, "cannot watch; retrying");
            }
        }
        self.logged = Some(state.clone());
    }
}

/// Progress of a watch that an event shows.
#[derive(Clone, Copy)]
enum WatchProgress {
    None,
    Listed,
    Watched,
}

impl WatchProgress {
    fn of<O>(event: &watcher::Event<O>) -> Self {
        match event {
            watcher::Event::Init | watcher::Event::InitApply(_) => Self::None,
            watcher::Event::InitDone => Self::Listed,
            watcher::Event::Apply(_) | watcher::Event::Delete(_) => Self::Watched,
        }
    }
}

/// Follows a watch until the future is dropped. `open` returns a stream that starts with a fresh
/// list.
pub async fn follow<F: Follower>(
    target: WatchTarget,
    restarts: Restarts,
    lists: Lists,
    open: impl Fn(Lists) -> Events<F::Object> + Send,
    mut follower: F,
) {
    let mut lists = lists;
    let mut events = open(lists);
    let mut health = Health::new();
    loop {
        // Decoding an object may panic, too.
        let next = AssertUnwindSafe(events.next()).catch_unwind().await;
        let failure = match next {
            Ok(Some(Ok(event))) => {
                let progress = WatchProgress::of(&event);
                let handled = catch_panic(|| {
                    let listed = matches!(progress, WatchProgress::Listed);
                    follower.event(event);
                    if listed {
                        report_state(&mut follower, &mut health.reported, &WatchState::Synced);
                    }
                });
                match handled {
                    Ok(()) => {
                        health.handled(&target, progress);
                        continue;
                    }
                    Err(panic) => WatchFailure::Panicked(panic),
                }
            }
            Ok(Some(Err(error)))
                if lists == Lists::Streaming && is_streaming_unsupported(&error) =>
            {
                lists = Lists::Paged;
                events = open(lists);
                continue;
            }
            Ok(Some(Err(error))) => WatchFailure::Error(error),
            Ok(None) => WatchFailure::Ended,
            Err(panic) => WatchFailure::Panicked(panic_text(panic.as_ref()).to_owned()),
        };
        let state = failure.state(&target);
        let wait = health.wait(&target);
        health.log(&target, &failure, &state, wait);
        let mut restart = failure.restart(&state);
        let grace = health.grace();
        if failure.is_interruption(&state) && health.reported == WatchState::Synced {
            tokio::time::sleep(wait.min(grace)).await;
            if wait >= grace {
                health.reported.clone_from(&state);
                report(&target, || follower.broken(&state));
                tokio::time::sleep(wait.saturating_sub(grace)).await;
            }
        } else {
            let panicked = matches!(failure, WatchFailure::Panicked(_));
            report(&target, || {
                if panicked {
                    follower.invalidate();
                }
                report_state(&mut follower, &mut health.reported, &state);
            });
            tokio::time::sleep(wait).await;
        }
        if health.listed && health.reported != WatchState::Synced {
            restart = restart.or(Some("broken"));
        }
        health.retried = Some(Instant::now());
        if let Some(cause) = restart {
            restarts.restarted(&target.resource.kind, cause);
            events = open(lists);
        }
    }
}

/// Tells the follower a state; a panic is logged.
fn report(target: &WatchTarget, tell: impl FnOnce()) {
    if let Err(panic) = catch_panic(tell) {
        error!(kind = %target.resource.kind, panic, "the follower of a watch panicked");
    }
}

fn report_state<F: Follower>(follower: &mut F, reported: &mut WatchState, state: &WatchState) {
    // The message of a failure may differ each time, as when ports are part of it.
    let failing = |state: &WatchState| matches!(state, WatchState::Failing(_));
    if reported != state && !(failing(reported) && failing(state)) {
        reported.clone_from(state);
        follower.state(state);
    }
}

/// Runs `work` and returns the message of a panic as an error.
fn catch_panic(work: impl FnOnce()) -> Result<(), String> {
    let caught: Result<(), Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(work));
    caught.map_err(|panic| panic_text(panic.as_ref()).to_owned())
}

/// Returns the message of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

/// Returns whether the server does not support streaming lists.
fn is_streaming_unsupported(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status))
        if matches!(status.code, 400 | 422))
}

/// Returns the options of a watch.
pub fn config(lists: Lists, selector: Option<&str>) -> watcher::Config {
    let config = match lists {
        Lists::Streaming => watcher::Config::default().streaming_lists(),
        Lists::Paged => watcher::Config::default().page_size(500),
    };
    match selector {
        Some(selector) => config.labels(selector),
        None => config,
    }
}

/// Watches whole objects of any kind. Of an object that is nested too deep, something is
/// [`left_out`](crate::left_out), so that it does not break the watch for the others.
pub fn whole(
    client: &Client,
    target: &WatchTarget,
    lists: Lists,
    selector: Option<&str>,
) -> Events<DynamicObject> {
    let (of, config) = (target.clone(), config(lists, selector));
    let open = move |client: &Client| {
        let api: Api<AnyObject> = of.api(client);
        watcher(api, config.clone())
            .map_ok(|event| map_event(event, |AnyObject(object)| object))
            .boxed()
    };
    target.events(client, open, |object| &object.metadata)
}

/// Watches only the metadata of objects of any kind.
pub fn metadata(
    client: &Client,
    target: &WatchTarget,
    lists: Lists,
    selector: Option<&str>,
) -> Events<ObjectMeta> {
    let (of, config) = (target.clone(), config(lists, selector));
    let open = move |client: &Client| {
        let api: Api<PartialObjectMeta<DynamicObject>> = of.api(client);
        watcher(api, config.clone())
            .map_ok(|event| map_event(event, |object| object.metadata))
            .boxed()
    };
    target.events(client, open, |metadata| metadata)
}

/// Converts the object of an event.
pub fn map_event<A, B>(event: watcher::Event<A>, map: impl Fn(A) -> B) -> watcher::Event<B> {
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

//! The components of one name, each of another custom resource.

use host::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use helm_core::Digest;
use helm_core::release::ReleaseName;
use jiff::Timestamp;
use kube::core::ObjectMeta;
use kube::runtime::events::Event;
use kube_objects::{ApiError, Primary};
use operator_runtime::controller::{Backoff, Key, Outcome, ReconcileError};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::super::access::Access;
use super::super::annotations::Annotations;
use super::super::chart::Chart;
use super::super::desired_error::DesiredError;
use super::super::engine::Engine;
use super::super::events::Notices;
use super::super::memory::Memories;
use super::super::message::{Reader, Redactor};
use super::super::owner::{OwnValues, Owner, Present, Reporter};
use super::super::setup::Setup;
use super::super::status::Status;
use super::super::subject::{Place, Subject, SubjectError, wanted};
use super::super::target::Target;

/// Number of steps that one call takes before it lets others run.
const MAX_STEPS: usize = 16;

/// The components of one name, of all custom resources.
pub(super) struct KnownComponent {
    access: Arc<Access>,
    memories: Memories,
    states: Mutex<States>,
    /// Pauses after failures.
    pauses: Mutex<Backoff>,
}

/// The component of each custom resource.
#[derive(Default)]
struct States(HashMap<Key, State>);

/// The component of one custom resource.
#[derive(Default)]
struct State {
    /// Uid of the custom resource.
    uid: String,
    /// Chart and values, if this process has installed it.
    wanted: Option<(Chart, Value)>,
    /// Increases with each change of chart or values.
    generation: i64,
    status: Value,
}

impl States {
    /// Returns the component of the custom resource with this uid. Nothing is known of it if another one of the same
    /// name had it.
    fn of(&mut self, key: &Key, uid: &str) -> &mut State {
        let state = self.0.entry(key.clone()).or_default();
        if state.uid != uid {
            *state = State {
                uid: uid.to_owned(),
                ..State::default()
            };
        }
        state
    }
}

/// The result of the passes of one call.
pub(super) struct Passed {
    pub(super) status: Status,
    /// Whether the release is gone.
    pub(super) released: bool,
    /// Time until the next call if nothing changes.
    pub(super) result: Result<Option<Duration>, ReconcileError>,
}

impl KnownComponent {
    pub(super) fn new(access: Access) -> Self {
        Self {
            access: Arc::new(access),
            memories: Memories::default(),
            states: Mutex::default(),
            pauses: Mutex::default(),
        }
    }

    /// Records chart and values of a component. Returns their generation.
    pub(super) fn wants(&self, key: &Key, uid: &str, chart: &Chart, values: &Value) -> i64 {
        let mut states = self.states.lock();
        let state = states.of(key, uid);
        let is_same = |known: &(Chart, Value)| chart.is_same(&known.0) && *values == known.1;
        if !state.wanted.as_ref().is_some_and(is_same) {
            state.wanted = Some((chart.clone(), values.clone()));
            state.generation += 1;
        }
        state.generation
    }

    /// Returns the chart of a component, if this process has installed it.
    pub(super) fn chart(&self, key: &Key, uid: &str) -> Option<Chart> {
        let states = self.states.lock();
        let known = states.0.get(key).filter(|known| known.uid == uid)?;
        known.wanted.as_ref().map(|(chart, _)| chart.clone())
    }

    /// Records that a call has succeeded.
    pub(super) fn succeeded(&self, key: &Key) {
        self.pauses.lock().reset(key);
    }

    /// Returns the pause after a failed call.
    pub(super) fn failed(&self, key: &Key) -> Duration {
        self.pauses.lock().failed(key, 0)
    }

    /// Forgets the component of a custom resource. Returns whether there are others.
    pub(super) fn forget(&self, key: &Key) -> bool {
        self.access.forget(key);
        self.memories.forget(key);
        self.pauses.lock().reset(key);
        let mut states = self.states.lock();
        states.0.remove(key);
        !states.0.is_empty()
    }

    /// Reconciles until nothing can be done at once.
    pub(super) async fn reconcile(
        &self,
        setup: Setup,
        owner: ComponentOwner,
        until: Instant,
    ) -> Passed {
        let (owner, access) = (Arc::new(owner), &self.access);
        let (key, uid) = (Key::from(&owner.primary), owner.primary.uid.as_str());
        let metadata = ObjectMeta {
            name: Some(owner.primary.name.clone()),
            namespace: owner.primary.namespace.clone(),
            uid: Some(uid.to_owned()),
            generation: Some(owner.generation),
            ..ObjectMeta::default()
        };
        let mut engine = Engine {
            setup: Arc::new(setup),
            access: Arc::clone(access),
            limit: Duration::ZERO,
        };
        // After a restart, an uninstall is the first call.
        self.states.lock().of(&key, uid);
        let mut status = owner.status();
        let mut result = Ok(Some(Duration::from_secs(1)));
        for _ in 0..MAX_STEPS {
            let subject = match owner.subject(&engine.setup, access) {
                Ok(subject) => subject,
                Err(error) => {
                    result = Err(error.into());
                    break;
                }
            };
            // The caller needs time to tell of a component that is cut off.
            engine.limit = until.saturating_duration_since(Instant::now()) * 9 / 10;
            let mut memory = self.memories.take(&key, uid, || {
                access.forget(&key);
                self.pauses.lock().reset(&key);
            });
            let pause = self.pauses.lock().next(&key);
            let mut history = std::mem::take(&mut memory.traced);
            let pass = async {
                let published = engine.advance(&subject, &*owner, &mut memory, pause).await;
                status = published.status;
                published.outcome
            };
            let attempt = access
                .tracer
                .attempt(&mut history, &metadata, Box::pin(pass));
            let outcome = attempt.await;
            memory.traced = history;
            result = match outcome {
                Ok(Outcome::After(delay)) if delay.is_zero() => continue,
                Ok(Outcome::After(delay)) => Ok(Some(delay)),
                Ok(Outcome::Done) => Ok(None),
                Err(error) => Err(error),
            };
            break;
        }
        Passed {
            status,
            released: owner.released.load(Ordering::Relaxed),
            result,
        }
    }
}

/// A component as the owner of its release.
pub(super) struct ComponentOwner {
    pub(super) known: Arc<KnownComponent>,
    pub(super) primary: Primary,
    pub(super) values: Value,
    /// Name of the release, if it is chosen.
    pub(super) release_name: Option<String>,
    pub(super) generation: i64,
    /// Start of the uninstall, if the component is not wanted any more.
    pub(super) deleted: Option<Timestamp>,
    /// Whether the release is gone.
    pub(super) released: AtomicBool,
}

impl ComponentOwner {
    /// Calls a function with the state, unless the component is forgotten.
    fn with_state<T>(&self, call: impl FnOnce(&mut State) -> T) -> Option<T> {
        let mut states = self.known.states.lock();
        let known = states.0.get_mut(&Key::from(&self.primary));
        known
            .filter(|known| known.uid == self.primary.uid)
            .map(call)
    }

    fn status(&self) -> Status {
        let status = self.with_state(|state| state.status.clone());
        Status::read(status.as_ref(), host::timestamp(), Some(self.generation))
    }

    /// Returns the release of the component, and what is asked of it. Annotations of the custom resource are for its
    /// own controller.
    fn subject(self: &Arc<Self>, setup: &Setup, access: &Access) -> Result<Subject, SubjectError> {
        let (primary, deleting) = (&self.primary, self.deleted.is_some());
        let own = setup.operator_namespace.as_deref();
        let configured = || {
            let mut wanted = wanted(primary, &Value::Null, &setup.watch, own)?;
            if let Some(name) = &self.release_name {
                wanted.name = ReleaseName::new(name.as_str())?;
            }
            Ok(wanted)
        };
        let place = Place::of(primary, deleting, setup, access, configured)?;
        let account = access.own_account();
        Ok(Subject {
            target: Target::new(primary.clone(), place.location, account, access),
            owner: Arc::clone(self) as Arc<dyn Owner>,
            generation: Some(self.generation),
            deleting,
            held: true,
            foreground: false,
            legacy: false,
            annotations: Annotations::default(),
            status: self.status(),
            error: place.error,
        })
    }
}

impl Owner for ComponentOwner {
    fn read(&self) -> BoxFuture<'_, Result<Option<Present>, ApiError>> {
        let present = Present {
            generation: Some(self.generation),
            deleted: self.deleted,
            is_held: !self.released.load(Ordering::Relaxed),
            others: Vec::new(),
        };
        Box::pin(std::future::ready(Ok(Some(present))))
    }

    fn hold(&self) -> BoxFuture<'_, Result<bool, ApiError>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    fn release<'a>(&'a self, _: &'a Present) -> BoxFuture<'a, Result<(), ApiError>> {
        self.released.store(true, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(())))
    }

    fn is_wanted(&self) -> bool {
        self.deleted.is_none() && self.with_state(|_| ()).is_some()
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
        let values = self.values.as_object().cloned().unwrap_or_default();
        Box::pin(std::future::ready(Ok(OwnValues {
            values,
            overridden: Vec::new(),
            kept: None,
            read: Vec::new(),
        })))
    }

    fn quoted(&self) -> Option<&Value> {
        Some(&self.values)
    }
}

impl Reporter for ComponentOwner {
    /// A native controller may show the conditions to anybody.
    fn reader(&self) -> Reader {
        Reader::Anybody
    }

    fn patch_status<'a>(
        &'a self,
        patch: &'a Value,
    ) -> BoxFuture<'a, Result<Option<Value>, ApiError>> {
        let merged = self.with_state(|state| {
            json_patch::merge(&mut state.status, patch);
            state.status.clone()
        });
        Box::pin(std::future::ready(Ok(merged)))
    }

    fn send<'a>(&'a self, access: &'a Access, event: Event) -> BoxFuture<'a, ()> {
        Box::pin(access.events.publish(&self.primary, event))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn state_outlives_an_uninstall_that_waits_and_belongs_to_a_uid() {
        let (mut states, key) = (States::default(), Key::new(Some("ns"), "shop"));
        states.of(&key, "a").status = json!({"conditions": []});
        assert_eq!(states.of(&key, "a").status, json!({"conditions": []}));
        assert_eq!(states.of(&key, "b").status, Value::Null);
        assert_eq!(states.of(&key, "b").generation, 0);
    }
}

//! Examines all unready releases of a namespace at once, in the background.
//!
//! # Flow
//! A reconcile whose release waits for objects [joins](Rounds::join) with a [`Patient`] and goes on with
//! what is known of it: [`Patient::cause`]. A task per account and namespace reads Pods and events for
//! all patients together, and wakes the custom resources whose cause has changed.
//!
//! # Guarantees
//! * No reconcile waits for a read. The first round begins [`PATIENCE`] after the first release joined.
//! * A namespace is read at most once in [`PAUSE`], for any number of releases, and less and less often
//!   while nothing changes. At most [`AT_ONCE`] namespaces of the process are read at a time.
//! * A patient belongs to the memory of its custom resource: when that is dropped, it is not examined any
//!   more, and the last one of a namespace ends its task.
//! * Numbers that grow (restarts, events) change a cause only when they have doubled.

use host::HashMap;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use object_key::ObjectKey;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::examine::{Case, Place, examine};
use super::reading::{Reader, Selection};
use super::{Cause, Finding, MAX_EXAMINED, worst};
use crate::Cluster;

/// Time that a release may be unready before its Pods and events are read.
const PATIENCE: Duration = Duration::from_secs(10);
/// Minimum time between two rounds in a namespace.
const PAUSE: Duration = Duration::from_mins(1);
/// Maximum time between two rounds in a namespace.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// Number of namespaces that are read at a time.
const AT_ONCE: usize = 2;

/// A release that is not ready.
pub struct Patient {
    wake: Box<dyn Fn() + Send + Sync>,
    state: Mutex<State>,
}

struct State {
    /// The unready objects.
    objects: Vec<ObjectKey>,
    logs: bool,
    /// Known facts about each unready object.
    cases: HashMap<ObjectKey, Case>,
    told: Told,
}

/// Cause of an unready release, as it was told.
struct Told {
    cause: Option<Cause>,
    /// Finding after which the cause was told; `None` if an earlier process told it.
    finding: Option<Finding>,
}

impl Told {
    fn is_same(&self, found: Option<&Finding>) -> bool {
        match (&self.cause, &self.finding, found) {
            (None, _, None) => true,
            (Some(cause), None, Some(found)) => {
                cause.reason == found.reason && cause.message.starts_with(&found.message)
            }
            (Some(_), Some(known), Some(found)) => {
                let told = |finding: &Finding| {
                    let magnitude = finding.repeats.magnitude();
                    (finding.reason, magnitude, finding.log.is_some())
                };
                told(known) == told(found) && known.message == found.message
            }
            _ => false,
        }
    }
}

impl Patient {
    /// Creates a patient. `wake` is called when its cause has changed; `earlier` is the cause that an
    /// earlier process has found.
    pub fn new(wake: impl Fn() + Send + Sync + 'static, earlier: Option<Cause>) -> Arc<Self> {
        Arc::new(Self {
            wake: Box::new(wake),
            state: Mutex::new(State {
                objects: Vec::new(),
                logs: false,
                cases: HashMap::default(),
                told: Told {
                    cause: earlier,
                    finding: None,
                },
            }),
        })
    }

    /// Returns why the release is not ready, if that is known.
    pub fn cause(&self) -> Option<Cause> {
        self.state.lock().told.cause.clone()
    }

    /// Replaces the unready objects. Returns whether there are others than before.
    fn replace(&self, objects: &[ObjectKey], logs: bool) -> bool {
        let mut state = self.state.lock();
        let changed = state.objects != objects;
        if changed {
            state.objects = objects.to_vec();
            state.cases.retain(|key, _| objects.contains(key));
        }
        state.logs = logs;
        changed
    }

    /// Returns what is to be examined in a namespace.
    fn cases(&self, namespace: &str) -> Vec<(ObjectKey, Case)> {
        let state = self.state.lock();
        let here = state
            .objects
            .iter()
            .filter(|key| in_namespace(key, namespace));
        here.map(|key| {
            let case = state.cases.get(key).cloned().unwrap_or_default();
            (
                key.clone(),
                Case {
                    logs: state.logs,
                    ..case
                },
            )
        })
        .collect()
    }

    /// Records what was found in a namespace. Returns whether that is new.
    fn told(&self, namespace: &str, examined: &BTreeMap<Place, Case>) -> bool {
        let mut state = self.state.lock();
        let State {
            objects,
            cases,
            told,
            ..
        } = &mut *state;
        for key in objects.iter().filter(|key| in_namespace(key, namespace)) {
            if let Some(case) = Place::of(key).and_then(|place| examined.get(&place)) {
                cases.insert(key.clone(), case.clone());
            }
        }
        let findings = objects.iter().filter_map(|key| {
            let finding = cases.get(key)?.finding.as_ref()?;
            Some((key, finding))
        });
        let found = worst(findings);
        let is_same = told.is_same(found.as_ref());
        if !is_same {
            told.cause = found.as_ref().map(Finding::cause);
        }
        // Numbers are compared with those that were told.
        if !is_same || told.finding.is_none() {
            told.finding = found;
        }
        !is_same
    }
}

fn in_namespace(key: &ObjectKey, namespace: &str) -> bool {
    key.namespace.as_deref().unwrap_or_default() == namespace
}

/// The account that reads, `None` for the operator's own, and the namespace.
type GroupKey = (Option<String>, String);

/// The rounds of a process.
#[derive(Clone)]
pub struct Rounds {
    groups: Arc<Mutex<HashMap<GroupKey, Arc<Group>>>>,
    permits: Arc<Semaphore>,
    stop: CancellationToken,
}

/// The patients of an account in a namespace.
struct Group {
    cluster: Cluster,
    times: Mutex<Times>,
    changed: Notify,
}

struct Times {
    patients: Vec<Weak<Patient>>,
    next: Instant,
    last: Option<Instant>,
    pause: Duration,
}

impl Rounds {
    /// Creates rounds that end when `stop` is cancelled.
    pub fn new(stop: CancellationToken) -> Self {
        Self {
            groups: Arc::default(),
            permits: Arc::new(Semaphore::new(AT_ONCE)),
            stop,
        }
    }

    /// Has these objects of a release examined, of which the first three count, with the
    /// rights of `account`, by its `cluster`. `logs` tells whether the logs of crashed
    /// containers may be shown.
    pub fn join(
        &self,
        patient: &Arc<Patient>,
        account: Option<&str>,
        cluster: &Cluster,
        unready: &[ObjectKey],
        logs: bool,
    ) {
        let known = unready.iter().filter(|key| Place::of(key).is_some());
        let objects: Vec<ObjectKey> = known.take(MAX_EXAMINED).cloned().collect();
        if !patient.replace(&objects, logs) {
            return;
        }
        for key in &objects {
            let namespace = key.namespace.clone().unwrap_or_default();
            let group = (account.map(ToOwned::to_owned), namespace);
            let mut groups = self.groups.lock();
            if let Some(present) = groups.get(&group) {
                present.add(patient);
            } else {
                let new = Arc::new(Group::new(cluster.clone()));
                new.add(patient);
                groups.insert(group.clone(), Arc::clone(&new));
                tokio::spawn(self.clone().attend(group, new));
            }
        }
    }

    /// Examines the patients of a group until there are none.
    async fn attend(self, key: GroupKey, group: Arc<Group>) {
        let (_, namespace) = &key;
        loop {
            let next = group.times.lock().next;
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = group.changed.notified() => continue,
                () = tokio::time::sleep_until(next) => {}
            }
            let Ok(_permit) = self.permits.acquire().await else {
                return;
            };
            let Some(patients) = self.present(&key, &group) else {
                return;
            };
            let round = group.examine(namespace, &patients);
            let Some(news) = self.stop.run_until_cancelled(round).await else {
                return;
            };
            group.plan(news);
        }
    }

    /// Returns the patients of a group. Forgets the group if it has none.
    fn present(&self, key: &GroupKey, group: &Group) -> Option<Vec<Arc<Patient>>> {
        let mut groups = self.groups.lock();
        let mut times = group.times.lock();
        times.patients.retain(|patient| patient.strong_count() > 0);
        let present: Vec<Arc<Patient>> = times.patients.iter().filter_map(Weak::upgrade).collect();
        if present.is_empty() {
            groups.remove(key);
            return None;
        }
        let now = Instant::now();
        times.last = Some(now);
        times.next = now + times.pause;
        Some(present)
    }
}

impl Group {
    fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            times: Mutex::new(Times {
                patients: Vec::new(),
                next: Instant::now() + PATIENCE,
                last: None,
                pause: PAUSE,
            }),
            changed: Notify::new(),
        }
    }

    /// Adds a patient, or one with other objects.
    fn add(&self, patient: &Arc<Patient>) {
        let mut times = self.times.lock();
        let weak = Arc::downgrade(patient);
        if !times.patients.iter().any(|known| known.ptr_eq(&weak)) {
            times.patients.push(weak);
        }
        times.pause = PAUSE;
        let earliest = times.last.map(|last| last + PAUSE);
        let wanted = Instant::now() + PATIENCE;
        times.next = times
            .next
            .min(earliest.map_or(wanted, |earliest| earliest.max(wanted)));
        drop(times);
        self.changed.notify_one();
    }

    /// Sets the time of the next round after one that found something new, or did not.
    fn plan(&self, news: bool) {
        let mut times = self.times.lock();
        if news {
            times.pause = PAUSE;
            let earliest = times.last.map(|last| last + PAUSE);
            times.next = earliest.map_or(times.next, |earliest| earliest.min(times.next));
        } else {
            times.pause = (times.pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Examines these patients. Returns whether something new was found.
    async fn examine(&self, namespace: &str, patients: &[Arc<Patient>]) -> bool {
        let mut cases = BTreeMap::new();
        for (key, case) in patients.iter().flat_map(|patient| patient.cases(namespace)) {
            if let Some(place) = Place::of(&key) {
                cases.insert(place, case);
            }
        }
        let reader = Reader {
            client: self.cluster.client(),
            namespace,
        };
        let pods = Selection::fields("status.phase!=Succeeded");
        if let Err(error) = examine(&reader, &pods, &mut cases).await {
            let error: &dyn std::error::Error = &error;
            tracing::debug!(namespace, error, "cannot read why releases are not ready");
            return false;
        }
        let mut news = false;
        for patient in patients {
            if patient.told(namespace, &cases) {
                news = true;
                (patient.wake)();
            }
        }
        news
    }
}

#[cfg(test)]
mod tests;

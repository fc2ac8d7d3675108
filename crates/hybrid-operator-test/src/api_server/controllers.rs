//! The server's own controllers: what they have to do, and when.
//!
//! A change of the store makes tasks ([`Server::react`]). Each is due after a delay that is drawn from the
//! seed. Tasks that are due are executed before the next request, or when a test takes a step.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::object::{items, meta, meta_field};
use super::server::Server;
use super::store::{Change, Key, Resource, key_of};
use super::{Options, Pace, definitions, garbage, namespaces, workloads};

/// An object, of whatever kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Object {
    pub(super) resource: Arc<Resource>,
    pub(super) key: Key,
}

/// A task of a controller.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// Accept the names of a definition, or delete its objects.
    Definition(String),
    /// Create what every namespace has.
    Furnish(String),
    /// Delete what is in a namespace, and then the namespace.
    Empty(String),
    /// Delete an object whose owners are gone.
    Collect(Object),
    /// Delete the dependents of an object that waits for them.
    Foreground(Object),
    /// Remove the references to an object that leaves its dependents.
    Orphan(Object),
    /// Delete a finished Job.
    Expire(Object),
    /// Do what a workload's controller does.
    Work(Object),
}

#[derive(Debug)]
pub(super) struct Controllers {
    tasks: BTreeMap<(Duration, u64), Task>,
    pending: BTreeSet<Task>,
    serial: u64,
    delays: RangeInclusive<Duration>,
    pace: Pace,
    pub(super) workloads: bool,
    /// Objects by the uids of their owners.
    pub(super) dependents: BTreeMap<String, BTreeSet<Object>>,
}

impl Controllers {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            tasks: BTreeMap::new(),
            pending: BTreeSet::new(),
            serial: 0,
            delays: options.delays.clone(),
            pace: options.pace,
            workloads: options.workloads,
            dependents: BTreeMap::new(),
        }
    }

    fn index(&mut self, object: &Object, before: Option<&Value>, after: Option<&Value>) {
        for uid in owner_uids(before) {
            if let Some(dependents) = self.dependents.get_mut(&uid) {
                dependents.remove(object);
                if dependents.is_empty() {
                    self.dependents.remove(&uid);
                }
            }
        }
        for uid in owner_uids(after) {
            let dependents = self.dependents.entry(uid).or_default();
            dependents.insert(object.clone());
        }
    }
}

/// Returns the uids of an object's owners.
pub(super) fn owner_uids(object: Option<&Value>) -> Vec<String> {
    let owners = items(object.and_then(|object| meta_field(object, "ownerReferences")));
    let uids = owners.iter().filter_map(|owner| owner.get("uid")?.as_str());
    uids.map(ToOwned::to_owned).collect()
}

impl Server {
    /// Makes a task, due after a delay that is drawn.
    pub(super) fn schedule(&mut self, task: Task) {
        let delays = self.controllers.delays.clone();
        let delay = self.draw(&delays);
        self.schedule_in(task, delay);
    }

    /// Makes a task, due after this time.
    pub(super) fn schedule_in(&mut self, task: Task, delay: Duration) {
        if !self.controllers.pending.insert(task.clone()) {
            return;
        }
        self.controllers.serial += 1;
        let due = (self.time() + delay, self.controllers.serial);
        self.controllers.tasks.insert(due, task);
    }

    /// Returns the instant at which the next task is due, unless a test decides.
    pub(super) fn next_due(&self) -> Option<Instant> {
        if self.controllers.pace == Pace::Steps {
            return None;
        }
        let ((due, _), _) = self.controllers.tasks.first_key_value()?;
        Some(self.clock.instant(*due))
    }

    /// Executes the tasks that are due, and shows the present time.
    pub(super) fn catch_up(&mut self) {
        let now = self.clock.elapsed();
        while self.controllers.pace == Pace::Clock
            && let Some(((due, _), _)) = self.controllers.tasks.first_key_value()
            && *due <= now
        {
            self.set_time(*due);
            self.step();
        }
        self.set_time(now);
    }

    /// Executes the next task, due or not. Returns `false` if there is none.
    pub(super) fn step(&mut self) -> bool {
        let Some((_, task)) = self.controllers.tasks.pop_first() else {
            return false;
        };
        self.controllers.pending.remove(&task);
        match task {
            Task::Definition(name) => definitions::advance(self, &name),
            Task::Furnish(namespace) => namespaces::furnish(self, &namespace),
            Task::Empty(namespace) => namespaces::empty(self, &namespace),
            Task::Collect(object) => self.act_if_there(&object, garbage::collect),
            Task::Foreground(object) => self.act_if_there(&object, garbage::delete_dependents),
            Task::Orphan(object) => self.act_if_there(&object, garbage::release_dependents),
            Task::Expire(object) => self.act_if_there(&object, workloads::expire),
            Task::Work(object) => self.act_if_there(&object, workloads::work),
        }
        self.observe();
        true
    }

    fn act_if_there(&mut self, object: &Object, act: fn(&mut Self, &Object, &Value)) {
        if let Some(live) = self.store.get(&object.resource, &object.key) {
            act(self, object, &live);
        }
    }

    /// Makes the tasks that follow from a change.
    pub(super) fn react(&mut self, change: &Change) {
        let Some(last) = change.last() else { return };
        let object = Object {
            resource: Arc::clone(&change.resource),
            key: key_of(&last),
        };
        let (before, after) = (change.before(), change.after());
        self.controllers.index(&object, before, after);
        let Resource { group, plural } = &*change.resource;
        match (group.as_str(), plural.as_str()) {
            ("apiextensions.k8s.io", "customresourcedefinitions") => {
                definitions::react(self, change);
            }
            ("", "namespaces") => namespaces::react(self, change),
            _ => {}
        }
        definitions::react_to_instance(self, change);
        namespaces::react_to_content(self, change, &object);
        garbage::react(self, change, &object, meta(&last, "uid"));
        workloads::react(self, change, &object);
    }
}

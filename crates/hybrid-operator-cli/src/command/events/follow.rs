//! `events --watch`: shows events as they happen.
//!
//! Events about objects that are not known yet, such as the Pods of a new revision, wait until it has
//! been read again whose events are shown.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use futures::stream::{BoxStream, SelectAll, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher;
use tokio::time::{Instant, sleep_until};

use super::about::About;
use super::{Row, row};
use crate::cluster::{Cluster, explain_watch};

/// Time that events about unknown objects wait for others, to be looked up together.
const GATHER: Duration = Duration::from_secs(1);
/// Time for which an object is remembered as one of another release.
const FORGET: Duration = Duration::from_mins(1);

type Streams = SelectAll<BoxStream<'static, (String, watcher::Result<watcher::Event<Event>>)>>;

/// Passes the events to `print`, oldest first, until `end`. `read` returns whose events are shown.
pub(super) async fn run(
    cluster: &Cluster,
    about: About,
    read: impl AsyncFn() -> anyhow::Result<About>,
    print: &mut dyn FnMut(&Row) -> anyhow::Result<()>,
    end: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let mut end = std::pin::pin!(end);
    let mut view = View::new(about);
    let mut streams = Streams::new();
    let mut open = BTreeSet::new();
    let mut warned = None;
    loop {
        for namespace in view.about.namespaces.difference(&open) {
            streams.push(stream(cluster, namespace));
        }
        open.extend(view.about.namespaces.iter().cloned());
        let look_up = view.look_up_at;
        let next = tokio::select! {
            next = streams.next() => next,
            () = sleep_until(look_up.unwrap_or_else(Instant::now)), if look_up.is_some() => {
                let again = tokio::select! {
                    again = read() => again,
                    () = &mut end => return Ok(()),
                };
                // A custom resource that is gone still has events.
                view.looked_up(again.ok(), Instant::now()).iter().try_for_each(&mut *print)?;
                continue;
            }
            () = &mut end => return Ok(()),
        };
        let Some((namespace, event)) = next else {
            return Ok(());
        };
        match event {
            Ok(event) => {
                warned = None;
                let rows = view.apply(&namespace, event, Instant::now());
                rows.iter().try_for_each(&mut *print)?;
            }
            // The events are listed again.
            Err(watcher::Error::WatchError(status)) if status.code == 410 => {}
            Err(error) => {
                let error = explain_watch(cluster, error, "events", Some(&namespace));
                if view.is_first() {
                    return Err(error);
                }
                // The watch is opened again, after a pause.
                let text = format!("warning: {error:#}");
                if warned.as_ref() != Some(&text) {
                    crate::print_message(&text);
                    warned = Some(text);
                }
            }
        }
    }
}

fn stream(
    cluster: &Cluster,
    namespace: &str,
) -> BoxStream<'static, (String, watcher::Result<watcher::Event<Event>>)> {
    let api = Api::<Event>::namespaced(cluster.client.clone(), namespace);
    let stream = watcher::watcher(api, watcher::Config::default()).default_backoff();
    let namespace = namespace.to_owned();
    stream.map(move |event| (namespace.clone(), event)).boxed()
}

/// Fields that tell an event from an earlier state of it.
#[derive(Debug, Clone, PartialEq)]
struct Stamp {
    count: i32,
    last_seen: Option<Timestamp>,
}

/// Events seen so far. Decides what is printed.
struct View {
    about: About,
    /// Events of each namespace by uid.
    seen: BTreeMap<String, HashMap<String, Stamp>>,
    /// Lists that are not complete.
    lists: BTreeMap<String, Vec<Event>>,
    /// Namespaces whose first list is complete.
    listed: BTreeSet<String>,
    /// Events of first lists, until all of them are complete.
    first: Vec<Event>,
    /// Events about unknown objects.
    unknown: Vec<Event>,
    /// Time at which `about` is read again.
    look_up_at: Option<Instant>,
    /// Objects of others.
    others: HashMap<String, Instant>,
}

impl View {
    fn new(about: About) -> Self {
        Self {
            about,
            seen: BTreeMap::new(),
            lists: BTreeMap::new(),
            listed: BTreeSet::new(),
            first: Vec::new(),
            unknown: Vec::new(),
            look_up_at: None,
            others: HashMap::new(),
        }
    }

    /// Returns whether the first lists are not complete.
    fn is_first(&self) -> bool {
        !self.about.namespaces.is_subset(&self.listed)
    }

    /// Takes an event of a watch in, and returns what is to be printed.
    fn apply(&mut self, namespace: &str, event: watcher::Event<Event>, now: Instant) -> Vec<Row> {
        match event {
            watcher::Event::Init => {
                self.lists.insert(namespace.to_owned(), Vec::new());
                Vec::new()
            }
            watcher::Event::InitApply(event) => {
                self.lists
                    .entry(namespace.to_owned())
                    .or_default()
                    .push(event);
                Vec::new()
            }
            watcher::Event::InitDone => self.listed(namespace, now),
            watcher::Event::Apply(event) => {
                let seen = self.seen.entry(namespace.to_owned()).or_default();
                let is_new = remember(seen, &event);
                self.rows(is_new.then_some(event).into_iter().collect(), now)
            }
            watcher::Event::Delete(event) => {
                if let (Some(seen), Some(uid)) = (self.seen.get_mut(namespace), &event.metadata.uid)
                {
                    seen.remove(uid);
                }
                Vec::new()
            }
        }
    }

    /// A list is complete: the first one, or another after the watch had to begin again.
    fn listed(&mut self, namespace: &str, now: Instant) -> Vec<Row> {
        let list = self.lists.remove(namespace).unwrap_or_default();
        let seen = self.seen.entry(namespace.to_owned()).or_default();
        let mut known = HashMap::new();
        let mut new = Vec::new();
        for event in list {
            let is_new = remember(seen, &event);
            remember(&mut known, &event);
            if is_new {
                new.push(event);
            }
        }
        // Events that are not in the list are deleted.
        *seen = known;
        let was_first = self.is_first();
        self.listed.insert(namespace.to_owned());
        if !was_first {
            return self.rows(new, now);
        }
        self.first.append(&mut new);
        if self.is_first() {
            return Vec::new();
        }
        let first = std::mem::take(&mut self.first);
        self.rows(first, now)
    }

    /// Returns the rows of events about known objects. Events about others wait.
    fn rows(&mut self, events: Vec<Event>, now: Instant) -> Vec<Row> {
        self.others
            .retain(|_, since| now.duration_since(*since) < FORGET);
        let mut rows = Vec::new();
        for event in events {
            if self.about.concerns(&event) {
                rows.push(row(event));
            } else if !self.others.contains_key(&subject(&event)) {
                self.unknown.push(event);
                self.look_up_at.get_or_insert(now + GATHER);
            }
        }
        rows.sort_by_key(|row| row.last_seen);
        rows
    }

    /// Takes in `about` as read again; `None` if that was not possible.
    fn looked_up(&mut self, about: Option<About>, now: Instant) -> Vec<Row> {
        if let Some(about) = about {
            self.about = about;
        }
        self.look_up_at = None;
        let (known, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unknown)
            .into_iter()
            .partition(|event| self.about.concerns(event));
        self.others
            .extend(others.iter().map(|event| (subject(event), now)));
        self.rows(known, now)
    }
}

/// Remembers an event, and returns whether it was unknown in this state.
fn remember(seen: &mut HashMap<String, Stamp>, event: &Event) -> bool {
    let row = row(event.clone());
    let stamp = Stamp {
        count: row.count,
        last_seen: row.last_seen,
    };
    let uid = event.metadata.uid.clone().unwrap_or_default();
    seen.insert(uid, stamp.clone()) != Some(stamp)
}

/// Identifies the object of an event.
fn subject(event: &Event) -> String {
    let object = &event.involved_object;
    match &object.uid {
        Some(uid) => uid.clone(),
        None => format!("{:?} {:?} {:?}", object.kind, object.namespace, object.name),
    }
}

#[cfg(test)]
mod tests;

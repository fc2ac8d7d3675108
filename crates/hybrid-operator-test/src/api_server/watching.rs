//! Watches: what they show, and the streams of their events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use host::watch;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use tower::BoxError;

use super::decode::to_version;
use super::object::{meta, set_meta};
use super::reading::unparsable;
use super::request::{Call, Form};
use super::selectors::Selector;
use super::server::{Place, Reply, Server, Signal, formed, text};
use super::status::{Cause, Failure};
use super::store::{Change, Stored};
use crate::fault::AnswerBody;

/// Time between two bookmarks of a watch without events.
const BOOKMARKS: Duration = Duration::from_mins(1);

/// Shortest time until the server ends a watch that has no limit; the longest is twice that.
const LONGEST: Duration = Duration::from_mins(30);

#[derive(Debug)]
pub(super) struct Watch {
    place: Place,
    selector: Selector,
    form: Form,
    /// Version up to which the watch has shown the changes.
    seen: u64,
    /// Delay with which the next changes are shown.
    lag: Duration,
    queue: VecDeque<String>,
    bookmarks: Option<Instant>,
    deadline: Instant,
    signal: watch::Receiver<Signal>,
    cuts: u64,
    over: bool,
}

pub(super) fn open(server: &mut Server, call: &Call, place: &Place) -> Result<Reply, Failure> {
    let options = |field: &str, detail: &str| {
        Failure::invalid_options("ListOptions", Cause::forbidden(field, detail))
    };
    let given = call.query.contains_key("sendInitialEvents");
    let rule = call.parameter("resourceVersionMatch");
    if !given && !rule.is_empty() {
        let detail =
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        return Err(options("resourceVersionMatch", detail));
    }
    if given && rule != "NotOlderThan" {
        let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        return Err(options("resourceVersionMatch", detail));
    }
    let initial = call.flag("sendInitialEvents");
    let selector = Selector::of(call, &place.kind)?;
    let version = call.parameter("resourceVersion");
    let from: u64 = match version {
        "" => 0,
        text => text
            .parse()
            .map_err(|_| Failure::internal(unparsable("resourceVersion", text)))?,
    };
    let now = server.clock.instant(server.time());
    let limit = match call.parameter("timeoutSeconds").parse::<u64>() {
        Ok(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => LONGEST + Duration::from_secs(server.random.u64(..=LONGEST.as_secs())),
    };
    let bookmarks = call.flag("allowWatchBookmarks").then_some(now + BOOKMARKS);
    let signal = server.subscribe();
    let cuts = signal.borrow().cuts;
    let mut watch = Watch {
        place: place.clone(),
        selector,
        form: call.form().unwrap_or(Form::Whole),
        seen: from,
        lag: server.draw_lag(),
        queue: VecDeque::new(),
        bookmarks,
        deadline: now + limit,
        signal,
        cuts,
        over: false,
    };
    if initial || from == 0 {
        watch.seen = if version == "0" {
            server.cached_version()
        } else {
            server.store.version()
        };
        let objects = server.store.list_at(&place.kind.resource, watch.seen);
        for object in objects.unwrap_or_default().into_values() {
            if watch.selects(&object) {
                watch.push("ADDED", &object);
            }
        }
        if initial && bookmarks.is_some() {
            watch.push_bookmark(true);
        }
    } else if let oldest = server.store.compacted().max(place.kind.since)
        && from < oldest
    {
        watch.expire(oldest);
    }
    Ok(Reply::Watch(Box::new(watch)))
}

impl Watch {
    fn push(&mut self, event: &str, object: &Arc<Stored>) {
        let object = to_version(&self.place.kind, &self.place.version, object);
        let object = text(self.form, &object);
        self.queue
            .push_back(format!(r#"{{"type":"{event}","object":{object}}}"#));
    }

    fn push_bookmark(&mut self, is_initial: bool) {
        let mut object = json!({
            "kind": self.place.kind.kind,
            "apiVersion": self.place.kind.api_version(&self.place.version.name),
            "metadata": {"resourceVersion": self.seen.to_string()},
        });
        if is_initial {
            let end = json!({"k8s.io/initial-events-end": "true"});
            set_meta(&mut object, "annotations", end);
        }
        let object = formed(self.form, &object);
        self.queue
            .push_back(json!({"type": "BOOKMARK", "object": object}).to_string());
    }

    /// Ends the watch, as the changes after what it has seen are forgotten.
    fn expire(&mut self, oldest: u64) {
        let message = format!("too old resource version: {} ({oldest})", self.seen);
        let status = Failure::expired(&message).status();
        self.queue
            .push_back(json!({"type": "ERROR", "object": status}).to_string());
        self.over = true;
    }

    fn selects(&self, object: &Value) -> bool {
        let wanted = self.place.namespace.as_deref();
        wanted.is_none_or(|wanted| wanted == meta(object, "namespace"))
            && self.selector.matches(object)
    }

    /// Queues what a change means for this watch.
    fn show(&mut self, change: &Change) {
        let selected = |object: &Option<Arc<Stored>>| {
            object.as_ref().is_some_and(|object| self.selects(object))
        };
        let (before, after) = (selected(&change.before), selected(&change.after));
        match (before, after, &change.after) {
            (false, true, Some(object)) => self.push("ADDED", object),
            (true, true, Some(object)) => self.push("MODIFIED", object),
            (true, false, _) => {
                let left = Change {
                    after: None,
                    ..change.clone()
                };
                if let Some(object) = left.last() {
                    self.push("DELETED", &object);
                }
            }
            _ => {}
        }
    }

    /// Queues the events since the last call, and returns the instant of the next look.
    fn look(&mut self, server: &mut Server) -> Instant {
        server.catch_up();
        let now = Instant::now();
        if self.seen < server.store.compacted() {
            self.expire(server.store.compacted());
            return now;
        }
        let shown = server.time().saturating_sub(self.lag);
        let mut hidden = None;
        let mut changes: Vec<Change> = Vec::new();
        let mut seen = server.store.version();
        for change in server.store.changes_after(self.seen) {
            if change.at > shown {
                hidden = Some(server.clock.instant(change.at + self.lag));
                seen = change.version - 1;
                break;
            }
            if *change.resource == self.place.kind.resource {
                changes.push(change.clone());
            }
        }
        self.seen = self.seen.max(seen);
        for change in &changes {
            self.show(change);
            if server.draw_repetition() {
                self.show(change);
            }
        }
        if !changes.is_empty() {
            self.lag = server.draw_lag();
        }
        let present = server.kinds.of(&self.place.kind.resource);
        let closed = present.is_none_or(|kind| kind.since != self.place.kind.since);
        if closed || now >= self.deadline {
            self.over = true;
        }
        if !changes.is_empty() {
            self.bookmarks = self.bookmarks.map(|_| now + BOOKMARKS);
        }
        if let Some(due) = self.bookmarks
            && due <= now
        {
            self.push_bookmark(false);
            self.bookmarks = Some(now + BOOKMARKS);
        }
        [self.bookmarks, server.next_due(), hidden]
            .into_iter()
            .flatten()
            .fold(self.deadline, Instant::min)
    }

    /// Returns the stream of the events.
    pub(super) fn body(self, server: Arc<Mutex<Server>>) -> AnswerBody {
        let events = stream::unfold((self, server), |(mut watch, server)| async move {
            loop {
                if watch.signal.borrow().cuts != watch.cuts {
                    let cut = Err(BoxError::from("connection closed before message completed"));
                    watch.cuts = watch.signal.borrow().cuts;
                    watch.queue.clear();
                    watch.over = true;
                    return Some((cut, (watch, server)));
                }
                if let Some(event) = watch.queue.pop_front() {
                    let line = Bytes::from(format!("{event}\n"));
                    return Some((Ok(Frame::data(line)), (watch, server)));
                }
                if watch.over {
                    return None;
                }
                watch.signal.mark_unchanged();
                let next = {
                    let mut server = server.lock();
                    watch.look(&mut server)
                };
                if watch.queue.is_empty() && !watch.over {
                    drop(timeout_at(next, watch.signal.changed()).await);
                }
            }
        });
        StreamBody::new(events.boxed()).boxed_unsync()
    }
}
